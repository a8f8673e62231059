"""The perceptron: Rosenblatt's rule, for several classes Kesler's, and the generative function of its loss.

    a row is mistaken where  w_y·x̃ ≤ max over j ≠ y of w_j·x̃,   x̃ = (x, 1);   then w_y += x̃ and w_j −= x̃ of the greatest such j

From w = 0 two classes keep w_0 = −w_1, and w_1 follows Rosenblatt's rule for signs. Where some plane parts the classes with margin γ,
and |x̃| ≤ R, there are at most (R/γ)² mistakes, whatever the order (Novikoff 1962). Where none does the rule goes on for ever: the
planes of the epoch that ended with the fewest mistakes are kept (Gallant 1990, the pocket with ratchet, once an epoch).

Sources: Rosenblatt (1958); Novikoff (1962); Nilsson (1965), "Learning machines", for Kesler's construction; Crammer & Singer (2003).
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax
from numpyro import factor, sample
from numpyro.distributions import constraints

from probml import model, rows
from probml.models.support_vectors import in_float64, padded

BLOCK = 2**20  # rows between two looks at what was reached


@model
def perceptron(x, classes: int = 2):
    """Classes by the greatest of linear functions, at the loss of the perceptron, which is no likelihood: predict takes the least.

        loss of a row of class y = max(0, max over j ≠ y of f_j(x) − f_y(x)),   f_j = w_j·x + b_j;   of two classes f_0 = 0

    Args:
        x: (n, d). classes: how many.

    Sites: weights (classes, d) and bias (classes,), of two classes (1, d) and (1,); y the class.
    """
    planes = 1 if classes == 2 else classes
    weights = sample("weights", dist.ImproperUniform(constraints.real, (), (planes, x.shape[-1])))
    bias = sample("bias", dist.ImproperUniform(constraints.real, (), (planes,)))
    with rows():
        y = sample("y", dist.Categorical(jnp.full(classes, 1 / classes)))
        f = x @ weights.T + bias
        f = jnp.concatenate([jnp.zeros_like(f), f], -1) if classes == 2 else f
        rivals = jnp.where(jnp.eye(classes, dtype=bool), -jnp.inf, f[..., None, :]).max(-1)
        losses = jnp.maximum(rivals - f, 0.0)
        factor("mistake", -jnp.take_along_axis(losses, y[..., None], -1)[..., 0])


class Learnt(NamedTuple):
    """Planes (classes, d); epochs and updates it took; rows that they mistake."""

    planes: np.ndarray
    epochs: int
    updates: int
    mistaken: int


def learn(x: np.ndarray, codes: np.ndarray, weights: np.ndarray, classes: int, most: int, seed: int | None) -> Learnt:
    """The rule over rows, epoch by epoch, until none is mistaken, in float64 whatever JAX's precision, on the CPU.

    Args:
        x: (n, d) with the column of ones; codes (n,); weights (n,), by which a row's step is multiplied.
        most: epochs. seed: of the order of rows, another one in each epoch; None: as they stand.

    Cost: an epoch O(n · classes · d), one row after the other.
    """
    n, d = x.shape
    m = padded(n)
    x, codes, weights = np.pad(x, ((0, m - n), (0, 0))), np.pad(codes, (0, m - n)), np.pad(weights, (0, m - n))
    with in_float64():
        data = jnp.asarray(x), jnp.asarray(codes, jnp.int32), jnp.asarray(weights)
        none = jnp.zeros((classes, d))
        state = (none, none, jnp.asarray(n + 1), 0, 0, jax.random.key(seed or 0))
        for start in range(0, most, max(BLOCK // m, 1)):
            state = _epochs(*data, min(most, start + max(BLOCK // m, 1)), state, seed is not None)
            if int(state[2]) == 0:
                break
        _, best, fewest, epochs, updates, _ = state
        return Learnt(np.asarray(best), int(epochs), int(updates), int(fewest))


@partial(jax.jit, static_argnums=5)
def _epochs(x, codes, weights, most, state, shuffle: bool):
    """Epochs until none is mistaken, or up to the number `most`: (planes, the best ones, their mistakes, epochs, updates, key)."""
    states = jnp.arange(state[0].shape[0])

    def visit(carry, i):
        planes, updates = carry
        scores = planes @ x[i]
        rivals = jnp.where(states == codes[i], -jnp.inf, scores)
        rival = rivals.argmax()
        wrong = (scores[codes[i]] <= rivals[rival]) & (weights[i] > 0)
        signs = (states == codes[i]).astype(x.dtype) - (states == rival)
        planes = planes + jnp.where(wrong, weights[i], 0.0) * signs[:, None] * x[i]
        return (planes, updates + wrong), None

    def epoch(carry):
        planes, best, fewest, epochs, updates, key = carry
        key, now = jax.random.split(key)
        order = jax.random.permutation(now, len(x)) if shuffle else jnp.arange(len(x))
        (planes, updates), _ = lax.scan(visit, (planes, updates), order)
        scores = x @ planes.T
        own = jnp.take_along_axis(scores, codes[:, None], 1)[:, 0]
        rivals = jnp.where(states == codes[:, None], -jnp.inf, scores).max(1)
        wrong = ((own <= rivals) & (weights > 0)).sum()
        best = jnp.where(wrong < fewest, planes, best)
        return planes, best, jnp.minimum(wrong, fewest), epochs + 1, updates, key

    def more(carry):
        return (carry[2] > 0) & (carry[3] < most)

    return lax.while_loop(more, epoch, state)
