"""The estimator of item response: held to ltm's fit of the LSAT, and to its own function."""

import json

import numpy as np
import pytest

import probml
from probml.models import ItemResponse

nan = np.nan


def answers(n=80):
    rng = np.random.default_rng(0)
    ability, hard = rng.normal(size=(n, 1)), np.array([-1.0, 0.0, 1.0])
    return (rng.random((n, 3)) < 1 / (1 + np.exp(-1.5 * (ability - hard)))).astype(float)


@pytest.fixture(scope="module")
def estimator():
    X = answers()
    X[3, 1] = X[7] = nan
    return ItemResponse().fit(X)


def test_abilities_rise_with_answers_and_are_0_without_any(estimator):
    some = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 1], [nan, nan, nan]])
    found = estimator.transform(some)
    assert found.shape == (4, 1) and found[0] < found[1] < found[2]
    assert found[3] == pytest.approx(0.0, abs=1e-6)
    assert estimator.standard_errors(some)[3] == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_allclose(estimator.difficulty_, -estimator.easiness_ / estimator.discrimination_)
    assert np.all(np.diff(estimator.difficulty_) > 0)
    assert estimator.information([0.0]).shape == (1,) and estimator.converged_


def test_answers_that_are_none_are_refused_by_name():
    X = answers()
    X[4, 2] = 2.0
    with pytest.raises(probml.DataError, match="column 2 of X is 2 in row 4"):
        ItemResponse().fit(X)
    X[:, 2] = 1.0
    with pytest.raises(probml.DataError, match="column 2 has the answer 1 for every person"):
        ItemResponse(prior=False).fit(X)


@pytest.mark.slow
def test_the_lsat_is_that_of_ltm(shared_data):
    table = np.genfromtxt(shared_data / "classic" / "lsat.csv", delimiter=",", skip_header=1)
    want = json.loads((shared_data / "fits" / "irt_lsat.json").read_text())["fits"]["two_pl"]
    estimator = ItemResponse(prior=False).fit(table[:, -5:])
    assert estimator.loglik_ == pytest.approx(want["loglik"], abs=1e-4)
    np.testing.assert_allclose(estimator.discrimination_, list(want["discrimination"].values()),
                               rtol=2e-3)


@pytest.mark.slow
def test_an_item_that_the_able_answer_by_0_is_named(shared_data):
    table = np.genfromtxt(shared_data / "classic" / "lsat.csv", delimiter=",", skip_header=1)[:, -5:]
    table[:, 2] = 1 - table[:, 2]
    with pytest.warns(probml.ReliabilityWarning, match="discrimination of column 2 is 0.*Reverse"):
        ItemResponse(prior=False).fit(table)
