"""Structural time series: parts that add, held to published figures."""

import json

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import sample

import probml
from probml.models import level_part, local_level, local_trend, seasonal, seasonal_part


def reference(shared_data, name, column):
    found = json.loads((shared_data / "fits" / f"{name}.json").read_text())
    table = pd.read_csv(shared_data / found["dataset"])
    return found, table[column].to_numpy(float)[None]


def test_a_local_level_with_a_wide_prior_is_the_published_one(shared_data):
    found, y = reference(shared_data, "locallevel_nile", "volume")
    fit = local_level(scale=1000.0, centre=1000.0).fit({"y": y}, probml.EM(prior=False))
    np.testing.assert_allclose(fit.params["level_scale"] ** 2, found["variance_level"], rtol=0.02)
    np.testing.assert_allclose(fit.params["noise"] ** 2, found["variance_epsilon"], rtol=0.01)
    smoothed = np.asarray(fit.conditional({"y": y}, "level").mean)[0, :, 0]
    np.testing.assert_allclose(smoothed, found["smoothed_level"], rtol=1e-3)


@pytest.mark.parametrize("column", ["log10_value", "log10_value_missing"])
def test_seasons_of_gas_are_the_published_ones(shared_data, column):
    name = "ssm_ukgas_bsm" + "_missing" * column.endswith("missing")
    found, y = reference(shared_data, name, column)
    given = found["proper_prior_at_given_parameters"]
    spread = {key: value**0.5 for key, value in given["parameters"].items()}

    point = {"trend_scale": np.array([spread["var_level"], spread["var_slope"]]),
             "season_scale": spread["var_seasonal"], "noise": spread["var_obs"]}
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


def test_a_trend_goes_on():
    y = 3.0 + 0.5 * np.arange(40.0)[None] + 0.1 * np.random.default_rng(1).normal(size=(1, 40))
    fit = local_trend(scale=1.0).fit({"y": y}, probml.EM())
    np.testing.assert_allclose(fit.forecast({"y": y}, steps=2)["y"], [[23.0, 23.5]], atol=0.3)


def test_periods_that_are_none_are_refused():
    with pytest.raises(probml.ModelError, match="period=1.*at least 2"):
        seasonal(period=1).fit({"y": np.zeros((1, 5))})
