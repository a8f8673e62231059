"""Cholesky factors and triangular solves of many small matrices. Up to MAX_UNROLLED rows they are
unrolled and vectorised over the matrices; LAPACK processes one matrix after another."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular

MAX_UNROLLED = 3  # rows


def diagonal(matrix: jax.Array) -> jax.Array:
    """Returns the diagonals (..., d) of matrices (..., d, d), by a slice instead of the gather of
    jnp.diagonal."""
    d, lead = matrix.shape[-1], matrix.shape[:-2]
    flat = lax.reshape(matrix, (*lead, d * d))
    return lax.slice_in_dim(flat, 0, d * d, d + 1, axis=len(lead))


def cholesky(matrix: jax.Array, many: bool = False) -> jax.Array:
    """Returns the lower Cholesky factors of matrices (..., d, d).

    Args:
        many: whether a single matrix is inside a function that is vmapped over many.
    """
    d = matrix.shape[-1]
    if d > MAX_UNROLLED or matrix.ndim < 3 and not many:
        return jnp.linalg.cholesky(matrix)
    rows: list[list[jax.Array]] = []
    for i in range(d):
        row: list[jax.Array] = []
        for j in range(i + 1):
            left = matrix[..., i, j]
            for k in range(j):
                left = left - row[k] * (row[k] if i == j else rows[j][k])
            row.append(jnp.sqrt(left) if i == j else left / rows[j][j])
        rows.append(row)
    zero = jnp.zeros_like(matrix[..., 0, 0])
    return jnp.stack([jnp.stack([*row, *[zero] * (d - len(row))], -1) for row in rows], -2)


def solve(lower: jax.Array, right: jax.Array, transposed: bool = False,
          many: bool = False) -> jax.Array:
    """Returns lower⁻¹ right, or lower⁻ᵀ right, (..., d, n).

    Args:
        lower: (..., d, d). right: (..., d, n). many: as in `cholesky`.
    """
    d = lower.shape[-1]
    if d > MAX_UNROLLED or lower.ndim < 3 and not many:
        return solve_triangular(lower, right, lower=True, trans=int(transposed))
    found: dict[int, jax.Array] = {}
    for i in reversed(range(d)) if transposed else range(d):
        left = right[..., i, :]
        for k, known in found.items():
            left = left - lower[..., max(i, k), min(i, k), None] * known
        found[i] = left / lower[..., i, i, None]
    return jnp.stack([found[i] for i in range(d)], -2)
