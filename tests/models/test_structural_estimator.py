"""The estimator of structural time series: held to KFAS and to its own function."""

import json

import jax
import numpy as np
import pandas as pd
import pytest

import probml
from coded import codes
from probml.models import StructuralTimeSeries

nan = np.nan


@pytest.fixture(scope="module")
def nile(shared_data):
    y = pd.read_csv(shared_data / "classic" / "nile.csv")["volume"].to_numpy(float)
    y[40:45] = nan
    return y


@pytest.fixture(scope="module")
def estimator(nile):
    return StructuralTimeSeries(n_starts=1).fit(nile)


def test_parts_and_forecasts_are_those_of_the_function_in_the_units_of_the_series(nile, estimator):
    spread = nile[~np.isnan(nile)].std()
    level = estimator.components(nile, interval=0.9)["level"]
    own = estimator.fit_.conditional({"y": (nile[None] - np.nanmean(nile)) / spread}, "level")
    np.testing.assert_allclose(level["value"], own.mean[0, :, 0] * spread + np.nanmean(nile))
    width = 2 * 1.6448536 * np.sqrt(np.asarray(own.variance)[0, :, 0]) * spread
    np.testing.assert_allclose(level["upper"] - level["lower"], width, rtol=1e-6)
    ahead = estimator.forecast(nile, 3, interval=0.9)
    np.testing.assert_allclose(ahead["value"], level["value"].iloc[-1])
    np.testing.assert_allclose(estimator.forecast(nile, 3), ahead["value"])
    last = np.asarray(own.variance)[0, -1, 0] * spread**2
    variance = last + np.arange(1, 4) * estimator.variances_["level"] + estimator.noise_**2
    np.testing.assert_allclose(ahead["upper"] - ahead["value"], 1.6448536 * np.sqrt(variance),
                               rtol=1e-6)
    filled = estimator.impute(nile)
    np.testing.assert_allclose(filled[40:45], level["value"][40:45])
    np.testing.assert_array_equal(filled[:40], nile[:40])
    assert estimator.sample(5).shape == (5,) and estimator.converged_
    assert estimator.score(nile) == pytest.approx(estimator.loglik_)


def test_no_unit_matters_to_variances_and_the_likelihood(nile, estimator):
    other = StructuralTimeSeries(n_starts=1).fit(nile * 1e-3 + 7.0)
    for part, variance in estimator.variances_.items():
        assert other.variances_[part] == pytest.approx(variance * 1e-6, rel=1e-3)
    shift = (~np.isnan(nile)).sum() * np.log(1e-3)
    assert other.loglik_ == pytest.approx(estimator.loglik_ - shift, abs=1e-5)


def test_the_nile_is_that_of_an_exact_diffuse_start_but_for_its_prior(shared_data):
    found = json.loads((shared_data / "fits" / "ssm_nile.json").read_text())["exact_diffuse_ml"]
    y = pd.read_csv(shared_data / "classic" / "nile.csv")["volume"].to_numpy(float)
    estimator = StructuralTimeSeries(n_starts=1).fit(y)
    diffuse = estimator.loglik_ + 0.5 * np.log(2 * np.pi * (10 * y.std()) ** 2)
    assert diffuse == pytest.approx(found["loglik"], abs=0.02)
    assert estimator.variances_["level"] == pytest.approx(found["parameters"]["var_level"], rel=0.01)
    assert estimator.variances_["noise"] == pytest.approx(found["parameters"]["var_obs"], rel=0.01)


@pytest.mark.slow
def test_seasons_and_a_trend_are_told_apart_from_columns_beside_the_series():
    random, t = np.random.default_rng(0), np.arange(60)
    x = random.normal(5.0, 2.0, size=(60, 1))
    season = np.array([1.0, -2.0, 0.5, 0.5])[t % 4]
    y = 10 + 0.3 * t + season + 1.5 * x[:, 0] + 0.2 * random.normal(size=60)
    estimator = StructuralTimeSeries("trend", seasonal=4).fit(y, exog=x)
    assert estimator.coef_[0] == pytest.approx(1.5, abs=0.05)
    parts = estimator.components(y, exog=x)
    assert list(parts) == ["level", "slope", "seasonal", "regression"]
    np.testing.assert_allclose(parts["seasonal"]["value"], season, atol=0.4)
    np.testing.assert_allclose(sum(parts[n]["value"] for n in ("level", "seasonal", "regression")),
                               y, atol=1.0)
    later = estimator.forecast(y, 4, exog=x, future=np.full((4, 1), 5.0))
    want = 10 + 0.3 * np.arange(60, 64) + np.array([1.0, -2.0, 0.5, 0.5]) + 7.5
    np.testing.assert_allclose(later, want, atol=1.0)
    with pytest.raises(probml.DataError, match=r"future=None.*of shape \(\d+, 1\)"):
        estimator.forecast(y, 4, exog=x)


@pytest.mark.slow
def test_series_of_different_lengths_share_what_is_learnt():
    random = np.random.default_rng(1)
    series = [np.cumsum(random.normal(size=n)) + random.normal(size=n) for n in (40, 25, 60)]
    estimator = StructuralTimeSeries(n_starts=1).fit(series)
    tables = estimator.components(series)
    assert [len(table["level"]) for table in tables] == [40, 25, 60]
    alone = estimator.components(series[1])["level"]
    np.testing.assert_allclose(tables[1]["level"]["value"], alone["value"], atol=1e-8)
    assert [len(part) for part in estimator.forecast(series, 2)] == [2, 2, 2]
    assert estimator.score(series) == pytest.approx(sum(estimator.score(part) for part in series))


@pytest.mark.slow
def test_first_states_that_are_wide_beside_the_noise_are_taken_in_double():
    """In single the band of a first level would have no width: its prior's square less the like."""
    random, t = np.random.default_rng(0), np.arange(40)
    y = 0.3 * t + np.array([1.0, -2.0, 0.5, 0.5])[t % 4] + 0.1 * random.normal(size=40)
    tables = []
    for double in (False, True):
        with jax.enable_x64(double):
            estimator = StructuralTimeSeries("trend", seasonal=4, n_starts=1).fit(y)
            tables.append(estimator.components(y)["level"])
            assert ("float32-to-float64" in codes(estimator.fit_)) == (not double)
    np.testing.assert_allclose(tables[0], tables[1], rtol=1e-3)


@pytest.mark.parametrize(("settings", "y", "exog", "words"), [
    ({"trend": "wild"}, np.arange(9.0), None, "trend='wild'.*'smooth'"),
    ({"seasonal": 1}, np.arange(9.0), None, "seasonal=1.*at least 2"),
    ({"cycle": (9, 3)}, np.arange(9.0), None, "cycle=.*shortest and the longest"),
    ({}, np.ones(9), None, "X is 1 at every step"),
    ({}, np.ones((9, 2)), None, "2 columns, expected one series.*exog="),
    ({}, np.full(9, nan), None, "every value of X is missing"),
    ({}, np.r_[np.arange(8.0), np.inf], None, "X is inf in sequence 0, step 8"),
    ({}, np.arange(9.0), np.arange(8.0), "exog has 8 steps, expected 9"),
    ({}, np.arange(9.0), np.ones(9), "column 0 of exog is the same at every step"),
    ({}, np.arange(9.0), np.r_[np.arange(8.0), nan], "exog is nan in row 8, column 0"),
])
def test_what_cannot_be_used_is_refused_by_name(settings, y, exog, words):
    with pytest.raises(ValueError, match=words):
        StructuralTimeSeries(**settings).fit(y, exog=exog)


def test_columns_are_those_of_the_fit(nile, estimator):
    with pytest.raises(probml.DataError, match="fitted without exog"):
        estimator.forecast(nile, exog=np.ones(len(nile)))
    with pytest.raises(probml.DataError, match="future= is given.*fitted without exog"):
        estimator.forecast(nile, 2, future=np.ones(2))
    with pytest.raises(probml.ModelError, match="interval=2.0.*between 0 and 1"):
        estimator.components(nile, interval=2.0)
