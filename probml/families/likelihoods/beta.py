"""Beta likelihood: shares between 0 and 1, T(x) = (log x, log(1 − x)); no closed form, but the
statistics pool."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.families import domains, log_linear
from probml.families.forms.beta import BetaPrior
from probml.families.likelihood import Arguments, Entry, Likelihood


class BetaLikelihood(Likelihood):
    """log p(x) = (a − 1) log x + (b − 1) log(1 − x) − log B(a, b), a = concentration1, b =
    concentration0, for 0 < x < 1."""

    name = "Beta"
    argument_event = {"concentration1": 0, "concentration0": 0}
    terms = ("concentration1", "concentration0")
    checked = domains.OPEN_UNIT_INTERVAL

    def natural(self, arguments: Arguments, centre: jax.Array | float):
        given = log_linear.floats(arguments)
        a, b = given["concentration1"], given["concentration0"]
        return {"eta": jnp.concatenate([a, b], -1), "constant": -log_linear.log_beta(a, b)}

    def log_density(self, natural: Arguments, x: jax.Array, seen: jax.Array | None):
        def statistics(x: jax.Array):
            log_x, log_rest = jnp.log(x), jnp.log1p(-x)
            return [log_x, log_rest], -log_x - log_rest

        return log_linear.log_density(natural, x, seen, (x > 0) & (x < 1), statistics,
                                      safe=0.5)

    def direct(self, arguments: Arguments, x: jax.Array, seen: jax.Array | None):
        """Log densities of cells, each with arguments of its own."""
        given = log_linear.floats(arguments)
        inside = (x > 0) & (x < 1)
        x = jnp.where(inside if seen is None else inside & seen, x, 0.5)
        a = jnp.stack([given["concentration1"], given["concentration0"]], -1)
        log = log_linear.log_dirichlet(a, jnp.stack([x, 1 - x], -1)) - jnp.log(x) - jnp.log1p(-x)
        return log_linear.masked(jnp.where(inside, log, -jnp.inf), seen)


ENTRIES = (Entry((dist.Beta,), BetaLikelihood(), BetaPrior()),)
