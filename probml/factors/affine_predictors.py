"""Value, gradient and Hessian of rows in coefficients that enter each row through one number
affinely, from the second derivative in that number.

With η = a·c + b, the Hessian of Σ f(η) in c is Σ f″ a aᵀ: one product of matrices a chunk, where
the directions of c would each pass through the density. Where η is several numbers that have
coefficients of their own each, c_m, there is such a product for each. Off-diagonal blocks are
omitted: a preconditioner, not the Hessian.
"""

import functools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Chunk, Known
from probml.factors.naturals import environment
from probml.factors.rowwise import row_environment, row_log
from probml.factors.squares import unfused_product
from probml.jaxpr.backward import gradient, value_and_gradient
from probml.jaxpr.switches import SETTING
from probml.numerics.logs import weighted_log
from probml.plan.plan import Plan
from probml.plan.sufficient_statistics import Columns, entered

Derivatives = tuple[jax.Array, jax.Array, jax.Array]


def derivatives(plan: Plan, point: Callable, c: jax.Array, known: Known, rows: Chunk,
                scale: float | jax.Array = 1.0) -> Derivatives:
    """Σ over rows of scale × weight × log density of the row-wise sites of a `straight` plan, with
    its gradient (p,) and Hessian (p, p).

    Args:
        point: c (p,) → the parameters, affine in c.

    Cost: rows × p².
    """
    parts = [_site_derivatives(plan, name, point, c, known, rows, scale) for name in plan.rowwise]
    return functools.reduce(lambda a, b: jax.tree.map(jnp.add, a, b), parts)


def _site_derivatives(plan: Plan, name: str, point: Callable, c: jax.Array, known: Known,
                      rows: Chunk, scale: float | jax.Array) -> Derivatives:
    (argument,) = entered(plan, name)

    def row_derivatives(varying: Mapping[str, jax.Array], x: jax.Array, mask: jax.Array | None,
                        weight: jax.Array):
        eta_of, log = _split_at_argument(plan, name, argument, point, c, known, varying, x, mask)

        eta, slope = value_and_gradient(lambda c: eta_of(c).reshape(()))(c)
        with_slope = value_and_gradient(lambda eta: scale * weighted_log(weight, log(eta)))
        (value, first), (_, second) = jax.jvp(with_slope, (eta,), (jnp.ones_like(eta),))
        return value, first, second, slope

    total, first, second, slope = jax.vmap(row_derivatives)(
        row_environment(plan, known, rows, name), rows.values[name], rows.observed.get(name),
        rows.weights)
    return total.sum(), slope.T @ first, unfused_product(slope.T, slope * second[:, None])


def _split_at_argument(plan: Plan, name: str, argument: str, point: Callable, c: jax.Array,
                       known: Known, varying: Mapping, x: jax.Array | None,
                       mask: jax.Array | None) -> tuple[Callable, Callable]:
    """Two functions of one row: c → the argument that coefficients enter, and that argument, its
    numbers in a line → the log density (of a variable that of each state), all else as at c."""
    site = plan.structure.sites[name]

    def env(c: jax.Array):
        return {**environment(plan, point(c), known), **varying}

    fixed = plan.structure.arguments(name, env(c))

    def log(eta: jax.Array):
        arguments = {**fixed, argument: eta.reshape(fixed[argument].shape)}
        return row_log(plan, name, {
            **env(c), SETTING: lambda _: [arguments[a] for a in site.arguments]}, x, mask)

    return lambda c: plan.structure.arguments(name, env(c))[argument], log


def curvatures(plan: Plan, point: Callable, c: jax.Array, places: jax.Array, known: Known,
               rows: Chunk) -> jax.Array:
    """−Σ over rows of weight × ∂²f/∂η_m² a_m a_mᵀ, where η_m = a_m·c_m + b_m: blocks (m, q, q),
    none of them below 0.

    Args:
        point: c (m q,) → the parameters. places: (m, q) the coefficients of each number.

    Cost: rows × m q².
    """
    (name,) = plan.rowwise
    (argument,) = entered(plan, name)

    def row_curvature(varying: Mapping[str, jax.Array], x: jax.Array, mask: jax.Array | None,
                      weight: jax.Array):
        eta_of, log = _split_at_argument(plan, name, argument, point, c, known, varying, x, mask)
        curvature = -weight * jnp.diagonal(jax.jacfwd(gradient(
            lambda eta: jnp.where(weight > 0, log(eta), 0.0)))(eta_of(c).reshape(-1)))
        # a coefficient enters one number, so that the slope of their sum is its own
        return jnp.maximum(curvature, 0.0), gradient(lambda c: eta_of(c).sum())(c)[places]

    curvature, slope = jax.vmap(row_curvature)(row_environment(plan, known, rows, name),
                                               rows.values[name],
                                               rows.observed.get(name), rows.weights)
    return unfused_product(jnp.transpose(slope, (1, 2, 0)),
                           jnp.swapaxes(slope * curvature[..., None], 0, 1))


def weighted_hessian(plan: Plan, name: str, columns: Columns, point: Callable, c: jax.Array,
                     known: Known, rows: Chunk, q: jax.Array) -> jax.Array:
    """The Hessian in c of Σ over rows and states of q × log factor of a site, (p, p): of numbers
    η_m = a_m·c_m + b_m it is Σ ∂²f/∂η_m ∂η_l a_m a_lᵀ.

    Args:
        columns: how c enters. point: c (p,) → parameters, affine. q: (b, *states).

    Cost: rows × p², where the directions of c would each pass through the density.
    """
    numbers, places = np.array(columns.numbers), np.array(columns.coefficients)

    def row_hessian(varying: Mapping[str, jax.Array], x: jax.Array, mask: jax.Array | None,
                    q: jax.Array):
        eta_of, log = _split_at_argument(plan, name, columns.argument, point, c, known, varying, x,
                                         mask)
        etas = eta_of(c).reshape(-1)
        second = jax.jacfwd(gradient(
            lambda eta: weighted_log(q, log(etas.at[numbers].set(eta))).sum()))(etas[numbers])
        # a coefficient enters one number, so that the slope of their sum is its own
        return second, gradient(lambda c: eta_of(c).reshape(-1)[numbers].sum())(c)

    hidden = name in plan.variables
    second, slope = jax.vmap(row_hessian)(row_environment(plan, known, rows, name),
                                          None if hidden else rows.values[name],
                                          None if hidden else rows.observed.get(name), q)
    design = slope.T[places]  # (m, q, b)
    m, width, b = design.shape
    by_pair = jnp.transpose(second, (1, 0, 2))[..., None]  # (m, b, l, 1)
    by_row = jnp.transpose(design, (2, 0, 1))  # (b, l, q)
    blocks = unfused_product(design, (by_pair * by_row).reshape(m, b, m * width)).reshape(
        m * width, m * width)
    flat = places.reshape(-1)
    return jnp.zeros((c.size, c.size), blocks.dtype).at[flat[:, None], flat].set(blocks)
