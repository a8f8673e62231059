"""The inverse-gamma form: objectives in a variance; conjugate priors InverseGamma (variance), Gamma and Exponential (precision)."""

from typing import NamedTuple

import jax.numpy as jnp
import numpyro.distributions as dist


class InverseGamma:
    """Q(c) = −A log c − B/c + constant, elementwise in a variance-like quantity c > 0.

    With s(c) = c Q'(c) = −A + B/c, the gradients at c and 2c give both; at the mode c = B/A neither suffers
    cancellation, which is why the engines read twice.
    """

    name = "inverse_gamma"
    domain = "positive"

    def points(self, c, event):
        return jnp.stack([c, 2 * c])

    def read(self, points, gradients, event):
        here, there = points * gradients
        return {"A": here - 2 * there, "B": 2 * points[0] * (here - there)}

    def value(self, natural, c, event):
        """Q(c) up to a constant."""
        return -jnp.sum(natural["A"] * jnp.log(c) + natural["B"] / c)

    def mode(self, natural, fallback, event):
        a, b = natural["A"], natural["B"]
        empty = a <= 0  # nothing was seen; a broken reading is NaN and must show
        return jnp.where(empty, fallback, b / jnp.where(empty, 1.0, a))


class InverseGammaPrior(NamedTuple):
    """InverseGamma(a, b) on c: log density −(a+1) log c − b/c."""

    kind: str = "InverseGamma"
    form: str = "inverse_gamma"
    steps: tuple = ()

    def shape(self, natural):
        """a of the InverseGamma(a, B) that c has."""
        return natural["A"] - 1.0

    def posterior(self, natural, event):
        return dist.InverseGamma(self.shape(natural), natural["B"])


class GammaPrior(NamedTuple):
    """Gamma(a, b) on a precision t = 1/c: log density (a−1) log t − b t. The mode is the one in t."""

    kind: str
    form: str = "inverse_gamma"
    steps: tuple = (("power", -1.0),)

    def shape(self, natural):
        """a of the InverseGamma(a, B) that c has."""
        return natural["A"] + 1.0

    def posterior(self, natural, event):
        return dist.Gamma(self.shape(natural), natural["B"])


PRIORS = (InverseGammaPrior(), GammaPrior("Gamma"), GammaPrior("Exponential"))
