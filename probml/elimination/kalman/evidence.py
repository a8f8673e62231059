"""The evidence of Gaussian chains with its gradient, and their smoothed states (filter.py).

Paths of Gaussian chains drawn given their measurements: a path and its measurements are drawn
from the chain itself, and the smoothed difference from the true measurements is added (Durbin &
Koopman 2002). So singular noise needs no case of its own.

Long Gaussian chains cut into blocks, one lane each, so that all blocks are filtered, and
smoothed, at once.

Forwards a block is filtered from a known state s: its mean is then M s + b, its innovations affine
in s, so that its likelihood is log p(block | s) = hᵀ s − ½ sᵀ J s + constant, and it leads to
N(M s + b, P). Backwards λ and N at its entry are affine in those at its exit. Blocks are then
joined in turn, B small steps (Särkkä & García-Fernández 2021 join them by an associative scan).

Cost: twice the passes, over T / B steps of B times the lanes.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from probml.elimination.chains.arithmetic import lanes_of, split_blocks
from probml.elimination.kalman.filter import (
    Adjoint,
    Filtered,
    Measurement,
    Move,
    Smoothed,
    State,
    System,
    adjoint,
    apply,
    filtered,
    first,
    nothing_behind,
    outer,
    previous,
    product,
    scan_measurements,
    scan_steps,
    sequence_starts,
    symmetric,
    transpose,
    update,
)
from probml.errors import present
from probml.numerics.lapack import root


class Noise(NamedTuple):
    """The noise of each move given all measurements of its lane; entry 0 is not used."""

    mean: jax.Array  # (T, D, M)
    covariance: jax.Array  # (T, D, D, M), or of one lane where lanes share it
    across: jax.Array  # the same: Cov(s_{t−1}, ε_t)


def smoothed(system: System) -> Smoothed:
    """The states given all measurements."""
    found = forward(system)
    return _states(system, found, backward(system, found))


def smoothed_moves(system: System) -> tuple[Smoothed, Noise]:
    """The smoothed states, and the noise of the moves: from λ and N, so that its relative precision
    does not depend on the size of the states (de Jong 1989; Koopman 1993, the disturbance
    smoother)."""
    found = forward(system)
    back = backward(system, found)
    push, curve = back.before
    bend = product(curve, system.noise)
    moved = product(previous(found.after[1]), transpose(system.transition))
    noise = Noise(apply(system.noise, push),
                  symmetric(system.noise - product(system.noise, bend)), -product(moved, bend))
    return _states(system, found, back), noise


def _states(system: System, found: Filtered, back: Adjoint) -> Smoothed:
    (mean, covariance), (push, curve) = found.after, back.after
    whole = covariance - product(product(covariance, curve), covariance)
    moved = product(previous(covariance), transpose(system.transition))
    eye = jnp.eye(mean.shape[1], dtype=mean.dtype)[:, :, None]
    across = product(moved, eye - product(back.before[1], found.before[1]))
    start = sequence_starts(len(mean), across.shape[-1], system.blocks)[:, None, None]
    return Smoothed(mean + apply(covariance, push), symmetric(whole),
                    jnp.where(start, 0.0, across))


@jax.custom_vjp
def evidence(system: System) -> jax.Array:
    """log p(measurements of each sequence), (M / B,), in nats."""
    return _forward(system)[0]


def _forward(system: System):
    found = forward(system)
    return found.log.sum(0).reshape(-1, system.blocks).sum(1), (system, found)


def _backward(kept: tuple[System, Filtered], share: jax.Array):
    system, found = kept
    share = jnp.repeat(share, system.blocks)
    back = backward(system, found)
    push, curve = back.before
    # of mean and covariance of the state before each step
    bend = 0.5 * (outer(push, push) - curve)
    mean = found.after[0] + apply(found.after[1], back.after[0])
    moves = outer(push, previous(mean)) - product(curve, product(
        system.transition, previous(found.after[1])))
    slope = back.error[..., None, :] * mean[:, None] - found.gain + back.pull
    variance = 0.5 * (back.error**2 - back.curvature)
    start = sequence_starts(len(push), push.shape[-1], system.blocks)
    live = found.precision > 0

    def of(leaf: jax.Array, gradient: jax.Array, where: np.ndarray):
        beside = (1,) * (gradient.ndim - where.ndim)
        where = where.reshape(*where.shape[:-1], *beside, where.shape[-1])
        gradient = jnp.where(where & (share != 0), gradient * share, 0.0)
        axes = tuple(i for i, (own, size) in enumerate(zip(leaf.shape, gradient.shape,
                                                           strict=True)) if own != size)
        return gradient.sum(axes, keepdims=True).astype(leaf.dtype)

    def where_alive(gradient: jax.Array):
        return jnp.where(live if gradient.ndim == live.ndim else live[..., None, :], gradient, 0.0)

    every = np.ones_like(start)
    return (System(
        of(system.mean, push[0], start[0]), of(system.covariance, bend[0], start[0]),
        of(system.transition, moves, ~start), of(system.offset, push, ~start),
        of(system.noise, bend, ~start), of(system.value, where_alive(-back.error), every),
        of(system.slope, where_alive(slope), every),
        of(system.variance, where_alive(variance), every),
        np.zeros(system.seen.shape, jax.dtypes.float0),
        None if system.alive is None else np.zeros(system.alive.shape, jax.dtypes.float0),
        system.blocks,
    ),)


evidence.defvjp(_forward, _backward)


def draw(system: System, key: jax.Array) -> jax.Array:
    """A path of each lane given the measurements of its sequence, (T, D, M).

    Cost: a filter, a smoother, and O(D²) a step.
    """
    own, seeing = jax.random.split(key)
    path = in_blocks(draw_prior(merge_blocks(system), own), system.blocks)
    noise = jax.random.normal(seeing, system.value.shape, system.value.dtype)
    shown = (system.slope * path[:, None]).sum(-2) + jnp.sqrt(system.variance) * noise
    return path + smoothed(replace(system, value=system.value - shown)).mean


def merge_blocks(system: System) -> System:
    """The same system with whole sequences in the place of blocks."""

    def joined(leaf: jax.Array):
        parts = split_blocks(leaf, system.blocks)
        return parts.reshape(-1, *parts.shape[2:])

    if system.blocks == 1:
        return system
    along = ("transition", "offset", "noise", "value", "slope", "variance", "seen", "alive")
    own = {name: joined(leaf) for name in along
           if (leaf := getattr(system, name)) is not None and len(leaf) > 1}
    first = {name: leaf[..., :: system.blocks] for name in ("mean", "covariance")
             if (leaf := getattr(system, name)).shape[-1] > 1}
    return replace(system, blocks=1, **first, **own)


def in_blocks(path: jax.Array, blocks: int) -> jax.Array:
    """(T, D, sequences) → (T / B, D, M)."""
    return path if blocks == 1 else lanes_of(path.reshape(blocks, -1, *path.shape[1:]))


def draw_prior(system: System, key: jax.Array) -> jax.Array:
    """A path of each lane, of mean 0, from its prior, (T, D, M)."""
    steps, lanes, d = len(system.value), system.value.shape[-1], system.mean.shape[0]
    noise = jax.random.normal(key, (steps, d, lanes), system.mean.dtype)
    first, roots = apply(_root(system.covariance), noise[0]), _root(system.noise)
    pushes = jnp.broadcast_to(roots, (steps, *roots.shape[1:]))
    moves = jnp.broadcast_to(system.transition, (steps, *system.transition.shape[1:]))

    def step(state: tuple, now: tuple):
        push, transition, noise, alive = now
        moved = apply(transition, state) + apply(push, noise)
        state = moved if alive is None else jnp.where(alive, moved, state)
        return state, state

    alive = None if system.alive is None else system.alive[1:]
    _, rest = lax.scan(step, first, (pushes[1:], moves[1:], noise[1:], alive))
    return jnp.concatenate([first[None], rest])


def _root(covariance: jax.Array) -> jax.Array:
    """Roots of matrices whose lanes are last."""
    return jnp.moveaxis(root(jnp.moveaxis(covariance, -1, 0)), 0, -1)


class _Block(NamedTuple):
    """The likelihood of each block as a function of its entry, and where it leads from there."""

    info: jax.Array  # J, (D, D, M)
    pull: jax.Array  # h, (D, M)
    slope: jax.Array  # M
    offset: jax.Array  # b
    covariance: jax.Array  # P


def forward(system: System) -> Filtered:
    """The forward pass, block by block."""
    if system.blocks == 1:
        return filtered(system)
    return filtered(system, _entries(system, _blocks(system)))


def backward(system: System, found: Filtered) -> Adjoint:
    """The backward pass, block by block."""
    end = None if system.blocks == 1 else _exits(system, found)
    return present(adjoint(system, found, end)[1])


def _blocks(system: System) -> _Block:
    lanes, d = system.value.shape[-1], system.mean.shape[0]

    def measure(carry: tuple, at: Measurement):
        state, slopes, info, pull = carry  # the mean is that of the state + slopes · entry
        state, (error, precision, gain, _) = update(state, at)  # at an entry of 0
        bent = jnp.where(precision > 0, -(at.slope[:, None] * slopes).sum(0), 0.0)  # (D, M)
        info = info + (bent * precision)[:, None] * bent[None]
        return (state, slopes + gain[:, None] * bent[None], info, pull - bent * error), None

    def step(carry: tuple, sight: Measurement, move: Move):
        (state, slopes, info, pull), _ = scan_measurements(measure, carry, sight)
        slopes = move.where_alive(product(move.transition, slopes), slopes)
        return (move.ahead(state), slopes, info, pull), None

    # a block's slopes and covariances may be the same in all lanes
    own = 1 if system.is_lane_invariant else lanes
    eye = jnp.broadcast_to(jnp.eye(d, dtype=system.value.dtype)[:, :, None], (d, d, own))
    nothing, zero = jnp.zeros((d, lanes), system.value.dtype), jnp.zeros_like(eye)
    ((offset, covariance), slopes, info, pull), _ = scan_steps(
        system, step, ((nothing, zero), eye, zero, nothing))
    info, slopes, covariance = (jnp.broadcast_to(leaf, (d, d, lanes))
                                for leaf in (info, slopes, covariance))
    return _Block(info, pull, slopes, offset, covariance)


def _matrices(system: System, leaf: jax.Array) -> jax.Array:
    """(..., M) → (blocks, sequences, ...)."""
    return jnp.moveaxis(split_blocks(leaf, system.blocks), -1, 1)


def _to_lanes(states: tuple) -> State:
    """(blocks, sequences, ...) → (..., M)."""
    mean, covariance = (lanes_of(jnp.moveaxis(leaf, 1, -1)) for leaf in states)
    return mean, covariance


def _entries(system: System, blocks: _Block) -> State:
    """The states before each block."""
    start = jax.tree.map(lambda leaf: _matrices(system, leaf)[0], first(system))
    eye = jnp.eye(start[0].shape[-1], dtype=start[0].dtype)

    def step(state: tuple, block: _Block):
        mean, covariance = state
        # (I + P J)⁻¹ (m + P h | P): the entry given its block
        known = jnp.concatenate([(mean + (covariance @ block.pull[..., None])[..., 0])[..., None],
                                 covariance], -1)
        known = jnp.linalg.solve(eye + covariance @ block.info, known)
        slope = block.slope
        after = (slope @ known[..., :1])[..., 0] + block.offset
        spread = slope @ known[..., 1:] @ jnp.swapaxes(slope, -1, -2) + block.covariance
        return (after, 0.5 * (spread + jnp.swapaxes(spread, -1, -2))), state

    return _to_lanes(lax.scan(step, start, jax.tree.map(lambda leaf: _matrices(system, leaf),
                                                        blocks))[1])


def _exits(system: System, found: Filtered) -> State:
    """λ and N behind each block."""
    push, curve = nothing_behind(system, found)
    d, lanes = push.shape

    def entry(push: jax.Array) -> State:
        return adjoint(system, found, (push, curve), keeps=False)[0]

    # λ at the entry of a block is affine in λ behind it: its slopes, (D, D, M), are derivatives
    units = jnp.broadcast_to(jnp.eye(d, dtype=push.dtype)[:, :, None], (d, d, lanes))
    own, carried, bend = jax.vmap(lambda unit: jax.jvp(entry, (push,), (unit,), has_aux=True),
                                  out_axes=(None, 1, None))(units)

    def step(state: tuple, block: tuple):
        push, curve, carried = block
        own = (push + (carried @ state[0][..., None])[..., 0],
               curve + carried @ state[1] @ jnp.swapaxes(carried, -1, -2))
        return own, state

    blocks = jax.tree.map(lambda leaf: _matrices(system, leaf), (own, bend, carried))
    zero = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), blocks[:2])
    return _to_lanes(lax.scan(step, zero, blocks, reverse=True)[1])
