"""Medoids are the best of all choices, or no exchange betters them; memberships satisfy their
equations, and near m = 1 are k-means."""

import itertools

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import nan_euclidean_distances, pairwise_distances

from contract import DENSE, contract
from probml import DataError
from probml.models import FuzzyCMeans, KMedoids
from probml.models.mixtures.prototype_estimators import medoids


def groups(n=30, seed=0):
    random = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0], [6.0, 1.0], [2.0, 7.0]])
    return centres[np.arange(n) % 3] + random.normal(size=(n, 2))


def loss(distances, chosen, weights=1.0):
    return (distances[:, list(chosen)].min(1) * weights).sum()


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_medoids_are_the_best_of_all_choices(metric):
    X = groups(18)
    distances = pairwise_distances(X, metric=metric)
    every = min(itertools.combinations(range(18), 3), key=lambda each: loss(distances, each))
    estimator = KMedoids(3, metric=metric).fit(X)
    assert set(estimator.medoid_indices_) == set(every)
    np.testing.assert_allclose(estimator.inertia_, loss(distances, every))
    np.testing.assert_array_equal(estimator.labels_, estimator.predict(X))
    np.testing.assert_array_equal(estimator.cluster_centers_, X[estimator.medoid_indices_])
    assert (np.diff(np.bincount(estimator.labels_)) <= 0).all()
    by_distances = KMedoids(3, metric="precomputed").fit(distances)
    np.testing.assert_array_equal(by_distances.labels_, estimator.labels_)
    np.testing.assert_array_equal(by_distances.predict(distances), estimator.labels_)


def test_no_exchange_betters_what_an_exchange_left():
    X = np.random.default_rng(1).normal(size=(40, 3))
    distances = pairwise_distances(X)
    weights = np.random.default_rng(2).integers(0, 3, 40).astype(float)
    found = medoids(distances, weights, np.flatnonzero(weights)[:5])
    np.testing.assert_allclose(found.loss, loss(distances, found.chosen, weights))
    for i, x in itertools.product(range(5), np.flatnonzero(weights)):
        other = found.chosen.copy()
        other[i] = x
        assert loss(distances, other, weights) >= found.loss - 1e-9


def test_weights_count_rows():
    X = groups(12)
    times = np.random.default_rng(0).integers(1, 4, 12)
    one = KMedoids(2, n_init=10).fit(X, sample_weight=times)
    many = KMedoids(2, n_init=10).fit(np.repeat(X, times, 0))
    np.testing.assert_allclose(one.inertia_, many.inertia_)
    fuzzy = FuzzyCMeans(2, tol=1e-13).fit(X, sample_weight=times)
    repeated = FuzzyCMeans(2, tol=1e-13).fit(np.repeat(X, times, 0))
    np.testing.assert_allclose(fuzzy.cluster_centers_, repeated.cluster_centers_, atol=1e-4)


def test_memberships_and_centres_satisfy_their_equations():
    X = groups()
    estimator = FuzzyCMeans(3, fuzziness=1.7, tol=1e-14).fit(X)
    assert estimator.converged_ and (np.diff(estimator.history_) <= 1e-12).all()
    d = pairwise_distances(X, estimator.cluster_centers_)
    expected = 1 / ((d[:, :, None] / d[:, None]) ** (2 / 0.7)).sum(2)
    np.testing.assert_allclose(estimator.memberships_, expected, atol=1e-5)
    np.testing.assert_allclose(estimator.predict_proba(X), expected, atol=1e-5)
    powers = estimator.memberships_**1.7
    np.testing.assert_allclose(estimator.cluster_centers_, powers.T @ X / powers.sum(0)[:, None],
                               atol=1e-5)
    np.testing.assert_allclose(estimator.objective_, (powers * d**2).sum(), rtol=1e-6)
    on_one = estimator.predict_proba(estimator.cluster_centers_)
    np.testing.assert_allclose(on_one, np.eye(3), atol=1e-12)


def test_little_fuzziness_is_k_means():
    X = groups()
    estimator = FuzzyCMeans(3, fuzziness=1.02).fit(X)
    means = KMeans(3, n_init=10, random_state=0).fit(X)
    np.testing.assert_allclose(estimator.objective_, means.inertia_, rtol=1e-3)
    assert len(set(zip(estimator.labels_, means.labels_, strict=True))) == 3


def test_cells_may_be_unseen():
    X = groups(60)
    hidden = np.random.default_rng(5).random(X.shape) < 0.15
    hidden[hidden.all(1)] = False
    holes, truth = np.where(hidden, np.nan, X), np.arange(60) % 3
    fuzzy, sure = FuzzyCMeans(3).fit(holes), KMedoids(3, metric="sqeuclidean").fit(X)
    for labels in (fuzzy.labels_, sure.labels_, fuzzy.predict(holes)):
        pairs = np.unique(np.stack([labels, truth]), axis=1, return_counts=True)[1]
        assert np.sort(pairs)[-3:].sum() >= 54  # of 60
    whole = holes.copy()
    whole[np.isnan(whole[:, 0]), 0] = 0.0  # then every two rows have a cell in common
    estimator = KMedoids(3).fit(whole)
    np.testing.assert_allclose(estimator.inertia_, loss(nan_euclidean_distances(whole),
                                                        estimator.medoid_indices_))


def test_what_cannot_be_grouped_is_refused():
    X = groups(6)
    with pytest.raises(DataError, match="6 rows .* at most 6 clusters"):
        KMedoids(7).fit(X)
    with pytest.raises(DataError, match=r"\(n, n\)"):
        KMedoids(2, metric="precomputed").fit(X)
    holes = X.copy()
    holes[0, 0] = holes[1, 1] = np.nan
    apart = nan_euclidean_distances(holes)
    apart[np.isnan(apart)] = np.nanmean(apart)  # of two rows that no column has both of
    estimator = KMedoids(2).fit(holes)
    np.testing.assert_allclose(estimator.inertia_, loss(apart, estimator.medoid_indices_))
    with pytest.raises(DataError, match="'manhattan'.*Fill"):
        KMedoids(2, metric="manhattan").fit(holes)
    holes[2] = np.nan
    with pytest.raises(DataError, match="row 2 of X has no observed value"):
        FuzzyCMeans(2).fit(holes)
    with pytest.warns(RuntimeWarning, match="max_iter=2"):
        FuzzyCMeans(2, max_iter=2, tol=0.0).fit(X)


@pytest.mark.slow
@pytest.mark.one_in(3)
@contract(KMedoids(3), FuzzyCMeans(3), expected={"FuzzyCMeans": {
    DENSE: "its starts are rows at random, other ones where rows are repeated; ends agree to tol"}})
def test_the_contract_of_scikit_learn_is_kept(estimator, check):
    check(estimator)
