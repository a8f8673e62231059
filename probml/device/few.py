"""All rows as a few, for what asks nothing of them but their weight, means and second moments.

With W = Σ w, x̄ = Σ w x / W and Σ w (x − x̄)(x − x̄)ᵀ = W Σ_j λ_j v_j v_jᵀ, of m numbers a row,

    x̄ ± √(m λ_j) v_j,    each at weight W / 2m,

are 2m rows of the same moments.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Chunk, Resident, Rows
from probml.numerics.compiling import jit
from probml.numerics.tiers import ONCE
from probml.numerics.transfer import placed


def few(rows: Rows, names: tuple[str, ...]) -> Resident:
    """2m rows in one chunk, of the same moments.

    Args:
        names: the sites that stay, seen in every cell.

    Cost: two passes over all rows, of m² a row; an eigendecomposition of m × m.
    """
    weight, mean, second = (np.asarray(found, float)
                            for found in jax.device_get(_moments(names, rows)))
    values, vectors = np.linalg.eigh(second / weight)
    away = (np.sqrt(np.maximum(values, 0.0) * len(mean)) * vectors).T
    flat, out, start = np.concatenate([mean + away, mean - away]), {}, 0
    first = jax.eval_shape(lambda rows: rows.first, rows)
    for name in names:
        held = first.values[name]
        size = int(np.prod(held.shape[1:], dtype=int))
        part = flat[:, start : start + size].reshape(1, -1, *held.shape[1:])
        out[name], start = placed(part, held.dtype), start + size
    weights = placed(np.full((1, len(flat)), weight / len(flat)), first.weights.dtype)
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
