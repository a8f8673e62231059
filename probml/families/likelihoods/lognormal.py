"""LogNormal likelihood: a Normal in log x."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.families import log_linear
from probml.families.likelihood import Arguments, Entry
from probml.families.likelihoods.normal import Normal
from probml.families.location_scale import univariate


class LogNormal(Normal):
    """log p(x) = −½((log x − loc)/scale)² − log scale − ½ log 2π − log x for x > 0."""

    name = "LogNormal"
    normal = scaling = False
    mean_of = None

    def log_density(self, natural: Arguments, x: jax.Array, seen: jax.Array | None):
        def statistics(x: jax.Array):
            log = jnp.log(x)
            return [log, log**2], -log

        return log_linear.log_density(natural, x, seen, x > 0, statistics)

    def predictive(self, arguments: Arguments, x: jax.Array, seen: jax.Array | None):
        return super().predictive(arguments, jnp.log(x), seen) - log_linear.masked(jnp.log(x), seen)

    def predictive_sum(self, arguments: Arguments, x: jax.Array, seen: jax.Array | None):
        log = jnp.log(x)
        found = super().predictive_sum(arguments, log, seen)
        return None if found is None else found - log_linear.masked(log, seen).sum(-1,
                                                                                   keepdims=True)


ENTRIES = (Entry((dist.LogNormal,), LogNormal(), location_scale=univariate),)
