"""The beta form: objectives in a probability; conjugate prior Beta."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import xlog1py, xlogy


class Beta:
    """Q(c) = A log c + B log(1 − c) + constant, elementwise in a probability c.

    With α = A/c and β = B/(1−c): α − β = Q' and α/c + β/(1−c) = −Q''. At the mode α = β, so that a rare
    count keeps its digits beside a large one; the engines read once at ½ and once at the mode.
    """

    name = "beta"

    def reference(self, c, event):
        edge = 1e-12 if c.dtype == jnp.float64 else 1e-6
        return jnp.clip(c, edge, 1 - edge)

    def directions(self, c, event):
        return jnp.ones_like(c)[None]

    def read(self, c, gradient, curvature, event):
        beta = c * (1 - c) * (-curvature[0] - gradient / c)
        return {"A": jnp.maximum((beta + gradient) * c, 0.0), "B": jnp.maximum(beta * (1 - c), 0.0)}

    def mode(self, natural, fallback, event):
        a, total = natural["A"], natural["A"] + natural["B"]
        return jnp.where(total > 0, a / jnp.where(total > 0, total, 1.0), fallback)


class BetaPrior(NamedTuple):
    """Beta(a, b); where a or b is below 1 the density has no maximum inside and is maximised in the logit coordinate."""

    kind: str = "Beta"
    form: str = "beta"
    steps: tuple = ()

    def posterior(self, natural, event):
        return dist.Beta(natural["A"] + 1.0, natural["B"] + 1.0)

    def log_density(self, distribution, value, mode):
        """The log density; with `mode`, in the coordinate in which it is maximised."""
        a, b = distribution.concentration1, distribution.concentration0
        shift = jnp.where(jnp.minimum(a, b) < 1, 0.0, 1.0) if mode else 1.0
        normaliser = jax.scipy.special.betaln(a, b)
        return xlogy(a - shift, value) + xlog1py(b - shift, -value) - normaliser


PRIOR = BetaPrior()
