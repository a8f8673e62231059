"""The stick-breaking form: objectives in weights and in what is left behind each; conjugate prior
StickBreaking."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import digamma, xlogy

from probml.families import domains
from probml.families.form import Form, Natural, Prior, Steps, ratio
from probml.families.forms.beta import pair
from probml.families.forms.dirichlet import DIRICHLET
from probml.families.likelihood import Entry
from probml.families.log_linear import log_beta
from probml.language.stick_breaking import StickBreaking, remainders, weights


class _Reading(NamedTuple):
    """Two points of the simplex, (2, k), and what takes the slopes there to B and A."""

    points: np.ndarray
    solve: np.ndarray
    shares: np.ndarray


@functools.lru_cache(maxsize=64)
def _reading(k: int) -> _Reading:
    even = 1.0 / np.arange(k, 1, -1)  # the first point is uniform
    points, shares = [], []
    for v in (even, 2 * even / (1 + even)):
        w = np.append(v, 1.0) * np.cumprod(np.append(1.0, 1 - v))
        remaining = np.append(np.cumsum(w[:0:-1])[::-1], 1.0)
        strict = np.tril(np.ones((k, k)), -1) * (np.arange(k) < k - 2)  # of j < i, tails that count
        points.append(w)
        shares.append(strict * w[:, None] / remaining)
    difference = (shares[0] - shares[1])[1 : k - 1, : k - 2]
    solve = np.zeros((k, k))
    solve[: k - 2, 1 : k - 1] = np.linalg.inv(difference)
    return _Reading(np.stack(points), solve, shares[0])


class Sticks(Form):
    """Q(c) = Σ A_i log c_i + Σ B_i log T_i + constant on the simplex, T_i what is left behind c_i.

    c_i ∂Q/∂c_i = A_i + Σ_{j<i} B_j c_i/T_j: the difference of two points leaves a triangle for B.
    B has an entry for every state, of which the last two are 0: behind the last but one is the
    last.
    """

    name = "sticks"
    domain = domains.SIMPLEX
    keys = ("A", "B")
    event = 1
    steady = True

    def allows(self, steps: Steps):
        return not steps

    def holds(self, other: Form):
        return other in (self, DIRICHLET)

    def own_axes(self, states: int | None, event: tuple[int, ...]):
        return (states or event[-1],)

    def points(self, c: jax.Array, event: int):
        points = _reading(c.shape[-1]).points.astype(c.dtype)
        return jnp.broadcast_to(points.reshape(2, *(1,) * (c.ndim - 1), -1), (2, *c.shape))

    def read(self, points: jax.Array, gradients: jax.Array, event: int):
        reading, slopes = _reading(points.shape[-1]), points * gradients
        b = (slopes[0] - slopes[1]) @ reading.solve.T.astype(slopes.dtype)
        return {"A": slopes[0] - b @ reading.shares.T.astype(slopes.dtype), "B": b}

    def value(self, natural: Natural, c: jax.Array, event: int):
        """Q(c) up to a constant."""
        remaining = jnp.concatenate([remainders(c), jnp.ones_like(c[..., :1])], -1)
        return jnp.sum(xlogy(natural["A"], c)) + jnp.sum(xlogy(natural["B"], remaining))

    def mode(self, natural: Natural, fallback: jax.Array, event: int):
        count = jnp.maximum(natural["A"], 0.0)
        heads, tails = count[..., :-1], jnp.maximum(_behind(natural, 0.0), 0.0)
        v = ratio(heads, heads + tails, jnp.full_like(heads, 0.5))
        return weights(v, 1.0 - v)

    def expectation(self, natural: Natural, prior: Prior):
        """E[log c] and E[log T]."""
        a, b = betas(natural)
        digamma_sum = digamma(a + b)
        log_tails = jnp.cumsum(digamma(b) - digamma_sum, -1)
        zero = jnp.zeros_like(a[..., :1])
        log = (jnp.concatenate([digamma(a) - digamma_sum, zero], -1)
               + jnp.concatenate([zero, log_tails], -1))
        return {"log": log, "log_left": log_tails}

    def nodes(self, natural: Natural, prior: Prior):
        """Weights at the nodes of every v, the first of all beside each other and the second: log c
        and log T are sums over them."""
        a, b = betas(natural)
        digamma_sum = digamma(a + b)
        return weights(*pair(digamma(a) - digamma_sum, digamma(b) - digamma_sum))

    def middle(self, natural: Natural, prior: Prior):
        a, b = betas(natural)
        return weights(a / (a + b), b / (a + b))


STICKS = Sticks()


def _behind(natural: Natural, more: jax.Array):
    """Σ_{j>i} (A_j + more) + Σ_{j≥i} B_j of every state but the last."""
    tails = jnp.flip(jnp.cumsum(jnp.flip(natural["B"], -1), -1), -1)
    return remainders(natural["A"] + more) + tails[..., :-1]


def betas(natural: Natural):
    """The two concentrations of every v."""
    return natural["A"][..., :-1] + 1.0, _behind(natural, 1.0)


class SticksPrior(Prior):
    """StickBreaking(a, b): log density Σ (a_i − 1) log w_i + (b_{k−1} − 1) log w_k
    + Σ_{i<k−1} (b_i − a_{i+1} − b_{i+1}) log T_i. The mode is the one in the weights."""

    form = STICKS
    event = 1

    def posterior(self, natural: Natural, event: int):
        return StickBreaking(*betas(natural))

    def log_density(self, distribution: dist.Distribution, value: jax.Array, mode: bool):
        a, b = distribution.concentration1, distribution.concentration0
        remaining = remainders(value)
        tails = b[..., :-1] - a[..., 1:] - b[..., 1:]
        return (xlogy(a - 1.0, value[..., :-1]).sum(-1) + xlogy(b - 1.0, remaining)[..., -1]
                + xlogy(tails, remaining[..., :-1]).sum(-1) - log_beta(a, b).sum(-1))


ENTRIES = (Entry((StickBreaking,), prior=SticksPrior(), interior=True),)
