"""The M-step of coefficients of normal rows by the QR decomposition of residuals, which needs half
the precision of normal equations.

With r(c) all residuals of rows and of the prior in units of their deviations, linear in c, and
−∂r/∂c = Q R: the precision is RᵀR, and the mode is c + R⁻¹ Qᵀ r(c). The products of columns square
the condition number; R does not.

Source: Golub & Van Loan (2013), "Matrix Computations", section 5.3; rows are taken in chunks as by
    Demmel et al. (2012), TSQR.
"""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from probml.device.rows import Chunk, Known, Rows
from probml.factors.rowwise import row_environment
from probml.plan.blocks import Block, pack, unpack, users
from probml.plan.plan import Plan

MAX_COEFFICIENTS = 512


def rooted(plan: Plan, block: Block) -> bool:
    """Whether a block is one vector of coefficients in the locations of row-wise Normals alone,
    under normal priors."""
    sites = [plan.structure.sites[name] for name in block.names]
    vector = block.stacked or len(sites[0].shape) == 1  # else several independent vectors
    if not (block.form and block.form.joint and block.rowwise and block.event and vector) or (
            block.steps or plan.variables or plan.steps):
        return False
    return sum(math.prod(site.shape) for site in sites) <= MAX_COEFFICIENTS and all(
        site.traits.normal for site in sites) and all(
        _enters_by_location(plan, block, user) for user in users(plan))


def _enters_by_location(plan: Plan, block: Block, user: str) -> bool:
    """Whether a site depends on a block through the location of a Normal of rows, or of the block
    itself; or not at all."""
    sites = plan.structure.sites
    if user not in sites:
        return True
    entered = {argument for argument, uses in sites[user].uses.items()
               if not uses.keys().isdisjoint(block.names)}
    normal = (user in plan.rowwise and sites[user].traits.normal and sites[user].traits.event == 0)
    return not entered or entered == {"loc"} and (user in block.names or normal)


def root(plan: Plan, block: Block, params: Mapping, known: Known, rows: Rows) -> dict[str,
                                                                                      jax.Array]:
    """The block's mode and the root of its precision: upper triangular, precision = rootᵀ root."""
    sites = plan.structure.sites
    seen_by = [n for n in plan.rowwise
               if any(name in sites[n].uses.get("loc", {}) for name in block.names)]
    current = pack(params, block)

    def own(c: jax.Array):
        env = {**params, **known.given, **unpack(params, block, c)}
        return jnp.concatenate([_prior(plan, name, env) for name in block.names])

    def of(name: str, chunk: Chunk):
        fixed = {**params, **known.given}
        masks = chunk.observed.get(name, jnp.ones(chunk.values[name].shape, bool))

        def residuals_and_slopes(varying: Mapping[str, jax.Array], x: jax.Array, mask: jax.Array,
                                 weight: jax.Array):
            def residual(c: jax.Array):
                arguments = plan.structure.cells(name,
                                                 {**fixed, **varying, **unpack(params, block, c)})
                gap = x.reshape(-1) - arguments["loc"].reshape(-1)
                valid = mask.reshape(-1) & (weight > 0)
                return jnp.where(valid, gap / arguments["scale"].reshape(-1) * jnp.sqrt(weight),
                                 0.0)

            return -jax.jacfwd(residual)(current), residual(current)

        slope, residuals = jax.vmap(residuals_and_slopes)(row_environment(plan, known, chunk, name),
                                                          chunk.values[name],
                                                          masks, chunk.weights)
        return jnp.concatenate([slope.reshape(-1, current.size), residuals.reshape(-1, 1)], 1)

    def add(total: tuple, chunk: Chunk):
        return jnp.linalg.qr(jnp.concatenate([total, *(of(name, chunk) for name in seen_by)]),
                             mode="r"), ()

    stacked = jnp.concatenate([-jax.jacfwd(own)(current), own(current)[:, None]], 1)
    stacked = jnp.concatenate([stacked, jnp.zeros((1, stacked.shape[1]), stacked.dtype)])
    factor, _ = rows.fold(add, jnp.linalg.qr(stacked, mode="r"))
    upper, target = factor[:-1, :-1], factor[:-1, -1]
    sign = jnp.where(jnp.diagonal(upper) < 0, -1.0, 1.0).astype(upper.dtype)
    return {"loc": current + solve_triangular(upper, target), "root": sign[:, None] * upper}


def _prior(plan: Plan, name: str, env: Mapping) -> jax.Array:
    """The residuals of a parameter under its normal prior, in units of its deviations."""
    site, distribution = plan.structure.sites[name], plan.structure.distribution(name, env)
    deviation = jnp.broadcast_to(env[name], site.shape) - distribution.loc
    if site.traits.event == 0:
        return (deviation / distribution.scale).reshape(-1)
    lower = jnp.broadcast_to(distribution.scale_tril, (*deviation.shape, deviation.shape[-1]))
    return solve_triangular(lower, deviation[..., None], lower=True).reshape(-1)


def covariance_root(root: jax.Array) -> jax.Array:
    """A root of the covariance from that of the precision: root⁻¹, upper triangular; covariance =
    its product with its transpose."""
    return solve_triangular(root, jnp.eye(len(root), dtype=root.dtype))


def lower(matrix: jax.Array) -> jax.Array:
    """The Cholesky factor of matrix matrixᵀ, without that product; (p, d) → (p, p), p ≤ d."""
    factor = jnp.linalg.qr(matrix.T, mode="r").T
    sign = jnp.where(jnp.diagonal(factor) < 0, -1.0, 1.0).astype(factor.dtype)
    return factor * sign
