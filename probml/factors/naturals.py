"""Parameters → natural parameters of every site, over the states of its discrete parents; and the
log prior density of the parameters.
"""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence

import jax
import jax.numpy as jnp

from probml.device.rows import Known
from probml.errors import present
from probml.latents.latent import SETTINGS
from probml.numerics.process.making import unchecked
from probml.plan.plan import Plan
from probml.structure.densities import log_density, log_masses, log_weight, over_grid
from probml.typing import PyTree


def environment(plan: Plan, params: Mapping[str, jax.Array], known: Known) -> dict[str, jax.Array]:
    sites = plan.structure.sites
    return {name: jnp.reshape(value, sites[name].shape)
            for name, value in {**params, **known.given}.items() if name in sites}


def group_environment(plan: Plan, params: Mapping[str, jax.Array],
                      known: Known) -> dict[str, PyTree]:
    """The environment of a group of latents: with the settings over which its log densities are
    averaged, if any."""
    fixed, sites = environment(plan, params, known), plan.structure.sites
    if not known.settings:
        return fixed
    return fixed | {SETTINGS: {name: jnp.reshape(value, (len(value), *sites[name].shape))
                               for name, value in known.settings.items()}}


def states_of(plan: Plan, name: str) -> jax.Array:
    """The states of a discrete site in NumPyro's single-row layout, (states, *shape)."""
    site = plan.structure.sites[name]
    values = (plan.variables[name].values if name in plan.variables
              else jnp.arange(site.states).reshape(site.states, *site.cells))
    return jax.vmap(site.place)(jnp.asarray(values))


def over_states(plan: Plan, function: Callable[..., PyTree], env: Mapping, parents: tuple[str, ...],
                *along: PyTree, axis: int = 0) -> PyTree:
    """function(env with the parents at their states, *along) over all states: one leading axis per
    parent; `along` have such axes, from `axis` on."""
    return over_grid(function, env, {parent: states_of(plan, parent) for parent in parents}, *along,
                     axis=axis)


def argument_table(plan: Plan, params: Mapping[str, jax.Array], known: Known,
                   name: str) -> dict[str, jax.Array]:
    """A pooled site's arguments over its discrete parents: argument → (*parent states, lattice
    cells, own event axes)."""
    return over_states(plan, functools.partial(plan.structure.cells, name),
                       environment(plan, params, known), plan.discrete_parents(name))


def _natural(plan: Plan, name: str, arguments: Mapping[str, jax.Array], known: Known) -> PyTree:
    """Natural parameters; for a variable, the log table of its own joint states on a last axis."""
    site = plan.structure.sites[name]
    natural = site.traits.natural(arguments, known.centre.get(name, 0.0))
    if name not in plan.variables or site.chain:
        return natural
    values = plan.variables[name].values.reshape(plan.variables[name].states, -1)
    lead = jax.tree.leaves(natural)[0].shape[: len(plan.discrete_parents(name))]
    if values.shape[1] == 1:
        return natural["log"][..., 0, :]
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[len(lead) :]), natural)
    return site.traits.log_density(flat, jnp.asarray(values), None).T.reshape(*lead, -1)


def state_logs(plan: Plan, name: str, env: Mapping) -> jax.Array:
    """log p of a variable's joint states, for one row or outside rows: (states,)."""
    log, values = log_masses(plan.structure, name, env), plan.variables[name].values
    return log[0] if len(log) == 1 else jnp.take_along_axis(
        log, jnp.asarray(values.reshape(len(values), -1)).T, 1
    ).sum(0)


def naturals(plan: Plan, params: Mapping[str, jax.Array], known: Known,
             moving: Collection[str] | None = None) -> dict[str, PyTree]:
    """Natural parameters of every pooled site; the whole dependence of the evidence on the
    parameters, but for row-wise sites.

    Args:
        moving: of the sites alone that one of these parameters enters, and of those evaluated with
            them.
    """
    out: dict[str, PyTree] = {}
    env, sites = environment(plan, params, known), plan.structure.sites
    for names in plan.batched_sites:
        if moving is not None and not any(p in moving for name in names
                                          for p in sites[name].parents):
            continue
        if len(names) == 1:
            out[names[0]] = _natural(plan, names[0], argument_table(plan, params, known, names[0]),
                                     known)
            continue
        parents = [[p for p in sites[name].parents if p in env] for name in names]
        stacked = [jnp.stack([jnp.asarray(env[p]) for p in column])
                   for column in zip(*parents, strict=True)]

        def natural_parameters(values: list[jax.Array], name: str = names[0],
                               keys: Sequence[str] = parents[0]):
            return _natural(plan, name, argument_table(plan, dict(zip(keys, values, strict=True)),
                                                       Known({}, {}, {}), name), known)

        out |= dict(zip(names, unstacked(jax.vmap(natural_parameters)(stacked), len(names)),
                        strict=True))
    return {name: out[name] for name in plan.pooled if name in out}


def unstacked(tree: object, count: int) -> list[PyTree]:
    """A tree whose leaves lead with an axis of `count` → so many trees. One split a leaf: backwards
    it is one concatenation."""
    leaves, treedef = jax.tree.flatten(tree)
    parts = [[jnp.squeeze(part, 0) for part in jax.lax.split(leaf, [1] * count)] for leaf in leaves]
    return [jax.tree.unflatten(treedef, [part[i] for part in parts]) for i in range(count)]


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
            parents = [(name, *plan.structure.sites[name].parents) for name in twins]
            stacked = [jnp.stack([env[p] for p in column]) for column in zip(*parents, strict=True)]
            log_twins = jax.vmap(lambda values, keys=parents[0]: prior_factor(
                plan, keys[0], dict(zip(keys, values, strict=True)), mode
            ))
            total += log_twins(stacked).sum()
    for name in (name for name in outside(plan) if name in wanted):
        total += prior_factor(plan, name, env, mode)
    return total
