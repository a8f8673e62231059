"""Multinomial and DirichletMultinomial likelihoods: vectors of counts, such as the words of a
text."""


import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from probml.families import log_linear
from probml.families.densities import count_draws
from probml.families.forms.dirichlet import DIRICHLET
from probml.families.likelihood import Arguments, Entry, Likelihood
from probml.numerics.logs import floored, log_of, unfloored


def _orders(x: jax.Array):
    """log n! − Σ log x_i!: in how many orders a count can come about; n is the row's own total."""
    return log_linear.log_factorial(x.sum(-1)) - log_linear.log_factorial(x).sum(-1)


def _mask_missing(x: jax.Array, mask: jax.Array | None, dtype: object):
    """Counts with missing vectors set to 0, and which vectors are observed: (b, c)."""
    x = x.astype(dtype)
    return (x, None) if mask is None else (jnp.where(mask.all(-1, keepdims=True), x, 0.0),
                                           mask.all(-1))


class _Counts(Likelihood):
    """What both have in common: total_count is ancillary, since every row of counts has its own
    total."""

    event = 1
    ancillary = "total_count"


class Multinomial(_Counts):
    """log p(x) = Σ x_i log p_i + log n! − Σ log x_i!, n = Σ x_i, p = probs = softmax(logits); the
    Categorical of n draws."""

    name = "Multinomial"
    argument_event = {"probs": 1, "logits": 1}
    canonical = {"probs": (DIRICHLET, ())}

    def natural(self, arguments: Arguments, centre: jax.Array | float):
        (name, value), *_ = log_linear.floats(arguments).items()
        return {"log": jax.nn.log_softmax(value, -1) if name == "logits" else log_of(value)}

    def log_density(self, natural: Arguments, x: jax.Array, seen: jax.Array | None):
        table = natural["log"]
        x, is_complete = _mask_missing(x, seen, table.dtype)
        table = floored(table).reshape(len(table), -1)
        value = unfloored(x.reshape(len(x), -1) @ table.T)
        possible = (x >= 0).all((1, 2))[:, None]
        return jnp.where(possible, value, -jnp.inf) + _orders(jnp.maximum(x, 0.0)).sum(
            -1, keepdims=True
        )

    def predictive(self, arguments: Arguments, x: jax.Array, seen: jax.Array | None):
        """p ~ Dirichlet(a): Dirichlet-multinomial."""
        return DirichletMultinomial().predictive(arguments, x, seen)


class DirichletMultinomial(_Counts):
    """log p(x) = Σ log Γ(a_i + x_i)/Γ(a_i) − log Γ(Σa + n)/Γ(Σa) + log n! − Σ log x_i!, a the
    concentration.

    Its rows do not pool: no statistics of fixed size say what a chunk of them says of the
    concentration.
    """

    name = "DirichletMultinomial"
    argument_event = {"concentration": 1}
    rowwise = True

    def natural(self, arguments: Arguments, centre: jax.Array | float):
        return log_linear.floats(arguments)

    def log_density(self, natural: Arguments, x: jax.Array, seen: jax.Array | None):
        return self.predictive(natural, x[:, None], None if seen is None else seen[:, None]).sum(-1)

    def predictive(self, arguments: Arguments, x: jax.Array, seen: jax.Array | None):
        """The density itself, for any leading axes: x (..., c, k), concentration broadcast against
        it."""
        a = arguments["concentration"]
        x, _ = _mask_missing(x, seen, a.dtype)
        inside = (x >= 0).all(-1)
        x = jnp.maximum(x, 0.0)
        log = log_linear.log_dirichlet_multinomial(x, a)
        return jnp.where(inside, log, -jnp.inf)  # an unseen vector counts as no draw at all: 0


def of_draws(distribution: dist.Distribution, value: jax.Array):
    """log p of so many draws of each kind."""
    if isinstance(distribution, dist.MultinomialLogits):
        log_p = jax.nn.log_softmax(distribution.logits, -1)
    else:
        log_p = log_of(distribution.probs)
    return log_linear.log_multinomial(value, jnp.exp(log_p), log_p)


def of_clumped_draws(distribution: dist.Distribution, value: jax.Array):
    """log p of so many draws of each kind, whose probabilities are drawn anew for each vector."""
    return log_linear.log_dirichlet_multinomial(value, distribution.concentration)


ENTRIES = (Entry((dist.MultinomialProbs, dist.MultinomialLogits), Multinomial(), log_prob=of_draws,
                 sharp=count_draws.of_multinomial),
           Entry((dist.DirichletMultinomial,), DirichletMultinomial(), log_prob=of_clumped_draws,
                 sharp=count_draws.of_dirichlet_multinomial))
