"""The perceptron: Rosenblatt's rule, for several classes Kesler's, and the generative function of
its loss.

    a row is mistaken where  w_y·x̃ ≤ max over j ≠ y of w_j·x̃,   x̃ = (x, 1);
    then w_y += x̃ and w_j −= x̃ of the greatest such j

From w = 0 two classes keep w_0 = −w_1, and w_1 follows Rosenblatt's rule for signs. Where some
plane parts the classes with margin γ, and |x̃| ≤ R, there are at most (R/γ)² mistakes, whatever the
order (Novikoff 1962). Where none does the rule goes on for ever: the planes of the epoch that ended
with the fewest mistakes are kept (Gallant 1990, the pocket with ratchet, once an epoch).

Sources: Rosenblatt (1958); Novikoff (1962); Nilsson (1965), "Learning machines", for Kesler's
    construction; Crammer & Singer (2003).
"""

from contextlib import contextmanager
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax
from numpyro import factor, sample
from numpyro.distributions import constraints

from probml import model, rows

AHEAD = 32  # rows that are judged together, up to the first mistake among them


@model
def perceptron(x, classes: int = 2):
    """Classification by the largest of several linear functions with the loss of the perceptron,
    which is not a likelihood.

        loss of a row of class y = max(0, max over j ≠ y of f_j(x) − f_y(x)),
        f_j = w_j·x + b_j;   of two classes f_0 = 0

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


class PerceptronFit(NamedTuple):
    """Planes (classes, d); epochs and updates it took; rows that they mistake."""

    planes: np.ndarray
    epochs: int
    updates: int
    mistaken: int


def learn(x: np.ndarray, codes: np.ndarray, weights: np.ndarray, classes: int, limit: int,
          seed: int | None) -> PerceptronFit:
    """The rule over rows, epoch by epoch, until none is mistaken, in float64 whatever JAX's
    precision, on the CPU.

    Args:
        x: (n, d) with the column of ones; codes (n,); weights (n,), by which a row's step is
            multiplied.
        limit: epochs. seed: of the order of rows, another one in each epoch; None: as they stand.

    Cost: an epoch O(n · classes · d), AHEAD rows at once where none is mistaken.
    """
    n, d = x.shape
    m = _round_up(n + AHEAD)
    x, codes, weights = (np.pad(x, ((0, m - n), (0, 0))), np.pad(codes, (0, m - n)),
                         np.pad(weights, (0, m - n)))
    order, rng = np.arange(m), np.random.default_rng(seed)
    with _in_float64():
        data = jnp.asarray(x), jnp.asarray(codes, jnp.int32), jnp.asarray(weights)
        planes = best = jnp.zeros((classes, d))
        fewest, updates, epochs = n + 1, 0, 0
        while fewest and epochs < limit:
            if seed is not None:
                order[:n] = rng.permutation(n)
            planes, steps, mistakes = _epoch(*data, order, planes, n)
            updates, epochs = updates + int(steps), epochs + 1
            if mistakes < fewest:
                best, fewest = planes, int(mistakes)
        return PerceptronFit(np.asarray(best), epochs, updates, fewest)


@jax.jit
def _epoch(x, codes, weights, order, planes, n):
    """One visit to the first n rows in `order`: (planes, steps taken, rows that these planes
    mistake)."""
    states = jnp.arange(len(planes))
    ordered = [a[order] for a in (x, codes, weights)]

    def find_mistakes(planes, x, codes, weights):
        """Which rows are mistaken, and the class that each is mistaken for."""
        scores = x @ planes.T
        true_scores = jnp.take_along_axis(scores, codes[:, None], 1)[:, 0]
        rivals = jnp.where(states == codes[:, None], -jnp.inf, scores)
        return (true_scores <= rivals.max(1)) & (weights > 0), rivals.argmax(1)

    def visit(state):
        planes, steps, start = state
        chunk = [lax.dynamic_slice_in_dim(a, start, AHEAD) for a in ordered]
        mistaken, rivals = find_mistakes(planes, *chunk)
        i = mistaken.argmax()
        row, code, weight = (a[i] for a in chunk)
        signs = (states == code).astype(x.dtype) - (states == rivals[i])
        planes = planes + jnp.where(mistaken[i], weight, 0.0) * signs[:, None] * row
        return planes, steps + mistaken[i], start + jnp.where(mistaken[i], i + 1, AHEAD)

    planes, steps, _ = lax.while_loop(lambda state: state[2] < n, visit, (planes, 0, 0))
    return planes, steps, find_mistakes(planes, x, codes, weights)[0].sum()


@contextmanager
def _in_float64():
    """JAX in float64, whatever its precision elsewhere, and on the CPU, where one step after the
    other is fast."""
    with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
        yield


def _round_up(n: int) -> int:
    """n, rounded up so that few programs are compiled: 64, 128, 256, then eighths of powers of
    two."""
    if n <= 256:
        return 64 if n <= 64 else 128 if n <= 128 else 256
    step = 2 ** (int(n - 1).bit_length() - 4)
    return -(-n // step) * step
