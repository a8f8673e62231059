"""Of several starts the best fit is kept, with its warnings alone."""

import warnings
from types import SimpleNamespace

import pytest

from probml.estimators.estimator import best_of


def attempt(height, words):
    def fit():
        warnings.warn(words, UserWarning, stacklevel=1)
        return SimpleNamespace(history=[height])

    return fit


def test_what_other_starts_were_warned_of_is_not_said():
    with pytest.warns(UserWarning) as said:
        assert best_of([attempt(1.0, "low"), attempt(2.0, "high"), attempt(0.0, "lowest")]).history == [2.0]
    assert [str(each.message) for each in said] == ["high"]
