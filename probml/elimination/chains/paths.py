"""Paths of chains: filtered distributions, joint draws, most probable paths.

The most probable path (Viterbi 1967) is found in logs throughout: a step adds and compares, takes
no exponential, and no state is lost to the range of a float. Going forward, what is kept of a step
is the state before each of its states, a byte each, and one number. What enters a block is found
first: as sums do, maxima forget. The best paths from all states before the last steps of a block to
one at its end soon share their tail (coalescence: Šrámek, Brejová & Vinař 2007), and the rows of
these steps' transfer matrix are then equal. A block whose last steps do not forget is swept whole,
and joined to what was before.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from probml.elimination.chains.arithmetic import (
    ALIKE,
    SWEEP,
    Chain,
    entering_logs,
    first_of,
    lead,
    linear_of,
    normalised,
    one_step,
    share_of,
    step_at,
)
from probml.elimination.chains.passes import forward, lanes_of, total_of
from probml.numerics.logs import finite, floored, log_sum, unfloored

# states up to which comparisons are written out: a gather of bytes, or an argmax, is a scalar loop
UNROLLED = 32


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

    def chosen(alpha, transition, u):
        """For each state of a step, the state before it: (G, K, M)."""
        weight = share_of(alpha[:, :, None] + transition, 1) if wide else transition * alpha[:, :,
                                                                                             None]
        return _pick(weight, 1, u[:, None, None])

    def table(now):
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


def followed(last: jax.Array, table: Callable, along: Any, between: jax.Array | None,
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

    def link(state, into):
        return look(into, state[:, None])[:, 0], state

    head, tail = lax.scan(link, last[-1], into[1:], reverse=True)
    ended = lanes_of(jnp.concatenate([head[None], tail]))  # (G, M)
    return jax.vmap(look, (0, None))(states, ended[:, None])[:, :, 0]


def look(table: jax.Array, states: jax.Array) -> jax.Array:
    """table[g, states[g, s, m], m] for every s: by comparison, where a gather of bytes is slow."""
    if table.shape[1] > UNROLLED:
        return jnp.take_along_axis(table, states.astype(jnp.int32), 1)
    out = jnp.zeros(states.shape, table.dtype)
    for i in range(table.shape[1]):
        out = jnp.where(states == i, table[:, i : i + 1], out)
    return out


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
    path = _forward(chain, blocks, before)
    value = path.scales.sum(0)
    value = value.reshape(len(value), -1, blocks).sum(-1)
    if chain.alive is not None:  # a sequence of no steps
        value = jnp.where(chain.alive[0, ::blocks], value, 0.0)
    between = None if before is None else _into(chain, before)[1]
    states = followed(path.ends.argmax(1).astype(path.pointers.dtype), lambda table: table,
                      path.pointers[:-1], between, blocks)
    possible = jnp.repeat(value > -jnp.inf, blocks, -1)
    return value, jnp.where(possible, _held(chain, states, blocks).astype(jnp.int32), 0)


def _moved(log: jax.Array, moves: jax.Array, alive: jax.Array | None) -> tuple[jax.Array,
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
    best = where = None
    for i in range(k):
        way = log[:, i : i + 1] + moves[:, i]
        if alive is not None:
            way = jnp.where(alive, way, log[:, i : i + 1])
        if best is None:
            best, where = way, jnp.zeros(way.shape, dtype)
            continue
        over = way > best
        best, where = jnp.where(over, way, best), jnp.where(over, jnp.asarray(i, dtype), where)
    return best, where


def _at(leaf: Any, step) -> Any:
    """An array along time at a step; of one that is the same at all, that; None of None."""
    if leaf is None or len(leaf) == 1:
        return None if leaf is None else leaf[0]
    return lax.dynamic_index_in_dim(leaf, step, 0, False)


def _entering(chain: Chain, blocks: int, before: jax.Array | None) -> jax.Array:
    """The log weights of the states at each lane's first step, before its emission."""
    _, g, k, m = lead(chain)
    start = jnp.broadcast_to(first_of(chain.initial, m, blocks), (g, k, m))
    if before is None:
        return start
    return jnp.where(jnp.arange(m) % blocks == 0, start, _into(chain, before)[0])


def _into(chain: Chain, before: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The best way into each first state of a block, and from where."""
    return _moved(before, chain.transition[0], None if chain.alive is None else chain.alive[0])


def _forward(chain: Chain, blocks: int, before: jax.Array | None) -> _Path:
    entering = _entering(chain, blocks, before)

    def step(carry, now):
        ahead, _ = carry
        emission, moves, alive = now
        log = ahead + emission
        scale = log.max(1)
        log = log - finite(scale)[:, None]
        moved, where = _moved(log, chain.transition[0] if moves is None else moves, alive)
        return (moved, log), (scale, where)

    moves = None if len(chain.transition) == 1 else jnp.roll(chain.transition, -1, 0)
    later = None if chain.alive is None else jnp.roll(chain.alive, -1, 0)
    (_, ends), (scales, pointers) = lax.scan(step, (entering, entering),
                                             (chain.emission, moves, later))
    return _Path(ends, scales, pointers)


class _Transfer(NamedTuple):
    """Blocks as matrices: from the state before some steps to the one at their end, (G, from, to,
    M), each row's best 0; and that best weight, (G, from, M)."""

    scale: jax.Array
    end: jax.Array


def _before(chain: Chain, blocks: int, parallel: bool) -> jax.Array:
    """The log weights of the states before every block, the best 0: (B, G, K, rows); of the first
    block, nothing of use."""
    steps, g, k, m = lead(chain)
    eye = jnp.where(jnp.eye(k, dtype=bool), 0.0, -jnp.inf).astype(chain.emission.dtype)
    none = _Transfer(jnp.zeros((g, k, m), eye.dtype),
                     jnp.broadcast_to(eye[None, :, :, None], (g, k, k, m)))
    first = jnp.arange(m) % blocks == 0

    def sweep(at, carry: _Transfer) -> _Transfer:
        moves, alive = _at(chain.transition, at), _at(chain.alive, at)
        log = jax.vmap(lambda row: _moved(row, moves, alive)[0], 1, 1)(carry.end)
        begun = jnp.broadcast_to(first_of(chain.initial, m, blocks)[:, None], log.shape)
        log = jnp.where((at == 0) & first, begun, log) + _at(chain.emission, at)[:, None]
        best = log.max(2)
        return _Transfer(carry.scale + best, log - finite(best)[:, :, None])

    def last(count) -> _Transfer:
        """Of the last so many steps."""
        return lax.fori_loop(steps - count, steps, sweep, none)

    def unlike(carry):
        count, transfer = carry
        return (count < steps) & ~jnp.all(_alike(transfer))

    def longer(carry):
        count = jnp.minimum(2 * carry[0] + 1, steps)
        return count, last(count)

    begun = jnp.asarray(min(SWEEP // 2, steps - 1)), none
    count, transfer = lax.while_loop(unlike, longer, begun)
    # of rows that are equal, any that is possible
    row = jnp.where((transfer.scale > -jnp.inf)[:, :, None], transfer.end, -jnp.inf).max(1)
    forgotten = count < steps  # then it does not matter where the steps before them ended
    end = jnp.where(forgotten, row[:, None], transfer.end)
    scale = jnp.where(forgotten, 0.0, transfer.scale)

    def apart(leaf):
        return jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], m // blocks, blocks), -1, 0)

    return _joined(_Transfer(apart(scale), apart(end)), parallel)


def _alike(transfer: _Transfer) -> jax.Array:
    """(G, M): whether all possible rows are equal."""
    possible = (transfer.scale > -jnp.inf)[:, :, None]
    high = jnp.where(possible, transfer.end, -jnp.inf).max(1)
    low = jnp.where(possible, transfer.end, jnp.inf).min(1)
    slack = ALIKE * jnp.finfo(high.dtype).eps * (1 - finite(high))  # rows lie below 0
    return jnp.all((high == low) | (high - low <= slack) | (high == -jnp.inf), 1)


def _joined(transfer: _Transfer, parallel: bool) -> jax.Array:
    """What is before every block, from the matrices of all, (B, G, from, [to,] rows)."""
    def both(first: _Transfer, second: _Transfer) -> _Transfer:
        ways = second.scale[..., :, None, :] + second.end
        log = (first.end[..., :, :, None, :] + ways[..., None, :, :, :]).max(-3)
        best = log.max(-2)
        return _Transfer(first.scale + best, log - finite(best)[..., None, :])

    if parallel:
        found = lax.associative_scan(both, transfer).end[:, :, 0]
        return jnp.concatenate([found[:1], found[:-1]])

    def step(before, block: _Transfer):
        log = ((before + block.scale)[:, :, None] + block.end).max(1)
        return log - finite(log.max(1, keepdims=True)), before

    first = transfer.end[0, :, 0]  # all rows of the first block are equal
    _, found = lax.scan(step, first, jax.tree.map(lambda leaf: leaf[1:], transfer))
    return jnp.concatenate([first[None], found])


def _held(chain: Chain, states: jax.Array, blocks: int) -> jax.Array:
    """The states, those of steps that do not count as the last before them."""
    if chain.alive is None:
        return states
    m = states.shape[-1]
    following = jnp.roll(chain.alive[:1], -1, 1) & (jnp.arange(m) % blocks < blocks - 1)
    last = chain.alive & ~jnp.concatenate([chain.alive[1:], following])
    found = jnp.where(last[:, None], states, 0).sum(0, dtype=states.dtype)  # (G, M)
    found = found.reshape(len(found), -1, blocks).sum(-1, dtype=states.dtype)
    return jnp.where(chain.alive[:, None], states, jnp.repeat(found, blocks, -1))


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
