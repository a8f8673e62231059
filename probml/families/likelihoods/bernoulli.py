"""Bernoulli likelihood: a Categorical of two states, given by the probability or the logit of 1."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.families.forms.beta import BETA
from probml.families.likelihood import Arguments, Entry, Likelihood
from probml.families.likelihoods.categorical import look_up
from probml.numerics.logs import log_of


class Bernoulli(Likelihood):
    """p(x = 1) = probs = logistic(logits)."""

    name = "Bernoulli"
    nominal = indicator = True
    argument_event = {"probs": 0, "logits": 0}
    canonical = {"probs": (BETA, ()), "logits": (BETA, (("logistic", 1.0),))}

    def states(self, arguments: Arguments):
        return 2

    def probabilities(self, arguments: Arguments):
        """(..., c, 2) table of state probabilities."""
        p = arguments["probs"] if "probs" in arguments else jax.nn.sigmoid(arguments["logits"])
        return jnp.stack([1 - p, p], -1)

    def natural(self, arguments: Arguments, centre: jax.Array | float):
        if "logits" in arguments:
            logits = arguments["logits"]
            # one choice throughout: at 0 the slopes of min and | | would not fit together
            low = logits < 0
            rest = jnp.log1p(jnp.exp(jnp.where(low, logits, -logits)))  # that both logs share
            return {"log": jnp.stack([jnp.where(low, 0.0, -logits) - rest,
                                      jnp.where(low, logits, 0.0) - rest], -1)}
        p = arguments["probs"]
        return {"log": jnp.stack([log_of(1 - p), log_of(p)], -1)}

    def log_density(self, natural: Arguments, x: jax.Array, seen: jax.Array | None):
        return look_up(natural["log"], x, seen)


ENTRIES = (Entry((dist.BernoulliProbs, dist.BernoulliLogits), Bernoulli()),)
