"""Exponential likelihood: waiting times, T(x) = x."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.families import domains, log_linear
from probml.families.forms.inverse_gamma import INVERSE_GAMMA, GammaPrior
from probml.families.likelihood import Arguments, Entry, Likelihood
from probml.families.location_scale import log_rate
from probml.numerics.logs import log_of


class Exponential(Likelihood):
    """log p(x) = log rate − rate x for x >= 0: no time at all is a waiting time, though NumPyro
    draws none."""

    name = "Exponential"
    checked = domains.NONNEGATIVE
    argument_event = {"rate": 0}
    canonical = {"rate": (INVERSE_GAMMA, (("power", -1.0),))}

    def natural(self, arguments: Arguments, centre: jax.Array | float):
        rate = log_linear.floats(arguments)["rate"]
        return {"eta": -rate, "constant": log_of(rate)}

    def log_density(self, natural: Arguments, x: jax.Array, seen: jax.Array | None):
        return log_linear.log_density(natural, x, seen, x >= 0, lambda x: ([x], jnp.zeros_like(x)))

    def predictive(self, arguments: Arguments, x: jax.Array, seen: jax.Array | None):
        """rate ~ Gamma(a, b): Lomax, a b^a / (b + x)^(a+1)."""
        a, b = arguments["shape"], arguments["scale"]
        return log_linear.masked(jnp.log(a / b) - (a + 1) * jnp.log1p(x / b), seen)


ENTRIES = (Entry((dist.Exponential,), Exponential(), GammaPrior(), location_scale=log_rate),)
