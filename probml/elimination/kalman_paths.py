"""Paths of Gaussian chains drawn given what is seen of them: a path and its observations are drawn
from the chain itself, and what the observations miss is smoothed (Durbin & Koopman 2002). So
singular noise needs no case of its own.
"""

import jax
import jax.numpy as jnp
from jax import lax

from probml.elimination.kalman import System, applied, smoothed
from probml.numerics.semidefinite import root


def draw(system: System, key: jax.Array) -> jax.Array:
    """A path of each lane given what is seen of it, (T, D, M).

    Cost: a filter, a smoother, and O(D²) a step.
    """
    own, seeing = jax.random.split(key)
    path = wandering(system, own)
    noise = jax.random.normal(seeing, system.value.shape, system.value.dtype)
    shown = (system.slope * path[:, None]).sum(-2) + jnp.sqrt(system.variance) * noise
    return path + smoothed(system._replace(value=system.value - shown)).mean


def wandering(system: System, key: jax.Array) -> jax.Array:
    """A path of each lane, of mean 0, whatever is seen, (T, D, M)."""
    steps, lanes, d = len(system.value), system.value.shape[-1], system.mean.shape[0]
    noise = jax.random.normal(key, (steps, d, lanes), system.mean.dtype)
    first = applied(_root(system.covariance), noise[0])
    pushes = jnp.broadcast_to(_root(system.noise), (steps, *_root(system.noise).shape[1:]))
    moves = jnp.broadcast_to(system.transition, (steps, *system.transition.shape[1:]))

    def step(state, now):
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
