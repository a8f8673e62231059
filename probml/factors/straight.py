"""Value, gradient and Hessian of rows in coefficients that enter the arguments of row-wise sites
affinely, from the second derivatives in these few arguments.

With a row's arguments η = A c + b, the Hessian of Σ f(η) in c is Σ Aᵀ f″ A: one product of matrices
a chunk, where the directions of c would each pass through the density.
"""

import functools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from probml.device.rows import Chunk, Known
from probml.factors.naturals import environment, states_of
from probml.factors.rowwise import row_environment, row_log
from probml.jaxpr.switches import SETTING
from probml.plan.plan import Plan
from probml.plan.straight import arguments

Derivatives = tuple[jax.Array, jax.Array, jax.Array]


def derivatives(plan: Plan, names: tuple[str, ...], point: Callable, c: jax.Array, known: Known,
                rows: Chunk, weights: Mapping[str, jax.Array]) -> Derivatives:
    """Σ over rows and states of weight × log density of the row-wise sites that the parameters
    `names` enter, with its gradient (p,) and Hessian (p, p).

    Args:
        point: c (p,) → all parameters, those of `names` affine in c.
        weights: site → (b, *states) as its log factor.

    Cost: rows × states × numbers of a row × p².
    """
    found = [_of(plan, name, entered, point, c, known, rows, weights[name])
             for name in plan.rowwise if (entered := arguments(plan, name, names))]
    blank = (jnp.zeros(()), jnp.zeros_like(c), jnp.zeros((c.size, c.size), c.dtype))
    return functools.reduce(lambda a, b: jax.tree.map(jnp.add, a, b), found, blank)


def _of(plan: Plan, name: str, entered: tuple[str, ...], point: Callable, c: jax.Array,
        known: Known, rows: Chunk, weights: jax.Array) -> Derivatives:
    site, parents = plan.structure.sites[name], plan.discrete_parents(name)

    def one(varying, x, seen, weight):

        def at(weight, *states):
            inside = {**varying, **dict(zip(parents, states, strict=True))}

            def eta(c):
                found = plan.structure.arguments(name, {**environment(plan, point(c), known),
                                                        **inside})
                return {a: found[a] for a in entered}

            env = {**environment(plan, point(c), known), **inside}
            fixed = plan.structure.arguments(name, env)

            def value(eta):
                held = [{**fixed, **eta}[a] for a in site.arguments]
                log = row_log(plan, name, {**env, SETTING: lambda env: held}, x, seen)
                return jnp.where(weight == 0, 0.0, weight * jnp.where(weight == 0, 0.0, log)).sum()

            here, restore = ravel_pytree(eta(c))
            total, slope = jax.value_and_grad(lambda e: value(restore(e)))(here)
            bend = jax.hessian(lambda e: value(restore(e)))(here)
            moves = jax.jacrev(lambda c: ravel_pytree(eta(c))[0])(c)
            return total, slope, bend, moves

        function = at
        for i in reversed(range(len(parents))):
            function = jax.vmap(function, in_axes=(0, *(0 if j == i else None
                                                        for j in range(len(parents)))))
        return function(weight, *(states_of(plan, parent) for parent in parents))

    x = None if name in plan.variables else rows.values[name]
    seen = None if name in plan.variables else rows.seen.get(name)
    total, slope, bend, moves = jax.vmap(one, axis_size=len(rows.weights))(
        row_environment(plan, known, rows, name), x, seen, weights)
    count, p = slope.shape[-1], c.size
    moves, slope = moves.reshape(-1, count, p), slope.reshape(-1, count)
    bent = jnp.einsum("ref,rfp->rep", bend.reshape(-1, count, count), moves)
    flat = moves.reshape(-1, p)
    return total.sum(), slope.reshape(-1) @ flat, flat.T @ bent.reshape(-1, p)
