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
                       match="'z' .*covariance_matrix in row 7 is no covariance.*eigenvalue -1"):
        told().fit({"y": Y, "spread": spread})
    spread[7] = [[1.0, 0.5], [0.0, 1.0]]
    with pytest.raises(probml.ModelError, match="in row 7 .*is not symmetric"):
        told().fit({"y": Y, "spread": spread})


def test_a_negative_eigenvalue_that_the_model_states_is_refused_before_data_are_asked():
    with pytest.raises(probml.ModelError, match="'z' .*no covariance.*negative eigenvalue -1"):
        told(spread=BENT).fit({"y": Y})
    with pytest.raises(probml.ModelError, match="'own' .*no covariance.*negative eigenvalue -1"):
        grouped(spread=BENT).fit({"y": Y[:, 0], "group": np.arange(12) % 3})
