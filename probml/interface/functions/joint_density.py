"""A function as one density of everything: what is bound, and what is summed out cell by cell."""

import itertools
import math
from collections.abc import Collection, Hashable, Mapping

import numpy as np
from jax.typing import ArrayLike

from probml.dataset import arrays
from probml.errors import DataError, ModelError, listed, present, quoted
from probml.interface.functions import missing_cells
from probml.interface.functions.given.values import distinct_values
from probml.interface.functions.read_models import ReadModel, bind, input_name, trace_structure
from probml.interface.functions.readings import JointReading
from probml.interface.functions.steps.affine_sites import NotLinearGaussian
from probml.interface.functions.steps.loop_sites import find_loop_sites, find_scan_sites
from probml.interface.functions.survey import Survey, has_missing_cells
from probml.language.language import Bound
from probml.language.settings import freeze
from probml.typing import SiteValues

# binary digits of the joint values of sites of one cell each that are kept as they are; the same of
# what is summed as joint values at all
FEW_JOINT_BITS, MOST_JOINT_BITS = 12, 16


def read_as_density(model: Bound, shown: Survey, arguments: SiteValues,
                    given: SiteValues,
                    why: str, named: Collection[str] = ()) -> ReadModel:
    """The function as one density; discrete sites of several cells are summed out cell by cell, or,
    where that cannot be and their joint values are few, as these. Continuous sites that are the
    steps of a loop, or stand in a scan, are integrated out where they can be, else one site.

    Args:
        named: parameters whose values are told: these are not integrated out.
    """
    summed = sites_summed_by_cell(shown)
    ways: list[tuple] = [(summed,)]
    if summed and sum(site.bits for site in shown.hidden) <= MOST_JOINT_BITS:
        ways.append(((),))
    loops, scans = find_loop_sites(shown), find_scan_sites(shown)
    if loops is not None:
        own = {name for title, names in loops.items() for name in (title, *names)}
        ways = [*(((), loops, how) for how in (True, False) if not how or own.isdisjoint(named)),
                *ways]
    elif scans is not None and (scans.keys().isdisjoint(named) or not shown.hidden):
        ways.insert(0, (summed, scans, scans.keys().isdisjoint(named)))
    failures = list[ModelError]()
    for sums, *joined in ways:
        try:
            return read_with_numbers_bound(model, shown, arguments, given, sums, why, *joined)
        except ModelError as error:
            failures += [] if joined else [error]
    raise failures[0]


def _names_with_missing_cells(model: Bound, arguments: SiteValues, given: SiteValues,
                              why: str) -> tuple[list[str], list[str]]:
    """The arguments, and the given sites, of which cells are unseen that can be left out.

    Raises:
        DataError: something else looks at them, or a vector is seen in part: only rows are
            integrated over these.
    """
    found = [name for name, value in {**arguments, **given}.items() if has_missing_cells(value)]
    for name in found:
        reason = missing_cells.find_use_of_missing(model, arguments, given, name)
        if reason is not None:
            value = np.asarray({**given, **arguments}[name])
            cell = tuple(map(int, np.argwhere(np.isnan(value))[0]))
            raise DataError(
                f"{model.name}: '{name}' is missing in cell {cell[0] if len(cell) == 1 else cell}, "
                f"and the cell cannot be left out: {reason} ({why}). Drop the cell, make it a "
                f"separate site, or write `with probml.rows():` instead of its plate: missing "
                f"cells of rows are integrated out"
            )
    return [n for n in found if n in arguments], [n for n in found if n not in arguments]


def read_with_numbers_bound(model: Bound, shown: Survey, arguments: SiteValues,
                            given: SiteValues, summed: tuple[str, ...], why: str,
                            loops: Mapping[str, tuple[str, ...]] | None = None,
                            integrated: bool = False) -> ReadModel:
    """The function as one density; arguments that it needs as numbers are bound.

    Args:
        summed: discrete sites that are summed out cell by cell; loops, integrated: see
            readings.Whole.
    """
    own, hidden = _names_with_missing_cells(model, arguments, given, why)
    holed = bool(own or hidden)
    masks = {name: freeze(~np.isnan(given[name]), name) for name in hidden}
    given = {name: missing_cells.fill_missing(value) if name in masks else value
             for name, value in given.items()}
    free = [name for name, value in arguments.items() if isinstance(value, np.ndarray)
            and value.dtype.kind in "biuf" and name not in own and not np.isinf(value).any()]
    fixed = [name for name in arguments if name not in free]
    # where a number of all of it is asked for, such as int(np.max(codes)) + 1, it is stated
    every = distinct_values({name: arguments[name] for name in free})
    failure: Exception | None = None
    for baked, told in (([], {}), ([], every), *(([name], {}) for name in free), (free, {})):
        try:
            return _read_with_bound(model, shown, arguments, given, [*fixed, *baked], summed, why,
                                    masks if holed else None, loops, integrated, told)
        except (DataError, NotLinearGaussian):  # whatever is baked
            raise
        except Exception as error:
            failure = failure or error
            if baked == free:
                last = error
    raise last if isinstance(last, ModelError) else present(failure)


def _read_with_bound(model: Bound, shown: Survey, arguments: Mapping, given: Mapping,
                     baked: list[str], summed: tuple[str, ...], why: str,
                     masks: Mapping[str, Hashable] | None,
                     loops: Mapping[str, tuple[str, ...]] | None, integrated: bool,
                     every: Mapping[str, tuple]) -> ReadModel:
    names = {input_name(own, shown): own for own in arguments if own not in baked}
    seen = {f"{site} (seen)": site for site in given}
    fixed = {name: arguments[name] for name in baked}
    reading = JointReading(model.generative, names, seen, summed, masks, loops, integrated,
                           shown.computed if integrated else (),
                           {own: values for own, values in every.items() if own in names.values()},
                           why, params=shown.params)
    read = bind(model, reading, fixed, arguments)
    seen_as = {id(site.value) for site in shown.seen}
    data = {name: _labelled(arguments[own], id(arguments[own]) in seen_as)
            for name, own in names.items()}
    _check_labels_agree({name: arguments[name] for name in baked})
    data |= {name: np.asarray(given[site])[None] for name, site in seen.items()}
    structure = trace_structure(read, data)
    outside = [names[name] for site in structure.named.values() if not site.rows
               for name in site.inputs if name in names]
    if outside:  # what lies outside rows is a function of parameters alone
        return _read_with_bound(model, shown, arguments, given, [*baked, *dict.fromkeys(outside)],
                                summed, why, masks, loops, integrated, every)
    if masks is not None:
        why += "; missing cells are left out"
    arrays = [name for name in baked if np.ndim(arguments[name])]
    verb = "is" if len(arrays) == 1 else "are"
    inside = f"; {quoted(arrays)} {verb} baked into it" if arrays else ""
    why = (f"one joint density without rows: {why}{inside}. For rows write `with probml.rows():` "
           f"instead of their plate{reading.steps.describe(integrated)}")
    return ReadModel(read, data, why, shown.begin)


def _labelled(value: ArrayLike, observed: bool) -> np.ndarray:
    """An argument as the one row; text keeps its labels, by which results are named and inputs of
    one axis brought together, but where it is what is observed."""
    labels = getattr(value, "labels", ())
    array = np.asarray(value)[None]
    if not labels or observed:
        return array
    return arrays.Labelled.of(array, labels, value.categorical)


def _check_labels_agree(baked: SiteValues) -> None:
    """
    Raises:
        DataError: the codes of two texts that the function has as numbers would differ where their
            labels are the same.
    """
    text = {name: labels for name, value in baked.items()
            if (labels := getattr(value, "labels", ()))}
    for (one, own), (other, labels) in itertools.combinations(text.items(), 2):
        if own != labels and not set(own).isdisjoint(labels):
            raise DataError(f"'{one}' and '{other}' are text with some labels in common, "
                            f"{listed(sorted(set(own) & set(labels), key=str))}, and the function "
                            f"computes with their codes, which would differ between the two: pass "
                            f"codes, or pandas Categoricals with the same categories")


def sites_summed_by_cell(shown: Survey) -> tuple[str, ...]:
    """The discrete sites to be summed out cell by cell; none, where their joint states are few and
    each is one cell: then they are part of what is asked and answered."""
    if all(math.prod(site.batch) == 1 for site in shown.hidden) and sum(
        site.bits for site in shown.hidden) <= FEW_JOINT_BITS:
        return ()
    return tuple(site.name for site in shown.hidden)
