"""The most probable path of a chain (Viterbi 1967), in logs throughout: a step adds and compares,
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
    Chain,
    Way,
    followed,
)
from probml.elimination.chains.paths import backtracked
from probml.elimination.chains.walk import Pieces, Tables, Walk, cut, forward, given
from probml.numerics.logs import floored, unfloored


def maximise(chain: Chain, way: Way = UNCUT) -> tuple[jax.Array, jax.Array]:
    """The most probable path: its log weight (G, rows), and its states (L, G, M), int32.

    Steps that do not count have the last state before them. Ties go to the lowest state, the last
    step's first; an impossible row has states 0.

    Cost: O(T K²) a row, T K bytes; with blocks, O(K³) more for each step in which paths have not
        yet met.
    """
    return in_pieces(given, way, *cut(chain, way.blocks))


def in_pieces(emit: Callable, way: Way, tables: Tables,
              pieces: Pieces) -> tuple[jax.Array, jax.Array]:
    """As `maximise`, of chains whose emissions are made a piece at a time, as sums.in_pieces makes
    them."""
    walk = Walk(emit, way, tables, pieces, BEST)
    found = forward(walk)
    between = None if found.before is None else walk.move_into(found.before)[1]
    pointers = found.kept.reshape(-1, *walk.whole)
    states = backtracked(found.last.argmax(1).astype(pointers.dtype), lambda table: table,
                         pointers[:-1], between, way.blocks)
    possible = jnp.repeat(found.total > -jnp.inf, way.blocks, -1)
    states = repeat_last_state(tables.alive, states, way.blocks)
    return found.total, jnp.where(possible, states.astype(jnp.int32), 0)


def repeat_last_state(alive: jax.Array | None, states: jax.Array, blocks: int) -> jax.Array:
    """The states, those of padding steps as the last before them."""
    if alive is None:
        return states
    last = alive & ~followed(alive, blocks)
    found = jnp.where(last[:, None], states, 0).sum(0, dtype=states.dtype)  # (G, M)
    found = found.reshape(len(found), -1, blocks).sum(-1, dtype=states.dtype)
    return jnp.where(alive[:, None], states, jnp.repeat(found, blocks, -1))


def best(chain: Chain, blocks: int = 1) -> jax.Array:
    """The log weight of the most probable path, (G, rows); its gradient is one-hot along that
    path."""
    _, states = maximise(lax.stop_gradient(chain), Way(blocks))
    chain = chain._replace(emission=floored(chain.emission), transition=floored(chain.transition),
                           initial=floored(chain.initial))
    steps, g, m = states.shape
    # (L, G, K, M)
    hot = jax.nn.one_hot(states, chain.emission.shape[2], axis=2, dtype=chain.emission.dtype)
    first = hot[0, ..., ::blocks]
    wrapped = jnp.roll(hot[-1], 1, -1)  # the last step of the block before
    before = jnp.concatenate([wrapped[None], hot[:-1]])
    if chain.transition.shape[-1] == 1 and len(chain.transition) == 1:
        own = chain.transition[0, ..., 0]
        moved = jnp.einsum("gij,tgim->tgjm", jnp.broadcast_to(own, (g, *own.shape[1:])), before)
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
