"""Covariances that may be singular: roots and standardised residuals.

A state of which some coordinate is copied, as in seasons and lags, has noise of no variance there.
Cholesky's recursion goes on where a pivot is 0 up to rounding: its column is 0, which is exact,
since the rest of a semi-definite matrix's column is 0 as well. Gradients are those of the other
pivots.
"""

import jax
import jax.numpy as jnp
import numpy as np

SLACK = 32  # units of rounding, times the size, of its diagonal entry, below which a pivot is 0


def root(matrix: jax.Array) -> jax.Array:
    """Lower triangular L with L Lᵀ = matrix, semi-definite, (..., d, d).

    Cost: O(d³), unrolled: meant for states of some dozen numbers.
    """
    d, left, columns = matrix.shape[-1], matrix, []
    least = SLACK * d * float(jnp.finfo(matrix.dtype).eps)
    diagonal = jnp.diagonal(matrix, axis1=-2, axis2=-1)
    for j in range(d):
        pivot = left[..., j, j]
        live = pivot > least * diagonal[..., j]
        scale = jnp.where(live, pivot, 1.0) ** -0.5
        below = np.arange(d) >= j
        column = jnp.where(live[..., None] & below, left[..., :, j] * scale[..., None], 0.0)
        left = left - column[..., :, None] * column[..., None, :]
        columns.append(column)
    return jnp.stack(columns, -1)


def standardised(lower: jax.Array, x: jax.Array) -> jax.Array:
    """w with lower w = x, (..., d, k), for x in the range of a root; 0 where its pivot is."""
    out: list[jax.Array] = []
    for j in range(lower.shape[-1]):
        left = x[..., j, :]
        for i, w in enumerate(out):
            left = left - lower[..., j, i, None] * w
        pivot = lower[..., j, j, None]
        out.append(jnp.where(pivot > 0, left / jnp.where(pivot > 0, pivot, 1.0), 0.0))
    return jnp.stack(out, -2)


def log_det(lower: jax.Array) -> jax.Array:
    """Σ log pivots of a root, (...,): half the log determinant, on its range."""
    pivots = jnp.diagonal(lower, axis1=-2, axis2=-1)
    return jnp.where(pivots > 0, jnp.log(jnp.where(pivots > 0, pivots, 1.0)), 0.0).sum(-1)


def rank(lower: jax.Array) -> jax.Array:
    """How many pivots of a root are not 0, (...,)."""
    return (jnp.diagonal(lower, axis1=-2, axis2=-1) > 0).sum(-1)
