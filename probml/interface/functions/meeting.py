"""A function that names no rows meets its data: what is an argument and what a site, whether a
plate of its own can be the rows, and else one density of everything.

Rows are found by trying: the plate in which all that is observed stands (or the last axis along
which it runs) is read as `rows()`, the arguments that are as long as inputs. The structure's own
checks say whether its members are independent given the rest.
"""

import contextlib
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from probml.dataset import arrays as tables
from probml.dataset import codes
from probml.errors import DataError, ModelError
from probml.interface.functions.held import held
from probml.interface.functions.readings import Reading, Rowed, Whole
from probml.interface.functions.survey import Survey, survey, writes_rows
from probml.language.language import Bound, RowsUnknown
from probml.language.settings import freeze, thaw
from probml.structure.structure import Structure

FEW = 64  # joint values of discrete sites outside rows with which these are found
WITHIN = 12  # binary digits of joint values within a row, or of sites of one cell each
JOINT = 16  # the same of what is summed as joint values at all
MANY = 4096  # different values of a column that are kept beside it


class Met(NamedTuple):
    """A model as everything below reads it, its data in its names, and why it is read so, in words
    (None: as it is written)."""

    model: Bound
    data: Any
    why: str | None = None


def meet(model: Bound, data: Any) -> Met:
    """Read a function by the data it meets; one with rows() is left as it is.

    Args:
        data: name of an argument (also one that has a default), or of a site → values.

    Raises:
        DataError: a name is neither, something is given twice, nothing is observed.
    """
    if data is None or not hasattr(data, "__len__") or not len(data):
        return Met(model, data)
    if isinstance(model.generative, Rowed):
        return Met(model, _translated(model, _items(data)))
    if isinstance(model.generative, Whole):
        return _again(model, data)
    if writes_rows(model.generative.function) or not _mapping(data):
        return Met(model, data)
    items = _items(data)
    arguments, given = _divided(model, items)
    if any(name not in arguments for name in model.inputs):
        return _lacking(model, data, arguments, given)
    try:
        shown = survey(model, arguments, given)
    except RowsUnknown:
        return Met(model, data)
    _check(model, shown, arguments, given)
    found = _plates(shown)
    crowded = isinstance(found, list) and all(_crowded(shown, plate) for plate, _, _ in found)
    if crowded:  # rows would go through joint states where cells can be summed out one by one
        with contextlib.suppress(ModelError):
            return _baking(model, shown, arguments, given, _summed(shown),
                           "its discrete sites are summed out cell by cell")
    rowed = found if isinstance(found, str) else _rowed(model, shown, arguments, items, found)
    return rowed if isinstance(rowed, Met) else _whole(model, shown, arguments, given, rowed)


def _mapping(data: Any) -> bool:
    return isinstance(data, Mapping) or hasattr(data, "columns")


def _items(data: Any) -> dict[str, Any]:
    if isinstance(data, Mapping):
        return dict(data)
    names = getattr(data, "column_names", None)
    return ({name: data.column(name) for name in names} if names is not None
            else {name: data[name] for name in data.columns})


def _value(value: Any) -> Any:
    """What a run of the function is given: numbers as an array, text as codes, all else as it
    is."""
    if value is None or isinstance(value, str | bool | Mapping) or callable(value):
        return value
    array = np.asarray(value)
    if array.dtype.kind in "OUST":
        try:
            return held(np.unique(array, return_inverse=True)[1].reshape(array.shape))
        except TypeError:
            return value
    # an array of its own: what is observed is told from what else holds the same numbers
    return held(array) if array.ndim else array.item()


def _divided(model: Bound, items: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What goes to arguments, and what to sites."""
    own, defaults = model.generative.arguments, model.generative.defaults
    for name, bound in model.settings:
        if name in items and defaults.get(name) != bound:
            raise DataError(f"{model.name}: '{name}' is bound as a setting, {name}={thaw(bound)!r}"
                            f", and given in the data: leave one of them out")
    values = {name: _value(value) for name, value in items.items()}
    return ({name: value for name, value in values.items() if name in own},
            {name: value for name, value in values.items() if name not in own})


def _lacking(model: Bound, data: Any, arguments: Mapping, given: Mapping) -> Met:
    """A function whose arguments are not all there: whoever reads the data says which."""
    name = next(name for name in model.inputs if name not in arguments)
    try:
        survey(model, arguments, given)
    except RowsUnknown:
        return Met(model, data)
    except Exception:
        pass
    raise DataError(f"{model.name}: the input '{name}' is missing: bind it, "
                    f"{model.name}(…, {name}=...), or give it in the data")


def _check(model: Bound, shown: Survey, arguments: Mapping, given: Mapping) -> None:
    """Refuse what is given twice, unknown, or does not suffice."""
    if not shown.sites:
        raise ModelError(f"model '{model.name}' has no sample sites")
    computed = next((name for name in given if name in shown.computed), None)
    if computed is not None:
        raise DataError(
            f"{model.name}: '{computed}' is computed by the model (numpyro.deterministic, or a "
            f"reparametrised site), so it cannot be data: leave '{computed}' out"
        )
    unknown = next((name for name in given if name not in shown.sites), None)
    if unknown is not None:
        raise DataError(f"{model.name}: '{unknown}' is neither an argument nor a site; known names "
                        f"are {[*model.generative.arguments, *shown.sites]}. Drop it or rename it")
    for name in shown.twice:
        by = next((own for own, value in arguments.items() if value is shown.sites[name].value),
                  None)
        through = f" as the argument '{by}'" if by else " inside the function (obs=)"
        raise DataError(f"{model.name}: '{name}' is given twice, as a site and{through}: leave one "
                        f"of them out")
    if not shown.seen and not any(site.factor for site in shown.sites.values()):
        free = [name for name, value in model.bound.items() if value is None
                and name not in arguments]
        advice = f"give {' or '.join(map(repr, free))}, or one of" if free else "give one of"
        raise DataError(f"{model.name}: every cell of the data is unseen, so there is nothing to "
                        f"learn from: {advice} its sites, {list(shown.sites)}")
    for site in shown.seen:
        if not site.known or site.support is None or not hasattr(site.value, "dtype"):
            continue
        if site.discrete and site.value.dtype.kind == "f" and np.isfinite(site.value).all() and (
            np.asarray(site.value) != np.floor(site.value)
        ).any():
            raise DataError(f"{model.name}: '{site.name}' takes whole numbers, got "
                            f"{np.asarray(site.value).ravel()[:5].tolist()} …")


def _named(own: str, shown: Survey) -> str:
    """The name of an argument as an input: no site's."""
    return f"{own} (argument)" if own in shown.sites or own in shown.computed else own


def _bound(model: Bound, reading: Reading, values: Mapping[str, Any],
           without: Mapping[str, Any]) -> Bound:
    """The model by a reading, some arguments bound."""
    settings = {name: value for name, value in model.settings if name not in without}
    settings |= {name: freeze(value, name) for name, value in values.items()}
    return type(model)(reading, tuple(settings.items()))


def _traced(model: Bound, data: Mapping[str, Any]) -> Structure:
    raws = {name: tables.as_raw(f"the input '{name}'", data[name], True) for name in model.inputs}
    return codes.settled(model, raws, {}, {name: (raw.values.shape[1:], raw.values.dtype.kind)
                                           for name, raw in raws.items()})


# Rows


def _plates(shown: Survey) -> list[tuple[str | None, tuple[str, ...], int]] | str:
    """What may be the rows: (plate, sites along a common axis, members), the likeliest first; or
    why nothing may."""
    if shown.loops:
        return "it has a scan"
    if any(site.factor and not site.plates for site in shown.sites.values()):
        return "it has a factor outside plates"
    if not shown.seen:
        return "nothing but factors is observed"
    common = [name for name in shown.seen[0].plates
              if all(name in site.plates for site in shown.seen)]
    inside = {name: [site for site in shown.sites.values() if name in site.plates]
              for name in common}
    found: list[tuple[str | None, tuple[str, ...], int]] = []
    why = "what is observed stands in no common plate"
    for name in sorted(common, key=lambda name: -len(inside[name])):
        free = next((s for s in inside[name] if not (s.observed or s.discrete)), None)
        if free is not None:
            why = f"'{free.name}', unseen and continuous, stands in its plate '{name}'"
        else:
            found.append((name, (), shown.seen[0].plates[name][1]))
    loose = all(not site.plates and site.batch for site in shown.seen)
    sizes = {site.batch[-1] for site in shown.seen} if loose else set()
    if len(sizes) == 1 and min(sizes) > 1:
        along = tuple(site.name for site in shown.sites.values()
                      if site.observed and site.batch[-1:] == (min(sizes),))
        found.append((None, along, min(sizes)))
    return found or why


def _crowded(shown: Survey, plate: str | None) -> bool:
    """Whether rows along a plate would go through many joint values of discrete sites of several
    cells, outside rows or within one."""
    outside = sum(site.bits for site in shown.hidden if plate not in site.plates)
    inside = sum(site.bits / site.plates[plate][1] for site in shown.hidden if plate in site.plates)
    return outside > math.log2(FEW) or inside > WITHIN


def _rowed(model: Bound, shown: Survey, arguments: Mapping[str, Any], items: Mapping[str, Any],
           found: list) -> Met | str:
    """The function with a plate of its own as rows; else why not."""
    why = ""
    for plate, along, size in found:
        long = {name: value for name, value in arguments.items() if np.ndim(value)
                and len(value) == size}
        if not long:
            why = f"no argument is as long as {_words(plate, along)}, {size}"
            continue
        # where a number of all rows is asked for, such as int(np.max(labels)) + 1, it is stated
        every = {name: tuple(np.unique(value).tolist()) for name, value in long.items()
                 if value.dtype.kind in "iu" and value.size}
        every = {name: values for name, values in every.items() if len(values) <= MANY}
        failure: Exception | None = None
        for known in ({}, every):
            try:
                return _tried(model, shown, arguments, items, plate, along, long, known)
            except Exception as error:  # the user's own function, asked for one row
                failure = failure or error
        why = f"{_words(plate, along)} cannot be the rows: {str(failure).splitlines()[0]}"
    return why


def _tried(model: Bound, shown: Survey, arguments: Mapping, items: Mapping, plate: str | None,
           along: tuple[str, ...], long: Mapping[str, Any], every: Mapping[str, tuple]) -> Met:
    rest = {name: value for name, value in arguments.items() if name not in long}
    names = {_named(own, shown): own for own in long}
    first = _bound(model, Rowed(model.generative, names, plate, along, {}, {}, every), rest, long)
    structure = _traced(first, {name: items[own] for name, own in names.items()})
    lost = next((site.name for site in shown.seen if not structure.sites[site.name].rows), None)
    if lost is not None:
        raise ModelError(f"'{lost}' is the same in all rows")
    for site in structure.sites.values():
        if not site.rows and not site.factor and site.shape != shown.sites[site.name].shape:
            raise ModelError(f"'{site.name}' has as many values as there are rows, and lies "
                             f"outside them")
    used = {name for site in structure.named.values() for name in site.inputs}
    observed = {own: site.name for own, value in long.items() for site in shown.seen
                if site.value is value}
    idle = {own: (np.shape(value)[1:], np.asarray(value).dtype.kind)
            for name, own in names.items() if name not in used for value in (long[own],)}
    names = {name: own for name, own in names.items() if name in used}
    reading = Rowed(model.generative, names, plate, along, idle, observed, every)
    read = _bound(model, reading, rest, long)
    return Met(read, _translated(read, items),
               f"the rows are {_words(plate, along)}, as if rows() had been written")


def _words(plate: str | None, along: tuple[str, ...]) -> str:
    return f"the plate '{plate}'" if plate else f"the last axis of '{along[0]}'"


def _translated(model: Bound, items: Mapping[str, Any]) -> dict[str, Any]:
    """Data of a function whose plate is the rows, in the names of its inputs and sites."""
    reading = model.generative
    inputs = {own: name for name, own in reading.inputs.items()}
    settings, out = model.bound, {}
    for name, value in items.items():
        if name in settings:
            if settings[name] is not None and not np.array_equal(settings[name], _value(value)):
                raise DataError(f"{model.name}: '{name}' is one value for all rows, and was "
                                f"another when the function was read: model(f)({name}=...) anew")
            continue
        if name in inputs:
            out[inputs[name]] = value
        site = reading.columns.get(name)
        if site is not None:
            if site != name and site in items:
                raise DataError(f"{model.name}: '{site}' is given twice, as a site and as the "
                                f"argument '{name}': leave one of them out")
            out[site] = value
        elif name not in inputs and name not in reading.shown:
            out[name] = value
    own = {name: _value(value) for name, value in items.items()
           if name in inputs or name in reading.shown}
    if len(own) == len(inputs) + len(reading.shown):
        origin = type(model)(reading.generative, model.settings)
        made = survey(origin, own, {}, ())
        derived = [site.name for site in made.seen if site.name not in reading.columns.values()
                   and site.name not in out]
        if derived:
            made = survey(origin, own, {}, derived)
            out |= {name: np.asarray(made.sites[name].value) for name in derived}
    return out


# One density


def _whole(model: Bound, shown: Survey, arguments: Mapping[str, Any], given: Mapping[str, Any],
           why: str) -> Met:
    """The function as one density; discrete sites of several cells are summed out cell by cell, or,
    where that cannot be and their joint values are few, as these."""
    summed = _summed(shown)
    try:
        return _baking(model, shown, arguments, given, summed, why)
    except DataError:
        raise
    except ModelError:
        if not summed or sum(site.bits for site in shown.hidden) > JOINT:
            raise
        with contextlib.suppress(ModelError):
            return _baking(model, shown, arguments, given, (), why)
        raise


def _baking(model: Bound, shown: Survey, arguments: Mapping[str, Any], given: Mapping[str, Any],
            summed: tuple[str, ...], why: str) -> Met:
    """The function as one density; arguments that it needs as numbers are bound."""
    free = [name for name, value in arguments.items() if isinstance(value, np.ndarray)
            and value.dtype.kind in "biuf"]
    fixed = [name for name in arguments if name not in free]
    failure: Exception | None = None
    for baked in ([], *([name] for name in free), free):
        try:
            return _baked(model, shown, arguments, given, [*fixed, *baked], summed, why)
        except DataError:
            raise
        except Exception as error:
            failure = failure or error
            if baked == free:
                last = error
    raise last if isinstance(last, ModelError) else failure


def _baked(model: Bound, shown: Survey, arguments: Mapping, given: Mapping, baked: list[str],
           summed: tuple[str, ...], why: str) -> Met:
    names = {_named(own, shown): own for own in arguments if own not in baked}
    seen = {f"{site} (seen)": site for site in given}
    fixed = {name: arguments[name] for name in baked}
    reading = Whole(model.generative, names, seen, summed)
    read = _bound(model, reading, fixed, arguments)
    data = {name: np.asarray(arguments[own])[None] for name, own in names.items()}
    data |= {name: np.asarray(given[site])[None] for name, site in seen.items()}
    structure = _traced(read, data)
    outside = [names[name] for site in structure.named.values() if not site.rows
               for name in site.inputs if name in names]
    if outside:  # what lies outside rows is a function of parameters alone
        return _baked(model, shown, arguments, given, [*baked, *dict.fromkeys(outside)], summed,
                      why)
    arrays = [name for name in baked if np.ndim(arguments[name])]
    verb = "is" if len(arrays) == 1 else "are"
    bound = f"; {', '.join(map(repr, arrays))} {verb} baked into it" if arrays else ""
    return Met(read, data, f"one density of everything, no rows: {why}{bound}. For rows write "
                           f"`with probml.rows():` in the place of their plate")


def _summed(shown: Survey) -> tuple[str, ...]:
    """The discrete sites to be summed out cell by cell; none, where their joint states are few and
    each is one cell: then they are part of what is asked and answered."""
    if all(math.prod(site.batch) == 1 for site in shown.hidden) and sum(
        site.bits for site in shown.hidden) <= WITHIN:
        return ()
    return tuple(site.name for site in shown.hidden)


def _again(model: Bound, data: Any) -> Met:
    """Other data for a function that was read as one density: they must lead to the same."""
    reading = model.generative
    items = _items(data)
    settings = tuple((name, value) for name, value in model.settings if name not in items)
    found = meet(type(model)(reading.generative, settings), items)
    if found.model != model:
        raise DataError(f"{model.name}: these data make another density than those that were "
                        f"fitted, as arrays of other lengths or other baked arguments do: ask "
                        f"model.at(fit.params) instead")
    return found
