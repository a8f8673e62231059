"""On which cell of an array does each element of a result depend?

The cells of an input, all its elements numbered, are followed through a traced program: of every
array the least and the greatest cell on which an element depends, so that an element depends on one
cell alone exactly if the two are the same. Moves carry them along, elementwise operations and sums
join them, indices that are numbers of the program lead to the cells they lead to, and a primitive
that the table (primitives.py) does not hold, or a long loop, joins all; a short one is followed
step by step. So what is said to depend on one
cell does, and what is said to depend on several may depend on one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core

from probml.jaxpr.primitives import Kind, entry_of, known, name_of
from probml.jaxpr.walk import Scan, interpret
from probml.jaxpr.whole_numbers import MOVED, folded

NONE, SEVERAL = -1, -2  # in the place of a cell
LONGEST = 1024  # steps of a loop that is followed step by step
_BEYOND = 2**31 - 1  # the least of no cells; the greatest is NONE


class _End(NamedTuple):
    """One of the two bounds that are followed: how bounds join, and that of no cells."""

    join: np.ufunc
    blank: int


_ENDS = (_End(np.minimum, _BEYOND), _End(np.maximum, NONE))
_Marks = tuple[np.ndarray, np.ndarray]  # least and greatest cell of every element


class _Value(NamedTuple):
    marks: Mapping[str, _Marks]
    known: np.ndarray | None = None  # whole numbers that depend on nothing; NaN for one that does


def cells(closed: core.ClosedJaxpr, tracked: Mapping[int, str],
          numbers: Mapping[str, np.ndarray] | None = None,
          known: Mapping[int, np.ndarray] | None = None) -> list[dict[str, np.ndarray]]:
    """For each output and tracked input on which it depends, the cell on which every element does:
    an array of its shape, NONE for no cell, SEVERAL for more than one.

    Args:
        tracked: index of an input → its name.
        numbers: the number of the cell that each element of a tracked input is; each its own where
            nothing is said.
        known: index of another input → the whole numbers that it is.

    Cost: one pass over the equations in NumPy; nothing is compiled but gathers of the tracked.
    """
    inputs, numbers, known = [], numbers or {}, known or {}
    for i, var in enumerate(closed.jaxpr.invars):
        if i not in tracked:
            inputs.append(_Value({}, np.asarray(known[i], float) if i in known else None))
            continue
        own = np.arange(var.aval.size).reshape(var.aval.shape)
        number = numbers.get(tracked[i], own)
        inputs.append(_Value({tracked[i]: (number, number)}))
    return [{name: _cell(*marks) for name, marks in value.marks.items()}
            for value in interpret(closed, inputs, _constant, _rule)]


def _cell(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.where(high == NONE, NONE, np.where(low == high, low, SEVERAL))


def _constant(value: Any) -> _Value:
    if isinstance(value, jax.core.Tracer) or getattr(getattr(value, "dtype", np.dtype(int)), "kind",
                                                     "V") not in "biu":
        return _Value({})
    return _Value({}, np.asarray(value, float))


def _rule(eqn: Any, values: list[_Value]) -> list[_Value]:
    entry = known(eqn)
    if name_of(eqn) == "scan" and Scan.of(eqn).length <= LONGEST:
        return _scan(eqn, values)
    if entry is not None and entry.kind is Kind.COPY and len(values) == len(eqn.outvars):
        return values
    number = folded(eqn, [value.known for value in values]) if len(eqn.outvars) == 1 else None
    out: list[dict[str, _Marks]] = [{} for _ in eqn.outvars]
    for name in dict.fromkeys(name for value in values for name in value.marks):
        ends = [_through(eqn, entry, [v.marks[name][i] if name in v.marks else None
                                      for v in values], end, [v.known for v in values])
                for i, end in enumerate(_ENDS)]
        for marks, low, high in zip(out, *ends, strict=True):
            marks[name] = (low, high)
    return [_Value(marks, number) for marks in out]


def _scan(eqn: Any, values: list[_Value]) -> list[_Value]:
    """A loop, step after step."""
    scan = Scan.of(eqn)
    held, carry = values[: scan.constants], values[scan.constants :][: scan.carries]
    xs, said = values[scan.constants + scan.carries :], []
    turns = range(scan.length)
    for turn in reversed(turns) if eqn.params["reverse"] else turns:
        after = interpret(scan.body, [*held, *carry, *(_at(x, turn) for x in xs)], _constant,
                          _rule)
        carry = after[: scan.carries]
        said.append(after[scan.carries :])
    said = said[::-1] if eqn.params["reverse"] else said
    shapes = [var.aval.shape for var in eqn.outvars[scan.carries :]]
    return carry + [_stacked([step[i] for step in said], shape) for i, shape in enumerate(shapes)]


def _at(value: _Value, turn: int) -> _Value:
    """A slice along the first axis."""
    return _Value({name: (low[turn], high[turn]) for name, (low, high) in value.marks.items()},
                  None if value.known is None else np.asarray(value.known[turn]))


def _stacked(steps: list[_Value], shape: tuple[int, ...]) -> _Value:
    marks: dict[str, _Marks] = {}
    for name in dict.fromkeys(name for step in steps for name in step.marks):
        low, high = (np.full(shape, end.blank) for end in _ENDS)
        for turn, step in enumerate(steps):
            if name in step.marks:
                low[turn], high[turn] = step.marks[name]
        marks[name] = (low, high)
    return _Value(marks)


def _through(eqn: Any, entry: Any, marked: Sequence[np.ndarray | None], end: _End,
             numbers: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """One bound of every result, from that of the operands; None for one that depends on nothing
    tracked."""
    name, shapes = name_of(eqn), [var.aval.shape for var in eqn.outvars]
    if entry is not None and name in _RULES:
        return [_RULES[name](eqn, marked, end, numbers)]
    kind = None if entry is None else entry.kind
    if kind is Kind.ELEMENTWISE:
        return [_joined(marked, end, shape) for shape in shapes]
    if name in MOVED and marked[0] is not None and len(marked) == 1:
        return [np.asarray(MOVED[name](eqn, marked[0]))]
    if kind in (Kind.REDUCE, Kind.ALONG):
        axes = eqn.params[entry.axes]
        axes = tuple(axes) if isinstance(axes, tuple | list) else (axes,)
        whole = _joined(marked, end, eqn.invars[0].aval.shape)
        kept = end.join.reduce(whole, axes, keepdims=kind is Kind.ALONG, initial=end.blank)
        return [np.broadcast_to(kept, shape) for shape in shapes]
    if kind is Kind.OPAQUE and entry.own:
        return _of_leading_axes(eqn, entry, marked, end, shapes)
    if kind in (Kind.MOVE, Kind.JOIN) and all(
        number is not None and not np.isnan(number).any() for number in numbers[1:]
    ) or kind is Kind.JOIN or name in ("split", "unstack", "tile"):
        return _run(eqn, marked, end, numbers)
    return [np.full(shape, _all(marked, end)) for shape in shapes]


def _all(marked: Sequence[np.ndarray | None], end: _End) -> int:
    return end.join.reduce([end.join.reduce(m, None, initial=end.blank) for m in marked
                            if m is not None])


def _joined(marked: Sequence[np.ndarray | None], end: _End, shape: tuple) -> np.ndarray:
    out = np.full(shape, end.blank)
    for marks in marked:
        if marks is not None:
            out = end.join(out, np.broadcast_to(marks, shape))
    return out


def _of_leading_axes(eqn: Any, entry: Any, marked: Sequence, end: _End,
                     shapes: Sequence[tuple]) -> list[np.ndarray]:
    """A primitive that does anything at all to trailing axes."""
    leads = []
    for i, marks in enumerate(marked):
        if marks is not None:
            own = entry.own[min(i, len(entry.own) - 1)]
            leads.append(end.join.reduce(marks, tuple(range(marks.ndim - own, marks.ndim)),
                                         initial=end.blank))
    batch = leads[0].shape
    if any(lead.shape != batch for lead in leads) or any(shape[: len(batch)] != batch
                                                         for shape in shapes):
        return [np.full(shape, _all(marked, end)) for shape in shapes]
    lead = _joined(leads, end, batch)
    return [np.broadcast_to(lead.reshape(batch + (1,) * (len(shape) - len(batch))), shape)
            for shape in shapes]


def _run(eqn: Any, marked: Sequence, end: _End, numbers: Sequence) -> list[np.ndarray]:
    """A primitive that only moves elements, run on the bounds themselves."""
    operands, every = [], entry_of(eqn).kind is Kind.JOIN
    for i, (atom, marks, number) in enumerate(zip(eqn.invars, marked, numbers, strict=True)):
        blank = np.full(atom.aval.shape, end.blank) if marks is None else marks
        operands.append(np.asarray(blank if every or i == 0 else number, np.int32))
    with jax.ensure_compile_time_eval():
        out = eqn.primitive.bind(*operands, **eqn.params)
    out = out if eqn.primitive.multiple_results else [out]
    return [_inside(np.asarray(array), end) for array in out]


def _inside(array: np.ndarray, end: _End) -> np.ndarray:
    """What an index out of bounds has filled depends on nothing."""
    return np.where(array < 0, end.blank, array)


def _select(eqn: Any, marked: Sequence, end: _End, numbers: Sequence) -> np.ndarray:
    shape, which = eqn.outvars[0].aval.shape, numbers[0]
    if which is None or np.isnan(which).any() or marked[0] is not None:
        return _joined(marked, end, shape)
    ways = [np.full(shape, end.blank) if m is None else m for m in marked[1:]]
    return np.choose(np.broadcast_to(which.astype(int), shape), ways)


def _gather(eqn: Any, marked: Sequence, end: _End, numbers: Sequence) -> np.ndarray:
    """Elements of the first operand where the second says; of an index that is no known number any
    of its axis may be meant."""
    dims, out = eqn.params["dimension_numbers"], eqn.outvars[0].aval.shape
    result = np.full(out, end.blank)
    if marked[1] is not None:
        own = end.join.reduce(marked[1], marked[1].ndim - 1, initial=end.blank)
        beside = [axis for axis in range(len(out)) if axis not in dims.offset_dims]
        sizes = dict(zip(beside, own.shape, strict=True))
        own = own.reshape([sizes.get(axis, 1) for axis in range(len(out))])
        result = end.join(result, np.broadcast_to(own, out))
    if marked[0] is None:
        return result
    operand, shape = marked[0], eqn.invars[1].aval.shape
    index = np.full(shape, np.nan) if numbers[1] is None else np.array(numbers[1])
    for column, axis in enumerate(dims.start_index_map):
        if np.isnan(index[..., column]).any():
            operand = np.broadcast_to(
                end.join.reduce(operand, axis, keepdims=True, initial=end.blank), operand.shape
            )
            index[..., column] = 0
    return end.join(result, _run(eqn, [operand, None], end, [None, index])[0])


def _dot_general(eqn: Any, marked: Sequence, end: _End, numbers: Sequence) -> np.ndarray:
    contracted, batch = eqn.params["dimension_numbers"]
    out, used = np.full(eqn.outvars[0].aval.shape, end.blank), len(batch[0])
    for side, marks in enumerate(marked):
        shape = eqn.invars[side].aval.shape
        free = [a for a in range(len(shape)) if a not in (*contracted[side], *batch[side])]
        if marks is not None:
            kept = np.transpose(marks, (*batch[side], *free, *contracted[side]))
            kept = end.join.reduce(kept, tuple(range(used + len(free), kept.ndim)),
                                   initial=end.blank)
            before = used if side == 0 else out.ndim - len(free)
            kept = kept.reshape(kept.shape[:used] + (1,) * (before - used) + kept.shape[used:]
                                + (1,) * (out.ndim - before - len(free)))
            out = end.join(out, kept)
    return out


def _slice(eqn: Any, marked: Sequence, end: _End, numbers: Sequence) -> np.ndarray:
    params = eqn.params
    steps = params["strides"] or (1,) * len(params["start_indices"])
    return marked[0][tuple(map(slice, params["start_indices"], params["limit_indices"], steps))]


def _rev(eqn: Any, marked: Sequence, end: _End, numbers: Sequence) -> np.ndarray:
    return np.flip(marked[0], eqn.params["dimensions"])


def _concatenate(eqn: Any, marked: Sequence, end: _End, numbers: Sequence) -> np.ndarray:
    parts = [np.full(atom.aval.shape, end.blank) if m is None else m
             for atom, m in zip(eqn.invars, marked, strict=True)]
    return np.concatenate(parts, eqn.params["dimension"])


_RULES: dict[str, Callable[[Any, Sequence, _End, Sequence], np.ndarray]] = {
    "concatenate": _concatenate, "dot_general": _dot_general, "gather": _gather, "rev": _rev,
    "select_n": _select, "slice": _slice,
}
