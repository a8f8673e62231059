"""Which whole numbers a program reads as amounts: it makes a float of them, or asks which are below
another, where an index, a test of equality and a branch take any numbering alike."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr

from probml.jaxpr.primitives import Kind, known, name_of
from probml.jaxpr.walk import Scan, While, bodies, interpret

# comparison → whether it tells 0 … n − 1 apart, by the number they are compared with
_APART = {"lt": lambda c, n: 0 < c < n, "ge": lambda c, n: 0 < c < n,
          "le": lambda c, n: 0 <= c < n - 1, "gt": lambda c, n: 0 <= c < n - 1}
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


class _Array(NamedTuple):
    """The operands of the program whose codes an array holds, and its value, if it is one known
    number."""

    codes: frozenset[int] = frozenset()
    number: float | None = None


def find_amounts(closed: ClosedJaxpr, states: Sequence[int | None]) -> frozenset[int]:
    """The operands, by position, whose codes 0 … states − 1 are read as amounts.

    Args:
        states: how many codes each operand has; None: it holds none.

    Cost: one pass over the program, no array computation.
    """
    found: set[int] = set()

    def joined(arrays: Iterable[_Array]) -> frozenset[int]:
        return frozenset().union(*(array.codes for array in arrays))

    def compared(name: str, one: _Array, other: _Array) -> None:
        if not one.codes:
            name, one, other = _MIRRORED[name], other, one
        for operand in one.codes:
            if other.number is not None and not other.codes and _APART[name](other.number,
                                                                             states[operand]):
                found.add(operand)

    def rule(eqn: Any, operands: list[_Array]) -> list[_Array]:
        name, entry = name_of(eqn), known(eqn)
        kept = joined(operands)
        if not kept or entry is None:
            return [_Array()] * len(eqn.outvars)
        if name in _APART:
            compared(name, *operands)
        if entry.kind is Kind.LOOP:
            return looped(eqn, operands)
        if entry.kind is Kind.MOVE or name == "select_n":  # the others only say where
            kept = joined(operands[1:] if name == "select_n" else operands[:1])
        kinds = [getattr(getattr(out.aval, "dtype", None), "kind", "") for out in eqn.outvars]
        if "f" in kinds:
            found.update(kept)
        return [_Array(kept if kind in "iu" and kind else frozenset()) for kind in kinds]

    def looped(eqn: Any, operands: list[_Array]) -> list[_Array]:
        if name_of(eqn) == "cond":
            runs = [interpret(body, operands[1:], constant, rule) for body in bodies(eqn)]
            return [_Array(joined(each)) for each in zip(*runs, strict=True)]
        if name_of(eqn) == "scan":
            parts = Scan.of(eqn)
            fixed, first, steps = parts.constants, parts.carries, parts.body
        else:
            loop = While.of(eqn)
            steps, fixed, first = loop.body, loop.constants, len(operands)
            operands = operands[loop.asked:]
        carry = operands[fixed : fixed + first]
        while True:
            out = interpret(steps, [*operands[:fixed], *carry, *operands[fixed + first :]],
                            constant, rule)
            after = [_Array(joined(pair)) for pair in zip(carry, out, strict=False)]
            if [each.codes for each in after] == [each.codes for each in carry]:
                return [*after, *out[len(carry):]]
            carry = after

    interpret(closed, [_Array(frozenset() if count is None else frozenset([i]))
                       for i, count in enumerate(states)], constant, rule)
    return frozenset(found)


def constant(value: Any) -> _Array:
    """An array that a program holds."""
    return _Array(number=float(value) if np.ndim(value) == 0 and getattr(
        np.asarray(value).dtype, "kind", "") in "iuf" else None)
