"""Constant indices of a program that are out of bounds.

JAX clamps an index beyond the end when it reads and drops it when it writes, so that codes counted
from 1 would go unnoticed. Indices that depend on constants alone are evaluated with NumPy; nothing
else is computed.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr

from probml.jaxpr.analysis import Domain, analyse
from probml.jaxpr.gathers.moves import looks
from probml.jaxpr.primitives import computed, name_of

WHOLE = "biu"  # kinds of dtypes that are evaluated


class Beyond(NamedTuple):
    """Constant indices along an axis, at least one of them out of bounds.

    Attributes:
        codes: the indices. length: of the axis. last: the largest allowed index.
    """

    codes: np.ndarray
    length: int
    last: int

    @property
    def first(self) -> int:
        """The first index that is out of bounds."""
        return int(self.codes[(self.codes < 0) | (self.codes > self.last)].flat[0])


def beyond(program: ClosedJaxpr) -> tuple[Beyond, ...]:
    """The constant indices that are out of bounds, whatever the arguments of the program are. With
    an explicit fill value or explicit clipping they are intended and not reported.

    Cost: one pass over the equations, and the evaluation of the indices with NumPy.
    """
    domain = _Constants()
    analyse(program, domain, [None] * len(program.in_avals))
    return tuple(domain.found)


_Array = np.ndarray | None  # known integers or booleans; None: unknown


class _Constants(Domain[_Array]):
    """Evaluates what depends on constants alone; `found` collects indices out of bounds."""

    idle = True

    def __init__(self) -> None:
        self.found: list[Beyond] = []

    def constant(self, value: Any) -> _Array:
        kind = getattr(getattr(value, "dtype", None), "kind", "")
        if isinstance(value, bool | int) or kind in WHOLE and kind:
            return np.asarray(value)
        return None

    def equation(self, eqn: Any, operands: list[_Array]) -> list[_Array]:
        self.found.extend(own for own in _indexed(eqn, operands) if own.codes.size
                          and (own.codes.min() < 0 or own.codes.max() > own.last))
        known = [value for value in operands if value is not None]
        result = computed(eqn, known) if len(known) == len(operands) and all(
            getattr(var.aval.dtype, "kind", "V") in WHOLE for var in eqn.outvars) else None
        return [None] * len(eqn.outvars) if result is None else [*result]

    def opaque_results(self, eqn: Any, operands: list[_Array]) -> list[_Array]:
        return [None] * len(eqn.outvars)


def _indexed(eqn: Any, values: list[np.ndarray | None]) -> Iterator[Beyond]:
    """The constant indices of an equation, axis by axis. Not those of slices of several entries and
    of writes by a slice, which JAX moves inside the array."""
    name = name_of(eqn)
    for look in looks(eqn) if name != "dynamic_update_slice" else ():
        index, length = values[look.operand], eqn.invars[0].aval.shape[look.axis]
        if index is not None and not look.free and (look.size == 1 or name == "gather"):
            yield Beyond(look.of(index), length, length - look.size)
