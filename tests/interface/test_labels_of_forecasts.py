"""Forecasts of a user's own functions keep what the user gave: dates, names of columns, the library
of the table, as those of the estimators do."""

import datetime

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import sample

import probml
from probml.models import structural_time_series

VALUES = np.random.default_rng(3).normal(size=(6, 2)).cumsum(0)
DAYS = pd.date_range("2024-01-31", periods=6, freq="ME", name="month")


@probml.model
def level():
    with probml.rows():
        z = sample("z", probml.GaussianChain(jnp.ones(1), jnp.eye(1), jnp.eye(1), jnp.eye(1)))
        sample("y", dist.Normal(z[..., 0], 1.0).to_event(1))


@probml.model
def pair():
    with probml.rows():
        z = sample("z", probml.GaussianChain(jnp.ones(1), jnp.eye(1), jnp.eye(1), jnp.eye(1)))
        sample("y", dist.Normal(z * jnp.array([1.0, 0.5]), 1.0).to_event(2))


@probml.model
def hidden():
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]),
                                           jnp.array([[0.9, 0.1], [0.2, 0.8]])))
        sample("y", dist.Normal(jnp.array([-2.0, 2.0])[z], 1.0).to_event(1))


@pytest.mark.parametrize("function", [level, hidden])
@pytest.mark.parametrize(("index", "ahead"), [
    (DAYS, ["2024-07-31", "2024-08-31"]),
    (pd.period_range("2000Q1", periods=6, freq="Q"), ["2001Q3", "2001Q4"]),
    (pd.RangeIndex(1871, 1877), ["1877", "1878"]),
])
def test_a_series_is_continued(function, index, ahead):
    fit, given = function().at({}), pd.Series(VALUES[:, 0], index, name="flow")
    plain = fit.forecast({"y": VALUES[None, :, 0]}, 2)
    found = fit.forecast({"y": given}, 2)
    assert isinstance(found["y"], pd.Series) and found["y"].name == "flow"
    assert [str(each)[:10] for each in found["y"].index] == ahead
    assert found["z"].index.equals(found["y"].index) and type(found["y"].index) in (
        type(index), pd.RangeIndex)
    for name, values in plain.items():
        np.testing.assert_allclose(found[name], values[0], atol=1e-6)
        assert isinstance(values, np.ndarray)


def test_tables_of_several_sequences_are_each_continued():
    fit = pair().at({})
    table = pd.DataFrame(VALUES, DAYS, ["a", "b"])
    parts, plain = [table, table[:3]], [VALUES, VALUES[:3]]
    found, values = fit.forecast({"y": parts}, 2), fit.forecast({"y": plain}, 2)
    assert [list(each) for each in found["y"]] == [["a", "b"]] * 2
    assert [str(each.index[0].date()) for each in found["y"]] == ["2024-07-31", "2024-04-30"]
    assert list(found["z"][1]) == ["z[0]"] and found["z"][1].index.equals(found["y"][1].index)
    np.testing.assert_allclose(np.stack(found["y"]), values["y"], atol=1e-6)
    bounds = fit.forecast({"y": table}, 2, interval=0.9)["y"]
    want = fit.forecast({"y": VALUES[None]}, 2, interval=0.9)["y"]
    for own, other in zip(bounds, want, strict=True):
        assert list(own) == ["a", "b"] and own.index.equals(found["y"][0].index)
        np.testing.assert_allclose(own, other[0], atol=1e-6)
    mixed = fit.forecast({"y": [table, VALUES]}, 2)["y"]
    assert isinstance(mixed[0], pd.DataFrame) and isinstance(mixed[1], np.ndarray)


def test_polars_in_is_polars_out():
    polars = pytest.importorskip("polars")
    dates = [datetime.date(2024, 1, 1) + datetime.timedelta(days=i) for i in range(6)]
    given = polars.DataFrame({"day": dates, "a": VALUES[:, 0], "b": VALUES[:, 1]})
    fit = pair().at({})
    found = fit.forecast({"y": [given, given[:4]]}, 2)["y"]
    assert [each.columns for each in found] == [["day", "a", "b"]] * 2
    assert found[0]["day"].to_list() == [datetime.date(2024, 1, 7), datetime.date(2024, 1, 8)]
    assert found[1]["day"].to_list() == dates[4:]
    np.testing.assert_allclose(found[0][["a", "b"]], fit.forecast({"y": VALUES[None]}, 2)["y"][0],
                               atol=1e-6)


def test_a_structural_series_is_fitted_to_a_series():
    series = pd.Series(VALUES[:, 0], DAYS, name="flow")
    model = structural_time_series(x=None, trend="level")
    point = {name: np.asarray(value) for name, value in
             model.fit({"y": series.to_numpy()[None]}, probml.MAP()).params.items()}
    fit = model.at(point)
    found = fit.forecast({"y": series}, 3)["y"]
    assert [str(each.date()) for each in found.index] == ["2024-07-31", "2024-08-31", "2024-09-30"]
    np.testing.assert_allclose(fit.log_prob({"y": series}),
                               fit.log_prob({"y": series.to_numpy()[None]}), rtol=1e-6)
