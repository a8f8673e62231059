"""float32 is the default: what fails in it for want of digits is done again in double, and says so."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml


@probml.model
def two_clusters():
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    with plate("clusters", 2):
        mean = sample("mean", dist.Normal(0.0, 10.0))
        scale = sample("scale", dist.LogNormal(-10.0, 5.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("y", dist.Normal(mean[z], scale[z]))


def narrow():
    """Two clusters whose width is a hundred-thousandth of what parts them: their squares have no digit left in float32."""
    rng = np.random.default_rng(0)
    return {"y": np.concatenate([rng.normal(0.3, 1e-5, 20), rng.normal(1.3, 1e-5, 30)])}


@pytest.fixture
def single():
    with jax.enable_x64(False):
        yield


def test_clusters_too_narrow_for_float32_are_fitted_in_double_and_it_is_said(single, tmp_path):
    data = narrow()
    fit = two_clusters().fit(data, probml.EM(restarts=4))
    assert fit.converged and "in double, since in float32 it lost" in fit.status
    with jax.enable_x64(True):
        right = two_clusters().fit(data, probml.EM(restarts=4))
        logs = right.log_prob(data)
    np.testing.assert_allclose(fit.params["scale"], right.params["scale"], rtol=1e-6)
    np.testing.assert_allclose(fit.log_prob(data), logs, atol=1e-4)  # asked in double as well
    fit.save(tmp_path / "fit")
    np.testing.assert_array_equal(probml.load(tmp_path / "fit", two_clusters()).log_prob(data), fit.log_prob(data))


def test_what_fits_in_float32_stays_in_float32(single):
    data = {"y": np.random.default_rng(0).normal(size=50) + np.repeat([0.0, 6.0], 25)}
    fit = two_clusters().fit(data, probml.EM(restarts=4))
    assert fit.converged and "double" not in fit.status
    assert fit.params["mean"].dtype == np.float32
