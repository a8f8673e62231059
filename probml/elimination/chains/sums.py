"""Elimination along time: sums over the paths of Markov chains and their gradients, for many
sequences at once; knows arrays, never models.

A sequence of T steps is cut into B blocks of L steps; all blocks of all sequences are the M lanes
of one scan over L (walk.py). The blocks are joined in turn, or by an associative scan. B = 1 is the
plain forward algorithm; L = 1 with an associative join is Särkkä & García-Fernández (2021).

Messages live in linear space, normalised at every step with the log scale beside them (Rabiner
1989), so that a step is a matrix product and no length underflows. Range: a state whose filtered
weight lies further below the best reachable state's than the float reaches (87 nats in float32, 708
in float64) counts as impossible from that step on. Where a chain can soon be anywhere that loses
nothing; where moves are impossible, or nearly, a state that is lost may be the only way to later
ones. `wide` then keeps logs throughout, at K² exponentials a step and without blocks.

Backwards, the smoothed marginals come from the filtered ones alone, γ_t = α_t ∘ A (γ_{t+1} / αᵀ_t
A), so that T·K numbers are stored of T steps with K states; pair marginals are summed over time on
the way and never stored, unless the transition itself varies along time.

Emissions are arrays of all steps (`evidence`), or are computed for a piece of the steps at a time
and not stored (`in_pieces`): only the forward pass reads them, and a smoothed marginal is passed
back to the arguments of its step's emissions at once. A piece stays in cache, so that the data of a
step are read from memory twice, and its weights written and read once.

Arrays: time first and lanes last, (L, G, K, M), where G counts the joint states of whatever else
the chain depends on, and lane = row · B + block.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from probml.elimination.chains.arithmetic import (
    PRECISE,
    SUMS,
    UNCUT,
    WIDE,
    Chain,
    ScanLayout,
    is_small,
    normalised,
    one_step,
    one_step_back,
    share_of,
)
from probml.elimination.chains.walk import (
    Pass,
    Pieces,
    Tables,
    Walk,
    cut,
    forward,
    one_by_one,
    stored_emissions,
)
from probml.numerics.logs import divide


def evidence(chain: Chain, layout: ScanLayout = UNCUT) -> jax.Array:
    """log Σ over all paths of the product of a chain's weights, (G, rows), in nats; −∞ where no
    path is possible.

    Its gradient is what Baum & Welch (1970) ask for: with respect to the emission the marginals of
    each step's state, to the transition the pair marginals, summed over the steps and lanes that
    share it, to the initial those of the first step.

    Cost: O(T K²) a row; with blocks, O(K³) more for each step in which a chain has not yet
        forgotten its past.
    """
    return in_pieces(stored_emissions, layout, *cut(chain, layout.blocks))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def in_pieces(emit: Callable, layout: ScanLayout, tables: Tables, pieces: Pieces) -> jax.Array:
    """As `evidence`, with its gradient with respect to the tables and to `shared` and `own`.

    Args:
        emit: as of a Walk.

    Cost: O(T K²) a row, and emissions once; memory T K numbers a row with a gradient, else nothing
        of that size.
    """
    return _forward_pass(emit, layout, tables, pieces, False).total


def walk_of(emit: Callable, layout: ScanLayout, tables: Tables, pieces: Pieces, ends: bool = True,
            keeps: bool = True) -> Walk:
    """The recursion of a sum, in linear space or, `wide`, in logs."""
    return Walk(emit, layout, tables, pieces, WIDE if layout.in_logs else SUMS, ends, keeps)


def _map_pieces(function: Callable, pieces: Pieces) -> Callable:
    """One by one where there are several pieces."""
    several = len(jax.tree.leaves((pieces.per_piece, pieces.fixed))[0]) > 1
    return one_by_one(function) if several else function


def _forward_pass(emit: Callable, layout: ScanLayout, tables: Tables, pieces: Pieces,
                  keeps: bool = True) -> Pass:
    return _map_pieces(lambda tables, pieces: forward(walk_of(emit, layout, tables, pieces,
                                                              keeps=keeps)),
                       pieces)(tables, pieces)


def _evidence_forward(emit: Callable, layout: ScanLayout, tables: Tables, pieces: Pieces):
    fwd = _forward_pass(emit, layout, tables, pieces)
    return fwd.total, (fwd, tables, pieces)


def _evidence_backward(emit: Callable, layout: ScanLayout, saved: tuple, slope: jax.Array):
    of_initial, of_transition, of_shared, of_own, of_blank = _map_pieces(
        lambda saved, slope: _slopes(emit, layout, saved, slope), saved[2])(saved, slope)
    return (Tables(of_initial, of_transition, None),
            Pieces(of_shared, None, of_own, None, of_blank))


in_pieces.defvjp(_evidence_forward, _evidence_backward)


class _Share(NamedTuple):
    """The weight of each lane in a gradient, and the shape of the gradient of the transition.

    Attributes:
        slopes: (G, M), the slope of the total with respect to each lane's evidence.
        shape: of one step's transition; counts are summed along its axes of size 1.
        varying: whether moves differ from step to step or from lane to lane.
    """

    slopes: jax.Array
    shape: tuple[int, ...]
    varying: bool


def _slopes(emit: Callable, layout: ScanLayout, saved: tuple, slope: jax.Array) -> tuple:
    """The gradients with respect to initial and transition tables, `shared`, `own` and
    `blank`."""
    fwd, tables, pieces = saved
    walk = walk_of(emit, layout, tables, pieces)
    slope = jnp.where(jnp.isfinite(fwd.total), slope, 0.0)
    if walk.alive is not None:
        slope = jnp.where(walk.alive[0, 0, :: layout.blocks], slope, 0.0)
    lanes = jnp.repeat(slope, layout.blocks, -1) if layout.blocks > 1 else slope
    share = _Share(lanes, tables.transition.shape[1:],
                   walk.timed or tables.transition.shape[-1] > 1)
    last = jnp.exp(fwd.last) if layout.in_logs else fwd.last
    last = last if fwd.weights_after is None else normalised(last * fwd.weights_after, 1)[0]

    def piece(carry: tuple, i: ArrayLike) -> tuple:
        gamma, count, of_shared, of_blank = carry
        inner = jnp.arange(walk.steps) < walk.steps - (i == walk.count - 1)
        mask = inner[:, None] if walk.later is None else inner[:, None] & walk.at(i, walk.later)
        (gamma, count), (gammas, pairs) = _smooth_piece(
            walk, share, (gamma, count), (walk.at(i, fwd.stored), walk.at(i, walk.leaving),
                                          mask.astype(lanes.dtype), inner))
        weighed = gammas * lanes[:, None]
        if walk.alive is not None:
            weighed = jnp.where(walk.at(i, walk.alive)[:, None, None], weighed, 0.0)
        fixed = walk.at(i, pieces.fixed)
        log, pullback = jax.vjp(lambda shared, args: emit(shared, pieces.constants, args, fixed),
                                pieces.shared, walk.own(i))
        d_shared, (args, blank) = pullback(sum_to_shape(weighed, log.shape))
        of_blank = jax.tree.map(lambda every, part: walk.write_piece(every, part, i), of_blank,
                                blank)
        return (gamma, count, jax.tree.map(jnp.add, of_shared, d_shared), of_blank), (args, pairs)

    blank = (jnp.zeros(share.shape, lanes.dtype), jax.tree.map(jnp.zeros_like, pieces.shared),
             jax.tree.map(jnp.zeros_like, pieces.blank))
    (gamma, count, of_shared, of_blank), (of_own, pairs) = walk.over(piece, (last, *blank), True)
    part = blank[0]
    if fwd.weights_before is not None:
        mask = jnp.ones(()) if walk.alive is None else walk.alive[0, 0]
        part = _pairs(share, fwd.weights_before,
                      divide(gamma, one_step(walk.into, fwd.weights_before)),
                      jnp.where(walk.first_blocks, 0.0, mask.astype(lanes.dtype)), walk.into)
    if walk.timed:
        count = jnp.concatenate([part[None], pairs.reshape(-1, *share.shape)[:-1]])
    else:
        count = (count + part)[None]
        count = count if share.varying or layout.in_logs else count * walk.into
    of_initial = sum_to_shape(gamma[..., :: layout.blocks] * lanes[:, None, :: layout.blocks],
                              tables.initial.shape)
    return of_initial, count, of_shared, of_own, of_blank


def _smooth_piece(walk: Walk, share: _Share, carry: tuple, along: tuple) -> tuple:
    """From (the marginals of the step after a piece, expected counts of pairs) to those of its
    first step, and (the marginals of all its steps, (S, G, K, M), their pairs or None).

    Args:
        along: of each step its filtered weights, the moves out of it or None, 1 where the step
            after counts, (S, M or 1), and whether there is one: the last of all has the marginals
            that come in.
    """
    def step(carry: tuple, xs: tuple) -> tuple:
        gamma, count = carry
        alpha, moves, mask, inner = xs
        transition = walk.into if moves is None else moves
        if walk.layout.in_logs:
            pair = share_of(alpha[:, :, None] + transition, 1) * gamma[:, None]
            prev = pair.sum(2)
            pairs = sum_to_shape(pair * (mask * share.slopes)[:, None, None], share.shape)
        else:
            ratio = divide(gamma, one_step(transition, alpha))
            prev, pairs = (alpha * one_step_back(transition, ratio),
                           _pairs(share, alpha, ratio, mask, transition))
        if walk.count == 1:
            prev = normalised(prev, 1)[0]
        prev = jnp.where(inner, prev, gamma)
        return (prev, count if walk.timed else count + pairs), (prev, pairs if walk.timed else None)

    (gamma, count), out = lax.scan(step, carry, along, reverse=True)
    return (gamma if walk.count == 1 else normalised(gamma, 1)[0], count), out


def _pairs(share: _Share, alpha: jax.Array, ratio: jax.Array, mask: jax.Array,
           transition: jax.Array) -> jax.Array:
    """Weighted pair marginals in the shape of one step's transition; where moves do not vary, still
    to be multiplied by these."""
    weighed = alpha * share.slopes[:, None]
    if share.varying:
        return sum_to_shape(weighed[:, :, None] * transition * (ratio * mask)[:, None], share.shape)
    if is_small(alpha):
        outer = (weighed[:, :, None] * (ratio * mask)[:, None]).sum(-1, keepdims=True)
    else:
        outer = jnp.matmul(weighed, jnp.swapaxes(ratio * mask, 1, 2), precision=PRECISE)[..., None]
    return sum_to_shape(outer, share.shape)


def sum_to_shape(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The array summed over the axes along which one of this shape was broadcast."""
    axes = tuple(i for i, size in enumerate(shape) if size == 1 and array.shape[i] > 1)
    return jnp.broadcast_to(array.sum(axes, keepdims=True) if axes else array, shape)
