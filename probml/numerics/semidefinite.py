"""Cholesky factors of covariances that may be singular, and standardised residuals.

A state with a copied coordinate, as for seasons and lags, has a noise covariance with zeros. Where
a pivot is 0 up to rounding, its column of the factor is 0; this is exact, since the rest of that
column of a semi-definite matrix is 0 too. Gradients are those of the other pivots.
"""

import jax
import jax.numpy as jnp
import numpy as np

PIVOT_ROUNDINGS = 32  # a pivot below this · size · rounding, relative to its diagonal entry, is 0


def root(matrix: jax.Array) -> jax.Array:
    """Returns the lower triangular L with L Lᵀ = matrix, for semi-definite matrices (..., d, d).

    Cost: O(d³), unrolled: meant for d up to some dozens.
    """
    d, left, columns = matrix.shape[-1], matrix, []
    least = PIVOT_ROUNDINGS * d * float(jnp.finfo(matrix.dtype).eps)
    diagonal = jnp.diagonal(matrix, axis1=-2, axis2=-1)
    for j in range(d):
        pivot = left[..., j, j]
        positive = pivot > least * diagonal[..., j]
        scale = jnp.where(positive, pivot, 1.0) ** -0.5
        below = np.arange(d) >= j
        column = jnp.where(positive[..., None] & below, left[..., :, j] * scale[..., None], 0.0)
        left = left - column[..., :, None] * column[..., None, :]
        columns.append(column)
    return jnp.stack(columns, -1)


def standardised(lower: jax.Array, x: jax.Array) -> jax.Array:
    """Returns w with lower w = x, (..., d, k), for x in the range of a root; w is 0 at zero
    pivots."""
    out: list[jax.Array] = []
    for j in range(lower.shape[-1]):
        left = x[..., j, :]
        for i, w in enumerate(out):
            left = left - lower[..., j, i, None] * w
        pivot = lower[..., j, j, None]
        out.append(jnp.where(pivot > 0, left / jnp.where(pivot > 0, pivot, 1.0), 0.0))
    return jnp.stack(out, -2)


def log_det(lower: jax.Array) -> jax.Array:
    """Returns half the log pseudo-determinant, the sum of the logs of nonzero pivots, (...,)."""
    pivots = jnp.diagonal(lower, axis1=-2, axis2=-1)
    return jnp.where(pivots > 0, jnp.log(jnp.where(pivots > 0, pivots, 1.0)), 0.0).sum(-1)


def rank(lower: jax.Array) -> jax.Array:
    """Returns the number of nonzero pivots of a root, (...,)."""
    return (jnp.diagonal(lower, axis1=-2, axis2=-1) > 0).sum(-1)
