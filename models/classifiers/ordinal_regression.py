"""Ordinal regression: categories in an order, by a latent number that thresholds cut: the
cumulative model, with the logit link that of proportional odds.

    P(y ≤ k | x) = F(threshold_k − x β),   thresholds ascending

F is the inverse of the link. There is no intercept: the thresholds are. A positive coefficient
makes later categories likelier, as in R's polr.

Source: McCullagh (1980), "Regression models for ordinal data"; Venables & Ripley (2002), section
7.3.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro import sample
from numpyro.distributions import constraints

import probml
from probml.errors import listed
from probml.models.regression.generalized_linear import LINKS, linear_predictor
from probml.models.summaries.regressions import ordinal_tables

ORDINAL_LINKS = ("logit", "probit", "cloglog")
LATENT = {  # link → the density of F, as a distribution
    "logit": dist.Logistic(), "probit": dist.Normal(),
    # of log E, E an Exponential(1) variable
    "cloglog": dist.TransformedDistribution(
        dist.Gumbel(), dist.transforms.AffineTransform(0.0, -1.0)),
}


@probml.model
def ordinal_regression(x, categories, link="logit", weight_scale=None, threshold_prior=False):
    """Regression of ordered categories. Input `x` (n, d), site `y` in every row, 0 … categories −
    1; sites `beta` (d,) and `thresholds` (categories − 1,), ascending.

    Args:
        link: "logit" (proportional odds), "probit" or "cloglog".
        weight_scale: prior standard deviations of β; None: flat.
        threshold_prior: the probabilities of the categories at x = 0 are uniform among all such, a
            Dirichlet(1, …, 1), as rstanarm's stan_polr has them; False: the thresholds are flat.

    Raises:
        ModelError: an unknown link.
    """
    if link not in ORDINAL_LINKS:
        raise probml.ModelError(f"link={link!r}: expected one of {listed(ORDINAL_LINKS)}")
    eta = linear_predictor(x, (), weight_scale, 0)
    thresholds = sample("thresholds", dist.ImproperUniform(constraints.ordered_vector, (),
                                                           (categories - 1,)))
    if threshold_prior:  # the density of ordered draws of F
        numpyro.factor("threshold_prior", LATENT[link].log_prob(thresholds).sum())
    cumulative = LINKS[link](thresholds - eta[..., None])
    zeros = jnp.zeros((*jnp.shape(eta), 1))
    probs = jnp.diff(jnp.concatenate([zeros, cumulative, zeros + 1], -1))
    with probml.rows():
        sample("y", dist.Categorical(jnp.maximum(probs, 1e-37)))


ordinal_regression.summarized(ordinal_tables)
