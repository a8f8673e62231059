"""Rows as their statistics keep the digits of the rows."""

import jax
import numpy as np
import numpyro.distributions as dist
from numpyro import sample

import probml

N = 20_000
RANDOM = np.random.default_rng(3)


@probml.model
def heights():
    variance = sample("variance", dist.InverseGamma(1.0, 1.0))
    mean = sample("mean", dist.Normal(0, (variance / 0.01) ** 0.5))
    with probml.rows():
        sample("y", dist.Normal(mean, variance**0.5))


def test_sorted_columns_far_from_zero_keep_their_digits():
    y = 1e8 + np.sort(RANDOM.normal(size=N))
    fit = heights().fit({"y": y}, probml.Exact())
    share = 0.5 * 0.01 * N / (N + 0.01) * y.mean() ** 2
    variance = (1 + 0.5 * N * y.var() + share) / (1 + N / 2 - 1)
    np.testing.assert_allclose(fit.params["variance"], variance, rtol=1e-7)
    np.testing.assert_allclose(fit.params["mean"], N * y.mean() / (N + 0.01), rtol=1e-14)


def test_float32_has_the_means_and_variances_of_double():
    y = (3 + 2 * RANDOM.normal(size=N)).astype(np.float32)
    with jax.enable_x64(False):
        fit = heights().fit({"y": y}, probml.Exact())
    exact = y.astype(float)
    np.testing.assert_allclose(fit.params["mean"], exact.mean(), rtol=1e-5)
    np.testing.assert_allclose(fit.params["variance"], exact.var(), rtol=1e-3)
