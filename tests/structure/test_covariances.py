"""Covariances of normal vectors that are none are refused, with the site and the row."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml

BENT = np.array([[1.0, 2.0], [2.0, 1.0]])
Y = np.random.default_rng(0).normal(size=(12, 2))


@probml.model
def told(spread):
    noise = sample("noise", dist.HalfNormal(1.0))
    with probml.rows():
        z = sample("z", dist.MultivariateNormal(jnp.zeros(2), spread))
        sample("y", dist.Normal(z, noise).to_event(1))


@probml.model
def grouped(group, spread):
    scale, noise = sample("scale", dist.HalfNormal(1.0)), sample("noise", dist.HalfNormal(1.0))
    with plate("groups", 3):
        own = sample("own", dist.MultivariateNormal(jnp.zeros(2), spread))
    with probml.rows():
        sample("y", dist.Normal(scale * own[group, 0], noise))


def test_a_negative_eigenvalue_is_refused_in_its_row():
    spread = np.tile(np.eye(2), (12, 1, 1))
    spread[7] = BENT
    with pytest.raises(probml.ModelError,
                       match="'z' .*covariance_matrix in row 7 is not a covariance.*eigenvalue -1"):
        told().fit({"y": Y, "spread": spread})
    spread[7] = [[1.0, 0.5], [0.0, 1.0]]
    with pytest.raises(probml.ModelError, match="in row 7 .*is not symmetric"):
        told().fit({"y": Y, "spread": spread})


def test_a_negative_eigenvalue_that_the_model_states_is_refused_before_data_are_asked():
    with pytest.raises(probml.ModelError, match="'z' .*not a covariance.*negative eigenvalue -1"):
        told(spread=BENT).fit({"y": Y})
    with pytest.raises(probml.ModelError, match="'own' .*not a covariance.*negative eigenvalue -1"):
        grouped(spread=BENT).fit({"y": Y[:, 0], "group": np.arange(12) % 3})


def test_numbers_of_a_row_may_have_a_singular_covariance():
    """y = z₀ (1, 1) + noise: the same as of one number that both coordinates copy."""
    @probml.model
    def one():
        noise = sample("noise", dist.HalfNormal(1.0))
        with probml.rows():
            z = sample("z", dist.Normal(0.0, 1.0))
            sample("y", dist.Normal(z[..., None] * jnp.ones(2), noise).to_event(1))

    flat = told(spread=np.ones((2, 2))).fit({"y": Y}, probml.EM())
    copied = one().fit({"y": Y}, probml.EM())
    np.testing.assert_allclose(flat.params["noise"], copied.params["noise"], rtol=1e-4)
    assert flat.history[-1] == pytest.approx(copied.history[-1], abs=1e-5)
    found = flat.conditional({"y": Y}, "z").mean
    np.testing.assert_allclose(found[:, 0], found[:, 1], atol=1e-9)


def test_a_covariance_that_has_a_parameter_is_named_where_a_fit_cannot_start():
    @probml.model
    def scaled(group):
        scale, noise = sample("scale", dist.HalfNormal(1.0)), sample("noise", dist.HalfNormal(1.0))
        with plate("groups", 3):
            own = sample("own", dist.MultivariateNormal(jnp.zeros(2), scale**2 * BENT))
        with probml.rows():
            sample("y", dist.Normal(own[group, 0] + own[group, 1], noise))

    with pytest.raises(probml.ModelError, match="'own' .*not a covariance.*negative eigenvalue"):
        scaled().fit({"y": Y[:, 0], "group": np.arange(12) % 3})
