"""Paths of chains: filtered distributions, most probable paths, joint draws."""

import jax
import jax.numpy as jnp
from jax import lax

from probml.elimination.chain_arithmetic import (
    Chain,
    choose,
    entering_logs,
    linear_of,
    normalised,
    one_step,
    share_of,
    step_at,
)
from probml.elimination.chain_passes import Pass, forward, lanes_of, total_of
from probml.elimination.semiring import MAX
from probml.numerics.logs import floored, log_sum, unfloored


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


def maximise(chain: Chain, blocks: int = 1, parallel: bool = False,
             wide: bool = False) -> tuple[jax.Array, jax.Array]:
    """The most probable path (Viterbi 1967): its log weight (G, rows), and its states (L, G, M),
    int32.

    Steps that do not count have the last state before them. Ties go to the lowest state, the last
    step's first; an impossible row has states 0.
    """
    linear = chain if wide else linear_of(chain, MAX)
    found = forward(chain, blocks, parallel, wide, MAX)
    value = total_of(found, blocks, chain.alive)
    return value, _follow(linear, found, blocks, value, None, wide)


def draw(
    chain: Chain, key: jax.Array, blocks: int = 1, parallel: bool = False, wide: bool = False
) -> tuple[jax.Array, jax.Array]:
    """One joint draw of each row's path (forward filtering, backward sampling: Scott 2002): log
    evidence (G, rows), states (L, G, M)."""
    linear = chain._replace(alive=None) if wide else linear_of(chain)
    found = forward(chain, blocks, parallel, wide)
    value = total_of(found, blocks, chain.alive)
    steps, g, _, m = found.alphas.shape
    return value, _follow(linear, found, blocks, value,
                          jax.random.uniform(key, (steps + 1, g, m), found.alphas.dtype), wide)


def _pick(weight: jax.Array, axis: int, noise: jax.Array | None, kind) -> jax.Array:
    """The heaviest entry, or one drawn in proportion: the first at which the running sum passes a
    uniform share of the whole."""
    if noise is None:
        return weight.argmax(axis).astype(kind)
    running = jnp.cumsum(weight, axis)
    passed = running > noise * lax.index_in_dim(running, weight.shape[axis] - 1, axis)
    return jnp.where(passed.any(axis), passed.argmax(axis), weight.argmax(axis)).astype(kind)


def _follow(chain, found: Pass, blocks: int, value: jax.Array, noise: jax.Array | None,
            wide: bool) -> jax.Array:
    """States backwards from the last step, each given the next: (L, G, M).

    Every block is followed from all of its last states at once; which of them it was is then looked
    up from the last block on.
    """
    steps, g, k, m = found.alphas.shape
    kind = jnp.uint8 if k <= 256 else jnp.int32

    def chosen(alpha, transition, alive, u):
        """For each state of a step, the state before it: (G, K, M)."""
        weight = share_of(alpha[:, :, None] + transition, 1) if wide else transition * alpha[:, :,
                                                                                             None]
        table = _pick(weight, 1, None if u is None else u[:, None, None], kind)
        return choose(alive, table, jnp.arange(k, dtype=kind)[:, None])

    def step(state, now):
        alpha, alive, own, u = now
        table = chosen(alpha, chain.transition[0] if own is None else own, alive, u)
        return _look(table, state), state

    ends = jnp.exp(found.alphas[-1]) if wide else found.alphas[-1]
    if blocks == 1:
        # (G, 1, M)
        state = _pick(ends, 1, None if noise is None else noise[-1][:, None], kind)[:, None]
    else:
        state = jnp.broadcast_to(jnp.arange(k, dtype=kind)[:, None], (g, k, m))
    own = None if len(chain.transition) == 1 else chain.transition[1:]
    later = None if chain.alive is None else chain.alive[1:]
    xs = (found.alphas[:-1], later, own, None if noise is None else noise[1:-1])
    first, rest = lax.scan(step, state, xs, reverse=True)
    states = jnp.concatenate([first[None], rest])  # (L, G, K or 1, M)
    if blocks > 1:
        transition, _, alive = step_at(chain, 0)
        table = chosen(found.before, transition, alive, None if noise is None else noise[0])
        # the last state of the block before, for each last state of this one
        into = _look(table, first)
        last = _pick(ends, 1, None if noise is None else noise[-1][:, None], kind)
        last, into = (jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], -1, blocks), -1, 0)
                      for leaf in (last, into))

        def link(state, into):
            before = _look(into, state[:, None])[:, 0]
            return before, state

        head, tail = lax.scan(link, last[-1], into[1:], reverse=True)
        ended = lanes_of(jnp.concatenate([head[None], tail]))  # (G, M)
        states = jnp.take_along_axis(states, ended[None, :, None].astype(jnp.int32), 2)
    possible = jnp.repeat(value > -jnp.inf, blocks, -1)
    return jnp.where(possible, states[:, :, 0].astype(jnp.int32), 0)


def _look(table: jax.Array, states: jax.Array) -> jax.Array:
    """table[g, states[g, s, m], m] for every s: by comparison, where a gather of bytes is slow."""
    if table.shape[1] > 32:
        return jnp.take_along_axis(table, states.astype(jnp.int32), 1)
    out = jnp.zeros_like(states)
    for i in range(table.shape[1]):
        out = jnp.where(states == i, table[:, i : i + 1], out)
    return out


def best(chain: Chain, blocks: int = 1, wide: bool = False) -> jax.Array:
    """The log weight of the most probable path, (G, rows); its gradient is one-hot along that
    path."""
    _, states = lax.stop_gradient(maximise(chain, blocks, wide=wide))
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
