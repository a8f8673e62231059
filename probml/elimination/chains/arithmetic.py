"""Markov chains as arrays, and the arithmetic of a step of a pass: sums in linear space with
scales, sums in logs, and maxima in logs."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from probml.numerics.logs import divide, finite, log_of, log_sum

ALIKE = 512  # units of rounding by which equal rows may differ
MIN_MATRIX_PRODUCT = 1024  # multiplications of a step, below which they are no matrix product
# states up to which comparisons are unrolled: a gather of bytes, or an argmax, is a scalar loop
UNROLLED = 32
PRECISE = lax.Precision.HIGHEST


class Chain(NamedTuple):
    """Log weights of sequences; the axes G, M and the leading L may be 1 where all are the same."""

    initial: jax.Array  # (G, K, rows)
    # (L, G, K from, K to, M): into each step; that into a sequence's first is not used
    transition: jax.Array
    emission: jax.Array  # (L, G, K, M)
    alive: jax.Array | None  # (L, M) bool: the steps that count, the first ones of a row; None: all


class ScanLayout(NamedTuple):
    """The layout of a pass along chains.

    Attributes:
        blocks: the number of blocks of each row's sequence; see sums.py.
        parallel: blocks are joined by an associative scan, for machines with thousands of lanes.
        in_logs: sums are in logs, without limit of range; of one block.
    """

    blocks: int = 1
    parallel: bool = False
    in_logs: bool = False


UNCUT = ScanLayout()


class Arithmetic(NamedTuple):
    """The operations of a pass on weights.

    Attributes:
        weights: log weights → weights in the space of the pass.
        condition: (predicted weights of a step, its log emissions, axis of states) → its filtered
            weights, and the log of their scale.
        predict: (moves, filtered weights of a step, whether the next counts) → the predicted
            weights of the next, and what a pass keeps of the step: its weights, or the best state
            before each state (a pointer).
        slack: by how much equal weights may differ.
        pointers: whether pointers are kept; only then does a move depend on which steps count.
    """

    weights: Callable
    condition: Callable
    predict: Callable
    slack: Callable
    pointers: bool = False


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
    """Whether a step is so little work that its cost is the number of its operations."""
    return weights.size * weights.shape[1] <= MIN_MATRIX_PRODUCT


def best_moves(moves: jax.Array, log: jax.Array,
               alive: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """The largest weight of a way into each state of a step, (G, K, M), and the state it comes
    from.

    Args:
        moves: (G, K, K, M or 1). log: (G, K, M) of the step before. alive: (M,) whether the step
            counts: from anywhere to anywhere, if it does not.
    """
    k, dtype = log.shape[1], state_type(log.shape[1])
    if k > UNROLLED:
        weight = log[:, :, None] + moves
        if alive is not None:
            weight = jnp.where(alive, weight, log[:, :, None])
        return weight.max(1), weight.argmax(1).astype(dtype)
    weights = [log[:, i : i + 1] + moves[:, i] for i in range(k)]
    if alive is not None:
        weights = [jnp.where(alive, weight, log[:, i : i + 1]) for i, weight in enumerate(weights)]
    best = weights[0]
    for weight in weights[1:]:
        best = jnp.where(weight > best, weight, best)
    # the first that is equal to it, not the last that was larger: XLA computes one array at a time,
    # so that the comparisons would all be repeated for this one
    origin = jnp.zeros(best.shape, dtype)
    for i in reversed(range(k)):
        origin = jnp.where(weights[i] == best, jnp.asarray(i, dtype), origin)
    return best, origin


def state_type(states: int) -> DTypeLike:
    """The type of a state's number: a byte, where that does."""
    return jnp.uint8 if states <= 256 else jnp.int32


def normalised(u: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
    """u / its sum over an axis, and that sum; 0 where the sum is 0."""
    scale = u.sum(axis)
    return u * jnp.expand_dims(divide(1, scale), axis), scale


def condition_on_emission(prior: jax.Array, emission: jax.Array, axis: int = 1) -> tuple[jax.Array,
                                                                                         jax.Array]:
    """Predicted weights of states and a step's log emissions → filtered ones, normalised, and the
    log of their scale.

    The largest emission of the states that can be reached is subtracted before the exponential.
    """
    top = finite(jnp.where(prior > 0, emission, -jnp.inf).max(axis, keepdims=True))
    post, scale = normalised(prior * jnp.exp(jnp.minimum(emission - top, 0)), axis)
    return post, log_of(scale) + jnp.squeeze(top, axis)


def _in_logs(reduce: Callable, move: Callable, pointers: bool) -> Arithmetic:
    def seen(prior: jax.Array, emission: jax.Array, axis: int = 1) -> tuple[jax.Array, jax.Array]:
        log = prior + emission
        scale = reduce(log, axis)
        return log - jnp.expand_dims(finite(scale), axis), scale

    def slack(high: jax.Array) -> jax.Array:  # weights lie below 0
        return ALIKE * jnp.finfo(high.dtype).eps * (1 - finite(high))

    return Arithmetic(lambda log: log, seen, move, slack, pointers)


SUMS = Arithmetic(
    jnp.exp, condition_on_emission, lambda moves, new, alive: (one_step(moves, new), new),
    lambda high: ALIKE * jnp.finfo(high.dtype).eps * high + jnp.finfo(high.dtype).tiny * 2**20)
WIDE = _in_logs(log_sum, lambda moves, new, alive: (log_sum(new[:, :, None] + moves, 1), new),
                False)
BEST = _in_logs(jnp.max, best_moves, True)


def share_of(log: jax.Array, axis: int) -> jax.Array:
    """Each entry's share of the sum over an axis; 0 where all is impossible."""
    weight = jnp.exp(log - finite(log.max(axis, keepdims=True)))
    return divide(weight, weight.sum(axis, keepdims=True))


def has_next_step(alive: jax.Array, blocks: int) -> jax.Array:
    """Whether the step after each one counts, (L, M)."""
    not_last = jnp.arange(alive.shape[1]) % blocks < blocks - 1
    return jnp.concatenate([alive[1:], jnp.roll(alive[:1], -1, 1) & not_last])


def split_blocks(leaf: jax.Array, blocks: int) -> jax.Array:
    """(..., lanes) → (B, ..., rows)."""
    return jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], -1, blocks), -1, 0)


def lanes_of(blocked: jax.Array) -> jax.Array:
    """(B, ..., rows) → (..., lanes)."""
    blocks_last = jnp.moveaxis(blocked, 0, -1)
    return blocks_last.reshape(*blocks_last.shape[:-2], -1)
