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

import jax
import jax.numpy as jnp
from jax import lax

from probml.elimination.chains.arithmetic import normalised
from probml.elimination.chains.backward import Share, entered, reduced, shared
from probml.elimination.chains.walk import Pieces, Tables, Walk, one_by_one, passed


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def evidence(emit: Callable, blocks: int, tables: Tables, pieces: Pieces) -> jax.Array:
    """log Σ over all paths of the product of a chain's weights, (G, rows), in nats; as
    chains.evidence, with its gradient with respect to the tables and to `shared` and `own`.

    Args:
        emit: (shared, told, (own, blank), fixed) of a piece → the log emissions of its steps, (S, G
            or 1, K, M); it knows no array but these.
        blocks: into how many each row's sequence is cut.

    Cost: O(T K²) a row, and emissions once; memory T K numbers a row with a gradient, else nothing
        of that size.
    """
    return passed(emit, blocks, tables, pieces).total


def _forward(emit: Callable, blocks: int, tables: Tables, pieces: Pieces):
    found = passed(emit, blocks, tables, pieces)
    return found.total, (found, tables, pieces)


def _backward(emit: Callable, blocks: int, kept: tuple, slope: jax.Array):
    of_initial, of_transition, of_shared, of_own, of_blank = one_by_one(
        lambda kept, slope: _slopes(emit, blocks, kept, slope))(kept, slope)
    return (Tables(of_initial, of_transition, None),
            Pieces(of_shared, None, of_own, None, of_blank))


def _slopes(emit: Callable, blocks: int, kept: tuple, slope: jax.Array) -> tuple:
    """The gradients with respect to initial and transition tables, `shared`, `own` and
    `blank`."""
    found, tables, pieces = kept
    walk = Walk(emit, blocks, tables, pieces)
    alive, alphas = tables.alive, found.alphas
    every = None if alive is None else alive.reshape(-1, walk.lanes)
    lanes = shared(slope, jnp.isfinite(found.total), every, blocks)
    share = Share(lanes, tables.transition.shape, tables.transition.shape[-1] > 1)
    last = alphas[-1, -1]
    last = last if found.after is None else normalised(last * found.after, 1)[0]

    def piece(carry: tuple, at: jax.Array):
        gamma, count, of_shared, of_blank = carry
        inner = jnp.arange(walk.steps) < walk.steps - (at == walk.count - 1)
        here = inner[:, None] if alive is None else inner[:, None] & walk.following(at)
        (gamma, count), gammas = walk.smoothed(share, gamma, count, walk.at(at, alphas),
                                               here.astype(alphas.dtype), inner)
        weighed = gammas * lanes[:, None]
        if alive is not None:
            weighed = jnp.where(walk.at(at, alive)[:, None, None], weighed, 0.0)
        fixed = walk.at(at, pieces.fixed)
        log, back = jax.vjp(lambda shared, own: emit(shared, pieces.told, own, fixed),
                            pieces.shared, walk.own(at))
        more, (own, blank) = back(reduced(weighed, log.shape))
        of_blank = jax.tree.map(lambda every, mine: walk.write_piece(every, mine, at), of_blank,
                                blank)
        return (gamma, count, jax.tree.map(jnp.add, of_shared, more), of_blank), own

    blank = (jnp.zeros(tables.transition.shape, alphas.dtype),
             jax.tree.map(jnp.zeros_like, pieces.shared),
             jax.tree.map(jnp.zeros_like, pieces.blank))
    (gamma, count, of_shared, of_blank), of_own = lax.scan(
        piece, (last, *blank), jnp.arange(walk.count), reverse=True)
    if found.before is not None:
        count += entered(share, walk.transition, found.before, gamma, every, blocks)
    if not share.varying:
        count = count * walk.transition
    first = reduced(gamma[..., ::blocks] * lanes[:, None, ::blocks], tables.initial.shape)
    return first, count, of_shared, of_own, of_blank


evidence.defvjp(_forward, _backward)
