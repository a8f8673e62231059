"""Components at given parameters that are narrow beside their distance are asked in double."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy import stats
from scipy.special import logsumexp

import probml


@probml.model
def clusters(by: str, k: int = 2):
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 1e6))
        spread = sample("spread", dist.LogNormal(0.0, 1.0))
    scale = {"scale": spread, "variance": jnp.sqrt(spread), "precision": 1 / jnp.sqrt(spread)}[by]
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.array([0.3, 0.7])))
        sample("x", dist.Normal(mean[z], scale[z]))


SPREADS = {"scale": [0.5, 2.0], "variance": [0.25, 4.0], "precision": [4.0, 0.25]}


@pytest.mark.parametrize("by", SPREADS)
@pytest.mark.parametrize("apart", [1.0, 1e4, 1e6])
def test_clusters_apart_have_the_density_of_double_in_float32(by, apart):
    mean, scale = np.array([0.0, apart]), np.array([0.5, 2.0])
    x = np.array([0.1, -0.7, apart, apart + 1.5])
    right = logsumexp(stats.norm.logpdf(x[:, None], mean, scale) + np.log([0.3, 0.7]), axis=1)
    with jax.enable_x64(False):
        fit = clusters(by).at({"mean": mean, "spread": SPREADS[by]})
        np.testing.assert_allclose(fit.log_prob({"x": x}), right, atol=1e-3)
        np.testing.assert_allclose(fit.predict_proba({"x": x}, "z").sum(1), 1.0, atol=1e-5)
