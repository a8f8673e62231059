"""Beta likelihood: shares between 0 and 1, T(x) = (log x, log(1 − x)); no closed form, but the
statistics pool."""

import jax.numpy as jnp
import numpyro.distributions as dist

from probml.families import log_linear


class BetaLikelihood:
    """log p(x) = (a − 1) log x + (b − 1) log(1 − x) − log B(a, b), a = concentration1, b =
    concentration0, for 0 < x < 1."""

    types = (dist.Beta,)
    name = "Beta"
    event = 0
    argument_event = {"concentration1": 0, "concentration0": 0}
    canonical = {}
    words = "between 0 and 1, ends excluded"

    def arguments(self, base):
        return {"concentration1": base.concentration1, "concentration0": base.concentration0}

    def states(self, arguments):
        return None

    def distribution(self, arguments):
        return dist.Beta(**arguments)

    def natural(self, arguments, centre):
        given = log_linear.floats(arguments)
        a, b = given["concentration1"], given["concentration0"]
        return {"eta": jnp.concatenate([a, b], -1), "constant": -log_linear.log_beta(a, b)}

    def inside(self, x):
        """Where the density is finite for all concentrations."""
        return (x > 0) & (x < 1)

    def log_density(self, natural, x, seen):
        def statistics(x):
            one, other = jnp.log(x), jnp.log1p(-x)
            return [one, other], -one - other

        return log_linear.log_density(natural, x, seen, self.inside(x), statistics, harmless=0.5)
