"""Geometric likelihood: failures before the first success, 0, 1, ...; T(x) = x."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.families import log_linear
from probml.families.forms.beta import BETA
from probml.families.likelihood import Arguments, Entry, Likelihood
from probml.numerics.logs import log_of


class Geometric(Likelihood):
    """log p(x) = x log(1 − p) + log p, p = probs = logistic(logits)."""

    name = "Geometric"
    argument_event = {"probs": 0, "logits": 0}
    canonical = {"probs": (BETA, ()), "logits": (BETA, (("logistic", 1.0),))}

    def natural(self, arguments: Arguments, centre: jax.Array | float):
        (name, value), *_ = log_linear.floats(arguments).items()
        if name == "logits":
            return {"eta": jax.nn.log_sigmoid(-value), "constant": jax.nn.log_sigmoid(value)}
        return {"eta": log_of(1 - value), "constant": log_of(value)}

    def log_density(self, natural: Arguments, x: jax.Array, seen: jax.Array | None):
        return log_linear.log_density(natural, x, seen, x >= 0, lambda x: ([x], jnp.zeros_like(x)))

    def predictive(self, arguments: Arguments, x: jax.Array, seen: jax.Array | None):
        """p ~ Beta(a, b): beta-geometric, B(a + 1, b + x) / B(a, b)."""
        a, b = arguments["a"], arguments["b"]
        return log_linear.masked(
            jnp.log(a) + log_linear.rising(b, x) - log_linear.rising(a + b, x + 1), seen
        )


ENTRIES = (Entry((dist.GeometricProbs, dist.GeometricLogits), Geometric()),)
