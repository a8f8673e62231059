"""A plate of a function's own as the rows.

Rows are found by trying: the plate that contains all observed sites (or their common last axis) is
read as `rows()`, arguments of its length as inputs. The checks of the structure say whether its
members are independent given the rest.

A plate of a function's own, or a common axis of what it observes, as the rows.
"""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.primitives import CondIndepStackFrame, Messenger

from probml.errors import DataError, ModelError, counted, listed, name_in_function, shortly
from probml.interface.functions.given.values import distinct_values, value_of, with_known_values
from probml.interface.functions.joint_density import ReadModel, bind, input_name, trace_structure
from probml.interface.functions.messages import is_fixed, prepare
from probml.interface.functions.readings import Reading, observed_sites
from probml.interface.functions.states import zeros_of
from probml.interface.functions.survey import (
    Survey,
    has_missing_cells,
    has_python_loop,
    survey_run,
)
from probml.jaxpr.exchangeability import row_dependence
from probml.jaxpr.levels import dependencies
from probml.jaxpr.program import ClosedJaxpr, jaxpr_of
from probml.language.language import Bound
from probml.language.named_rows import ROWS
from probml.numerics.process.making import unchecked
from probml.structure.recorder import UNCOUNTED
from probml.typing import SiteValues


@dataclass(eq=False)
class RowsReading(Reading):
    """A plate of the function's own, or a common axis of what it observes, as the rows.

    Args:
        plate: its name; None: the last batch axis of the sites `along`.
        along: sites in no plate whose last batch axis runs along the rows.
        placeholders: arguments that are observed and nothing else, name → (trailing shape, dtype
            kind): the function is given zeros in their place.
        columns: arguments that are observed as they are, name → site.
        computed: observed sites whose values the function computes from arguments.
        distinct: arguments of whose values the function computes the set or the maximum, name → the
            distinct values in order, as they were when the function was first read.
        size_settings: settings that are the number of rows.
        sites: the names of all, and of what is computed.
        uncounted: sites of counts whose totals are computed from the counts, so that those of new
            rows are not known.
    """

    plate: str | None
    along: tuple[str, ...]
    placeholders: Mapping[str, tuple]
    columns: Mapping[str, str]
    distinct: Mapping[str, tuple]
    size_settings: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()
    found: ClassVar[bool] = True

    def run(self, settings: Mapping[str, object], inputs: SiteValues,
            rows: int | None = None) -> object:
        arguments = {arg: inputs[name] for name, arg in self.inputs.items()}
        kinds = {"f": float, "b": bool}
        arguments |= {name: jnp.zeros((rows, *shape), jnp.result_type(kinds.get(kind, int)))
                      for name, (shape, kind) in self.placeholders.items()}
        arguments |= {name: with_known_values(arguments[name], values)
                      for name, values in self.distinct.items()}
        settings = {**settings, **dict.fromkeys(self.size_settings, rows)}
        with unchecked(), AsRows(self.plate, self.along, rows, self.uncounted):
            return self.call({**settings, **arguments})


class AsRows(Messenger):
    """Makes one plate, or the last batch axis of some sites, the rows, and drops observed values:
    they come from the data, or are drawn. Outside rows, values that are fixed stay."""

    def __init__(self, plate: str | None = None, along: tuple[str, ...] = (),
                 rows: int | None = None, uncounted: tuple[str, ...] = ()):
        super().__init__()
        self.plate, self.along, self.rows, self.uncounted = plate, along, rows, uncounted

    def process_message(self, msg: dict) -> None:
        prepare(msg)
        if msg["type"] not in ("sample", "deterministic"):
            return
        frames = list(msg["cond_indep_stack"])
        if msg["name"] in self.uncounted:
            msg["infer"] = {**(msg.get("infer") or {}), UNCOUNTED: True}
        if msg["name"] in self.along and msg["type"] == "sample":
            frames.append(CondIndepStackFrame("rows", -1, self.rows))
            shape = jnp.broadcast_shapes(msg["fn"].batch_shape, (self.rows,))
            if isinstance(msg["fn"], dist.Unit):
                msg["fn"] = dist.Unit(jnp.broadcast_to(msg["fn"].log_factor, shape))
            else:
                msg["fn"] = msg["fn"].expand(shape)
        position = next((i for i, frame in enumerate(frames) if frame.name == self.plate), None)
        if position is not None:
            frames[position] = frames[position]._replace(name="rows")
            if frames[position].size != self.rows:
                raise ModelError(
                    f"the plate '{self.plate}' has the fixed size {frames[position].size}, but the "
                    "plate of the rows needs the size of the data. Write its size as the length of "
                    "an argument, len(y)"
                )
        msg["cond_indep_stack"] = frames
        row = next((frame for frame in frames if frame.name == "rows"), None)
        if row is not None and msg["type"] == "sample":
            msg[ROWS] = row.dim
        # where arguments are not traced, their elements are numbers of NumPy's
        element = self.rows is None and isinstance(msg["value"], np.generic)
        if (msg["type"] == "sample" and msg["is_observed"] and not isinstance(msg["fn"], dist.Unit)
                and (row is not None or element or not is_fixed(msg, self))):
            msg |= {"is_observed": False, "value": None}


MOST_JOINT_VALUES = 64  # joint values of discrete sites outside rows with which these are found
MOST_BITS_IN_ROW = 12  # binary digits of joint values within a row
# a plate, or None and the sites along a common axis; and how many members it has
Candidate = tuple[str | None, tuple[str, ...], int]


def find_row_candidates(survey: Survey, chosen: str | None = None) -> list[Candidate] | str:
    """What may be the rows: (plate, sites along a common axis, members), the likeliest first; or
    why nothing may.

    Args:
        chosen: the plate, or a site along a common axis, that alone may be.
    """
    found = _find_row_candidates(survey)
    if chosen is None:
        return found
    plates = {name: None for site in survey.sites.values() for name in site.plates}
    if chosen not in plates and chosen not in {site.name for site in survey.observed_sites}:
        return ("it is neither a plate nor an observed site of the function, which has the plates "
                f"{listed(plates)} and observes {listed(s.name for s in survey.observed_sites)}")
    hits = [] if isinstance(found, str) else [
        candidate for candidate in found if chosen == candidate[0] or chosen in candidate[1]]
    latent = next((survey.as_written(site).name for site in survey.sites.values()
                   if chosen in site.plates and not (site.observed or site.discrete)), None)
    outside = next((site.name for site in survey.observed_sites if chosen not in site.plates), None)
    if hits or chosen not in plates:
        return hits or (found if isinstance(found, str) else f"the last axis of '{chosen}' differs "
                                                            f"from that of the other sites")
    return (f"the plate contains '{latent}', which is latent and continuous" if latent else
            f"'{outside}' is observed outside it" if outside else str(found))


def _find_row_candidates(survey: Survey) -> list[Candidate] | str:
    if survey.loops:
        return "the function has a scan"
    columns = survey.columns
    if not columns:
        return "nothing is observed"
    common = [name for name in columns[0].plates
              if all(name in site.plates for site in columns)]
    sites_in = {name: [site for site in survey.sites.values() if name in site.plates]
                for name in common}
    candidates: list[Candidate] = []
    reason = "the observed sites have no plate in common"
    for name in sorted(common, key=lambda name: -len(sites_in[name])):
        latent = next((s for s in sites_in[name] if not (s.observed or s.discrete)), None)
        if latent is not None:
            written = survey.as_written(latent).name
            reason = f"the plate '{name}' contains '{written}', which is latent and continuous" + (
                f" where obs_mask= is False (without obs_mask=, with NaN where '{written}' is "
                "missing, the plate can be the rows)") * (written != latent.name)
        else:
            candidates.append((name, (), columns[0].plates[name][1]))
    unplated = all(not site.plates and site.batch for site in columns)
    sizes = {site.batch[-1] for site in columns} if unplated else set()
    if len(sizes) == 1 and min(sizes) > 1:
        along = tuple(site.name for site in survey.sites.values()
                      if site.observed and site.batch[-1:] == (min(sizes),))
        candidates.append((None, along, min(sizes)))
    return candidates or reason


def has_many_joint_states(survey: Survey, plate: str | None) -> bool:
    """Whether rows along a plate would go through many joint values of discrete sites of several
    cells, outside rows or within one."""
    outside = sum(site.bits for site in survey.discrete_latents if plate not in site.plates)
    inner = sum(site.bits / site.plates[plate][1] for site in survey.discrete_latents
                if plate in site.plates)
    return outside > math.log2(MOST_JOINT_VALUES) or inner > MOST_BITS_IN_ROW


def read_as_rows(model: Bound, survey: Survey, arguments: SiteValues,
                 items: SiteValues, candidates: list[Candidate] | str) -> ReadModel | str:
    """The function with a plate of its own as rows; else why not."""
    if isinstance(candidates, str):
        return candidates
    why = ""
    for plate, along, size in candidates:
        by_row = {name: value for name, value in arguments.items() if np.ndim(value)
                  and len(value) == size}
        why = _why_not_rows(model, survey, arguments, by_row, _axis_name(plate, along), size)
        if why:
            continue
        # where a number of all rows is asked for, such as int(np.max(labels)) + 1, it is stated
        distinct = distinct_values(by_row)
        # a setting that is their number, as n of (data, n), is so for other data too
        sizes = [(), *((name,) for name, value in model.bound.items()
                       if type(value) is int and value == size)]
        failure: Exception | None = None
        for known, count in itertools.product(({}, distinct), sizes):
            try:
                return _read_along(model, survey, arguments, items, plate, along, by_row, known,
                                   count)
            except Exception as error:  # the user's own function, asked for one row
                failure = failure or error
        along_names = tuple(name_in_function(name, survey.sites) for name in along)
        why = f"{_axis_name(plate, along_names)} cannot be the rows: {str(failure).splitlines()[0]}"
    return why


def _why_not_rows(model: Bound, survey: Survey, arguments: SiteValues,
                  by_row: SiteValues, rows_text: str, size: int) -> str:
    """Why some members cannot be the rows, as far as it is known without a trace; "": not known."""
    if not by_row:
        return f"no argument has the length of {rows_text} ({size})"
    for site in survey.observed_sites:
        shape = np.shape(site.value)
        if shape[len(shape) - len(site.event) :] != site.event:
            return (f"'{site.name}' has values of shape {shape}, but one draw of its distribution "
                    f"has shape {site.event}")
        if site.masked and len(site.outside):
            return (f"'{survey.as_written(site).name}' has values under a mask that its "
                    "distribution cannot have")
    observed = {id(site.value) for site in survey.observed_sites}
    infinite = next((name for name, value in by_row.items() if id(value) not in observed
                     and value.dtype.kind == "f" and np.isinf(value).any()), None)
    if infinite is not None:
        return f"the argument '{infinite}' has infinite entries, which are not allowed"
    if has_python_loop(model.generative.function):  # is it a loop over rows?
        subset = np.arange(2 if size > 2 else size + 2) % size
        with contextlib.suppress(Exception):
            shortened = {name: value[subset] for name, value in by_row.items()}
            change = survey.size - survey_run(model, {**arguments, **shortened}, {}).size
            if abs(change) >= abs(size - len(subset)):
                return f"the function has a Python loop over {rows_text}"
    return ""


def _read_along(model: Bound, survey: Survey, arguments: Mapping, items: Mapping, plate: str | None,
                along: tuple[str, ...], by_row: SiteValues, distinct: Mapping[str, tuple],
                sized: tuple[str, ...]) -> ReadModel:
    other_args = {name: value for name, value in arguments.items() if name not in by_row}
    shared = next((site.name for site in survey.observed_sites for value in other_args.values()
                   if site.value is value and not site.fixed), None)
    if shared is not None:
        raise ModelError(f"the observed values of '{shared}' have "
                         f"{counted(len(survey.sites[shared].value), 'entry', 'entries')} along "
                         "their first axis, but the data have "
                         f"{counted(len(next(iter(by_row.values()))), 'row')}. Give '{shared}' one "
                         "entry per row")
    names = {input_name(arg, survey): arg for arg in by_row}
    reading = RowsReading(model.generative, names, plate, along, {}, {}, distinct, sized,
                          sites=(*survey.sites, *survey.computed), params=survey.params,
                          batch=survey.subsample_sizes.get(plate or ""))
    trial = bind(model, reading, other_args, by_row)
    structure = trace_structure(trial, {name: items[arg] for name, arg in names.items()})
    columns = [site for site in survey.observed_sites if not site.fixed or plate in site.plates
               or site.name in along]
    loose = next((site.name for site in columns if not structure.sites[site.name].rows), None)
    if loose is not None:
        raise ModelError(f"site '{loose}' is observed, but has only one value for all rows of the "
                         f"data. Put '{loose}' into the plate of the rows, and give it one value "
                         "per row")
    for site in structure.sites.values():
        if not site.rows and not site.factor and site.name not in survey.params and (
            site.shape != survey.sites[site.name].shape
        ):
            raise ModelError(f"site '{site.name}' has one value per row of the data, but is "
                             "outside the plate of the rows. Move it into that plate")
    observed = {arg: site.name for arg, value in by_row.items() for site in survey.observed_sites
                if site.value is value}
    uncounted = tuple(name for name, (_, inputs) in structure.totals.items()
                   if any(names.get(arg) in observed for arg in inputs))
    used_names = {name for arg in structure.named
                  for name in (structure.named[arg].inputs if arg in uncounted
                               else structure.row_inputs(arg))}
    unused = {arg: (np.shape(value)[1:], np.asarray(value).dtype.kind)
              for name, arg in names.items() if name not in used_names for value in (by_row[arg],)}
    names = {name: arg for name, arg in names.items() if name in used_names}
    computed = tuple(site.name for site in columns if site.name not in observed.values())
    holed = [arg for arg in names.values() if has_missing_cells(by_row[arg])]
    if both := next((arg for arg in holed if arg in observed), None):
        raise ModelError(f"'{both}' has missing cells, and the function also computes with it")
    _check_computed(model, [name for name in computed if not survey.sites[name].fixed], other_args,
                    by_row, distinct, sized, holed)
    reading = dataclasses.replace(reading, arg_names=names, placeholders=unused, columns=observed,
                                  computed=computed, uncounted=uncounted)
    bound = bind(model, reading, other_args, by_row)
    return ReadModel(bound, translate_data(bound, items),
                     f"the rows of the data are {_axis_name(plate, along)}", survey.initial_values)


def _check_computed(model: Bound, computed: Collection[str], other_args: SiteValues,
                    by_row: SiteValues, distinct: Mapping[str, tuple],
                    sized: tuple[str, ...], holed: Collection[str]) -> None:
    """Refuse observed values that the function computes from latent sites, as in obs=y - shift, of
    a row from other rows, as in obs=y / y.mean(), or from an input with missing cells (`holed`), as
    in obs=jnp.nan_to_num(y) under a mask."""
    if not computed:
        return
    names = list[str]()

    def run(moved: jax.Array, columns: Mapping[str, jax.Array]) -> list:
        rows = len(next(iter(columns.values())))
        columns = {name: with_known_values(value, distinct[name]) if name in distinct else value
                   for name, value in columns.items()}
        settings = {**model.bound, **dict.fromkeys(sized, rows), **other_args}
        sites = observed_sites(lambda: model.generative.run({**settings, **columns}, {}), {}, {},
                               blank=lambda fn: zeros_of(fn) + moved)
        names[:] = (name for name in sites if name in computed)
        return [sites[name]["value"] for name in names]

    def traced(rows: int) -> ClosedJaxpr:
        return jaxpr_of(run)(0, {name: jax.ShapeDtypeStruct((rows, *np.shape(value)[1:]),
                                                            jnp.result_type(value))
                                 for name, value in by_row.items()})

    single, holes = traced(1), {1 + sorted(by_row).index(name) for name in holed}
    for name, needed, mixed in zip(names, dependencies(single), row_dependence(
            single, traced, [None, *(0 for _ in by_row)]), strict=True):
        if mixed or needed & {0, *holes}:
            raise ModelError(f"the observed values of '{name}' depend on " +
                             ("other rows" if mixed else "latent sites" if 0 in needed else
                              "missing cells, of which the function makes numbers"))


def _axis_name(plate: str | None, along: tuple[str, ...]) -> str:
    return f"the plate '{plate}'" if plate else f"the last axis of '{along[0]}'"


def translate_data(model: Bound, items: SiteValues) -> dict[str, np.ndarray]:
    """Data of a function whose plate is the rows, in the names of its inputs and sites."""
    reading = model.generative
    inputs = {own: name for name, own in reading.inputs.items()}
    settings, translated = model.bound, {}
    for name, value in items.items():
        if name in settings:
            if settings[name] is not None and not np.array_equal(settings[name], value_of(value)):
                raise DataError(f"model '{model.name}': '{name}' has one value for all rows, "
                                f"{shortly(settings[name])} in the model and {shortly(value)} in "
                                f"the data. Omit '{name}' from the data, or build a model with the "
                                f"other value, probml.model({model.name})({name}=...)")
            continue
        if name in inputs:
            translated[inputs[name]] = value
        site = reading.columns.get(name)
        if site is not None:
            if site != name and site in items:
                raise DataError(f"model '{model.name}': the data give the values of site '{site}' "
                                f"twice, as '{site}' and as the argument '{name}'. Remove one of "
                                f"them from the data")
            translated[site] = value
        elif name not in inputs and name not in reading.placeholders:
            translated[name] = value
    own = {name: value_of(value) for name, value in items.items()
           if name in inputs or name in reading.placeholders}
    if reading.computed and len(own) == len(inputs) + len(reading.placeholders):
        rows = len(next(iter(own.values()), ()))
        own |= {name: rows if name in reading.size_settings else value for name,
                value in settings.items()}
        computed = observed_sites(lambda: reading.generative.run(own, {}), {}, {})
        translated |= {name: np.asarray(site["value"]) for name, site in computed.items()
                       if name in reading.computed and name not in translated}
    return translated
