"""Chains whose emissions are made a piece of the steps at a time: what they are made of, and passes
through them; long_chains.py says how and why."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from probml.elimination.chains.arithmetic import (
    divide,
    first_of,
    normalised,
    one_step,
    one_step_back,
    seen_at,
)
from probml.elimination.chains.backward import Share, pairs
from probml.elimination.chains.passes import (
    Transfer,
    after_of,
    before_of,
    entering_rows,
    has_equal_rows,
    lanes_of,
    one_row,
    split_blocks,
    step_all_rows,
)
from probml.numerics.logs import finite, log_of


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
    """What emissions are made of; every leaf of `own` and of `fixed` leads with the P pieces, every
    leaf of `blank` with lanes and all steps, (M, P S, ...).

    Attributes:
        shared: real numbers that all pieces take, of which gradients are asked.
        told: what all pieces take besides.
        own, fixed: the same of each piece.
        blank: 0 of every step, (S M, ...) of a piece: gradients are asked of them, and they are
            never read. So the gradients lie as a reader has them, sequence by sequence.
    """

    shared: Any
    told: Any
    own: Any
    fixed: Any
    blank: Any = ()


class Kept(NamedTuple):
    """A forward pass: log evidence (G, rows); all filtered weights (P, S, G, K, M); what was before
    every lane, and what follows it, if there are blocks."""

    total: jax.Array
    alphas: jax.Array
    before: jax.Array | None
    after: jax.Array | None


class Walk:
    """The pieces of a chain and how a pass goes through one."""

    def __init__(self, emit: Callable, blocks: int, tables: Tables, pieces: Pieces):
        self.emit, self.blocks, self.tables, self.pieces = emit, blocks, tables, pieces
        self.count = len(jax.tree.leaves((pieces.own, pieces.fixed))[0])
        self.transition, self.initial = jnp.exp(tables.transition), jnp.exp(tables.initial)
        shape = jax.eval_shape(self.emission, jnp.zeros((), int)).shape
        self.steps, g, self.states, self.lanes = shape
        self.outer = max(g, len(tables.initial), len(tables.transition))
        self.whole = (self.outer, self.states, self.lanes)

    def at(self, piece: jax.Array, tree: object) -> Any:
        return jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, piece, 0, False), tree)

    def own(self, piece: jax.Array) -> tuple[Any, Any]:
        """What a piece has by itself, and what is 0."""
        return self.at(piece, self.pieces.own), jax.tree.map(
            lambda leaf: jnp.zeros((leaf.shape[0] * leaf.shape[1] // self.count, *leaf.shape[2:]),
                                   leaf.dtype), self.pieces.blank)

    def write_piece(self, whole: jax.Array, part: jax.Array, piece: jax.Array) -> jax.Array:
        """The steps of a piece, (S M, ...), written into those of all, (M, P S, ...): transposed
        while they are in cache."""
        part = jnp.moveaxis(part.reshape(self.steps, self.lanes, *part.shape[1:]), 1, 0)
        return lax.dynamic_update_slice_in_dim(whole, part, piece * self.steps, 1)

    def emission(self, piece: jax.Array) -> jax.Array:
        """(S, G or 1, K, M); 0 in steps that do not count, in which nothing is seen."""
        log = self.emit(self.pieces.shared, self.pieces.told, self.own(piece),
                        self.at(piece, self.pieces.fixed))
        alive = self.tables.alive
        if alive is None:
            return log
        return jnp.where(self.at(piece, alive)[:, None, None], log, 0.0)

    def filtered(self, ahead: jax.Array, piece: jax.Array) -> tuple[jax.Array, tuple]:
        """From the weights ahead of a piece to those ahead of the next, filtered weights, and the
        log of their scales (G, M).

        The best emission of all states is taken out, for all steps at once; where those that can be
        reached are so far below it that range is lost, the best of these, step by step.
        """
        log = self.emission(piece)
        top = finite(log.max(2))
        info = jnp.finfo(log.dtype)

        def quick(ahead: jax.Array, weight: jax.Array):
            new = ahead * weight
            scale = new.sum(1)
            new = new * (1 / jnp.where(scale > 0, scale, 1))[:, None]
            return one_step(self.transition, new), (new, scale)

        found, (alphas, scales) = lax.scan(quick, ahead, jnp.exp(log - top[:, :, None]))
        far = (scales < info.tiny**0.5) & (ahead.sum(1) > 0)
        easy = found, (alphas, (log_of(scales) + top).sum(0))

        def step(ahead: jax.Array, emission: jax.Array):
            new, scale = seen_at(ahead, emission)
            return one_step(self.transition, new), (new, scale)

        def careful():
            found, (alphas, scales) = lax.scan(step, ahead, log)
            return found, (alphas, scales.sum(0))

        return lax.cond(jnp.any(far), careful, lambda: easy)

    def smoothed(self, share: Share, gamma: jax.Array, count: jax.Array, alphas: jax.Array,
                 here: jax.Array, inner: jax.Array) -> tuple[tuple, jax.Array]:
        """From the marginals of the step after a piece to those of its first step, with the pairs
        counted, and the marginals of all its steps, (S, G, K, M).

        Args:
            here: (S, M or 1), 1 where the step after counts. inner: (S,), whether there is one: the
                last of all has the marginals that come in.
        """
        def step(carry: tuple, now: tuple):
            gamma, count = carry
            alpha, here, inner = now
            ratio = divide(gamma, one_step(self.transition, alpha))
            new = jnp.where(inner, alpha * one_step_back(self.transition, ratio), gamma)
            return (new, count + pairs(share, alpha, ratio, here, self.transition)), new

        (gamma, count), gammas = lax.scan(step, (gamma, count), (alphas, here, inner), reverse=True)
        return (normalised(gamma, 1)[0], count), gammas

    def swept(self, carry: tuple) -> tuple:
        """The same of transfer matrices: (piece, what is ahead of it (G, from, to, M), the filtered
        weights of the step before it, the log of their scale) → of the next."""
        piece, p, _, scale = carry

        def step(carry: tuple, emission: jax.Array):
            p, _, scale = carry
            new, factor = seen_at(p, emission[:, None], 2)
            return (step_all_rows(self.transition, new), new, scale + factor), None

        carry, _ = lax.scan(step, (p, jnp.zeros_like(p), scale), self.emission(piece))
        return piece + 1, *carry

    def following(self, at: jax.Array) -> jax.Array:
        """Whether the step after each of a piece counts, (S, M)."""
        own = self.at(at, self.tables.alive)
        after = self.at(jnp.minimum(at + 1, self.count - 1), self.tables.alive)
        return jnp.concatenate([own[1:], after[:1]])

    def first(self) -> jax.Array:
        """The weights ahead of every row's first step, in all lanes."""
        return jnp.broadcast_to(first_of(self.initial, self.lanes, self.blocks), self.whole)


def one_by_one(function: Callable) -> Callable:
    """The same function, which several arguments at once (jax.vmap) go through one by one: what a
    pass does depends on the numbers, so that together all would wait for the slowest, and choose
    between whole arrays at every turn."""
    alone = jax.custom_batching.custom_vmap(function)

    @alone.def_vmap
    def rule(size: int, batched: object, *args: object) -> tuple[Any, Any]:
        leaves, form = jax.tree.flatten(args)
        own = jax.tree.leaves(batched)

        def call_one(mapped: list) -> Any:
            each = iter(mapped)
            return alone(*jax.tree.unflatten(form, [
                next(each) if is_ else leaf for leaf, is_ in zip(leaves, own, strict=True)]))

        mapped = [leaf for leaf, is_ in zip(leaves, own, strict=True) if is_]
        found = (jax.tree.map(lambda leaf: leaf[None], call_one([leaf[0] for leaf in mapped]))
                 if size == 1 else lax.map(call_one, mapped))
        return found, jax.tree.map(lambda _: True, found)

    return alone


def passed(emit: Callable, blocks: int, tables: Tables, pieces: Pieces) -> Kept:
    return one_by_one(lambda tables, pieces: (_filter_blocks if blocks > 1 else _filter_uncut)(
        emit, blocks, tables, pieces))(tables, pieces)


def _filter_uncut(emit: Callable, blocks: int, tables: Tables, pieces: Pieces) -> Kept:
    """The forward pass along chains that are not cut into blocks."""
    walk = Walk(emit, blocks, tables, pieces)
    _, (alphas, scales) = lax.scan(walk.filtered, walk.first(), jnp.arange(walk.count))
    return Kept(_total(walk, scales.sum(0)), alphas, None, None)


def _filter_blocks(emit: Callable, blocks: int, tables: Tables, pieces: Pieces) -> Kept:
    """The pass through chains that are cut into blocks."""
    walk = Walk(emit, blocks, tables, pieces)
    g, k, m = walk.whole
    dtype, count = walk.transition.dtype, walk.count

    def ended(piece: jax.Array):
        """(M,): whose row has ended, so that nothing that is told of its steps matters."""
        if tables.alive is None:
            return jnp.zeros(m, bool)
        return ~walk.at(jnp.minimum(piece, count - 1), tables.alive)[0]

    def forgot(carry: tuple):
        piece, p, _, scale = carry
        return has_equal_rows(p, scale) | ended(piece)

    rows = entering_rows(walk.transition, walk.initial, m, blocks, g)
    met, p, new, scale = lax.while_loop(
        lambda carry: (carry[0] < count) & ~jnp.all(forgot(carry)), walk.swept,
        (jnp.asarray(0), rows, jnp.zeros_like(rows), jnp.zeros((g, k, m), dtype)))

    def filter_piece(piece: jax.Array, carry: tuple):
        ahead, alphas, scales, _ = carry
        ahead, (own, scale) = walk.filtered(ahead, piece)
        return (ahead, lax.dynamic_update_index_in_dim(alphas, own, piece, 0),
                lax.dynamic_update_index_in_dim(scales, scale, piece, 0), own[-1])

    blank = (jnp.zeros((count, walk.steps, g, k, m), dtype), jnp.zeros((count, g, m), dtype))
    _, alphas, scales, last = lax.fori_loop(met, count, filter_piece, (one_row(p, scale), *blank,
                                                                       jnp.zeros((g, k, m), dtype)))
    single = (met < count) & forgot((met, p, new, scale))
    transfer = Transfer(
        split_blocks(scale + jnp.where(single, scales.sum(0), 0.0)[:, None], blocks),
        split_blocks(jnp.where(single[:, None, None], last[:, None], new), blocks))
    before, after = (lanes_of(found(transfer, False)) for found in (before_of, after_of))
    ahead = jnp.where(jnp.arange(m) % blocks == 0, walk.first(), one_step(walk.transition, before))
    _, alphas, scales, _ = lax.fori_loop(0, jnp.minimum(2 * met + 1, count), filter_piece,
                                         (ahead, alphas, scales, last))
    return Kept(_total(walk, scales.sum(0)), alphas, before, after)


def _total(walk: Walk, log: jax.Array) -> jax.Array:
    """(G, M) → (G, rows)."""
    log = log.reshape(len(log), -1, walk.blocks).sum(-1)
    alive = walk.tables.alive
    # a sequence of no steps
    return log if alive is None else jnp.where(alive[0, 0, :: walk.blocks], log, 0.0)
