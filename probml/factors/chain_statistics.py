"""What an M-step needs of groups along time: smoothed moments of a chunk of rows, added up where a
group takes nothing of rows (Shumway & Stoffer 1982), and the expectations that it climbs.

Each of the matrices of a chain is a regression of a step's numbers on those of the step before, so
that second moments of (1, s_{t−1}, s_t) are all that it takes.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Chunk, Known, Steps
from probml.elimination import kalman_evidence
from probml.factors.linear_chains import (
    over,
    starts,
    states_second,
    steps_first,
    system,
    varying,
)
from probml.factors.naturals import environment, states_of
from probml.latents import linear_chain
from probml.latents.latent import Group
from probml.latents.pooled_normal import Second, columns, seconds
from probml.plan.plan import Plan
from probml.structure.densities import cells


class Path(NamedTuple):
    """What an E-step knows of a group along time: of every step the states' probability times the
    row's weight, (N, *states), and the numbers' smoothed moments, (N, *states, D), (N, *states, D,
    D) and Cov(s_{t−1}, s_t)."""

    weight: jax.Array
    mean: jax.Array
    covariance: jax.Array
    across: jax.Array


def beliefs(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group,
            weight: jax.Array) -> Path:
    """What an E-step knows of a group in a chunk of rows.

    Args:
        weight: (rows, *states).
    """

    def at(env: dict) -> tuple:
        found = kalman_evidence.smoothed(system(plan, env, known, rows, group)[0])
        return tuple(map(steps_first, found))

    found = (states_second(leaf, plan.reach(group))
             for leaf in over(plan, params, known, group, at))
    found = (jnp.where(jnp.isfinite(leaf), leaf, 0.0) for leaf in found)
    steps = rows.steps
    spread = jnp.repeat(weight, steps.blocks, 0)
    spread = jnp.broadcast_to(spread, (steps.length, *spread.shape)).reshape(-1, *weight.shape[1:])
    if steps.rows.weights is not None:
        spread = jnp.where(steps.rows.weights.reshape(-1, *(1,) * (spread.ndim - 1)), spread, 0.0)
    return Path(spread, *found)


def statistics(plan: Plan, rows: Chunk, group: Group, middle: Any,
               path: Path) -> dict[str, Any]:
    """The second moments of a group that takes nothing of rows, over steps and rows: leaves
    (*states, ...)."""

    def one(middle, path):
        return _seconds(plan, rows.steps, group, middle, path)

    for _ in plan.reach(group):
        one = jax.vmap(one, in_axes=(0, 1))
    return one(middle, path)


def _seconds(plan: Plan, steps: Steps, group: Group, middle: Mapping, path: Path,
             names: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Second moments of the sites below, and of the moves, added up over steps."""
    mean, first = path.mean - middle[""], starts(steps, len(path.weight))
    out: dict[str, Any] = {}
    for name in linear_chain.below(group) if names is None else names:
        out[name] = _second(plan, steps.rows, name, middle, path.weight, mean, path.covariance)
    out["moves"] = _moved(jnp.where(first, 0.0, path.weight), _before(steps, mean), mean,
                          _before(steps, path.covariance), path.covariance, path.across)
    at = np.flatnonzero(first)
    out["begin"] = _begun(path.weight[at], mean[at], path.covariance[at])
    return out


def _before(steps: Steps, leaf: jax.Array) -> jax.Array:
    """What was a step before, (N, ...)."""
    lanes = leaf.reshape(steps.length, -1, *leaf.shape[1:])
    return jnp.concatenate([jnp.roll(lanes[-1:], 1, 1), lanes[:-1]]).reshape(leaf.shape)


def _moved(weight: jax.Array, before: jax.Array, later: jax.Array, spread_before: jax.Array,
           spread_later: jax.Array, across: jax.Array) -> jax.Array:
    """Σ weight × E[u uᵀ], u = (1, s_{t−1}, s_t), of n pairs of states."""
    d, one = before.shape[1], jnp.ones((len(weight), 1), before.dtype)
    both = jnp.concatenate([one, before, later], 1)
    across = jnp.tensordot(weight, across, 1)
    spread = jnp.block([[jnp.tensordot(weight, spread_before, 1), across],
                        [across.T, jnp.tensordot(weight, spread_later, 1)]])
    return ((weight[:, None] * both).T @ both).at[1 : 1 + 2 * d, 1 : 1 + 2 * d].add(spread)


def _begun(weight: jax.Array, mean: jax.Array, spread: jax.Array) -> jax.Array:
    """The same of u = (1, s_1), of n states."""
    one = jnp.concatenate([jnp.ones((len(weight), 1), mean.dtype), mean], 1)
    return ((weight[:, None] * one).T @ one).at[1:, 1:].add(jnp.tensordot(weight, spread, 1))


def _second(plan: Plan, rows: Chunk, name: str, middle: Mapping, weight: jax.Array,
            mean: jax.Array, covariance: jax.Array) -> Second:
    site = plan.structure.sites[name]
    x = columns(site, cells(site, rows.values[name])) - middle[name]
    mask = rows.seen.get(name)
    mask = None if mask is None else columns(site, cells(site, mask))
    return seconds(weight, mean, covariance, x, mask, slice(0), x.shape[1])


def middles(plan: Plan, params: Mapping, known: Known, group: Group) -> Any:
    """Where a group stands before anything is seen, over its states."""
    return over(plan, params, known, group, lambda env: linear_chain.middle(plan.structure, group,
                                                                              env))


def pooled(plan: Plan, params: Mapping, known: Known, group: Group, middle: Any,
           statistics: Any) -> jax.Array:
    """Σ over steps, rows and states of weight × E[log p | params], from statistics."""
    structure = plan.structure

    def one(env, middle, found):
        total = sum((linear_chain.log_seen(structure, group, name, env, middle, found[name])
                     for name in linear_chain.below(group)), start=jnp.zeros(()))
        total += linear_chain.log_moves(linear_chain.moves(structure, group, env), middle[""],
                                        found["moves"])
        return total + linear_chain.log_moves(linear_chain.first(structure, group, env),
                                              middle[""], found["begin"])

    return _walked(plan, params, known, group, one, (middle, statistics), 0).sum()


def expected(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group,
             path: Path) -> jax.Array:
    """The same from the beliefs of a chunk of rows, of a group that takes something of rows or
    steps: what takes nothing is added up first."""
    structure, steps, sites = plan.structure, rows.steps, plan.structure.sites
    below = linear_chain.below(group)
    own = {name: varying(plan, known, steps, (name,)) for name in below}
    moving = varying(plan, known, steps, group.names)
    fixed = tuple(name for name in below if not own[name])
    means = {name: columns(sites[name], cells(sites[name], steps.rows.values[name])).mean(0)
             for name in below}

    def one(env, path):
        start, first = path.mean[0], starts(steps, len(path.weight))
        middle, found = {"": start, **means}, {}
        found = _seconds(plan, steps, group, middle, path, fixed)
        total = sum((linear_chain.log_seen(structure, group, name, env, middle, found[name])
                     for name in fixed), start=jnp.zeros(()))
        for name in (name for name in below if own[name]):

            def step(along, x, seen, weight, mean, covariance, name=name):
                alone = steps.rows._replace(values={name: x}, seen={} if seen is None
                                            else {name: seen})
                second = _second(plan, alone, name, middle, weight, mean - start, covariance)
                return linear_chain.log_seen(structure, group, name, {**env, **along}, middle,
                                             second)

            total += _each(step, own[name], steps.rows.values[name], steps.rows.seen.get(name),
                           path.weight, path.mean, path.covariance)
        if not moving:
            total += linear_chain.log_moves(linear_chain.moves(structure, group, env), start,
                                            found["moves"])
            return total + linear_chain.log_moves(linear_chain.first(structure, group, env), start,
                                                  found["begin"])

        def moved(along, *pair):
            return linear_chain.log_moves(linear_chain.moves(structure, group, {**env, **along}),
                                          start, _moved(*pair))

        def begun(along, *first):
            return linear_chain.log_moves(linear_chain.first(structure, group, {**env, **along}),
                                          start, _begun(*first))

        mean, at = path.mean - start, np.flatnonzero(first)
        total += _each(moved, moving, jnp.where(first, 0.0, path.weight), _before(steps, mean),
                       mean, _before(steps, path.covariance), path.covariance, path.across)
        return total + _each(begun, jax.tree.map(lambda leaf: leaf[at], moving), path.weight[at],
                             mean[at], path.covariance[at])

    return _walked(plan, params, known, group, one, (path,), 1).sum()


def _each(function: Callable, along: Mapping, *leaves: Any) -> jax.Array:
    """Σ of function(along, *leaves) of every step by itself."""
    return jax.vmap(lambda own, *more: function(own, *jax.tree.map(
        lambda leaf: leaf[None], more)))(along, *leaves).sum()


def _walked(plan: Plan, params: Mapping, known: Known, group: Group, function: Callable,
            more: tuple, axis: int) -> jax.Array:
    """function(env, *more) over the states beside a group, of which `more` has axes from `axis`
    on."""
    fixed, reach = environment(plan, params, known), plan.reach(group)

    def at(states, more):
        return function({**fixed, **dict(zip(reach, states, strict=True))}, *more)

    for i in reversed(range(len(reach))):
        own = tuple(0 if i == j else None for j in range(len(reach)))
        at = jax.vmap(at, in_axes=(own, axis))
    return at(tuple(states_of(plan, name) for name in reach), more)
