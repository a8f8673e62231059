"""Poisson likelihood: counts, T(x) = x; a vector or table of counts is one product a chunk."""

import jax.numpy as jnp
import numpyro.distributions as dist

from probml.families import log_linear
from probml.families.entry import Entry
from probml.families.forms.inverse_gamma import INVERSE_GAMMA
from probml.families.likelihood import Likelihood
from probml.numerics.logs import FLOOR, log_of, unfloored

LARGE = 256.0  # a count from which Stirling's series has all digits after two terms


class Poisson(Likelihood):
    """log p(x) = x log rate − rate − log x!; a rate of 0 allows only x = 0."""

    name = "Poisson"
    event = 0
    argument_event = {"rate": 0}
    canonical = {"rate": (INVERSE_GAMMA, (("power", -1.0),))}
    mean_of = ("rate",)

    def distribution(self, arguments):
        return dist.Poisson(**arguments)

    def natural(self, arguments, centre):
        rate = log_linear.floats(arguments)["rate"]
        return {"eta": log_of(rate), "constant": -rate}

    def log_density(self, natural, x, seen):
        return log_linear.log_density(natural, x, seen, x >= 0,
                                      lambda x: ([x], -log_linear.log_factorial(x)))

    def direct(self, arguments, x, seen):
        """Log densities of cells, each with a rate of its own: large counts near their rate by what
        is between them, −x (ρ − log(1 + ρ)) − ½ log 2πx − …, ρ = (rate − x) / x; the terms of the
        kernel are of the size of x log x, and cancel."""
        rate = log_linear.floats(arguments)["rate"]
        inside = x >= 0
        real = inside if seen is None else inside & seen
        x = jnp.where(real, x, 1).astype(rate.dtype)
        near = (x >= LARGE) & (rate > x / 4) & (rate < 4 * x)
        much = jnp.where(near, x, LARGE)
        apart = (jnp.where(near, rate, LARGE) - much) / much
        close = -much * (
            apart - jnp.log1p(apart)
        ) - 0.5 * jnp.log(2 * jnp.pi * much) - 1 / (12 * much) + 1 / (360 * much**3)
        log = jnp.maximum(log_of(rate), FLOOR)
        plain = x * log - rate - log_linear.log_factorial(x)
        value = jnp.where(near, close, unfloored(plain))
        outside = -jnp.inf if seen is None else jnp.where(seen, -jnp.inf, 0.0)
        return jnp.where(real, value, outside)

    def predictive(self, arguments, x, seen):
        """rate ~ Gamma(a, b): negative binomial, Γ(a + x)/Γ(a) x! · (b/(b+1))^a (b+1)^−x."""
        a, b = arguments["shape"], arguments["scale"]
        return log_linear.masked(log_linear.rising(a, x) - log_linear.log_factorial(x) - a
                                 * jnp.log1p(1 / b) - x * jnp.log1p(b), seen)


ENTRIES = (Entry((dist.Poisson,), Poisson()),)
