"""Paths of chains: filtered distributions, joint draws, and states followed backwards from where
they end."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from probml.elimination.chains.arithmetic import (
    Chain,
    entering_logs,
    linear_of,
    normalised,
    one_step,
    share_of,
    step_at,
)
from probml.elimination.chains.passes import forward, lanes_of, total_of
from probml.numerics.logs import log_sum

# states up to which comparisons are written out: a gather of bytes, or an argmax, is a scalar loop
UNROLLED = 32
AT_ONCE = 64  # steps that are looked up together


def filtered(chain: Chain, blocks: int = 1, parallel: bool = False,
             wide: bool = False) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What is known as time goes on: p(state_t | steps before t) and log p(step t | steps before t)
    up to t's own emission.

    Returns:
        the predicted and the filtered state probabilities, (L, G, K, M), and the log evidence of
        all steps before each, (L, G, M).
    """
    linear = linear_of(chain)
    found = forward(chain, blocks, parallel, wide)
    if wide:
        ahead = log_sum(found.alphas[:-1, :, :, None] + (
            chain.transition if len(chain.transition) == 1 else chain.transition[1:]
        ), 2)
        first = jnp.broadcast_to(chain.initial, found.alphas.shape[1:])
        predicted = share_of(jnp.concatenate([first[None], ahead]), 2)
        return predicted, jnp.exp(found.alphas), jnp.cumsum(found.scales, 0) - found.scales
    entering = normalised(entering_logs(linear, blocks, found.before), 1)[0]
    moved = jax.vmap(lambda t, alpha: one_step(t, alpha),
                     (None if len(linear.transition) == 1 else 0, 0))(
        linear.transition[0] if len(linear.transition) == 1 else linear.transition[1:],
        found.alphas[:-1]
    )
    moved = normalised(moved, 2)[0]
    steps, g, m = found.scales.shape
    whole = found.scales.reshape(steps, g, m // blocks, blocks)
    within = jnp.cumsum(whole, 0) - whole
    earlier = jnp.cumsum(whole.sum(0), -1) - whole.sum(0)
    return jnp.concatenate([entering[None], moved]), found.alphas, (within + earlier).reshape(steps,
                                                                                              g, m)


def draw(
    chain: Chain, key: jax.Array, blocks: int = 1, parallel: bool = False, wide: bool = False
) -> tuple[jax.Array, jax.Array]:
    """One joint draw of each row's path (forward filtering, backward sampling: Scott 2002): log
    evidence (G, rows), states (L, G, M)."""
    linear = chain._replace(alive=None) if wide else linear_of(chain)
    found = forward(chain, blocks, parallel, wide)
    value = total_of(found, blocks, chain.alive)
    steps, g, k, m = found.alphas.shape
    noise = jax.random.uniform(key, (steps + 1, g, m), found.alphas.dtype)

    def chosen(alpha: jax.Array, transition: jax.Array, u: jax.Array):
        """For each state of a step, the state before it: (G, K, M)."""
        weight = share_of(alpha[:, :, None] + transition, 1) if wide else transition * alpha[:, :,
                                                                                             None]
        return _pick(weight, 1, u[:, None, None])

    def table(now: tuple):
        alpha, own, u = now
        return chosen(alpha, linear.transition[0] if own is None else own, u)

    ends = jnp.exp(found.alphas[-1]) if wide else found.alphas[-1]
    own = None if len(linear.transition) == 1 else linear.transition[1:]
    between = None if blocks == 1 else chosen(found.before, step_at(linear, 0)[0], noise[0])
    states = followed(_pick(ends, 1, noise[-1][:, None]), table,
                      (found.alphas[:-1], own, noise[1:-1]), between, blocks)
    possible = jnp.repeat(value > -jnp.inf, blocks, -1)
    return value, jnp.where(possible, states.astype(jnp.int32), 0)


def kind(states: int) -> Any:
    """The type of a state's number: a byte, where that does."""
    return jnp.uint8 if states <= 256 else jnp.int32


def _pick(weight: jax.Array, axis: int, noise: jax.Array) -> jax.Array:
    """An entry, drawn in proportion: the first at which the running sum passes a uniform share of
    the whole."""
    running = jnp.cumsum(weight, axis)
    passed = running > noise * lax.index_in_dim(running, weight.shape[axis] - 1, axis)
    return jnp.where(passed.any(axis), passed.argmax(axis),
                     weight.argmax(axis)).astype(kind(weight.shape[axis]))


def followed(last: jax.Array, table: Callable, along: jax.Array, between: jax.Array | None,
             blocks: int) -> jax.Array:
    """States backwards from the last step, each given the next: (L, G, M).

    Every block is followed from all of its last states at once; which of them it was is then looked
    up from the last block on.

    Args:
        last: (G, M) the states at the ends of the lanes.
        table: of `along` at a step → the state there before each state of the next, (G, K, M).
        along: (L − 1, ...) in any pytree.
        between: (G, K, M) the last state of the block before, before each first one of a block;
            None of one block.
    """
    state = last[:, None] if between is None else jnp.broadcast_to(
        jnp.arange(between.shape[1], dtype=last.dtype)[:, None], between.shape)
    first, rest = lax.scan(lambda state, now: (look(table(now), state), state), state, along,
                           reverse=True)
    states = jnp.concatenate([first[None], rest])  # (L, G, K or 1, M)
    if between is None:
        return states[:, :, 0]
    # the last state of the block before, for each last state of this one
    into = look(between, first)
    last, into = (jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], -1, blocks), -1, 0)
                  for leaf in (last, into))

    def link(state: jax.Array, into: jax.Array):
        return look(into, state[:, None])[:, 0], state

    head, tail = lax.scan(link, last[-1], into[1:], reverse=True)
    ended = lanes_of(jnp.concatenate([head[None], tail]))  # (G, M)
    # some steps at a time: one look at all of them would be fused with whatever reads it, and read
    # across the steps
    return lax.map(lambda states: look(states, ended[:, None])[:, 0], states, batch_size=AT_ONCE)


def look(table: jax.Array, states: jax.Array) -> jax.Array:
    """table[g, states[g, s, m], m] for every s: by comparison, where a gather of bytes is slow."""
    if table.shape[1] > UNROLLED:
        return jnp.take_along_axis(table, states.astype(jnp.int32), 1)
    out = jnp.zeros(states.shape, table.dtype)
    for i in range(table.shape[1]):
        out = jnp.where(states == i, table[:, i : i + 1], out)
    return out
