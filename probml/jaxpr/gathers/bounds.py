"""Indices that a program holds as constants, out of the bounds of what they index.

JAX takes the last entry for one beyond the end, and drops what is written there, so nobody would
hear of a code from 1 on. What indices are made of constants is computed by NumPy; nothing else is.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr

from probml.jaxpr.gathers.moves import default
from probml.jaxpr.primitives import name_of
from probml.jaxpr.tapes.operation import Aval, Untold
from probml.jaxpr.tapes.tape import TABLE
from probml.jaxpr.walk import interpret

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
    found: list[Beyond] = []

    def rule(eqn: Any, values: list[np.ndarray | None]) -> list[np.ndarray | None]:
        found.extend(own for own in _indexed(eqn, values) if own.codes.size
                     and (own.codes.min() < 0 or own.codes.max() > own.last))
        return _computed(eqn, values)

    interpret(program, [None] * len(program.in_avals), _whole, rule)
    return tuple(found)


def _whole(value: Any) -> np.ndarray | None:
    """A constant, where it is made of whole numbers or truths."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if isinstance(value, bool | int) or kind in WHOLE and kind:
        return np.asarray(value)
    return None


def _computed(eqn: Any, values: list[np.ndarray | None]) -> list[np.ndarray | None]:
    operation = TABLE.get(name_of(eqn))
    nothing: list[np.ndarray | None] = [None] * len(eqn.outvars)
    if operation is None or any(value is None for value in values) or any(
        getattr(var.aval.dtype, "kind", "") not in tuple(WHOLE) for var in eqn.outvars
    ):
        return nothing
    ins, outs = ([Aval(tuple(var.aval.shape), var.aval.dtype) for var in some]
                 for some in (eqn.invars, eqn.outvars))
    params = {key: eqn.params[key] for key in operation.keys if key in eqn.params}
    try:
        result = operation.build(ins, outs, **params)(*values)
    except Untold:
        return nothing
    return list(map(np.asarray, result if operation.several else [result]))


def _indexed(eqn: Any, values: list[np.ndarray | None]) -> Iterator[Beyond]:
    """What an equation indexes by constants, axis by axis."""
    name = name_of(eqn)
    if name == "gather" and values[1] is not None:
        numbers, dims, sizes = (eqn.params["dimension_numbers"], eqn.invars[0].aval.shape,
                                eqn.params["slice_sizes"])
        mode, fill = eqn.params["mode"].name, eqn.params["fill_value"]
        if mode == "FILL_OR_DROP" and fill is not None and not default(
            fill, eqn.invars[0].aval.dtype
        ):
            return
        for k, axis in enumerate(numbers.start_index_map):
            if mode != "CLIP" or axis not in numbers.collapsed_slice_dims:
                yield Beyond(values[1][..., k], dims[axis], dims[axis] - sizes[axis])
    elif name.startswith("scatter") and values[1] is not None:
        numbers, dims = eqn.params["dimension_numbers"], eqn.invars[0].aval.shape
        inserted = numbers.inserted_window_dims
        for k, axis in enumerate(numbers.scatter_dims_to_operand_dims):
            if axis in inserted and eqn.params["mode"].name != "CLIP":
                yield Beyond(values[1][..., k], dims[axis], dims[axis] - 1)
    elif name == "dynamic_slice":
        dims, sizes = eqn.invars[0].aval.shape, eqn.params["slice_sizes"]
        for start, dim, size in zip(values[1:], dims, sizes, strict=True):
            if start is not None and size == 1:
                yield Beyond(start, dim, dim - 1)
