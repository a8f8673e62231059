"""Which integer codes a program uses as quantities: it converts them to floats, or compares their
order. Indexing, tests of equality and branches work with any numbering of the codes."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn
from jax.typing import ArrayLike

from probml.jaxpr.analysis import Domain, analyse
from probml.jaxpr.primitives import Kind, name_of, table_entry

# comparison with a constant c → whether it separates the codes 0 … n − 1
_APART = {"lt": lambda c, n: 0 < c < n, "ge": lambda c, n: 0 < c < n,
          "le": lambda c, n: 0 <= c < n - 1, "gt": lambda c, n: 0 <= c < n - 1}
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


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
        kept = _joined(operands)
        if not kept or entry is None:
            return [_Array()] * len(eqn.outvars)
        if name in _APART:
            self._compared(name, *operands)
        if entry.kind is Kind.MOVE or name == "select_n":  # the other operands are indices
            kept = _joined(operands[1:] if name == "select_n" else operands[:1])
        kinds = [getattr(getattr(out.aval, "dtype", None), "kind", "") for out in eqn.outvars]
        if "f" in kinds:
            self.found.update(kept)
        return [_Array(kept if kind in "iu" and kind else frozenset()) for kind in kinds]

    def join(self, one: _Array, other: _Array, eqn: JaxprEqn) -> _Array:
        return _Array(one.codes | other.codes)

    def loop_carry(self, value: _Array, scan: object, first: bool) -> _Array:
        return _Array(value.codes)

    def _compared(self, name: str, one: _Array, other: _Array) -> None:
        if not one.codes:
            name, one, other = _MIRRORED[name], other, one
        for operand in one.codes:
            if other.number is not None and not other.codes and _APART[name](
                    other.number, self.states[operand]):
                self.found.add(operand)
