"""Parameters packed into vectors, in the order of the plan's bundles, so that selecting,
extrapolating or copying them is one operation; and their unbounded coordinates, on the host."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.device.rows import Known
from probml.numerics.compiling import jit
from probml.plan.plan import Plan
from probml.typing import PyTree
from probml.updates.updates import transforms

MAX_COORDINATE = 1e2  # the coordinate of a value on the boundary of its support
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


def _domains(plan: Plan) -> list[Any]:
    return [plan.structure.sites[bundle.names[0]].domain for bundle in plan.bundles]


def to_unbounded(plan: Plan, points: np.ndarray, known: Known) -> np.ndarray:
    """Parameters, (count, p) → their unbounded coordinates, (count, q), finite for a value on the
    boundary of its support."""
    domains, count = _domains(plan), len(points)
    if not domains:
        return np.zeros((count, 0), points.dtype)
    if all(domain.host for domain in domains):
        with np.errstate(all="ignore"):  # on the boundary
            parts = [domain.host.inverse(np.maximum(value, MIN_PROBABILITY) if domain.sums_to_one
                                         else value)
                     for domain, value in zip(domains, _by_bundle(plan, points), strict=True)]
        free = np.concatenate([part.reshape(count, -1) for part in parts], 1)
    else:
        free = np.asarray(_to_unbounded(plan, points, known))
    return np.nan_to_num(free, nan=0.0, posinf=MAX_COORDINATE,
                         neginf=-MAX_COORDINATE).astype(points.dtype)


def from_unbounded(plan: Plan, free: np.ndarray, near: np.ndarray, known: Known) -> np.ndarray:
    """Unbounded coordinates, (count, q) → parameters, (count, p).

    Args:
        near: parameters, on which supports may depend.
    """
    domains, count = _domains(plan), len(free)
    if not domains:
        return near
    if not all(domain.host for domain in domains):
        return np.asarray(_from_unbounded(plan, free, near, known))
    shapes = [domain.unbounded_shape(bundle.joined)
              for domain, bundle in zip(domains, plan.bundles, strict=True)]
    parts = [domain.host.forward(part.reshape(count, *shape)) for domain, part, shape
             in zip(domains, split(free, list(map(math.prod, shapes))), shapes, strict=True)]
    return np.concatenate([part.reshape(count, -1) for part in parts], 1).astype(near.dtype)


def keep_zeros(plan: Plan, points: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Extrapolated points, (count, p), with probabilities of 0 where they are 0 after the M-step,
    as they remain in EM."""
    domains = _domains(plan)
    if not any(domain.sums_to_one for domain in domains):
        return points
    parts = []
    for domain, value, step in zip(domains, _by_bundle(plan, points), _by_bundle(plan, steps),
                                   strict=True):
        if domain.sums_to_one:
            value = np.where(step == 0, 0.0, value)
            value = value / value.sum(-1, keepdims=True)
        parts.append(value.reshape(len(points), -1))
    return np.concatenate(parts, 1).astype(points.dtype)


# Supports that depend on other parameters, or without a map on the host: by small programs.


def _transforms(plan: Plan, point: jax.Array, known: Known) -> list:
    names = [bundle.names[0] for bundle in plan.bundles]
    found = transforms(plan, unpack(plan, point), known, names)
    return [found[name] for name in names]


def _coordinates(plan: Plan, point: jax.Array, known: Known) -> list[jax.Array]:
    return [transform.inv(jnp.maximum(value, MIN_PROBABILITY) if domain.sums_to_one else value)
            for domain, transform, value in zip(_domains(plan), _transforms(plan, point, known),
                                                _by_bundle(plan, point), strict=True)]


@jit(static_argnums=0)
def _to_unbounded(plan: Plan, points: jax.Array, known: Known) -> jax.Array:
    return jax.vmap(lambda point: jnp.concatenate(
        [part.reshape(-1) for part in _coordinates(plan, point, known)]
    ))(points)


@jit(static_argnums=0)
def _from_unbounded(plan: Plan, free: jax.Array, near: jax.Array, known: Known) -> jax.Array:
    def transform_point(u: jax.Array, point: jax.Array):
        shapes = [part.shape for part in jax.eval_shape(
            functools.partial(_coordinates, plan, known=known), point
        )]
        parts = split(u, list(map(math.prod, shapes)))
        found = [transform(part.reshape(shape)) for transform, part, shape
                 in zip(_transforms(plan, point, known), parts, shapes, strict=True)]
        return jnp.concatenate([value.reshape(-1) for value in found])

    return jax.vmap(transform_point)(free, near)
