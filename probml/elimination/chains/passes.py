"""Forward passes along chains: step by step, in logs where states are wide, in blocks of
transfers."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from probml.elimination.chains.arithmetic import (
    ALIKE,
    SWEEP,
    Chain,
    Linear,
    entering_logs,
    exp,
    first_of,
    lead,
    linear_of,
    normalised,
    one_step,
    seen_at,
    step_at,
)
from probml.numerics.logs import finite, log_of, log_sum


def _forward(chain: Linear, blocks: int, before: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """Filtered weights of every step, (L, G, K, M), normalised, and the logs of their scales (L, G,
    M)."""

    # every step alike, the first too: nothing has to be put together afterwards
    def step(ahead: jax.Array, now: tuple):
        emission, transition = now
        transition = chain.transition[0] if transition is None else transition
        new, scale = seen_at(ahead, emission)
        return one_step(transition, new), (new, scale)

    next_moves = None if len(chain.transition) == 1 else jnp.roll(chain.transition, -1, 0)
    return lax.scan(step, entering_logs(chain, blocks, before), (chain.emission, next_moves))[1]


def wide_forward(chain: Chain) -> "Pass":
    """The forward pass in logs."""
    _, g, k, m = lead(chain)

    def step(ahead: jax.Array, now: tuple):
        emission, transition = now
        new = ahead + emission
        scale = log_sum(new, 1)
        new = new - finite(scale)[:, None]
        moves = chain.transition[0] if transition is None else transition
        return log_sum(new[:, :, None] + moves, 1), (new, scale)

    emission = chain.emission if chain.alive is None else jnp.where(chain.alive[:, None, None],
                                                                    chain.emission, 0.0)
    first = jnp.broadcast_to(chain.initial, (g, k, m))
    moves = None if len(chain.transition) == 1 else jnp.roll(chain.transition, -1, 0)
    alphas, scales = lax.scan(step, first, (emission, moves))[1]
    return Pass(None, alphas, scales, None)


class Transfer(NamedTuple):
    """Blocks as matrices: from the state before a block to the one at its end; (B, G, from, [to,]
    rows)."""

    scale: jax.Array  # log
    end: jax.Array  # normalised over `to`


def entering_rows(transition: jax.Array, initial: jax.Array, lanes: int, blocks: int,
                  outer: int) -> jax.Array:
    """(G, from, to, M): the weights of every lane's first states after each state before them; of a
    row's first block the initial ones in every row."""
    k = initial.shape[1]
    rows = jnp.broadcast_to(transition, (outer, k, k, lanes))
    return jnp.where(jnp.arange(lanes) % blocks == 0, first_of(initial, lanes, blocks)[:, None],
                     rows)


def step_all_rows(transition: jax.Array, p: jax.Array) -> jax.Array:
    """(G, from, to, M): one transition step of every row of the matrices."""
    g, k, _, m = p.shape
    if transition.shape[-1] == 1:
        flat = jnp.swapaxes(p, 1, 2).reshape(g, k, k * m)
        return jnp.swapaxes(one_step(transition, flat).reshape(g, k, k, m), 1, 2)
    return jax.vmap(lambda row: one_step(transition, row), 1, 1)(p)


def has_equal_rows(p: jax.Array, scale: jax.Array) -> jax.Array:
    """(G, M): whether all possible rows of the matrices are equal, so that the state before no
    longer matters."""
    possible = (scale > -jnp.inf)[:, :, None]
    high, low = jnp.where(possible, p, -jnp.inf).max(1), jnp.where(possible, p, jnp.inf).min(1)
    info = jnp.finfo(p.dtype)
    return jnp.all(
        (high - low <= ALIKE * info.eps * high + info.tiny * 2**20) | (high == -jnp.inf), 1
    )


def one_row(p: jax.Array, scale: jax.Array) -> jax.Array:
    """All rows, where they are equal: (G, to, M)."""
    return jnp.where((scale > -jnp.inf)[:, :, None], p, 0.0).max(1)


def split_blocks(leaf: jax.Array, blocks: int) -> jax.Array:
    """(..., lanes) → (B, ..., rows)."""
    return jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], -1, blocks), -1, 0)


def _transfers(chain: Linear, blocks: int, alive: jax.Array | None) -> Transfer:
    steps, g, k, m = lead(chain)
    transition, emission = step_at(chain, 0)
    entering = entering_rows(transition, chain.initial, m, blocks, g)

    def sweep(at: jax.Array, carry: tuple):
        p, scale = carry
        transition, emission = step_at(chain, at)
        new, factor = seen_at(step_all_rows(transition, p), emission[:, None], 2)
        return new, scale + factor

    def forgot(at: jax.Array, p: jax.Array, scale: jax.Array):
        """(G, M); where a row has ended, nothing that is told of its steps matters."""
        found = has_equal_rows(p, scale)
        return found if alive is None else found | ~lax.dynamic_index_in_dim(
            alive, jnp.minimum(at, steps - 1), 0, False)

    def unlike(carry: tuple):
        return (carry[0] < steps) & ~jnp.all(forgot(*carry))

    def sweeps(carry: tuple):
        at, p, scale = carry
        until = jnp.minimum(at + SWEEP, steps)
        return (until, *lax.fori_loop(at, until, sweep, (p, scale)))

    at, p, scale = lax.while_loop(unlike, sweeps, (
        jnp.asarray(1), *seen_at(entering, emission[:, None], 2)
    ))

    def filter_step(at: jax.Array, carry: tuple):
        alpha, scale = carry
        transition, emission = step_at(chain, at)
        new, factor = seen_at(one_step(transition, alpha), emission)
        return new, scale + factor

    last, more = lax.fori_loop(at, steps, filter_step,
                               (one_row(p, scale), jnp.zeros((g, m), p.dtype)))
    single = (at < steps) & forgot(at, p, scale)
    end = jnp.where(single[:, None, None], last[:, None], p)
    scale = scale + jnp.where(single, more, 0.0)[:, None]
    return Transfer(split_blocks(scale, blocks), split_blocks(end, blocks))


def _joined(first: Transfer, second: Transfer) -> Transfer:
    """One block after another, as one: P[s, k] = Σ over j of P₁[s, j] P₂[j, k]."""
    top = finite(second.scale.max(-2, keepdims=True))
    weighed = exp(second.scale, top)[..., :, None, :] * second.end  # (.., j, k, rows)
    product = first.end[..., :, :, None, :] * weighed[..., None, :, :, :]
    end, scale = normalised(product.sum(-3), -2)
    return Transfer(first.scale + top + log_of(scale), end)


def before_of(transfer: Transfer, parallel: bool) -> jax.Array:
    """The normalised weights of the states before every block, (B, G, K, rows); of the first block,
    nothing of use."""
    if parallel:
        found = lax.associative_scan(_joined, transfer).end[:, :, 0]
        # all rows of the first block are equal
        return jnp.concatenate([found[:1], found[:-1]])

    def step(before: jax.Array, block: Transfer):
        top = finite(block.scale.max(1, keepdims=True))
        weighed = (before * exp(block.scale, top))[:, :, None] * block.end
        return normalised(weighed.sum(1), 1)[0], before

    first = transfer.end[0, :, 0]
    _, found = lax.scan(step, first, jax.tree.map(lambda leaf: leaf[1:], transfer))
    return jnp.concatenate([first[None], found])


def after_of(transfer: Transfer, parallel: bool) -> jax.Array:
    """p(all that follows | state at the end of a block), up to a factor: (B, G, K, rows)."""
    ones = jnp.ones_like(transfer.scale[:1])
    if parallel:
        backwards = lax.associative_scan(lambda a, b: _joined(b, a), transfer, reverse=True)
        top = finite(backwards.scale.max(2, keepdims=True))
        return jnp.concatenate([exp(backwards.scale, top)[1:], ones])

    def step(after: jax.Array, block: Transfer):
        inner = (block.end * after[:, None]).sum(2)
        log = block.scale + log_of(inner)
        new = exp(log, finite(log.max(1, keepdims=True)))
        return new, new

    _, found = lax.scan(step, ones[0], jax.tree.map(lambda leaf: leaf[1:], transfer), reverse=True)
    return jnp.concatenate([found, ones])


def lanes_of(blocked: jax.Array) -> jax.Array:
    """(B, ..., rows) → (..., lanes)."""
    moved = jnp.moveaxis(blocked, 0, -1)
    return moved.reshape(*moved.shape[:-2], -1)


class Pass(NamedTuple):
    """A forward pass: what was before every lane, all filtered weights, the logs of their scales;
    and the blocks, if there are several."""

    before: jax.Array | None
    alphas: jax.Array
    scales: jax.Array
    transfer: Transfer | None


def filter(chain: Linear, blocks: int, parallel: bool, alive: jax.Array | None = None) -> Pass:
    transfer = _transfers(chain, blocks, alive) if blocks > 1 else None
    before = None if transfer is None else lanes_of(before_of(transfer, parallel))
    alphas, scales = _forward(chain, blocks, before)
    return Pass(before, alphas, scales, transfer)


def forward(chain: Chain, blocks: int, parallel: bool, wide: bool, ends: bool = False) -> Pass:
    """The forward pass in the space that the chain's range asks for: `wide`, in logs.

    Args:
        ends: nobody asks what follows a row's last step that counts: blocks behind it need forget
            nothing, which with nothing seen takes long.
    """
    if wide:
        return wide_forward(chain)
    return filter(linear_of(chain), blocks, parallel, chain.alive if ends else None)


def total_of(found: Pass, blocks: int, alive: jax.Array | None) -> jax.Array:
    """log evidence, (G, rows)."""
    log = found.scales.sum(0)
    log = log.reshape(len(log), -1, blocks).sum(-1)
    # a sequence of no steps
    return log if alive is None else jnp.where(alive[0, ::blocks], log, 0.0)
