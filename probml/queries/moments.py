"""Conditional means and probabilities of a site given the states of its parents, and their averages
over these states."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known
from probml.errors import present
from probml.factors import integrated, linear_chains
from probml.factors.naturals import over_states
from probml.factors.rowwise import row_environment
from probml.plan.plan import Plan
from probml.structure.densities import log_masses


def average(q: jax.Array, values: jax.Array) -> jax.Array:
    """Σ over states of q × conditional values: (b, *states) and (b, *states, ...) → (b, ...)."""
    states = tuple(range(1, q.ndim))
    return (q.reshape(*q.shape, *(1,) * (values.ndim - q.ndim)) * values).sum(states)


def means_along(plan: Plan, params: Mapping, known: Known, rows: Chunk, name: str,
                view: str) -> dict[str, jax.Array]:
    """Means of the state-space latents that the site is one of or depends on: group → (b, *states,
    p), with b the rows or, of a site along time, the time steps.

    Args:
        rows: a chunk of rows, not of steps. view: as for `linear_chains.means`.
    """
    out = {}
    for group in (group for group in plan.groups(name) if plan.timed(group)):
        found = linear_chains.means(plan, params, known, rows, group, view)
        timed = plan.structure.named[name].time is not None
        out[group.name] = found if timed else rows.along.folded(found)[:, 0]
    return out


def conditional(plan: Plan, params: Mapping, known: Known, rows: Chunk, name: str, what: str,
                size: int, along: Mapping[str, jax.Array]) -> jax.Array:
    """E[x | parents] or p(x | parents) of a site, (b, *states of its discrete parents, *cells[,
    states]); of a partially observed vector the mean given its observed coordinates; of a
    deterministic its value. `along`: from `means_along`."""
    site, parents = plan.structure.named[name], tuple(p for p in plan.structure.named[name].parents
                                                      if p in plan.variables)
    if plan.groups(name):
        return integrated.average_over_latents(
            plan, params, known, rows, name, lambda env: _mean(plan, name, env, what, ()), along,
            size)
    parts: tuple = ()
    fixed = {**params, **known.given}
    if name in rows.seen and site.traits.fill is not None:
        x = rows.values[name]
        parts = (x + known.centre[name].reshape(site.cells) if name in known.centre else x,
                 rows.seen[name])

    def mean_given_states(varying: Mapping[str, jax.Array], parts: tuple):
        return over_states(plan, lambda env: _mean(plan, name, env, what, parts),
                           {**fixed, **varying}, parents)

    return jax.vmap(mean_given_states, axis_size=size)(row_environment(plan, known, rows, name),
                                                       parts)


def _mean(plan: Plan, name: str, env: Mapping, what: str, parts: tuple) -> jax.Array:
    """The mean of a site of one row given its parents, or the probabilities of its states; of a
    deterministic or a latent its value. (*cells[, states]).

    Args:
        parts: of a partially observed vector, its cells and the mask of observed ones; else ().
    """
    site = plan.structure.named[name]
    if name in plan.hidden:
        value = site.collect(env[name], 1)[0]
        if what == "probabilities":
            return jax.nn.one_hot(value, site.finite)
        return site.valued(value).astype(jnp.result_type(float)) if site.discrete else value
    if name in plan.structure.deterministics:
        return site.collect(plan.structure.computed(name, env),
                            1)[0].astype(jnp.result_type(float))
    if what == "probabilities":
        if site.family is None or site.states is None:
            return jnp.exp(log_masses(plan.structure, name, env)).reshape(*site.cells, site.finite)
        found = present(site.traits.probabilities)(plan.structure.cells(name, env))
        return found.reshape(*site.cells, site.states)
    distribution = plan.structure.distribution(name, env)
    mean = distribution.mean
    if parts:
        mean = present(site.traits.fill)(distribution, mean, *map(site.place, parts))
    return site.layout(mean, len(site.event)).reshape(site.cells)
