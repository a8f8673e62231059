"""Elimination along time: sums, maxima, joint draws and filters of Markov chains, for many
sequences at once; knows arrays, never models.

A sequence of T steps is cut into B blocks of L steps; all blocks of all sequences are the M lanes
of one scan over L. What enters a block is found first: the block's transfer matrix P[s, j], the
weight of its steps and of ending in j after having been in s before it, is swept until its rows are
equal up to a factor. From there on one row stands for all, since a chain forgets (Le Gland & Mevel
2000); a chain that does not is swept to the end. The blocks are then joined in turn, or by an
associative scan. B = 1 is the plain forward algorithm; L = 1 with an associative join is Särkkä &
García-Fernández (2021).

Messages live in linear space, normalised at every step with the log scale beside them (Rabiner
1989), so that a step is a matrix product and no length underflows. Range: a state whose filtered
weight lies further below the best reachable state's than the float reaches (87 nats in float32, 708
in float64) counts as impossible from that step on. Where a chain can soon be anywhere that loses
nothing; where moves are impossible, or nearly, a state that is lost may be the only way to what
comes later. `wide` then keeps logs throughout, at K² exponentials a step and without blocks.

Backwards, the smoothed marginals come from the filtered ones alone, γ_t = α_t ∘ A (γ_{t+1} / αᵀ_t
A), so that what is stored of T steps with K states is two arrays of T·K numbers, beside the log
weights and their gradient; pair marginals are summed over time on the way and never held, unless
the transition itself varies along time.

Arrays: time first and lanes last, (L, G, K, M), where G counts the joint states of whatever else
the chain depends on, and lane = row · B + block.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from probml.elimination.chain_arithmetic import (
    PRECISE,
    Chain,
    divide,
    is_small,
    linear_of,
    normalised,
    one_step,
    one_step_back,
    share_of,
)
from probml.elimination.chain_passes import after_of, forward, lanes_of, total_of


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def evidence(chain: Chain, blocks: int = 1, parallel: bool = False,
             wide: bool = False) -> jax.Array:
    """log Σ over all paths of the product of a chain's weights, (G, rows), in nats; −∞ where no
    path is possible.

    Its gradient is what Baum & Welch (1970) ask for: with respect to the emission the marginals of
    each step's state, to the transition the pair marginals, summed over the steps and lanes that
    share it, to the initial those of the first step.

    Args:
        blocks: into how many each row's sequence is cut; see the top of this file.
        parallel: join the blocks by an associative scan, for machines with thousands of lanes.
        wide: without limit of range, of one block.

    Cost: O(T K²) a row; with blocks, O(K³) more for each step in which a chain has not yet
        forgotten its past.
    """
    return total_of(forward(chain, blocks, parallel, wide), blocks, chain.alive)


def _evidence_forward(chain: Chain, blocks: int, parallel: bool, wide: bool):
    linear = chain if wide else linear_of(chain)
    found = forward(chain, blocks, parallel, wide)
    after = None if found.transfer is None else lanes_of(after_of(found.transfer, parallel))
    shapes = tuple(leaf.shape for leaf in chain[:3])
    total = total_of(found, blocks, chain.alive)
    rest = (linear.initial, linear.transition, chain.alive, found.before, found.alphas, after,
            jnp.isfinite(total))
    return total, (rest, _Static(shapes))


@jax.tree_util.register_static
class _Static(tuple):
    """Shapes that travel beside arrays."""


def _evidence_backward(blocks: int, parallel: bool, wide: bool, kept, slope: jax.Array):
    (initial, transition, alive, before, alphas, after, possible), (of_initial, of_transition,
                                                                    of_emission) = kept
    g, k, m = alphas.shape[1:]
    share = jnp.where(possible, slope, 0.0)
    if alive is not None:
        share = jnp.where(alive[0, ::blocks], share, 0.0)
    share = jnp.repeat(share, blocks, -1) if blocks > 1 else share  # (G, M)
    last = alphas[-1] if after is None else normalised(alphas[-1] * after, 1)[0]
    last = jnp.exp(last) if wide else last
    varying = len(transition) > 1 or transition.shape[-1] > 1

    def pairs(alpha, ratio, here, transition):
        """Pair marginals, weighed, in the shape of one step's transition."""
        if varying:
            return _reduced((alpha * share[:, None])[:, :, None] * transition
                            * (ratio * here)[:, None], of_transition[1:])
        if is_small(alpha):
            both = ((alpha * share[:, None])[:, :, None] * (ratio * here)[:, None]).sum(
                -1, keepdims=True
            )
        else:
            both = jnp.matmul(alpha * share[:, None], jnp.swapaxes(ratio * here, 1, 2),
                              precision=PRECISE)[..., None]
        return _reduced(both, of_transition[1:])  # × A at the end

    def step(carry, now):
        gamma, count = carry  # gamma is that of the step `now` leads to; the last leads to none
        alpha, alive, own, inner = now
        own = transition[0] if own is None else own
        here = inner.astype(alpha.dtype) if alive is None else (inner & alive).astype(alpha.dtype)
        if wide:
            pair = share_of(alpha[:, :, None] + own, 1) * gamma[:, None]
            new = normalised(pair.sum(2), 1)[0]
            mine = _reduced(pair * (here * share)[:, None, None], of_transition[1:])
        else:
            ratio = divide(gamma, one_step(own, alpha))
            new, mine = (normalised(alpha * one_step_back(own, ratio), 1)[0],
                         pairs(alpha, ratio, here, own))
        new = jnp.where(inner, new, gamma)
        if len(transition) > 1:
            return (new, count), (new, mine)
        return (new, count + mine), (new, None)

    own = None if len(transition) == 1 else jnp.roll(transition, -1, 0)
    blank = jnp.zeros(of_transition[1:], alphas.dtype)
    later = None if alive is None else jnp.roll(alive, -1, 0)
    inner = jnp.arange(len(alphas)) < len(alphas) - 1
    (gamma, count), (gammas, by_step) = lax.scan(step, (last, blank), (alphas, later, own, inner),
                                                 reverse=True)
    if before is not None:  # from the block before
        here = jnp.ones((), alphas.dtype) if alive is None else alive[0].astype(alphas.dtype)
        here = here * (jnp.arange(m) % blocks > 0)
        mine = pairs(before, divide(gamma, one_step(transition[0], before)), here,
                     transition[0])
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
    return (Chain(_reduced(first, of_initial), _reduced(count, of_transition),
                  _reduced(weighed, of_emission), None),)


def _reduced(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Summed over the axes along which something of this shape was broadcast."""
    axes = tuple(i for i, size in enumerate(shape) if size == 1 and array.shape[i] > 1)
    return jnp.broadcast_to(array.sum(axes, keepdims=True) if axes else array, shape)


evidence.defvjp(_evidence_forward, _evidence_backward)
