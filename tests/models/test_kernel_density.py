"""Kernel densities and Parzen windows: brute force, scikit-learn and scipy, bandwidths, unseen
cells, speed, bad input."""

import pickle
import time

import numpy as np
import pytest

from contract import contract
from oracles import log_sum
from probml.models import KernelDensity, ParzenClassifier, kernel_density
from probml.models.kernels.kernel_density import left_out

pytest.importorskip("sklearn")
from scipy.stats import gaussian_kde  # noqa: E402
from sklearn.datasets import load_iris  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.neighbors import KernelDensity as Peer  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

  # noqa: E402

nan = np.nan
SLOW = pytest.mark.slow
IRIS, Y = load_iris(return_X_y=True)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)) * [1.0, 2.0, 0.5] + RNG.integers(0, 2, (60, 1)) * 3.0
HOLES = np.where(RNG.random(X.shape) < 0.3, nan, X + 0.1)
HOLES[0] = nan
REASON = ("it puts NaN into rows to fit, since cells may be unseen in rows that are asked about; a "
          "kernel needs a centre")


@SLOW
@pytest.mark.one_in(3)
@contract(KernelDensity(), ParzenClassifier(),
          expected={"ParzenClassifier": {"check_estimators_pickle": REASON}})
def test_the_estimators_keep_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


def kernels(rows, centres, bandwidth):
    """log N of the seen cells under every kernel, (rows, kernels, d), 0 where unseen: brute
    force."""
    away = (rows[:, None] - centres) / bandwidth
    return np.where(np.isnan(away), 0.0, -0.5 * away**2 - np.log(bandwidth * np.sqrt(2 * np.pi)))


# The density


@pytest.fixture(scope="module")
def density():
    return KernelDensity([0.5, 1.0, 0.2]).fit(X)


def test_the_density_is_the_mean_of_the_kernels_and_unseen_cells_drop_out(density):
    logs = kernels(HOLES, X, density.bandwidth_).sum(-1)
    np.testing.assert_allclose(density.score_samples(HOLES), log_sum(logs, (1,)) - np.log(60),
                               atol=1e-10)
    assert density.score_samples(HOLES)[0] == pytest.approx(0.0, abs=1e-12)
    share = np.exp(logs - log_sum(logs, (1,))[:, None])
    np.testing.assert_allclose(density.impute(HOLES), np.where(np.isnan(HOLES), share @ X, HOLES),
                               atol=1e-9)


def test_tails_are_exact_where_the_density_underflows(density):
    for far in ([[60.0, 0.0, 0.0]], [[1e5, -1e5, 1e5]]):
        expected = log_sum(kernels(np.array(far), X, density.bandwidth_).sum(-1), (1,)) - np.log(60)
        assert np.exp(expected) == 0
        np.testing.assert_allclose(density.score_samples(far), expected, rtol=1e-11)


def test_the_density_is_scikit_learns():
    inside = X + 0.1
    peer = Peer(bandwidth=0.7, rtol=1e-13).fit(X)
    np.testing.assert_allclose(KernelDensity(0.7).fit(X).score_samples(inside),
                               peer.score_samples(inside), atol=1e-10)
    weights = RNG.gamma(2.0, size=60)
    peer = Peer(bandwidth=0.7, rtol=1e-13).fit(X, sample_weight=weights)
    ours = KernelDensity(0.7).fit(X, sample_weight=weights)
    np.testing.assert_allclose(ours.score_samples(inside), peer.score_samples(inside), atol=1e-10)
    # scikit-learn's is the sum
    np.testing.assert_allclose(ours.score(inside), peer.score(inside) / 60, atol=1e-10)


@pytest.mark.parametrize("rule", ["scott", "silverman"])
def test_the_rules_of_bandwidths_are_scipys(rule):
    ours, peer = KernelDensity(rule).fit(X[:, :1]), gaussian_kde(X[:, 0], rule)
    np.testing.assert_allclose(ours.bandwidth_**2, peer.covariance[0], rtol=1e-12)
    np.testing.assert_allclose(ours.score_samples(X[:, :1]), peer.logpdf(X[:, 0]), atol=1e-10)
    np.testing.assert_allclose(KernelDensity(rule).fit(X).bandwidth_,
                               gaussian_kde(X.T, rule).factor * X.std(0, ddof=1), rtol=1e-12)


def test_the_leave_one_out_likelihood_is_at_its_maximum():
    def likelihood(h):
        logs = kernels(X, X, h).sum(-1)
        logs[np.diag_indices(60)] = -np.inf
        return log_sum(logs, (1,)).sum()

    estimator = KernelDensity("likelihood").fit(X)
    best = likelihood(estimator.bandwidth_)
    assert all(likelihood(estimator.bandwidth_ * factor) < best
               for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0))
    np.testing.assert_allclose(estimator.bandwidth_ / estimator.bandwidth_[0], X.std(0) / X.std(0)[0])
    # rows that repeat do not drive it to 0
    twice = KernelDensity("likelihood").fit(np.r_[X[:50], X[:50]])
    np.testing.assert_allclose(KernelDensity(
        "likelihood"
    ).fit(X[:50], sample_weight=np.full(50, 2)).bandwidth_, twice.bandwidth_)


def test_by_default_kernels_do_not_blur_clusters_that_are_far_apart():
    rows = np.random.default_rng(2).normal(size=(120, 2)) + 8.0 * (np.arange(120) % 2)[:, None]
    first, scott = (estimator.fit(rows[:80]).score(rows[80:])
                    for estimator in (KernelDensity(), KernelDensity("scott")))
    assert first > scott + 0.2


@SLOW
def test_the_bandwidth_of_a_part_of_many_rows_is_near_that_of_all():
    rows = np.random.default_rng(1).normal(size=(8000, 2))
    found = left_out(rows, np.ones(8000), 0)
    score = [GridSearchCV(Peer(), {"bandwidth": [h * found for h in (0.7, 1.0, 1.4)]},
                          cv=3).fit(rows).best_params_["bandwidth"] / found]
    assert score == [1.0]


def test_offsets_and_weights_do_not_matter(density):
    shifted = KernelDensity([0.5, 1.0, 0.2]).fit(X + 1e6)
    # the digits of the data
    np.testing.assert_allclose(shifted.score_samples(HOLES + 1e6), density.score_samples(HOLES),
                               atol=1e-6)
    doubled = KernelDensity().fit(X, sample_weight=np.r_[np.full(30, 2), np.zeros(30)])
    twice = KernelDensity().fit(np.r_[X[:30], X[:30]])
    np.testing.assert_allclose(doubled.bandwidth_, twice.bandwidth_)
    np.testing.assert_allclose(doubled.score_samples(X), twice.score_samples(X), atol=1e-10)


def test_draws_have_the_moments_of_the_density(density):
    rows = density.sample(20_000)
    np.testing.assert_allclose(rows.mean(0), X.mean(0), atol=0.1)
    np.testing.assert_allclose(rows.var(0), X.var(0) + density.bandwidth_**2, rtol=0.05)
    assert (pickle.loads(pickle.dumps(density)).sample(3) == density.sample(3)).all()
    one = kernel_density(n=60, d=3).at(density.fit_.params).simulate(5)
    assert one["x"].shape == (5, 3) and one["z"].shape == (5,)


@SLOW
def test_a_hundred_million_pairs_take_no_longer_than_with_scikit_learn():
    rows = np.random.default_rng(2).normal(size=(10_000, 5))
    estimator, peer = KernelDensity(0.3).fit(rows), Peer(bandwidth=0.3, rtol=1e-4).fit(rows)
    estimator.score_samples(rows)

    def seconds(function):
        began = time.perf_counter()
        return function(rows[:, ::-1]), time.perf_counter() - began

    (found, ours), (expected, theirs) = seconds(estimator.score_samples), seconds(peer.score_samples)
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert ours < theirs


def test_kernels_may_be_more_than_a_site_of_several_cells_has_states():
    rows = np.linspace(-3, 3, 70_000)[:, None]
    np.testing.assert_allclose(KernelDensity(0.1).fit(rows).score_samples([[0.5], [-1.0]]),
                               -np.log(6), atol=1e-4)


# The classifier


def test_the_classifier_is_bayes_rule_over_densities_of_the_classes():
    labels = np.array(["setosa", "versicolor", "virginica"])[Y].astype(object)
    labels[3] = None
    estimator = ParzenClassifier().fit(IRIS, labels)
    asked = np.where(RNG.random(IRIS.shape) < 0.3, nan, IRIS)
    parts = [KernelDensity().fit(IRIS[labels == c]) for c in estimator.classes_]
    np.testing.assert_allclose(estimator.bandwidth_, [part.bandwidth_ for part in parts])
    joint = np.stack([part.score_samples(asked) for part in parts],
                     1) + np.log(np.array([49, 50, 50]) / 149)
    np.testing.assert_allclose(estimator.predict_proba(asked),
                               np.exp(joint - log_sum(joint, (1,))[:, None]), atol=1e-9)
    np.testing.assert_allclose(estimator.score_samples(asked), log_sum(joint, (1,)), atol=1e-9)
    assert estimator.score(IRIS, np.array(["setosa", "versicolor", "virginica"])[Y]) > 0.97
    tilted = ParzenClassifier(priors=[0.8, 0.1, 0.1]).fit(IRIS, labels)
    joint += np.log([0.8, 0.1, 0.1]) - np.log(np.array([49, 50, 50]) / 149)
    np.testing.assert_allclose(tilted.predict_proba(asked),
                               np.exp(joint - log_sum(joint, (1,))[:, None]), atol=1e-9)


@SLOW
def test_estimators_work_in_pipelines_and_searches():
    assert cross_val_score(make_pipeline(StandardScaler(), ParzenClassifier("likelihood")), IRIS, Y,
                           cv=5).mean() > 0.93
    best = (
        GridSearchCV(KernelDensity(), {"bandwidth": [0.01, 0.3, 10.0]},
                     cv=3).fit(IRIS[::-1][np.argsort(np.arange(150) % 50)]).best_params_
    )  # folds of all classes
    assert best == {"bandwidth": 0.3}
    weights = np.r_[np.full(75, 2.0), np.zeros(75)]
    ours, twice = (ParzenClassifier().fit(IRIS, Y, weights),
                   ParzenClassifier().fit(np.r_[IRIS[:75], IRIS[:75]], np.r_[Y[:75], Y[:75]]))
    np.testing.assert_allclose(ours.predict_proba(IRIS), twice.predict_proba(IRIS), atol=1e-9)


# Bad input


def constant(column):
    out = X.copy()
    out[:, column] = 1.0
    return out


@pytest.mark.parametrize(
    ("estimator", "x", "words"),
    [
        (KernelDensity("wide"), X, "bandwidth='wide'.*'scott', 'silverman', 'likelihood'"),
        (KernelDensity(0.0), X, "bandwidth=0.0.*above 0"),
        (KernelDensity([1.0, 2.0]), X, "expected one number, or a list with one number for each column .3., got 2"),
        (KernelDensity(kernel="tophat"), X, "kernel='tophat'.*'gaussian'"),
        (KernelDensity(), X[:1], "n_samples=1"),
        (KernelDensity("likelihood"), np.r_[X[:1], X[:1]],
         "every column.*is constant.*Give a number .*bandwidth="),
        (KernelDensity(), constant(1), "column 1 is constant.*Give a number .*bandwidth="),
        (KernelDensity(), HOLES, "column 0 is missing in row 0.*the centre of a kernel"),
        (KernelDensity(), np.full((3, 2), nan), "every value of X is missing"),
        (ParzenClassifier(), constant(1), "column 1 is constant"),
        (ParzenClassifier(priors=[0.5, 0.6]), X, "2 probabilities that sum to 1"),
        (ParzenClassifier(priors=0.5), X, "priors=0.5"),
    ],
)
def test_bad_input_is_refused_by_name(estimator, x, words):
    with pytest.raises(ValueError, match=words):
        estimator.fit(x, np.arange(len(x)) % 2)


def test_one_row_and_constant_columns_do_with_a_bandwidth_of_their_own():
    np.testing.assert_allclose(KernelDensity(2.0).fit(X[:1]).score_samples(X[:1]),
                               -3 * np.log(2 * np.sqrt(2 * np.pi)), atol=1e-12)
    assert np.isfinite(
        ParzenClassifier(0.5).fit(constant(1), np.arange(60) % 2).predict_proba(X)
    ).all()
    lone = ParzenClassifier().fit(X, np.arange(60) == 0)  # a class of one row has the spread of all
    assert np.isfinite(lone.predict_proba(X)).all() and (lone.bandwidth_ > 0).all()
    with pytest.raises(ValueError, match="y has 1 class, 1"):
        ParzenClassifier().fit(X, np.ones(60, int))
