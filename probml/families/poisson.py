"""Poisson likelihood: counts, T(x) = x; a vector or table of counts is one product a chunk."""

import jax.numpy as jnp
import numpyro.distributions as dist

from probml.families import linear
from probml.families.categorical import log_table


class Poisson:
    """log p(x) = x log rate − rate − log x!; a rate of 0 allows only x = 0."""

    types = (dist.Poisson,)
    name = "Poisson"
    event = 0
    argument_event = {"rate": 0}
    canonical = {"rate": ("inverse_gamma", (("power", -1.0),))}
    mean_of = ("rate",)

    def arguments(self, base):
        return {"rate": base.rate}

    def states(self, arguments):
        return None

    def distribution(self, arguments):
        return dist.Poisson(**arguments)

    def natural(self, arguments, centre):
        rate = linear.floats(arguments)["rate"]
        return {"eta": log_table(rate), "constant": -rate}

    def log_density(self, natural, x, seen):
        return linear.log_density(natural, x, seen, x >= 0, lambda x: ([x], -linear.log_factorial(x)))

    def predictive(self, arguments, x, seen):
        """rate ~ Gamma(a, b): negative binomial, Γ(a + x)/Γ(a) x! · (b/(b+1))^a (b+1)^−x."""
        a, b = arguments["shape"], arguments["scale"]
        return linear.masked(linear.rising(a, x) - linear.log_factorial(x) - a * jnp.log1p(1 / b) - x * jnp.log1p(b), seen)
