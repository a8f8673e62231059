"""A function without rows read as one joint density: the arguments that are bound, and the sites
that are summed out cell by cell or integrated out; and how a function is read with its data.
"""

import itertools
import math
from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from probml.dataset import arrays, kinds
from probml.errors import DataError, ModelError, listed, present
from probml.interface.functions import missing_cells
from probml.interface.functions.given.values import Ragged, distinct_values
from probml.interface.functions.readings import JointReading, Reading
from probml.interface.functions.steps.loop_sites import find_loop_sites, find_scan_sites
from probml.interface.functions.steps.programs import NotLinearGaussian
from probml.interface.functions.survey import Survey, has_missing_cells
from probml.language.language import Bound
from probml.language.settings import freeze
from probml.structure.structure import Structure
from probml.typing import ArrayLike, DataLike, SiteValues


class ReadModel(NamedTuple):
    """A model as it is read, its data by the names of its inputs and sites, why it is read so, in
    words (None: as it is written), and the initial values of its params."""

    model: Bound
    data: DataLike
    reason: str | None = None
    initial_values: SiteValues = MappingProxyType({})


def input_name(arg: str, survey: Survey) -> str:
    """The name of an argument as an input, which differs from the names of sites."""
    return f"{arg} (argument)" if arg in survey.sites or arg in survey.computed else arg


def bind(model: Bound, reading: Reading, values: SiteValues,
           excluded: SiteValues) -> Bound:
    """The model with a reading of its function, some arguments bound."""
    settings = {name: value for name, value in model.settings if name not in excluded}
    settings |= {name: freeze(list(value) if isinstance(value, Ragged) else value, name)
                 for name, value in values.items()}
    return type(model)(reading, tuple(settings.items()), model.interventions)


def trace_structure(model: Bound, data: SiteValues) -> Structure:
    raws = {name: arrays.as_raw(f"the input '{name}'", data[name], True) for name in model.inputs}
    return kinds.structure_for_inputs(model, raws, {},
                                      {name: (raw.values.shape[1:], raw.values.dtype.kind)
                                       for name, raw in raws.items()})


MAX_BITS_OF_LONE_CELLS = 12  # log2 joint values, up to which sites of one cell are summed jointly
MAX_JOINT_BITS = 16  # log2 joint values, up to which any sites are


def read_as_density(model: Bound, survey: Survey, arguments: SiteValues,
                    given: SiteValues,
                    why: str, named: Collection[str] = ()) -> ReadModel:
    """The function as one joint density; discrete sites of several cells are summed out cell by
    cell, or, where that is impossible and their joint values are few, jointly. Continuous sites
    that are the steps of a loop, or of a scan, are integrated out where possible, else one site.

    Args:
        named: parameters whose values are given: these are not integrated out.
    """
    summed = sites_summed_by_cell(survey)
    attempts: list[tuple] = [(summed,)]
    if summed and sum(site.bits for site in survey.discrete_latents) <= MAX_JOINT_BITS:
        attempts.append(((),))
    loops, scans = find_loop_sites(survey), find_scan_sites(survey)
    if loops is not None:
        loop_names = {name for title, names in loops.items() for name in (title, *names)}
        attempts = [*(((), loops, integrated) for integrated in (True, False)
                      if not integrated or loop_names.isdisjoint(named)), *attempts]
    elif scans is not None and (scans.keys().isdisjoint(named) or not survey.discrete_latents):
        attempts.insert(0, (summed, scans, scans.keys().isdisjoint(named)))
    failures, missing = list[ModelError](), find_missing_cells(model, arguments, given, why)
    for by_cell, *options in attempts:
        try:
            return read_with_numbers_bound(model, survey, arguments, given, missing, by_cell, why,
                                           *options)
        except ModelError as error:
            failures += [] if options else [error]
    raise failures[0]


class Missing(NamedTuple):
    """What has missing cells: arguments and given sites of which they can be left out, and
    arguments of which they are latent, with their supports."""

    arguments: list[str]
    given: list[str]
    unknown: dict[str, tuple[Hashable, str]]


def find_missing_cells(model: Bound, arguments: SiteValues, given: SiteValues,
                       why: str) -> Missing:
    """What has missing cells, and what becomes of these.

    Args:
        why: the model has no rows, in words.

    Raises:
        DataError: another computation reads missing cells that no site observes, or that are not
            continuous.
    """
    found = Missing([], [], {})
    for name, value in {**arguments, **given}.items():
        if not has_missing_cells(value):
            continue
        reason = missing_cells.find_use_of_missing(model, arguments, given, name)
        if reason is not None and name in arguments and missing_cells.handles_missing(
                model, arguments, name):
            reason = None
        support = missing_cells.support_of_missing(
            model, arguments, name) if reason is not None and name in arguments else None
        if support is not None:
            found.unknown[name] = freeze(np.isnan(value), name), support
        elif reason is not None:
            cell = tuple(map(int, np.argwhere(np.isnan(value))[0]))
            raise DataError(
                f"model '{model.name}': '{name}' is missing at index "
                f"{cell[0] if len(cell) == 1 else cell}, and this value cannot be left out of the "
                f"likelihood, because {reason}. Drop the value, or write `with probml.rows():` "
                f"instead of the plate of '{name}', so that missing values are integrated out. "
                f"(The function is fitted as one joint density, because {why})"
            )
        else:
            (found.arguments if name in arguments else found.given).append(name)
    return found


def read_with_numbers_bound(model: Bound, survey: Survey, arguments: SiteValues,
                            given: SiteValues, missing: Missing, summed: tuple[str, ...],
                            why: str, loops: Mapping[str, tuple[str, ...]] | None = None,
                            integrated: bool = False) -> ReadModel:
    """The function as one joint density; arguments that it needs as numbers are bound.

    Args:
        summed: discrete sites that are summed out cell by cell; loops, integrated: see
            readings.JointReading.
    """
    masks = {name: freeze(~np.isnan(given[name]), name) for name in missing.given}
    given = {name: missing_cells.fill_missing(value) if name in masks else value
             for name, value in given.items()}
    read = JointReading(model.generative, {}, summed=summed, reason=why, loops=loops,
                        masks=masks if missing.arguments or masks else None,
                        unknown=missing.unknown, integrated=integrated,
                        derived=survey.computed if integrated else (), params=survey.params)
    free = [name for name, value in arguments.items() if isinstance(value, np.ndarray)
            and value.dtype.kind in "biuf" and np.isfinite(value).all()]
    fixed = [name for name in arguments if name not in free]
    # a function may need a number of the whole array, such as int(np.max(codes)) + 1
    distinct = distinct_values({name: arguments[name] for name in free})
    failure: Exception | None = None
    for bound, values in (([], {}), ([], distinct), *(([name], {}) for name in free), (free, {})):
        try:
            return _read_with_bound(model, survey, arguments, given, read, [*fixed, *bound], values)
        except (DataError, NotLinearGaussian):  # whatever is bound
            raise
        except Exception as error:
            failure = failure or error
            if bound == free:
                last = error
    raise last if isinstance(last, ModelError) else present(failure)


def _read_with_bound(model: Bound, survey: Survey, arguments: Mapping[str, Any],
                     given: Mapping[str, Any], template: JointReading, bound: list[str],
                     distinct: Mapping[str, tuple]) -> ReadModel:
    """The reading with some arguments bound to their numbers.

    Args:
        given: observed sites, missing cells filled in.
        template: the reading without names of arguments.
        distinct: argument → its distinct values, where the function may read these.
    """
    names = {input_name(arg, survey): arg for arg in arguments if arg not in bound}
    site_inputs = {f"{site} (seen)": site for site in given}
    fixed = {name: arguments[name] for name in bound}
    reading = replace(template, arg_names=names, given=site_inputs, distinct={
        arg: values for arg, values in distinct.items() if arg in names.values()})
    bound_model = bind(model, reading, fixed, arguments)
    observed_ids = {id(site.value) for site in survey.observed_sites}
    data = {name: _labelled(arguments[arg], id(arguments[arg]) in observed_ids)
            for name, arg in names.items()}
    _check_labels_agree(fixed)
    data |= {name: np.asarray(given[site])[None] for name, site in site_inputs.items()}
    structure = trace_structure(bound_model, data)
    needed = [names[name] for site in structure.named.values() if not site.rows
              for name in site.inputs if name in names]
    if needed:  # sites outside rows are functions of parameters alone
        return _read_with_bound(model, survey, arguments, given, template,
                                [*bound, *dict.fromkeys(needed)], distinct)
    array_names = [name for name in bound if np.ndim(arguments[name])]
    verb = "is" if len(array_names) == 1 else "are"
    suffix = f"; {listed(array_names)} {verb} fixed at the given values" if array_names else ""
    left_out = "" if template.masks is None else "; missing values are left out"
    left_out += "".join(f"; the missing values of '{name}' are unknown numbers like the parameters"
                        for name in template.unknown)
    why = (f"one joint density of all data, without a plate of independent rows: "
           f"{template.reason}{left_out}{suffix}. For independent rows, write "
           "`with probml.rows():` instead of their plate"
           f"{reading.steps.describe(template.integrated)}")
    return ReadModel(bound_model, data, why, survey.initial_values)


def _labelled(value: ArrayLike, observed: bool) -> np.ndarray:
    """An argument as the one row; text keeps its labels, which name results and match inputs of one
    axis, unless it is observed."""
    labels = getattr(value, "labels", ())
    array = np.asarray(value)[None]
    if not labels or observed:
        return array
    return arrays.Labelled.of(array, labels, value.categorical)


def _check_labels_agree(bound: SiteValues) -> None:
    """
    Raises:
        DataError: two text arguments that are bound as codes have common labels with different
            codes.
    """
    text = {name: labels for name, value in bound.items()
            if (labels := getattr(value, "labels", ()))}
    for (one, ours), (other, labels) in itertools.combinations(text.items(), 2):
        if ours != labels and not set(ours).isdisjoint(labels):
            raise DataError(f"'{one}' and '{other}' are text with some common labels, "
                            f"{listed(sorted(set(ours) & set(labels), key=str))}. The function "
                            f"computes with their integer codes, but the codes of these labels "
                            f"differ between the two. Pass integer codes, or pandas Categoricals "
                            f"with the same categories")


def sites_summed_by_cell(shown: Survey) -> tuple[str, ...]:
    """The discrete sites to be summed out cell by cell; none, where each is one cell and their
    joint states are few: these are summed jointly, and queries can ask for them."""
    if all(math.prod(site.batch) == 1 for site in shown.discrete_latents) and sum(
        site.bits for site in shown.discrete_latents) <= MAX_BITS_OF_LONE_CELLS:
        return ()
    return tuple(site.name for site in shown.discrete_latents)
