"""Parameters as vectors, in the order of the plan's bundles: what is chosen, kept or leapt is one
operation, however many there are. And their unconstrained coordinates, on the host."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known
from probml.numerics.compiling import jit
from probml.plan.plan import Plan
from probml.updates.updates import transforms

FAR = 1e2  # the coordinate of a value on the edge of its support


def cut(vector: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """Pieces of the last axis."""
    ends = np.cumsum(sizes)
    return [vector[..., end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _split(vector: jax.Array, sizes: Sequence[int]) -> Sequence[jax.Array]:
    return jax.lax.split(vector, sizes, -1) if sizes else ()


def loose(plan: Plan, vector: Any, pieces: Callable = _split) -> dict[str, jax.Array]:
    """Vectors of parameters, (..., p) → these by name, (..., *shape).

    Args:
        pieces: (vectors, sizes) → their pieces.
    """
    shapes = {name: shape for bundle in plan.bundles
              for name, shape in zip(bundle.names, bundle.shapes, strict=True)}
    found = pieces(vector, [math.prod(shape) for shape in shapes.values()])
    return {name: piece.reshape((*vector.shape[:-1], *shape))
            for (name, shape), piece in zip(shapes.items(), found, strict=True)}


def joined(plan: Plan, params: Mapping[str, jax.Array]) -> jax.Array:
    """Parameters by name → one vector."""
    return jnp.concatenate([params[name].reshape(-1) for bundle in plan.bundles
                            for name in bundle.names])


def stacked(plan: Plan, params: Mapping[str, jax.Array], count: int) -> np.ndarray:
    """Parameters by name, (count, *shape) → their vectors."""
    held = [np.reshape(np.asarray(params[name]), (count, -1)) for bundle in plan.bundles
            for name in bundle.names]
    return np.concatenate([np.zeros((count, 0)), *held], 1).astype(jnp.result_type(float))


def _by_bundle(plan: Plan, vector: np.ndarray, pieces: Callable) -> list[np.ndarray]:
    """Vectors → the bundles' arrays."""
    shapes = [bundle.joined for bundle in plan.bundles]
    return [piece.reshape((*vector.shape[:-1], *shape))
            for piece, shape in zip(pieces(vector, list(map(math.prod, shapes))), shapes,
                                    strict=True)]


def _domains(plan: Plan) -> list:
    return [plan.structure.sites[bundle.names[0]].domain for bundle in plan.bundles]


def free_of(plan: Plan, points: np.ndarray, known: Known) -> np.ndarray:
    """Unconstrained coordinates of parameters, (count, p) → (count, q); a value on the edge of its
    support at a large finite one."""
    domains, count = _domains(plan), len(points)
    if not domains:
        return np.zeros((count, 0), points.dtype)
    if all(domain.host for domain in domains):
        # the least that the map can take of a table
        with np.errstate(all="ignore"):  # on an edge, which is meant
            parts = [domain.host.leave(np.maximum(value, 1e-30) if domain.sums_to_one else value)
                     for domain, value in zip(domains, _by_bundle(plan, points, cut), strict=True)]
        free = np.concatenate([part.reshape(count, -1) for part in parts], 1)
    else:
        free = np.asarray(_left(plan, points, known))
    return np.nan_to_num(free, nan=0.0, posinf=FAR, neginf=-FAR).astype(points.dtype)


def point_of(plan: Plan, free: np.ndarray, near: np.ndarray, known: Known) -> np.ndarray:
    """Parameters of unconstrained coordinates, (count, q) → (count, p).

    Args:
        near: parameters, on which supports may depend.
    """
    domains, count = _domains(plan), len(free)
    if not domains:
        return near
    if not all(domain.host for domain in domains):
        return np.asarray(_entered(plan, free, near, known))
    shapes = [domain.bijection.inverse_shape(bundle.joined)
              for domain, bundle in zip(domains, plan.bundles, strict=True)]
    parts = [domain.host.enter(part.reshape(count, *shape)) for domain, part, shape
             in zip(domains, cut(free, list(map(math.prod, shapes))), shapes, strict=True)]
    return np.concatenate([part.reshape(count, -1) for part in parts], 1).astype(near.dtype)


def supported(plan: Plan, points: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Extrapolated probability tables with the zeros of the steps they were made from: EM's own
    iterates keep them."""
    domains = _domains(plan)
    if not any(domain.sums_to_one for domain in domains):
        return points
    parts = []
    for domain, value, step in zip(domains, _by_bundle(plan, points, cut),
                                   _by_bundle(plan, steps, cut), strict=True):
        if domain.sums_to_one:
            value = np.where(step == 0, 0.0, value)
            value = value / value.sum(-1, keepdims=True)
        parts.append(value.reshape(len(points), -1))
    return np.concatenate(parts, 1).astype(points.dtype)


# Supports that depend on others, or whose map the host does not know: by small programs


def _maps(plan: Plan, point: jax.Array, known: Known) -> list:
    names = [bundle.names[0] for bundle in plan.bundles]
    found = transforms(plan, loose(plan, point), known, names)
    return [found[name] for name in names]


def _left_one(plan: Plan, point: jax.Array, known: Known) -> list[jax.Array]:
    return [transform.inv(jnp.maximum(value, 1e-30) if domain.sums_to_one else value)
            for domain, transform, value in zip(_domains(plan), _maps(plan, point, known),
                                                _by_bundle(plan, point, _split), strict=True)]


@functools.partial(jit, static_argnums=0)
def _left(plan: Plan, points: jax.Array, known: Known) -> jax.Array:
    return jax.vmap(lambda point: jnp.concatenate(
        [part.reshape(-1) for part in _left_one(plan, point, known)]
    ))(points)


@functools.partial(jit, static_argnums=0)
def _entered(plan: Plan, free: jax.Array, near: jax.Array, known: Known) -> jax.Array:
    def transform_point(u: jax.Array, point: jax.Array):
        shapes = [part.shape for part in jax.eval_shape(
            functools.partial(_left_one, plan, known=known), point
        )]
        parts = _split(u, list(map(math.prod, shapes)))
        found = [transform(part.reshape(shape)) for transform, part, shape
                 in zip(_maps(plan, point, known), parts, shapes, strict=True)]
        return jnp.concatenate([value.reshape(-1) for value in found])

    return jax.vmap(transform_point)(free, near)
