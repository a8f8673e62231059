"""An array whose numbers were found finite is not read again while an estimator is asked."""

import numpy as np

from probml.models import LogisticRegression
from probml.numerics.process import cores


def test_rows_of_an_estimator_are_looked_at_once(monkeypatch):
    looks = []
    own = cores.map_chunks
    monkeypatch.setattr(cores, "map_chunks", lambda function, array: looks.append(array)
                        or own(function, array))
    x = np.random.default_rng(0).normal(size=(50, 2))
    estimator = LogisticRegression().fit(x, x[:, 0] > 0)
    assert sum(array is x for array in looks) == 1
    x[3, 1] = np.nan
    assert not cores.finite(x)
    try:
        estimator.predict(x)
    except ValueError as error:
        assert "row 3" in str(error)
    else:
        raise AssertionError("a cell that went missing was not seen")


def test_what_is_not_finite_is_looked_at_again():
    x = np.array([1.0, np.nan])
    with cores.looked_at_once():
        assert not cores.finite(x)
        x[1] = 0.0
        assert cores.finite(x) and cores.finite(x)
    x[1] = np.inf
    assert not cores.finite(x)
