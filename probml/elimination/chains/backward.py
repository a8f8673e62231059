"""One step of the smoother: from the marginals of a step's state to those of the step before, and
of the pair (Baum & Welch 1970), from filtered weights alone."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from probml.elimination.chains.arithmetic import (
    PRECISE,
    divide,
    is_small,
    normalised,
    one_step,
    one_step_back,
    share_of,
)


class Share(NamedTuple):
    """What each lane counts for, and in what shape moves are counted.

    Attributes:
        lanes: (G, M), the slope of the total with respect to each lane's evidence.
        shape: of one step's transition, along whose axes of size 1 counts are added up.
        varying: whether moves differ from step to step or from lane to lane.
    """

    lanes: jax.Array
    shape: tuple[int, ...]
    varying: bool


def pairs(share: Share, alpha: jax.Array, ratio: jax.Array, here: jax.Array,
          transition: jax.Array) -> jax.Array:
    """Pair marginals, weighed, in the shape of one step's transition; where moves do not vary they
    are still to be multiplied by these."""
    weighed = alpha * share.lanes[:, None]
    if share.varying:
        return reduced(weighed[:, :, None] * transition * (ratio * here)[:, None], share.shape)
    if is_small(alpha):
        both = (weighed[:, :, None] * (ratio * here)[:, None]).sum(-1, keepdims=True)
    else:
        both = jnp.matmul(weighed, jnp.swapaxes(ratio * here, 1, 2), precision=PRECISE)[..., None]
    return reduced(both, share.shape)


def stepper(share: Share, transition: jax.Array, by_step: bool = False,
            wide: bool = False) -> Callable:
    """step((γ of the step after, pairs counted), (α, whether the step after counts, its moves or
    None, whether there is one)) → (the same, (γ, its pairs or None)).

    Args:
        transition: where it does not vary along time, (1, G, K, K, M or 1).
        by_step: pairs are told step by step and not added up.
    """

    def step(carry: tuple, now: tuple) -> tuple[tuple, tuple[jax.Array, Any]]:
        gamma, count = carry  # gamma is that of the step `now` leads to; the last leads to none
        alpha, alive, own, inner = now
        own = transition[0] if own is None else own
        here = inner.astype(alpha.dtype) if alive is None else (inner & alive).astype(alpha.dtype)
        if wide:
            pair = share_of(alpha[:, :, None] + own, 1) * gamma[:, None]
            new = normalised(pair.sum(2), 1)[0]
            mine = reduced(pair * (here * share.lanes)[:, None, None], share.shape)
        else:
            ratio = divide(gamma, one_step(own, alpha))
            new, mine = (normalised(alpha * one_step_back(own, ratio), 1)[0],
                         pairs(share, alpha, ratio, here, own))
        new = jnp.where(inner, new, gamma)
        if by_step:
            return (new, count), (new, mine)
        return (new, count + mine), (new, None)

    return step


def shared(slope: jax.Array, possible: jax.Array, alive: jax.Array | None,
           blocks: int) -> jax.Array:
    """The slopes (G, rows) of the rows' evidence for all lanes, 0 where a row is impossible, or has
    no steps: (G, M)."""
    share = jnp.where(possible, slope, 0.0)
    if alive is not None:
        share = jnp.where(alive[0, ::blocks], share, 0.0)
    return jnp.repeat(share, blocks, -1) if blocks > 1 else share


def entered(share: Share, transition: jax.Array, before: jax.Array, gamma: jax.Array,
            alive: jax.Array | None, blocks: int) -> jax.Array:
    """The pairs of each lane's first step with the last of the block before."""
    here = jnp.ones((), before.dtype) if alive is None else alive[0].astype(before.dtype)
    here = here * (jnp.arange(before.shape[-1]) % blocks > 0)
    return pairs(share, before, divide(gamma, one_step(transition, before)), here, transition)


def reduced(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Summed over the axes along which something of this shape was broadcast."""
    axes = tuple(i for i, size in enumerate(shape) if size == 1 and array.shape[i] > 1)
    return jnp.broadcast_to(array.sum(axes, keepdims=True) if axes else array, shape)
