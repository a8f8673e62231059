"""Parameters packed into vectors, in the order of the plan's bundles, so that selecting,
extrapolating or copying them is one operation; and their unbounded coordinates, on the host."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.families.bijections import PLAIN
from probml.plan.plan import Plan
from probml.typing import PyTree

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
    parts = split(vector, [math.prod(shape) for shape in shapes.values()])
    return {name: part.reshape((*vector.shape[:-1], *shape))
            for (name, shape), part in zip(shapes.items(), parts, strict=True)}


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
    return [part.reshape((*vector.shape[:-1], *shape))
            for part, shape in zip(split(vector, list(map(math.prod, shapes))), shapes,
                                   strict=True)]


def _domains(plan: Plan) -> list[Any]:
    return [plan.structure.sites[bundle.names[0]].domain for bundle in plan.bundles]


def to_unbounded(plan: Plan, points: np.ndarray) -> np.ndarray:
    """Parameters, (count, p) → their unbounded coordinates, (count, q), finite for a value on the
    boundary of its support; of supports without a map on the host the parameters themselves."""
    parts = [points[:, :0]]
    with np.errstate(all="ignore"):  # on the boundary
        for domain, value in zip(_domains(plan), _by_bundle(plan, points), strict=True):
            value = np.maximum(value, MIN_PROBABILITY) if domain.sums_to_one else value
            parts.append((domain.host or PLAIN).inverse(value).reshape(len(points), -1))
    return np.nan_to_num(np.concatenate(parts, 1), nan=0.0, posinf=MAX_COORDINATE,
                         neginf=-MAX_COORDINATE).astype(points.dtype)


def from_unbounded(plan: Plan, coords: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Unbounded coordinates, (count, q) → parameters, (count, p).

    Args:
        after: parameters after an M-step, (count, p), whose probabilities of 0 stay 0 as in EM, and
            which stand for extrapolated ones that are not known to be inside their support.
    """
    count, domains, parts = len(coords), _domains(plan), [after[:, :0]]
    shapes = [domain.unbounded_shape(bundle.joined) if domain.host else bundle.joined
              for domain, bundle in zip(domains, plan.bundles, strict=True)]
    pieces = split(coords, list(map(math.prod, shapes)))
    for domain, part, shape, step in zip(domains, pieces, shapes, _by_bundle(plan, after),
                                         strict=True):
        value = (domain.host or PLAIN).forward(part.reshape(count, *shape))
        if domain.sums_to_one:
            value = np.where(step == 0, 0.0, value)
            value = value / value.sum(-1, keepdims=True)
        if not domain.host:
            inside = domain.checkable and domain.contains(value).reshape(count, -1).all(1)
            value = np.where(np.reshape(inside, (-1, *(1,) * len(shape))), value, step)
        parts.append(value.reshape(count, -1))
    return np.concatenate(parts, 1).astype(after.dtype)
