"""Where EM ends: not where an iteration gains little, but where the parameters have come to rest."""

from importlib.resources import files

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample
from scipy.special import gammaln, logsumexp

import probml
from probml.engines import em
from probml.engines.restarting import restarts
from probml.models import HiddenMarkov, PoissonMixture

QUAKES = pd.read_csv(files("probml.data") / "earthquakes.csv")["count"].to_numpy(float)


def plain_em(weights, rates, iterations=20_000):
    """Plain EM of a Poisson mixture under Gamma(2, 1 / mean), by hand, until it stands still."""
    for _ in range(iterations):
        log = np.log(weights) + QUAKES[:, None] * np.log(rates) - rates - gammaln(QUAKES[:, None] + 1)
        each = np.exp(log - logsumexp(log, axis=1)[:, None])
        before = weights
        weights = each.mean(0)
        rates = (each.T @ QUAKES + 1) / (each.sum(0) + 1 / QUAKES.mean())
        if np.abs(weights - before).max() < 1e-14:
            break
    return weights, rates


def test_on_a_ridge_em_ends_where_plain_em_stands_still():
    """Four Poisson states of these counts: steps shrink by 0.4 % each, and EM's last ones gained
    less than its tolerance 2 % before the top."""
    estimator = PoissonMixture(4).fit(QUAKES[:, None])
    weights, rates = plain_em(estimator.weights_, estimator.rates_[:, 0])
    assert estimator.converged_
    np.testing.assert_allclose(estimator.weights_, weights, rtol=1e-3)
    np.testing.assert_allclose(estimator.rates_[:, 0], rates, rtol=1e-3)


@pytest.mark.slow
def test_where_float32_hides_the_way_along_a_ridge_the_end_is_that_of_float64():
    with jax.enable_x64(False):
        estimator = PoissonMixture(4).fit(QUAKES[:, None])
        assert estimator.converged_
    weights, rates = plain_em(estimator.weights_, estimator.rates_[:, 0])
    np.testing.assert_allclose(estimator.weights_, weights, rtol=3e-3)
    np.testing.assert_allclose(estimator.rates_[:, 0], rates, rtol=3e-3)


def test_a_coarse_tolerance_is_a_users_own_and_asks_no_more_of_the_parameters():
    fine, coarse = (PoissonMixture(4, tol=tol).fit(QUAKES[:, None]) for tol in (1e-7, 1e-3))
    assert coarse.converged_ and coarse.n_iter_ < fine.n_iter_
    assert restarts.relative_tolerance(1e-3) > 0.04 > restarts.relative_tolerance(1e-7) > 4e-4


def test_parameters_that_creep_for_ever_cost_no_more_than_twice_the_climb_itself(monkeypatch):
    """As many steps again, and so many of L-BFGS."""
    iterations = []
    for close in (np.inf, 0.0):  # anywhere, and nowhere, is at rest
        monkeypatch.setattr(em, "relative_tolerance", lambda tolerance, close=close: close)
        monkeypatch.setattr(restarts, "GAIN_SHARE", 0.0)
        iterations.append(PoissonMixture(4).fit(QUAKES[:, None]).n_iter_)
    assert iterations[0] < iterations[1] <= 3 * iterations[0]


def test_no_iterations_beyond_those_allowed_are_made_on_a_ridge():
    estimator = PoissonMixture(4, max_iter=60, engine=probml.EM(max_iterations=60)).fit(QUAKES[:, None])
    assert estimator.n_iter_ <= 60


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_climb_within_an_m_step_keeps_the_digits_of_its_gain_in_float32(seed):
    """The transitions of a stationary chain have no closed form: beside the counts' terms of
    thousands of nats the last hundredths of their gain were rounding (−327.849 for −327.8316)."""
    with jax.enable_x64(False):
        estimator = HiddenMarkov(4, emission="poisson", initial="stationary", prior=False,
                                 random_state=seed).fit(QUAKES[:, None])
    assert estimator.score(QUAKES[:, None]) > -327.8316 - 0.005


@probml.model
def answered():
    weights = sample("weights", dist.Dirichlet(np.ones(2)))
    with plate("kind", 2):
        share = sample("share", dist.Beta(1.0, 1.0).expand([4]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("y", dist.Bernoulli(share[z]).to_event(1))


def test_shares_on_the_edge_are_an_end_without_a_word():
    """Warnings are errors here, also those of NumPy's logarithms of 0."""
    y = np.r_[np.ones((20, 4)), np.random.default_rng(0).random((20, 4)) < 0.4].astype(int)
    start = {"weights": np.full(2, 0.5), "share": np.array([[1.0] * 4, [0.4] * 4])}
    fit = answered().fit({"y": y}, probml.EM(prior=False), start=start)
    assert fit.converged
    np.testing.assert_allclose(fit.params["share"].max(0), 1.0)
