"""Sums over long chains whose emissions are never all there: a piece of the steps at a time, what
each says of the states made where it is needed and forgotten.

    log Z = Σ_t log c_t,   γ_t = α_t ∘ A (γ_{t+1} / Aᵀα_t)

of chains.py, with the filtered weights α of every step kept, one number a step and state, and
nothing else of their size: emissions enter going forward alone, and a smoothed marginal γ goes into
the gradient of what made its step's emissions as soon as it is known. A piece stays in cache, so
that the numbers of a step are read from memory twice, and its weights written and read once.

Cut into blocks (chains.py says how), the weights that enter a block are not known at first. Its
transfer matrix is swept until its rows are equal; from there on one row stands for all, and the
weights that it has are those of the block whatever entered it, so that they are kept. When the
blocks have been joined, the steps before are filtered again, and as many more, in which what is
left of the rows' difference is lost.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from probml.elimination.chain_arithmetic import first_of, normalised, one_step, seen_at
from probml.elimination.chain_backward import Share, entered, reduced, shared, stepper
from probml.elimination.chain_passes import (
    Transfer,
    after_of,
    alike,
    apart,
    before_of,
    entering_rows,
    lanes_of,
    moved,
    one_row,
)


class Tables(NamedTuple):
    """The moves of chains, alike at every step, and which steps count.

    Attributes:
        initial: log, (G or 1, K, rows or 1).
        transition: log, (G or 1, K from, K to, M or 1); the moves out of a state sum to 1.
        alive: (P, S, M) bool, a row's first steps; None: all.
    """

    initial: jax.Array
    transition: jax.Array
    alive: jax.Array | None


class Pieces(NamedTuple):
    """What emissions are made of; every leaf of `own` and of `fixed` leads with the P pieces.

    Attributes:
        shared: real numbers that all pieces take, of which gradients are asked.
        told: what all pieces take besides.
        own, fixed: the same of each piece.
    """

    shared: Any
    told: Any
    own: Any
    fixed: Any


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def evidence(emit: Callable, blocks: int, tables: Tables, pieces: Pieces) -> jax.Array:
    """log Σ over all paths of the product of a chain's weights, (G, rows), in nats; as
    chains.evidence, with its gradient with respect to the tables and to `shared` and `own`.

    Args:
        emit: (shared, told, own, fixed) of a piece → the log emissions of its steps, (S, G or 1, K,
            M); it knows no array but these.
        blocks: into how many each row's sequence is cut.

    Cost: O(T K²) a row, and emissions once; memory T K numbers a row with a gradient, else nothing
        of that size.
    """
    return _passed(emit, blocks, tables, pieces).total


class _Kept(NamedTuple):
    """A forward pass: log evidence (G, rows); all filtered weights (P, S, G, K, M); what was before
    every lane, and what follows it, if there are blocks."""

    total: jax.Array
    alphas: jax.Array
    before: jax.Array | None
    after: jax.Array | None


class _Walk:
    """The pieces of a chain and how a pass goes through one."""

    def __init__(self, emit: Callable, blocks: int, tables: Tables, pieces: Pieces):
        self.emit, self.blocks, self.tables, self.pieces = emit, blocks, tables, pieces
        self.count = len(jax.tree.leaves((pieces.own, pieces.fixed))[0])
        self.transition, self.initial = jnp.exp(tables.transition), jnp.exp(tables.initial)
        shape = jax.eval_shape(self.emission, jnp.zeros((), int)).shape
        self.steps, g, self.states, self.lanes = shape
        self.outer = max(g, len(tables.initial), len(tables.transition))
        self.whole = (self.outer, self.states, self.lanes)

    def at(self, piece: jax.Array, tree: Any) -> Any:
        return jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, piece, 0, False), tree)

    def emission(self, piece: jax.Array) -> jax.Array:
        """(S, G or 1, K, M); 0 in steps that do not count, in which nothing is seen."""
        shared, told, own, fixed = self.pieces
        log = self.emit(shared, told, self.at(piece, own), self.at(piece, fixed))
        alive = self.tables.alive
        if alive is None:
            return log
        return jnp.where(self.at(piece, alive)[:, None, None], log, 0.0)

    def filtered(self, ahead: jax.Array, piece: jax.Array) -> tuple[jax.Array, tuple]:
        """From the weights ahead of a piece to those ahead of the next, filtered weights, and the
        log of their scales (G, M)."""

        def step(ahead, emission):
            new, scale = seen_at(ahead, emission)
            return one_step(self.transition, new), (new, scale)

        ahead, (alphas, scales) = lax.scan(step, ahead, self.emission(piece))
        return ahead, (alphas, scales.sum(0))

    def swept(self, carry: tuple) -> tuple:
        """The same of transfer matrices: (piece, what is ahead of it (G, from, to, M), the filtered
        weights of the step before it, the log of their scale) → of the next."""
        piece, p, _, scale = carry

        def step(carry, emission):
            p, _, scale = carry
            new, factor = seen_at(p, emission[:, None], 2)
            return (moved(self.transition, new), new, scale + factor), None

        carry, _ = lax.scan(step, (p, jnp.zeros_like(p), scale), self.emission(piece))
        return piece + 1, *carry

    def first(self) -> jax.Array:
        """The weights ahead of every row's first step, in all lanes."""
        return jnp.broadcast_to(first_of(self.initial, self.lanes, self.blocks), self.whole)


def _passed(emit: Callable, blocks: int, tables: Tables, pieces: Pieces) -> _Kept:
    if blocks > 1:
        # how many steps forget depends on the numbers: several fits at once would all wait for the
        # slowest, and choose between whole arrays at every turn
        joined = jax.custom_batching.sequential_vmap(functools.partial(_joined, emit, blocks))
        return joined(tables, pieces)
    walk = _Walk(emit, blocks, tables, pieces)
    _, (alphas, scales) = lax.scan(walk.filtered, walk.first(), jnp.arange(walk.count))
    return _Kept(_total(walk, scales.sum(0)), alphas, None, None)


def _joined(emit: Callable, blocks: int, tables: Tables, pieces: Pieces) -> _Kept:
    """The pass through chains that are cut into blocks."""
    walk = _Walk(emit, blocks, tables, pieces)
    g, k, m = walk.whole
    dtype, count = walk.transition.dtype, walk.count

    def ended(piece):
        """(M,): whose row has ended, so that nothing that is told of its steps matters."""
        if tables.alive is None:
            return jnp.zeros(m, bool)
        return ~walk.at(jnp.minimum(piece, count - 1), tables.alive)[0]

    def forgot(carry):
        piece, p, _, scale = carry
        return alike(p, scale) | ended(piece)

    rows = entering_rows(walk.transition, walk.initial, m, blocks, g)
    met, p, new, scale = lax.while_loop(
        lambda carry: (carry[0] < count) & ~jnp.all(forgot(carry)), walk.swept,
        (jnp.asarray(0), rows, jnp.zeros_like(rows), jnp.zeros((g, k, m), dtype)))

    def kept(piece, carry):
        ahead, alphas, scales, _ = carry
        ahead, (own, scale) = walk.filtered(ahead, piece)
        return (ahead, lax.dynamic_update_index_in_dim(alphas, own, piece, 0),
                lax.dynamic_update_index_in_dim(scales, scale, piece, 0), own[-1])

    blank = (jnp.zeros((count, walk.steps, g, k, m), dtype), jnp.zeros((count, g, m), dtype))
    _, alphas, scales, last = lax.fori_loop(met, count, kept, (one_row(p, scale), *blank,
                                                               jnp.zeros((g, k, m), dtype)))
    single = (met < count) & forgot((met, p, new, scale))
    transfer = Transfer(
        apart(scale + jnp.where(single, scales.sum(0), 0.0)[:, None], blocks),
        apart(jnp.where(single[:, None, None], last[:, None], new), blocks))
    before, after = (lanes_of(found(transfer, False)) for found in (before_of, after_of))
    ahead = jnp.where(jnp.arange(m) % blocks == 0, walk.first(), one_step(walk.transition, before))
    _, alphas, scales, _ = lax.fori_loop(0, jnp.minimum(2 * met + 1, count), kept,
                                         (ahead, alphas, scales, last))
    return _Kept(_total(walk, scales.sum(0)), alphas, before, after)


def _total(walk: _Walk, log: jax.Array) -> jax.Array:
    """(G, M) → (G, rows)."""
    log = log.reshape(len(log), -1, walk.blocks).sum(-1)
    alive = walk.tables.alive
    # a sequence of no steps
    return log if alive is None else jnp.where(alive[0, 0, :: walk.blocks], log, 0.0)


def _forward(emit: Callable, blocks: int, tables: Tables, pieces: Pieces):
    found = _passed(emit, blocks, tables, pieces)
    return found.total, (found, tables, pieces)


def _backward(emit: Callable, blocks: int, kept: tuple, slope: jax.Array):
    found, tables, pieces = kept
    walk = _Walk(emit, blocks, tables, pieces)
    alive, alphas = tables.alive, found.alphas
    every = None if alive is None else alive.reshape(-1, walk.lanes)
    lanes = shared(slope, jnp.isfinite(found.total), every, blocks)
    share = Share(lanes, tables.transition.shape, tables.transition.shape[-1] > 1)
    last = alphas[-1, -1]
    last = last if found.after is None else normalised(last * found.after, 1)[0]
    step = stepper(share, walk.transition[None])

    def piece(carry, at):
        gamma, count, of_shared = carry
        inner = jnp.arange(walk.steps) < walk.steps - (at == walk.count - 1)
        later = None if alive is None else _following(walk, at)
        (gamma, count), (gammas, _) = lax.scan(
            step, (gamma, count), (walk.at(at, alphas), later, None, inner), reverse=True)
        weighed = gammas * lanes[:, None]
        if alive is not None:
            weighed = jnp.where(walk.at(at, alive)[:, None, None], weighed, 0.0)
        fixed = walk.at(at, pieces.fixed)
        log, back = jax.vjp(lambda shared, own: emit(shared, pieces.told, own, fixed),
                            pieces.shared, walk.at(at, pieces.own))
        more, own = back(reduced(weighed, log.shape))
        return (gamma, count, jax.tree.map(jnp.add, of_shared, more)), own

    blank = (jnp.zeros(tables.transition.shape, alphas.dtype),
             jax.tree.map(jnp.zeros_like, pieces.shared))
    (gamma, count, of_shared), of_own = lax.scan(piece, (last, *blank), jnp.arange(walk.count),
                                                 reverse=True)
    if found.before is not None:
        count += entered(share, walk.transition, found.before, gamma, every, blocks)
    if not share.varying:
        count = count * walk.transition
    first = reduced(gamma[..., ::blocks] * lanes[:, None, ::blocks], tables.initial.shape)
    return Tables(first, count, None), Pieces(of_shared, None, of_own, None)


def _following(walk: _Walk, at: jax.Array) -> jax.Array:
    """Whether the step after each of a piece counts, (S, M)."""
    own = walk.at(at, walk.tables.alive)
    after = walk.at(jnp.minimum(at + 1, walk.count - 1), walk.tables.alive)
    return jnp.concatenate([own[1:], after[:1]])


evidence.defvjp(_forward, _backward)
