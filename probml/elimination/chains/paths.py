"""Paths of chains: filtered distributions, joint draws, and states followed backwards from where
they end."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from probml.elimination.chains.arithmetic import (
    UNCUT,
    UNROLLED,
    Chain,
    Way,
    kind,
    lanes_of,
    normalised,
    share_of,
)
from probml.elimination.chains.sums import walk_of
from probml.elimination.chains.walk import Pass, Walk, cut, forward, given

AT_ONCE = 64  # steps whose states are looked up together


def _passed(chain: Chain, way: Way) -> tuple[Walk, Pass, jax.Array]:
    """A forward pass, and the filtered weights of all steps, (L, G, K, M)."""
    walk = walk_of(given, way, *cut(chain, way.blocks), ends=False)
    found = forward(walk)
    return walk, found, found.kept.reshape(-1, *walk.whole)


def _moves(walk: Walk, tables: jax.Array) -> jax.Array | None:
    """The moves into each step but the first, as weights; None where they are the same."""
    return walk.arithmetic.weights(tables[1:]) if walk.timed else None


def filtered(chain: Chain, way: Way = UNCUT) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Predicted and filtered distributions: p(state_t | data before t) and p(state_t | data up to
    t).

    Returns:
        the predicted and the filtered state probabilities, (L, G, K, M), and the log evidence of
        all steps before each, (L, G, M).
    """
    walk, found, alphas = _passed(chain, way)
    arithmetic, moves = walk.arithmetic, _moves(walk, chain.transition)
    moved = jax.vmap(lambda own, alpha: arithmetic.move(walk.into if own is None else own, alpha,
                                                        None)[0])(moves, alphas[:-1])
    ahead = jnp.concatenate([walk.entering(found.before)[None], moved])
    emission = chain.emission if chain.alive is None else jnp.where(chain.alive[:, None, None],
                                                                    chain.emission, 0.0)
    scales = arithmetic.seen(ahead, emission, 2)[1]
    steps, g, m = scales.shape
    whole = scales.reshape(steps, g, m // way.blocks, way.blocks)
    within = jnp.cumsum(whole, 0) - whole
    earlier = (jnp.cumsum(whole.sum(0), -1) - whole.sum(0) + within).reshape(steps, g, m)
    if way.wide:
        return share_of(ahead, 2), jnp.exp(alphas), earlier
    return normalised(ahead, 2)[0], alphas, earlier


def draw(chain: Chain, key: jax.Array, way: Way = UNCUT) -> tuple[jax.Array, jax.Array]:
    """One joint draw of each row's path (forward filtering, backward sampling: Scott 2002): log
    evidence (G, rows), states (L, G, M)."""
    walk, found, alphas = _passed(chain, way)
    steps, g, _, m = alphas.shape
    noise = jax.random.uniform(key, (steps + 1, g, m), alphas.dtype)

    def chosen(alpha: jax.Array, own: jax.Array | None, u: jax.Array) -> jax.Array:
        """For each state of a step, the state before it: (G, K, M)."""
        moves = walk.into if own is None else own
        weight = share_of(alpha[:, :, None] + moves, 1) if way.wide else moves * alpha[:, :, None]
        return _pick(weight, 1, u[:, None, None])

    ends = jnp.exp(found.last) if way.wide else found.last
    between = None if found.before is None else chosen(found.before, None, noise[0])
    states = backtracked(_pick(ends, 1, noise[-1][:, None]), lambda now: chosen(*now),
                         (alphas[:-1], _moves(walk, chain.transition), noise[1:-1]), between,
                         way.blocks)
    possible = jnp.repeat(found.total > -jnp.inf, way.blocks, -1)
    return found.total, jnp.where(possible, states.astype(jnp.int32), 0)


def _pick(weight: jax.Array, axis: int, noise: jax.Array) -> jax.Array:
    """An entry, drawn in proportion: the first at which the running sum passes a uniform share of
    the whole."""
    running = jnp.cumsum(weight, axis)
    passed = running > noise * lax.index_in_dim(running, weight.shape[axis] - 1, axis)
    return jnp.where(passed.any(axis), passed.argmax(axis),
                     weight.argmax(axis)).astype(kind(weight.shape[axis]))


def backtracked(last: jax.Array, table: Callable, along: Any, between: jax.Array | None,
                blocks: int) -> jax.Array:
    """States backwards from the last step, each given the next: (L, G, M).

    Every block is followed from all of its last states at once; which of them it was is then looked
    up, from the last block to the first.

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
    # some steps at a time: one lookup of all would be fused with what reads it, and read across
    # steps
    return lax.map(lambda states: look(states, ended[:, None])[:, 0], states, batch_size=AT_ONCE)


def look(table: jax.Array, states: jax.Array) -> jax.Array:
    """table[g, states[g, s, m], m] for every s: by comparison, where a gather of bytes is slow."""
    if table.shape[1] > UNROLLED:
        return jnp.take_along_axis(table, states.astype(jnp.int32), 1)
    out = jnp.zeros(states.shape, table.dtype)
    for i in range(table.shape[1]):
        out = jnp.where(states == i, table[:, i : i + 1], out)
    return out
