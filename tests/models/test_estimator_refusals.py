"""What the estimators refuse: every bad parameter, column, cell and label has a message of its own,
before anything is compiled."""

import dataclasses
import inspect

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
from sklearn.datasets import load_iris

import probml
import probml.models
from probml.estimators.estimator import Estimator
from probml.estimators.rules import rules
from probml.fits import memory
from probml.models import (
    GaussianDiscriminant,
    GaussianMixture,
    LatentClass,
    MixedMixture,
    MixtureDiscriminant,
    NaiveBayes,
    PoissonMixture,
)

nan = np.nan
X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"], dtype=object)[Y]
COUNTS = np.round(10 * X)


ESTIMATORS = [estimator for estimator in map(probml.models.__getattr__, probml.models._LATE)
         if inspect.isclass(estimator) and issubclass(estimator, Estimator)]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_estimator_says_each_parameter_once_with_its_rule(estimator):
    made = inspect.signature(estimator).parameters.values()
    assert [p.name for p in made] == [f.name for f in sorted(
        (f for f in dataclasses.fields(estimator) if f.init), key=lambda f: f.kw_only
    )]
    assert {p.name for p in made} == {*estimator().get_params()} == {*rules(estimator())}
    for name, (_, valid) in rules(estimator()).items():
        assert valid(getattr(estimator(), name)), f"the default of {name} breaks its rule"
    # only the first is given by its place
    assert all(p.kind is p.KEYWORD_ONLY for p in [*made][1:])
    assert "__init__" not in inspect.getsource(estimator)


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (GaussianMixture(0), r"n_components=0.*at least 1"),
        (GaussianMixture(2.5), r"n_components=2.5.*integer"),
        (GaussianMixture(2, covariance_type="round"),
         r"covariance_type='round'.*'full'.*'tied spherical'"),
        (GaussianMixture(2, tol=-1), r"tol=-1.*at least 0"),
        (GaussianMixture(2, prior="no"), r"prior='no'.*True or False"),
        (GaussianMixture(2, engine="EM"), r"engine='EM'.*probml.EM\(\)"),
        (GaussianMixture(2, means_init=np.zeros((2, 3))), r"means_init.*\(2, 3\).*\(2, 4\)"),
        (GaussianMixture(2, concentration=0), r"concentration=0.*above 0"),
        (GaussianMixture(200), "n_components=200.*distinct rows.*components"),
        (LatentClass(200), "n_components=200.*distinct rows.*components"),
        (MixedMixture(kinds="gamma"), "kinds.*'gamma'.*'poisson'"),
        (MixedMixture(kinds={7: "poisson"}), "kinds contains 7.*0, 1, 2, 3"),
        (MixedMixture(categorical=["height"]), "categorical contains 'height'"),
        (PoissonMixture(), r"column 0 is 5.1 in row 0.*'poisson', needs an integer"),
    ],
)
def test_a_bad_parameter_is_refused_by_name(estimator, words):
    with pytest.raises(ValueError, match=words):
        estimator.fit(X)


def changed(row, column, value):
    out = X.astype(object) if isinstance(value, str) else X.copy()
    out[row, column] = value
    return out


@pytest.mark.parametrize(
    ("estimator", "x", "y", "words"),
    [
        (NaiveBayes(prior=False), changed(slice(None), 2, 1.0), Y, "column 2 is constant"),
        (GaussianMixture(2, prior=False), changed(slice(None), 2, 1.0), None,
         "column 2 is constant"),
        (GaussianDiscriminant(prior=False), changed(Y == 1, 2, 1.0), Y,
         "column 2 is constant in class 1"),
        (GaussianDiscriminant("shared", prior=False), changed(slice(None), 2, 1.0), Y,
         "column 2 is constant in every class"),
        (NaiveBayes(prior=False), X, np.where(np.arange(150) == 0, "lone", NAMES),
         "class 'lone' has only 1 row"),
        (GaussianDiscriminant(prior=False), X, np.where(np.arange(150) == 0, "lone", NAMES),
         "class 'lone' has only 1 row"),
        (MixtureDiscriminant(2), X, np.where(np.arange(150) == 0, "lone", NAMES),
         "class 'lone' has 1 distinct row, fewer than n_components=2"),
        (NaiveBayes(kinds="poisson"), -COUNTS, Y,
         "Negative values in data: column 0.*-51 in row 0"),
        (NaiveBayes(kinds="multinomial"), X, Y,
         "column 0 is 5.1 in row 0.*'multinomial', needs an integer"),
        (NaiveBayes(kinds="bernoulli"), COUNTS, Y, "column 0 is 51 in row 0.*needs 0 or 1"),
        (GaussianMixture(2), np.full((10, 2), nan), None, "every value of X is missing"),
        (LatentClass(2), np.full((10, 2), None), None, "every value of X is missing"),
        (GaussianMixture(2), changed(slice(None), 1, nan), None,
         "column 1 of X is missing in every row"),
        (NaiveBayes(), changed(slice(None), 1, nan), Y, "column 1 of X is missing in every row"),
        (NaiveBayes(), changed(4, 1, "tall"), Y, "column 1 of X, row 4: .*'tall'"),
        (GaussianMixture(2), pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, "x"]}), None,
         "column 'b' of X, row 1: .*'x'"),
        (NaiveBayes(), X, np.full(150, None), "every label in y is missing"),
        (NaiveBayes(), X, None, "requires y"),
        (NaiveBayes(), X, Y[:100], "inconsistent numbers of samples"),
    ],
)
def test_bad_data_are_refused_by_name(estimator, x, y, words):
    with pytest.raises(ValueError, match=words):
        estimator.fit(x, y)


def test_an_infinite_cell_is_refused():
    with pytest.raises(ValueError, match="infinity"):
        NaiveBayes().fit(changed(0, 0, np.inf), Y)


@pytest.mark.parametrize("estimator", [GaussianMixture(2), GaussianDiscriminant()])
def test_a_column_of_times_beside_numbers_is_refused_by_name(estimator):
    begin = pd.Timestamp("2026-11-23", tz="Europe/Berlin")
    table = pd.DataFrame({"width": X[:, 0], "day": begin + pd.to_timedelta(X[:, 1], "D")})
    with pytest.raises(probml.DataError, match="column 'day' of X contains dates or times"):
        estimator.fit(table, Y)


@pytest.mark.parametrize("linear", [0.5, 1.0])
def test_straight_columns_are_a_list(linear):
    with pytest.raises(probml.ModelError, match=r"SmoothingSpline\(linear=.*such as \['age'\]"):
        probml.models.SmoothingSpline(linear=linear).fit(np.arange(24.0)[:, None] ** 0.5, np.arange(24.0))


@pytest.mark.parametrize("categories", [3, "auto", [[0, 1], [0, 1]], [0, 0, 1], []])
def test_categories_are_a_list_of_values_each_once(categories):
    with pytest.raises(probml.ModelError, match="categories="):
        probml.models.LatentClass(2, categories=categories).fit(np.arange(12).reshape(6, 2) % 2)


def test_matrices_that_do_not_fit_into_memory_are_refused_with_their_size(monkeypatch):
    monkeypatch.setattr(memory, "usable", lambda: 1e5)
    x = np.random.default_rng(0).normal(size=(40, 30))
    with pytest.raises(probml.DataError, match="2 × 30 × 30 numbers.* can use 0.0 GB"):
        probml.models.GaussianMixture(2).fit(x)
    probml.models.GaussianMixture(2, covariance_type="diag").fit(x)


@pytest.mark.parametrize("covariance, count", [("own", 4), ("shared", 1)])
def test_discriminants_by_mixtures_are_refused_before_their_start_is_made(covariance, count,
                                                                          monkeypatch):
    monkeypatch.setattr(memory, "usable", lambda: 1e4)
    x, y = np.random.default_rng(0).normal(size=(40, 30)), np.arange(40) % 2
    with pytest.raises(probml.DataError, match=f"MixtureDiscriminant.*{count} × 30 × 30 numbers"):
        MixtureDiscriminant(covariance=covariance).fit(x, y)


def test_columns_whose_cube_is_too_much_work_are_refused_with_their_size():
    with pytest.raises(probml.DataError, match="10,000 columns need .* 0.8 GB each"):
        probml.models.BayesianLinearRegression().fit(np.zeros((3, 10_000)), np.arange(3.0))
