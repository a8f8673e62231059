"""Whole numbers have no end at 2³¹: what is computed of them, and counted, is right in float32
too."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample
from scipy import stats

import probml


@probml.model
def curve(x, power: int = 2, from_: float = 0.0, unit: float = 1.0):
    b = sample("b", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("y", dist.Normal(b * ((x - from_) / unit) ** power, 1.0))


@probml.model
def counts():
    rate = sample("rate", dist.Gamma(1.0, 1e-9))
    with probml.rows():
        sample("n", dist.Poisson(rate))


@probml.model
def shifted(x):
    b = sample("b", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("y", dist.Normal(b * (x >> 1), 1.0))


@pytest.fixture
def single():
    with jax.enable_x64(False):
        yield


MILLISECONDS = 1_700_000_000_000 + np.array([1, 4, 9, 5]) * 10**8


@pytest.mark.parametrize("x, settings", [
    (np.array([1, 90_000, 50_000, 70_000]), {"unit": 1e4}),  # squares beyond 2³¹
    (np.array([1, 90, 100, 127], np.int8), {"unit": 10.0}),  # and beyond 127
    (np.array([3, 200, 120, 255], np.uint8), {"from_": 128, "unit": 50.0}),  # below 0
    (MILLISECONDS, {"from_": 1.7e12, "unit": 1e9, "power": 1}),
])  # fmt: skip
def test_whole_numbers_that_index_nothing_do_not_wrap_around(single, x, settings):
    u = ((x.astype(float) - settings.get("from_", 0)) / settings["unit"]) ** settings.get("power",
                                                                                          2)
    y = 2 * u + [0.3, -0.2, 0.1, 0.4]
    fit = curve(**settings).fit({"x": x, "y": y})
    np.testing.assert_allclose(fit.params["b"], (u @ y) / (0.01 + u @ u), rtol=1e-4)
    np.testing.assert_allclose(fit.predict({"x": x}, "y"), fit.params["b"] * u, rtol=1e-3,
                               atol=1e-3)


def test_a_function_that_wants_whole_numbers_has_them(single):
    x, y = np.array([1, 4, 9]), np.array([0.5, 2.0, 4.0])
    fit = shifted().fit({"x": x, "y": y})
    np.testing.assert_allclose(fit.params["b"], ((x >> 1) @ y) / (0.01 + (x >> 1) @ (x >> 1)),
                               rtol=1e-5)
    with pytest.raises(probml.DataError, match=r"'x' must be in -2147483648 … 2147483647, got "
                                               r"4294967296 in row 1.*as an integer"):
        shifted().fit({"x": np.array([1, 2**32, 3]), "y": y})


@pytest.mark.parametrize("middle", [200_000, 3_000_000_000])
def test_large_counts_have_the_density_of_double(single, middle):
    n = middle + np.array([0, 1000, -500])
    right = stats.poisson.logpmf(n, middle)
    np.testing.assert_allclose(counts().at({"rate": middle}).log_prob({"n": n}), right, atol=1e-4)
    fit = counts().fit({"n": n})
    assert "'n' has values of up to" in fit.status
    np.testing.assert_allclose(fit.params["rate"], (1 + n.sum()) / (3 + 1e-9), rtol=1e-12)


def test_a_fit_at_known_parameters_is_asked_in_double_of_far_data(single):
    @probml.model
    def one():
        mean = sample("mean", dist.Normal(0.0, 1.0))
        with probml.rows():
            sample("x", dist.Normal(mean, 1.0))

    x = 1e6 + np.array([0.1, 0.7, -0.4])
    got = one().at({"mean": 1e6}).log_prob({"x": x})
    np.testing.assert_allclose(got, stats.norm.logpdf(x, 1e6, 1.0), atol=1e-9)
