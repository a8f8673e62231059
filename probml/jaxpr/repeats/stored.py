"""Arrays that a Python loop fills element by element, x = x.at[t].set(f(x[t − 1])), rewritten as
lists of their elements.

Each `.at[t].set` is traced to a scatter into the whole array, and the next step slices an element
out of it: every step depends on the whole array, and no two steps have the same pattern. Rewritten,
the program is that of a loop that appends to a list, which rolled.py turns into a scan.
"""

import functools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn

from probml.jaxpr.analysis import Domain, analyse
from probml.jaxpr.primitives import as_integers, folded
from probml.jaxpr.program import CALLS, bind, equations

MIN_ELEMENTS = 8  # stored, from which an array is rewritten


class _Filled:
    """An array whose elements along an axis were set one by one."""

    def __init__(self, base: jax.Array, axis: int, stored: Mapping[int, jax.Array]):
        self.base, self.axis, self.stored = base, axis, stored
        self.goes_on = False  # a later equation stores into it

    def element(self, i: int) -> jax.Array:
        return self.stored[i] if i in self.stored else lax.index_in_dim(
            self.base, i, self.axis, keepdims=False)

    @functools.cached_property
    def whole(self) -> jax.Array:
        """The array."""
        if len(self.stored) < MIN_ELEMENTS:
            out = jnp.moveaxis(self.base, self.axis, 0)
            for i, value in self.stored.items():
                out = out.at[i].set(value)
            return jnp.moveaxis(out, 0, self.axis)
        first, last, count = min(self.stored), max(self.stored) + 1, self.base.shape[self.axis]
        run = jnp.stack([jnp.asarray(self.element(i), self.base.dtype)
                         for i in range(first, last)], self.axis)
        beside = [lax.slice_in_dim(self.base, *ends, axis=self.axis)
                  for ends in ((0, first), (last, count))]
        parts = [part for part in (beside[0], run, beside[1]) if part.shape[self.axis]]
        return run if len(parts) == 1 else jnp.concatenate(parts, self.axis)

    def sliced(self, starts: Sequence[int], limits: Sequence[int]) -> jax.Array:
        rows = range(starts[self.axis], limits[self.axis])
        if len(rows) >= MIN_ELEMENTS:
            return lax.slice(self.whole, starts, limits)
        part = jnp.concatenate([jnp.expand_dims(self.element(i), self.axis) for i in rows],
                               self.axis)
        starts, limits = list(starts), list(limits)
        starts[self.axis], limits[self.axis] = 0, len(rows)
        if tuple(limits) == part.shape and not any(starts):
            return part
        return lax.slice(part, starts, limits)


def by_elements(closed: ClosedJaxpr, idle: bool = False) -> ClosedJaxpr:
    """A program in which arrays that are filled element by element are rewritten as their elements.

    Args:
        idle: assemble such arrays even if no result depends on them.

    Cost: one pass over the equations; nothing is compiled.
    """
    stores = sum(eqn.primitive.name == "scatter" for eqn in equations(closed))
    if stores < MIN_ELEMENTS:
        return closed

    def run(*inputs: object) -> list[jax.Array]:
        domain = _Elements(idle)
        results = analyse(closed, domain, [(value, None) for value in inputs])
        for filled in domain.made if idle else ():
            if not filled.goes_on and len(filled.stored) >= MIN_ELEMENTS:
                _materialized(filled)
        return [_materialized(value) for value, _ in results]

    return jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(aval.shape, aval.dtype)
                                 for aval in closed.in_avals))


def _materialized(value: object) -> jax.Array:
    return value.whole if isinstance(value, _Filled) else value


_Value = tuple[jax.Array, np.ndarray | None]  # a value, and the integers that it holds if known


class _Elements(Domain[_Value]):
    """Evaluates a program; `made` collects the arrays that are filled element by element."""

    calls = CALLS

    def __init__(self, idle: bool) -> None:
        self.made: list[_Filled] = []
        self.idle = idle

    def constant(self, value: object) -> _Value:
        return value, as_integers(value)

    def equation(self, eqn: JaxprEqn, operands: list[_Value]) -> list[_Value]:
        values, numbers = [value for value, _ in operands], [number for _, number in operands]
        number = folded(eqn, numbers) if len(eqn.outvars) == 1 else None
        element = _stored_elements(eqn, values, numbers)
        self.made += [element] if isinstance(element, _Filled) else []
        results = bind(eqn, list(map(_materialized, values))) if element is None else [element]
        return [(value, number) for value in results]

    def opaque_results(self, eqn: JaxprEqn, operands: list[_Value]) -> list[_Value]:
        return self.equation(eqn, operands)


def _stored_elements(eqn: JaxprEqn, values: Sequence[object],
                     known: Sequence[np.ndarray | None]) -> jax.Array | _Filled | None:
    """The array after one element was set, or the element that is read; None for any other
    equation."""
    name, filled = eqn.primitive.name, values[0] if values else None
    if name == "scatter":
        position = _stored_at(eqn, known[1])
        if position is None:
            return None
        axis, i = position
        value = _materialized(values[2])
        if isinstance(filled, _Filled) and filled.axis == axis:
            filled.goes_on = True
            return _Filled(filled.base, axis, {**filled.stored, i: value})
        return _Filled(_materialized(filled), axis, {i: value})
    if not isinstance(filled, _Filled):
        return None
    if name == "slice" and not eqn.params["strides"]:
        return filled.sliced(eqn.params["start_indices"], eqn.params["limit_indices"])
    if name == "dynamic_slice" and all(start is not None and not np.isnan(start).any()
                                       for start in known[1:]):
        sizes = eqn.params["slice_sizes"]
        starts = [min(max(int(np.asarray(start)), 0), length - size) for start, length, size
                  in zip(known[1:], filled.base.shape, sizes, strict=True)]
        return filled.sliced(starts, [a + b for a, b in zip(starts, sizes, strict=True)])
    if name == "convert_element_type" and eqn.params["new_dtype"] == filled.base.dtype:
        return filled
    return None


def _stored_at(eqn: JaxprEqn, index: np.ndarray | None) -> tuple[int, int] | None:
    """The axis and the index of the single element that a scatter sets; None for other scatters."""
    dims, shape = eqn.params["dimension_numbers"], eqn.invars[0].aval.shape
    axes = tuple(dims.scatter_dims_to_operand_dims)
    if (index is None or index.shape != (1,) or np.isnan(index).any() or len(axes) != 1
            or tuple(dims.inserted_window_dims) != axes or dims.operand_batching_dims
            or eqn.params["update_jaxpr"] is not None and _combines(eqn)):
        return None
    i = int(index[0])
    return (axes[0], i) if 0 <= i < shape[axes[0]] else None


def _combines(eqn: JaxprEqn) -> bool:
    """Whether a scatter combines the new value with the old one."""
    body = eqn.params["update_jaxpr"]
    body = getattr(body, "jaxpr", body)
    return body.outvars[0] is not body.invars[1]
