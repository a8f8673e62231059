"""The M-step of groups along time: smoothed moments of a chunk of rows, summed where a group
depends on nothing of rows (Shumway & Stoffer 1982), and the expected log density.

Each of the matrices of a chain is a regression of a step's numbers on those of the step before,
with second moments as sufficient statistics: of (1, s_{t−1}, ε_t), ε_t the noise of a move at the
parameters of the E-step (latents/linear_chain.py).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known, Steps
from probml.elimination.kalman import evidence as kalman_evidence
from probml.elimination.kalman.filter import previous
from probml.errors import present
from probml.factors.linear_chains import (
    at_first,
    map_discrete_states,
    shifted,
    starts,
    states_second,
    steps_first,
    system,
    varying,
)
from probml.factors.naturals import environment, over_states
from probml.latents import linear_chain
from probml.latents.latent import Group
from probml.latents.linear_chain import Line, Middle, Moves
from probml.latents.pooled_normal import Second, added, columns, residuals
from probml.plan.plan import Plan
from probml.structure.densities import cells
from probml.structure.structure import Structure
from probml.typing import PyTree


class Path(NamedTuple):
    """The E-step of a group along time: of every step the states' probability times the row's
    weight, (N, *states), and the numbers' smoothed moments, (N, *states, D), (N, *states, D, D) and
    Cov(s_{t−1}, s_t); and those of the noise of each move at the E-step's parameters. Covariances
    that rows share lead with the steps of one row, (T, *states, D, D)."""

    weight: jax.Array
    mean: jax.Array
    covariance: jax.Array
    across: jax.Array
    noise: kalman_evidence.Noise


class Totals(NamedTuple):
    """Second moments added up over rows and steps: of the moves, of the first states, and of each
    site below; see chain_gains."""

    transition: jax.Array
    initial: jax.Array
    children: dict[str, Second]


def smoothed_moments(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group,
                     weight: jax.Array) -> Path:
    """The E-step of a group in a chunk of rows.

    Args:
        weight: (rows, *states).
    """

    def at(env: dict) -> tuple:
        chain, _, centre = system(plan, env, known, rows, group)
        moments, noise = kalman_evidence.smoothed_moves(chain)
        return jax.tree.map(steps_first, (*moments._replace(mean=moments.mean + centre), noise))

    moments = jax.tree.map(lambda leaf: states_second(leaf, plan.group_scope(group)),
                           map_discrete_states(plan, params, known, group, at))
    moments = jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(leaf), leaf, 0.0), moments)
    steps = rows.along
    spread = jnp.repeat(weight, steps.blocks, 0)
    spread = jnp.broadcast_to(spread, (steps.length, *spread.shape)).reshape(-1, *weight.shape[1:])
    if steps.rows.weights is not None:
        spread = jnp.where(steps.rows.weights.reshape(-1, *(1,) * (spread.ndim - 1)), spread, 0.0)
    return Path(spread, *moments)


def statistics(plan: Plan, rows: Chunk, group: Group, middle: Middle, path: Path) -> Totals:
    """The second moments, over steps and rows, of a group that depends on nothing of rows: leaves
    (*states, ...)."""

    def totals_of(middle: Middle, path: Path):
        steps = rows.along
        first = starts(steps, len(path.weight))
        before = shifted(previous, steps, path.mean - middle.state)
        return Totals(
            _transition_moments(jnp.where(first, 0.0, path.weight), before, path.noise.mean,
                                shifted(previous, steps, path.covariance), path.noise.covariance,
                                path.noise.across),
            _initial_moments(_first_steps(steps, path.weight),
                             _first_steps(steps, path.mean) - middle.state,
                             _first_steps(steps, path.covariance)),
            {name: _second(plan, steps.rows, name, middle.state, old, path.weight, path.mean,
                           path.covariance) for name, old in middle.children.items()})

    for _ in plan.group_scope(group):
        totals_of = jax.vmap(totals_of, in_axes=(0, 1))
    return totals_of(middle, path)


def _first_steps(steps: Steps, leaf: jax.Array) -> jax.Array:
    """The first steps of rows, (rows, ...), or (1, ...) where rows share them."""
    return at_first(steps, leaf)[:: steps.blocks]


def _transition_moments(weight: jax.Array, before: jax.Array, noise: jax.Array,
                        cov_before: jax.Array,
                        cov_noise: jax.Array, cross: jax.Array) -> jax.Array:
    """Σ weight × E[u uᵀ] over n transitions, u = (1, s_{t−1} − s̄, ε_t)."""
    d, ones = before.shape[1], jnp.ones((len(weight), 1), before.dtype)
    u = jnp.concatenate([ones, before, noise], 1)
    cross = added(weight, cross)
    cov = jnp.block([[added(weight, cov_before), cross],
                     [cross.T, added(weight, cov_noise)]])
    return ((weight[:, None] * u).T @ u).at[1 : 1 + 2 * d, 1 : 1 + 2 * d].add(cov)


def _initial_moments(weight: jax.Array, mean: jax.Array, cov: jax.Array) -> jax.Array:
    """Σ weight × E[u uᵀ] over n first states, u = (1, s_1 − its expectation)."""
    u = jnp.concatenate([jnp.ones((len(weight), 1), mean.dtype), mean], 1)
    return ((weight[:, None] * u).T @ u).at[1:, 1:].add(added(weight, cov))


def _second(plan: Plan, rows: Chunk, name: str, state: jax.Array, old: Line, weight: jax.Array,
            mean: jax.Array, covariance: jax.Array) -> Second:
    """The second moments of (1, s − state, x less its location at `old`)."""
    site, deviation = plan.structure.sites[name], mean - state
    residual = columns(site, cells(site, rows.values[name])) - old.offset
    residual = residual - jnp.einsum("cdi,ni->ncd", old.slope, deviation)
    mask = rows.observed.get(name)
    mask = None if mask is None else columns(site, cells(site, mask))
    return residuals(weight, deviation, covariance, residual, mask, old.slope)


def expansion_point(plan: Plan, params: Mapping, known: Known, group: Group) -> Middle:
    """The point about which statistics are taken, over the discrete states of a group."""
    return map_discrete_states(plan, params, known, group,
                               lambda env: linear_chain.expansion_point(plan.structure, group,
                                                                           env))


def gain_from_statistics(plan: Plan, params: Mapping, known: Known, group: Group, middle: Middle,
                         statistics: Totals) -> jax.Array:
    """What Σ over steps, rows and states of weight × E[log p] gains over the point `middle`, from
    statistics."""
    structure = plan.structure

    def expected_gain(env: Mapping[str, jax.Array], middle: Middle, totals: Totals):
        total = sum((_gain_below(structure, group, name, env, middle.state, old,
                                 totals.children[name])
                     for name, old in middle.children.items()), start=jnp.zeros(()))
        total += linear_chain.moves_gain(linear_chain.transition_of(structure, group, env),
                                         middle.transition,
                                        middle.state, totals.transition)
        return total + linear_chain.moves_gain(linear_chain.first(structure, group, env),
                                              middle.initial, middle.state, totals.initial)

    return over_states(plan, expected_gain, environment(plan, params, known),
                       plan.group_scope(group),
                       middle, statistics).sum()


def _gain_below(structure: Structure, group: Group, name: str, env: Mapping, state: jax.Array,
                old: Line, second: Second) -> jax.Array:
    new = linear_chain.line(structure, group, name, env, state)
    return linear_chain.emission_gain(structure.sites[name], new, old, second)


def gain_over_origin(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group,
                     path: Path, origin: Mapping) -> jax.Array:
    """What Σ over steps, rows and states of weight × E[log p] gains over the parameters `origin`,
    from the E-step of a chunk of rows, of a group that depends on data of rows or steps."""
    structure, steps, before = plan.structure, rows.along, environment(plan, origin, known)
    move_args = varying(plan, known, steps, group.names)

    def expected_gain(env: Mapping[str, jax.Array], path: Path):
        total, count = jnp.zeros(()), len(path.weight)
        past = {**env, **before}
        for name in linear_chain.emission_sites(group):
            args = varying(plan, known, steps, (name,))

            def seen(inputs: Mapping[str, jax.Array], x: jax.Array, mask: jax.Array | None,
                     *moments: PyTree, name: str = name):
                site_rows = steps.rows._replace(values={name: x},
                                                observed={} if mask is None else {name: mask})
                state = moments[1][0]
                old = linear_chain.line(structure, group, name, {**past, **inputs}, state)
                second = _second(plan, site_rows, name, state, old, *moments)
                return _gain_below(structure, group, name, {**env, **inputs}, state, old, second)

            total += _sum_over_steps(seen, args, steps.rows.values[name],
                                     steps.rows.observed.get(name),
                                     path.weight, path.mean, path.covariance)

        def transition_gain(inputs: Mapping[str, jax.Array], weight: jax.Array, before: jax.Array,
                            later: jax.Array, cov_before: jax.Array, cov_later: jax.Array,
                            cross: jax.Array):
            old = linear_chain.transition_of(structure, group, {**past, **inputs})
            new = linear_chain.transition_of(structure, group, {**env, **inputs})
            noise = _noise(old, before, later, cov_before, cov_later, cross)
            return linear_chain.moves_gain(new, old, before[0], _transition_moments(
                weight, before - before[0], noise.mean, cov_before, noise.covariance,
                noise.across))

        def initial_gain(inputs: Mapping[str, jax.Array], weight: jax.Array, mean: jax.Array,
                         cov: jax.Array):
            old = linear_chain.first(structure, group, {**past, **inputs})
            new = linear_chain.first(structure, group, {**env, **inputs})
            return linear_chain.moves_gain(new, old, old.offset,
                                          _initial_moments(weight, mean - old.offset,
                                                           cov))

        total += _sum_over_steps(transition_gain, move_args,
                                 jnp.where(starts(steps, count), 0.0, path.weight),
                                 shifted(previous, steps, path.mean), path.mean,
                                 shifted(previous, steps, path.covariance), path.covariance,
                                 path.across)
        return total + _sum_over_steps(initial_gain,
                                       *jax.tree.map(lambda leaf: _first_steps(steps, leaf), (
            move_args, path.weight, path.mean, path.covariance)))

    return over_states(plan, expected_gain, environment(plan, params, known),
                       plan.group_scope(group),
                       path, axis=1).sum()


def _noise(moves: Moves, before: jax.Array, later: jax.Array, cov_before: jax.Array,
           cov_later: jax.Array, cross: jax.Array) -> kalman_evidence.Noise:
    """The noise of n moves at other parameters than the E-step's, from the states' moments."""
    slope = present(moves.slope)
    slope_cross = slope @ cross
    cov = (cov_later - slope_cross - jnp.swapaxes(slope_cross, -1, -2)
           + slope @ cov_before @ slope.T)
    return kalman_evidence.Noise(later - before @ slope.T - moves.offset, cov,
                                 cross - cov_before @ slope.T)


def _sum_over_steps(function: Callable, along: Mapping, *leaves: object) -> jax.Array:
    """Σ of function(along, *leaves), called for every step by itself, or for all steps at once if
    it takes nothing that differs along them."""
    if not along:
        return function({}, *leaves)
    return jax.vmap(lambda row, *more: function(row, *jax.tree.map(
        lambda leaf: leaf[None], more)))(along, *leaves).sum()
