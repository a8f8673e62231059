"""Claims of the measure of a posterior about its mode: held to integrals on a grid."""

import re

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.engines.climbing.importance import FAR, calm, measured, of_coordinates
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
    found = measured(ended(evaluate, mode, last))
    assert found.normal or p == 5  # of 12 rows k is about its limit
    assert found.away[p] == pytest.approx((mean - mode[p]) / deviation, rel=0.1, abs=0.1)
    assert np.abs(found.away[:p]).max() < 0.25  # of what is symmetric nothing


@pytest.mark.parametrize(("n", "p"), [(8, 3), (60, 4), (60, 8), (300, 5), (300, 10)])
def test_a_first_look_passes_nothing_of_which_a_word_is_worth(n, p):
    evaluate, mode, mean, deviation = regression(n, p)
    away = abs(mean - mode[p]) / deviation
    assert calm(ended(evaluate, mode, last)) == (away < 0.5)
    assert calm(ended(evaluate, mode, last)) <= (away < FAR)


def test_of_a_normal_the_mode_is_the_mean():
    precision = np.array([[2.0, 0.6], [0.6, 1e4]])
    found = measured(ended(lambda u: (-0.5 * u @ precision @ u, precision @ u), np.zeros(2)))
    assert np.abs(found.away).max() < 1e-3 and found.normal


def test_a_peak_beside_which_there_is_more_is_told():
    def evaluate(u):  # a hundredth wide, on a hill of 1
        parts = np.array([0.5 - u @ u / 2e-4, -u @ u / 2.0])
        share = np.exp(parts - np.logaddexp(*parts))
        return np.logaddexp(*parts), (share @ [1e4, 1.0]) * u

    assert not measured(ended(evaluate, np.zeros(2))).normal


def test_where_there_is_no_curvature_the_mode_is_no_answer():
    assert measured(ended(lambda u: (0.0, 0.0 * u), np.zeros(2))).k == np.inf


def funnel(d):
    """A spread's logarithm and d effects about 0, joint: no mode is near the mass."""
    def evaluate(u):
        v, z = u[0], u[1:]
        square = z @ z * np.exp(-2 * v)
        return (-0.5 * v**2 - 0.5 * square - d * v,
                np.r_[v - square + d, z * np.exp(-2 * v)])

    return evaluate, np.r_[-float(d), np.zeros(d)]


@pytest.mark.parametrize("d", [3, 10])
def test_the_joint_mode_of_effects_and_their_spread_does_not_pass(d):
    assert not measured(ended(*funnel(d))).normal


@pytest.mark.parametrize(("degrees", "heavy"), [(1.0, True), (1.5, True), (8.0, False),
                                                (30.0, False)])
def test_a_tail_without_a_variance_is_seen_beyond_all_draws(degrees, heavy):
    def evaluate(u):
        t = u[0] ** 2 / degrees
        return (-0.5 * (degrees + 1) * np.log1p(t) - 0.5 * u[1] ** 2,
                np.r_[(degrees + 1) * u[0] / degrees / (1 + t), u[1]])

    found = measured(ended(evaluate, np.zeros(2)))
    assert found.normal is not heavy
    assert found.heavy == (0 if heavy else -1)


@pytest.mark.parametrize("d", [1, 5, 40, 200])
def test_a_normal_of_any_size_passes(d):
    assert measured(ended(lambda u: (-0.5 * u @ u, u), np.zeros(d))).k < 0


@probml.model
def line(x):
    beta = sample("beta", dist.Normal(0.0, 10.0).expand([3]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(5.0))
    with probml.rows():
        sample("y", dist.StudentT(30.0, x @ beta, sigma))


def test_the_default_says_it_and_a_mode_that_is_asked_for_does_not():
    x, noise = RANDOM.normal(size=(400, 3)), RANDOM.normal(size=400)
    few = {"x": x[:9], "y": x[:9].sum(1) + noise[:9]}
    words = "the mode is not the posterior mean: .*'sigma'.*NUTS"
    assert re.search(words, line().fit(few).status)
    assert "posterior mean" not in line().fit(few, probml.MAP()).status
    assert "posterior mean" not in line().fit({"x": x, "y": x.sum(1) + noise}).status


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
    there = 2.0 / (rest / 2)  # the mean of Gamma((n − p) / 2, rest / 2)
    told = re.search(r"mean of 'tau' \(\S+ here, there about (\S+)\)",
                     precise().fit({"x": x, "y": y}).status)
    assert float(told[1]) == pytest.approx(there, rel=0.15)


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
    assert re.search("posterior means?.*NUTS", fit.status)
    assert "posterior mean" not in two_noises().fit(few, probml.EM()).status
    assert "posterior mean" not in two_noises().fit({"y": far + noise}).status
