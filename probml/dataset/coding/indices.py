"""The codes of index inputs, from labels (labels.py) or integers, checked to be in the range of
the axes they index; every error names input, row and code.

Which inputs are indices is known from the structure (structure/indices.py). Inputs that index one
axis share their labels: the home and the away team of a match are teams. An unknown label or code
is refused, or is a new group with unknown="new".
"""

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from probml.dataset.arrays import NUMBERS, Categories, Raw, deny
from probml.dataset.coding import labels as naming
from probml.dataset.coding.used import rows_that_use
from probml.dataset.kinds import refuse_long
from probml.errors import DataError, counted, listed
from probml.structure.indices import Formula, Index, describe_axes
from probml.structure.ordering import why_ordered
from probml.structure.structure import Structure

REFUSE, NEW = "refuse", "new"  # how labels that a fit does not have are treated


class Codes(NamedTuple):
    """The inputs of a model as codes.

    Attributes:
        values: index input → its codes, rows first.
        labels: index input → its labels, from its lowest code on, where it came with labels.
        new: index input → the number of the new group, −1 where the group is known; inputs
            without new groups are left out.
    """

    values: dict[str, np.ndarray]
    labels: dict[str, tuple]
    new: dict[str, np.ndarray]


def read(
    structure: Structure, raws: Mapping[str, Raw], labels: Mapping[str, tuple],
    padding: Mapping[str, np.ndarray], unknown: str, has_fit: bool = False
) -> Codes:
    """The codes of index inputs, checked.

    Args:
        labels: those of an earlier fit. padding: input → mask of the steps that pad a sequence.
        unknown: "refuse", or "new".
        has_fit: whether there is an earlier fit; an input that has no labels in it has codes.

    Raises:
        DataError: a code out of range, a number that is not an integer, a missing cell, an unknown
            label, too many labels, text in an input that a site computes with.
    """
    out = Codes({}, {}, {})
    raws = {name: raw if name not in padding else replace(raw, values=np.where(
        np.expand_dims(padding[name], tuple(range(2, raw.values.ndim))), raw.values[:, :1],
        raw.values)) for name, raw in raws.items()}  # padding repeats the first step
    out.values.update(_unread_text(structure, raws))
    kinds = {name: {"f": float, "b": bool}.get(kind) for name, _, kind in structure.specs}
    present = [index for index in structure.indexed.values() if index.input in raws and (
        index.code or kinds[index.input] is not float or raws[index.input].labels is not None)]
    by_input = {index.input: index for index in present if not index.cells}
    numbers = [found for names in together(by_input) for found in _plate(
        structure, {name: by_input[name] for name in names}, raws, labels, unknown, has_fit, out)]
    uses = functools.partial(rows_that_use, structure, {
        name: raw.values for name, raw in raws.items()} | out.values)
    for index, members in numbers:
        _settle(index, out.values[index.input], unknown, members, uses, out)
    for index in (index for index in present if index.cells):
        _check_cell(index, raws[index.input], 2 if index.input in structure.timed else 1, uses)
    for formula in structure.formulas:
        _formula(formula, raws, structure.timed, uses, out)
    # integers that are traced as floats or booleans are converted
    for name, raw in raws.items():
        if raw.labels is None and raw.values.dtype.kind in "iu" and name not in out.values:
            if kinds.get(name) is None:
                refuse_long(name, raw)
            else:
                out.values[name] = raw.values
    return out._replace(values={name: array.astype(kinds.get(name) or np.int32)
                                for name, array in out.values.items()})


def _unread_text(structure: Structure, raws: Mapping[str, Raw]) -> dict[str, np.ndarray]:
    """The codes of text that nothing in the model depends on, as in an identifier of rows.

    Raises:
        DataError: text in an input that is not an index, and that a site depends on.
    """
    used = {name for _, names in structure.programs.values() for name in names}
    text = {name: raw for name, raw in raws.items() if name not in structure.indexed
            and not all(isinstance(label, NUMBERS) for label in raw.labels or ())}
    for name in (name for name in text if name in used):
        is_text = [not isinstance(label, NUMBERS) for label in (*(text[name].labels or ()), 0)]
        deny(np.array(is_text)[text[name].values], f"the input '{name}'", text[name], "a number",
             hint=f"Model '{structure.model.name}' computes with '{name}'. An input may be text "
                  f"only if the model uses it as an index, as in effect[{name}]. Convert the "
                  "column to numbers")
    return {name: raw.values for name, raw in text.items()}


def together(indexed: Mapping[str, Index]) -> list[list[str]]:
    """The names of index inputs, in groups that index an axis in common."""
    groups: list[tuple[set, list[str]]] = []
    for name, index in indexed.items():
        axes: set = {(a.parameter, a.axis) for a in index.axes} or {name}
        hits = [group for group in groups if group[0] & axes]
        groups = [group for group in groups if group not in hits]
        groups.append((axes.union(*(g[0] for g in hits)), [*(n for g in hits for n in g[1]), name]))
    return [names for _, names in groups]


def bounds(indices: Iterable[Index]) -> tuple[int, int | None]:
    """The least and the greatest code of inputs with common labels; None: there is no greatest."""
    lows = [index.low for index in indices if index.low is not None]
    highs = [index.high for index in indices if index.high is not None]
    return max(lows, default=0), min(highs, default=None)


def as_labels(structure: Structure, labels: Mapping[str, tuple], name: str,
              codes: np.ndarray) -> np.ndarray:
    """The codes of an input as labels, if it has labels."""
    if name not in labels or name not in structure.indexed:
        return codes
    base, _ = axis(structure, name)
    return np.fromiter(labels[name], object, len(labels[name]))[codes.astype(np.intp) - base]


def axis(structure: Structure, name: str) -> tuple[int, int | None]:
    """The least code of an index input, and the length of the axis it indexes; None: unlimited."""
    by_input = {name: index for name, index in structure.indexed.items() if not index.cells}
    group = next(names for names in together(by_input) if name in names)
    base, top = bounds([by_input[other] for other in group])
    return base, None if top is None else top - base + 1


def have_same_coding(indices: Iterable[Index]) -> bool:
    """Whether a code selects the same entry in all of them."""
    places: dict[tuple[str, int], set] = {}
    for index in indices:
        for axis in index.axes:
            places.setdefault(axis[:2], set()).add(axis[2:])
    return all(len(found) == 1 for found in places.values())


def _plate(structure: Structure, indices: Mapping[str, Index], raws: Mapping, labels: Mapping,
           unknown: str, has_fit: bool, out: Codes) -> list[tuple[Index, dict]]:
    """Adds the codes of inputs that index one axis, and have the same labels, to `out`; returns
    those that came as integers, which are to be settled, with the numbers of their new groups."""
    checked = {name: _complete(indices[name], raws[name]) for name in indices}
    known = next((labels[name] for name in indices if name in labels), None)
    members: dict[Hashable, int] = {}
    if known is None and all(raw.labels is None for raw in checked.values()):
        out.values.update((name, _whole_numbers(indices[name], raw.values))
                          for name, raw in checked.items())
        return [(indices[name], members) for name in checked]
    base, top = bounds(indices.values())
    if len(indices) > 1 and not have_same_coding(indices.values()):
        raise DataError(f"{listed(indices, ' and ')} index the same axis with different offsets, "
                        "such as effect[a] and effect[b - 1], so one label would have different "
                        "codes in them. Pass integer codes instead of text")
    coded = known is None and has_fit
    if known is None:
        known = _new_labels(structure, checked, next(iter(indices.values())).description, base, top,
                            coded)
    for name, raw in checked.items():
        codes, bad, _, given, values = naming.coded(f"'{name}'", raw, known, base)
        if bad.any() and unknown == REFUSE:
            row, cell = _describe_position(bad)
            label = given[values[bad][0]]
            raise DataError(
                f"'{name}' is {label!r} in row {row}{cell}, " + (
                    f"but {indices[name].description} has integer codes without labels, "
                    f"{listed(known)}. Pass integer codes, fit to data with text labels, or give "
                    f"at() or log_density() the label of each code, labels={{'{name}': [...]}}"
                    if coded and isinstance(label, str) else
                    f"which is not one of the labels in the fitted data, "
                    f"{naming.listed_given(known)}. Check its spelling, or pass "
                    "unknown='new' to treat it as a new group, whose effect is drawn from its "
                    "prior"))
        if not coded:
            out.labels[name] = known
        lookup = naming.code_by_label(known, base)
        naming.refuse_other_type(f"'{name}'", (x for x in given if x not in lookup), known)
        number = np.array([*(members.setdefault(label, len(members)) if label not in lookup else -1
                             for label in given), -1])[values]
        _keep(name, codes, np.where(bad, number, -1), base, out)
    return []


def _new_labels(structure: Structure, raws: Mapping[str, Raw], description: str, base: int,
                top: int | None, coded: bool) -> tuple:
    """The common labels of inputs that index one axis, without labels from a fit.

    Args:
        description: the parameters that they index. base, top: the least and the greatest code.
        coded: an earlier fit has codes: numbers are codes, and there are no labels.
    """
    if coded:
        numbers: list[Any] = [label for raw in raws.values() for label in (
            np.unique(raw.values).tolist() if raw.labels is None else raw.labels)
            if isinstance(label, NUMBERS)]
        return tuple(range(base, int(max(numbers, default=-1) if top is None else top) + 1))
    size = None if top is None else top - base + 1
    found = naming.of(raws, description, size,
                      f"it indexes {description}, which has only "
                      f"{counted(size or 0, 'entry', 'entries')}. Set the size of the plate to the "
                      "number of groups in the data", base)
    for name, raw in raws.items():
        why = functools.partial(why_ordered, structure, name, entries=len(found))
        naming.refuse_unordered(name, raw, why,
                                "pass integer codes in the column that is used as a number, and "
                                "the text as a separate input")
    return found


def _complete(index: Index, raw: Raw) -> Raw:
    """An index input, which must not have missing cells; booleans as codes with labels."""
    if raw.missing.any():
        row, cell = _describe_position(raw.missing)
        raise DataError(
            f"'{index.input}' is missing in row {row}{cell}, but it is used as an index of "
            f"{index.description}, and an index cannot be missing. Drop these rows, or give them a "
            "new label, such as 'missing'"
        )
    if raw.values.dtype.kind == "b":
        return Raw(raw.values.astype(np.int32), (False, True), Categories.LISTED)
    return raw


def _whole_numbers(index: Index, values: np.ndarray) -> np.ndarray:
    """The values of an index input as int64; refused where they are not integers."""
    with np.errstate(invalid="ignore"):
        broken = (~(np.isfinite(values) & (values == np.floor(values))) if values.dtype.kind == "f"
                  else np.zeros(values.shape, bool))
    if broken.any():
        row, cell = _describe_position(broken)
        raise DataError(
            f"'{index.input}' is {values[broken][0]:g} in row {row}{cell}, but it is used as an "
            f"index of {index.description}. Pass integers, or text"
        )
    huge = (values >= 2**63 if values.dtype.kind == "u" else
            np.isfinite(values) & (np.abs(values) >= 2.0**63) if values.dtype.kind == "f" else
            np.zeros(values.shape, bool))
    if huge.any():  # different values would be the same integer
        row, cell = _describe_position(huge)
        raise DataError(f"'{index.input}' is {values[huge][0]} in row {row}{cell}, which does not "
                        f"fit in a 64-bit integer, but it is used as an index of "
                        f"{index.description}. Pass such identifiers as text, column.astype(str)")
    return values.astype(np.int64)


Uses = Callable[[Sequence[str], np.ndarray], np.ndarray]  # see rows_that_use


def _settle(index: Index, codes: np.ndarray, unknown: str, members: dict, uses: Uses,
            out: Codes) -> None:
    """Keeps integers as codes, those out of range as new groups or refused."""
    if unknown == REFUSE:
        within(index, codes, uses)
        return
    bad = _outside(index, codes, uses)
    number = np.full(codes.shape, -1)
    number[bad] = [members.setdefault(code, len(members)) for code in codes[bad].tolist()]
    _keep(index.input, codes, number, index.low or 0, out)


def _check_cell(index: Index, raw: Raw, lead: int, uses: Uses) -> None:
    """Refuses what is no code in one column of a matrix of numbers, which is an index; `lead` axes
    come before the columns."""
    selector: tuple = (*(slice(None),) * lead,
                       *np.unravel_index(index.cells[0], raw.values.shape[lead:]))
    column = index._replace(input=index.name, cells=())
    if raw.labels is not None:
        raise DataError(f"'{index.name}' contains text and is used as an index, but the other "
                        f"columns of '{index.input}' are numbers, and one array cannot contain "
                        f"both. Pass '{index.name}' as a separate argument of the model")
    part = _complete(column, Raw(raw.values[selector]))
    within(column, _whole_numbers(column, part.values), uses)


def _formula(formula: Formula, raws: Mapping[str, Raw], timed: tuple[str, ...], uses: Uses,
             out: Codes) -> None:
    """Refuses codes from which the model computes an index out of range."""
    codes = {}
    for source in formula.sources:
        name, cell = formula.cells[source]
        array = out.values.get(name, raws[name].values)
        steps = array.shape[1] if name in timed else 1
        codes[source] = array.reshape(len(array), steps, -1)[:, :, cell].astype(float)
    index, *arrays = np.broadcast_arrays(np.atleast_2d(formula.value(codes)), *codes.values())
    bad = ~((index >= 0) & (index <= formula.last) | np.isnan(arrays).any(0))  # missing: see rows
    bad &= uses([name for name, _ in formula.parameters], bad)
    if bad.any():
        idx = tuple(np.argwhere(bad)[0])
        parts = []
        for source, array in zip(codes, arrays, strict=True):
            name, cell = formula.cells[source]
            several = raws[name].values.ndim > (2 if name in timed else 1)
            parts.append(f"'{name}{f'[{cell}]' if several else ''}' = {array[idx]:g}")
        parts = parts or ["a constant"]
        step = f", step {idx[1]}" if bad.shape[1] > 1 else ""
        raise DataError(
            f"in row {idx[0]}{step}, {' and '.join(parts)} {'give' if len(parts) > 1 else 'gives'} "
            f"the index {index[idx]:g} of {describe_axes(formula.parameters)}; expected an index "
            f"from 0 to {formula.last}. Correct these codes"
        )


def within(index: Index, codes: np.ndarray, uses: Uses | None = None) -> None:
    """
    Raises:
        DataError: a code out of the range of the axis it indexes, in a row that uses the entry,
            or with `uses` None in any.
    """
    bad = _outside(index, codes, uses)
    if not bad.any():
        return
    row, cell = _describe_position(bad)
    low = "…" if index.low is None else index.low
    high = "…" if index.high is None else index.high
    if (index.low is not None and index.high is not None and codes.min() == index.low + 1
        and codes.max() == index.high + 1):
        advice = f"If your codes start at {index.low + 1}, subtract 1"
    elif (index.low is not None and index.high is not None
          and len(np.unique(codes)) <= index.high - index.low + 1):
        advice = "Pass the groups as text or as a pandas Categorical, which become codes"
    else:
        advice = "Set the size of the plate to the number of groups in the data"
    raise DataError(
        f"'{index.input}' is {codes[bad][0]} in row {row}{cell}, but it is used as an index of "
        f"{index.description}, which has {counted(index.length, 'entry', 'entries')}, {low} … "
        f"{high}. {advice}"
    )


def _outside(index: Index, codes: np.ndarray, uses: Uses | None) -> np.ndarray:
    """The mask of codes out of range, in rows that use the entry."""
    bad = np.zeros(codes.shape, bool)
    if index.low is not None:
        bad |= codes < index.low
    if index.high is not None:
        bad |= codes > index.high
    return bad if uses is None else bad & uses([name for name, _ in index.parameters], bad)


def _keep(name: str, codes: np.ndarray, number: np.ndarray, low: int, out: Codes) -> None:
    """Adds the codes of an input, and the numbers of its new groups (−1: none), to `out`."""
    if (number >= 0).any():
        out.new[name] = number
        codes = np.where(number >= 0, low, codes)
    out.values[name] = codes


def _describe_position(bad: np.ndarray) -> tuple[int, str]:
    """The row of the first True in a mask, and its cell in words."""
    row, *cell = (int(i) for i in np.argwhere(bad)[0])
    return row, f", cell {cell[0] if len(cell) == 1 else tuple(cell)}" if cell else ""
