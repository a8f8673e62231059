"""The log prior density of the parameters, and whether they lie in their supports."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from probml.device.rows import Known
from probml.errors import present
from probml.factors.naturals import environment
from probml.numerics.process.making import unchecked
from probml.plan.plan import Plan
from probml.structure.densities import log_density, log_weight


def outside(plan: Plan) -> tuple[str, ...]:
    """The sites of the log prior: the parameters, discrete sites outside rows whose value is data,
    factors."""
    return tuple(name for name in plan.outside if name not in plan.mixed)


def prior_factor(plan: Plan, name: str, env: Mapping, mode: bool) -> jax.Array:
    """log p of the value of a site outside rows, of a factor its weight; `mode` as in log_prior."""
    site = plan.structure.sites[name]
    if site.factor:
        return log_weight(plan.structure, name, env)
    if site.discrete and site.family is not None:  # of counts, a total that is theirs
        return log_density(plan.structure, site, env, env[name], None)
    if site.traits.density is not None:
        log = site.traits.density(plan.structure.arguments(name, env), env[name])
        return jnp.broadcast_to(log, site.lattice).sum()
    distribution = plan.structure.distribution(name, env)
    log = site.entry.log_density(distribution, site.valued(env[name]), mode)
    return jnp.broadcast_to(log, site.lattice).sum()


def log_prior(plan: Plan, params: Mapping, known: Known, mode: bool = False,
              names: tuple[str, ...] | None = None) -> jax.Array:
    """Σ log p(parameter), of the free and the given ones, or of `names`; without those that depend
    on a global variable (Plan.mixed).

    Args:
        mode: in the coordinates that are maximised, where that differs from a parameter's own.
    """
    env, total = environment(plan, params, known), jnp.zeros(())
    wanted = set(outside(plan) if names is None else names)

    for name in wanted.intersection(known.concentration):
        site = plan.structure.sites[name]
        with unchecked():  # a concentration of 0 is no NumPyro distribution's
            distribution = present(site.entry.prior).of_concentration(known.concentration[name])
        total += site.entry.log_density(distribution, site.valued(env[name]), mode).sum()
    wanted -= set(known.concentration)
    for twins in plan.twins:
        if wanted.issuperset(twins) and len(twins) > 1:
            wanted -= set(twins)
            takes = [(name, *plan.structure.sites[name].parents) for name in twins]
            stacked = [jnp.stack([env[p] for p in column]) for column in zip(*takes, strict=True)]
            each = jax.vmap(lambda values, own=takes[0]: prior_factor(
                plan, own[0], dict(zip(own, values, strict=True)), mode
            ))
            total += each(stacked).sum()
    for name in (name for name in outside(plan) if name in wanted):
        total += prior_factor(plan, name, env, mode)
    return total
