"""Indices that a program holds as constants, out of the bounds of what they index.

JAX takes the last entry for one beyond the end, and drops what is written there, so nobody would
hear of a code from 1 on. What indices are made of constants is computed by NumPy; nothing else is.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn

from probml.jaxpr.analysis import Domain, analyse
from probml.jaxpr.gathers.moves import looks
from probml.jaxpr.primitives import computed, name_of

WHOLE = "biu"  # types of what is computed


class Beyond(NamedTuple):
    """Constants that index along an axis, one of them at least out of its bounds.

    Attributes:
        codes: all of them. length: the entries of the axis. last: the largest that is allowed.
    """

    codes: np.ndarray
    length: int
    last: int

    @property
    def first(self) -> int:
        """The first that is out of bounds."""
        return int(self.codes[(self.codes < 0) | (self.codes > self.last)].flat[0])


def beyond(program: ClosedJaxpr) -> tuple[Beyond, ...]:
    """What a program indexes out of bounds, whatever its arguments are; where a fill value is
    stated, or clipping, it is meant.

    Cost: one pass over the equations, and what NumPy takes to make the indices.
    """
    domain = _Constants()
    analyse(program, domain, [None] * len(program.in_avals))
    return tuple(domain.found)


_Array = np.ndarray | None  # whole numbers or truths, where they are known


class _Constants(Domain[_Array]):
    """What is made of constants; `found` is what they index out of bounds."""

    idle = True

    def __init__(self) -> None:
        self.found: list[Beyond] = []

    def constant(self, value: object) -> _Array:
        kind = getattr(getattr(value, "dtype", None), "kind", "")
        if isinstance(value, bool | int) or kind in WHOLE and kind:
            return np.asarray(value)
        return None

    def equation(self, eqn: JaxprEqn, operands: list[_Array]) -> list[_Array]:
        self.found.extend(own for own in _indexed(eqn, operands) if own.codes.size
                          and (own.codes.min() < 0 or own.codes.max() > own.last))
        known = [value for value in operands if value is not None]
        result = computed(eqn, known) if len(known) == len(operands) and all(
            getattr(var.aval.dtype, "kind", "V") in WHOLE for var in eqn.outvars) else None
        return [None] * len(eqn.outvars) if result is None else [*result]

    def opaque_results(self, eqn: JaxprEqn, operands: list[_Array]) -> list[_Array]:
        return [None] * len(eqn.outvars)


def _indexed(eqn: JaxprEqn, values: list[np.ndarray | None]) -> Iterator[Beyond]:
    """What an equation indexes by constants, axis by axis; a slice of several entries is moved
    inside, and a write by a slice."""
    name = name_of(eqn)
    for look in looks(eqn) if name != "dynamic_update_slice" else ():
        index, length = values[look.operand], eqn.invars[0].aval.shape[look.axis]
        if index is not None and not look.free and (look.size == 1 or name == "gather"):
            yield Beyond(look.of(index), length, length - look.size)
