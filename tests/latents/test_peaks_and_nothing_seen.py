"""Latents of rows that show nothing, whole numbers as arguments, and integrands of two peaks."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample
from scipy import stats

import probml

nan = np.nan
LOAD = np.array([1.0, -0.5])


@probml.model
def loaded():
    load = sample("load", dist.Normal(0, 1).expand([2]).to_event(1))
    scale = sample("scale", dist.HalfNormal(1))
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.array([0.3, 0.7])))
        a = sample("a", dist.Normal(jnp.array([-1.0, 2.0])[z], 1))
        sample("x", dist.Normal(load * a[..., None], scale).to_event(1))


@probml.model
def squared(noise: float):
    level = sample("level", dist.Normal(0, 1))
    with probml.rows():
        u = sample("u", dist.Normal(level, 1))
        sample("y", dist.Normal(u**2, noise))


def test_rows_that_show_nothing_are_answered_by_the_prior_of_their_latents():
    fit = loaded().at({"load": LOAD, "scale": 0.5})
    mean = -0.3 + 1.4  # of a
    filled = fit.impute({"x": np.full((2, 2), nan)})
    np.testing.assert_allclose(filled["a"], [mean, mean], rtol=1e-12)
    np.testing.assert_allclose(filled["x"], mean * np.tile(LOAD, (2, 1)), rtol=1e-12)
    found = fit.conditional({"x": np.full((2, 2), nan)}, "a")
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found.variance, 1 + 0.3 * 0.7 * 3**2, rtol=1e-12)


def test_whole_numbers_are_locations_of_latents_like_others():
    @probml.model
    def factor():
        load = sample("load", dist.Normal(0, 1).expand([2]).to_event(1))
        scale = sample("scale", dist.HalfNormal(1))
        with probml.rows():
            u = sample("u", dist.Normal(0, 1))
            sample("x", dist.Normal(load * u[..., None], scale).to_event(1))

    x = np.array([[1.0, 2.0], [-1.0, 0.5], [0.3, -0.4], [2.0, 1.5]])
    fit = factor().fit({"x": x}, probml.EM())
    load, scale = fit.params["load"], fit.params["scale"]
    joint = stats.multivariate_normal(np.zeros(2), np.outer(load, load) + scale**2 * np.eye(2))
    np.testing.assert_allclose(fit.log_prob({"x": x}), joint.logpdf(x), rtol=1e-10)


def test_data_are_not_cut_to_whole_numbers_where_arguments_are():
    @probml.model
    def waits():
        with probml.rows():
            rate = sample("rate", dist.Gamma(3, 2))
            sample("t", dist.Exponential(rate))

    t = np.array([0.5, 1.7, 0.2])
    fit = waits().at({})
    np.testing.assert_allclose(fit.log_prob({"t": t}), np.log(3 * 2**3 / (2 + t) ** 4), rtol=1e-10)
    np.testing.assert_allclose(fit.impute({"t": t})["rate"], 4 / (2 + t), rtol=1e-6)


def test_a_density_of_two_peaks_is_integrated_over_both():
    noise = 0.01
    y = np.array([4.0, 0.5, -0.3, 1.0])  # at 0.01 narrower by far than the places first looked at
    grid = np.linspace(-6, 6, 400_001)
    weighed = stats.norm(0.3, 1).pdf(grid) * stats.norm(grid**2, noise).pdf(y[:, None])
    fit = squared(noise).at({"level": 0.3})
    got = fit.log_prob({"y": y})
    np.testing.assert_allclose(got, np.log(np.trapezoid(weighed, grid)), atol=5e-5)
    mean = (weighed * grid).sum(1) / weighed.sum(1)
    np.testing.assert_allclose(fit.impute({"y": y})["u"], mean, atol=5e-5)


@probml.model
def twofold(at: tuple, spread: tuple):
    with probml.rows():
        u = sample("u", dist.MixtureSameFamily(dist.Categorical(np.ones(2) / 2),
                                               dist.Normal(np.array(at), np.array(spread))))  # fmt: skip
        sample("y", dist.Normal(u, 2.0))


@pytest.mark.parametrize("at, spread", [
    ((0.0, 1.7), (0.7, 0.7)), ((-3.0, 2.0), (0.2, 0.6)), ((-12.0, 9.0), (0.5, 0.5))])  # fmt: skip
def test_a_density_of_two_peaks_near_or_far_is_integrated_over_both(at, spread):
    """Near ones run into one another, where a rule for each, shared, would miss 1e-4."""
    y, grid = np.array([-4.0, 0.3, 6.0]), np.linspace(-30, 30, 100_001)
    prior = np.mean([stats.norm.pdf(grid, m, s) for m, s in zip(at, spread, strict=True)], 0)
    joint = prior * stats.norm.pdf(grid, y[:, None], 2.0)
    fit = twofold(at=at, spread=spread).at({})
    whole = np.trapezoid(joint, grid)
    np.testing.assert_allclose(fit.log_prob({"y": y}), np.log(whole), atol=5e-6)
    given = fit.conditional({"y": y}, "u")
    np.testing.assert_allclose(given.mean, np.trapezoid(joint * grid, grid) / whole, atol=5e-5)
    below = np.trapezoid(joint * (grid < 1.0), grid) / whole
    np.testing.assert_allclose(given.cdf(jnp.ones(3)), below, atol=1e-2)


def test_draws_of_two_peaks_are_of_both():
    u = squared(0.1).at({"level": 0.3}).simulate(given={"y": np.full(4000, 4.0)})["u"]
    assert abs((u > 0).mean() - 0.7683) < 4 * 0.0067
    assert 0.0245 < u[u > 0].std() < 0.0256


def test_numbers_that_are_cut_where_a_parameter_says_are_integrated_by_quadrature():
    @probml.model
    def cut():
        at, low = sample("at", dist.Normal(0, 1)), sample("low", dist.Normal(0, 1))
        with probml.rows():
            z = sample("z", dist.TruncatedNormal(at, 0.8, low=low))
            sample("y", dist.Normal(z, 1.0))

    y, (at, low) = np.array([-1.0, 0.2, 2.0]), (0.3, -0.2)
    z = np.linspace(low, 12, 200_001)
    joint = stats.truncnorm.pdf(z, (low - at) / 0.8, np.inf, at, 0.8) * stats.norm.pdf(y[:, None], z)
    fit = cut().at({"at": at, "low": low})
    np.testing.assert_allclose(fit.log_prob({"y": y}), np.log(np.trapezoid(joint, z)), atol=1e-5)
    mean = np.trapezoid(joint * z, z) / np.trapezoid(joint, z)
    np.testing.assert_allclose(fit.conditional({"y": y}, "z").mean, mean, atol=1e-5)
