"""Robust regression: y | x ~ Student t(df, x β + b, σ), whose tails let outliers be.

EM takes t noise as normal noise whose precision differs from row to row; what is seen of a row says
how much it weighs,

    w_i = (df + 1) / (df + ((y_i − x_i β − b)/σ)²)

and the next β, b, σ² are those of least squares with these weights. Any function with a
dist.StudentT site inside rows() is treated so, mixtures of them and missing cells too.

Sources: Dempster, Laird & Rubin (1980), "Iteratively reweighted least squares for linear regression
when errors are normal/independent"; Lange, Little & Taylor (1989), "Robust statistical modeling
using the t distribution".
"""

import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import sample

import probml
from probml.models.regression.generalized_linear import linear_predictor
from probml.models.summaries.former_names import INTERCEPT
from probml.models.summaries.regressions import regression_tables


@probml.model
def robust_regression(x, df=4.0, weight_scale=10.0, bias_scale=1000.0, shape=0.5, rate=0.005):
    """A plane with heavy-tailed noise. Input `x` (n, d), site `y`; sites `beta` (d,), `intercept`
    (), `variance` (), σ², and `df` if unknown.

    Args:
        df: degrees of freedom; None: a site ~ Gamma(2, 0.1) (Juárez & Steel 2010).
        weight_scale, bias_scale: prior standard deviations in units of y, as in
            logistic_regression.
        shape, rate: of the InverseGamma prior of σ².
    """
    loc = linear_predictor(x, (), weight_scale, bias_scale)
    variance = sample("variance", dist.InverseGamma(shape, rate))
    if df is None:
        df = sample("df", dist.Gamma(2.0, 0.1))
    with probml.rows():
        sample("y", dist.StudentT(df, loc, jnp.sqrt(variance)))


robust_regression.summarized(regression_tables)
robust_regression.renames(INTERCEPT)
