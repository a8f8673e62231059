"""Markov chains as arrays: tables in linear space with scales, steps that are seen,
normalisation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from probml.numerics.logs import finite, log_of

ALIKE = 512  # rounding errors by which rows that are equal may differ
SWEEP = 32  # steps of a transfer matrix between two looks at whether its rows are equal
SMALL = 1024  # multiplications of a step up to which they are no matrix product
PRECISE = lax.Precision.HIGHEST


class Chain(NamedTuple):
    """Log weights of sequences; any of the axes G, M and of the leading L may be 1 where the same
    for all."""

    initial: jax.Array  # (G, K, rows)
    # (L, G, K from, K to, M): into each step; that into a sequence's first is not used
    transition: jax.Array
    emission: jax.Array  # (L, G, K, M)
    alive: jax.Array | None  # (L, M) bool: the steps that count, a row's first ones; None = all


class Linear(NamedTuple):
    """The same with moves as weights; emissions stay logs.

    Steps that do not count are steps in which nothing is seen: summed over, they are 1, since what
    moves out of a state sums to 1.
    """

    initial: jax.Array
    transition: jax.Array
    emission: jax.Array


def exp(log: jax.Array, top: jax.Array) -> jax.Array:
    return jnp.exp(log - top)


def linear_of(chain: Chain) -> Linear:
    emission = chain.emission
    if chain.alive is not None:
        emission = jnp.where(chain.alive[:, None, None], emission, 0.0)
    return Linear(jnp.exp(chain.initial), jnp.exp(chain.transition), emission)


def step_at(chain: Chain | Linear, step: int | jax.Array) -> tuple:
    """What a step takes: its transition and log emissions."""
    transition = chain.transition[0] if len(chain.transition) == 1 else lax.dynamic_index_in_dim(
        chain.transition, step, 0, False
    )
    return transition, lax.dynamic_index_in_dim(chain.emission, step, 0, False)


def one_step(transition: jax.Array, alpha: jax.Array) -> jax.Array:
    """Σ over i of α_i A_ij: (G, K, K, M or 1) and (G, K, M) → (G, K, M)."""
    if transition.shape[-1] == 1 and not is_small(alpha):
        return jnp.matmul(jnp.swapaxes(transition[..., 0], 1, 2), alpha, precision=PRECISE)
    return (transition * alpha[:, :, None]).sum(1)


def one_step_back(transition: jax.Array, ratio: jax.Array) -> jax.Array:
    """Σ over j of A_ij r_j."""
    if transition.shape[-1] == 1 and not is_small(ratio):
        return jnp.matmul(transition[..., 0], ratio, precision=PRECISE)
    return (transition * ratio[:, None]).sum(2)


def is_small(weights: jax.Array) -> bool:
    """Whether a step is so little work that what it costs is the number of its operations."""
    return weights.size * weights.shape[1] <= SMALL


def normalised(u: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
    """u / its sum over an axis, and that; 0 stays 0."""
    scale = u.sum(axis)
    inverse = jnp.where(scale > 0, 1 / jnp.where(scale > 0, scale, 1), 0)
    return u * jnp.expand_dims(inverse, axis), scale


def seen_at(ahead: jax.Array, emission: jax.Array, axis: int = 1) -> tuple[jax.Array, jax.Array]:
    """Predicted weights of states and a step's log emissions → filtered ones, normalised, and the
    log of their scale.

    The best emission of the states that can be reached is taken out before the exponential.
    """
    top = finite(jnp.where(ahead > 0, emission, -jnp.inf).max(axis, keepdims=True))
    new, scale = normalised(ahead * jnp.exp(jnp.minimum(emission - top, 0)), axis)
    return new, log_of(scale) + jnp.squeeze(top, axis)


def divide(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.where(b > 0, a / jnp.where(b > 0, b, 1), 0)


def lead(chain: Chain | Linear) -> tuple[int, int, int, int]:
    """L, G, K, M."""
    steps, _, states, lanes = chain.emission.shape
    return (steps, max(chain.initial.shape[0], chain.transition.shape[1], chain.emission.shape[1]),
            states, lanes)


def first_of(initial: jax.Array, lanes: int, blocks: int) -> jax.Array:
    """The initial weights of every row, in all lanes: (G, K, M)."""
    wide = jnp.broadcast_to(initial, (*initial.shape[:2], lanes // blocks))
    return jnp.repeat(wide, blocks, -1) if blocks > 1 else wide


def entering_logs(chain: Linear, blocks: int, before: jax.Array | None) -> jax.Array:
    """The weights of the states at each lane's first step, before its emission: initial, or moved
    from those `before` the block."""
    _, g, k, m = lead(chain)
    start = jnp.broadcast_to(first_of(chain.initial, m, blocks), (g, k, m))
    if before is None:
        return start
    return jnp.where(jnp.arange(m) % blocks == 0, start, one_step(step_at(chain, 0)[0], before))


def share_of(log: jax.Array, axis: int) -> jax.Array:
    """Each entry's share of the sum over an axis; 0 where all is impossible."""
    weight = jnp.exp(log - finite(log.max(axis, keepdims=True)))
    return divide(weight, weight.sum(axis, keepdims=True))
