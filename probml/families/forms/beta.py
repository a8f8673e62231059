"""The beta form: objectives in a probability; conjugate prior Beta."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import digamma, xlog1py, xlogy

from probml.families import domains
from probml.families.form import Form, Natural, Prior, Steps, ratio
from probml.families.log_linear import log_beta


def pair(log: jax.Array, log_rest: jax.Array):
    """The two c with the mean logarithm E log c, and 1 − c with the mean E log(1 − c): (2, ...)
    each.

    Their product is A² and their sum 1 + A² − B², A = exp E log c and B = exp E log(1 − c), of
    which Hölder's inequality says A + B ≤ 1.
    """
    a, b = jnp.exp(log), jnp.exp(log_rest)
    # the roots of the smaller of c and 1 − c, which have their digits
    flipped = a > b
    small, large = jnp.where(flipped, b, a), jnp.where(flipped, a, b)
    total = 1.0 + (small - large) * (small + large)
    root = jnp.sqrt(jnp.maximum((total - 2 * small) * (total + 2 * small), 0.0))
    high = 0.5 * (total + root)
    limits = jnp.finfo(high.dtype)
    roots = jnp.clip(jnp.stack([high, small * (small / high)]), limits.tiny, 1 - limits.eps)
    complements = jnp.maximum(1.0 - roots, limits.eps)
    return jnp.where(flipped, complements, roots), jnp.where(flipped, roots, complements)


class Beta(Form):
    """Q(c) = A log c + B log(1 − c) + constant, elementwise in a probability c.

    Q' = A/c − B/(1−c) at c and c/2 are two linear equations. Near the mode both terms are of one
    size, so that a rare count keeps its digits beside a large one; the engines read twice.
    """

    name = "beta"
    domain = domains.UNIT_INTERVAL
    keys = ("A", "B")
    mirrored = True

    def allows(self, steps: Steps):
        return True

    def points(self, c: jax.Array, event: int):
        edge = 1e-12 if c.dtype == jnp.float64 else 1e-6
        c = jnp.clip(c, edge, 1 - edge)
        return jnp.stack([c, c / 2])

    def read(self, points: jax.Array, gradients: jax.Array, event: int):
        c, half = points
        g, h = gradients
        determinant = 1 / (half * (1 - c)) - 1 / (c * (1 - half))
        a = (h / (1 - c) - g / (1 - half)) / determinant
        return {"A": a, "B": (h / c - g / half) / determinant}

    def value(self, natural: Natural, c: jax.Array, event: int):
        """Q(c) up to a constant."""
        return jnp.sum(xlogy(natural["A"], c) + xlog1py(natural["B"], -c))

    def mode(self, natural: Natural, fallback: jax.Array, event: int):
        a = jnp.maximum(natural["A"], 0.0)  # a rounding below zero, or a concentration below one
        return ratio(a, a + jnp.maximum(natural["B"], 0.0), fallback)

    def copied_posterior(self, natural: Natural, prior: Prior,
                         move: Callable[[jax.Array], jax.Array]):
        """The posterior of c where it is copied to: c ~ Beta(a, b)."""
        return {"a": move(natural["A"] + 1.0), "b": move(natural["B"] + 1.0)}

    def expectation(self, natural: Natural, prior: Prior):
        """E[log c] and E[log(1 − c)] of Beta(A + 1, B + 1)."""
        a, b = natural["A"] + 1.0, natural["B"] + 1.0
        return {"log": digamma(a) - digamma(a + b), "log_rest": digamma(b) - digamma(a + b)}

    def nodes(self, natural: Natural, prior: Prior):
        mean = self.expectation(natural, prior)
        return pair(mean["log"], mean["log_rest"])[0]

    def middle(self, natural: Natural, prior: Prior):
        a, b = natural["A"] + 1.0, natural["B"] + 1.0
        return a / (a + b)


BETA = Beta()


class BetaPrior(Prior):
    """Beta(a, b); where a or b is below 1 the density has no maximum inside and is maximised in the
    logit coordinate."""

    form = BETA
    concentrations = ("concentration1", "concentration0")
    coordinate = "logit coordinate, (n + a)/Σ(n + a) for counts n and concentrations a"

    def posterior(self, natural: Natural, event: int):
        return dist.Beta(natural["A"] + 1.0, natural["B"] + 1.0)

    def log_density(self, distribution: dist.Distribution, value: jax.Array, mode: bool):
        """The log density; with `mode`, in the coordinate in which it is maximised."""
        a, b = distribution.concentration1, distribution.concentration0
        shift = jnp.where(jnp.minimum(a, b) < 1, 0.0, 1.0) if mode else 1.0
        return xlogy(a - shift, value) + xlog1py(b - shift, -value) - log_beta(a, b)
