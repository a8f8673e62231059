"""Gaussian chains fitted: gradients, EM and forecasts, held to closed forms and to other
libraries' figures."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import sample
from scipy import stats

import probml
from probml.dataset import read
from probml.device import lanes, load
from probml.evidence.e_step import log_evidence

nan = np.nan


def positive(name):
    return sample(name, dist.ImproperUniform(dist.constraints.positive, (), ()))


@probml.model
def free(x):
    """Everything of a system unknown; what is seen depends on an input."""
    turn = sample("turn", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
    push = sample("push", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    first = sample("first", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    spread = sample("spread", dist.InverseWishart(6.0, jnp.eye(2)))
    load = sample("load", dist.Normal(0.0, 1.0).expand([3, 2]).to_event(2))
    beta = sample("beta", dist.Normal(0.0, 1.0))
    noise = sample("noise", dist.LogNormal(0.0, 1.0).expand([3]).to_event(1))
    with probml.rows():
        z = sample("z", probml.GaussianChain(first, jnp.eye(2), turn, spread, offset=push))
        sample("y", dist.Normal(z @ load.T + beta * x[..., None], noise).to_event(2))


RNG = np.random.default_rng(0)
POINT = {"turn": np.array([[0.8, 0.2], [-0.3, 0.6]]), "push": np.array([0.2, -0.1]),
         "first": np.array([1.0, 0.0]), "spread": np.array([[0.5, 0.1], [0.1, 0.3]]),
         "load": RNG.normal(size=(3, 2)), "beta": np.array(0.5), "noise": np.array([0.4, 0.5, 0.6])}
X = RNG.normal(size=(8, 12))
UNSEEN = RNG.random((8, 12, 3)) < 0.2


@functools.cache
def data():
    y = free().at(POINT).simulate(seed=1, steps=12, x=X)["y"]
    return {"x": X, "y": np.where(UNSEEN, nan, y)}


def log_joint(p, x, y):
    """log p(y) of a row by the joint normal of all its numbers."""
    t, mean, cov = len(x), np.array(p["first"]), np.eye(2)
    m, blocks = np.zeros((t, 2)), np.zeros((t, t, 2, 2))
    for i in range(t):
        if i:
            mean, cov = p["turn"] @ mean + p["push"], p["turn"] @ cov @ p["turn"].T + p["spread"]
        m[i], blocks[i, i] = mean, cov
        for j in range(i):
            blocks[i, j] = p["turn"] @ blocks[i - 1, j]
            blocks[j, i] = blocks[i, j].T
    load = np.kron(np.eye(t), p["load"])
    loc = load @ m.ravel() + np.repeat(p["beta"] * x, 3)
    whole = load @ blocks.transpose(0, 2, 1, 3).reshape(2 * t, 2 * t) @ load.T
    whole += np.diag(np.tile(p["noise"] ** 2, t))
    s = ~np.isnan(y.ravel())
    return stats.multivariate_normal(loc[s], whole[np.ix_(s, s)]).logpdf(y.ravel()[s])


def test_the_gradient_of_the_evidence_is_that_of_the_joint_normal():
    held = read.read(free(), data())
    plan = held.plan()
    rows, known = load.load(held, plan)
    at = {name: jnp.asarray(value) for name, value in POINT.items()}
    gradient = jax.jit(jax.grad(lambda p: log_evidence(plan, p, known, rows)))(at)

    def total(p):
        return sum(log_joint(p, x, y) for x, y in zip(data()["x"], data()["y"], strict=True))

    np.testing.assert_allclose(free().at(POINT).log_prob(data()).sum(), total(POINT), atol=1e-9)
    for name, cell in (("turn", (0, 1)), ("push", (1,)), ("first", (0,)), ("load", (2, 0)),
                       ("beta", ()), ("noise", (1,)), ("spread", (0, 0))):
        moved = [{**POINT, name: POINT[name] + step * np.eye(1, POINT[name].size, int(
            np.ravel_multi_index(cell, POINT[name].shape) if cell else 0)).reshape(
                POINT[name].shape)} for step in (1e-5, -1e-5)]
        slope = (total(moved[0]) - total(moved[1])) / 2e-5
        np.testing.assert_allclose(np.asarray(gradient[name])[cell], slope, rtol=1e-6, atol=1e-7)


def test_em_never_falls_and_ends_where_the_gradient_is_zero():
    start = {name: value for name, value in POINT.items() if name != "beta"}
    fit = free().fit(data(), probml.EM(max_iterations=1000, tolerance=1e-12), start=start)
    assert np.all(np.diff(fit.history) > -1e-9), np.diff(fit.history).min()
    climbed = free().fit(data(), probml.MAP(), start=fit.params)
    assert climbed.history[-1] - fit.history[-1] < 1e-4 * len(X)
    found = {name: np.asarray(value) for name, value in fit.params.items()}
    log = sum(log_joint(found, x, y) for x, y in zip(data()["x"], data()["y"], strict=True))
    np.testing.assert_allclose(fit.log_prob(data()).sum(), log, atol=1e-8)


@probml.model
def level():
    """A local level; its first value as the reference has it."""
    drift, noise = positive("drift"), positive("noise")
    with probml.rows():
        z = sample("z", probml.GaussianChain(1000 * jnp.ones(1), 250000 * jnp.eye(1), jnp.eye(1),
                                             drift * jnp.eye(1)))
        sample("y", dist.Normal(z[..., 0], jnp.sqrt(noise)).to_event(1))


def published(shared_data, name):
    return json.loads((shared_data / "fits" / f"{name}.json").read_text())


def nile(shared_data):
    return pd.read_csv(shared_data / "classic" / "nile.csv")["volume"].to_numpy(float)


@pytest.mark.parametrize("engine", [probml.EM(prior=False), probml.MAP(prior=False)])
def test_the_nile_is_fitted_as_published(shared_data, engine):
    reference = published(shared_data, "ssm_nile")["proper_prior_ml"]
    fit = level().fit({"y": nile(shared_data)[None]}, engine)
    np.testing.assert_allclose(fit.history[-1], reference["loglik"], atol=1e-6)
    want = reference["parameters"]
    np.testing.assert_allclose([fit.params["drift"], fit.params["noise"]],
                               [want["var_level"], want["var_obs"]], rtol=2e-3)
    smoothed = fit.conditional({"y": nile(shared_data)[None]}, "z")
    for state in reference["smoothed_state"]:
        np.testing.assert_allclose(smoothed.mean[0, state["t"] - 1, 0], state["mean"], rtol=1e-3)


def test_a_forecast_of_the_level_is_flat_and_its_interval_widens(shared_data):
    y = nile(shared_data)[None]
    point = {"drift": 1469.0, "noise": 15099.0}
    fit = level().at(point)
    ahead = fit.forecast({"y": y}, steps=3, interval=0.9)["y"]
    last = fit.conditional({"y": y}, "z")
    mean, variance = float(last.mean[0, -1, 0]), float(last.variance[0, -1, 0])
    np.testing.assert_allclose(ahead.value[0], [mean] * 3, atol=1e-8)
    scale = np.sqrt(variance + 1469.0 * np.arange(1, 4) + 15099.0)
    wide = 2 * stats.norm.ppf(0.95) * scale
    np.testing.assert_allclose(ahead.upper[0] - ahead.lower[0], wide, rtol=1e-9)


def test_sequences_of_different_lengths_are_each_their_own():
    fit, random = level().at({"drift": 1469.0, "noise": 15099.0}), np.random.default_rng(2)
    parts = [1000 + 100 * random.normal(size=n) for n in (5, 9, 2)]
    together = fit.log_prob({"y": parts})
    alone = [fit.log_prob({"y": part[None]})[0] for part in parts]
    np.testing.assert_allclose(together, alone, atol=1e-9)
    ahead = fit.forecast({"y": parts}, steps=2)["y"]
    np.testing.assert_allclose(ahead[2], fit.forecast({"y": parts[2][None]}, steps=2)["y"][0],
                               atol=1e-8)


def test_simulate_draws_what_log_prob_says():
    point = {"drift": 400.0, "noise": 100.0}
    drawn = level().at(point).simulate(4000, seed=3, steps=4)
    t = np.minimum.outer(np.arange(4), np.arange(4))
    np.testing.assert_allclose(np.cov(drawn["y"].T), 250000 + 400 * t + 100 * np.eye(4), rtol=0.1)
    assert drawn["z"].shape == (4000, 4, 1)


def test_a_long_sequence_in_blocks_is_what_it_is_in_one_piece(monkeypatch):
    random = np.random.default_rng(4)
    x = random.normal(size=(2, 60))
    y = np.array(free().at(POINT).simulate(seed=2, steps=60, x=x)["y"])
    y[0, 50:] = nan
    fit = free().at(POINT)

    def answers():
        found = fit.conditional({"x": x, "y": y}, "z")
        with pytest.warns(probml.ConvergenceWarning, match="iteration limit"):
            told = free().fit({"x": x, "y": y}, probml.EM(max_iterations=2, accelerate=False),
                              start=POINT)
        return (fit.log_prob({"x": x, "y": y}), found.mean, found.variance, told.history,
                told.params["turn"])

    whole = answers()
    monkeypatch.setattr(lanes, "MIN_STEPS_TO_CUT", 16)
    monkeypatch.setattr(lanes, "BLOCK", 8)
    for one, other in zip(whole, answers(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)
    drawn = fit.simulate(seed=1, given={"x": x, "y": y})["z"]
    assert np.abs(drawn - whole[1]).max() < 6 * np.sqrt(whole[2].max())


@probml.model
def still():
    """The same for all rows and steps: sequences that are seen alike share covariances."""
    turn = sample("turn", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
    spread = sample("spread", dist.InverseWishart(6.0, jnp.eye(2)))
    load = sample("load", dist.Normal(0.0, 1.0).expand([3, 2]).to_event(2))
    noise = sample("noise", dist.LogNormal(0.0, 1.0).expand([3]).to_event(1))
    with probml.rows():
        z = sample("z", probml.GaussianChain(jnp.zeros(2), jnp.eye(2), turn, spread))
        sample("y", dist.Normal(z @ load.T, noise).to_event(2))


@pytest.mark.filterwarnings("ignore:EM of model")
def test_a_row_of_which_nothing_is_seen_changes_nothing():
    """Complete rows share one recursion of covariances; beside a row with holes none do."""
    start = {name: POINT[name] for name in ("turn", "spread", "load", "noise")}
    y = np.asarray(still().at(start).simulate(8, seed=2, steps=12)["y"])
    beside = np.concatenate([y, np.full_like(y[:1], nan)])
    engine = probml.EM(max_iterations=3, tolerance=0.0, restarts=1)
    fits = [still().fit({"y": data}, engine, start=start) for data in (y, beside)]
    np.testing.assert_allclose(fits[0].history, fits[1].history, rtol=1e-10)
    for name in start:
        np.testing.assert_allclose(fits[0].params[name], fits[1].params[name], rtol=1e-7, atol=1e-9)
    for ask in ("mean", "variance"):
        one, other = (np.asarray(getattr(fits[0].conditional({"y": data}, "z"), ask))
                      for data in (y, beside))
        np.testing.assert_allclose(one, other[:8], atol=1e-10)
    draws = still().at(start).simulate(given={"y": y}, seed=3)["z"]
    assert np.isfinite(draws).all() and draws.shape == (8, 12, 2)
