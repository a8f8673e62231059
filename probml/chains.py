"""Elimination along time: sums, maxima, joint draws and filters of Markov chains, for many sequences at once; knows arrays, never models.

A sequence of T steps is cut into B blocks of L steps; all blocks of all sequences are the M lanes of one scan over L. What
enters a block is found first: the block's transfer matrix P[s, j], the weight of its steps and of ending in j after having
been in s before it, is swept until its rows are equal up to a factor. From there on one row stands for all, since a chain
forgets (Le Gland & Mevel 2000); a chain that does not is swept to the end. The blocks are then joined in turn, or by an
associative scan. B = 1 is the plain forward algorithm; L = 1 with an associative join is Särkkä & García-Fernández (2021).

Messages live in linear space, normalised at every step with the log scale beside them (Rabiner 1989), so that a step is a matrix
product and no length underflows. Range: a state whose filtered weight lies further below the best reachable state's than the float
reaches (87 nats in float32, 708 in float64) counts as impossible from that step on. Where a chain can soon be anywhere that loses
nothing; where moves are impossible, or nearly, a state that is lost may be the only way to what comes later. `wide` then keeps logs
throughout, at K² exponentials a step and without blocks.

Backwards, the smoothed marginals come from the filtered ones alone, γ_t = α_t ∘ A (γ_{t+1} / αᵀ_t A), so that what is stored
of T steps with K states is two arrays of T·K numbers, beside the log weights and their gradient; pair marginals are summed
over time on the way and never held, unless the transition itself varies along time.

Arrays: time first and lanes last, (L, G, K, M), where G counts the joint states of whatever else the chain depends on, and
lane = row · B + block.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

ALIKE = 512  # rounding errors by which rows that are equal may differ
SWEEP = 32  # steps of a transfer matrix between two looks at whether its rows are equal
SMALL = 1024  # multiplications of a step up to which they are no matrix product
PRECISE = lax.Precision.HIGHEST


class Chain(NamedTuple):
    """Log weights of sequences; any of the axes G, M and of the leading L may be 1 where the same for all."""

    initial: jax.Array  # (G, K, rows)
    transition: jax.Array  # (L, G, K from, K to, M): into each step; that into a sequence's first is not used
    emission: jax.Array  # (L, G, K, M)
    alive: jax.Array | None  # (L, M) bool: the steps that count, a row's first ones; None = all


class _Linear(NamedTuple):
    """The same with moves as weights; emissions stay logs.

    Steps that do not count are steps in which nothing is seen: summed over, they are 1, since what moves out of a state sums to 1.
    Only a maximum must not take them.
    """

    initial: jax.Array
    transition: jax.Array
    emission: jax.Array
    alive: jax.Array | None


def _exp(log: jax.Array, top: jax.Array) -> jax.Array:
    return jnp.exp(log - top)


def _finite(top: jax.Array) -> jax.Array:
    return jnp.where(jnp.isneginf(top), 0.0, top)


def _linear(chain: Chain, hard: bool = False) -> _Linear:
    emission = chain.emission
    if chain.alive is not None:
        emission = jnp.where(chain.alive[:, None, None], emission, 0.0)
    return _Linear(jnp.exp(chain.initial), jnp.exp(chain.transition), emission, chain.alive if hard else None)


def _at(chain: _Linear, step) -> tuple:
    """What a step takes: its transition, log emissions and whether it counts."""
    transition = chain.transition[0] if len(chain.transition) == 1 else lax.dynamic_index_in_dim(chain.transition, step, 0, False)
    alive = None if chain.alive is None else lax.dynamic_index_in_dim(chain.alive, step, 0, False)
    return transition, lax.dynamic_index_in_dim(chain.emission, step, 0, False), alive


def _move(transition: jax.Array, alpha: jax.Array, hard: bool) -> jax.Array:
    """Σ or max over i of α_i A_ij: (G, K, K, M or 1) and (G, K, M) → (G, K, M)."""
    if hard:
        return (transition * alpha[:, :, None]).max(1)
    if transition.shape[-1] == 1 and not _small(alpha):
        return jnp.matmul(jnp.swapaxes(transition[..., 0], 1, 2), alpha, precision=PRECISE)
    return (transition * alpha[:, :, None]).sum(1)


def _back(transition: jax.Array, ratio: jax.Array) -> jax.Array:
    """Σ over j of A_ij r_j."""
    if transition.shape[-1] == 1 and not _small(ratio):
        return jnp.matmul(transition[..., 0], ratio, precision=PRECISE)
    return (transition * ratio[:, None]).sum(2)


def _small(weights: jax.Array) -> bool:
    """Whether a step is so little work that what it costs is the number of its operations."""
    return weights.size * weights.shape[1] <= SMALL


def _choose(alive: jax.Array | None, yes: jax.Array, no: jax.Array) -> jax.Array:
    return yes if alive is None else jnp.where(alive, yes, no)


def _normalised(u: jax.Array, hard: bool, axis: int) -> tuple[jax.Array, jax.Array]:
    """u / its sum (or maximum) over an axis, and that; 0 stays 0."""
    scale = u.max(axis) if hard else u.sum(axis)
    inverse = jnp.where(scale > 0, 1 / jnp.where(scale > 0, scale, 1), 0)
    return u * jnp.expand_dims(inverse, axis), scale


def _seen(ahead: jax.Array, emission: jax.Array, hard: bool, axis: int = 1) -> tuple[jax.Array, jax.Array]:
    """Predicted weights of states and a step's log emissions → filtered ones, normalised, and the log of their scale.

    The best emission of the states that can be reached is taken out before the exponential.
    """
    top = _finite(jnp.where(ahead > 0, emission, -jnp.inf).max(axis, keepdims=True))
    new, scale = _normalised(ahead * jnp.exp(jnp.minimum(emission - top, 0)), hard, axis)
    return new, _log(scale) + jnp.squeeze(top, axis)


def _log(x: jax.Array) -> jax.Array:
    return jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1)), -jnp.inf)


def _divide(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.where(b > 0, a / jnp.where(b > 0, b, 1), 0)


def _lead(chain: _Linear) -> tuple[int, int, int, int]:
    """L, G, K, M."""
    steps, _, states, lanes = chain.emission.shape
    return steps, max(chain.initial.shape[0], chain.transition.shape[1], chain.emission.shape[1]), states, lanes


def _first(initial: jax.Array, lanes: int, blocks: int) -> jax.Array:
    """The initial weights of every row, in all lanes: (G, K, M)."""
    wide = jnp.broadcast_to(initial, (*initial.shape[:2], lanes // blocks))
    return jnp.repeat(wide, blocks, -1) if blocks > 1 else wide


def _entering(chain: _Linear, blocks: int, before: jax.Array | None, hard: bool) -> jax.Array:
    """The weights of the states at each lane's first step, before its emission: initial, or moved from those `before` the block."""
    _, g, k, m = _lead(chain)
    start = jnp.broadcast_to(_first(chain.initial, m, blocks), (g, k, m))
    if before is None:
        return start
    transition, _, alive = _at(chain, 0)
    moved = _choose(alive, _move(transition, before, hard), before)
    return jnp.where(jnp.arange(m) % blocks == 0, start, moved)


def _forward(chain: _Linear, blocks: int, before: jax.Array | None, hard: bool) -> tuple[jax.Array, jax.Array]:
    """Filtered weights of every step, (L, G, K, M), normalised, and the logs of their scales (L, G, M)."""
    entering = _entering(chain, blocks, before, hard)

    def step(carry, now):  # every step alike, the first too: nothing has to be put together afterwards
        ahead, alpha = carry
        emission, alive, transition = now
        transition = chain.transition[0] if transition is None else transition
        new, scale = _seen(ahead, emission, hard)
        new, scale = _choose(alive, new, alpha), _choose(alive, scale, 0.0)
        return (_move(transition, new, hard), new), (new, scale)

    next_moves = None if len(chain.transition) == 1 else jnp.roll(chain.transition, -1, 0)
    return lax.scan(step, (entering, entering), (chain.emission, chain.alive, next_moves))[1]


def _wide(chain: Chain, hard: bool) -> "_Pass":
    """The forward pass in logs."""
    _, g, k, m = _lead(chain)

    def over(log, axis):
        return log.max(axis) if hard else _log_sum(log, axis)

    def step(carry, now):
        ahead, alpha = carry
        emission, alive, transition = now
        new = ahead + emission
        scale = over(new, 1)
        new = new - _finite(scale)[:, None]
        if hard:
            new, scale = _choose(alive, new, alpha), _choose(alive, scale, 0.0)
        return (over(new[:, :, None] + (chain.transition[0] if transition is None else transition), 1), new), (new, scale)

    emission = chain.emission if chain.alive is None else jnp.where(chain.alive[:, None, None], chain.emission, 0.0)
    first = jnp.broadcast_to(chain.initial, (g, k, m))
    moves = None if len(chain.transition) == 1 else jnp.roll(chain.transition, -1, 0)
    return _Pass(None, *lax.scan(step, (first, first), (emission, chain.alive, moves))[1], None)


def _log_sum(log: jax.Array, axis: int) -> jax.Array:
    top = _finite(log.max(axis, keepdims=True))
    return _log(jnp.exp(log - top).sum(axis)) + jnp.squeeze(top, axis)


def _share(log: jax.Array, axis: int) -> jax.Array:
    """Each entry's share of the sum over an axis; 0 where all is impossible."""
    weight = jnp.exp(log - _finite(log.max(axis, keepdims=True)))
    return _divide(weight, weight.sum(axis, keepdims=True))


class _Transfer(NamedTuple):
    """Blocks as matrices: from the state before a block to the one at its end; (B, G, from, [to,] rows)."""

    scale: jax.Array  # log
    end: jax.Array  # normalised over `to`


def _transfers(chain: _Linear, blocks: int, hard: bool) -> _Transfer:
    steps, g, k, m = _lead(chain)
    transition, emission, alive = _at(chain, 0)
    eye = jnp.broadcast_to(jnp.eye(k, dtype=emission.dtype)[None, :, :, None], (g, k, k, m))
    entering = _choose(alive, jnp.broadcast_to(transition, (g, k, k, m)), eye)
    entering = jnp.where(jnp.arange(m) % blocks == 0, _first(chain.initial, m, blocks)[:, None], entering)  # (G, from, to, M)

    def moved(transition, p):
        """(G, from, to, M): every row of the matrices takes a step."""
        if not hard and transition.shape[-1] == 1:
            flat = jnp.swapaxes(p, 1, 2).reshape(g, k, k * m)
            return jnp.swapaxes(_move(transition, flat, hard).reshape(g, k, k, m), 1, 2)
        return jax.vmap(lambda row: _move(transition, row, hard), 1, 1)(p)

    def sweep(at, carry):
        p, scale = carry
        transition, emission, alive = _at(chain, at)
        new, factor = _seen(moved(transition, p), emission[:, None], hard, 2)
        return _choose(alive, new, p), _choose(alive, scale + factor, scale)

    def alike(p, scale):
        """(G, M): whether all possible rows are equal."""
        possible = (scale > -jnp.inf)[:, :, None]
        high, low = jnp.where(possible, p, -jnp.inf).max(1), jnp.where(possible, p, jnp.inf).min(1)
        info = jnp.finfo(p.dtype)
        return jnp.all((high - low <= ALIKE * info.eps * high + info.tiny * 2**20) | (high == -jnp.inf), 1)

    def unlike(carry):
        at, p, scale = carry
        going = True if chain.alive is None else _at(chain, jnp.minimum(at, steps - 1))[2]
        return (at < steps) & jnp.any(~alike(p, scale) & going)

    def sweeps(carry):
        at, p, scale = carry
        until = jnp.minimum(at + SWEEP, steps)
        return (until, *lax.fori_loop(at, until, sweep, (p, scale)))

    at, p, scale = lax.while_loop(unlike, sweeps, (jnp.asarray(1), *_seen(entering, _choose(alive, emission, 0.0)[:, None], hard, 2)))
    row = jnp.where((scale > -jnp.inf)[:, :, None], p, 0.0).max(1)  # all rows, where they are equal

    def one(at, carry):
        alpha, scale = carry
        transition, emission, alive = _at(chain, at)
        new, factor = _seen(_move(transition, alpha, hard), emission, hard)
        return _choose(alive, new, alpha), _choose(alive, scale + factor, scale)

    last, more = lax.fori_loop(at, steps, one, (row, jnp.zeros((g, m), row.dtype)))
    one_row = (at < steps) & alike(p, scale)
    end = jnp.where(one_row[:, None, None], last[:, None], p)
    scale = scale + jnp.where(one_row, more, 0.0)[:, None]

    def apart(leaf):
        return jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], m // blocks, blocks), -1, 0)

    return _Transfer(apart(scale), apart(end))


def _joined(first: _Transfer, second: _Transfer, hard: bool) -> _Transfer:
    """One block after another, as one: P[s, k] = Σ or max over j of P₁[s, j] P₂[j, k]."""
    top = _finite(second.scale.max(-2, keepdims=True))
    weighed = _exp(second.scale, top)[..., :, None, :] * second.end  # (.., j, k, rows)
    product = first.end[..., :, :, None, :] * weighed[..., None, :, :, :]
    end, scale = _normalised(product.max(-3) if hard else product.sum(-3), hard, -2)
    return _Transfer(first.scale + top + _log(scale), end)


def _before(transfer: _Transfer, hard: bool, parallel: bool) -> jax.Array:
    """The normalised weights of the states before every block, (B, G, K, rows); of the first block, nothing of use."""
    if parallel:
        whole = lax.associative_scan(functools.partial(_joined, hard=hard), transfer)
        found = whole.end[:, :, 0]  # all rows of the first block are equal
        return jnp.concatenate([found[:1], found[:-1]])

    def step(before, block):
        top = _finite(block.scale.max(1, keepdims=True))
        weighed = (before * _exp(block.scale, top))[:, :, None] * block.end
        return _normalised(weighed.max(1) if hard else weighed.sum(1), hard, 1)[0], before

    first = transfer.end[0, :, 0]
    _, found = lax.scan(step, first, jax.tree.map(lambda leaf: leaf[1:], transfer))
    return jnp.concatenate([first[None], found])


def _after(transfer: _Transfer, parallel: bool) -> jax.Array:
    """p(all that follows | state at the end of a block), up to a factor: (B, G, K, rows)."""
    ones = jnp.ones_like(transfer.scale[:1])
    if parallel:
        backwards = lax.associative_scan(lambda a, b: _joined(b, a, False), transfer, reverse=True)
        top = _finite(backwards.scale.max(2, keepdims=True))
        return jnp.concatenate([_exp(backwards.scale, top)[1:], ones])

    def step(after, block):
        inner = (block.end * after[:, None]).sum(2)
        log = block.scale + _log(inner)
        new = _exp(log, _finite(log.max(1, keepdims=True)))
        return new, new

    _, found = lax.scan(step, ones[0], jax.tree.map(lambda leaf: leaf[1:], transfer), reverse=True)
    return jnp.concatenate([found, ones])


def _lanes(blocked: jax.Array) -> jax.Array:
    """(B, ..., rows) → (..., lanes)."""
    moved = jnp.moveaxis(blocked, 0, -1)
    return moved.reshape(*moved.shape[:-2], -1)


class _Pass(NamedTuple):
    """A forward pass: what was before every lane, all filtered weights, the logs of their scales; and the blocks, if there are several."""

    before: jax.Array | None
    alphas: jax.Array
    scales: jax.Array
    transfer: _Transfer | None


def _filter(chain: _Linear, blocks: int, parallel: bool, hard: bool = False) -> _Pass:
    transfer = _transfers(chain, blocks, hard) if blocks > 1 else None
    before = _lanes(_before(transfer, hard, parallel)) if blocks > 1 else None
    return _Pass(before, *_forward(chain, blocks, before, hard), transfer)


def _total(found: _Pass, blocks: int, alive: jax.Array | None) -> jax.Array:
    """log evidence, or the log weight of the best path, (G, rows)."""
    log = found.scales.sum(0)
    log = log.reshape(len(log), -1, blocks).sum(-1)
    return log if alive is None else jnp.where(alive[0, ::blocks], log, 0.0)  # a sequence of no steps


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def evidence(chain: Chain, blocks: int = 1, parallel: bool = False, wide: bool = False) -> jax.Array:
    """log Σ over all paths of the product of a chain's weights, (G, rows), in nats; −∞ where no path is possible.

    Its gradient is what Baum & Welch (1970) ask for: with respect to the emission the marginals of each step's state, to the
    transition the pair marginals, summed over the steps and lanes that share it, to the initial those of the first step.

    Args:
        blocks: into how many each row's sequence is cut; see the top of this file.
        parallel: join the blocks by an associative scan, for machines with thousands of lanes.
        wide: without limit of range, of one block.

    Cost: O(T K²) a row; with blocks, O(K³) more for each step in which a chain has not yet forgotten its past.
    """
    return _total(_wide(chain, False) if wide else _filter(_linear(chain), blocks, parallel), blocks, chain.alive)


def _evidence_forward(chain: Chain, blocks: int, parallel: bool, wide: bool):
    linear = chain if wide else _linear(chain)
    found = _wide(chain, False) if wide else _filter(linear, blocks, parallel)
    after = None if found.transfer is None else _lanes(_after(found.transfer, parallel))
    shapes = tuple(leaf.shape for leaf in chain[:3])
    total = _total(found, blocks, chain.alive)
    rest = (linear.initial, linear.transition, chain.alive, found.before, found.alphas, after, jnp.isfinite(total))
    return total, (rest, _Static(shapes))


@jax.tree_util.register_static
class _Static(tuple):
    """Shapes that travel beside arrays."""


def _evidence_backward(blocks: int, parallel: bool, wide: bool, kept, slope: jax.Array):
    (initial, transition, alive, before, alphas, after, possible), (of_initial, of_transition, of_emission) = kept
    g, k, m = alphas.shape[1:]
    share = jnp.where(possible, slope, 0.0)
    if alive is not None:
        share = jnp.where(alive[0, ::blocks], share, 0.0)
    share = jnp.repeat(share, blocks, -1) if blocks > 1 else share  # (G, M)
    last = alphas[-1] if after is None else _normalised(alphas[-1] * after, False, 1)[0]
    last = jnp.exp(last) if wide else last
    varying = len(transition) > 1 or transition.shape[-1] > 1

    def pairs(alpha, ratio, here, transition):
        """Pair marginals, weighed, in the shape of one step's transition."""
        if varying:
            return _reduced((alpha * share[:, None])[:, :, None] * transition * (ratio * here)[:, None], of_transition[1:])
        if _small(alpha):
            both = ((alpha * share[:, None])[:, :, None] * (ratio * here)[:, None]).sum(-1, keepdims=True)
        else:
            both = jnp.matmul(alpha * share[:, None], jnp.swapaxes(ratio * here, 1, 2), precision=PRECISE)[..., None]
        return _reduced(both, of_transition[1:])  # × A at the end

    def step(carry, now):
        gamma, count = carry  # gamma is that of the step `now` leads to; the last leads to none
        alpha, alive, own, inner = now
        own = transition[0] if own is None else own
        here = inner.astype(alpha.dtype) if alive is None else (inner & alive).astype(alpha.dtype)
        if wide:
            pair = _share(alpha[:, :, None] + own, 1) * gamma[:, None]
            new = _normalised(pair.sum(2), False, 1)[0]
            mine = _reduced(pair * (here * share)[:, None, None], of_transition[1:])
        else:
            ratio = _divide(gamma, _move(own, alpha, False))
            new, mine = _normalised(alpha * _back(own, ratio), False, 1)[0], pairs(alpha, ratio, here, own)
        new = jnp.where(inner, new, gamma)
        if len(transition) > 1:
            return (new, count), (new, mine)
        return (new, count + mine), (new, None)

    own = None if len(transition) == 1 else jnp.roll(transition, -1, 0)
    blank = jnp.zeros(of_transition[1:], alphas.dtype)
    later = None if alive is None else jnp.roll(alive, -1, 0)
    inner = jnp.arange(len(alphas)) < len(alphas) - 1
    (gamma, count), (gammas, by_step) = lax.scan(step, (last, blank), (alphas, later, own, inner), reverse=True)
    if before is not None:  # from the block before
        here = jnp.ones((), alphas.dtype) if alive is None else alive[0].astype(alphas.dtype)
        here = here * (jnp.arange(m) % blocks > 0)
        mine = pairs(before, _divide(gamma, _move(transition[0], before, False)), here, transition[0])
    else:
        mine = blank
    if len(transition) > 1:
        count = jnp.concatenate([mine[None], by_step[:-1]])
    else:
        count = (count + mine)[None]
    if not (varying or wide):
        count = count * transition
    weighed = gammas * share[:, None]
    if alive is not None:
        weighed = jnp.where(alive[:, None, None], weighed, 0.0)
    first = gammas[0, ..., ::blocks] * share[:, None, ::blocks]
    return (Chain(_reduced(first, of_initial), _reduced(count, of_transition), _reduced(weighed, of_emission), None),)


def _reduced(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Summed over the axes along which something of this shape was broadcast."""
    axes = tuple(i for i, size in enumerate(shape) if size == 1 and array.shape[i] > 1)
    return jnp.broadcast_to(array.sum(axes, keepdims=True) if axes else array, shape)


evidence.defvjp(_evidence_forward, _evidence_backward)


def filtered(chain: Chain, blocks: int = 1, parallel: bool = False, wide: bool = False) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What is known as time goes on: p(state_t | steps before t) and log p(step t | steps before t) up to t's own emission.

    Returns:
        the predicted and the filtered state probabilities, (L, G, K, M), and the log evidence of all steps before each, (L, G, M).
    """
    linear = _linear(chain)
    found = _wide(chain, False) if wide else _filter(linear, blocks, parallel)
    if wide:
        ahead = _log_sum(found.alphas[:-1, :, :, None] + (chain.transition if len(chain.transition) == 1 else chain.transition[1:]), 2)
        first = jnp.broadcast_to(chain.initial, found.alphas.shape[1:])
        predicted = _share(jnp.concatenate([first[None], ahead]), 2)
        return predicted, jnp.exp(found.alphas), jnp.cumsum(found.scales, 0) - found.scales
    entering = _normalised(_entering(linear, blocks, found.before, False), False, 1)[0]
    moved = jax.vmap(lambda t, alpha: _move(t, alpha, False), (None if len(linear.transition) == 1 else 0, 0))(
        linear.transition[0] if len(linear.transition) == 1 else linear.transition[1:], found.alphas[:-1]
    )
    moved = _normalised(moved, False, 2)[0]
    steps, g, m = found.scales.shape
    whole = found.scales.reshape(steps, g, m // blocks, blocks)
    within = jnp.cumsum(whole, 0) - whole
    earlier = jnp.cumsum(whole.sum(0), -1) - whole.sum(0)
    return jnp.concatenate([entering[None], moved]), found.alphas, (within + earlier).reshape(steps, g, m)


def maximise(chain: Chain, blocks: int = 1, parallel: bool = False, wide: bool = False) -> tuple[jax.Array, jax.Array]:
    """The most probable path (Viterbi 1967): its log weight (G, rows), and its states (L, G, M), int32.

    Steps that do not count have the last state before them. Ties go to the lowest state, the last step's first; an impossible
    row has states 0.
    """
    linear = chain if wide else _linear(chain, hard=True)
    found = _wide(chain, True) if wide else _filter(linear, blocks, parallel, hard=True)
    value = _total(found, blocks, chain.alive)
    return value, _follow(linear, found, blocks, value, None, wide)


def draw(
    chain: Chain, key: jax.Array, blocks: int = 1, parallel: bool = False, wide: bool = False
) -> tuple[jax.Array, jax.Array]:
    """One joint draw of each row's path (forward filtering, backward sampling: Scott 2002): log evidence (G, rows), states (L, G, M)."""
    linear = chain._replace(alive=None) if wide else _linear(chain)
    found = _wide(chain, False) if wide else _filter(linear, blocks, parallel)
    value = _total(found, blocks, chain.alive)
    steps, g, _, m = found.alphas.shape
    return value, _follow(linear, found, blocks, value, jax.random.uniform(key, (steps + 1, g, m), found.alphas.dtype), wide)


def _pick(weight: jax.Array, axis: int, noise: jax.Array | None, kind) -> jax.Array:
    """The heaviest entry, or one drawn in proportion: the first at which the running sum passes a uniform share of the whole."""
    if noise is None:
        return weight.argmax(axis).astype(kind)
    running = jnp.cumsum(weight, axis)
    passed = running > noise * lax.index_in_dim(running, weight.shape[axis] - 1, axis)
    return jnp.where(passed.any(axis), passed.argmax(axis), weight.argmax(axis)).astype(kind)


def _follow(chain, found: _Pass, blocks: int, value: jax.Array, noise: jax.Array | None, wide: bool) -> jax.Array:
    """States backwards from the last step, each given the next: (L, G, M).

    Every block is followed from all of its last states at once; which of them it was is then looked up from the last block on.
    """
    steps, g, k, m = found.alphas.shape
    kind = jnp.uint8 if k <= 256 else jnp.int32

    def chosen(alpha, transition, alive, u):
        """For each state of a step, the state before it: (G, K, M)."""
        weight = _share(alpha[:, :, None] + transition, 1) if wide else transition * alpha[:, :, None]
        table = _pick(weight, 1, None if u is None else u[:, None, None], kind)
        return _choose(alive, table, jnp.arange(k, dtype=kind)[:, None])

    def step(state, now):
        alpha, alive, own, u = now
        table = chosen(alpha, chain.transition[0] if own is None else own, alive, u)
        return _look(table, state), state

    ends = jnp.exp(found.alphas[-1]) if wide else found.alphas[-1]
    if blocks == 1:
        state = _pick(ends, 1, None if noise is None else noise[-1][:, None], kind)[:, None]  # (G, 1, M)
    else:
        state = jnp.broadcast_to(jnp.arange(k, dtype=kind)[:, None], (g, k, m))
    own = None if len(chain.transition) == 1 else chain.transition[1:]
    later = None if chain.alive is None else chain.alive[1:]
    xs = (found.alphas[:-1], later, own, None if noise is None else noise[1:-1])
    first, rest = lax.scan(step, state, xs, reverse=True)
    states = jnp.concatenate([first[None], rest])  # (L, G, K or 1, M)
    if blocks > 1:
        transition, _, alive = _at(chain, 0)
        table = chosen(found.before, transition, alive, None if noise is None else noise[0])
        into = _look(table, first)  # the last state of the block before, for each last state of this one
        last = _pick(ends, 1, None if noise is None else noise[-1][:, None], kind)
        last, into = (jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], -1, blocks), -1, 0) for leaf in (last, into))

        def link(state, into):
            before = _look(into, state[:, None])[:, 0]
            return before, state

        head, tail = lax.scan(link, last[-1], into[1:], reverse=True)
        ended = _lanes(jnp.concatenate([head[None], tail]))  # (G, M)
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
    """The log weight of the most probable path, (G, rows); its gradient is one-hot along that path."""
    _, states = lax.stop_gradient(maximise(chain, blocks, wide=wide))
    chain = chain._replace(emission=_capped(chain.emission), transition=_capped(chain.transition), initial=_capped(chain.initial))
    steps, g, m = states.shape
    hot = jax.nn.one_hot(states, chain.emission.shape[2], axis=2, dtype=chain.emission.dtype)  # (L, G, K, M)
    first = hot[0, ..., ::blocks]
    wrapped = jnp.roll(hot[-1], 1, -1)  # the last step of the block before
    before = jnp.concatenate([wrapped[None], hot[:-1]])
    if chain.transition.shape[-1] == 1 and len(chain.transition) == 1:
        moved = jnp.einsum("hij,tgim->tgjm", chain.transition[0, ..., 0], before) if chain.transition.shape[1] == 1 else jnp.einsum(
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
    return jnp.where(log > FLOOR / 2, log, -jnp.inf)


FLOOR = -(2.0**100)  # stands for log 0 inside a product


def _capped(log: jax.Array) -> jax.Array:
    return jnp.where(jnp.isneginf(log), FLOOR, log)
