"""Moments of columns in groups, and the clusters in which an estimator measures them, are those of all
rows at once, however many are looked at together."""

import numpy as np
import pytest

from probml.models.frames import clusters, units

RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(300, 3)) * [1.0, 50.0, 1e-3] + [0.0, 1e6, 3.0]
CODES = RANDOM.choice([0.0, 1.0, np.nan], size=300)


@pytest.mark.parametrize("holes", (False, True), ids=("complete", "with holes"))
@pytest.mark.parametrize("weights", (None, RANDOM.random(300)), ids=("alike", "weighed"))
def test_moments_are_those_of_each_group(monkeypatch, holes, weights):
    monkeypatch.setattr(units, "TOGETHER", 100)
    x = np.where(RANDOM.random(X.shape) < 0.3, np.nan, X) if holes else X
    found = units.moments(x, weights, CODES, 3)  # nobody is in the third group
    w = np.ones(300) if weights is None else weights
    for group, mine in enumerate((CODES == 0, CODES == 1, np.zeros(300, bool), np.isnan(CODES))):
        for j in range(3):
            own = mine & ~np.isnan(x[:, j])
            if not own.any():
                assert found.weight[group, j] == found.mean[group, j] == found.square[group, j] == 0
                continue
            mean = np.average(x[own, j], weights=w[own])
            np.testing.assert_allclose(found.weight[group, j], w[own].sum())
            np.testing.assert_allclose(found.mean[group, j], mean, rtol=1e-12)
            np.testing.assert_allclose(found.square[group, j],
                                       (w[own] * (x[own, j] - mean) ** 2).sum(), rtol=1e-9)


def test_clusters_are_the_same_some_rows_at_a_time(monkeypatch):
    whole = clusters.clusters(X, 4)
    monkeypatch.setattr(clusters, "CHUNK", 7)
    np.testing.assert_array_equal(clusters.clusters(X, 4), whole)
