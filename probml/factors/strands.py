"""The curvature of rows in coefficients that belong to one number of an argument each, block by
block: −Σ over rows of ∂²f/∂η_m² a_m a_mᵀ, where η_m = a_m·c_m + b_m.

What couples two numbers is left out: blocks are coordinates for a climb, and no Hessian.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from probml.device.rows import Chunk, Known
from probml.factors.naturals import environment
from probml.factors.rowwise import row_environment
from probml.jaxpr.switches import SETTING
from probml.plan.plan import Plan
from probml.plan.straight import entered
from probml.structure.densities import log_density


def curvatures(plan: Plan, point: Callable, c: jax.Array, places: jax.Array, known: Known,
               rows: Chunk) -> jax.Array:
    """Blocks (m, q, q), none of them below 0.

    Args:
        point: c (m q,) → the parameters. places: (m, q) the coefficients of each number.

    Cost: rows × m q².
    """
    (name,) = plan.rowwise
    site, (argument,) = plan.structure.sites[name], entered(plan, name)

    def one(varying, x, seen, weight):
        def arguments(c):
            return plan.structure.arguments(name, {**environment(plan, point(c), known), **varying})

        fixed = arguments(c)
        shape = fixed[argument].shape

        def value(eta):
            held = [{**fixed, argument: eta.reshape(shape)}[a] for a in site.arguments]
            env = {**environment(plan, point(c), known), **varying, SETTING: lambda _: held}
            return jnp.where(weight > 0, log_density(plan.structure, site, env, x, seen), 0.0)

        eta = fixed[argument].reshape(-1)
        bent = -weight * jnp.diagonal(jax.hessian(value)(eta))
        # a coefficient enters one number, so that the slope of their sum is its own
        slope = jax.grad(lambda c: arguments(c)[argument].sum())(c)
        return jnp.maximum(bent, 0.0), slope[places]

    bent, slope = jax.vmap(one)(row_environment(plan, known, rows, name), rows.values[name],
                                rows.seen.get(name), rows.weights)
    # apart from the product, into which XLA would fold them, for half the speed
    across, weighed = lax.optimization_barrier((jnp.transpose(slope, (1, 2, 0)),
                                                jnp.swapaxes(slope * bent[..., None], 0, 1)))
    return across @ weighed
