"""Inverses and determinants of symmetric positive definite matrices, with derivatives that are
products of matrices.

By Cholesky's factor P = L Lᵀ: P⁻¹ = L⁻ᵀ L⁻¹ and ½ log|P| = Σ log L_ii; and, in place of derivatives
through the factor, which are triangular systems,

    d P⁻¹ = −P⁻¹ dP P⁻¹,    d log|P| = tr(P⁻¹ dP).

A program then has half as many calls of LAPACK as by LU, or by factors that are differentiated; NaN
where a matrix is not positive definite.

Source: Petersen & Pedersen (2012), "The Matrix Cookbook", equations 43 and 59.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular

from probml.numerics.lapack import diagonal, inverse_product
from probml.numerics.logs import LOG_TWO_PI


def _inverse_of(lower: jax.Array) -> jax.Array:
    return inverse_product(lower)[1]


def _half_log_det_of(lower: jax.Array) -> jax.Array:
    return jnp.log(diagonal(lower)).sum(-1)


def _factor(matrix: jax.Array) -> jax.Array:
    return lax.linalg.cholesky(matrix, symmetrize_input=False)


@jax.custom_jvp
def inverse(matrix: jax.Array) -> jax.Array:
    """P⁻¹, (..., d, d)."""
    return _inverse_of(_factor(matrix))


@inverse.defjvp
def _inverse_moved(at: tuple, moves: tuple):
    found = inverse(*at)
    return found, -found @ moves[0] @ found


@jax.custom_jvp
def half_log_det(matrix: jax.Array) -> jax.Array:
    """½ log|P|, (...)."""
    return _half_log_det_of(_factor(matrix))


@half_log_det.defjvp
def _half_log_det_moved(at: tuple, moves: tuple):
    lower = _factor(*at)
    return _half_log_det_of(lower), 0.5 * jnp.sum(_inverse_of(lower) * moves[0], (-2, -1))


@jax.custom_jvp
def normal_log_density(away: jax.Array, covariance: jax.Array) -> jax.Array:
    """log N(away; 0, C) of rows about their mean, (k, d), with one covariance, (d, d): (k,).

        d log p = −αᵀ d away + ½ αᵀ dC α − ½ tr(C⁻¹ dC),    α = C⁻¹ away
    """
    lower = _factor(covariance)
    white = solve_triangular(lower, away.T, lower=True)
    d = away.shape[-1]
    return -0.5 * (white**2).sum(0) - _half_log_det_of(lower) - 0.5 * d * LOG_TWO_PI


@normal_log_density.defjvp
def _normal_log_density_moved(at: tuple, moves: tuple):
    (away, covariance), (away_move, covariance_move) = at, moves
    unit = inverse(covariance)
    alpha = away @ unit
    change = (0.5 * ((alpha @ covariance_move) * alpha).sum(-1)
              - 0.5 * (unit * covariance_move).sum() - (alpha * away_move).sum(-1))
    return normal_log_density(*at), change
