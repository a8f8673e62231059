"""Paths of chains: filtered distributions, joint draws, and states followed backwards from where
they end.

The most probable path of a chain (Viterbi 1967), in logs throughout: a step adds and compares,
takes no exponential, and no state underflows. Of each step of the forward pass the best state
before each of its states is stored, a byte each.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from probml.elimination.chains.arithmetic import (
    BEST,
    UNCUT,
    UNROLLED,
    Chain,
    ScanLayout,
    has_next_step,
    lanes_of,
    normalised,
    share_of,
    state_type,
)
from probml.elimination.chains.sums import walk_of
from probml.elimination.chains.walk import (
    Pass,
    Pieces,
    Tables,
    Walk,
    cut,
    forward,
    stored_emissions,
)
from probml.numerics.logs import floored, unfloored
from probml.typing import PyTree

AT_ONCE = 64  # steps whose states are looked up together


def _forward_pass(chain: Chain, layout: ScanLayout) -> tuple[Walk, Pass, jax.Array]:
    """A forward pass, and the filtered weights of all steps, (L, G, K, M)."""
    walk = walk_of(stored_emissions, layout, *cut(chain, layout.blocks), ends=False)
    fwd = forward(walk)
    return walk, fwd, fwd.stored.reshape(-1, *walk.step_shape)


def _transition_weights(walk: Walk, tables: jax.Array) -> jax.Array | None:
    """The moves into each step but the first, as weights; None where they are the same."""
    return walk.arithmetic.weights(tables[1:]) if walk.timed else None


def filtered(chain: Chain, layout: ScanLayout = UNCUT) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Predicted and filtered distributions: p(state_t | data before t) and p(state_t | data up to
    t).

    Returns:
        the predicted and the filtered state probabilities, (L, G, K, M), and the log evidence of
        all steps before each, (L, G, M).
    """
    walk, fwd, alphas = _forward_pass(chain, layout)
    arithmetic, moves = walk.arithmetic, _transition_weights(walk, chain.transition)
    later = jax.vmap(lambda mat, alpha: arithmetic.predict(walk.into if mat is None else mat, alpha,
                                                           None)[0])(moves, alphas[:-1])
    prior = jnp.concatenate([walk.entering(fwd.weights_before)[None], later])
    emission = chain.emission if chain.alive is None else jnp.where(chain.alive[:, None, None],
                                                                    chain.emission, 0.0)
    scales = arithmetic.condition(prior, emission, 2)[1]
    steps, g, m = scales.shape
    by_block = scales.reshape(steps, g, m // layout.blocks, layout.blocks)
    in_block = jnp.cumsum(by_block, 0) - by_block
    earlier = (jnp.cumsum(by_block.sum(0), -1) - by_block.sum(0) + in_block).reshape(steps, g, m)
    if layout.in_logs:
        return (share_of(prior, 2), jnp.exp(alphas), earlier)
    return (normalised(prior, 2)[0], alphas, earlier)


def draw(chain: Chain, key: jax.Array, layout: ScanLayout = UNCUT) -> tuple[jax.Array, jax.Array]:
    """One joint draw of each row's path (forward filtering, backward sampling: Scott 2002): log
    evidence (G, rows), states (L, G, M)."""
    walk, fwd, alphas = _forward_pass(chain, layout)
    steps, g, _, m = alphas.shape
    noise = jax.random.uniform(key, (steps + 1, g, m), alphas.dtype)

    def chosen(alpha: jax.Array, mat: jax.Array | None, u: jax.Array) -> jax.Array:
        """For each state of a step, the state before it: (G, K, M)."""
        moves = walk.into if mat is None else mat
        weight = (share_of(alpha[:, :, None] + moves, 1) if layout.in_logs
                  else moves * alpha[:, :, None])
        return _pick(weight, 1, u[:, None, None])

    last_weights = jnp.exp(fwd.last) if layout.in_logs else fwd.last
    entries = None if fwd.weights_before is None else chosen(fwd.weights_before, None, noise[0])
    states = backtrack(_pick(last_weights, 1, noise[-1][:, None]), lambda now: chosen(*now),
                       (alphas[:-1], _transition_weights(walk, chain.transition), noise[1:-1]),
                       entries,
                       layout.blocks)
    possible = jnp.repeat(fwd.total > -jnp.inf, layout.blocks, -1)
    return fwd.total, jnp.where(possible, states.astype(jnp.int32), 0)


def _pick(weight: jax.Array, axis: int, noise: jax.Array) -> jax.Array:
    """An entry, drawn in proportion: the first at which the running sum passes a uniform share of
    the whole."""
    running = jnp.cumsum(weight, axis)
    exceeds = running > noise * lax.index_in_dim(running, weight.shape[axis] - 1, axis)
    return jnp.where(exceeds.any(axis), exceeds.argmax(axis),
                     weight.argmax(axis)).astype(state_type(weight.shape[axis]))


def backtrack(last: jax.Array, table: Callable, along: PyTree, entries: jax.Array | None,
              blocks: int) -> jax.Array:
    """States backwards from the last step, each given the next: (L, G, M).

    Every block is followed from all of its last states at once; which of them it was is then looked
    up, from the last block to the first.

    Args:
        last: (G, M) the states at the ends of the lanes.
        table: of `along` at a step → the state there before each state of the next, (G, K, M).
        along: (L − 1, ...) in any pytree.
        entries: (G, K, M) the last state of the block before, before each first one of a block;
            None of one block.
    """
    state = last[:, None] if entries is None else jnp.broadcast_to(
        jnp.arange(entries.shape[1], dtype=last.dtype)[:, None], entries.shape)
    first, rest = lax.scan(lambda state, xs: (look_up(table(xs), state), state), state, along,
                           reverse=True)
    states = jnp.concatenate([first[None], rest])  # (L, G, K or 1, M)
    if entries is None:
        return states[:, :, 0]
    # the last state of the block before, for each last state of this one
    entry = look_up(entries, first)
    last, entry = (jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], -1, blocks), -1, 0)
                   for leaf in (last, entry))
    head, tail = lax.scan(lambda state, entry: (look_up(entry, state[:, None])[:, 0], state),
                          last[-1], entry[1:], reverse=True)
    final = lanes_of(jnp.concatenate([head[None], tail]))  # (G, M)
    # some steps at a time: one lookup of all would be fused with what reads it, and read across
    # steps
    return lax.map(lambda states: look_up(states, final[:, None])[:, 0], states, batch_size=AT_ONCE)


def look_up(table: jax.Array, states: jax.Array) -> jax.Array:
    """table[g, states[g, s, m], m] for every s: by comparison, where a gather of bytes is slow."""
    if table.shape[1] > UNROLLED:
        return jnp.take_along_axis(table, states.astype(jnp.int32), 1)
    out = jnp.zeros(states.shape, table.dtype)
    for i in range(table.shape[1]):
        out = jnp.where(states == i, table[:, i : i + 1], out)
    return out


def maximise(chain: Chain, layout: ScanLayout = UNCUT) -> tuple[jax.Array, jax.Array]:
    """The most probable path: its log weight (G, rows), and its states (L, G, M), int32.

    Steps that do not count have the last state before them. Ties go to the lowest state, the last
    step's first; an impossible row has states 0.

    Cost: O(T K²) a row, T K bytes; with blocks, O(K³) more for each step in which paths have not
        yet met.
    """
    return in_pieces(stored_emissions, layout, *cut(chain, layout.blocks))


def in_pieces(emit: Callable, layout: ScanLayout, tables: Tables,
              pieces: Pieces) -> tuple[jax.Array, jax.Array]:
    """As `maximise`, of chains whose emissions are made a piece at a time, as sums.in_pieces makes
    them."""
    walk = Walk(emit, layout, tables, pieces, BEST)
    fwd = forward(walk)
    entries = None if fwd.weights_before is None else walk.move_into(fwd.weights_before)[1]
    pointers = fwd.stored.reshape(-1, *walk.step_shape)
    states = backtrack(fwd.last.argmax(1).astype(pointers.dtype), lambda table: table,
                       pointers[:-1], entries, layout.blocks)
    possible = jnp.repeat(fwd.total > -jnp.inf, layout.blocks, -1)
    states = repeat_last_state(tables.alive, states, layout.blocks)
    return fwd.total, jnp.where(possible, states.astype(jnp.int32), 0)


def repeat_last_state(alive: jax.Array | None, states: jax.Array, blocks: int) -> jax.Array:
    """The states, those of padding steps as the last before them."""
    if alive is None:
        return states
    is_last = alive & ~has_next_step(alive, blocks)
    last_state = jnp.where(is_last[:, None], states, 0).sum(0, dtype=states.dtype)  # (G, M)
    last_state = last_state.reshape(len(last_state), -1, blocks).sum(-1, dtype=states.dtype)
    return jnp.where(alive[:, None], states, jnp.repeat(last_state, blocks, -1))


def best(chain: Chain, blocks: int = 1) -> jax.Array:
    """The log weight of the most probable path, (G, rows); its gradient is one-hot along that
    path."""
    _, states = maximise(lax.stop_gradient(chain), ScanLayout(blocks))
    chain = chain._replace(emission=floored(chain.emission), transition=floored(chain.transition),
                           initial=floored(chain.initial))
    steps, g, m = states.shape
    # (L, G, K, M)
    hot = jax.nn.one_hot(states, chain.emission.shape[2], axis=2, dtype=chain.emission.dtype)
    first = hot[0, ..., ::blocks]
    wrapped = jnp.roll(hot[-1], 1, -1)  # the last step of the block before
    before = jnp.concatenate([wrapped[None], hot[:-1]])
    if chain.transition.shape[-1] == 1 and len(chain.transition) == 1:
        mat = chain.transition[0, ..., 0]
        pair_logs = jnp.einsum("gij,tgim->tgjm", jnp.broadcast_to(mat, (g, *mat.shape[1:])), before)
    else:
        pair_logs = (chain.transition * before[:, :, :, None]).sum(2)
    pair_logs = (pair_logs * hot).sum(2)
    is_start = (jnp.arange(m) % blocks == 0) & (jnp.arange(steps)[:, None] == 0)
    step = jnp.where(is_start[:, None], 0.0, pair_logs) + (chain.emission * hot).sum(2)
    if chain.alive is not None:
        step = jnp.where(chain.alive[:, None], step, 0.0)
        first = jnp.where(chain.alive[0, ::blocks], first, 0.0)
    log = step.reshape(steps, g, m // blocks, blocks).sum((0, 3)) + (chain.initial * first).sum(1)
    return unfloored(log)
