"""Which likelihood, form and prior belong to a NumPyro distribution, found by its type."""

from typing import Any

import jax
import jax.numpy as jnp

from probml.families.forms import beta, dirichlet, gaussian, inverse_gamma, inverse_wishart
from probml.families.likelihoods import (
    bernoulli,
    binomial,
    categorical,
    exponential,
    gamma,
    geometric,
    lognormal,
    multinomial,
    multivariate_normal,
    normal,
    poisson,
    student_t,
)
from probml.families.likelihoods import beta as beta_likelihood
from probml.families.likelihoods import markov_chain as chains_family

LIKELIHOODS = (
    categorical.Categorical(),
    bernoulli.Bernoulli(),
    normal.Normal(),
    multivariate_normal.MultivariateNormal(),
    multivariate_normal.LowRank(),
    poisson.Poisson(),
    exponential.Exponential(),
    gamma.Gamma(),
    geometric.Geometric(),
    lognormal.LogNormal(),
    beta_likelihood.BetaLikelihood(),
    binomial.Binomial(),
    multinomial.Multinomial(),
    multinomial.DirichletMultinomial(),
    chains_family.Chain(),
    student_t.StudentT(),
)
FORMS = {
    form.name: form
    for form in (gaussian.Gaussian(), inverse_gamma.InverseGamma(),
                 inverse_wishart.InverseWishart(), beta.Beta(), dirichlet.Dirichlet())
}
PRIORS = (*gaussian.PRIORS, *inverse_gamma.PRIORS, *inverse_wishart.PRIORS, beta.PRIOR,
          dirichlet.PRIOR)


def likelihood(distribution: Any):
    """The kernel of a base distribution, or None: then NumPyro's own log_prob is used, row by
    row."""
    return next((family for family in LIKELIHOODS if type(distribution) in family.types), None)


def prior(kind: str):
    """The conjugate role of a distribution, by its class name, or None."""
    return next((entry for entry in PRIORS if entry.kind == kind), None)


def zero(family: Any, natural: dict) -> dict:
    """Natural parameters of 0, at which a density is its base measure; `held` leaves are none, but
    numbers that the base needs."""
    held = getattr(family, "held", ())
    return {name: leaf if name in held else jax.tree.map(jnp.zeros_like, leaf)
            for name, leaf in natural.items()}
