"""All rows as a few, for what asks nothing of them but their weight, means and second moments.

With W = Σ w, x̄ = Σ w x / W and Σ w (x − x̄)(x − x̄)ᵀ = W Σ_j λ_j v_j v_jᵀ, of m numbers a row,

    x̄ ± √(m λ_j) v_j,    each at weight W / 2m,

are 2m rows of the same moments. The moments of parts of the rows add up (Chan, Golub & LeVeque
1983): a monoid, so that fits can be merged.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Chunk, Resident, Rows
from probml.numerics.compiling import jit
from probml.numerics.tiers import ONCE
from probml.numerics.transfer import placed


class Moments(NamedTuple):
    """What rows tell by their second moments alone; on the host, in double."""

    weights: np.ndarray  # () W
    mean: np.ndarray  # (m,)
    second: np.ndarray  # (m, m), Σ w (x − x̄)(x − x̄)ᵀ


def moments(rows: Rows, names: tuple[str, ...]) -> Moments:
    """Those of all rows.

    Args:
        names: the sites that count, seen in every cell.

    Cost: two passes over all rows, of m² a row.
    """
    return Moments(*(np.asarray(found, float) for found in jax.device_get(_moments(names, rows))))


def counted(columns: Sequence[np.ndarray], weights: np.ndarray | None) -> Moments:
    """Those of rows on the host.

    Args:
        columns: (n, *cells) of each site. weights: (n,); None: 1 each.
    """
    flat = np.concatenate([np.asarray(column, float).reshape(len(column), -1)
                           for column in columns], 1)
    w = np.ones(len(flat)) if weights is None else np.asarray(weights, float)
    flat, w = flat[w > 0], w[w > 0]
    mean = w @ flat / np.maximum(w.sum(), np.finfo(float).tiny)
    left = flat - mean
    return Moments(w.sum(), mean, (w[:, None] * left).T @ left)


def added(one: Moments, other: Moments) -> Moments:
    """Those of two parts together."""
    total = np.maximum(one.weights + other.weights, np.finfo(float).tiny)
    away = other.mean - one.mean
    return Moments(one.weights + other.weights, one.mean + other.weights / total * away,
                   one.second + other.second
                   + one.weights * other.weights / total * away[:, None] * away)


def few(told: Moments, cells: Mapping[str, tuple[int, ...]]) -> Resident:
    """2m rows in one chunk, of these moments.

    Args:
        cells: site → the shape of its cells, in the order of the moments.

    Cost: an eigendecomposition of m × m.
    """
    values, vectors = np.linalg.eigh(told.second / told.weights)
    away = (np.sqrt(np.maximum(values, 0.0) * len(told.mean)) * vectors).T
    flat, out, start = np.concatenate([told.mean + away, told.mean - away]), {}, 0
    dtype = jnp.result_type(float)
    for name, shape in cells.items():
        size = int(np.prod(shape, dtype=int))
        out[name] = placed(flat[:, start : start + size].reshape(1, -1, *shape), dtype)
        start += size
    weights = placed(np.full((1, len(flat)), told.weights / len(flat)), dtype)
    return Resident(Chunk(out, {}, {}, {}, {}, {}, weights))


@functools.partial(jit, static_argnums=0, seldom=ONCE)
def _moments(names: Sequence[str], rows: Rows) -> Any:
    """W, x̄ and Σ w (x − x̄)(x − x̄)ᵀ: the squares in a second pass, about means that the first one
    found."""

    def away(chunk: Chunk, mean: jax.Array | float) -> jax.Array:
        flat = jnp.concatenate([chunk.values[name].reshape(len(chunk.weights), -1)
                                for name in names], 1)
        return jnp.where(chunk.weights[:, None] > 0, flat - mean, 0.0)

    def first(chunk: Chunk) -> tuple:
        return chunk.weights.sum(), chunk.weights @ away(chunk, 0.0)

    weight, total = rows.total(first)
    mean = total / weight

    def squares(chunk: Chunk) -> tuple:
        left = away(chunk, mean)
        return chunk.weights @ left, (chunk.weights[:, None] * left).T @ left

    off, second = rows.total(squares)
    off /= weight  # what the first pass had lost
    return weight, mean + off, second - weight * off[:, None] * off
