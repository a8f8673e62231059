"""Groups of latents over rows and states: messages, posterior moments, draws, and the objective of
an M-step.

A kind of latent (latents/) treats one row at one state of the discrete sites on which it depends;
here it is mapped over all.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known
from probml.elimination.cellwise.by_cells import Tangled
from probml.elimination.factor import Factor
from probml.errors import Refusal, listed
from probml.factors import chain_statistics, linear_chains, shared_nodes
from probml.factors.naturals import environment, group_environment, over_states, states_of
from probml.factors.rowwise import row_environment
from probml.latents import hidden_cells
from probml.latents.latent import Group, Moments, Seen, placed, slices_of_latents
from probml.latents.quadrature import recomputed
from probml.numerics.logs import weighted_log
from probml.plan.plan import Plan
from probml.structure.densities import cells
from probml.typing import PyTree


class LatentPosterior(NamedTuple):
    """The E-step of a group: `weight` (b, *states), the probability of the states times the row's
    weight, and the latents' moments in each."""

    weight: jax.Array
    moments: Moments


def message(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group) -> Factor:
    """log p(data of a group | states), its latents integrated out: (b, *states)."""
    if plan.timed(group):
        return linear_chains.message(plan, params, known, rows, group)

    def row_messages() -> jax.Array:
        return _map_rows(plan, params, known, rows, group, lambda env, seen: group.kind.message(
            plan.structure, group, env, seen
        ))

    shared = (None if known.settings
              else shared_nodes.message(plan, params, known, rows, group))
    # only the nodes of the branch not taken are allocated
    log = row_messages() if shared is None else jax.lax.cond(shared[1], lambda: shared[0],
                                                             recomputed(row_messages))
    return Factor(log, plan.group_scope(group))


def moments(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group) -> Moments:
    """The latents given each row and state: (b, *states, p), (b, *states, p, p)."""
    return _map_rows(plan, params, known, rows, group, lambda env, seen: group.kind.conditional(
        plan.structure, group, env, seen
    ))


def draw(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group, states: Mapping,
         key: jax.Array) -> dict[str, jax.Array]:
    """The latents of each row drawn given it and its states: site → (b, *cells).

    Args:
        states: variable → (b,) its joint states.
    """
    if plan.timed(group):
        return linear_chains.draw(plan, params, known, rows, group, states, key)
    fixed, reach = environment(plan, params, known), plan.group_scope(group)
    size = len(rows.weights)

    def draw_row(varying: Mapping[str, jax.Array], seen: Seen, chosen: Mapping[str, jax.Array],
                 key: jax.Array):
        env = {**fixed, **varying}
        for name, state in chosen.items():
            site = plan.structure.sites[name]
            env[name] = site.place(jnp.asarray(plan.variables[name].values)[state])
        if not group.cellwise:
            return split_by_site(plan, group,
                                 group.kind.draw(plan.structure, group, env, seen, key))
        first, second = jax.random.split(key)
        numbers = split_by_site(plan, group,
                                group.kind.draw(plan.structure, group, env, seen, first))
        env |= {name: plan.structure.sites[name].place(value) for name, value in numbers.items()}
        return numbers | hidden_cells.draw(plan.structure, group, env, seen, second)

    chosen = {name: jnp.broadcast_to(states[name], (size,)) for name in reach}
    return jax.vmap(draw_row)(_varying(plan, known, rows, group), _observed(plan, rows, group),
                              chosen,
                              jax.random.split(key, size))


def best_cells(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group,
               names: Sequence[str]) -> tuple[Factor, dict[str, jax.Array]]:
    """The hidden cells of some sites at their best, all else of the group summed out: what that
    adds to its message, and the cells, site → (b, *states, *cells)."""
    def at(env: Mapping, seen: Mapping) -> tuple[jax.Array, dict[str, jax.Array]]:
        log, best = hidden_cells.decoded(plan.structure, group, env, seen, names)
        total = hidden_cells.log_sum(plan.structure, group, env, seen)
        return jnp.where(jnp.isneginf(total), 0.0, log - total), best

    try:
        log, best = _map_rows(plan, params, known, rows, group, at)
    except Tangled:
        other = next(name for name in group.cellwise if name not in names)
        raise Refusal(f"decode(sites=[{listed(names)}]): the jointly most probable values of "
                      f"'{names[0]}' cannot be computed without those of '{other}'. Decode both, "
                      f"sites=[{listed([*names, other])}], or use predict_proba for each of them"
                      ) from None
    return Factor(log, plan.group_scope(group)), best


def posterior_moments(plan: Plan, params: Mapping, known: Known, rows: Chunk,
                      weights: Mapping[str, jax.Array]) -> dict[str, PyTree]:
    """The E-step of a chunk of rows, of every group without statistics of fixed size.

    Args:
        weights: name of a group → (b, *states).
    """
    out: dict[str, PyTree] = {}
    for group in (group for group in plan.latents if group not in plan.poolable_groups):
        weight = weights[group.name]
        if plan.timed(group):
            out[group.name] = chain_statistics.smoothed_moments(plan, params, known, rows, group,
                                                                weight)
            continue
        posterior = _map_rows(plan, params, known, rows, group, lambda env, seen, group=group:
                              group.kind.row_posterior(plan.structure, group, env, seen))
        out[group.name] = LatentPosterior(weight, _finite(posterior))
    return out


def _finite(found: Moments) -> Moments:
    """Moments with 0 in impossible states, whose weight is 0."""
    return jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(leaf), leaf, 0.0), found)


def expansion_points(plan: Plan, params: Mapping, known: Known) -> dict[str, PyTree]:
    """The points about which statistics are taken, of the groups that have statistics of fixed
    size, over their states."""
    fixed = environment(plan, params, known)
    return {group.name: chain_statistics.expansion_point(plan, params, known, group)
            if plan.timed(group)
            else over_states(plan, functools.partial(group.kind.middle, plan.structure, group),
                             fixed, plan.group_scope(group)) for group in plan.poolable_groups}


def statistics(plan: Plan, params: Mapping, known: Known, rows: Chunk, middle: Mapping,
               weights: Mapping[str, jax.Array]) -> dict[str, PyTree]:
    """The statistics of a chunk of rows, of every group that has statistics of fixed size: leaves
    (*states, ...).

    Args:
        middle: as `expansion_points`. weights: as in `posterior_moments`.
    """
    out = {}
    for group in plan.poolable_groups:
        if plan.timed(group):
            path = chain_statistics.smoothed_moments(plan, params, known, rows, group,
                                                     weights[group.name])
            out[group.name] = chain_statistics.statistics(plan, rows, group, middle[group.name],
                                                          path)
            continue
        latents, seen = _finite(moments(plan, params, known, rows, group)), _observed(plan, rows,
                                                                                      group)

        def group_statistics(middle: object, weight: jax.Array, latents: object, seen: Seen = seen,
                             group: Group = group):
            return group.kind.statistics(plan.structure, group, middle, weight, seen, latents)

        for _ in plan.group_scope(group):
            group_statistics = jax.vmap(group_statistics, in_axes=(0, 1, 1))
        out[group.name] = group_statistics(middle[group.name], weights[group.name], latents)
    return out


def expected_from_statistics(plan: Plan, params: Mapping, known: Known, middle: Mapping,
                             statistics: Mapping) -> jax.Array:
    """Σ over rows and states of weight × E[log p(latents, what is seen | params)], of the groups
    whose statistics pool, up to a constant: along time it is what is gained over `middle`."""
    fixed, total = environment(plan, params, known), jnp.zeros(())
    for group in plan.poolable_groups:
        if plan.timed(group):
            total += chain_statistics.gain_from_statistics(plan, params, known, group,
                                                           middle[group.name],
                                          statistics[group.name])
            continue
        total += over_states(
            plan, lambda env, middle, totals, group=group: group.kind.pooled(
                plan.structure, group, middle, env, totals),
            fixed, plan.group_scope(group), middle[group.name], statistics[group.name]).sum()
    return total


def expected_log_density(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group,
                         e_step: PyTree, origin: Mapping) -> jax.Array:
    """Σ over rows and states of weight × E[log p(latents, what is seen | params)], up to a
    constant: along time it is what is gained over the parameters `origin`."""
    if plan.timed(group):
        return chain_statistics.gain_over_origin(plan, params, known, rows, group, e_step, origin)
    logs = _map_rows(plan, params, known, rows, group, lambda env, seen,
                     latents: group.kind.expected(
        plan.structure, group, env, seen, latents
    ), e_step.moments)
    return weighted_log(e_step.weight, logs).sum()


def average_over_latents(plan: Plan, params: Mapping, known: Known, rows: Chunk, name: str,
                         function: Callable[[Mapping], jax.Array], along: Mapping[str, jax.Array],
                         size: int) -> jax.Array:
    """function(env) of every row and joint state of a site that depends on latents, averaged over
    these; over normal latents, in which it is affine, at their conditional means. (b, *states of
    plan.scope, ...).

    Args:
        along: group along time → the means of its latents, (b, *states of its reach, p).
        size: b.
    """
    fixed, scope = environment(plan, params, known), plan.scope(name)
    hidden = [p for p in (name, *plan.structure.named[name].parents) if p in plan.hidden
              and p not in plan.continuous_latents]
    if hidden:
        return _over_cells(plan, params, known, rows, name, hidden, function, size)
    near, args = plan.groups(name), row_environment(plan, known, rows, name)
    groups, timed = tuple(g for g in near if not plan.timed(g)), [g for g in near if plan.timed(g)]
    reaches = {g.name: plan.group_scope(g) for g in timed}
    means = {g: jnp.moveaxis(along[g], [1 + reach.index(v) for v in scope if v in reach],
                             range(1, 1 + len(reach))) for g, reach in reaches.items()}
    varying = {g.name: _varying(plan, known, rows, g) for g in groups}
    seen = {g.name: _observed(plan, rows, g) for g in groups}

    def average_row(args: Mapping[str, jax.Array], varying: Mapping[str, Mapping[str, jax.Array]],
                    seen: Mapping[str, Seen], means: Mapping[str, jax.Array]):
        def over(env: dict, remaining: tuple[Group, ...]) -> jax.Array:
            if not remaining:
                return function(env)
            group = remaining[0]
            latents = group.kind.conditional(plan.structure, group, {**env, **varying[group.name]},
                                             seen[group.name])

            def at(flat):
                return over({**env, **placed(plan.structure, group, flat)}, remaining[1:])

            if isinstance(latents, Moments):  # of what is affine in them
                return at(latents.mean)
            values = jax.vmap(at)(latents.values)
            has_weight = (latents.weights > 0).reshape(-1, *(1,) * (values.ndim - 1))
            # far out, where weights are 0, the function may be infinite
            return jnp.tensordot(latents.weights, jnp.where(has_weight, values, 0.0), 1)

        def at(states: tuple, means: Mapping[str, jax.Array]):
            env = {**fixed, **args, **dict(zip(scope, states, strict=True))}
            for group in timed:
                env |= placed(plan.structure, group, means[group.name])
            return over(env, groups)

        for i in reversed(range(len(scope))):
            axis = {g: 0 if scope[i] in reach else None for g, reach in reaches.items()}
            at = jax.vmap(at, in_axes=(tuple(0 if i == j else None for j in range(len(scope))),
                                       axis))
        return at(tuple(states_of(plan, v) for v in scope), means)

    return jax.vmap(average_row, axis_size=size)(args, varying, seen, means)


def _over_cells(plan: Plan, params: Mapping, known: Known, rows: Chunk, name: str,
                hidden: Sequence[str], function: Callable[[Mapping], jax.Array],
                size: int) -> jax.Array:
    """As `average_over_latents`, of a site that depends on hidden cells.

    Raises:
        Refusal: an element depends on several of them, or on several groups of latents.
    """
    fixed, scope, (group, *others) = (environment(plan, params, known), plan.scope(name),
                                      plan.groups(name))
    where = f"model '{plan.structure.model.name}': '{name}'"
    if others:
        raise Refusal(f"{where} depends on two sites that are not in the data, '{hidden[0]}' and "
                      f"'{others[0].name}', but only one such site can be averaged out. Draw whole "
                      "rows with simulate(given=data), and average over the draws")

    def row_expectation(own: Mapping[str, jax.Array], varying: Mapping[str, jax.Array], seen: Seen):
        return over_states(plan, lambda env: hidden_cells.expectation(
            plan.structure, group, env, seen, function, hidden), {**fixed, **own, **varying}, scope)

    try:
        return jax.vmap(row_expectation, axis_size=size)(row_environment(plan, known, rows, name),
                                                         _varying(plan, known, rows, group),
                                                         _observed(plan, rows, group))
    except Tangled as tangled:
        raise Refusal(f"{where} is computed from several missing values of '{tangled.names[0]}' in "
                      "the same row of the data, but only one missing value can be averaged out. "
                      "Draw whole rows with simulate(given=data), and average over the "
                      "draws") from None


def split_by_site(plan: Plan, group: Group, flat: jax.Array) -> dict[str, jax.Array]:
    """(..., p) of a group → each latent's own (..., *cells)."""
    return {name: flat[..., part].reshape(*flat.shape[:-1], *plan.structure.sites[name].cells)
            for name, part in slices_of_latents(plan.structure, group.names).items()}


def _map_rows(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group,
              function: Callable[..., PyTree], *found: object) -> PyTree:
    """function(env, seen, *found) of every row and state: leaves (b, *states, ...)."""
    fixed, reach = group_environment(plan, params, known), plan.group_scope(group)

    def row_values(varying: Mapping[str, jax.Array], seen: Seen, *found: object):
        return over_states(plan, lambda env, *found: function(env, seen, *found),
                           {**fixed, **varying}, reach, *found)

    return jax.vmap(row_values, axis_size=len(rows.weights))(
        _varying(plan, known, rows, group), _observed(plan, rows, group), *found
    )


def _varying(plan: Plan, known: Known, rows: Chunk, group: Group) -> dict[str, jax.Array]:
    """What the sites of a group take of a row beside latents and variables."""
    out: dict[str, jax.Array] = {}
    for name in group.sites:
        out |= row_environment(plan, known, rows, name)
    return out


def _observed(plan: Plan, rows: Chunk, group: Group) -> dict[str, tuple]:
    """What is seen of a group: site → (cells, mask or None), (b, lattice cells, own event axes); a
    factor counts as seen, with values that hold nothing; of a hidden site that came as likelihoods
    of its states these, (b, states), which are no whole numbers."""
    sites = plan.structure.sites
    values = {name: rows.values.get(name, jnp.zeros((len(rows.weights), *sites[name].cells)))
              for name in group.sites if name in rows.values or sites[name].factor}
    soft = {name: (rows.likelihood[name], None) for name in group.cellwise
            if name in rows.likelihood}
    return soft | {name: (cells(sites[name], value),
                          cells(sites[name], rows.observed[name]) if name in rows.observed
                          else None)
                   for name, value in values.items()}
