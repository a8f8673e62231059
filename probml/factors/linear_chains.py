"""Groups of latents along time: programs of a step, run over steps and rows and states → what
Kalman's filter takes, and its answers → factors, beliefs and statistics of rows.

Steps travel as rows of their own in the order (L, rows) (factors/sequences.py), here with the lanes
last. What a program takes of no row and no step is computed once for all.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from probml.device.rows import Chunk, Known, Steps
from probml.elimination import kalman, kalman_evidence, kalman_paths
from probml.elimination.factor import Factor
from probml.elimination.kalman_blocks import forward
from probml.factors.naturals import environment, over_states, states_of
from probml.factors.rowwise import row_environment
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


def message(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group) -> Factor:
    """log p(what is seen of a group | states), its numbers integrated out: (rows, *states)."""
    def at(env: dict) -> jax.Array:
        system, volume = _system(plan, env, known, rows, group)
        return kalman_evidence.evidence(system) + volume

    log = _over(plan, params, known, group, at)
    return Factor(jnp.moveaxis(log, -1, 0), plan.reach(group))


def means(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group,
          view: str) -> jax.Array:
    """Means of the numbers of every step, (N, *states, D): given all of the row, "filtered" by what
    is seen up to the step, or "predicted" by what is seen before it."""

    def at(env: dict) -> jax.Array:
        system, _ = _system(plan, env, known, rows, group)
        if view == "all":
            return _steps_first(kalman_evidence.smoothed(system).mean)
        found = forward(system)
        return _steps_first((found.after if view == "filtered" else found.before)[0])

    return _states_second(_over(plan, params, known, group, at), plan.reach(group))


def moments(plan: Plan, params: Mapping, known: Known, rows: Chunk,
            group: Group) -> tuple[jax.Array, jax.Array]:
    """Means and covariances of the numbers of every step given the row: (N, *states, D), (N,
    *states, D, D)."""

    def at(env: dict) -> tuple:
        found = kalman_evidence.smoothed(_system(plan, env, known, rows, group)[0])
        return _steps_first(found.mean), _steps_first(found.covariance)

    return jax.tree.map(lambda leaf: _states_second(leaf, plan.reach(group)),
                        _over(plan, params, known, group, at))


def draw(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group, states: Mapping,
         key: jax.Array) -> dict[str, jax.Array]:
    """Paths of the numbers of each row drawn given it and its states: site → (rows, *cells).

    Args:
        states: variable → (rows,) its joint states.
    """
    reach = plan.reach(group)

    def at(env: dict) -> jax.Array:
        return kalman_paths.draw(_system(plan, env, known, rows, group)[0], key)

    paths = _over(plan, params, known, group, at)  # (*states, T, D, M)
    for i in range(len(reach)):
        index = jnp.repeat(jnp.broadcast_to(states[reach[i]], rows.weights.shape),
                           rows.steps.blocks)
        paths = jnp.take_along_axis(paths, index.reshape(*(1,) * (paths.ndim - 1), -1), 0)[0]
    flat = rows.steps.folded(_steps_first(paths))  # (rows, time, D)
    return {name: _cells(plan, name, value) for name, value in apart(plan, group, flat).items()}


def apart(plan: Plan, group: Group, flat: jax.Array) -> dict[str, jax.Array]:
    """(..., D) of a group → each latent's own (..., its numbers)."""
    out, start = {}, 0
    for name, size in linear_chain.sizes(plan.structure, group).items():
        out[name] = flat[..., start : start + size]
        start += size
    return out


def _cells(plan: Plan, name: str, value: jax.Array) -> jax.Array:
    """(rows, T, numbers) of a latent → (rows, *cells), with time where it runs."""
    site = plan.structure.sites[name]
    if site.time is None:
        return value[:, 0].reshape(len(value), *site.cells)
    value = value.reshape(*value.shape[:2], *site.cells)
    return jnp.moveaxis(jnp.squeeze(value, 2 + site.time), 1, 1 + site.time)


# What is seen, and the programs of a step


def _over(plan: Plan, params: Mapping, known: Known, group: Group,
          function: Callable[[dict], Any]) -> Any:
    """function(env) over the states beside a group: leaves (*states, ...)."""
    fixed, reach = environment(plan, params, known), plan.reach(group)
    return over_states(plan, lambda *states: function(
        {**fixed, **dict(zip(reach, states, strict=True))}
    ), reach)


def _varying(plan: Plan, known: Known, steps: Steps, names: tuple[str, ...]) -> dict:
    """What sites take of rows and steps beside latents and variables, (N, ...)."""
    out: dict[str, jax.Array] = {}
    for name in names:
        out |= row_environment(plan, known, steps.rows, name)
    return out


def _led(function: Callable[[Mapping], Any], env: Mapping, varying: Mapping) -> Any:
    """function(env) of every step, or, where it takes nothing of them, once: leaves lead with N, or
    1."""
    if not varying:
        return jax.tree.map(lambda leaf: leaf[None], function(env))
    return jax.vmap(lambda own: function({**env, **own}))(varying)


def _first(steps: Steps, leaf: jax.Array) -> jax.Array:
    """(N, ...) → (rows, ...) at the first step."""
    return leaf.reshape(steps.length, -1, *leaf.shape[1:])[0]


def _lanes(steps: Steps, leaf: jax.Array) -> jax.Array:
    """(N or 1, ...) → (T or 1, ..., M or 1)."""
    if len(leaf) == 1:
        return leaf[..., None]
    return jnp.moveaxis(leaf.reshape(steps.length, -1, *leaf.shape[1:]), 1, -1)


def _steps_first(leaf: jax.Array) -> jax.Array:
    """(T, ..., M) → (N, ...)."""
    leaf = jnp.moveaxis(leaf, -1, 1)
    return leaf.reshape(-1, *leaf.shape[2:])


def _states_second(leaf: jax.Array, reach: tuple[str, ...]) -> jax.Array:
    """(*states, N, ...) → (N, *states, ...)."""
    return jnp.moveaxis(leaf, len(reach), 0)


def _system(plan: Plan, env: Mapping, known: Known, rows: Chunk,
            group: Group) -> tuple[kalman.System, jax.Array]:
    """What the filter takes at one state of the discrete sites beside a group; and log volumes of
    what is seen, (rows,)."""
    structure, steps, size = plan.structure, rows.steps, len(rows.weights)
    own = _varying(plan, known, steps, group.names)
    begin = _led(lambda at: linear_chain.first(structure, group, at), env,
                 {name: _first(steps, leaf) for name, leaf in own.items()})
    moves = _led(lambda at: linear_chain.moves(structure, group, at), env, own)
    sight = _led(lambda at: linear_chain.sight(structure, group, at), env,
                 _varying(plan, known, steps, linear_chain.below(group)))
    value, seen = _seen(plan, steps, steps.length * size * steps.blocks, group, sight)
    which, given, shown = _given(plan, steps, size, group)
    slope = jnp.concatenate([sight.slope, jnp.broadcast_to(which, (len(sight.slope),
                                                                   *which.shape))], 1)
    variance = jnp.pad(sight.variance, ((0, 0), (0, len(which))))
    log = jnp.pad(sight.log, ((0, 0), (0, len(which))))
    alive = steps.rows.weights
    seen = seen if alive is None else seen & alive[:, None]
    value, seen = jnp.concatenate([value, given], 1), jnp.concatenate([seen, shown], 1)
    alive = None if alive is None else alive.reshape(steps.length, -1)
    volume = jnp.where(seen, log, 0.0).reshape(steps.length, size, -1).sum((0, 2))
    return kalman.System(
        jnp.moveaxis(begin.offset, 0, -1), jnp.moveaxis(begin.covariance, 0, -1),
        *(_lanes(steps, leaf) for leaf in moves), _lanes(steps, value), _lanes(steps, slope),
        _lanes(steps, variance), _lanes(steps, seen), alive, steps.blocks
    ), volume


def _seen(plan: Plan, steps: Steps, count: int, group: Group,
          sight: linear_chain.Sight) -> tuple[jax.Array, jax.Array]:
    """What is seen below, less its location at states of 0, vectors standardised, and which of it:
    (N, m)."""
    values, masks, start = [jnp.zeros((count, 0))], [jnp.zeros((count, 0), bool)], 0
    for name in linear_chain.below(group):
        site = plan.structure.sites[name]
        x = cells(site, steps.rows.values[name])
        stop = start + x[0].size
        left = x.reshape(count, -1) - sight.offset[:, start:stop]
        mask = steps.rows.seen.get(name)
        mask = jnp.ones(left.shape, bool) if mask is None else mask.reshape(left.shape)
        if name in sight.roots:  # a vector is seen whole or not at all
            mask = jnp.broadcast_to(mask.reshape(x.shape).all(-1, keepdims=True), x.shape)
            left = jnp.where(mask, left.reshape(x.shape), 0.0)
            left = solve_triangular(jnp.broadcast_to(sight.roots[name], (
                count, *sight.roots[name].shape[1:])), left[..., None], lower=True)
            mask = mask.reshape(count, -1)
        values.append(left.reshape(count, -1))
        masks.append(mask)
        start = stop
    return jnp.concatenate(values, 1), jnp.concatenate(masks, 1)


def _given(plan: Plan, steps: Steps, size: int,
           group: Group) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The numbers of a state that are seen themselves: which, (m, D), their values and where they
    are seen, (N, m): at steps that count, those of the row itself at its first step."""
    lanes, sites, alive = size * steps.blocks, plan.structure.sites, steps.rows.weights
    count = steps.length * lanes
    alive = jnp.ones(count, bool) if alive is None else alive
    first = _starts(steps, count)
    width = linear_chain.sizes(plan.structure, group)
    eye, start, at = jnp.eye(sum(width.values())), 0, []
    values, masks = [jnp.zeros((count, 0))], [jnp.zeros((count, 0), bool)]
    for name, numbers in width.items():
        if name in steps.rows.values:
            x, mask = steps.rows.values[name], steps.rows.seen.get(name)
            values.append(cells(sites[name], x).reshape(count, -1))
            shown = (first if sites[name].time is None else alive)[:, None]
            masks.append(jnp.broadcast_to(shown, (count, numbers)) if mask is None
                         else shown & cells(sites[name], mask).reshape(count, -1))
            at += range(start, start + numbers)
        start += numbers
    return (eye[jnp.asarray(at, int)], jnp.concatenate(values, 1), jnp.concatenate(masks, 1))


# What an M-step needs


def beliefs(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group,
            weight: jax.Array) -> Path:
    """What an E-step knows of a group in a chunk of rows.

    Args:
        weight: (rows, *states).
    """

    def at(env: dict) -> tuple:
        found = kalman_evidence.smoothed(_system(plan, env, known, rows, group)[0])
        return tuple(map(_steps_first, found))

    found = (_states_second(leaf, plan.reach(group))
             for leaf in _over(plan, params, known, group, at))
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
    mean, first = path.mean - middle[""], _starts(steps, len(path.weight))
    out: dict[str, Any] = {}
    for name in linear_chain.below(group) if names is None else names:
        out[name] = _second(plan, steps.rows, name, middle, path.weight, mean, path.covariance)
    out["moves"] = _moved(jnp.where(first, 0.0, path.weight), _before(steps, mean), mean,
                          _before(steps, path.covariance), path.covariance, path.across)
    at = np.flatnonzero(first)
    out["begin"] = _begun(path.weight[at], mean[at], path.covariance[at])
    return out


def _starts(steps: Steps, count: int) -> np.ndarray:
    """Which of so many steps, (N,), are the first of their rows."""
    lanes = count // steps.length
    return kalman.begins(steps.length, lanes, steps.blocks).reshape(-1)


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
    return _over(plan, params, known, group, lambda env: linear_chain.middle(plan.structure, group,
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
    own = {name: _varying(plan, known, steps, (name,)) for name in below}
    moving = _varying(plan, known, steps, group.names)
    fixed = tuple(name for name in below if not own[name])
    means = {name: columns(sites[name], cells(sites[name], steps.rows.values[name])).mean(0)
             for name in below}

    def one(env, path):
        start, first = path.mean[0], _starts(steps, len(path.weight))
        middle, found = {"": start, **means}, {}
        found = _seconds(plan, steps, group, middle, path, fixed)
        total = sum((linear_chain.log_seen(structure, group, name, env, middle, found[name])
                     for name in fixed), start=jnp.zeros(()))
        for name in (name for name in below if own[name]):

            def step(varying, x, seen, weight, mean, covariance, name=name):
                alone = steps.rows._replace(values={name: x}, seen={} if seen is None
                                            else {name: seen})
                second = _second(plan, alone, name, middle, weight, mean - start, covariance)
                return linear_chain.log_seen(structure, group, name, {**env, **varying}, middle,
                                             second)

            total += _each(step, own[name], steps.rows.values[name], steps.rows.seen.get(name),
                           path.weight, path.mean, path.covariance)
        if not moving:
            total += linear_chain.log_moves(linear_chain.moves(structure, group, env), start,
                                            found["moves"])
            return total + linear_chain.log_moves(linear_chain.first(structure, group, env), start,
                                                  found["begin"])

        def moved(varying, *pair):
            return linear_chain.log_moves(linear_chain.moves(structure, group, {**env, **varying}),
                                          start, _moved(*pair))

        def begun(varying, *first):
            return linear_chain.log_moves(linear_chain.first(structure, group, {**env, **varying}),
                                          start, _begun(*first))

        mean, at = path.mean - start, np.flatnonzero(first)
        total += _each(moved, moving, jnp.where(first, 0.0, path.weight), _before(steps, mean),
                       mean, _before(steps, path.covariance), path.covariance, path.across)
        return total + _each(begun, jax.tree.map(lambda leaf: leaf[at], moving), path.weight[at],
                             mean[at], path.covariance[at])

    return _walked(plan, params, known, group, one, (path,), 1).sum()


def _each(function: Callable, varying: Mapping, *leaves: Any) -> jax.Array:
    """Σ of function(varying, *leaves) of every step by itself."""
    return jax.vmap(lambda own, *more: function(own, *jax.tree.map(
        lambda leaf: leaf[None], more)))(varying, *leaves).sum()


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
