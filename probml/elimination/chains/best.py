"""The most probable path of a chain (Viterbi 1967), in logs throughout: a step adds and compares,
takes no exponential, and no state is lost to the range of a float.

Going forward, what is kept of a step is the state before each of its states, a byte each, and one
number. What enters a block is found first: as sums do, maxima forget. The best paths from all
states before the last steps of a block to one at its end soon share their tail (coalescence:
Šrámek, Brejová & Vinař 2007), and the rows of these steps' transfer matrix are then equal. A block
whose last steps do not forget is swept whole, and joined to what was before.

Emissions are there for all steps (`maximise`), or are made a piece of the steps at a time, in
cache, and forgotten (`in_pieces`; long_chains.py says how).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from probml.elimination.chains.arithmetic import ALIKE, SWEEP, Chain, first_of, lead
from probml.elimination.chains.passes import lanes_of, split_blocks
from probml.elimination.chains.paths import UNROLLED, followed, kind
from probml.elimination.chains.walk import Pieces, Tables, Walk
from probml.numerics.logs import finite, floored, unfloored


class _Path(NamedTuple):
    """A forward pass: what each state of the last step weighs, (G, K, M), 0 the best; the best
    weight that each step adds, (L, G, M); each step's own best way into each state of the next,
    (L, G, K, M), the last one's of no use."""

    ends: jax.Array
    scales: jax.Array
    pointers: jax.Array


def maximise(chain: Chain, blocks: int = 1, parallel: bool = False) -> tuple[jax.Array, jax.Array]:
    """The most probable path: its log weight (G, rows), and its states (L, G, M), int32.

    Steps that do not count have the last state before them. Ties go to the lowest state, the last
    step's first; an impossible row has states 0.

    Cost: O(T K²) a row, T K bytes; with blocks, O(K³) more for each step in which paths have not
        yet met.
    """
    if chain.alive is not None:  # a step that does not count: anywhere, at no weight
        chain = chain._replace(emission=jnp.where(chain.alive[:, None, None], chain.emission, 0.0))
    before = lanes_of(_before(chain, blocks, parallel)) if blocks > 1 else None
    entering, between = _entering(chain.initial, chain.transition[0], chain.alive, before, blocks,
                                  lead(chain)[1:])
    return _followed(_forward(chain, entering), chain.alive, between, blocks)


def in_pieces(emit: Callable, blocks: int, tables: Tables,
              pieces: Pieces) -> tuple[jax.Array, jax.Array]:
    """As `maximise`, of chains whose emissions are made a piece at a time, as pieces.evidence makes
    them.

    Cost: emissions once, and once more of the last pieces of each block; memory of T K bytes a row,
        and nothing else of that size.
    """
    walk = Walk(emit, blocks, tables, pieces)
    moves, alive = tables.transition, tables.alive
    every = None if alive is None else alive.reshape(-1, walk.lanes)

    def sweep(piece: jax.Array, ways: Ways) -> Ways:
        own = None if alive is None else walk.at(piece, alive)
        begins = (piece == 0) & (jnp.arange(walk.steps) == 0)
        return lax.scan(lambda ways, now: (swept(ways, now[1], moves, now[0], now[2],
                                                 tables.initial, blocks), None),
                        ways, (walk.emission(piece), begins, own))[0]

    before = None
    if blocks > 1:
        none = nowhere(walk.whole, moves.dtype)
        before = lanes_of(before_blocks(
            lambda count: lax.fori_loop(walk.count - count, walk.count, sweep, none), none, 0,
            walk.count, blocks, False))
    entering, between = _entering(tables.initial, moves, every, before, blocks, walk.whole)

    def forward(carry: tuple, piece: jax.Array):
        later = None if alive is None else walk.following(piece)
        carry, (scales, where) = lax.scan(
            lambda carry, now: best_step(carry[0], now[0], moves, now[1]), carry,
            (walk.emission(piece), later))
        return carry, (scales.sum(0), where)

    (_, ends), (scales, pointers) = lax.scan(forward, (entering, entering), jnp.arange(walk.count))
    return _followed(_Path(ends, scales, pointers.reshape(-1, *walk.whole)), every, between, blocks)


def _followed(path: "_Path", alive: jax.Array | None, between: jax.Array | None,
              blocks: int) -> tuple[jax.Array, jax.Array]:
    """The path from where it ends, and its weight."""
    value = path.scales.sum(0)
    value = value.reshape(len(value), -1, blocks).sum(-1)
    if alive is not None:  # a sequence of no steps
        value = jnp.where(alive[0, ::blocks], value, 0.0)
    states = followed(path.ends.argmax(1).astype(path.pointers.dtype), lambda table: table,
                      path.pointers[:-1], between, blocks)
    possible = jnp.repeat(value > -jnp.inf, blocks, -1)
    return value, jnp.where(possible, repeat_last_state(alive, states, blocks).astype(jnp.int32), 0)


def best_moves(log: jax.Array, moves: jax.Array, alive: jax.Array | None) -> tuple[jax.Array,
                                                                               jax.Array]:
    """The best way into each state of a step, (G, K, M), and from where.

    Args:
        log: (G, K, M) of the step before. moves: (G, K, K, M or 1). alive: (M,) whether the step
            counts: from anywhere to anywhere, if it does not.
    """
    k, dtype = log.shape[1], kind(log.shape[1])
    if k > UNROLLED:
        way = log[:, :, None] + moves
        if alive is not None:
            way = jnp.where(alive, way, log[:, :, None])
        return way.max(1), way.argmax(1).astype(dtype)
    ways = [log[:, i : i + 1] + moves[:, i] for i in range(k)]
    if alive is not None:
        ways = [jnp.where(alive, way, log[:, i : i + 1]) for i, way in enumerate(ways)]
    best = ways[0]
    for way in ways[1:]:
        best = jnp.where(way > best, way, best)
    # the first that reaches it, and not the last that passed it: XLA makes one array at a time, so
    # that the comparisons would all be made again for this one
    where = jnp.zeros(best.shape, dtype)
    for i in reversed(range(k)):
        where = jnp.where(ways[i] == best, jnp.asarray(i, dtype), where)
    return best, where


def best_step(ahead: jax.Array, emission: jax.Array, moves: jax.Array,
              alive: jax.Array | None) -> tuple[tuple, tuple]:
    """From the log weights ahead of a step, (G, K, M), to those ahead of the next, with the step's
    own, the best 0; what that best weighs, (G, M), and from where the best ways come."""
    log = ahead + emission
    scale = log.max(1)
    log = log - finite(scale)[:, None]
    moved, where = best_moves(log, moves, alive)
    return (moved, log), (scale, where)


def _at(leaf: Any, step: int | jax.Array) -> Any:
    """An array along time at a step; of one that is the same at all, that; None of None."""
    if leaf is None or len(leaf) == 1:
        return None if leaf is None else leaf[0]
    return lax.dynamic_index_in_dim(leaf, step, 0, False)


def _entering(initial: jax.Array, moves: jax.Array, alive: jax.Array | None,
              before: jax.Array | None, blocks: int,
              shape: tuple[int, int, int]) -> tuple[jax.Array, jax.Array | None]:
    """The log weights of the states at each lane's first step, before its emission, and the best
    last state of the block before each of them (None of one block).

    Args:
        moves: into the first step. alive: (L, M). shape: G, K, M.
    """
    start = jnp.broadcast_to(first_of(initial, shape[-1], blocks), shape)
    if before is None:
        return start, None
    into, where = best_moves(before, moves, None if alive is None else alive[0])
    return jnp.where(jnp.arange(shape[-1]) % blocks == 0, start, into), where


def _forward(chain: Chain, entering: jax.Array) -> _Path:
    def step(carry: tuple, now: tuple):
        emission, moves, alive = now
        return best_step(carry[0], emission, chain.transition[0] if moves is None else moves, alive)

    moves = None if len(chain.transition) == 1 else jnp.roll(chain.transition, -1, 0)
    later = None if chain.alive is None else jnp.roll(chain.alive, -1, 0)
    (_, ends), (scales, pointers) = lax.scan(step, (entering, entering),
                                             (chain.emission, moves, later))
    return _Path(ends, scales, pointers)


class Ways(NamedTuple):
    """Blocks as matrices: from the state before some steps to the one at their end, (G, from, to,
    M), each row's best 0; and that best weight, (G, from, M)."""

    scale: jax.Array
    end: jax.Array


def _before(chain: Chain, blocks: int, parallel: bool) -> jax.Array:
    """The log weights of the states before every block, the best 0: (B, G, K, rows); of the first
    block, nothing of use."""
    steps, g, k, m = lead(chain)

    def sweep(at: jax.Array, carry: Ways) -> Ways:
        return swept(carry, at == 0, _at(chain.transition, at), _at(chain.emission, at),
                     _at(chain.alive, at), chain.initial, blocks)

    none = nowhere((g, k, m), chain.emission.dtype)
    return before_blocks(lambda count: lax.fori_loop(steps - count, steps, sweep, none), none,
                         min(SWEEP // 2, steps - 1), steps, blocks, parallel)


def nowhere(shape: tuple[int, int, int], dtype: object) -> Ways:
    """The matrices of no steps, of (G, K, M)."""
    g, k, m = shape
    eye = jnp.where(jnp.eye(k, dtype=bool), 0.0, -jnp.inf).astype(dtype)
    return Ways(jnp.zeros(shape, dtype), jnp.broadcast_to(eye[None, :, :, None], (g, k, k, m)))


def swept(ways: Ways, begins: jax.Array, moves: jax.Array, emission: jax.Array,
          alive: jax.Array | None, initial: jax.Array, blocks: int) -> Ways:
    """The matrices of one step more.

    Args:
        begins: whether it is the first of its lane, so that a row's first block begins there.
    """
    m = ways.end.shape[-1]
    log = jax.vmap(lambda row: best_moves(row, moves, alive)[0], 1, 1)(ways.end)
    begun = jnp.broadcast_to(first_of(initial, m, blocks)[:, None], log.shape)
    log = jnp.where(begins & (jnp.arange(m) % blocks == 0), begun, log) + emission[:, None]
    best = log.max(2)
    return Ways(ways.scale + best, log - finite(best)[:, :, None])


def before_blocks(last: Callable, none: Ways, begun: int, steps: int, blocks: int,
                  parallel: bool) -> jax.Array:
    """The log weights of the states before every block, the best 0: (B, G, K, rows); of the first
    block, nothing of use.

    Args:
        last: of a number → the matrices of so many of the last steps (or pieces of them).
        begun: with how many to begin. steps: how many there are.
    """
    def unlike(carry: tuple):
        count, transfer = carry
        return (count < steps) & ~jnp.all(has_equal_rows(transfer))

    def longer(carry: tuple):
        count = jnp.minimum(2 * carry[0] + 1, steps)
        return count, last(count)

    count, transfer = lax.while_loop(unlike, longer, (jnp.asarray(begun), none))
    # of rows that are equal, any that is possible
    row = jnp.where((transfer.scale > -jnp.inf)[:, :, None], transfer.end, -jnp.inf).max(1)
    forgotten = count < steps  # then it does not matter where the steps before them ended
    end = jnp.where(forgotten, row[:, None], transfer.end)
    scale = jnp.where(forgotten, 0.0, transfer.scale)

    return entering_blocks(Ways(split_blocks(scale, blocks), split_blocks(end, blocks)), parallel)


def has_equal_rows(transfer: Ways) -> jax.Array:
    """(G, M): whether all possible rows of the transfer are equal, so that the state before no
    longer matters."""
    possible = (transfer.scale > -jnp.inf)[:, :, None]
    high = jnp.where(possible, transfer.end, -jnp.inf).max(1)
    low = jnp.where(possible, transfer.end, jnp.inf).min(1)
    slack = ALIKE * jnp.finfo(high.dtype).eps * (1 - finite(high))  # rows lie below 0
    return jnp.all((high == low) | (high - low <= slack) | (high == -jnp.inf), 1)


def entering_blocks(transfer: Ways, parallel: bool) -> jax.Array:
    """What is before every block, from the matrices of all, (B, G, from, [to,] rows)."""
    def both(first: Ways, second: Ways) -> Ways:
        ways = second.scale[..., :, None, :] + second.end
        log = (first.end[..., :, :, None, :] + ways[..., None, :, :, :]).max(-3)
        best = log.max(-2)
        return Ways(first.scale + best, log - finite(best)[..., None, :])

    if parallel:
        found = lax.associative_scan(both, transfer).end[:, :, 0]
        return jnp.concatenate([found[:1], found[:-1]])

    def step(before: jax.Array, block: Ways):
        log = ((before + block.scale)[:, :, None] + block.end).max(1)
        return log - finite(log.max(1, keepdims=True)), before

    first = transfer.end[0, :, 0]  # all rows of the first block are equal
    _, found = lax.scan(step, first, jax.tree.map(lambda leaf: leaf[1:], transfer))
    return jnp.concatenate([first[None], found])


def repeat_last_state(alive: jax.Array | None, states: jax.Array, blocks: int) -> jax.Array:
    """The states, those of padding steps as the last before them."""
    if alive is None:
        return states
    m = states.shape[-1]
    following = jnp.roll(alive[:1], -1, 1) & (jnp.arange(m) % blocks < blocks - 1)
    last = alive & ~jnp.concatenate([alive[1:], following])
    found = jnp.where(last[:, None], states, 0).sum(0, dtype=states.dtype)  # (G, M)
    found = found.reshape(len(found), -1, blocks).sum(-1, dtype=states.dtype)
    return jnp.where(alive[:, None], states, jnp.repeat(found, blocks, -1))


def best(chain: Chain, blocks: int = 1) -> jax.Array:
    """The log weight of the most probable path, (G, rows); its gradient is one-hot along that
    path."""
    _, states = maximise(lax.stop_gradient(chain), blocks)
    chain = chain._replace(emission=floored(chain.emission), transition=floored(chain.transition),
                           initial=floored(chain.initial))
    steps, g, m = states.shape
    # (L, G, K, M)
    hot = jax.nn.one_hot(states, chain.emission.shape[2], axis=2, dtype=chain.emission.dtype)
    first = hot[0, ..., ::blocks]
    wrapped = jnp.roll(hot[-1], 1, -1)  # the last step of the block before
    before = jnp.concatenate([wrapped[None], hot[:-1]])
    if chain.transition.shape[-1] == 1 and len(chain.transition) == 1:
        moved = jnp.einsum("hij,tgim->tgjm", chain.transition[0, ..., 0],
                           before) if chain.transition.shape[1] == 1 else jnp.einsum(
            "gij,tgim->tgjm", chain.transition[0, ..., 0], before
        )
    else:
        moved = (chain.transition * before[:, :, :, None]).sum(2)
    moved = (moved * hot).sum(2)
    start = (jnp.arange(m) % blocks == 0) & (jnp.arange(steps)[:, None] == 0)
    step = jnp.where(start[:, None], 0.0, moved) + (chain.emission * hot).sum(2)
    if chain.alive is not None:
        step = jnp.where(chain.alive[:, None], step, 0.0)
        first = jnp.where(chain.alive[0, ::blocks], first, 0.0)
    log = step.reshape(steps, g, m // blocks, blocks).sum((0, 3)) + (chain.initial * first).sum(1)
    return unfloored(log)
