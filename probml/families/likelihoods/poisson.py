"""Poisson likelihood: counts, T(x) = x; a vector or table of counts is one product a chunk."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.families import log_linear
from probml.families.densities import count_draws
from probml.families.forms.inverse_gamma import INVERSE_GAMMA
from probml.families.likelihood import Arguments, Entry, Likelihood
from probml.numerics.logs import log_of


class Poisson(Likelihood):
    """log p(x) = x log rate − rate − log x!; a rate of 0 allows only x = 0."""

    name = "Poisson"
    argument_event = {"rate": 0}
    canonical = {"rate": (INVERSE_GAMMA, (("power", -1.0),))}
    mean_of = ("rate",)

    def natural(self, arguments: Arguments, centre: jax.Array | float):
        rate = log_linear.floats(arguments)["rate"]
        return {"eta": log_of(rate), "constant": -rate}

    def log_density(self, natural: Arguments, x: jax.Array, seen: jax.Array | None):
        return log_linear.log_density(natural, x, seen, x >= 0,
                                      lambda x: ([x], -log_linear.log_factorial(x)))

    def direct(self, arguments: Arguments, x: jax.Array, seen: jax.Array | None):
        """Log densities of cells, each with a rate of its own: the terms of the kernel are of the
        size of x log x, and cancel."""
        rate = log_linear.floats(arguments)["rate"]
        log = log_linear.log_poisson(jnp.maximum(x, 0).astype(rate.dtype), rate)
        return log_linear.masked(jnp.where(x >= 0, log, -jnp.inf), seen)

    def predictive(self, arguments: Arguments, x: jax.Array, seen: jax.Array | None):
        """rate ~ Gamma(a, b): negative binomial, Γ(a + x)/Γ(a) x! · (b/(b+1))^a (b+1)^−x."""
        a, b = arguments["shape"], arguments["scale"]
        log = log_linear.log_negative_binomial(jnp.asarray(x, a.dtype), a, a / b)
        return log_linear.masked(log, seen)


ENTRIES = (Entry((dist.Poisson,), Poisson(), log_prob=lambda own, value: Poisson().direct(
    {"rate": jnp.asarray(own.rate)}, jnp.asarray(value), None),
    sharp=count_draws.of_poisson),)
