"""The perceptron: Rosenblatt's rule step by step, Novikoff's bound, several classes, its loss as a
model."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.datasets import load_iris, make_blobs
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import probml
from contract import contract
from probml.models import Perceptron, SupportVectorMachine

nan = np.nan
X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"], dtype=object)[Y]
TWO, SIGNS = X[:100], 2 * Y[:100] - 1

WEIGHTS = {f"check_sample_weight_equivalence_on_{kind}_data": "a row twice is two steps, one of "
           "weight 2 is one longer step" for kind in ("dense", "sparse")}


@pytest.mark.slow
@pytest.mark.one_in(3)
@contract(Perceptron(max_iter=50), expected={"Perceptron": WEIGHTS})
def test_the_estimator_keeps_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


def test_every_step_is_rosenblatts():
    w, mistakes, epochs, wrong = np.zeros(5), 0, 0, True
    rows = np.column_stack([TWO, np.ones(100)])
    while wrong:
        epochs += 1
        for x, sign in zip(rows, SIGNS, strict=True):
            if sign * (w @ x) <= 0:
                w, mistakes = w + sign * x, mistakes + 1
        wrong = (SIGNS * (rows @ w) <= 0).any()
    estimator = Perceptron(shuffle=False).fit(TWO, Y[:100])
    np.testing.assert_allclose(np.r_[estimator.coef_[0], estimator.intercept_], w, atol=1e-9)
    assert (estimator.mistakes_, estimator.n_iter_, estimator.converged_, estimator.mistaken_) == (mistakes, epochs,
                                                                               True, 0)


@pytest.mark.parametrize("seed", range(3))
def test_separable_classes_are_parted_within_novikoffs_bound(seed):
    rows = np.column_stack([TWO, np.ones(100)])
    widest = SupportVectorMachine(C=1e6, kernel="linear", tol=1e-8).fit(TWO, Y[:100])
    plane = np.r_[widest.coef_[0], widest.intercept_]
    margin = (SIGNS * (rows @ plane)).min() / np.linalg.norm(plane)
    estimator = Perceptron(random_state=seed).fit(TWO, NAMES[:100])
    assert estimator.converged_ and 0 < estimator.mistakes_ <= (
        np.linalg.norm(rows, axis=1).max() / margin
    ) ** 2
    np.testing.assert_array_equal(estimator.predict(TWO), NAMES[:100])


def test_several_classes_are_parted_together():
    # no plane parts the second from the rest
    x, y = make_blobs(120, centers=[[-4, 0], [0, 0], [4, 0]], cluster_std=0.4, random_state=0)
    estimator = Perceptron().fit(x, y)
    assert estimator.converged_ and estimator.coef_.shape == (3, 2) and estimator.decision_function(x).shape == (
        120, 3
    )
    np.testing.assert_array_equal(estimator.predict(x), y)


def test_classes_that_no_plane_parts_leave_the_best_planes_and_a_warning():
    with pytest.warns(RuntimeWarning, match="max_iter=60 epochs, and the best separating hyperplanes misclassify . of 150 "
                      "rows.*Standardise"):
        estimator = Perceptron(max_iter=60).fit(X, Y)
    assert not estimator.converged_ and estimator.n_iter_ == 60
    assert (estimator.predict(X) != Y).sum() == estimator.mistaken_ <= 9


def test_the_order_of_rows_comes_from_the_seed():
    one, same, other = (Perceptron(random_state=seed).fit(TWO, SIGNS) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.coef_, same.coef_)
    assert not np.array_equal(one.coef_, other.coef_)


def test_rows_of_weight_zero_are_not_there_and_steps_are_weighted():
    weights = np.arange(100) % 3
    one = Perceptron(shuffle=False).fit(TWO, SIGNS, sample_weight=weights > 0)
    two = Perceptron(shuffle=False).fit(TWO[weights > 0], SIGNS[weights > 0])
    np.testing.assert_allclose(one.coef_, two.coef_)
    single, triple = (Perceptron(shuffle=False).fit(TWO, SIGNS, sample_weight=np.full(100, w))
                      for w in (1.0, 3.0))
    np.testing.assert_allclose(triple.coef_, 3 * single.coef_)
    through = Perceptron(fit_intercept=False).fit(TWO, SIGNS)
    assert through.intercept_ == [0.0] and through.converged_


def test_the_fit_has_the_classes_and_the_loss_as_it_is_written():
    with pytest.warns(RuntimeWarning, match="stopped"):
        several = Perceptron(max_iter=5).fit(X, NAMES)
    for estimator, x in ((several, X), (Perceptron().fit(TWO, NAMES[:100]), TWO)):
        np.testing.assert_array_equal(estimator.fit_.predict(estimator.as_data(x)), estimator.predict(x))
        with pytest.raises(probml.Refusal, match="needs the likelihood of a row.*'mistake'"):
            probml.compare({"perceptron": estimator.fit_}, estimator.as_data(x, NAMES[: len(x)]))
    scores = several.decision_function(X)
    loss = np.maximum(
        np.where(np.eye(3, dtype=bool)[Y], -np.inf, scores).max(1) - scores[np.arange(150), Y], 0
    )
    data = several.as_data(X, NAMES)
    np.testing.assert_allclose(several.fit_.log_joint(data), (np.log(1 / 3) - loss).sum(),
                               rtol=1e-9)
    with pytest.raises(probml.Refusal, match="log_prob needs a likelihood.*'mistake'"):
        several.fit_.log_prob(data)


def test_it_works_in_pipelines_and_searches():
    line = make_pipeline(StandardScaler(), Perceptron())
    search = GridSearchCV(line, {"perceptron__fit_intercept": [True, False]}, cv=2).fit(TWO, SIGNS)
    assert search.best_score_ > 0.97


@pytest.mark.parametrize(
    ("estimator", "x", "y", "words"),
    [
        (Perceptron(max_iter=0), X, Y, "max_iter=0"),
        (Perceptron(shuffle="yes"), X, Y, "shuffle='yes'"),
        (Perceptron(random_state=-1), X, Y, "random_state=-1"),
        (Perceptron(), X, np.ones(150), "greater than one; y has 1 class"),
        (Perceptron(), X, np.linspace(0, 1, 150), "continuous"),
        (Perceptron(), np.where(np.arange(150)[:, None] == 7, [1.0, nan, 1.0, 1.0], X), Y,
         "column 1 is missing in row 7"),
        (Perceptron(), X, np.where(Y == 1, None, NAMES), "y is missing in row 50"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(estimator, x, y, words):
    with pytest.raises(ValueError, match=words):
        estimator.fit(x, y)
