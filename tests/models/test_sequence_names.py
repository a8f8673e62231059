"""Estimators of sequences keep the names of columns, and hold new sequences to them."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")

from probml import DataError  # noqa: E402
from probml.models import HiddenMarkov  # noqa: E402
from probml.models.chains.sequences import OfSequences  # noqa: E402

TABLE = pd.DataFrame({"heart": np.r_[np.zeros(6), np.ones(6)], "breath": np.arange(12.0) % 5})


class Named(OfSequences):
    """What reads sequences, and nothing more."""

    def __init__(self):
        self.engine = None


def test_names_are_those_of_the_table_also_in_a_list():
    for given in (TABLE, [TABLE[:6], TABLE[6:]]):
        estimator = Named()
        estimator._steps(given, None, reset=True)
        assert estimator.feature_names_in_.tolist() == ["heart", "breath"]
        with pytest.raises(ValueError, match="feature names should match"):
            estimator._steps(TABLE[["breath", "heart"]], None, reset=False)
    estimator._steps(TABLE.to_numpy(), None, reset=True)
    assert not hasattr(estimator, "feature_names_in_")


@pytest.mark.slow
def test_a_hidden_markov_model_refuses_other_columns():
    estimator = HiddenMarkov(1, n_init=1, max_iter=5).fit(TABLE)
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.predict(TABLE.rename(columns={"heart": "pulse"}))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_hmmlearns_fit_takes_lengths_second():
    """States have the length of X, so that lengths cannot be mistaken for them."""
    x = np.random.default_rng(0).normal(size=(30, 2))
    one = HiddenMarkov(2, n_init=1, max_iter=3).fit(x, [10, 20])
    other = HiddenMarkov(2, n_init=1, max_iter=3).fit(x, lengths=[10, 20])
    np.testing.assert_array_equal(one.means_, other.means_)
    with pytest.raises(DataError, match="y has the shape"):
        HiddenMarkov(2).fit(x, [10, 19])
    states = np.where(np.arange(30) < 15, 0, 1)
    known = HiddenMarkov(2, max_iter=3).fit(x, states)
    np.testing.assert_allclose(known.means_, [x[:15].mean(0), x[15:].mean(0)], atol=1e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_hmmlearns_attributes():
    x = np.random.default_rng(0).normal(size=(30, 2))
    estimator = HiddenMarkov(2, n_init=1, max_iter=3).fit(x)
    assert (estimator.n_components, estimator.n_features) == (2, 2)
    assert estimator.monitor_.iter == estimator.n_iter_ and estimator.monitor_.history == list(estimator.history_)
    symbols = HiddenMarkov(2, emission="categorical")
    symbols.n_features = 5
    assert symbols.n_features == symbols.n_symbols == 5
    assert not hasattr(HiddenMarkov(2), "monitor_")


def test_a_categorical_model_is_its_parameters_as_hmmlearns():
    """The example of Wikipedia's article on the Viterbi algorithm: p = 0.01344."""
    estimator = HiddenMarkov(2, emission="categorical")
    estimator.startprob_, estimator.transmat_ = [0.6, 0.4], [[0.7, 0.3], [0.4, 0.6]]
    estimator.emissionprob_ = [[0.1, 0.4, 0.5], [0.6, 0.3, 0.1]]
    log, path = estimator.decode([[0], [1], [2]], algorithm="viterbi")
    assert round(np.exp(log), 5) == 0.01344 and path.tolist() == [1, 0, 0]
    assert estimator.n_features == 3 and len(estimator.sample(20, random_state=0)[0]) == 20
