"""Forward passes along Markov chains: one recursion for sums, sums in logs and maxima
(arithmetic.py). Emissions are arrays of all steps, or are computed for a piece of the steps at a
time and not stored.

Of a sequence in blocks, the weights that enter each block are found first. A block's transfer
matrix P[s, j], the weight of its steps that end in j after state s before it, is multiplied out
until its rows are equal up to a factor: chains forget their past (Le Gland & Mevel 2000), and best
paths soon share their tails (Šrámek, Brejová & Vinař 2007). From there on one row represents all,
and the results of its steps are the block's, whatever its first state. When the blocks have been
joined, the steps before are passed again, and as many more, in which what is left of the difference
of the rows vanishes.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from probml.elimination.chains.arithmetic import (
    SUMS,
    Arithmetic,
    Chain,
    ScanLayout,
    lanes_of,
    one_step,
    one_step_back,
    split_blocks,
)
from probml.numerics.logs import finite, log_of
from probml.typing import PyTree

SWEEP = 32  # about how many steps between two tests whether the rows of a transfer matrix are equal


class Tables(NamedTuple):
    """Initial and transition log weights, and which steps count; as of a Chain."""

    initial: jax.Array
    transition: jax.Array
    alive: jax.Array | None


class Pieces(NamedTuple):
    """The arguments of the function that computes emissions. Leaves of `per_piece` and `fixed` lead
    with the P pieces, leaves of `blank` with lanes and all steps, (M, P S, ...).

    Attributes:
        shared, constants: arguments of all pieces, with and without gradients.
        per_piece, fixed: arguments of each piece, with and without gradients.
        blank: zeros added to every step, (S M, ...) of a piece, for gradients with respect to them;
            these gradients are laid out sequence by sequence.

    """

    shared: PyTree
    constants: PyTree
    per_piece: PyTree
    fixed: PyTree
    blank: PyTree = ()


class Pass(NamedTuple):
    """A forward pass: log evidence, or that of the best path, (G, rows); what is kept of every step
    (P, S, G, K, M); the weights of each lane's last step; and of chains in blocks the weights
    before every lane, and, of sums, the weights of all that follows it."""

    total: jax.Array
    stored: jax.Array
    last: jax.Array
    weights_before: jax.Array | None = None
    weights_after: jax.Array | None = None


class Transfer(NamedTuple):
    """Blocks as matrices: from the state before a block to the one at its end, (B, G, from, [to,]
    rows), and the log of the scale of each row."""

    scale: jax.Array
    end: jax.Array


def count_of(steps: int, size: int) -> int:
    """The number of equal pieces, of about `size` steps each, into which so many steps are cut."""
    return next(count for count in range(max(steps // max(size, 1), 1), steps + 1)
                if steps % count == 0)


def stored_emissions(shared: PyTree, constants: PyTree, own: PyTree, fixed: PyTree) -> jax.Array:
    """Emissions that are arrays of all steps."""
    return own[0]


def cut(chain: Chain, blocks: int) -> tuple[Tables, Pieces]:
    """A chain whose emissions are arrays: one piece, or several where it is cut into blocks."""
    steps = len(chain.emission)
    count = 1 if blocks == 1 else count_of(steps, SWEEP)
    own = chain.emission.reshape(count, -1, *chain.emission.shape[1:])
    return Tables(chain.initial, chain.transition, chain.alive), Pieces((), (), own, ())


class Walk:
    """The pieces of a chain and the recursion through one.

    Args:
        emit: (shared, constants, (own, blank), fixed) of a piece → the log emissions of its steps,
            (S, G or 1, K, M); it closes over no array.
        ends: steps behind the last that counts of a row do not matter: blocks of them need forget
            nothing, which without data takes long.
        stores: whether the results of all steps are stored.
    """

    def __init__(self, emit: Callable, layout: ScanLayout, tables: Tables, pieces: Pieces,
                 arithmetic: Arithmetic, ends: bool = True, stores: bool = True):
        self.emit, self.layout, self.pieces = emit, layout, pieces
        self.ends, self.stores, self.arithmetic, self.blocks = (
            ends, stores, arithmetic, layout.blocks)
        self.initial, moves = map(arithmetic.weights, tables[:2])
        self.count = len(jax.tree.leaves((pieces.per_piece, pieces.fixed))[0])
        self.alive = None if tables.alive is None else self.cut(tables.alive)
        shape = jax.eval_shape(self.emission, jnp.zeros((), int)).shape
        self.steps, g, self.states, self.lanes = shape
        self.outer = max(g, len(self.initial), moves.shape[1])
        self.step_shape = (self.outer, self.states, self.lanes)
        self.into, self.timed = moves[0], len(moves) > 1  # moves into the first steps, or all
        # moves out of each step, where they differ; and whether the step after each counts
        self.leaving = self.cut(jnp.roll(moves, -1, 0)) if self.timed else None
        self.later = None if self.alive is None else self.cut(jnp.roll(tables.alive, -1, 0))
        self.first_blocks = jnp.arange(self.lanes) % self.blocks == 0

    def cut(self, leaf: jax.Array) -> jax.Array:
        return leaf.reshape(self.count, -1, *leaf.shape[1:])

    def at(self, piece: ArrayLike, tree: object) -> PyTree:
        return jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, piece, 0, False), tree)

    def over(self, function: Callable, carry: PyTree,
             reverse: bool = False) -> tuple[PyTree, PyTree]:
        """A scan over the pieces."""
        if self.count > 1:
            return lax.scan(function, carry, jnp.arange(self.count), reverse=reverse)
        carry, out = function(carry, 0)
        return carry, jax.tree.map(lambda leaf: leaf[None], out)

    def own(self, piece: ArrayLike) -> tuple[PyTree, PyTree]:
        """The `own` arguments of a piece, and its zeros."""
        return self.at(piece, self.pieces.per_piece), jax.tree.map(
            lambda leaf: jnp.zeros((leaf.shape[0] * leaf.shape[1] // self.count, *leaf.shape[2:]),
                                   leaf.dtype), self.pieces.blank)

    def write_piece(self, out: jax.Array, part: jax.Array, piece: ArrayLike) -> jax.Array:
        """Writes the steps of a piece, (S M, ...), into those of all, (M, P S, ...): transposed
        while they are in cache."""
        part = jnp.moveaxis(part.reshape(self.steps, self.lanes, *part.shape[1:]), 1, 0)
        return lax.dynamic_update_slice_in_dim(out, part, piece * self.steps, 1)

    def emission(self, piece: ArrayLike) -> jax.Array:
        """(S, G or 1, K, M); 0 in steps that do not count, which have no data: the sum over their
        states is 1, since the moves out of a state sum to 1."""
        log = self.emit(self.pieces.shared, self.pieces.constants, self.own(piece),
                        self.at(piece, self.pieces.fixed))
        if self.alive is None:
            return log
        return jnp.where(self.at(piece, self.alive)[:, None, None], log, 0.0)

    def _along(self, piece: ArrayLike) -> tuple:
        """The xs of a scan over a piece: emissions, the moves out of each step, None where they are
        the same, and whether the next step counts, where a move depends on it."""
        later = self.at(piece, self.later) if self.arithmetic.pointers else None
        return self.emission(piece), self.at(piece, self.leaving), later

    def filtered(self, prior: jax.Array, piece: ArrayLike) -> tuple[jax.Array, tuple]:
        """From the predicted weights of a piece's first step to those of the next piece; what is
        kept of its steps, the log of their scales (G, M), and the weights of its last step."""
        condition, move, pointers = (self.arithmetic.condition, self.arithmetic.predict,
                                     self.arithmetic.pointers)
        log, leaving, later = self._along(piece)

        def step(carry: tuple, xs: tuple) -> tuple:
            emission, moves, alive = xs
            new, scale = condition(carry[0], emission, 1)
            next_pred, stored = move(self.into if moves is None else moves, new, alive)
            return (next_pred, new) if pointers else (next_pred,), (stored, scale)

        def careful() -> tuple:
            (next_pred, *last), (stored, scales) = lax.scan(
                step, (prior, prior) if pointers else (prior,), (log, leaving, later))
            last_weights = last[0] if pointers else stored[-1]
            return next_pred, (stored if self.stores else stored[:0], scales.sum(0), last_weights)

        if self.emit is stored_emissions or self.count == 1 or self.arithmetic is not SUMS:
            return careful()
        # the largest emission of all states is subtracted, for all steps at once; where the states
        # that can be reached are so far below it that they underflow, the largest of these, step by
        # step
        top = finite(log.max(2))

        def quick(prior: jax.Array, xs: tuple) -> tuple:
            weight, moves = xs
            new = prior * weight
            scale = new.sum(1)
            new = new * (1 / jnp.where(scale > 0, scale, 1))[:, None]
            return one_step(self.into if moves is None else moves, new), (new, scale)

        final, (alphas, scales) = lax.scan(quick, prior, (jnp.exp(log - top[:, :, None]), leaving))
        underflows = (scales < jnp.finfo(log.dtype).tiny**0.5) & (prior.sum(1) > 0)
        quick_result = final, (alphas if self.stores else alphas[:0], (log_of(scales) + top).sum(0),
                               alphas[-1])
        return lax.cond(jnp.any(underflows), careful, lambda: quick_result)

    def move_rows(self, moves: jax.Array, p: jax.Array, alive: jax.Array | None) -> jax.Array:
        """One move of every row of transfer matrices, (G, from, to, M)."""
        g, k, _, m = p.shape
        if self.arithmetic is SUMS and moves.shape[-1] == 1:
            flat = jnp.swapaxes(p, 1, 2).reshape(g, k, k * m)
            return jnp.swapaxes(one_step(moves, flat).reshape(g, k, k, m), 1, 2)
        return jax.vmap(lambda row: self.arithmetic.predict(moves, row, alive)[0], 1, 1)(p)

    def swept(self, carry: tuple) -> tuple:
        """The recursion of transfer matrices: (piece, predicted weights of its first step (G, from,
        to, M), the weights of the step before it, the log of their scale) → those of the next."""
        piece, p, _, scale = carry

        def step(carry: tuple, xs: tuple) -> tuple:
            p, _, scale = carry
            emission, moves, alive = xs
            post, factor = self.arithmetic.condition(p, emission[:, None], 2)
            return (self.move_rows(self.into if moves is None else moves, post, alive), post,
                    scale + factor), None

        carry, _ = lax.scan(step, (p, jnp.zeros_like(p), scale), self._along(piece))
        return piece + 1, *carry

    def first(self) -> jax.Array:
        """The initial weights of every row, in all lanes."""
        init = jnp.broadcast_to(self.initial, (*self.initial.shape[:2], self.lanes // self.blocks))
        return jnp.broadcast_to(jnp.repeat(init, self.blocks, -1) if self.blocks > 1 else init,
                                self.step_shape)

    def entering(self, before: jax.Array | None) -> jax.Array:
        """The predicted weights of each lane's first step: initial, or moved from those `before`
        the block."""
        if before is None:
            return self.first()
        return jnp.where(self.first_blocks, self.first(), self.move_into(before)[0])

    def move_into(self, before: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The move into the first step of each lane, as Arithmetic.predict returns it."""
        return self.arithmetic.predict(self.into, before, None if self.alive is None
                                       else self.alive[0, 0])

    def total(self, log: jax.Array) -> jax.Array:
        """(G, M) → (G, rows)."""
        log = log.reshape(len(log), -1, self.blocks).sum(-1)
        # 0 of a sequence of no steps
        return log if self.alive is None else jnp.where(self.alive[0, 0, :: self.blocks], log, 0.0)


def one_by_one(function: Callable) -> Callable:
    """The same function, whose jax.vmap is a loop: how long a pass takes depends on its data, so
    that batched passes would all wait for the slowest, and select between whole arrays at every
    step."""
    looped = jax.custom_batching.custom_vmap(function)

    @looped.def_vmap
    def rule(size: int, batched: object, *args: object) -> tuple[PyTree, PyTree]:
        leaves, treedef = jax.tree.flatten(args)
        flags = jax.tree.leaves(batched)

        def call_one(mapped: list) -> PyTree:
            queue = iter(mapped)
            return looped(*jax.tree.unflatten(treedef, [
                next(queue) if flag else leaf for leaf, flag in zip(leaves, flags, strict=True)]))

        mapped = [leaf for leaf, flag in zip(leaves, flags, strict=True) if flag]
        results = (jax.tree.map(lambda leaf: leaf[None], call_one([leaf[0] for leaf in mapped]))
                   if size == 1 else lax.map(call_one, mapped))
        return results, jax.tree.map(lambda _: True, results)

    return looped


def forward(walk: Walk) -> Pass:
    """The pass through all steps.

    Cost: O(T K²) a row; with blocks, O(K³) more for each step in which a chain has not yet
        forgotten its past.
    """
    if walk.blocks > 1:
        return _forward_in_blocks(walk)

    def step(carry: tuple, piece: ArrayLike) -> tuple:
        prior, (stored, scale, last) = walk.filtered(carry[0], piece)
        return (prior, last), (stored, scale)

    (_, last), (stored, scales) = walk.over(step, (walk.first(), jnp.zeros_like(walk.first())))
    return Pass(walk.total(scales.sum(0)), stored, last)


def _forward_in_blocks(walk: Walk) -> Pass:
    arithmetic, count, blocks = walk.arithmetic, walk.count, walk.blocks
    g, k, m = walk.step_shape
    dtype = walk.into.dtype

    def forgot(carry: tuple) -> jax.Array:
        """(G, M): whether all possible rows are equal, so that the state before the block no longer
        matters; steps behind the end of a sequence do not matter."""
        piece, p, _, scale = carry
        possible = (scale > -jnp.inf)[:, :, None]
        high = jnp.where(possible, p, -jnp.inf).max(1)
        low = jnp.where(possible, p, jnp.inf).min(1)
        equal = jnp.all((high == low) | (high - low <= arithmetic.slack(high))
                        | (high == -jnp.inf), 1)
        if walk.alive is None or not walk.ends:
            return equal
        return equal | ~walk.at(jnp.minimum(piece, count - 1), walk.alive)[0]

    eye = arithmetic.weights(jnp.where(jnp.eye(k, dtype=bool), 0.0, -jnp.inf).astype(dtype))
    rows = walk.move_rows(walk.into, jnp.broadcast_to(eye[None, :, :, None], (g, k, k, m)),
                      None if walk.alive is None else walk.alive[0, 0])
    rows = jnp.where(walk.first_blocks, walk.first()[:, None], rows)
    merge_at, p, new, scale = lax.while_loop(
        lambda carry: (carry[0] < count) & ~jnp.all(forgot(carry)), walk.swept,
        (jnp.asarray(0), rows, jnp.zeros_like(rows), jnp.zeros((g, k, m), dtype)))

    def join(scales: jax.Array, last: jax.Array) -> tuple:
        single = (merge_at < count) & forgot((merge_at, p, new, scale))
        transfer = Transfer(
            split_blocks(scale + jnp.where(single, scales.sum(0), 0.0)[:, None], blocks),
            split_blocks(jnp.where(single[:, None, None], last[:, None], new), blocks))
        before = lanes_of(_weights_before_blocks(transfer, arithmetic, walk.layout.parallel))
        after = lanes_of(_weights_after_blocks(transfer, arithmetic,
                                               walk.layout.parallel)) if smooths else None
        return walk.entering(before), before, after

    def filter_piece(i: jax.Array, carry: tuple) -> tuple:
        joined, stored, scales, last = carry
        # one loop for both passes: a program of two is compiled a third longer
        joined = lax.cond(i == count, lambda: join(scales, last), lambda: joined)
        piece = jnp.where(i < count, i, i - count)
        prior, (piece_kept, scale, piece_last) = walk.filtered(joined[0], piece)
        return ((prior, *joined[1:]), lax.dynamic_update_index_in_dim(stored, piece_kept, piece, 0),
                lax.dynamic_update_index_in_dim(scales, scale, piece, 0),
                jnp.where(piece == count - 1, piece_last, last))

    # any possible row of those that are equal
    any_row = jnp.where((scale > -jnp.inf)[:, :, None], p, arithmetic.weights(-jnp.inf)).max(1)
    smooths, zero = walk.stores and walk.ends and not arithmetic.pointers, jnp.zeros_like(any_row)
    blank = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype),
                         jax.eval_shape(lambda: walk.filtered(any_row, jnp.asarray(0))[1][:2]))
    (_, before, after), stored, scales, last = lax.fori_loop(
        merge_at, count + jnp.minimum(2 * merge_at + 1, count), filter_piece,
        ((any_row, zero, zero if smooths else None), *blank, zero))
    return Pass(walk.total(scales.sum(0)), stored, last, before, after)


def _block_product(arithmetic: Arithmetic, first: Transfer, second: Transfer) -> Transfer:
    """The product of two blocks' matrices: P[s, k] = Σ over j of P₁[s, j] P₂[j, k]."""
    new, factor = arithmetic.condition(first.end, second.scale[..., None, :, :], -2)
    rows = jax.vmap(jax.vmap(lambda end, row: arithmetic.predict(end, row, None)[0], (None, 1), 1))
    return Transfer(first.scale + factor, rows(second.end, new))


def _weights_before_blocks(transfer: Transfer, arithmetic: Arithmetic, parallel: bool) -> jax.Array:
    """The weights of the states before every block, (B, G, K, rows); those of the first block are
    not used. A block is a step of a chain whose emissions are its scales."""
    if parallel:
        weights = lax.associative_scan(functools.partial(_block_product, arithmetic),
                                       transfer).end[:, :, 0]
        # all rows of the first block are equal
        return jnp.concatenate([weights[:1], weights[:-1]])

    def step(before: jax.Array, block: Transfer) -> tuple[jax.Array, jax.Array]:
        new, _ = arithmetic.condition(before, block.scale, 1)
        return arithmetic.predict(block.end, new, None)[0], before

    first = transfer.end[0, :, 0]
    _, weights = lax.scan(step, first, jax.tree.map(lambda leaf: leaf[1:], transfer))
    return jnp.concatenate([first[None], weights])


def _weights_after_blocks(transfer: Transfer, arithmetic: Arithmetic, parallel: bool) -> jax.Array:
    """p(all that follows | state at the end of a block), up to a factor: (B, G, K, rows)."""
    ones = jnp.ones_like(transfer.scale[:1])
    if parallel:
        weights = lax.associative_scan(lambda a, b: _block_product(arithmetic, b, a), transfer,
                                       reverse=True).scale
        return jnp.concatenate([jnp.exp(weights - finite(weights.max(2, keepdims=True))), ones])[1:]

    def step(after: jax.Array, block: Transfer) -> tuple[jax.Array, jax.Array]:
        new, _ = arithmetic.condition(one_step_back(block.end, after), block.scale, 1)
        return new, new

    _, weights = lax.scan(step, ones[0], jax.tree.map(lambda leaf: leaf[1:], transfer),
                          reverse=True)
    return jnp.concatenate([weights, ones])
