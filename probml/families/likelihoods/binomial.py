"""Binomial likelihood: successes among total_count trials, T(x) = (x, n − x); n is known, and may
differ from row to row."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import lax

from probml.families import log_linear
from probml.families.entry import Entry
from probml.families.forms.beta import BETA
from probml.families.likelihood import Likelihood
from probml.families.log_linear import log_factorial
from probml.numerics.logs import log_of


def _choose(n, x):
    return log_factorial(n) - log_factorial(x) - log_factorial(n - x)


def _times(count, log):
    """count · log with 0 · (−∞) = 0, also in the gradient."""
    some = count > 0
    return jnp.where(some, count * jnp.where(some, log, 0.0), 0.0)


class Binomial(Likelihood):
    """log p(x) = x log p + (n − x) log(1 − p) + log C(n, x), p = probs = logistic(logits), n =
    total_count."""

    name = "Binomial"
    event = 0
    argument_event = {"probs": 0, "logits": 0, "total_count": 0}
    canonical = {"probs": (BETA, ()), "logits": (BETA, (("logistic", 1.0),))}
    limit = "total_count"  # the largest value
    mean_of = ("probs",)
    held = ("total",)

    def arguments(self, base):
        name = "probs" if isinstance(base, dist.BinomialProbs) else "logits"
        return {name: getattr(base, name), "total_count": base.total_count}

    def distribution(self, arguments):
        return dist.Binomial(**arguments)

    def natural(self, arguments, centre):
        given = log_linear.floats(arguments)
        n = given["total_count"]
        if "logits" in given:
            return {"hit": jax.nn.log_sigmoid(given["logits"]),
                    "miss": jax.nn.log_sigmoid(-given["logits"]), "total": n}
        return {"hit": log_of(given["probs"]), "miss": log_of(1 - given["probs"]), "total": n}

    def log_density(self, natural, x, seen):
        hit, miss, n = natural["hit"], natural["miss"], lax.stop_gradient(natural["total"])
        # (b, 1, c) against (p, c): n may differ between states, so no product
        x = x.astype(hit.dtype)[:, None]
        inside = (x >= 0) & (x <= n)
        x = jnp.where(inside, x, 0.0)
        log = jnp.where(inside, _times(x, hit) + _times(n - x, miss) + _choose(n, x), -jnp.inf)
        return log_linear.masked(log, None if seen is None else seen[:, None]).sum(-1)

    def predictive(self, arguments, x, seen):
        """p ~ Beta(a, b): beta-binomial, C(n, x) B(a + x, b + n − x) / B(a, b)."""
        n = log_linear.floats(arguments)["total_count"]
        return log_linear.masked(_beta_binomial(arguments["a"], arguments["b"], n, x), seen)


class LargeConcentrations(dist.BetaBinomial):
    """NumPyro's, whose density keeps its digits with large concentrations: differences of log Γ
    lose a nat to rounding at 10^6 in float32."""

    def log_prob(self, value):
        return _beta_binomial(*(jnp.asarray(part, jnp.result_type(float)) for part in (
            self.concentration1, self.concentration0, self.total_count)), value)


def _beta_binomial(a, b, n, x):
    inside = (x >= 0) & (x <= n)
    x = jnp.where(inside, x, 0.0)
    log = _choose(
        n, x
    ) + log_linear.rising(a, x) + log_linear.rising(b, n - x) - log_linear.rising(a + b, n)
    return jnp.where(inside, log, -jnp.inf)


def sharp(distribution):
    return LargeConcentrations(distribution.concentration1, distribution.concentration0,
                               distribution.total_count)


ENTRIES = (Entry((dist.BinomialProbs, dist.BinomialLogits), Binomial()),
           Entry((dist.BetaBinomial,), sharp=sharp))
