"""What no estimator can take is refused by column, row and kind."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
from scipy.stats import norm

import probml
from probml import models

X = np.array([[0.1, 1.0], [0.9, 0.5], [2.1, 0.2], [2.9, 1.3], [4.2, 0.7], [5.0, 0.1]])
Y = np.array([0.0, 1.1, 1.9, 3.2, 3.9, 5.1])
CELLS = {"lists": [[1.0, 2.0]] * 6, "dicts": [{}] * 6, "bytes": [b"a"] * 6,
         "periods": pd.period_range("2020", periods=6), "intervals": pd.interval_range(0, 6),
         "text": pd.Series([None, *"uvuvu"], dtype="string")}


@pytest.mark.parametrize("kind", CELLS)
def test_cells_that_are_no_numbers_are_refused_by_column_and_row(kind):
    table = pd.DataFrame({"a": CELLS[kind], "b": X[:, 1]})
    with pytest.raises(probml.DataError, match="column 'a'.*, row [01]"):
        models.BayesianLinearRegression().fit(table, Y)


@pytest.mark.parametrize("kind", ["lists", "dicts"])
def test_cells_of_several_values_are_no_category(kind):
    table = pd.DataFrame({"a": CELLS[kind], "b": X[:, 1]})
    with pytest.raises(probml.DataError, match="column 'a'"):
        models.MixedMixture(2, n_init=1).fit(table)


@pytest.mark.parametrize("dated", [pd.to_datetime, pd.to_timedelta, lambda x: pd.to_datetime(x).dt.date])
def test_dates_in_the_place_of_numbers_are_refused_when_asked(dated):
    """As floats they would be counts of some part of a second."""
    table = pd.DataFrame(X, columns=["a", "b"])
    for estimator in (models.NaiveBayes().fit(table, Y > 2), models.MixedMixture(2, n_init=1).fit(table)):
        with pytest.raises(probml.DataError, match="'a' contains dates or times"):
            estimator.predict(table.assign(a=dated(table["a"])))


def test_dates_are_no_codes():
    """NumPy makes whole numbers of moments in nanoseconds, and 0 and 1 are codes."""
    codes = pd.DataFrame({"a": [0, 1, 0, 1, 1, 0], "b": [0, 1, 0, 1, 0, 0]})
    estimator = models.LatentClass(2, n_init=1).fit(codes)
    with pytest.raises(probml.DataError, match="not in the training data"):
        estimator.predict(codes.astype(float).apply(pd.to_datetime))


def test_intervals_are_categories_of_a_mixture():
    table = pd.DataFrame({"a": pd.cut(X[:, 0], 2), "b": X[:, 1]})
    drawn, _ = models.MixedMixture(2, n_init=1).fit(table).sample(4)
    assert set(drawn[:, 0]) <= set(table["a"])


def test_the_log_density_of_a_process_is_of_one_answer_a_row():
    with pytest.warns(probml.ConvergenceWarning, match="slowly as 'length.*limit"):  # of the second column
        estimator = models.GaussianProcess(n_starts=1).fit(X, Y)
    mean, spread = estimator.predict(X, return_std=True)
    seen = np.where(np.arange(6) == 2, np.nan, Y)
    right = np.where(np.isnan(seen), 0.0, norm.logpdf(Y, mean, spread))
    np.testing.assert_allclose(estimator.log_prob(X, seen), right, rtol=1e-6)
    with pytest.raises(ValueError, match="1d array"):
        estimator.log_prob(X, np.ones((6, 2)))
