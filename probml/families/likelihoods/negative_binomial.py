"""Negative binomial counts, in all the ways to write them: no kernel, rows are evaluated one by
one."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.families.densities import count_draws
from probml.families.likelihood import Entry
from probml.families.log_linear import log_negative_binomial


def of_counts(distribution: dist.Distribution, value: jax.Array):
    """log p by mean and concentration, as the user gave them: 1/p − 1 of a p near 1 has lost its
    digits."""
    dtype = jnp.result_type(float)
    c = jnp.asarray(distribution.concentration, dtype)
    if isinstance(distribution, dist.NegativeBinomialLogits):
        logits = jnp.asarray(distribution.logits, dtype)
        log_mean = jnp.log(c) + logits
        mean = jnp.minimum(c * jnp.exp(logits), jnp.finfo(dtype).max / 4)
    elif isinstance(distribution, dist.NegativeBinomialProbs):
        mean, log_mean = c * distribution.probs / (1 - distribution.probs), None
    else:
        mean, log_mean = c / distribution.rate, None
    x = jnp.asarray(value, dtype)
    log = log_negative_binomial(jnp.maximum(x, 0.0), c, mean, log_mean)
    return jnp.where(x >= 0, log, -jnp.inf)


ENTRIES = (Entry((dist.GammaPoisson, dist.NegativeBinomial2, dist.NegativeBinomialProbs,
                  dist.NegativeBinomialLogits),
                 log_prob=of_counts, sharp=count_draws.of_gamma_poisson),)
