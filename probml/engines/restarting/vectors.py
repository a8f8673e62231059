"""Parameters packed into vectors, in the order of the plan's bundles, so that selecting,
extrapolating or copying them is one operation; and an extrapolation in their unbounded
coordinates."""

import math
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.numerics.compiling import ONCE, jit
from probml.plan.plan import Plan
from probml.typing import PyTree
from probml.updates.updates import bijection

MAX_COORDINATE = 1e2  # the coordinate of a value on the boundary of its support
MAX_EXTRAPOLATION = 256.0  # steps
MIN_PROBABILITY = 1e-30  # the smallest that the map to unbounded coordinates can take


def split(vector: PyTree, sizes: Sequence[int]) -> Sequence[ArrayLike]:
    """Pieces of the last axis of an array, of these sizes; by NumPy if it is on the host."""
    if not sizes:
        return ()
    if isinstance(vector, np.ndarray):
        return np.split(vector, np.cumsum(sizes)[:-1], -1)
    return jax.lax.split(vector, sizes, -1)


def unpack(plan: Plan, vector: PyTree) -> dict[str, ArrayLike]:
    """Vectors of parameters, (..., p) → parameters by name, (..., *shape)."""
    shapes = {name: shape for bundle in plan.bundles
              for name, shape in zip(bundle.names, bundle.shapes, strict=True)}
    pieces = split(vector, [math.prod(shape) for shape in shapes.values()])
    return {name: piece.reshape((*vector.shape[:-1], *shape))
            for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}


def pack(plan: Plan, params: Mapping[str, jax.Array]) -> jax.Array:
    """Parameters by name → one vector, (p,)."""
    return jnp.concatenate([params[name].reshape(-1) for bundle in plan.bundles
                            for name in bundle.names])


def pack_all(plan: Plan, params: Mapping[str, jax.Array], count: int) -> np.ndarray:
    """Parameters by name, (count, *shape) → their vectors, (count, p); on the host."""
    flat = [np.reshape(np.asarray(params[name]), (count, -1)) for bundle in plan.bundles
            for name in bundle.names]
    return np.concatenate([np.zeros((count, 0)), *flat], 1).astype(jnp.result_type(float))


def _by_bundle(plan: Plan, vector: PyTree) -> list[ArrayLike]:
    """Vectors → the arrays of the bundles."""
    shapes = [bundle.joined for bundle in plan.bundles]
    return [piece.reshape((*vector.shape[:-1], *shape))
            for piece, shape in zip(split(vector, list(map(math.prod, shapes))), shapes,
                                    strict=True)]


@jit(static_argnums=0, seldom=ONCE, on_host=True)
def extrapolated(plan: Plan, base: np.ndarray, here: np.ndarray, after: np.ndarray,
                 given: Mapping[str, ArrayLike]) -> np.ndarray:
    """SQUAREM's extrapolation from base, here = M(base) and after = M(here), (count, p) each, in
    unbounded coordinates, by its third step length, at most MAX_EXTRAPOLATION.

    Args:
        given: what supports depend on besides the parameters.
    """
    domains = [plan.structure.sites[bundle.names[0]].domain for bundle in plan.bundles]

    def maps(point: jax.Array) -> list:
        env = {**unpack(plan, point), **given}
        return [bijection(plan, bundle.names[0], env) for bundle in plan.bundles]

    def coordinates(point: jax.Array) -> list[jax.Array]:
        found = [to.inv(jnp.maximum(value, MIN_PROBABILITY) if domain.sums_to_one else value)
                 for to, domain, value in zip(maps(point), domains, _by_bundle(plan, point),
                                              strict=True)]
        # finite for a value on the boundary of its support
        return [jnp.nan_to_num(part, nan=0.0, posinf=MAX_COORDINATE, neginf=-MAX_COORDINATE)
                for part in found]

    def squared(parts: list[jax.Array]) -> jax.Array:
        return sum((jnp.sum(part**2) for part in parts), jnp.zeros((), here.dtype))

    def of_restart(base: jax.Array, here: jax.Array, after: jax.Array) -> jax.Array:
        first, second, third = map(coordinates, (base, here, after))
        steps = [b - a for a, b in zip(first, second, strict=True)]
        bends = [c - b - step for b, c, step in zip(second, third, steps, strict=True)]
        rounding = jnp.finfo(here.dtype).eps * jnp.sqrt(squared(third))
        far = jnp.sqrt(squared(steps)) / jnp.maximum(jnp.sqrt(squared(bends)), rounding + 1e-30)
        far = jnp.clip(far, 1.0, MAX_EXTRAPOLATION)
        out = []
        for to, domain, u, step, bend, last in zip(maps(here), domains, first, steps, bends,
                                                   _by_bundle(plan, after), strict=True):
            value = to(u + 2 * far * step + far**2 * bend)
            if domain.sums_to_one:  # probabilities of 0 after an M-step remain 0
                value = jnp.where(last == 0, 0.0, value)
                value = value / value.sum(-1, keepdims=True)
            out.append(value.reshape(-1))
        return jnp.concatenate([here[:0], *out])

    return jax.vmap(of_restart)(base, here, after)
