"""Multidimensional scaling is held to principal components, to scikit-learn's stress, and to points
that are known."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

pytest.importorskip("sklearn")
from sklearn.decomposition import PCA
from sklearn.manifold import MDS

import probml
from contract import contract
from probml.models import MultidimensionalScaling, classical_scaling, multidimensional_scaling


def cloud(n=12, d=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) * [3.0, 1.0, 0.7, 0.5][:d]


def noisy(points, scale=0.15, seed=1):
    return squareform(pdist(points) * np.exp(
        scale * np.random.default_rng(seed).normal(size=len(points) * (len(points) - 1) // 2)))


def test_classical_scaling_of_euclidean_distances_is_principal_components():
    X = cloud(d=4)
    found, scores = classical_scaling(squareform(pdist(X)), 3), PCA(3).fit_transform(X)
    np.testing.assert_allclose(np.abs(found), np.abs(scores), atol=1e-9)
    assert classical_scaling(squareform(pdist(X)), 6)[:, 4:].max() < 1e-6


def test_unseen_distances_are_the_shortest_ways():
    line = squareform(pdist(np.arange(6.0)[:, None]))
    far = line > 2
    found = classical_scaling(np.where(far, np.nan, line), 1)
    np.testing.assert_allclose(np.abs(np.diff(found[:, 0])), 1.0, atol=1e-9)
    line[:3, 3:] = line[3:, :3] = np.nan
    with pytest.raises(probml.DataError, match="connect the points 0 and 3"):
        classical_scaling(line)


def test_points_of_exact_distances_are_found_again():
    X = cloud()
    estimator = MultidimensionalScaling(dissimilarity="precomputed").fit(squareform(pdist(X)))
    np.testing.assert_allclose(pdist(estimator.embedding_), pdist(X), atol=0.02)
    assert estimator.stress1_ < 0.005 and estimator.noise_ < 0.05 and estimator.converged_


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of their defaults
def test_the_stress_is_no_larger_than_scikit_learns():
    d = noisy(cloud())
    estimator = MultidimensionalScaling(dissimilarity="precomputed", prior=False).fit(d)
    theirs = MDS(2, dissimilarity="precomputed", normalized_stress=False, n_init=1, max_iter=3000,
                 eps=1e-12, random_state=0)
    positions = theirs.fit_transform(d, init=estimator.classical_)
    stress = ((pdist(positions) - squareform(d)) ** 2).sum()
    np.testing.assert_allclose(theirs.stress_, stress, rtol=1e-3)
    assert estimator.stress_ <= stress * (1 + 1e-4)
    np.testing.assert_allclose(estimator.noise_**2, estimator.stress_ / 66, rtol=1e-3)  # the mean square
    classical = ((pdist(estimator.classical_) - squareform(d)) ** 2).sum()
    assert estimator.stress_ < classical


@pytest.mark.slow
def test_log_normal_noise_counts_ratios():
    X = cloud()
    d = noisy(X)
    by_ratio, by_difference = (
        MultidimensionalScaling(noise=noise, dissimilarity="precomputed", prior=False).fit(d)
        for noise in ("lognormal", "normal"))

    def ratios(estimator):
        return (np.log(pdist(estimator.embedding_) / squareform(d)) ** 2).mean()

    assert ratios(by_ratio) < ratios(by_difference) and by_ratio.stress_ > by_difference.stress_
    np.testing.assert_allclose(by_ratio.noise_**2, ratios(by_ratio), rtol=1e-3)
    twice = MultidimensionalScaling(noise="lognormal", dissimilarity="precomputed",
                                    prior=False).fit(2 * d)
    np.testing.assert_allclose(twice.embedding_, 2 * by_ratio.embedding_, rtol=1e-2, atol=1e-2)


@pytest.mark.slow
def test_pairs_may_be_unseen():
    X = cloud()
    d = squareform(pdist(X))
    hidden = np.random.default_rng(2).random(d.shape) < 0.1
    hidden = hidden | hidden.T
    np.fill_diagonal(hidden, False)
    estimator = MultidimensionalScaling(dissimilarity="precomputed").fit(np.where(hidden, np.nan, d))
    np.testing.assert_allclose(pdist(estimator.embedding_), pdist(X), atol=0.05)


def test_rows_are_taken_and_the_function_stands_alone():
    X = cloud(d=4)
    estimator = MultidimensionalScaling(n_components=2)
    found = estimator.fit_transform(X)
    assert found.shape == (12, 2) and estimator.n_features_in_ == 4
    assert np.corrcoef(pdist(found), pdist(X))[0, 1] > 0.97
    first, second = np.triu_indices(12, 1)
    data = {"first": first, "second": second, "distance": pdist(X) / estimator.unit_}
    fit = multidimensional_scaling(points=12, k=2).at(
        {"position": found / estimator.unit_, "variance": 0.01})
    apart = pdist(found) / estimator.unit_
    expected = -0.5 * np.log(2 * np.pi * 0.01) - (data["distance"] - apart) ** 2 / 0.02
    np.testing.assert_allclose(fit.log_prob(data), expected, rtol=1e-4)


def test_what_is_no_matrix_of_distances_is_refused_by_row_and_column():
    d = squareform(pdist(cloud(5)))
    for change, words in (((0, 1, -1.0), "row 0, column 1"), ((2, 3, 9.0), "reversed pair"),
                          ((4, 4, 1.0), "0 on the diagonal")):
        wrong = d.copy()
        wrong[change[0], change[1]] = change[2]
        with pytest.raises(probml.DataError, match=words):
            MultidimensionalScaling(dissimilarity="precomputed").fit(wrong)
    with pytest.raises(probml.DataError, match=r"\(n, n\)"):
        classical_scaling(d[:3])
    with pytest.raises(probml.DataError, match="coincide"):
        MultidimensionalScaling().fit(np.ones((4, 2)))
    twin = np.vstack([cloud(4), cloud(4)[:1]])
    with pytest.raises(probml.DataError, match="points 0 and 4"):
        MultidimensionalScaling(noise="lognormal").fit(twin)
    with pytest.raises(probml.ModelError, match="'cauchy'"):
        multidimensional_scaling(points=3, noise="cauchy").explain(
            {"first": [0], "second": [1], "distance": [1.0]})


@pytest.mark.slow
@pytest.mark.one_in(3)
@contract(MultidimensionalScaling(n_init=1))
def test_the_contract_of_scikit_learn_is_kept(estimator, check):
    check(estimator)
