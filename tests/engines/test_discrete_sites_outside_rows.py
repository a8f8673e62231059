"""The posterior of a model with discrete sites outside rows is the mixture of those given each of
their states, also where a state is rare and leaves a parameter its wide prior alone. Oracles:
closed forms of each state, a grid."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample
from scipy.stats import multivariate_normal

import probml

N = 40
RANDOM = np.random.default_rng(0)
X, NOISE = RANDOM.normal(size=(N, 2)), RANDOM.normal(size=N)


@probml.model
def regression(x):
    z = sample("z", dist.Bernoulli(0.5).expand([2]).to_event(1))
    b = sample("b", dist.Normal(0.0, 3.0).expand([2]).to_event(1))
    a = sample("a", dist.Normal(0.0, 2.0))
    with probml.rows():
        sample("y", dist.Normal(a + x @ (z * b), 1.0))


def exact(y):
    """Means and sds of b, P(z = 1) and the log evidence, from the four states in closed form."""
    logs, means, squares, states = [], [], [], list(itertools.product((0, 1), repeat=2))
    for z in states:
        scaled = X * np.array(z)
        cov = np.eye(N) + 4 * np.ones((N, N)) + 9 * scaled @ scaled.T
        logs.append(multivariate_normal(np.zeros(N), cov).logpdf(y) + np.log(0.25))
        gain = 9 * scaled.T @ np.linalg.inv(cov)
        mean = gain @ y
        means.append(mean)
        squares.append(9 - 9 * np.diag(gain @ scaled) + mean**2)
    total = np.logaddexp.reduce(logs)
    p = np.exp(np.array(logs) - total)
    mean = p @ np.array(means)
    return mean, np.sqrt(p @ np.array(squares) - mean**2), p @ np.array(states), total


@pytest.mark.parametrize("effects", [(0.0, 0.0), (0.9, 0.0), (0.45, -0.5), (1.0, 0.6), (0.62, 3.0)])
def test_a_slab_and_a_spike(effects):
    y = X @ np.array(effects) + NOISE
    fit = regression().fit({"x": X, "y": y})
    mean, sd, inside, total = exact(y)
    assert str(fit.engine).startswith("Laplace") and not fit.warnings, fit.status
    drawn = np.asarray(fit.draws(8000)["b"])
    assert np.all(np.abs(drawn.mean(0) - mean) < 0.15 * sd + 0.01), (drawn.mean(0), mean, sd)
    np.testing.assert_allclose(drawn.std(0), sd, rtol=0.2)
    np.testing.assert_allclose(np.asarray(fit.posterior("z").probs)[..., 1], inside, atol=0.04)
    np.testing.assert_allclose(fit.log_evidence, total, atol=0.12)


def test_a_rare_state_under_which_a_parameter_has_its_prior():
    y = np.where(np.arange(N) < 16, 0.8, 0.3) + 0.5 * NOISE

    @probml.model
    def change(time):
        when = sample("when", dist.Categorical(jnp.ones(N) / N))
        levels = sample("levels", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
        with probml.rows():
            sample("y", dist.Normal(jnp.where(time < when, levels[0], levels[1]), 0.5))

    fit = change().fit({"time": np.arange(N), "y": y})
    before, logs, means, squares = np.arange(N)[:, None] > np.arange(N), [], [], []
    for part in before:
        logs.append(sum(multivariate_normal(
            np.zeros(own.sum()), 25.0 + 0.25 * np.eye(own.sum()), allow_singular=True).logpdf(
                y[own]) for own in (part, ~part) if own.any()))
        count = np.array([part.sum(), (~part).sum()])
        precision = 1 / 25 + count / 0.25
        mean = np.array([y[part].sum(), y[~part].sum()]) / 0.25 / precision
        means.append(mean)
        squares.append(1 / precision + mean**2)
    p = np.exp(logs - np.logaddexp.reduce(logs))
    mean = p @ np.array(means)
    sd = np.sqrt(p @ np.array(squares) - mean**2)
    assert not fit.warnings and 0.001 < p[0] < 0.2, (fit.status, p[0])
    drawn = np.asarray(fit.draws(8000)["levels"])
    np.testing.assert_allclose(drawn.std(0), sd, rtol=0.25)
    assert np.all(np.abs(drawn.mean(0) - mean) < 0.15 * sd), (drawn.mean(0), mean)


def test_states_of_rows_that_cannot_be_renumbered_are_sampled_where_the_test_fails():
    @probml.model
    def contaminated():
        share = sample("share", dist.Beta(1.0, 1.0))
        place = sample("place", dist.Normal(0.0, 5.0))
        with probml.rows():
            z = sample("z", dist.Bernoulli(share))
            sample("y", dist.Normal(z * place, 1.0))

    y = np.random.default_rng(2).normal(size=50)
    y[:4] += 2.0
    shares, places = np.linspace(5e-4, 1 - 5e-4, 500), np.linspace(-20.0, 20.0, 801)
    log = dist.Normal(0.0, 5.0).log_prob(places) + sum(
        np.log((1 - shares)[:, None] * np.exp(-own**2 / 2)
               + shares[:, None] * np.exp(-(own - places) ** 2 / 2)) for own in y)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = (weight.sum(0) * places).sum()
    sd = np.sqrt((weight.sum(0) * places**2).sum() - mean**2)
    fit = contaminated().fit({"y": y})
    drawn = np.asarray(fit.draws(4000)["place"])
    assert str(fit.engine).startswith("NUTS") and fit.status.count("was tried first") == 1
    assert abs(drawn.mean() - mean) < 0.2 * sd and 0.85 < drawn.std() / sd < 1.2, (drawn.std(), sd)


def test_states_that_can_be_renumbered_keep_one_numbering():
    @probml.model
    def halves(group):
        mean = sample("mean", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
        kind = sample("kind", dist.Bernoulli(0.5).expand([4]).to_event(1))
        with probml.rows():
            sample("y", dist.Normal(mean[kind[group]], 1.0))

    group = np.repeat(np.arange(4), 10)
    fit = halves().fit({"group": group, "y": np.array([-2.0, 3.0, -2.0, 3.0])[group] + NOISE})
    assert str(fit.engine).startswith("Laplace") and not fit.warnings, fit.status
    np.testing.assert_allclose(np.sort(fit.params["mean"]), [-2.0, 3.0], atol=0.5)
    np.testing.assert_allclose(np.asarray(fit.draws(2000)["mean"]).std(0), 20**-0.5, rtol=0.15)
