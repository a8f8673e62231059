"""The cell of an input array on which each element of a result depends.

The elements ("cells") of an input are numbered and tracked through a traced program
(provenance.py); short loops are unrolled. The analysis is conservative: an element reported to
depend on one cell does so, while an element reported to depend on several may in truth depend on
one.

Which integer codes a program uses as quantities: it converts them to floats, or compares their
order. Indexing, tests of equality and branches work with any numbering of the codes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, JaxprEqn
from jax.typing import ArrayLike

from probml.jaxpr.analysis import Domain, analyse
from probml.jaxpr.primitives import MIRRORED, Kind, as_integers, folded, name_of, table_entry
from probml.jaxpr.program import Scan
from probml.jaxpr.provenance import ENDS, MAX_TRACKED_ELEMENTS, NONE, sources

SEVERAL = -2  # stands for "depends on more than one cell"
LONGEST = 1024  # steps of a loop that is unrolled
_Marks = tuple[np.ndarray, ...]  # smallest and largest cell of every element


class _Value(NamedTuple):
    marks: Mapping[str, _Marks]
    known: np.ndarray | None = None  # integers that depend on no input; NaN: unknown


def cells(closed: ClosedJaxpr, tracked: Mapping[int, str],
          numbers: Mapping[str, np.ndarray] | None = None,
          known: Mapping[int, np.ndarray] | None = None) -> list[dict[str, np.ndarray]]:
    """For each output a dict: name of a tracked input on which it depends → the cell on which each
    element depends, a read-only array of the output's shape; NONE for no cell, SEVERAL for more
    than one, and for every input of more than 10^7 elements.

    Args:
        tracked: index of an input → its name.
        numbers: name of a tracked input → the cell number of each of its elements; by default every
            element is a cell of its own.
        known: index of another input → the integers that it holds.

    Cost: one pass over the equations in NumPy; nothing is compiled.
    """
    inputs, numbers, known = [], numbers or {}, known or {}
    for i, var in enumerate(closed.jaxpr.invars):
        if i not in tracked:
            inputs.append(_Value({}, np.asarray(known[i], float) if i in known else None))
            continue
        shape, size = var.aval.shape, var.aval.size
        if size > MAX_TRACKED_ELEMENTS:
            inputs.append(_Value({tracked[i]: tuple(np.full((1,) * len(shape), end)
                                                    for end in (0, size))}))
            continue
        number = numbers.get(tracked[i], np.arange(size).reshape(shape))
        inputs.append(_Value({tracked[i]: (number, number)}))
    return [{name: np.broadcast_to(_cell(*marks), aval.shape)
             for name, marks in value.marks.items()}
            for value, aval in zip(analyse(closed, _Cells(), inputs), closed.out_avals,
                                   strict=True)]


def merge_cells(merged: np.ndarray, new: np.ndarray) -> bool:
    """Write the cells of elements that depend on one into `merged`, the cells found so far; False:
    an element depends on several."""
    if ((new == SEVERAL) | (new != NONE) & (merged != NONE) & (new != merged)).any():
        return False
    merged[new != NONE] = new[new != NONE]
    return True


def _cell(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.where(high == NONE, NONE, np.where(low == high, low, SEVERAL))


class _Cells(Domain[_Value]):
    """The smallest and the largest cell of every element, by the name of the input."""

    unrolled = LONGEST

    def constant(self, value: object) -> _Value:
        return _Value({}, as_integers(value))

    def equation(self, eqn: JaxprEqn, operands: list[_Value]) -> list[_Value]:
        known = [value.known for value in operands]
        number = folded(eqn, known) if len(eqn.outvars) == 1 else None
        all_marks: list[dict[str, _Marks]] = [{} for _ in eqn.outvars]
        for name in dict.fromkeys(name for value in operands for name in value.marks):
            sides = [sources(eqn, [v.marks[name][i] if name in v.marks else None for v in operands],
                             end, known) for i, end in enumerate(ENDS)]
            for marks, low, high in zip(all_marks, *sides, strict=True):
                marks[name] = (low, high)
        return [_Value(marks, number) for marks in all_marks]

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

    def leaving(self, values: Sequence[_Value], aval: ShapedArray) -> _Value:
        marks: dict[str, _Marks] = {}
        for name in dict.fromkeys(name for value in values for name in value.marks):
            bounds = [np.full((len(values), *aval.shape[1:]), end.blank) for end in ENDS]
            for turn, value in enumerate(values):
                for array, m in zip(bounds, value.marks.get(name, ()), strict=False):
                    array[turn] = m
            marks[name] = tuple(bounds)
        return _Value(marks)


# comparison with a constant c → whether it separates the codes 0 … n − 1
_APART = {"lt": lambda c, n: 0 < c < n, "ge": lambda c, n: 0 < c < n,
          "le": lambda c, n: 0 <= c < n - 1, "gt": lambda c, n: 0 <= c < n - 1}


class _Array(NamedTuple):
    """The operands of the program whose codes an array holds, and its value if it is a known
    scalar."""

    codes: frozenset[int] = frozenset()
    number: float | None = None


def find_amounts(closed: ClosedJaxpr, states: Sequence[int | None]) -> frozenset[int]:
    """The positions of the operands whose codes 0 … states − 1 are used as quantities.

    Args:
        states: the number of codes of each operand; None: it holds no codes.

    Cost: one pass over the program, no array computation.
    """
    domain = _Codes(states)
    analyse(closed, domain, [_Array(frozenset() if count is None else frozenset([i]))
                             for i, count in enumerate(states)])
    return frozenset(domain.found)


def _joined(arrays: Iterable[_Array]) -> frozenset[int]:
    return frozenset().union(*(array.codes for array in arrays))


class _Codes(Domain[_Array]):
    """Which arrays hold codes; `found` collects operands whose codes are used as quantities."""

    idle = True

    def __init__(self, states: Sequence[int | None]):
        self.states = states
        self.found: set[int] = set()

    def constant(self, value: ArrayLike) -> _Array:
        return _Array(number=float(value) if np.ndim(value) == 0 and getattr(
            np.asarray(value).dtype, "kind", "") in "iuf" else None)

    def equation(self, eqn: JaxprEqn, operands: list[_Array]) -> list[_Array]:
        name, entry = name_of(eqn), table_entry(eqn)
        codes = _joined(operands)
        if not codes or entry is None:
            return [_Array()] * len(eqn.outvars)
        if name in _APART:
            self._compared(name, *operands)
        if entry.kind is Kind.MOVE or name == "select_n":  # the other operands are indices
            codes = _joined(operands[1:] if name == "select_n" else operands[:1])
        kinds = [getattr(getattr(out.aval, "dtype", None), "kind", "") for out in eqn.outvars]
        if "f" in kinds:
            self.found.update(codes)
        return [_Array(codes if kind in "iu" and kind else frozenset()) for kind in kinds]

    def join(self, one: _Array, other: _Array, eqn: JaxprEqn) -> _Array:
        return _Array(one.codes | other.codes)

    def loop_carry(self, value: _Array, scan: object, first: bool) -> _Array:
        return _Array(value.codes)

    def _compared(self, name: str, one: _Array, other: _Array) -> None:
        if not one.codes:
            name, one, other = MIRRORED[name], other, one
        for operand in one.codes:
            if other.number is not None and not other.codes and _APART[name](
                    other.number, self.states[operand]):
                self.found.add(operand)
