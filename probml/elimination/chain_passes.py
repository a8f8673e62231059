"""Forward passes along chains: step by step, in logs where states are wide, in blocks of
transfers."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from probml.elimination.chain_arithmetic import (
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
    def step(ahead, now):
        emission, transition = now
        transition = chain.transition[0] if transition is None else transition
        new, scale = seen_at(ahead, emission)
        return one_step(transition, new), (new, scale)

    next_moves = None if len(chain.transition) == 1 else jnp.roll(chain.transition, -1, 0)
    return lax.scan(step, entering_logs(chain, blocks, before), (chain.emission, next_moves))[1]


def wide_forward(chain: Chain) -> "Pass":
    """The forward pass in logs."""
    _, g, k, m = lead(chain)

    def step(ahead, now):
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


class _Transfer(NamedTuple):
    """Blocks as matrices: from the state before a block to the one at its end; (B, G, from, [to,]
    rows)."""

    scale: jax.Array  # log, of a block that forgets up to a constant
    end: jax.Array  # normalised over `to`


def _transfers(chain: Linear, blocks: int) -> _Transfer:
    """The matrix of every block. Of one that forgets, its first steps tell what each state before
    it weighs, and its last ones where it ends: the steps between are not looked at."""
    steps, g, k, m = lead(chain)
    eye = jnp.broadcast_to(jnp.eye(k, dtype=chain.emission.dtype)[:, :, None], (g, k, k, 2 * m))
    none = eye, jnp.zeros((g, k, 2 * m), eye.dtype)
    first = jnp.arange(m) % blocks == 0

    def moved(transition, p):
        """(G, from, to, M): every row of the matrices takes a step."""
        if transition.shape[-1] == 1:
            flat = jnp.swapaxes(p, 1, 2).reshape(g, k, k * p.shape[-1])
            return jnp.swapaxes(one_step(transition, flat).reshape(p.shape), 1, 2)
        return jax.vmap(lambda row: one_step(transition, row), 1, 1)(p)

    def ends(count):
        """Of the first and of the last so many steps, (G, from, to, 2 M) and (G, from, 2 M)."""

        def sweep(at, carry):
            p, scale = carry
            (early, seen), (late, shown) = step_at(chain, at), step_at(chain, steps - count + at)
            both = early if len(chain.transition) == 1 and early.shape[-1] == 1 else (
                jnp.concatenate([jnp.broadcast_to(each, (g, k, k, m)) for each in (early, late)],
                                -1))
            seen = jnp.broadcast_to(seen, (g, k, m)), jnp.broadcast_to(shown, (g, k, m))
            ahead = moved(both, p)
            begun = jnp.broadcast_to(first_of(chain.initial, m, blocks)[:, None], (g, k, k, m))
            at_first = jnp.concatenate([first & (at == 0), first & (steps - count + at == 0)])
            ahead = jnp.where(at_first, jnp.concatenate([begun, begun], -1), ahead)
            new, factor = seen_at(ahead, jnp.concatenate(seen, -1)[:, None], 2)
            return new, scale + factor

        return lax.fori_loop(0, count, sweep, none)

    def unlike(carry):
        count, (p, scale) = carry
        return (count < steps) & ~jnp.all(_alike(p, scale) | _over(chain, count))

    def longer(carry):
        count = jnp.minimum(2 * carry[0] + 2, steps)
        return count, ends(count)

    begun = jnp.asarray(min(SWEEP - 1, steps - 1)), none
    count, (p, scale) = lax.while_loop(unlike, longer, begun)
    # all rows, where they are equal
    row = jnp.where((scale > -jnp.inf)[:, :, None], p, 0.0)[..., m:].max(1)
    end = jnp.where(count < steps, normalised(row, 1)[0][:, None], p[..., :m])

    def apart(leaf):
        return jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], m // blocks, blocks), -1, 0)

    return _Transfer(apart(scale[..., :m]), apart(end))


def _alike(p: jax.Array, scale: jax.Array) -> jax.Array:
    """(G, M): whether all possible rows are equal."""
    possible = (scale > -jnp.inf)[:, :, None]
    high, low = jnp.where(possible, p, -jnp.inf).max(1), jnp.where(possible, p, jnp.inf).min(1)
    info = jnp.finfo(p.dtype)
    return jnp.all(
        (high - low <= ALIKE * info.eps * high + info.tiny * 2**20) | (high == -jnp.inf), 1
    )


def _over(chain: Linear, count: jax.Array) -> jax.Array:
    """(2 M,): whether a row is over by the end of so many first steps, or of the last: what follows
    weighs 1 then, wherever it is, and is not asked where."""
    if chain.alive is None:
        return jnp.zeros((), bool)
    return ~jnp.concatenate([chain.alive[jnp.maximum(count, 1) - 1], chain.alive[-1]])


def _joined(first: _Transfer, second: _Transfer) -> _Transfer:
    """One block after another, as one: P[s, k] = Σ over j of P₁[s, j] P₂[j, k]."""
    top = finite(second.scale.max(-2, keepdims=True))
    weighed = exp(second.scale, top)[..., :, None, :] * second.end  # (.., j, k, rows)
    product = first.end[..., :, :, None, :] * weighed[..., None, :, :, :]
    end, scale = normalised(product.sum(-3), -2)
    return _Transfer(first.scale + top + log_of(scale), end)


def before_of(transfer: _Transfer, parallel: bool) -> jax.Array:
    """The normalised weights of the states before every block, (B, G, K, rows); of the first block,
    nothing of use."""
    if parallel:
        found = lax.associative_scan(_joined, transfer).end[:, :, 0]
        # all rows of the first block are equal
        return jnp.concatenate([found[:1], found[:-1]])

    def step(before, block):
        top = finite(block.scale.max(1, keepdims=True))
        weighed = (before * exp(block.scale, top))[:, :, None] * block.end
        return normalised(weighed.sum(1), 1)[0], before

    first = transfer.end[0, :, 0]
    _, found = lax.scan(step, first, jax.tree.map(lambda leaf: leaf[1:], transfer))
    return jnp.concatenate([first[None], found])


def after_of(transfer: _Transfer, parallel: bool) -> jax.Array:
    """p(all that follows | state at the end of a block), up to a factor: (B, G, K, rows)."""
    ones = jnp.ones_like(transfer.scale[:1])
    if parallel:
        backwards = lax.associative_scan(lambda a, b: _joined(b, a), transfer, reverse=True)
        top = finite(backwards.scale.max(2, keepdims=True))
        return jnp.concatenate([exp(backwards.scale, top)[1:], ones])

    def step(after, block):
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
    transfer: _Transfer | None


def filter(chain: Linear, blocks: int, parallel: bool) -> Pass:
    transfer = _transfers(chain, blocks) if blocks > 1 else None
    before = None if transfer is None else lanes_of(before_of(transfer, parallel))
    alphas, scales = _forward(chain, blocks, before)
    return Pass(before, alphas, scales, transfer)


def forward(chain: Chain, blocks: int, parallel: bool, wide: bool) -> Pass:
    """The forward pass in the space that the chain's range asks for: `wide`, in logs."""
    return wide_forward(chain) if wide else filter(linear_of(chain), blocks, parallel)


def total_of(found: Pass, blocks: int, alive: jax.Array | None) -> jax.Array:
    """log evidence, (G, rows)."""
    log = found.scales.sum(0)
    log = log.reshape(len(log), -1, blocks).sum(-1)
    # a sequence of no steps
    return log if alive is None else jnp.where(alive[0, ::blocks], log, 0.0)
