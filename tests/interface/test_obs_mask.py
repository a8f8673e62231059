"""obs_mask of a pasted function: what is masked is a latent number, as NumPyro has it; where a value is
observed, its hidden twin is a draw of its distribution, and nothing depends on it."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml

X = np.array([[1.0, 1.5], [0.0, 0.0], [3.0, 3.5], [0.0, 0.0]])
THERE = np.array([True, False, True, False])
Y = np.array([1.0, 2.0, 3.0, 4.0])


def numbers(x, there):
    m = sample("m", dist.Normal(0.0, 1.0))
    with plate("n", x.shape[0]):
        sample("x", dist.Normal(m, 1.0), obs=x, obs_mask=there)


def vectors(x, there, y):
    m = sample("m", dist.Normal(0.0, 1.0))
    with plate("n", x.shape[0]):
        v = sample("v", dist.MultivariateNormal(jnp.stack([m, m]), jnp.eye(2)), obs=x, obs_mask=there)
        sample("y", dist.Normal(v.sum(-1), 1.0), obs=y)


@pytest.mark.parametrize("function, data, precision, total", [
    (numbers, {"x": X[:, 0]}, 3.0, 4.0),
    # a row without v: y ~ N(2 m, 3)
    (vectors, {"x": X, "y": Y}, 1.0 + 4.0 + 2 * 4 / 3, 9.0 + 2 / 3 * 6.0)])
def test_what_is_masked_is_integrated_out(function, data, precision, total):
    fit = probml.model(function)().fit({**data, "there": THERE})
    assert fit.converged and not fit.warnings
    m = fit.draws(4000, seed=0)["m"]
    np.testing.assert_allclose([m.mean(), m.std()], [total / precision, precision**-0.5], atol=0.03)
