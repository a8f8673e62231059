"""Expected sufficient statistics of Gaussian groups that are the same in every row: regressions on
latents.

Where the programs of a group take nothing of a row but its latents, E[log p] summed over rows is a
function of second moments alone. For a site with cells x and the latents z of its group, with
u = (1, z − z̄, x − x̄),

    Σ E[(x − loc(z))(x − loc(z))ᵀ] = D S Dᵀ,   S = Σ weight E[u uᵀ],   D = (x̄ − loc(z̄), −A, I),

A the slope of the location. z̄ and x̄ are the prior means at the E-step's parameters, so that
little cancels. An M-step then reads no row.

Cost: one product of the rows with (1 + p)² columns a site, p the numbers of the group.

Standardised residuals of normal sites of a row: cells less their location, divided by the roots
of their covariances.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular

from probml.numerics import lapack
from probml.numerics.logs import LOG_TWO_PI
from probml.structure.site import Site
from probml.structure.structure import Structure


class Second(NamedTuple):
    """Second moments of a site, of each of its lattice cells (or one for all, size 1)."""

    latent: jax.Array  # (cells or 1, 1 + p, 1 + p): of (1, z − z̄)
    across: jax.Array  # (cells, 1 + p, d): with x − x̄
    own: jax.Array  # (cells, d, d): of x − x̄


def locations(structure: Structure, name: str, env: Mapping, point: jax.Array,
              place: jax.Array) -> tuple[jax.Array, jax.Array, Mapping]:
    """Location of a site at latents `point`, its slope, and its arguments there: (cells, d),
    (cells, d, p).

    Args:
        place: latents as one vector → env with each in its place.
    """

    def loc(flat: jax.Array):
        arguments = structure.cells(name, {**env, **place(flat)})
        return columns(structure.sites[name], arguments["loc"]), arguments

    value, push, arguments = jax.linearize(loc, point, has_aux=True)
    slope = jax.vmap(push)(jnp.eye(len(point), dtype=point.dtype))
    return value, jnp.moveaxis(slope, 0, -1), arguments


def columns(site: Site, array: jax.Array) -> jax.Array:
    """Cells of scalars as vectors of one coordinate: (..., cells, d)."""
    return array if site.event else array[..., None]


def added(weight: jax.Array, leaf: jax.Array) -> jax.Array:
    """Σ weight × leaf over rows, or over steps of rows, (b, ...); where rows share a leaf, (steps,
    ...), the weights of a step are added first."""
    weight = weight.reshape(len(leaf), -1, *weight.shape[1:]).sum(1)
    return jnp.tensordot(weight.T, leaf, 1)


def seconds(weight: jax.Array, mean: jax.Array, cov: jax.Array | None, x: jax.Array | None,
            mask: jax.Array | None, part: slice, cells: int) -> Second:
    """The second moments of a site over rows.

    Args:
        weight: (b,). mean, cov: of the latents less z̄, (b, p), and their covariance (b, p, p),
            or None: they are known.
        x: less x̄, (b, cells, d); None: the site is a latent, and x the coordinates `part` of z.
        mask: (b, cells, d) of a site that is none; a vector counts where it is seen whole.
    """
    ones = jnp.ones((len(mean), 1), mean.dtype)
    u = jnp.concatenate([ones, mean], 1)
    width = u.shape[1]

    def squares(share: jax.Array):  # Σ share × E[(1, z)(1, z)ᵀ], (cells or 1, 1 + p, 1 + p)
        if share.shape[1] == 1:
            total = ((share * u).T @ u)[None]
        else:
            total = added(share, u[:, :, None] * u[:, None, :])
        return total if cov is None else total.at[:, 1:, 1:].add(added(share, cov))

    if x is None:
        total = squares(weight[:, None])[0]
        indices = np.arange(1, width)[part].reshape(cells, -1)
        return Second(total[None], jnp.moveaxis(total[:, indices], 0, 1),
                      total[indices[:, :, None], indices[:, None, :]])
    if mask is None:
        share = weight[:, None]
        x = x * jnp.where(weight != 0, 1.0, 0.0)[:, None, None]
    else:
        is_whole = mask.all(-1)
        share = weight[:, None] * is_whole
        x = jnp.where(is_whole[..., None], x, 0.0)
    weighted_x = share[..., None] * x
    return Second(squares(share), jnp.einsum("bi,bcd->cid", u, weighted_x),
                  jnp.einsum("bcd,bce->cde", weighted_x, x))


def scatter(second: Second, gap: jax.Array, slope: jax.Array) -> jax.Array:
    """Σ E[(x − loc)(x − loc)ᵀ], (cells, d, d).

    Args:
        gap: loc(z̄) − x̄, (cells, d). slope: (cells, d, p).
    """
    return second.own + shifted(second, gap, slope)


def shifted(second: Second, gap: jax.Array, slope: jax.Array) -> jax.Array:
    """`scatter` less Σ E[(x − x̄)(x − x̄)ᵀ]."""
    line = jnp.concatenate([gap[..., None], slope], -1)
    cross = line @ second.across
    return line @ second.latent @ jnp.swapaxes(line, -1, -2) - cross - jnp.swapaxes(cross, -1, -2)


def residuals(weight: jax.Array, mean: jax.Array, cov: jax.Array, error: jax.Array,
              mask: jax.Array | None, slope: jax.Array) -> Second:
    """The second moments of a site over rows, of x − loc(z) instead of x − x̄, so that nothing
    cancels.

    Args:
        weight, mean, mask: as of `seconds`. cov: (b, p, p), or of steps that rows share,
            (steps, p, p). error: x − loc(z̄ + mean), (b, cells, d). slope: of the location, (cells,
            d, p).
    """
    moments = seconds(weight, mean, None, error, mask, slice(0), error.shape[1])
    share = weight[:, None] if mask is None else weight[:, None] * mask.all(-1)
    cov_sum = added(share, cov)
    cross = cov_sum @ jnp.swapaxes(slope, -1, -2)
    return Second(moments.latent.at[:, 1:, 1:].add(cov_sum), moments.across.at[:, 1:].add(-cross),
                  moments.own + slope @ cross)


MAX_SINGULAR_COLUMNS = 16  # columns of a covariance up to which it may be singular
MAX_ROUNDING = 1e-3  # relative difference that is no rounding, in float32


def layout(site: Site) -> tuple[int, ...]:
    """A row's cells as the family has them: (lattice cells, own event axes)."""
    return (int(np.prod(site.lattice, dtype=int)), *site.event)


def standardised(
    site: Site, arguments: Mapping, x: jax.Array | None, mask: jax.Array | None,
    noise: jax.Array | None = None, prior: bool = False
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Standardised residuals of the observed cells of a site, zero elsewhere; its log density but
    for their squares; and its value, with missing cells made of `noise`.

    Args:
        prior: of latents, whose covariance may be singular: they lie in its range.
    """
    loc, root = arguments["loc"], root_of(site, arguments)
    if site.event:
        return _vectors(loc, root, x, mask, noise, prior)
    value = None if noise is None else loc + root * noise
    if x is None:
        return jnp.zeros(0, loc.dtype), jnp.zeros(()), value
    residual, log = (x - loc) / root, -jnp.log(root) - 0.5 * LOG_TWO_PI
    if mask is not None:
        residual, log = jnp.where(mask, (x - loc) / root, 0.0), jnp.where(mask, log, 0.0)
        value = None if noise is None else jnp.where(mask, x, value)
    return residual, log.sum(), value


def _vectors(loc: jax.Array, root: jax.Array, x: jax.Array | None, mask: jax.Array | None,
             noise: jax.Array | None, prior: bool) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """As `standardised`, of vectors (cells, d) with a mask of observed coordinates; missing ones
    have an identity in the matrices."""
    value = None if noise is None else loc + (root @ noise[..., None])[..., 0]
    if x is None:
        return jnp.zeros(0, loc.dtype), jnp.zeros(()), value
    count, gap = float(np.prod(loc.shape)), x - loc
    if mask is not None:
        count, gap, eye = mask.sum(), jnp.where(mask, gap, 0.0), jnp.eye(loc.shape[-1])
        covariance = root @ jnp.swapaxes(root, -1, -2)
        root = jnp.linalg.cholesky(jnp.where(mask[..., :, None] & mask[..., None, :], covariance,
                                             eye))
    is_fixed, root = fixed_pivots(root, prior)
    residual = jnp.where(is_fixed, 0.0, solve_triangular(root, gap[..., None], lower=True)[..., 0])
    log = -jnp.log(jnp.abs(jnp.diagonal(root, axis1=-2, axis2=-1))).sum() - 0.5 * LOG_TWO_PI * count
    if noise is not None and mask is not None:
        cross = jnp.where(~mask[..., :, None] & mask[..., None, :], covariance, 0.0)
        half = solve_triangular(root, jnp.swapaxes(cross, -1, -2), lower=True)
        cond = covariance - jnp.swapaxes(half, -1, -2) @ half
        chol = jnp.linalg.cholesky(jnp.where(~mask[..., :, None] & ~mask[..., None, :], cond, eye))
        drawn = loc + (jnp.swapaxes(half, -1, -2) @ residual[..., None])[..., 0]
        drawn += (chol @ jnp.where(mask, 0.0, noise)[..., None])[..., 0]
        value = jnp.where(mask, x, drawn)
    return residual, log, value


def fixed_pivots(root: jax.Array, prior: bool) -> tuple[jax.Array, jax.Array]:
    """Which coordinates of a prior have no noise of their own, and the root with a pivot of 1
    there."""
    pivots = jnp.diagonal(root, axis1=-2, axis2=-1)
    is_fixed = (pivots == 0) & prior
    return is_fixed, root + is_fixed[..., None] * jnp.eye(root.shape[-1], dtype=root.dtype)


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
