"""Answers about sequences keep what the user gave: dates and their frequency, index, names of
columns, the library of the table."""

import datetime

import numpy as np
import pandas as pd
import pytest

from probml.dataset.labels import labels_of
from probml.models import DynamicFactor, HiddenMarkov, StructuralTimeSeries

RANDOM = np.random.default_rng(0)
pytestmark = pytest.mark.filterwarnings("ignore:X (has|does not have valid) feature names")
LEVEL = np.cumsum(RANDOM.normal(size=60)) + RANDOM.normal(size=60)
STATES = HiddenMarkov(2)
STATES.startprob_, STATES.transmat_ = [0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]]
STATES.means_, STATES.covars_ = [[-2.0], [2.0]], [[1.0], [1.0]]


@pytest.fixture(scope="module")
def series():
    return StructuralTimeSeries("level").fit(LEVEL)


@pytest.mark.parametrize(("index", "ahead"), [
    (pd.date_range("2020-01-31", periods=60, freq="ME"), ["2025-01-31", "2025-02-28", "2025-03-31"]),
    (pd.DatetimeIndex(list(pd.date_range("2021-01-01", periods=60, freq="W-WED"))),
     ["2022-03-02", "2022-03-09", "2022-03-16"]),
    (pd.date_range("2021-03-01", periods=60, freq="D", tz="Europe/Rome", name="day"), None),
    (pd.period_range("2000Q1", periods=60, freq="Q", name="quarter"),
     ["2015Q1", "2015Q2", "2015Q3"]),
    (pd.RangeIndex(1871, 1931), [1931, 1932, 1933]),
    (pd.Index(range(0, 600, 10)), [600, 610, 620]),
    (pd.timedelta_range("0h", periods=60, freq="2h"), None),
    (pd.Index([f"step {i}" for i in range(60)]), [1, 2, 3]),
])
def test_a_forecast_continues_the_index(series, index, ahead):
    given = pd.Series(LEVEL, index, name="flow")
    found = series.forecast(given, 3)
    assert isinstance(found, pd.Series) and found.name == "flow"
    np.testing.assert_allclose(found, series.forecast(LEVEL, 3))
    if ahead is None:
        assert (np.diff(found.index) == index[1] - index[0]).all()
        assert found.index[0] - index[-1] == index[1] - index[0] and found.index.name == index.name
    elif isinstance(index, pd.DatetimeIndex | pd.PeriodIndex):
        assert [str(each)[:10] for each in found.index] == ahead
    else:
        assert found.index.tolist() == ahead
    table = series.forecast(given.to_frame(), 3)
    assert isinstance(table, pd.DataFrame) and list(table) == ["flow"]
    assert table.index.equals(found.index)
    bounds = series.forecast(given, 3, interval=0.9)
    assert list(bounds) == ["value", "lower", "upper"] and bounds.index.equals(found.index)


def test_dates_without_a_frequency_are_told(series):
    days = pd.DatetimeIndex(pd.date_range("2021-01-01", periods=61).delete(30))
    with pytest.warns(RuntimeWarning, match=r"no regular frequency .*asfreq"):
        found = series.forecast(pd.Series(LEVEL, days), 2)
    assert found.index.tolist() == [1, 2] and found.index.name == "step"


def test_components_have_the_rows_index_and_arrays_stay_as_they_were(series):
    months = pd.period_range("2000-01", periods=60, freq="M")
    parts = series.components(pd.Series(LEVEL, months))
    assert parts["level"].index.equals(months) and list(parts["level"]) == ["value", "lower", "upper"]
    plain = series.components(LEVEL)["level"]
    np.testing.assert_allclose(parts["level"], plain)
    assert plain.index.equals(pd.RangeIndex(60))
    assert isinstance(series.forecast(LEVEL, 2), np.ndarray)
    several = series.forecast([pd.Series(LEVEL, months), LEVEL], 2)
    assert isinstance(several[0], pd.Series) and isinstance(several[1], np.ndarray)


def test_a_series_is_imputed_as_a_series(series):
    days = pd.date_range("2021-01-01", periods=60)
    given = pd.Series(LEVEL, days, name="flow").mask(np.arange(60) == 30)
    found = series.impute(given)
    assert isinstance(found, pd.Series) and found.index.equals(days) and found.name == "flow"
    assert found.notna().all() and (found.drop(days[30]) == given.drop(days[30])).all()


def test_states_are_a_series_with_the_rows_index():
    days = pd.date_range("2024-02-28", periods=4)
    given = pd.DataFrame({"x": [-2.0, -2.0, 2.0, 2.0]}, days)
    states = STATES.predict(given)
    assert states.tolist() == [0, 0, 1, 1] and states.index.equals(days) and states.name == "state"
    score, path = STATES.decode(given, algorithm="map")
    assert path.tolist() == [0, 0, 1, 1] and 0 < score <= 4
    p = STATES.predict_proba(given)
    assert p.index.equals(days) and list(p) == [0, 1]
    np.testing.assert_allclose(p, STATES.predict_proba(given.to_numpy()))
    assert str(STATES.forecast(given, 1).index[0].date()) == "2024-03-03"
    assert list(STATES.forecast(given, 1)) == ["x"]
    assert isinstance(STATES.predict(given.to_numpy()), np.ndarray)


def test_a_column_of_dates_is_the_index_and_comes_along(series):
    given = pd.DataFrame({"day": pd.date_range("2024-02-28", periods=4), "x": [-2.0, -2, 2, 2]})
    states = STATES.predict(given)
    assert list(states) == ["day", "state"] and states["day"].equals(given["day"])
    ahead = STATES.forecast(given, 2)
    assert list(ahead) == ["day", "x"] and str(ahead["day"].iloc[-1].date()) == "2024-03-04"
    filled = series.impute(given.assign(x=[-2.0, np.nan, 2, 2]))
    assert list(filled) == ["day", "x"] and filled["x"].notna().all()
    numbers, labels = labels_of(pd.DataFrame({"a": [1], "day": [datetime.date(2024, 1, 1)]}))
    assert list(numbers) == ["a"] and labels.dates == "day"


def test_polars_in_is_polars_out(series):
    polars = pytest.importorskip("polars")
    day = datetime.date(2024, 1, 1)
    dates = [day + datetime.timedelta(days=i) for i in range(60)]
    given = polars.DataFrame({"day": dates, "flow": LEVEL})
    found = series.forecast(given, 2)
    assert isinstance(found, polars.DataFrame) and found.columns == ["day", "flow"]
    assert found["day"].dtype == polars.Date
    assert found["day"].to_list() == [dates[-1] + datetime.timedelta(days=i) for i in (1, 2)]
    np.testing.assert_allclose(found["flow"], series.forecast(LEVEL, 2))
    alone = series.forecast(polars.Series("flow", LEVEL), 2)
    assert isinstance(alone, polars.Series) and alone.name == "flow"
    parts = series.components(given)["level"]
    assert isinstance(parts, polars.DataFrame) and parts.columns == ["day", "value", "lower", "upper"]
    holes = given.with_columns(flow=polars.when(polars.col("flow") == LEVEL[7]).then(None)
                               .otherwise(polars.col("flow")))
    filled = series.impute(holes)
    assert isinstance(filled, polars.DataFrame) and filled["flow"].null_count() == 0
    assert filled.schema == given.schema
    listed = series.forecast([given, given], 2)
    assert [type(each) for each in listed] == [polars.DataFrame] * 2


def test_factors_and_forecasts_of_many_series():
    days = pd.date_range("2024-01-01", periods=50, freq="h")
    factor = np.cumsum(RANDOM.normal(size=50)) * 0.3
    given = pd.DataFrame(factor[:, None] * [1.0, 0.5, -1.0] + 0.2 * RANDOM.normal(size=(50, 3)),
                         days, ["a", "b", "c"])
    model = DynamicFactor(1).fit(given)
    ahead = model.forecast(given, 2)
    assert list(ahead) == ["a", "b", "c"] and ahead.index[0] == days[-1] + pd.Timedelta(hours=1)
    errors = model.standard_errors(given)
    assert errors.index.equals(days) and list(errors) == ["dynamicfactor0"]
    assert model.set_output(transform="pandas").transform(given).index.equals(days)


def test_exogenous_columns_have_their_names():
    x = pd.DataFrame({"price": RANDOM.normal(size=60)})
    model = StructuralTimeSeries("level").fit(LEVEL + 2.0 * x["price"].to_numpy(), exog=x)
    assert "beta[price]" in model.fit_.summary().index.tolist()
