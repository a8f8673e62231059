"""The distribution of a number of a row that is missing has the mean, the variance and the median of its family,
in single precision."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from numpyro import sample

import probml

# a family → the same by SciPy
FAMILIES = {
    "lognormal": (lambda: dist.LogNormal(0.1, 0.5), st.lognorm(0.5, scale=np.exp(0.1))),
    "gamma": (lambda: dist.Gamma(2.0, 3.0), st.gamma(2, scale=1 / 3)),
    "beta": (lambda: dist.Beta(2.0, 3.0), st.beta(2, 3)),
    "exponential": (lambda: dist.Exponential(2.0), st.expon(scale=0.5)),
    "half-normal": (lambda: dist.HalfNormal(2.0), st.halfnorm(scale=2)),
    "student": (lambda: dist.StudentT(8.0, 0.0, 1.0), st.t(8)),
    "weibull": (lambda: dist.Weibull(1.0, 2.0), st.weibull_min(2)),
    "inverse gamma": (lambda: dist.InverseGamma(8.0, 3.0), st.invgamma(8, scale=3)),
    "truncated below": (lambda: dist.TruncatedNormal(1.0, 2.0, low=0.0),
                        st.truncnorm(-0.5, np.inf, 1, 2)),
    "truncated above": (lambda: dist.TruncatedNormal(1.0, 2.0, high=0.0),
                        st.truncnorm(-np.inf, -0.5, 1, 2)),
    "between": (lambda: dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=2.0), st.truncnorm(-1, 2)),
    "gumbel": (lambda: dist.Gumbel(0.0, 1.0), st.gumbel_r()),
    "logistic": (lambda: dist.Logistic(0.0, 1.0), st.logistic()),
    "pareto": (lambda: dist.Pareto(1.0, 6.0), st.pareto(6)),
    "uniform": (lambda: dist.Uniform(0.0, 2.0), st.uniform(0, 2)),
}


@pytest.mark.parametrize("name", [name if name in ("lognormal", "truncated below") else
                                  pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES])
def test_conditional_has_the_moments_of_its_family(name):
    make, right = FAMILIES[name]

    @probml.model
    def one(x):
        with probml.rows():
            sample("y", make())
            sample("w", dist.Normal(x, 1.0))

    with jax.enable_x64(False):
        found = one().at({}).conditional({"x": [0.0], "w": [0.3]}, "y")
        got = [float(v[0]) for v in (found.mean, found.variance, found.icdf(jnp.array([0.5])))]
    np.testing.assert_allclose(got, [right.mean(), right.var(), right.median()], rtol=4e-3,
                               atol=1e-3)
