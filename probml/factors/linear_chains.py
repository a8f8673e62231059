"""Groups of latents along time: the programs of a step, over steps, rows and states, as a system of
Kalman's filter; and its results as factors, moments and paths of rows.

The arrays of steps lead with one axis in the order (L, rows, blocks) (factors/sequences.py), in a
system with the lanes last. Arguments that depend on no row and no step are computed once for all.
"""

import functools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from probml.device.rows import Chunk, Known, Steps
from probml.elimination.factor import Factor
from probml.elimination.kalman import evidence
from probml.elimination.kalman import evidence as kalman_evidence
from probml.elimination.kalman import filter as kalman
from probml.elimination.kalman.evidence import forward
from probml.factors.naturals import group_environment, over_states
from probml.factors.rowwise import row_environment
from probml.latents import linear_chain
from probml.latents.latent import Group, places
from probml.latents.linear_chain import Moves, Sight
from probml.plan.plan import Plan
from probml.structure.densities import cells
from probml.typing import PyTree


def message(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group) -> Factor:
    """log p(data of a group | states), its numbers integrated out: (rows, *states)."""
    def at(env: dict) -> jax.Array:
        chain, volume, _ = system(plan, env, known, rows, group)
        return kalman_evidence.evidence(chain) + volume

    log = over(plan, params, known, group, at)
    return Factor(jnp.moveaxis(log, -1, 0), plan.group_scope(group))


def means(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group,
          view: str) -> jax.Array:
    """Means of the numbers of every step, (N, *states, D): given all data of the row, "filtered"
    given those up to the step, or "predicted" given those before it."""

    def at(env: dict) -> jax.Array:
        chain, _, centre = system(plan, env, known, rows, group)
        if view == "all":
            return steps_first(kalman_evidence.smoothed(chain).mean + centre)
        found = forward(chain)
        return steps_first((found.after if view == "filtered" else found.before)[0] + centre)

    return states_second(over(plan, params, known, group, at), plan.group_scope(group))


def moments(plan: Plan, params: Mapping, known: Known, rows: Chunk,
            group: Group) -> tuple[jax.Array, jax.Array]:
    """Means and covariances of the numbers of every step given the row: (N, *states, D), (N,
    *states, D, D), or (T, *states, D, D) where rows share them."""

    def at(env: dict) -> tuple:
        chain, _, centre = system(plan, env, known, rows, group)
        found = kalman_evidence.smoothed(chain)
        return steps_first(found.mean + centre), steps_first(found.covariance)

    return jax.tree.map(lambda leaf: states_second(leaf, plan.group_scope(group)),
                        over(plan, params, known, group, at))


def draw(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group, states: Mapping,
         key: jax.Array) -> dict[str, jax.Array]:
    """Paths of the numbers of each row drawn given it and its states: site → (rows, *cells).

    Args:
        states: variable → (rows,) its joint states.
    """
    reach = plan.group_scope(group)

    def at(env: dict) -> jax.Array:
        chain, _, centre = system(plan, env, known, rows, group)
        return evidence.draw(chain, key) + centre

    paths = over(plan, params, known, group, at)  # (*states, T, D, M)
    for i in range(len(reach)):
        index = jnp.repeat(jnp.broadcast_to(states[reach[i]], rows.weights.shape),
                           rows.along.blocks)
        paths = jnp.take_along_axis(paths, index.reshape(*(1,) * (paths.ndim - 1), -1), 0)[0]
    flat = rows.along.folded(steps_first(paths))  # (rows, time, D)
    return {name: _cells(plan, name, flat[..., part])
            for name, part in places(plan.structure, group.names).items()}


def _cells(plan: Plan, name: str, value: jax.Array) -> jax.Array:
    """(rows, T, numbers) of a latent → (rows, *cells), with time where it runs."""
    site = plan.structure.sites[name]
    if site.time is None:
        return value[:, 0].reshape(len(value), *site.cells)
    value = value.reshape(*value.shape[:2], *site.cells)
    return jnp.moveaxis(jnp.squeeze(value, 2 + site.time), 1, 1 + site.time)


# The data, and the programs of a step


def over(plan: Plan, params: Mapping, known: Known, group: Group,
          function: Callable[[dict], PyTree]) -> PyTree:
    """function(env) over the discrete states on which a group depends: leaves (*states, ...)."""
    return over_states(plan, function, group_environment(plan, params, known),
                       plan.group_scope(group))


def varying(plan: Plan, known: Known, steps: Steps, names: tuple[str, ...]) -> dict:
    """The arguments of sites that vary by row or step, but for latents and variables, (N, ...)."""
    out: dict[str, jax.Array] = {}
    for name in names:
        out |= row_environment(plan, known, steps.rows, name)
    return out


def _led(function: Callable[[Mapping], PyTree], env: Mapping, moving: Mapping) -> PyTree:
    """function(env) of every step, or once where nothing varies by step: leaves lead with N, or
    1."""
    if not moving:
        return jax.tree.map(lambda leaf: leaf[None], function(env))
    return jax.vmap(lambda own: function({**env, **own}))(moving)


def at_first(steps: Steps, leaf: jax.Array) -> jax.Array:
    """(N, ...) → (rows, ...) at the first step."""
    return leaf.reshape(steps.length, -1, *leaf.shape[1:])[0]


def _to_lanes(steps: Steps, leaf: jax.Array) -> jax.Array:
    """(N or 1, ...) → (T or 1, ..., M or 1)."""
    if len(leaf) == 1:
        return leaf[..., None]
    lanes = len(leaf) // steps.length  # not -1: the array may be empty
    return jnp.moveaxis(leaf.reshape(steps.length, lanes, *leaf.shape[1:]), 1, -1)


def steps_first(leaf: jax.Array) -> jax.Array:
    """(T, ..., M) → (N, ...)."""
    leaf = jnp.moveaxis(leaf, -1, 1)
    return leaf.reshape(-1, *leaf.shape[2:])


def states_second(leaf: jax.Array, reach: tuple[str, ...]) -> jax.Array:
    """(*states, N, ...) → (N, *states, ...)."""
    return jnp.moveaxis(leaf, len(reach), 0)


def system(plan: Plan, env: Mapping, known: Known, rows: Chunk,
            group: Group) -> tuple[kalman.System, jax.Array, jax.Array]:
    """The system of the filter at one state of the discrete sites; log volumes of the data,
    (rows,); and the origin of its states, (D, lanes or 1): the mean of the first state of each row,
    so that a level far from 0 keeps its precision."""
    steps, size = rows.along, len(rows.weights)
    begin, moves, sight = _programs(plan, env, known, rows, group)
    value, masks = _seen(plan, steps, steps.length * size * steps.blocks, group, sight)
    which, given, shown = _given(plan, steps, size, group)
    slope = jnp.concatenate([sight.slope, jnp.broadcast_to(which, (len(sight.slope),
                                                                   *which.shape))], 1)
    variance = jnp.pad(sight.variance, ((0, 0), (0, len(which))))
    log = jnp.pad(sight.log, ((0, 0), (0, len(which))))
    alive = steps.rows.weights
    alive = None if alive is None else alive.reshape(steps.length, -1)
    if alive is not None and steps.even and steps.blocks == 1:
        alive = alive[:, :1]  # rows that pad a chunk have no weight, whatever their steps
    seen = _concatenate_masks(masks + shown)
    seen = seen if alive is None else seen & alive[:, None]
    lanes = (steps.length, seen.shape[1], size * steps.blocks)
    volume = jnp.broadcast_to(jnp.where(seen, _to_lanes(steps, log), 0.0), lanes)
    volume = volume.reshape(*lanes[:2], size, steps.blocks).sum((0, 1, 3))
    chain = kalman.System(*(
        jnp.moveaxis(begin.offset, 0, -1), jnp.moveaxis(begin.covariance, 0, -1),
        *(_to_lanes(steps, leaf) for leaf in (*moves, jnp.concatenate([value, given], 1), slope,
                                              variance)), seen, alive, steps.blocks
    ))
    centre = chain.mean
    if centre.shape[-1] > 1:  # of a sequence in blocks that of its first block
        centre = jnp.repeat(centre[:, :: steps.blocks], steps.blocks, 1)
    return kalman.centred(chain, centre), volume, centre


def _concatenate_masks(masks: list) -> jax.Array:
    """Masks (T or 1, numbers, M or 1) concatenated along their numbers."""
    steps, lanes = (max(mask.shape[axis] for mask in masks) for axis in (0, 2))
    return jnp.concatenate([jnp.broadcast_to(mask, (steps, mask.shape[1], lanes))
                            for mask in masks], 1)


def _programs(plan: Plan, env: Mapping, known: Known, rows: Chunk,
              group: Group) -> tuple[Moves, Moves, Sight]:
    """First states, moves and measurements of every step."""
    steps = rows.along
    own = varying(plan, known, steps, group.names)
    begun = {name: at_first(steps, leaf) for name, leaf in own.items()}
    below = varying(plan, known, steps, linear_chain.emission_sites(group))
    return tuple(_led(functools.partial(made, plan.structure, group), env, moving)
                 for made, moving in ((linear_chain.first, begun), (linear_chain.moves, own),
                                      (linear_chain.sight, below)))


def shifted(by: Callable, steps: Steps, leaf: jax.Array) -> jax.Array:
    """An array of steps, (N, ...), moved along time `by` filter.previous or filter.following."""
    return by(leaf.reshape(steps.length, -1, *leaf.shape[1:]), 1).reshape(leaf.shape)


def _seen(plan: Plan, steps: Steps, count: int, group: Group,
          sight: linear_chain.Sight) -> tuple[jax.Array, list]:
    """The data of the observed sites less their location at states of 0, vectors standardised, (N,
    m), and masks of each site, (T or 1, numbers, M or 1), of size 1 where all is observed."""
    values, masks, start = [jnp.zeros((count, 0))], [np.ones((1, 0, 1), bool)], 0
    for name in linear_chain.emission_sites(group):
        site = plan.structure.sites[name]
        x = cells(site, steps.rows.values[name])
        stop = start + x[0].size
        left = x.reshape(count, -1) - sight.offset[:, start:stop]
        mask = steps.rows.seen.get(name)
        if name in sight.roots:  # a partially observed vector counts as missing
            left = left.reshape(x.shape)
            if mask is not None:
                mask = jnp.broadcast_to(mask.reshape(x.shape).all(-1, keepdims=True), x.shape)
                left = jnp.where(mask, left, 0.0)
            left = solve_triangular(jnp.broadcast_to(sight.roots[name], (
                count, *sight.roots[name].shape[1:])), left[..., None], lower=True)
        values.append(left.reshape(count, -1))
        masks.append(np.ones((1, stop - start, 1), bool) if mask is None
                     else _to_lanes(steps, mask.reshape(count, -1)))
        start = stop
    return jnp.concatenate(values, 1), masks


def _given(plan: Plan, steps: Steps, size: int,
           group: Group) -> tuple[jax.Array, jax.Array, list]:
    """The numbers of a state that are observed themselves: which, (m, D), their values, (N, m), and
    masks as `_seen` returns them; those of the row itself are measured at its first step."""
    lanes, sites = size * steps.blocks, plan.structure.sites
    count = steps.length * lanes
    first = kalman.sequence_starts(steps.length, 1 if steps.blocks == 1 else lanes, steps.blocks)
    where: list[int] = []
    values, masks = [jnp.zeros((count, 0))], [np.ones((1, 0, 1), bool)]
    for name, part in places(plan.structure, group.names).items():
        if name in steps.rows.values:
            x, mask = steps.rows.values[name], steps.rows.seen.get(name)
            values.append(cells(sites[name], x).reshape(count, -1))
            shown = np.ones((1, part.stop - part.start, 1), bool)
            if sites[name].time is None:
                shown = shown & first[:, None]
            if mask is not None:
                shown = shown & _to_lanes(steps, cells(sites[name], mask).reshape(count, -1))
            masks.append(shown)
            where += range(part.start, part.stop)
    return jnp.eye(part.stop)[jnp.asarray(where, int)], jnp.concatenate(values, 1), masks


def starts(steps: Steps, count: int) -> np.ndarray:
    """Which of so many steps, (N,), are the first of their rows."""
    return kalman.sequence_starts(steps.length, count // steps.length, steps.blocks).reshape(-1)
