"""On which cell of an array does each element of a result depend?

The cells of an input, all its elements numbered, are followed through a traced program
(provenance.py); a short loop is followed step by step. So what is said to depend on one cell does,
and what is said to depend on several may depend on one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn

from probml.jaxpr.analysis import Domain, analyse
from probml.jaxpr.program import Scan
from probml.jaxpr.provenance import ENDS, LARGEST, NONE, sources
from probml.jaxpr.whole_numbers import as_integers, folded

SEVERAL = -2  # in the place of a cell
LONGEST = 1024  # steps of a loop that is followed step by step
_Marks = tuple[np.ndarray, ...]  # least and greatest cell of every element


class _Value(NamedTuple):
    marks: Mapping[str, _Marks]
    known: np.ndarray | None = None  # whole numbers that depend on nothing; NaN for one that does


def cells(closed: ClosedJaxpr, tracked: Mapping[int, str],
          numbers: Mapping[str, np.ndarray] | None = None,
          known: Mapping[int, np.ndarray] | None = None) -> list[dict[str, np.ndarray]]:
    """For each output and tracked input on which it depends, the cell on which every element does:
    an array of its shape (not to be written to), NONE for no cell, SEVERAL for more than one.
    Of an input of more than 10^7 elements it is SEVERAL.

    Args:
        tracked: index of an input → its name.
        numbers: the number of the cell that each element of a tracked input is; each its own where
            nothing is said.
        known: index of another input → the whole numbers that it is.

    Cost: one pass over the equations in NumPy; nothing is compiled.
    """
    inputs, numbers, known = [], numbers or {}, known or {}
    for i, var in enumerate(closed.jaxpr.invars):
        if i not in tracked:
            inputs.append(_Value({}, np.asarray(known[i], float) if i in known else None))
            continue
        shape, size = var.aval.shape, var.aval.size
        if size > LARGEST:
            inputs.append(_Value({tracked[i]: tuple(np.full((1,) * len(shape), end)
                                                    for end in (0, size))}))
            continue
        number = numbers.get(tracked[i], np.arange(size).reshape(shape))
        inputs.append(_Value({tracked[i]: (number, number)}))
    return [{name: np.broadcast_to(_cell(*marks), aval.shape)
             for name, marks in value.marks.items()}
            for value, aval in zip(analyse(closed, _Cells(), inputs), closed.out_avals,
                                   strict=True)]


def _cell(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.where(high == NONE, NONE, np.where(low == high, low, SEVERAL))


class _Cells(Domain[_Value]):
    """Least and greatest cells, by the name of the input."""

    unrolled = LONGEST

    def constant(self, value: object) -> _Value:
        return _Value({}, as_integers(value))

    def equation(self, eqn: JaxprEqn, operands: list[_Value]) -> list[_Value]:
        known = [value.known for value in operands]
        number = folded(eqn, known) if len(eqn.outvars) == 1 else None
        out: list[dict[str, _Marks]] = [{} for _ in eqn.outvars]
        for name in dict.fromkeys(name for value in operands for name in value.marks):
            ends = [sources(eqn, [v.marks[name][i] if name in v.marks else None for v in operands],
                            end, known) for i, end in enumerate(ENDS)]
            for marks, low, high in zip(out, *ends, strict=True):
                marks[name] = (low, high)
        return [_Value(marks, number) for marks in out]

    def join(self, one: _Value, other: _Value, eqn: JaxprEqn) -> _Value:
        marks = {**one.marks, **other.marks}
        for name in one.marks.keys() & other.marks.keys():
            marks[name] = tuple(end.join(a, b) for end, a, b in zip(
                ENDS, one.marks[name], other.marks[name], strict=True))
        return _Value(marks)

    def same(self, one: _Value, other: _Value) -> bool:
        return one.marks.keys() == other.marks.keys() and all(
            np.array_equal(np.broadcast_to(a, b.shape), b)
            for name in one.marks for a, b in zip(one.marks[name], other.marks[name], strict=True)
        )

    def widened(self, value: _Value) -> _Value:
        return _Value({name: tuple(
            np.broadcast_to(end.join.reduce(m, None, initial=end.blank), m.shape)
            for end, m in zip(ENDS, marks, strict=True)) for name, marks in value.marks.items()})

    def entering(self, value: _Value, turn: int | None, scan: Scan) -> _Value:
        if turn is None:
            return _Value({name: tuple(end.join.reduce(m, 0, initial=end.blank)
                                       for end, m in zip(ENDS, marks, strict=True))
                           for name, marks in value.marks.items()})
        return _Value({name: tuple(m[min(turn, len(m) - 1)] for m in marks)
                       for name, marks in value.marks.items()},
                      None if value.known is None else np.asarray(value.known[turn]))

    def loop_carry(self, value: _Value, scan: Scan | None, first: bool) -> _Value:
        return value._replace(known=None)

    def leaving(self, values: Sequence[_Value], aval: Any) -> _Value:
        marks: dict[str, _Marks] = {}
        for name in dict.fromkeys(name for value in values for name in value.marks):
            own = [np.full((len(values), *aval.shape[1:]), end.blank) for end in ENDS]
            for turn, value in enumerate(values):
                for array, m in zip(own, value.marks.get(name, ()), strict=False):
                    array[turn] = m
            marks[name] = tuple(own)
        return _Value(marks)
