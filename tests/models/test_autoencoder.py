"""An autoencoder is a function that is given its rows twice, and its linear one is principal
components."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.example_libraries import stax
from numpyro import plate, sample

import probml


def autoencoder(given, x):
    encode = numpyro.module("encoder", stax.Dense(2), (given.shape[-1],))
    decode = numpyro.module("decoder", stax.Dense(x.shape[-1]), (2,))
    with plate("n", len(x)):
        sample("x", dist.Normal(decode(encode(given)), 1.0).to_event(1), obs=x)


@pytest.mark.slow
def test_a_linear_autoencoder_leaves_what_principal_components_leave():
    """Baldi & Hornik (1989): no local minima, and the space of the components at the end."""
    random = np.random.default_rng(0)
    x = random.normal(size=(50, 4)) * [3.0, 2.0, 0.7, 0.5] + [1.0, 0.0, -2.0, 0.5]
    fit = probml.model(autoencoder)().fit({"given": x, "x": x}, probml.MAP())
    left = ((fit.predict({"given": x}, "x") - x) ** 2).sum()
    values = np.linalg.eigvalsh(np.cov(x.T, bias=True) * 50)
    np.testing.assert_allclose(left, values[:2].sum(), rtol=1e-3)
