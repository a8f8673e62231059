"""What an estimator is told of the kinds of its columns, and cannot read, is refused by name."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
import probml
from probml.models import NaiveBayes

X, Y = np.arange(12.0).reshape(6, 2), np.arange(6) % 2


@pytest.mark.parametrize(("setting", "words"), [
    ({"kinds": 5}, "kinds=5: expected None, one kind"), ({"kinds": ["normal"]}, "kinds=.*expected None"),
    ({"categorical": 3}, "categorical=3: expected None, 'all', or a list"),
    ({"categorical": np.array(1.0)}, "categorical=.*expected None")])
def test_settings_of_columns_that_are_none_are_refused_by_name(setting, words):
    with pytest.raises(probml.ModelError, match=words):
        NaiveBayes(**setting).fit(X, Y)
