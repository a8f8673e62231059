"""Rows without labels: a warning where they hurt, a weight that mends it, silence where they
help."""

import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")
from probml import DataError, ModelError
from probml.models import GaussianDiscriminant, NaiveBayes

nan = np.nan


def misled(n=400, labelled=60):
    """Columns that cluster by something else than the class: four of them by a hidden group, one by
    the class."""
    random = np.random.default_rng(0)
    group, y = random.integers(2, size=n), random.integers(2, size=n)
    x = random.normal(size=(n, 5)) + 4 * group[
        :, None
    ] * np.array([1, 1, 1, 1, 0]) + 1.5 * y[:, None] * np.array([0, 0, 0, 0, 1])
    return x, y, np.where(np.arange(n) < labelled, y, nan)


def helped(n=400, labelled=12):
    """Columns that cluster by the class, of which few labels are seen."""
    random = np.random.default_rng(1)
    y = random.integers(2, size=n)
    return random.normal(size=(n, 3)) + 3 * y[:, None], y, np.where(np.arange(n) < labelled, y, nan)


def test_unlabelled_rows_that_hurt_are_said_with_the_weight_that_helps():
    x, y, seen = misled()
    with pytest.warns(UserWarning, match=r"unlabelled rows \(340\) lower the log-likelihood of "
                      r"held-out labels.*unlabelled_weight=\d"):
        hurt = NaiveBayes().fit(x, seen)
    assert "log-likelihood of held-out labels" in hurt.status and hurt.unlabelled_weight_ == 1.0
    chosen = NaiveBayes(unlabelled_weight="auto").fit(x, seen)
    rest = np.isnan(seen)
    assert chosen.unlabelled_weight_ < 0.5 and "chosen by the log score" in chosen.status
    assert chosen.score(x[rest], y[rest]) > 0.7 > 0.6 > hurt.score(x[rest], y[rest])


def test_unlabelled_rows_that_help_are_used_without_a_word():
    x, y, seen = helped()
    rest = np.isnan(seen)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator = NaiveBayes().fit(x, seen)
    assert estimator.score(x[rest], y[rest]) > 0.97 and estimator.status == str(estimator.fit_.status)


def test_a_weight_of_zero_is_the_fit_to_the_labelled_rows_alone():
    x, _, seen = misled()
    known = ~np.isnan(seen)
    without = GaussianDiscriminant("diag", unlabelled_weight=0, centre=0.0, scale=0.1).fit(x, seen)
    alone = GaussianDiscriminant("diag", centre=0.0, scale=0.1).fit(x[known],
                                                                    seen[known].astype(int))
    np.testing.assert_allclose(without.means_, alone.means_, rtol=1e-5)
    np.testing.assert_allclose(without.predict_proba(x), alone.predict_proba(x), atol=1e-5)


def test_a_weight_counts_an_unlabelled_row_as_that_part_of_one():
    x, _, seen = misled(120, 40)
    weights = np.where(np.isnan(seen), 0.1, 1.0)
    light = NaiveBayes(unlabelled_weight=0.1, centre=0.0, scale=0.1)
    by_hand = NaiveBayes(centre=0.0, scale=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(light.fit(x, seen).theta_, by_hand.fit(x, seen, weights).theta_,
                                   rtol=1e-4)


def test_weights_that_are_none_are_refused():
    x, _, seen = misled(40, 20)
    for wrong in (-1, "most", True, np.inf):
        with pytest.raises(ModelError, match="unlabelled_weight.*'auto'"):
            NaiveBayes(unlabelled_weight=wrong).fit(x, seen)


def test_one_label_of_a_class_leaves_the_rows_at_their_weight():
    x, _, seen = misled(60, 20)
    seen[:] = nan
    seen[0], seen[1] = 0, 1
    estimator = NaiveBayes(unlabelled_weight="auto").fit(x, seen)
    assert estimator.unlabelled_weight_ == 1.0 and "too few labels" in estimator.status
    with pytest.raises(DataError, match="every label in y is missing"):
        estimator.fit(x, np.full(60, nan))
