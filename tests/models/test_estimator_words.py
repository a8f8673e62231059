"""Tables and targets that estimators refuse in words of their own: which cell, and what to do."""

import numpy as np
import pandas as pd
import pytest

import probml
from probml.models import BayesianLinearRegression, HiddenMarkov, NaiveBayes, SmoothingSpline

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(10, 3))
LABELS = np.arange(10) % 2


def test_an_infinite_cell_is_named_by_row_and_column():
    table = pd.DataFrame(X, columns=list("abc"))
    table.loc[4, "b"] = np.inf
    for given, name in ((table.to_numpy(), "column 1"), (table, "'b'")):
        with pytest.raises(probml.DataError, match=f"{name}.* row 4"):
            NaiveBayes().fit(given, LABELS)


def test_columns_of_one_name_are_refused():
    with pytest.raises(probml.DataError, match="2 columns named 'a'. Rename"):
        NaiveBayes().fit(pd.DataFrame(X, columns=["a", "a", "c"]), LABELS)


def test_a_target_that_is_missing_is_named_by_row():
    y = X[:, 0].copy()
    y[2] = np.nan
    with pytest.raises(probml.DataError, match="y contains NaN in row 2"):
        BayesianLinearRegression().fit(X, y)


def test_one_axis_is_told_how_to_be_a_column():
    with pytest.raises(probml.DataError, match=r"shape \(10,\).*X\[:, None\]"):
        SmoothingSpline().fit(X[:, 0], X[:, 1])


def test_symbols_that_are_text_are_told_how_to_be_numbered():
    for symbols in (np.array(list("abab")), [["a", "b"], ["b"]]):
        with pytest.raises(probml.DataError, match="'a'.* pandas.factorize"):
            HiddenMarkov(2, emission="categorical").fit(symbols)


def test_noise_and_weights_are_not_told_apart_by_one_number():
    with pytest.raises(probml.DataError, match="n_samples=2: too few rows to estimate the standard deviation of the noise .*scale of the"):
        BayesianLinearRegression().fit(X[:2], X[:2, 0])
    with pytest.raises(probml.DataError, match="weights sum to 0.01 rows"):
        BayesianLinearRegression().fit(X, X[:, 0], sample_weight=np.full(10, 1e-3))
    assert np.isfinite(BayesianLinearRegression(noise=0.1).fit(X[:2], X[:2, 0]).coef_).all()


def test_rows_that_weights_meet_exactly_say_that_their_noise_is_none():
    few = X[:3]
    y = np.linalg.svd(few - few.mean(0))[0][:, 0]  # along the rows' widest direction alone
    with pytest.warns(RuntimeWarning, match="noise was estimated as nearly 0.*3 weights can fit all rows exactly"):
        estimator = BayesianLinearRegression().fit(few, y)
    assert "noise was estimated as nearly 0" in estimator.status
