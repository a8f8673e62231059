"""In float32 any density is asked at given parameters, also one of which nothing is known but NumPyro's own."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml


@pytest.mark.parametrize("make, y", [
    (lambda: dist.Laplace(0.0, 1.0), 0.5), (lambda: dist.Dirichlet(np.ones(2)), [0.25, 0.75])], ids=("laplace", "dirichlet"))
def test_a_density_without_a_kernel_is_asked_in_float32(make, y):
    def lone():
        sample("m", dist.Normal(0.0, 1.0))
        with probml.rows():
            sample("y", make())

    with jax.enable_x64(False):
        found = probml.model(lone)().at({"m": 0.0}).log_prob({"y": np.array([y, y])})
        np.testing.assert_allclose(found, np.full(2, make().log_prob(np.asarray(y))), rtol=1e-5, atol=1e-6)
