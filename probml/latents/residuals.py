"""Standardised residuals of normal sites of a row: cells less their location, divided by the roots
of their covariances."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular

from probml.numerics import lapack
from probml.numerics.logs import LOG_TWO_PI
from probml.structure.site import Site

MAX_SINGULAR_COLUMNS = 16  # columns of a covariance up to which it may be singular
MAX_ROUNDING = 1e-3  # relative difference that is no rounding, in float32


def layout(site: Site) -> tuple[int, ...]:
    """A row's cells as the family has them: (lattice cells, own event axes)."""
    return (int(np.prod(site.lattice, dtype=int)), *site.event)


def standardised(
    site: Site, arguments: Mapping, x: jax.Array | None, seen: jax.Array | None,
    noise: jax.Array | None = None, prior: bool = False
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Standardised residuals of the observed cells of a site, zero elsewhere; its log density but
    for their squares; and its value, with missing cells made of `noise`.

    Args:
        prior: of latents, whose covariance may be singular: they lie in its range.
    """
    loc, root = arguments["loc"], root_of(site, arguments)
    if site.event:
        return _vectors(loc, root, x, seen, noise, prior)
    value = None if noise is None else loc + root * noise
    if x is None:
        return jnp.zeros(0, loc.dtype), jnp.zeros(()), value
    residual, log = (x - loc) / root, -jnp.log(root) - 0.5 * LOG_TWO_PI
    if seen is not None:
        residual, log = jnp.where(seen, (x - loc) / root, 0.0), jnp.where(seen, log, 0.0)
        value = None if noise is None else jnp.where(seen, x, value)
    return residual, log.sum(), value


def _vectors(loc: jax.Array, root: jax.Array, x: jax.Array | None, seen: jax.Array | None,
             noise: jax.Array | None, prior: bool) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """As `standardised`, of vectors (cells, d) with a mask of observed coordinates; missing ones
    have an identity in the matrices."""
    value = None if noise is None else loc + (root @ noise[..., None])[..., 0]
    if x is None:
        return jnp.zeros(0, loc.dtype), jnp.zeros(()), value
    count, gap = float(np.prod(loc.shape)), x - loc
    if seen is not None:
        count, gap, eye = seen.sum(), jnp.where(seen, gap, 0.0), jnp.eye(loc.shape[-1])
        covariance = root @ jnp.swapaxes(root, -1, -2)
        root = jnp.linalg.cholesky(jnp.where(seen[..., :, None] & seen[..., None, :], covariance,
                                             eye))
    still, root = still_of(root, prior)
    residual = jnp.where(still, 0.0, solve_triangular(root, gap[..., None], lower=True)[..., 0])
    log = -jnp.log(jnp.abs(jnp.diagonal(root, axis1=-2, axis2=-1))).sum() - 0.5 * LOG_TWO_PI * count
    if noise is not None and seen is not None:
        cross = jnp.where(~seen[..., :, None] & seen[..., None, :], covariance, 0.0)
        half = solve_triangular(root, jnp.swapaxes(cross, -1, -2), lower=True)
        left = covariance - jnp.swapaxes(half, -1, -2) @ half
        hole = jnp.linalg.cholesky(jnp.where(~seen[..., :, None] & ~seen[..., None, :], left, eye))
        moved = loc + (jnp.swapaxes(half, -1, -2) @ residual[..., None])[..., 0]
        moved += (hole @ jnp.where(seen, 0.0, noise)[..., None])[..., 0]
        value = jnp.where(seen, x, moved)
    return residual, log, value


def still_of(root: jax.Array, prior: bool) -> tuple[jax.Array, jax.Array]:
    """Which coordinates of a prior have no noise of their own, and the root with a pivot of 1
    there."""
    pivots = jnp.diagonal(root, axis1=-2, axis2=-1)
    still = (pivots == 0) & prior
    return still, root + still[..., None] * jnp.eye(root.shape[-1], dtype=root.dtype)


def root_of(site: Site, arguments: Mapping) -> jax.Array:
    """A scale of each cell, or the Cholesky factor of each vector's covariance."""
    if not site.event:
        return arguments["scale"]
    if "scale_tril" in arguments:
        return jnp.tril(arguments["scale_tril"])
    if "precision_matrix" in arguments:
        lower = jnp.linalg.cholesky(arguments["precision_matrix"])
        eye = jnp.broadcast_to(jnp.eye(lower.shape[-1], dtype=lower.dtype), lower.shape)
        return jnp.linalg.cholesky(cho_solve((lower, True), eye))
    if "cov_factor" in arguments:
        factor = arguments["cov_factor"]
        return jnp.linalg.cholesky(factor @ jnp.swapaxes(factor, -1, -2) + jnp.eye(
            factor.shape[-2], dtype=factor.dtype) * arguments["cov_diag"][..., None])
    covariance = arguments["covariance_matrix"]
    if covariance.shape[-1] > MAX_SINGULAR_COLUMNS:
        return jnp.linalg.cholesky(covariance)
    lower = lapack.root(covariance)
    gap = jnp.abs(lower @ jnp.swapaxes(lower, -1, -2) - covariance).max((-2, -1), keepdims=True)
    size = jnp.abs(covariance).max((-2, -1), keepdims=True)
    return jnp.where(gap <= MAX_ROUNDING * size, lower, jnp.nan)  # as Cholesky's, of what is none
