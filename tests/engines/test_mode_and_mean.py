"""Claims of what is said of a mode that is not what is typical: held to integrals on a grid."""

import re

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy.special import digamma

import probml
from probml.engines.climbing.mode_and_mean import FAR, calm, of_coordinates, typical
from probml.engines.climbing.top import Top

RANDOM = np.random.default_rng(3)


def regression(n, p):
    """Coefficients and the logarithm of the noise of n rows, flat priors: height and slope of what
    is maximised; its mode; the mean and deviation of the logarithm, by a grid."""
    x, y = RANDOM.normal(size=(n, p)), RANDOM.normal(size=n)
    beta, rest = np.linalg.lstsq(x, y, rcond=None)[:2]

    def evaluate(u):
        off, variance = y - x @ u[:p], np.exp(2 * u[p])
        return (-n * u[p] - off @ off / (2 * variance),
                np.r_[-x.T @ off / variance, n - off @ off / variance])

    grid = np.linspace(-4, 6, 20001)
    log = -(n - p - 1) * grid - rest[0] / (2 * np.exp(2 * grid))  # the coefficients integrated out
    weight = np.exp(log - log.max())
    mean = (weight @ grid) / weight.sum()
    return (evaluate, np.r_[beta, 0.5 * np.log(rest[0] / n)], mean,
            np.sqrt(weight @ (grid - mean) ** 2 / weight.sum()))


def last(u):
    return u[-1], np.r_[np.zeros(u.size - 1), -1.0]


def ended(evaluate, mode, volume=lambda u: (0.0, 0.0 * u)):
    return of_coordinates(Top.of(evaluate, mode), volume)


@pytest.mark.parametrize(("n", "p"), [(8, 3), (12, 5), (20, 3), (60, 4), (300, 5)])
def test_the_mean_of_a_noise_is_told_that_few_rows_tell_beside_their_coefficients(n, p):
    evaluate, mode, mean, deviation = regression(n, p)
    found = typical(ended(evaluate, mode, last))
    assert found.peak < 0
    assert found.away[p] == pytest.approx((mean - mode[p]) / deviation, rel=0.25)
    assert np.abs(found.away[:p]).max() < 0.02  # of what is symmetric nothing


@pytest.mark.parametrize(("n", "p"), [(8, 3), (60, 4), (60, 8), (300, 5), (300, 10)])
def test_a_first_look_passes_nothing_of_which_a_word_is_worth(n, p):
    evaluate, mode, mean, deviation = regression(n, p)
    away = abs(mean - mode[p]) / deviation
    assert calm(ended(evaluate, mode, last)) == (away < 0.5)
    assert calm(ended(evaluate, mode, last)) <= (away < FAR)


def test_of_a_normal_the_mode_is_the_mean():
    precision = np.array([[2.0, 0.6], [0.6, 1e4]])
    found = typical(ended(lambda u: (-0.5 * u @ precision @ u, precision @ u), np.zeros(2)))
    assert np.abs(found.away).max() < 1e-3 and found.peak < 0


def test_a_peak_beside_which_there_is_more_is_told():
    def evaluate(u):  # a hundredth wide, on a hill of 1
        parts = np.array([0.5 - u @ u / 2e-4, -u @ u / 2.0])
        share = np.exp(parts - np.logaddexp(*parts))
        return np.logaddexp(*parts), (share @ [1e4, 1.0]) * u

    assert typical(ended(evaluate, np.zeros(2))).peak in (0, 1)


def test_where_there_is_no_curvature_nothing_is_said():
    assert typical(ended(lambda u: (0.0, 0.0 * u), np.zeros(2))) is None


@probml.model
def line(x):
    beta = sample("beta", dist.Normal(0.0, 10.0).expand([3]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(5.0))
    with probml.rows():
        sample("y", dist.StudentT(30.0, x @ beta, sigma))


def test_the_default_says_it_and_a_mode_that_is_asked_for_does_not():
    x, noise = RANDOM.normal(size=(400, 3)), RANDOM.normal(size=400)
    few = {"x": x[:9], "y": x[:9].sum(1) + noise[:9]}
    words = "a mode that is not what is typical.*the mean of 'sigma'.*NUTS"
    assert re.search(words, line().fit(few).status)
    assert "typical" not in line().fit(few, probml.MAP()).status
    assert "typical" not in line().fit({"x": x, "y": x.sum(1) + noise}).status


@probml.model
def precise(x):
    beta = sample("beta", dist.Normal(0.0, 100.0).expand([3]).to_event(1))
    tau = sample("tau", dist.Gamma(1e-3, 1e-3))
    with probml.rows():
        sample("y", dist.StudentT(300.0, x @ beta, tau**-0.5))


def test_a_precision_of_a_prior_that_is_maximised_in_its_logarithm_is_told_as_far_as_it_is():
    """A Gamma(0.001, 0.001) has its mode in the logarithm, whose volume then counts once."""
    x, y = RANDOM.normal(size=(7, 3)), RANDOM.normal(size=7)
    rest = np.linalg.lstsq(x, y, rcond=None)[1][0]
    there = np.exp(digamma(2.0) - np.log(rest / 2))  # Gamma((n − p) / 2, rest / 2)
    told = re.search(r"mean of 'tau' \(\S+ here, there about (\S+)\)",
                     precise().fit({"x": x, "y": y}).status)
    assert float(told[1]) == pytest.approx(there, rel=0.3)


@probml.model
def two_noises():
    weight = sample("weight", dist.Beta(2.0, 2.0))
    with plate("kinds", 2):
        middle = sample("middle", dist.Normal(0.0, 10.0))
        noise = sample("noise", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        kind = sample("kind", dist.Bernoulli(weight))
        sample("y", dist.Normal(middle[kind], noise[kind]))


def test_em_says_it_by_default_of_components_that_few_rows_tell():
    far, noise = 6.0 * (np.arange(400) % 2), np.random.default_rng(5).normal(size=400)
    few = {"y": (far + noise)[:12]}
    fit = two_noises().fit(few)
    assert fit.engine.startswith("EM")
    assert re.search("a mode that is not what is typical.*'noise'.*NUTS", fit.status)
    assert "typical" not in two_noises().fit(few, probml.EM()).status
    assert "typical" not in two_noises().fit({"y": far + noise}).status
