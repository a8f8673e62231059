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
    own = [plan.structure.sites[name] for name in block.names]
    vector = block.stacked or len(own[0].shape) == 1  # else several independent vectors
    if not (block.form and block.form.joint and block.rowwise and block.event and vector) or (
            block.steps or plan.variables or plan.steps):
        return False
    return sum(math.prod(site.shape) for site in own) <= MAX_COEFFICIENTS and all(
        site.traits.normal for site in own) and all(
        _enters_by_location(plan, block, user) for user in users(plan))


def _enters_by_location(plan: Plan, block: Block, user: str) -> bool:
    """Whether a site depends on a block through the location of a Normal of rows, or of the block
    itself; or not at all."""
    sites = plan.structure.sites
    if user not in sites:
        return True
    where = {argument for argument, of in sites[user].uses.items()
             if not of.keys().isdisjoint(block.names)}
    normal = (user in plan.rowwise and sites[user].traits.normal and sites[user].traits.event == 0)
    return not where or where == {"loc"} and (user in block.names or normal)


def root(plan: Plan, block: Block, params: Mapping, known: Known, rows: Rows) -> dict[str,
                                                                                      jax.Array]:
    """The block's mode and the root of its precision: upper triangular, precision = rootᵀ root."""
    sites = plan.structure.sites
    seen_by = [n for n in plan.rowwise
               if any(name in sites[n].uses.get("loc", {}) for name in block.names)]
    here = pack(params, block)

    def own(c: jax.Array):
        env = {**params, **known.given, **unpack(params, block, c)}
        return jnp.concatenate([_prior(plan, name, env) for name in block.names])

    def of(name: str, chunk: Chunk):
        fixed = {**params, **known.given}
        masks = chunk.seen.get(name, jnp.ones(chunk.values[name].shape, bool))

        def residuals_and_slopes(varying: Mapping[str, jax.Array], x: jax.Array, seen: jax.Array,
                                 weight: jax.Array):
            def residual(c: jax.Array):
                arguments = plan.structure.cells(name,
                                                 {**fixed, **varying, **unpack(params, block, c)})
                away = x.reshape(-1) - arguments["loc"].reshape(-1)
                sound = seen.reshape(-1) & (weight > 0)
                return jnp.where(sound, away / arguments["scale"].reshape(-1) * jnp.sqrt(weight),
                                 0.0)

            return -jax.jacfwd(residual)(here), residual(here)

        slope, left = jax.vmap(residuals_and_slopes)(row_environment(plan, known, chunk, name),
                                                     chunk.values[name],
                                                     masks, chunk.weights)
        return jnp.concatenate([slope.reshape(-1, here.size), left.reshape(-1, 1)], 1)

    def add(total: tuple, chunk: Chunk):
        return jnp.linalg.qr(jnp.concatenate([total, *(of(name, chunk) for name in seen_by)]),
                             mode="r"), ()

    first = jnp.concatenate([-jax.jacfwd(own)(here), own(here)[:, None]], 1)
    first = jnp.concatenate([first, jnp.zeros((1, first.shape[1]), first.dtype)])
    found, _ = rows.fold(add, jnp.linalg.qr(first, mode="r"))
    upper, right = found[:-1, :-1], found[:-1, -1]
    sign = jnp.where(jnp.diagonal(upper) < 0, -1.0, 1.0).astype(upper.dtype)
    return {"loc": here + solve_triangular(upper, right), "root": sign[:, None] * upper}


def _prior(plan: Plan, name: str, env: Mapping) -> jax.Array:
    """The residuals of a parameter under its normal prior, in units of its deviations."""
    site, distribution = plan.structure.sites[name], plan.structure.distribution(name, env)
    away = jnp.broadcast_to(env[name], site.shape) - distribution.loc
    if site.traits.event == 0:
        return (away / distribution.scale).reshape(-1)
    lower = jnp.broadcast_to(distribution.scale_tril, (*away.shape, away.shape[-1]))
    return solve_triangular(lower, away[..., None], lower=True).reshape(-1)


def covariance_root(root: jax.Array) -> jax.Array:
    """A root of the covariance from that of the precision: root⁻¹, upper triangular; covariance =
    its product with its transpose."""
    return solve_triangular(root, jnp.eye(len(root), dtype=root.dtype))


def lower(matrix: jax.Array) -> jax.Array:
    """The Cholesky factor of matrix matrixᵀ, without that product; (p, d) → (p, p), p ≤ d."""
    found = jnp.linalg.qr(matrix.T, mode="r").T
    sign = jnp.where(jnp.diagonal(found) < 0, -1.0, 1.0).astype(found.dtype)
    return found * sign
