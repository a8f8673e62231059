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
from probml.latents.latent import Group, slices_of_latents
from probml.latents.linear_chain import Emission, Moves
from probml.plan.plan import Plan
from probml.structure.densities import cells
from probml.typing import PyTree


def message(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group) -> Factor:
    """log p(data of a group | states), its numbers integrated out: (rows, *states)."""
    def at(env: dict) -> jax.Array:
        chain, volume, _ = system(plan, env, known, rows, group)
        return kalman_evidence.evidence(chain) + volume

    log = map_discrete_states(plan, params, known, group, at)
    return Factor(jnp.moveaxis(log, -1, 0), plan.group_scope(group))


def means(plan: Plan, params: Mapping, known: Known, rows: Chunk, group: Group,
          view: str) -> jax.Array:
    """Means of the numbers of every step, (N, *states, D): given all data of the row, "filtered"
    given those up to the step, or "predicted" given those before it."""

    def at(env: dict) -> jax.Array:
        chain, _, centre = system(plan, env, known, rows, group)
        if view == "all":
            return steps_first(kalman_evidence.smoothed(chain).mean + centre)
        filtered = forward(chain)
        return steps_first((filtered.filtered if view == "filtered"
                            else filtered.predicted)[0] + centre)

    return states_second(map_discrete_states(plan, params, known, group, at),
                         plan.group_scope(group))


def moments(plan: Plan, params: Mapping, known: Known, rows: Chunk,
            group: Group) -> tuple[jax.Array, jax.Array]:
    """Means and covariances of the numbers of every step given the row: (N, *states, D), (N,
    *states, D, D), or (T, *states, D, D) where rows share them."""

    def at(env: dict) -> tuple:
        chain, _, centre = system(plan, env, known, rows, group)
        smoothed = kalman_evidence.smoothed(chain)
        return steps_first(smoothed.mean + centre), steps_first(smoothed.covariance)

    return jax.tree.map(lambda leaf: states_second(leaf, plan.group_scope(group)),
                        map_discrete_states(plan, params, known, group, at))


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

    paths = map_discrete_states(plan, params, known, group, at)  # (*states, T, D, M)
    for i in range(len(reach)):
        index = jnp.repeat(jnp.broadcast_to(states[reach[i]], rows.weights.shape),
                           rows.along.blocks)
        paths = jnp.take_along_axis(paths, index.reshape(*(1,) * (paths.ndim - 1), -1), 0)[0]
    flat = rows.along.folded(steps_first(paths))  # (rows, time, D)
    return {name: _cells(plan, name, flat[..., part])
            for name, part in slices_of_latents(plan.structure, group.names).items()}


def _cells(plan: Plan, name: str, value: jax.Array) -> jax.Array:
    """(rows, T, numbers) of a latent → (rows, *cells), with time where it runs."""
    site = plan.structure.sites[name]
    if site.time is None:
        return value[:, 0].reshape(len(value), *site.cells)
    value = value.reshape(*value.shape[:2], *site.cells)
    return jnp.moveaxis(jnp.squeeze(value, 2 + site.time), 1, 1 + site.time)


# The data, and the programs of a step


def map_discrete_states(plan: Plan, params: Mapping, known: Known, group: Group,
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


def _per_step(function: Callable[[Mapping], PyTree], env: Mapping, args: Mapping) -> PyTree:
    """function(env) of every step, or once where nothing varies by step: leaves lead with N, or
    1."""
    if not args:
        return jax.tree.map(lambda leaf: leaf[None], function(env))
    return jax.vmap(lambda row: function({**env, **row}))(args)


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
    initial, moves, emission = _programs(plan, env, known, rows, group)
    value, masks = _observed(plan, steps, steps.length * size * steps.blocks, group, emission)
    selector, observed, state_masks = _observed_coordinates(plan, steps, size, group)
    slope = jnp.concatenate([emission.slope, jnp.broadcast_to(selector, (len(emission.slope),
                                                                         *selector.shape))], 1)
    variance = jnp.pad(emission.variance, ((0, 0), (0, len(selector))))
    log = jnp.pad(emission.log, ((0, 0), (0, len(selector))))
    alive = steps.rows.weights
    alive = None if alive is None else alive.reshape(steps.length, -1)
    if alive is not None and steps.equal_lengths and steps.blocks == 1:
        alive = alive[:, :1]  # rows that pad a chunk have no weight, whatever their steps
    mask = _concatenate_masks(masks + state_masks)
    mask = mask if alive is None else mask & alive[:, None]
    lanes = (steps.length, mask.shape[1], size * steps.blocks)
    volume = jnp.broadcast_to(jnp.where(mask, _to_lanes(steps, log), 0.0), lanes)
    volume = volume.reshape(*lanes[:2], size, steps.blocks).sum((0, 1, 3))
    chain = kalman.System(*(
        jnp.moveaxis(initial.offset, 0, -1), jnp.moveaxis(initial.covariance, 0, -1),
        *(_to_lanes(steps, leaf) for leaf in (*moves, jnp.concatenate([value, observed], 1), slope,
                                              variance)), mask, alive, steps.blocks
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
              group: Group) -> tuple[Moves, Moves, Emission]:
    """First states, moves and measurements of every step."""
    steps = rows.along
    args = varying(plan, known, steps, group.names)
    first_args = {name: at_first(steps, leaf) for name, leaf in args.items()}
    site_inputs = varying(plan, known, steps, linear_chain.emission_sites(group))
    return tuple(_per_step(functools.partial(fn, plan.structure, group), env, inputs)
                 for fn,
                 inputs in ((linear_chain.first, first_args), (linear_chain.transition_of, args),
                                    (linear_chain.sight, site_inputs)))


def shifted(by: Callable, steps: Steps, leaf: jax.Array) -> jax.Array:
    """An array of steps, (N, ...), moved along time `by` filter.previous or filter.following."""
    return by(leaf.reshape(steps.length, -1, *leaf.shape[1:]), 1).reshape(leaf.shape)


def _observed(plan: Plan, steps: Steps, count: int, group: Group,
              emission: linear_chain.Emission) -> tuple[jax.Array, list]:
    """The data of the observed sites less their location at states of 0, vectors standardised, (N,
    m), and masks of each site, (T or 1, numbers, M or 1), of size 1 where all is observed."""
    values, masks, start = [jnp.zeros((count, 0))], [np.ones((1, 0, 1), bool)], 0
    for name in linear_chain.emission_sites(group):
        site = plan.structure.sites[name]
        x = cells(site, steps.rows.values[name])
        stop = start + x[0].size
        residual = x.reshape(count, -1) - emission.offset[:, start:stop]
        mask = steps.rows.observed.get(name)
        if name in emission.roots:  # a partially observed vector counts as missing
            residual = residual.reshape(x.shape)
            if mask is not None:
                mask = jnp.broadcast_to(mask.reshape(x.shape).all(-1, keepdims=True), x.shape)
                residual = jnp.where(mask, residual, 0.0)
            residual = solve_triangular(jnp.broadcast_to(emission.roots[name], (
                count, *emission.roots[name].shape[1:])), residual[..., None], lower=True)
        values.append(residual.reshape(count, -1))
        masks.append(np.ones((1, stop - start, 1), bool) if mask is None
                     else _to_lanes(steps, mask.reshape(count, -1)))
        start = stop
    return jnp.concatenate(values, 1), masks


def _observed_coordinates(plan: Plan, steps: Steps, size: int,
                          group: Group) -> tuple[jax.Array, jax.Array, list]:
    """The numbers of a state that are observed themselves: which, (m, D), their values, (N, m), and
    masks as `_seen` returns them; those of the row itself are measured at its first step."""
    lanes, sites = size * steps.blocks, plan.structure.sites
    count = steps.length * lanes
    first = kalman.sequence_starts(steps.length, 1 if steps.blocks == 1 else lanes, steps.blocks)
    indices: list[int] = []
    values, masks = [jnp.zeros((count, 0))], [np.ones((1, 0, 1), bool)]
    for name, part in slices_of_latents(plan.structure, group.names).items():
        if name in steps.rows.values:
            x, mask = steps.rows.values[name], steps.rows.observed.get(name)
            values.append(cells(sites[name], x).reshape(count, -1))
            is_given = np.ones((1, part.stop - part.start, 1), bool)
            if sites[name].time is None:
                is_given = is_given & first[:, None]
            if mask is not None:
                is_given = is_given & _to_lanes(steps, cells(sites[name], mask).reshape(count, -1))
            masks.append(is_given)
            indices += range(part.start, part.stop)
    return jnp.eye(part.stop)[jnp.asarray(indices, int)], jnp.concatenate(values, 1), masks


def starts(steps: Steps, count: int) -> np.ndarray:
    """Which of so many steps, (N,), are the first of their rows."""
    return kalman.sequence_starts(steps.length, count // steps.length, steps.blocks).reshape(-1)
