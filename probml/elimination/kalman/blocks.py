"""Long Gaussian chains cut into blocks, one lane each: what a block says of the state at its entry,
and of that at its exit, so that all blocks are filtered, and smoothed, at once.

Forwards a block is filtered from a known state s: its mean is then M s + b, its innovations affine
in s, so that the block says log p(block | s) = hᵀ s − ½ sᵀ J s + constant, and leads to N(M s + b,
P). Backwards λ and N at its entry are affine in those at its exit. Blocks are then joined in turn,
B small steps (Särkkä & García-Fernández 2021 join them by an associative scan).

Cost: twice the passes, over T / B steps of B times the lanes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from probml.elimination.kalman.filter import (
    MOVES,
    SIGHT,
    Adjoint,
    Filtered,
    State,
    System,
    adjoint,
    applied,
    filtered,
    first,
    following,
    looped,
    over_time,
    product,
    see,
    symmetric,
    transposed,
)


class _Block(NamedTuple):
    """What each block says of its entry, (D, D, M) and (D, M), and where it leads from there."""

    info: jax.Array  # J
    pull: jax.Array  # h
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
    if system.blocks == 1:
        return adjoint(system, found)
    return adjoint(system, found, _exits(system, found))


def _blocks(system: System) -> _Block:
    sight, still = over_time(system, SIGHT)
    moves, constant = over_time(system, MOVES, True)
    later = None if system.alive is None else following(system.alive)
    (steps, _, lanes), d = system.value.shape, system.mean.shape[0]

    def measurement_update(carry: tuple, now: tuple):
        offset, slopes, covariance, info, pull = carry  # the mean is offset + slopes · entry
        value, slope, variance, seen = now
        covariance, gain, precision = see(covariance, slope, variance, seen)
        gap = jnp.where(precision > 0, value - (slope * offset).sum(0), 0.0)  # at an entry of 0
        bent = jnp.where(precision > 0, -(slope[:, None] * slopes).sum(0), 0.0)  # (D, M)
        heavy = bent * precision
        info = info + heavy[:, None] * bent[None]
        pull = pull - heavy * gap
        slopes = slopes + gain[:, None] * bent[None]
        return (offset + gain * gap, slopes, covariance, info, pull), None

    def step(carry: tuple, now: tuple):
        sight, moves, alive = now
        sight, moves = {**still, **sight}, {**constant, **moves}
        numbers = len(sight["value"])
        carry, _ = looped(measurement_update, carry, tuple(
            jnp.broadcast_to(sight[name], (numbers, *sight[name].shape[1:])) for name in SIGHT))
        *old, info, pull = carry
        transition = moves["transition"]
        new = [applied(transition, old[0]) + moves["offset"], product(transition, old[1]),
               symmetric(product(product(transition, old[2]), transposed(transition))
                         + moves["noise"])]
        if alive is not None:
            new = [jnp.where(alive, *pair) for pair in zip(new, old, strict=True)]
        return (*new, info, pull), None

    # a block's slopes and covariances are the same in all
    own = 1 if system.is_lane_invariant else lanes
    eye = jnp.broadcast_to(jnp.eye(d, dtype=system.value.dtype)[:, :, None], (d, d, own))
    nothing, zero = jnp.zeros((d, lanes), system.value.dtype), jnp.zeros_like(eye)
    (offset, slopes, covariance, info, pull), _ = lax.scan(
        step, (nothing, eye, zero, zero, nothing), (sight, moves, later), length=steps)
    info, slopes, covariance = (jnp.broadcast_to(leaf, (d, d, lanes))
                                for leaf in (info, slopes, covariance))
    return _Block(info, pull, slopes, offset, covariance)


def _split_blocks(system: System, leaf: jax.Array) -> jax.Array:
    """(..., M) → (blocks, sequences, ...)."""
    leaf = jnp.moveaxis(leaf, -1, 0)
    return leaf.reshape(-1, system.blocks, *leaf.shape[1:]).swapaxes(0, 1)


def _together(leaf: jax.Array) -> jax.Array:
    """(blocks, sequences, ...) → (..., M)."""
    leaf = leaf.swapaxes(0, 1)
    return jnp.moveaxis(leaf.reshape(-1, *leaf.shape[2:]), 0, -1)


def _entries(system: System, blocks: _Block) -> State:
    """The states before each block."""
    start = jax.tree.map(lambda leaf: _split_blocks(system, leaf)[0], first(system))
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

    _, states = lax.scan(step, start,
                         jax.tree.map(lambda leaf: _split_blocks(system, leaf), blocks))
    return _together(states[0]), _together(states[1])


def _exits(system: System, found: Filtered) -> State:
    """λ and N behind each block."""
    back = adjoint(system, found)
    push, curve = back.before[0][0], back.before[1][0]
    carried = _adjoint_transfers(system, found)

    def step(state: tuple, block: tuple):
        push, curve, carried = block
        own = (push + (carried @ state[0][..., None])[..., 0],
               curve + carried @ state[1] @ jnp.swapaxes(carried, -1, -2))
        return own, state

    blocks = jax.tree.map(lambda leaf: _split_blocks(system, leaf), (push, curve, carried))
    zero = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), blocks[:2])
    _, states = lax.scan(step, zero, blocks, reverse=True)
    return _together(states[0]), _together(states[1])


def _adjoint_transfers(system: System, found: Filtered) -> jax.Array:
    """λ at the entry of each block per λ behind it, (D, D, M)."""
    slopes, still = over_time(system, ("slope",))
    moves, constant = over_time(system, ("transition",), True)
    d, lanes = system.mean.shape[0], system.value.shape[-1]

    def backward_update(carried: jax.Array, now: tuple):
        slope, gain = now
        return carried - slope[:, None] * (gain[:, None] * carried).sum(0), None

    def step(carried: jax.Array, now: tuple):
        slopes, moves, gain = now
        slope, transition = {**still, **slopes}["slope"], {**constant, **moves}["transition"]
        carried = product(transposed(transition), carried)
        slope = jnp.broadcast_to(slope, (len(gain), *slope.shape[1:]))
        return looped(backward_update, carried, (slope, gain), True)[0], None

    eye = jnp.broadcast_to(jnp.eye(d, dtype=system.value.dtype)[:, :, None], (d, d, lanes))
    carried, _ = lax.scan(step, eye, (slopes, moves, found.gain), reverse=True)
    return carried
