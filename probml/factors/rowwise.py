"""Sites evaluated row by row: the traced program at each row's inputs and states → factors."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.device.rows import Chunk, Known
from probml.elimination.factor import Factor
from probml.errors import present
from probml.factors.naturals import environment, over_states, state_logs
from probml.families.likelihoods.student_t import ManyDegrees
from probml.families.marginal_normal import log_density as unseen_density
from probml.jaxpr.switches import SETTING
from probml.plan.plan import Plan
from probml.structure.densities import cells, log_density
from probml.structure.site import Site
from probml.structure.structure import Structure


def row_environment(plan: Plan, known: Known, rows: Chunk, name: str) -> dict[str, jax.Array]:
    """The inputs and parents of a site that vary by row, each row in NumPyro's layout, with a
    leading axis of rows."""
    sites, site = plan.structure.sites, plan.structure.named[name]
    env = {i: rows.inputs[i][:, None] for i in plan.structure.row_inputs(name)}
    for parent in site.parents:
        if sites[parent].rows and parent not in plan.variables and parent not in plan.hidden:
            value = rows.values[parent]
            if parent in known.centre:
                value = value + known.centre[parent].reshape(sites[parent].cells)
            env[parent] = jax.vmap(sites[parent].place)(value)
    return env


def without_cell_axis(leaf: jax.Array, parents: int) -> jax.Array:
    """A chain's table without the axis of its one cell."""
    return jnp.squeeze(leaf, parents)


def rowwise_factor(
    plan: Plan,
    params: Mapping,
    known: Known,
    rows: Chunk,
    name: str,
    predictive: Mapping | None = None,
    anchor: Mapping | None = None,
    settings: bool = False,
) -> Factor:
    site, parents, scope = plan.structure.sites[name], plan.discrete_parents(name), plan.scope(name)
    fixed = environment(plan, params, known)
    is_variable = name in plan.variables
    anchor_env = (environment(plan, anchor, known) if anchor is not None
                  and site.traits.minorant is not None else None)

    def row_logs(varying: Mapping[str, jax.Array], x: jax.Array, mask: jax.Array | None):
        def at(env: Mapping[str, jax.Array]):
            if predictive is not None and not is_variable:
                return _affine_density(plan.structure, site, env, x, mask, predictive)
            if anchor_env is not None and not is_variable:
                anchor_args = plan.structure.cells(name, {**env, **anchor_env})
                logs = present(site.traits.minorant)(anchor_args, plan.structure.cells(name, env),
                                            cells(site, x[None])[0])
                return logs.sum() if mask is None else jnp.where(cells(site, mask[None])[0], logs,
                                                                 0.0).sum()
            return row_log(plan, name, env, x, mask)

        if name in plan.switches:
            return _at_settings(plan, name, at, {**fixed, **varying}, settings)
        return over_states(plan, at, {**fixed, **varying}, parents)

    x = None if is_variable or site.factor else rows.values[name]
    # of a factor, or a variable, that depends on nothing of a row
    size = None if rows.weights is None else len(rows.weights)
    log = jax.vmap(row_logs, axis_size=size)(row_environment(plan, known, rows, name), x,
                                             None if is_variable else rows.observed.get(name))
    return Factor(log, scope)


def row_log(plan: Plan, name: str, env: Mapping, x: jax.Array | None,
            mask: jax.Array | None) -> jax.Array:
    """log p of one row's observed cells of a site; of a variable, of each of its states."""
    if name in plan.variables:
        return state_logs(plan, name, env)
    return log_density(plan.structure, plan.structure.sites[name], env, x, mask)


def setting_logs(plan: Plan, params: Mapping, known: Known, rows: Chunk, name: str) -> jax.Array:
    """The log factor of a site with one switch, and of no other parents, where it is off and where
    it is on: (rows, 2)."""
    return rowwise_factor(plan, params, known, rows, name, settings=True).log


def _at_settings(plan: Plan, name: str, at: Callable, env: Mapping, settings: bool) -> jax.Array:
    """at(env with the parents at their states) of one row over all states: evaluated at every
    setting of the switches, and looked up for every state.

    Args:
        settings: not looked up.
    """
    switches, parents = plan.switches[name], plan.discrete_parents(name)
    others, count = tuple(p for p in parents if p not in switches.parents), len(switches.compared)

    grid = jnp.stack(jnp.meshgrid(*[jnp.array([False, True])] * count, indexing="ij"),
                     -1).reshape(-1, count)

    # (*states kept, settings, own)
    logs = over_states(plan, lambda state_env: jax.vmap(lambda setting: at(
        {**state_env, SETTING: lambda env: switches.outputs(env, setting)}))(grid), env, others)
    if settings:
        return logs
    logs = jnp.moveaxis(logs, len(others), 0)
    tail = logs.shape[1 + len(others) :]
    logs = logs.reshape(*(2,) * count,
                        *(plan.variables[p].states if p in others else 1 for p in parents), *tail)
    for j, reads in enumerate(switches.compared):
        is_on = over_states(plan, lambda at, j=j: switches.setting(at, j), env, reads)
        is_on = is_on.reshape(*(plan.variables[p].states if p in reads else 1 for p in parents),
                              *(1,) * len(tail))
        logs = jnp.where(is_on, logs[1], logs[0])
    return logs


def _affine_density(structure: Structure, site: Site, env: Mapping[str, jax.Array], x: jax.Array,
                    mask: jax.Array | None, settings: Mapping) -> jax.Array:
    """log p of one row's value of a Normal site, its affine location and its scale integrated out
    (posteriors/conjugate.py, Marginals).

    Var[loc] = Σ (how far each column moves loc)², since loc is affine; with a scale, Student t (a
    regression's predictive). Of several cells it is their covariance: one vector, unless every cell
    has its own scale and so its own coefficients.
    """

    def at(changed: Mapping[str, jax.Array]):
        arguments = structure.cells(site.name, {**env, **changed})
        return arguments["loc"], jnp.broadcast_to(arguments["scale"], arguments["loc"].shape) ** 2

    variance = at({})[1]
    coefs = {name: env[name] for name in settings["columns"]}
    loc, push = jax.linearize(lambda changed: at(changed)[0], coefs)
    loc_shifts = jax.vmap(push)(settings["columns"])  # (columns, cells)
    x = cells(site, x[None])[0]
    mask = jnp.ones(x.shape, bool) if mask is None else cells(site, mask[None])[0]
    scales, df = settings["scales"], None
    if scales:
        unit, shape, inflation, variance = jax.vmap(lambda changed: at(changed)[1])(scales)
        df, inflation = 2 * shape / unit, inflation / unit
    if len(x) == 1 or scales and next(iter(scales.values()))[0].size > 1:
        variance = variance + jnp.sum(loc_shifts**2, 0)
        marginal = dist.Normal(loc, jnp.sqrt(variance)) if df is None else ManyDegrees(
            df, loc, jnp.sqrt(variance * inflation)
        )
        return jnp.where(mask, marginal.log_prob(x), 0.0).sum()
    covariance = jnp.diag(variance) + loc_shifts.T @ loc_shifts
    return unseen_density(loc, covariance if df is None else covariance * inflation[0], x, mask,
                          None if df is None else df[0])


