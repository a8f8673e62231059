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

from probml.elimination.chains.arithmetic import Chain, linear_of, normalised
from probml.elimination.chains.backward import Share, entered, reduced, shared, stepper
from probml.elimination.chains.passes import after_of, forward, lanes_of, total_of


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
    return total_of(forward(chain, blocks, parallel, wide, True), blocks, chain.alive)


def _evidence_forward(chain: Chain, blocks: int, parallel: bool, wide: bool):
    linear = chain if wide else linear_of(chain)
    found = forward(chain, blocks, parallel, wide, True)
    after = None if found.transfer is None else lanes_of(after_of(found.transfer, parallel))
    shapes = tuple(leaf.shape for leaf in chain[:3])
    total = total_of(found, blocks, chain.alive)
    rest = (linear.initial, linear.transition, chain.alive, found.before, found.alphas, after,
            jnp.isfinite(total))
    return total, (rest, _Static(shapes))


@jax.tree_util.register_static
class _Static(tuple):
    """Shapes that travel beside arrays."""


def _evidence_backward(blocks: int, parallel: bool, wide: bool, kept: tuple, slope: jax.Array):
    (initial, transition, alive, before, alphas, after, possible), (of_initial, of_transition,
                                                                    of_emission) = kept
    varying = len(transition) > 1 or transition.shape[-1] > 1
    share = Share(shared(slope, possible, alive, blocks), of_transition[1:], varying)
    last = alphas[-1] if after is None else normalised(alphas[-1] * after, 1)[0]
    last = jnp.exp(last) if wide else last
    by_step = len(transition) > 1
    own = jnp.roll(transition, -1, 0) if by_step else None
    later = None if alive is None else jnp.roll(alive, -1, 0)
    inner = jnp.arange(len(alphas)) < len(alphas) - 1
    blank = jnp.zeros(of_transition[1:], alphas.dtype)
    (gamma, count), (gammas, moved) = lax.scan(stepper(share, transition, by_step, wide),
                                               (last, blank), (alphas, later, own, inner),
                                               reverse=True)
    mine = blank if before is None else entered(share, transition[0], before, gamma, alive, blocks)
    count = jnp.concatenate([mine[None], moved[:-1]]) if by_step else (count + mine)[None]
    if not (varying or wide):
        count = count * transition
    weighed = gammas * share.lanes[:, None]
    if alive is not None:
        weighed = jnp.where(alive[:, None, None], weighed, 0.0)
    first = gammas[0, ..., ::blocks] * share.lanes[:, None, ::blocks]
    return (Chain(reduced(first, of_initial), reduced(count, of_transition),
                  reduced(weighed, of_emission), None),)


evidence.defvjp(_evidence_forward, _evidence_backward)
