"""Paths of Gaussian chains drawn given their measurements: a path and its measurements are drawn
from the chain itself, and the smoothed difference from the true measurements is added (Durbin &
Koopman 2002). So singular noise needs no case of its own.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import lax

from probml.elimination.chains.arithmetic import lanes_of, split_blocks
from probml.elimination.kalman.evidence import smoothed
from probml.elimination.kalman.filter import System, applied
from probml.numerics.semidefinite import root


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
    own = {name: getattr(system, name) for name in ("transition", "offset", "noise", "value",
                                                    "slope", "variance", "seen", "alive")}
    own = {name: None if leaf is None or len(leaf) == 1 else joined(leaf)
           for name, leaf in own.items()}
    first = {name: getattr(system, name) for name in ("mean", "covariance")}
    first = {name: leaf[..., :: system.blocks] if leaf.shape[-1] > 1 else leaf
             for name, leaf in first.items()}
    return replace(system, blocks=1, **first,
                   **{name: leaf for name, leaf in own.items() if leaf is not None})


def in_blocks(path: jax.Array, blocks: int) -> jax.Array:
    """(T, D, sequences) → (T / B, D, M)."""
    if blocks == 1:
        return path
    return lanes_of(path.reshape(blocks, -1, *path.shape[1:]))


def draw_prior(system: System, key: jax.Array) -> jax.Array:
    """A path of each lane, of mean 0, from its prior, (T, D, M)."""
    steps, lanes, d = len(system.value), system.value.shape[-1], system.mean.shape[0]
    noise = jax.random.normal(key, (steps, d, lanes), system.mean.dtype)
    first, roots = applied(_root(system.covariance), noise[0]), _root(system.noise)
    pushes = jnp.broadcast_to(roots, (steps, *roots.shape[1:]))
    moves = jnp.broadcast_to(system.transition, (steps, *system.transition.shape[1:]))

    def step(state: tuple, now: tuple):
        push, transition, noise, alive = now
        moved = applied(transition, state) + applied(push, noise)
        state = moved if alive is None else jnp.where(alive, moved, state)
        return state, state

    alive = None if system.alive is None else system.alive[1:]
    _, rest = lax.scan(step, first, (pushes[1:], moves[1:], noise[1:], alive))
    return jnp.concatenate([first[None], rest])


def _root(covariance: jax.Array) -> jax.Array:
    """Roots of matrices whose lanes are last."""
    return jnp.moveaxis(root(jnp.moveaxis(covariance, -1, 0)), 0, -1)
