"""Inverses and determinants of symmetric positive definite matrices, with derivatives that are
products of matrices.

By Cholesky's factor P = L Lᵀ: P⁻¹ = L⁻ᵀ L⁻¹ and ½ log|P| = Σ log L_ii; and, in place of derivatives
through the factor, which are triangular systems,

    d P⁻¹ = −P⁻¹ dP P⁻¹,    d log|P| = tr(P⁻¹ dP),    d (P⁻¹ b) = P⁻¹ (db − dP P⁻¹ b).

A program then has half as many calls of LAPACK as by LU, or by factors that are differentiated; NaN
where a matrix is not positive definite.

Source: Petersen & Pedersen (2012), "The Matrix Cookbook", equations 43 and 59.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_solve, solve_triangular

from probml.numerics.lapack import diagonal, inverse_product


def _inverse_of(lower: jax.Array) -> jax.Array:
    return inverse_product(lower)[1]


def _half_log_det_of(lower: jax.Array) -> jax.Array:
    return jnp.log(diagonal(lower)).sum(-1)


def factor(matrix: jax.Array) -> jax.Array:
    """L, (..., d, d); the lower triangle of the matrix is read."""
    return lax.linalg.cholesky(matrix, symmetrize_input=False)


@jax.custom_jvp
def inverse(matrix: jax.Array) -> jax.Array:
    """P⁻¹, (..., d, d)."""
    return _inverse_of(factor(matrix))


@inverse.defjvp
def _inverse_moved(primals: tuple, tangents: tuple):
    found = inverse(*primals)
    return found, -found @ tangents[0] @ found


@jax.custom_jvp
def half_log_det(matrix: jax.Array) -> jax.Array:
    """½ log|P|, (...)."""
    return _half_log_det_of(factor(matrix))


@half_log_det.defjvp
def _half_log_det_moved(primals: tuple, tangents: tuple):
    lower = factor(*primals)
    return _half_log_det_of(lower), 0.5 * jnp.sum(_inverse_of(lower) * tangents[0], (-2, -1))


@jax.custom_jvp
def solve(matrix: jax.Array, right: jax.Array) -> jax.Array:
    """P⁻¹ b, (d,), of one matrix."""
    return cho_solve((factor(matrix), True), right)


@solve.defjvp
def _solve_moved(primals: tuple, tangents: tuple):
    found = solve(*primals)
    return found, solve(primals[0], tangents[1] - tangents[0] @ found)


@jax.custom_jvp
def half_square(matrix: jax.Array, right: jax.Array) -> jax.Array:
    """½ bᵀ P⁻¹ b, of one matrix."""
    return 0.5 * jnp.sum(solve_triangular(factor(matrix), right, lower=True) ** 2)


@half_square.defjvp
def _half_square_moved(primals: tuple, tangents: tuple):
    found = solve(*primals)
    return half_square(*primals), found @ tangents[1] - 0.5 * jnp.vdot(found, tangents[0] @ found)
