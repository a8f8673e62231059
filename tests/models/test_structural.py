"""Structural time series: parts that add, held to published figures."""

import json

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import sample
from scipy import stats

import probml
from probml.models import (
    level_part,
    local_level,
    local_trend,
    seasonal,
    seasonal_part,
    structural_time_series,
)
from probml.models.chains.structural import autoregression, companion


def reference(shared_data, name, column):
    found = json.loads((shared_data / "fits" / f"{name}.json").read_text())
    table = pd.read_csv(shared_data / found["dataset"])
    return found, table[column].to_numpy(float)[None]


def test_a_local_level_with_a_wide_prior_is_the_published_one(shared_data):
    found, y = reference(shared_data, "locallevel_nile", "volume")
    fit = local_level(scale=1000.0, centre=1000.0).fit({"y": y}, probml.EM(prior=False))
    np.testing.assert_allclose(fit.params["level_scale"] ** 2, found["variance_level"], rtol=0.02)
    np.testing.assert_allclose(fit.params["sigma"] ** 2, found["variance_epsilon"], rtol=0.01)
    smoothed = np.asarray(fit.conditional({"y": y}, "level").mean)[0, :, 0]
    np.testing.assert_allclose(smoothed, found["smoothed_level"], rtol=1e-3)


@pytest.mark.parametrize("column", ["log10_value", "log10_value_missing"])
def test_seasons_of_gas_are_the_published_ones(shared_data, column):
    name = "ssm_ukgas_bsm" + "_missing" * column.endswith("missing")
    found, y = reference(shared_data, name, column)
    given = found["proper_prior_at_given_parameters"]
    spread = {key: value**0.5 for key, value in given["parameters"].items()}

    point = {"trend_scale": np.array([spread["var_level"], spread["var_slope"]]),
             "season_scale": spread["var_seasonal"], "sigma": spread["var_obs"]}
    fit = seasonal(period=4, scale=1.0, centre=2.0).at(point)
    paths = fit.impute({"y": y})
    for state in given["smoothed_state"]:
        t, mean = state["t"] - 1, np.array(state["mean"])
        # the first states' priors are wider here: no more than the third digit tells
        np.testing.assert_allclose(paths["trend"][0, t], mean[:2], atol=2e-3)
        np.testing.assert_allclose(paths["season"][0, t], mean[2:], atol=2e-3)


def test_parts_add_in_any_function():
    @probml.model
    def own(x):
        level, seasons = level_part("level", 1.0), seasonal_part(3, "season", 1.0)
        beta = sample("beta", dist.Normal(0.0, 10.0))
        with probml.rows():
            sample("y", dist.Normal(level() + seasons() + beta * x, 0.5).to_event(1))

    random = np.random.default_rng(0)
    x = random.normal(size=(1, 60))
    truth = {"beta": 2.0, "level_scale": 0.2, "season_scale": 0.1}
    y = own().at(truth).simulate(seed=1, steps=60, x=x)["y"]
    fit = own().fit({"x": x, "y": y}, probml.EM())
    assert abs(fit.params["beta"] - 2.0) < 0.3
    ahead = fit.forecast({"x": x, "y": y}, steps=3, interval=0.9, x=jnp.zeros((1, 3)))["y"]
    assert ahead.value.shape == (1, 3) and np.all(ahead.lower < ahead.upper)


def test_cycles_and_autoregressions_have_the_covariances_of_their_laws():
    point = {"sigma": 0.5, "cycle_scale": 0.4, "cycle_period": 7.0, "cycle_damping": 0.8,
             "ar_scale": 0.3, "ar_partial": np.array([0.6, -0.4])}
    fit = structural_time_series(x=None, trend="still", cycle=(3, 20), order=2).at(point)
    lag = abs(np.subtract.outer(np.arange(6), np.arange(6)))
    wave = 0.16 / 0.36 * 0.8**lag * np.cos(2 * np.pi / 7 * lag)
    a, b = 0.6 * 1.4, -0.4  # by Durbin and Levinson; then Yule and Walker's equations
    rho = [1.0, a / (1 - b)]
    for _ in range(4):
        rho.append(a * rho[-1] + b * rho[-2])
    regression = 0.09 / ((1 - 0.36) * (1 - 0.16)) * np.array(rho)[lag]
    cov = 100.0 + wave + regression + 0.25 * np.eye(6)
    y = np.random.default_rng(2).normal(size=(2, 6))
    want = stats.multivariate_normal(np.zeros(6), cov).logpdf(y)
    np.testing.assert_allclose(fit.log_prob({"y": y}), want, atol=1e-8)


def test_a_stationary_law_is_kept_by_its_moves():
    coefficients, law = autoregression(jnp.array([0.5, -0.3, 0.7]))
    turn = companion(coefficients)
    kept = turn @ law @ turn.T + np.diag([1.0, 0.0, 0.0])
    np.testing.assert_allclose(kept, law, atol=1e-12)


def test_columns_beside_a_series_reach_the_likelihood_of_statsmodels(shared_data):
    table = pd.read_csv(shared_data / "classic" / "macro_cons_income.csv")
    model = structural_time_series(trend="level", first=(2.0, 1.0, 1.0))
    fit = model.fit({"x": table["dlog_inc"].to_numpy()[None, :, None],
                     "y": table["dlog_cons"].to_numpy()[None]}, probml.MAP(prior=False))
    # UnobservedComponents(level, exog) of 0.15, the first level N(0, 4)
    assert fit.history[-1] == pytest.approx(-193.1935425, abs=1e-5)
    assert fit.params["beta"][0] == pytest.approx(0.27637, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "column", "settings"), [
    ("ssm_ukgas_bsm", "log10_value",
     {"trend": "trend", "seasonal": 4, "first": (1.0, 0.1, 1.0), "centre": 2.0}),
    ("ssm_ukgas_bsm_missing", "log10_value_missing",
     {"trend": "trend", "seasonal": 4, "first": (1.0, 0.1, 1.0), "centre": 2.0}),
    ("ssm_lakehuron_ar2noise", "level",
     {"trend": "still", "order": 2, "first": (10.0, 1.0, 1.0), "centre": 579.0}),
    ("ssm_lakehuron_ar2noise_missing", "level_missing",
     {"trend": "still", "order": 2, "first": (10.0, 1.0, 1.0), "centre": 579.0}),
])
def test_the_likelihoods_of_kfas_are_reached(shared_data, name, column, settings):
    found, y = reference(shared_data, name, column)
    model = structural_time_series(x=None, **settings)
    fit = model.fit({"y": y}, probml.MAP(prior=False))
    assert fit.history[-1] >= found["proper_prior_ml"]["loglik"] - 1e-5, fit.status


def test_a_trend_goes_on():
    y = 3.0 + 0.5 * np.arange(40.0)[None] + 0.1 * np.random.default_rng(1).normal(size=(1, 40))
    fit = local_trend(scale=1.0).fit({"y": y}, probml.EM())
    np.testing.assert_allclose(fit.forecast({"y": y}, steps=2)["y"], [[23.0, 23.5]], atol=0.3)


def test_periods_that_are_none_are_refused():
    with pytest.raises(probml.ModelError, match="period=1.*at least 2"):
        seasonal(period=1).fit({"y": np.zeros((1, 5))})
