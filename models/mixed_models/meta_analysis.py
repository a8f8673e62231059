"""Random-effects meta-analysis: estimates of several studies, each with a known standard error.

    y_i ~ N(μ + x_i β, τ² + standard_error_i²)

τ is the standard deviation of the true effects of studies about their mean; 0 is the common-effect
(fixed-effect) model.

Source: DerSimonian & Laird (1986), "Meta-analysis in clinical trials"; Viechtbauer (2010),
"Conducting meta-analyses in R with the metafor package".
"""

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import sample

import probml
from probml.models.regression.generalized_linear import linear_predictor
from probml.models.summaries.former_names import INTERCEPT
from probml.models.summaries.regressions import regression_tables


@probml.model
def meta_analysis(x, standard_error, tau=None, weight_scale=None, bias_scale=None, tau_scale=1.0):
    """Estimates of studies. Inputs `x` (n, d), moderators, and `standard_error` (n,), site `y` in
    every row; sites `intercept` (), μ, `beta` (d,) and `tau`.

    Without moderators: meta_analysis(x=None).

    Args:
        tau: a number; None: a site `tau`, exponential with the mean tau_scale.
        weight_scale, bias_scale: prior standard deviations of β and μ; None: flat.
    """
    eta = linear_predictor(x, (), weight_scale, bias_scale)
    tau = sample("tau", dist.Exponential(1 / tau_scale)) if tau is None else tau
    with probml.rows():
        sample("y", dist.Normal(eta, jnp.sqrt(tau**2 + standard_error**2)))


meta_analysis.summarized(regression_tables)
meta_analysis.renames(INTERCEPT)
