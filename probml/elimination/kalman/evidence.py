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
    fwd = forward(system)
    return _states(system, fwd, backward(system, fwd))


def smoothed_moves(system: System) -> tuple[Smoothed, Noise]:
    """The smoothed states, and the noise of the moves: from λ and N, so that its relative precision
    does not depend on the size of the states (de Jong 1989; Koopman 1993, the disturbance
    smoother)."""
    fwd = forward(system)
    bwd = backward(system, fwd)
    score, info = bwd.predicted
    bend = product(info, system.noise)
    cross_cov = product(previous(fwd.filtered[1]), transpose(system.transition))
    noise = Noise(apply(system.noise, score),
                  symmetric(system.noise - product(system.noise, bend)), -product(cross_cov, bend))
    return _states(system, fwd, bwd), noise


def _states(system: System, fwd: Filtered, bwd: Adjoint) -> Smoothed:
    (mean, covariance), (score, info) = fwd.filtered, bwd.filtered
    smoothed_cov = covariance - product(product(covariance, info), covariance)
    cross_cov = product(previous(covariance), transpose(system.transition))
    eye = jnp.eye(mean.shape[1], dtype=mean.dtype)[:, :, None]
    across = product(cross_cov, eye - product(bwd.predicted[1], fwd.predicted[1]))
    is_start = sequence_starts(len(mean), across.shape[-1], system.blocks)[:, None, None]
    return Smoothed(mean + apply(covariance, score), symmetric(smoothed_cov),
                    jnp.where(is_start, 0.0, across))


@jax.custom_vjp
def evidence(system: System) -> jax.Array:
    """log p(measurements of each sequence), (M / B,), in nats."""
    return _forward(system)[0]


def _forward(system: System):
    fwd = forward(system)
    return fwd.log.sum(0).reshape(-1, system.blocks).sum(1), (system, fwd)


def _backward(saved: tuple[System, Filtered], cotangent: jax.Array):
    system, fwd = saved
    cotangent = jnp.repeat(cotangent, system.blocks)
    bwd = backward(system, fwd)
    score, info = bwd.predicted
    # of mean and covariance of the state before each step
    d_cov = 0.5 * (outer(score, score) - info)
    mean = fwd.filtered[0] + apply(fwd.filtered[1], bwd.filtered[0])
    d_moves = outer(score, previous(mean)) - product(info, product(
        system.transition, previous(fwd.filtered[1])))
    d_slope = bwd.error[..., None, :] * mean[:, None] - fwd.gain + bwd.cov_gain
    d_variance = 0.5 * (bwd.error**2 - bwd.curvature)
    is_start = sequence_starts(len(score), score.shape[-1], system.blocks)
    mask = fwd.precision > 0

    def of(leaf: jax.Array, gradient: jax.Array, where: np.ndarray):
        ones = (1,) * (gradient.ndim - where.ndim)
        where = where.reshape(*where.shape[:-1], *ones, where.shape[-1])
        gradient = jnp.where(where & (cotangent != 0), gradient * cotangent, 0.0)
        axes = tuple(i for i, (dim, size) in enumerate(zip(leaf.shape, gradient.shape,
                                                           strict=True)) if dim != size)
        return gradient.sum(axes, keepdims=True).astype(leaf.dtype)

    def where_alive(gradient: jax.Array):
        return jnp.where(mask if gradient.ndim == mask.ndim else mask[..., None, :], gradient, 0.0)

    all_steps = np.ones_like(is_start)
    return (System(
        of(system.mean, score[0], is_start[0]), of(system.covariance, d_cov[0], is_start[0]),
        of(system.transition, d_moves, ~is_start), of(system.offset, score, ~is_start),
        of(system.noise, d_cov, ~is_start), of(system.value, where_alive(-bwd.error), all_steps),
        of(system.slope, where_alive(d_slope), all_steps),
        of(system.variance, where_alive(d_variance), all_steps),
        np.zeros(system.observed.shape, jax.dtypes.float0),
        None if system.alive is None else np.zeros(system.alive.shape, jax.dtypes.float0),
        system.blocks,
    ),)


evidence.defvjp(_forward, _backward)


def draw(system: System, key: jax.Array) -> jax.Array:
    """A path of each lane given the measurements of its sequence, (T, D, M).

    Cost: a filter, a smoother, and O(D²) a step.
    """
    path_key, noise_key = jax.random.split(key)
    path = in_blocks(draw_prior(merge_blocks(system), path_key), system.blocks)
    noise = jax.random.normal(noise_key, system.value.shape, system.value.dtype)
    simulated = (system.slope * path[:, None]).sum(-2) + jnp.sqrt(system.variance) * noise
    return path + smoothed(replace(system, value=system.value - simulated)).mean


def merge_blocks(system: System) -> System:
    """The same system with whole sequences in the place of blocks."""

    def joined(leaf: jax.Array):
        parts = split_blocks(leaf, system.blocks)
        return parts.reshape(-1, *parts.shape[2:])

    if system.blocks == 1:
        return system
    along = ("transition", "offset", "noise", "value", "slope", "variance", "observed", "alive")
    merged = {name: joined(leaf) for name in along
              if (leaf := getattr(system, name)) is not None and len(leaf) > 1}
    first = {name: leaf[..., :: system.blocks] for name in ("mean", "covariance")
             if (leaf := getattr(system, name)).shape[-1] > 1}
    return replace(system, blocks=1, **first, **merged)


def in_blocks(path: jax.Array, blocks: int) -> jax.Array:
    """(T, D, sequences) → (T / B, D, M)."""
    return path if blocks == 1 else lanes_of(path.reshape(blocks, -1, *path.shape[1:]))


def draw_prior(system: System, key: jax.Array) -> jax.Array:
    """A path of each lane, of mean 0, from its prior, (T, D, M)."""
    steps, lanes, d = len(system.value), system.value.shape[-1], system.mean.shape[0]
    noise = jax.random.normal(key, (steps, d, lanes), system.mean.dtype)
    first, roots = apply(_root(system.covariance), noise[0]), _root(system.noise)
    noise_roots = jnp.broadcast_to(roots, (steps, *roots.shape[1:]))
    transitions = jnp.broadcast_to(system.transition, (steps, *system.transition.shape[1:]))

    def step(state: tuple, xs: tuple):
        noise_root, transition, noise, alive = xs
        next_state = apply(transition, state) + apply(noise_root, noise)
        state = next_state if alive is None else jnp.where(alive, next_state, state)
        return state, state

    alive = None if system.alive is None else system.alive[1:]
    _, later = lax.scan(step, first, (noise_roots[1:], transitions[1:], noise[1:], alive))
    return jnp.concatenate([first[None], later])


def _root(covariance: jax.Array) -> jax.Array:
    """Roots of matrices whose lanes are last."""
    return jnp.moveaxis(root(jnp.moveaxis(covariance, -1, 0)), 0, -1)


class _Block(NamedTuple):
    """The likelihood of each block as a function of its entry, and where it leads from there."""

    info: jax.Array  # J, (D, D, M)
    info_vector: jax.Array  # h, (D, M)
    slope: jax.Array  # M
    offset: jax.Array  # b
    covariance: jax.Array  # P


def forward(system: System) -> Filtered:
    """The forward pass, block by block."""
    if system.blocks == 1:
        return filtered(system)
    return filtered(system, _entries(system, _blocks(system)))


def backward(system: System, fwd: Filtered) -> Adjoint:
    """The backward pass, block by block."""
    end = None if system.blocks == 1 else _exits(system, fwd)
    return present(adjoint(system, fwd, end)[1])


def _blocks(system: System) -> _Block:
    lanes, d = system.value.shape[-1], system.mean.shape[0]

    def measure(carry: tuple, obs: Measurement):
        state, slopes, info, pull = carry  # the mean is that of the state + slopes · entry
        state, (error, precision, gain, _) = update(state, obs)  # at an entry of 0
        d_error = jnp.where(precision > 0, -(obs.slope[:, None] * slopes).sum(0), 0.0)  # (D, M)
        info = info + (d_error * precision)[:, None] * d_error[None]
        return (state, slopes + gain[:, None] * d_error[None], info, pull - d_error * error), None

    def step(carry: tuple, obs: Measurement, move: Move):
        (state, slopes, info, pull), _ = scan_measurements(measure, carry, obs)
        slopes = move.where_alive(product(move.transition, slopes), slopes)
        return (move.ahead(state), slopes, info, pull), None

    # a block's slopes and covariances may be the same in all lanes
    n_lanes = 1 if system.is_lane_invariant else lanes
    eye = jnp.broadcast_to(jnp.eye(d, dtype=system.value.dtype)[:, :, None], (d, d, n_lanes))
    zeros, zero_cov = jnp.zeros((d, lanes), system.value.dtype), jnp.zeros_like(eye)
    ((offset, covariance), slopes, info, pull), _ = scan_steps(
        system, step, ((zeros, zero_cov), eye, zero_cov, zeros))
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
        solved = jnp.concatenate([(mean + (covariance
                                           @ block.info_vector[..., None])[..., 0])[..., None],
                                  covariance], -1)
        solved = jnp.linalg.solve(eye + covariance @ block.info, solved)
        slope = block.slope
        next_mean = (slope @ solved[..., :1])[..., 0] + block.offset
        next_cov = slope @ solved[..., 1:] @ jnp.swapaxes(slope, -1, -2) + block.covariance
        return (next_mean, 0.5 * (next_cov + jnp.swapaxes(next_cov, -1, -2))), state

    return _to_lanes(lax.scan(step, start, jax.tree.map(lambda leaf: _matrices(system, leaf),
                                                        blocks))[1])


def _exits(system: System, fwd: Filtered) -> State:
    """λ and N behind each block."""
    score, info = nothing_behind(system, fwd)
    d, lanes = score.shape

    def entry(score: jax.Array) -> State:
        return adjoint(system, fwd, (score, info), keeps=False)[0]

    # λ at the entry of a block is affine in λ behind it: its slopes, (D, D, M), are derivatives
    units = jnp.broadcast_to(jnp.eye(d, dtype=score.dtype)[:, :, None], (d, d, lanes))
    value, jacobian, info0 = jax.vmap(lambda unit: jax.jvp(entry, (score,), (unit,), has_aux=True),
                                      out_axes=(None, 1, None))(units)

    def step(state: tuple, block: tuple):
        score, info, jacobian = block
        value = (score + (jacobian @ state[0][..., None])[..., 0],
                 info + jacobian @ state[1] @ jnp.swapaxes(jacobian, -1, -2))
        return value, state

    blocks = jax.tree.map(lambda leaf: _matrices(system, leaf), (value, info0, jacobian))
    zero = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), blocks[:2])
    return _to_lanes(lax.scan(step, zero, blocks, reverse=True)[1])
