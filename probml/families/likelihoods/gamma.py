"""Gamma likelihood: positive amounts, T(x) = (log x, x)."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from probml.families import log_linear
from probml.families.forms.inverse_gamma import INVERSE_GAMMA, GammaPrior
from probml.families.likelihood import Arguments, Entry, Likelihood
from probml.families.location_scale import log_rate
from probml.numerics.logs import log_of


class Gamma(Likelihood):
    """log p(x) = a log rate − log Γ(a) + (a − 1) log x − rate x for x > 0, a the concentration,
    which has no closed form."""

    name = "Gamma"
    argument_event = {"concentration": 0, "rate": 0}
    terms = ("concentration",)
    canonical = {"rate": (INVERSE_GAMMA, (("power", -1.0),))}

    def natural(self, arguments: Arguments, centre: jax.Array | float):
        given = log_linear.floats(arguments)
        a, rate = given["concentration"], given["rate"]
        return {"eta": jnp.concatenate([a, -rate], -1),
                "constant": a * log_of(rate) - gammaln(a)}

    def log_density(self, natural: Arguments, x: jax.Array, seen: jax.Array | None):
        return log_linear.log_density(natural, x, seen, x > 0,
                                      lambda x: ([jnp.log(x), x], -jnp.log(x)))

    def direct(self, arguments: Arguments, x: jax.Array, seen: jax.Array | None):
        """Log densities of cells, each with arguments of its own."""
        given = log_linear.floats(arguments)
        inside = x > 0
        x = jnp.where(inside if seen is None else inside & seen, x, 1.0)
        log = log_linear.log_gamma(given["concentration"], given["rate"] * x,
                                   log_of(given["rate"]) + jnp.log(x)) - jnp.log(x)
        return log_linear.masked(jnp.where(inside, log, -jnp.inf), seen)

    def predictive(self, arguments: Arguments, x: jax.Array, seen: jax.Array | None):
        """rate ~ Gamma(s, b): compound gamma, Γ(s + a)/Γ(s) Γ(a) · b^s x^(a−1) / (b + x)^(s+a)."""
        a, s, b = (log_linear.floats(arguments)["concentration"], arguments["shape"],
                   arguments["scale"])
        log = (log_linear.rising(s, a) - gammaln(a) - s * jnp.log1p(x / b) - a * jnp.log(b + x)
               + (a - 1) * jnp.log(x))
        return log_linear.masked(log, seen)


def of_amounts(distribution: dist.Distribution, value: jax.Array):
    """log p of amounts, at 0 included."""
    arguments = {name: jnp.asarray(getattr(distribution, name)) for name in Gamma.argument_event}
    positive = jnp.where(value > 0, value, 1.0)
    return jnp.where(value > 0, Gamma().direct(arguments, positive, None),
                     GammaPrior().log_density(distribution, jnp.where(value > 0, 1.0, value),
                                              False))


ENTRIES = (Entry((dist.Gamma,), Gamma(), GammaPrior("concentration"), location_scale=log_rate,
                 log_prob=of_amounts),)
