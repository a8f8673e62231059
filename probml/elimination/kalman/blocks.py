"""Long Gaussian chains cut into blocks, one lane each, so that all blocks are filtered, and
smoothed, at once.

Forwards a block is filtered from a known state s: its mean is then M s + b, its innovations affine
in s, so that its likelihood is log p(block | s) = hᵀ s − ½ sᵀ J s + constant, and it leads to
N(M s + b, P). Backwards λ and N at its entry are affine in those at its exit. Blocks are then
joined in turn, B small steps (Särkkä & García-Fernández 2021 join them by an associative scan).

Cost: twice the passes, over T / B steps of B times the lanes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from probml.elimination.chains.arithmetic import lanes_of, split_blocks
from probml.elimination.kalman.filter import (
    Adjoint,
    Filtered,
    Measurement,
    Move,
    State,
    System,
    adjoint,
    filtered,
    first,
    nothing_behind,
    product,
    scan_measurements,
    scan_steps,
    update,
)
from probml.errors import present


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


def _lanes(states: tuple) -> State:
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

    return _lanes(lax.scan(step, start, jax.tree.map(lambda leaf: _matrices(system, leaf),
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
    return _lanes(lax.scan(step, zero, blocks, reverse=True)[1])
