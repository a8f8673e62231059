"""Probabilistic PCA and factor analysis: the eigenvalue solution, scikit-learn's likelihoods,
rotations, unseen cells, bad input."""

import pickle
import tracemalloc
import warnings

import numpy as np
import pytest

from contract import DENSE, contract
from probml.models import FactorAnalysis, ProbabilisticPCA, factor_analysis, probabilistic_pca
from probml.models.latent_factors.factor_analysis import (
    covariance_root,
    factors,
    principal,
    spectrum,
)

pytest.importorskip("sklearn")
from sklearn.datasets import load_breast_cancer, load_wine  # noqa: E402
from sklearn.decomposition import PCA  # noqa: E402
from sklearn.decomposition import FactorAnalysis as Peer  # noqa: E402
from sklearn.linear_model import LinearRegression  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

  # noqa: E402

nan = np.nan
SLOW = pytest.mark.slow
BOTH = (ProbabilisticPCA, FactorAnalysis)
RNG = np.random.default_rng(0)
LOADINGS = np.array([[3.0, 0.0], [2.0, 1.0], [0.0, 2.0], [-1.0, 1.0]])
X = RNG.normal(size=(150, 2)) @ LOADINGS.T + [0.3, 0.6, 0.9, 0.5] * RNG.normal(size=(150, 4)) + [
    1.0, 2.0, 3.0, 4.0
]
HOLES = np.where(RNG.random(X.shape) < 0.2, nan, X)
HOLES[0] = nan


# of 15 rows in 30 columns the prior alone holds most directions
WEIGHTS = "climbs to rows repeated and to weights end 2e-6 apart, not 1e-7, both converged"


@SLOW
@pytest.mark.one_in(3)
@contract(ProbabilisticPCA(), FactorAnalysis(), expected={"FactorAnalysis": {DENSE: WEIGHTS}})
def test_the_estimators_keep_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


# The functions


WIDE = RNG.normal(size=(12, 2)) @ RNG.normal(size=(2, 30)) + RNG.normal(size=(12, 30))


@pytest.mark.parametrize("rows", [WIDE, WIDE.T], ids=["wide", "long"])
@pytest.mark.parametrize("weights", [None, np.arange(1.0, 31.0)], ids=["alike", "weighted"])
def test_a_root_of_the_covariance_has_its_eigenvalues_and_its_maxima(rows, weights):
    weights = None if weights is None else weights[: len(rows)]
    root, S = covariance_root(rows, weights), np.cov(rows.T, bias=True, aweights=weights)
    m, d = root.shape
    assert m == min(rows.shape)
    np.testing.assert_allclose(root.T @ root, S, atol=1e-12)
    values, vectors = np.linalg.eigh(S)
    values, vectors = values[::-1], vectors[:, ::-1]
    found, axes = spectrum(root, 3)
    np.testing.assert_allclose(found, values[:m], atol=1e-12 * values[0])
    np.testing.assert_allclose(abs(axes[:, :3]), abs(vectors[:, :3]), atol=1e-10)
    largest, leading = spectrum(root, 3, leading=True)
    np.testing.assert_allclose(largest, found[:3], rtol=1e-12)
    np.testing.assert_allclose(abs(leading), abs(axes[:, :3]), atol=1e-10)
    W, noise = principal(root, 3)
    assert noise == pytest.approx(values[3:].mean(), rel=1e-10)
    np.testing.assert_allclose(W @ W.T, (vectors[:, :3] * (values[:3] - noise)) @ vectors[:, :3].T,
                               atol=1e-10)
    loadings, psi = factors(root, 2)
    np.testing.assert_allclose((loadings**2).sum(1) + psi, np.diag(S), rtol=1e-4)


@pytest.mark.parametrize("holes", [False, True], ids=["complete", "with holes"])
def test_few_rows_of_many_columns_make_no_matrix_of_all_pairs_of_columns(holes):
    rows = RNG.normal(size=(10, 3000))
    rows[holes & (RNG.random(rows.shape) < 0.1)] = nan
    tracemalloc.start()
    try:
        root = covariance_root(rows)
        principal(root, 2)
        factors(root, 2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3000**2 * 8 / 10


def test_more_components_than_rows_have_no_loadings():
    W, _ = principal(covariance_root(WIDE[:3]), 5)
    assert W.shape == (30, 5) and np.allclose(W[:, 2:], 0, atol=1e-6)
    assert factors(covariance_root(WIDE[:3]), 5)[0].shape == (30, 5)


def density(x, mean, covariance):
    """log N of the seen sub-vector, row by row: brute force."""
    out = np.zeros(len(x))
    for i, row in enumerate(x):
        s = ~np.isnan(row)
        if s.any():
            away, sub = row[s] - mean[s], covariance[np.ix_(s, s)]
            out[i] = -0.5 * (away @ np.linalg.solve(sub, away) + np.linalg.slogdet(sub)[1] + s.sum()
                             * np.log(2 * np.pi))
    return out


@pytest.mark.parametrize("model", [factor_analysis, probabilistic_pca], ids=str)
def test_the_latent_factors_are_integrated_out_and_unseen_cells_too(model):
    precision = np.array([1.0, 2.0, 4.0, 0.5]) if model is factor_analysis else np.array(2.0)
    params = {"loadings": LOADINGS, "precision": precision, "mean": np.arange(4.0)}
    covariance = LOADINGS @ LOADINGS.T + np.diag(np.broadcast_to(1 / precision, 4))
    fit = model(k=2, d=4).at(params)
    np.testing.assert_allclose(fit.log_prob({"x": HOLES[:20]}),
                               density(HOLES[:20], params["mean"], covariance), atol=1e-10)


# Probabilistic PCA


@pytest.fixture(scope="module")
def pca():
    return ProbabilisticPCA(2, prior=False).fit(X)


def test_pca_is_the_eigenvalue_solution(pca):
    peer, ratio = PCA(2).fit(X), 149 / 150  # scikit-learn divides by n − 1
    np.testing.assert_allclose(pca.explained_variance_, peer.explained_variance_ * ratio, rtol=1e-6)
    np.testing.assert_allclose(pca.noise_variance_, peer.noise_variance_ * ratio, rtol=1e-6)
    np.testing.assert_allclose(np.abs((pca.components_ * peer.components_).sum(1)), 1.0, atol=1e-6)
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(2), atol=1e-9)
    np.testing.assert_allclose(pca.mean_, X.mean(0), rtol=1e-8)
    assert pca.score(X) >= peer.score(X)
    np.testing.assert_allclose(pca.lower_bound_, pca.score(X), rtol=1e-9)
    assert pca.converged_ and (np.diff(pca.lower_bounds_) >= -1e-12).all()
    assert pca.n_parameters_ == 4 * 2 - 1 + 1 + 4


def test_em_climbs_to_the_eigenvalue_solution_from_elsewhere(pca):
    start = {"loadings": np.random.default_rng(1).normal(size=(4, 2)), "precision": np.array(1.0),
             "mean": np.ones(4)}
    fit = pca.fit_.model.fit({"x": (X - pca._centre) / pca._unit}, pca._ladder(False)[0],
                             start=start)
    W = fit.params["loadings"] * pca._unit[:, None]
    found = W @ W.T + np.diag(pca._unit**2 / fit.params["precision"])  # W itself is free to rotate
    np.testing.assert_allclose(found, pca.get_covariance(), atol=1e-4)


def test_the_latent_means_are_those_of_the_rows_that_are_seen(pca):
    W, psi = pca.loadings_, pca.noise_variance_
    # Tipping & Bishop, section 3.3
    expected = np.linalg.solve(W.T @ W + psi * np.eye(2), W.T @ (X - pca.mean_).T).T
    np.testing.assert_allclose(pca.transform(X), expected, atol=1e-9)
    np.testing.assert_allclose(pca.inverse_transform(expected), expected @ W.T + pca.mean_,
                               atol=1e-12)


# Factor analysis


@pytest.mark.filterwarnings("ignore:FactorAnalysis did not converge")  # scikit-learn's
@pytest.mark.parametrize("k", [2, pytest.param(1, marks=SLOW), pytest.param(4, marks=SLOW)])
def test_factor_analysis_reaches_the_likelihood_of_scikit_learn(k):
    wine = load_wine().data
    wine = (wine - wine.mean(0)) / wine.std(0)
    ours, peer = (FactorAnalysis(k, prior=False).fit(wine),
                  Peer(k, tol=1e-9, max_iter=5000).fit(wine))
    assert ours.score(wine) >= peer.score(wine) - 1e-7 and ours.converged_
    if k == 2:  # one maximum, no noise near 0: W Wᵀ and ψ agree, whatever the rotation
        np.testing.assert_allclose(ours.components_.T @ ours.components_,
                                   peer.components_.T @ peer.components_, atol=1e-3)
        np.testing.assert_allclose(ours.noise_variance_, peer.noise_variance_, atol=1e-3)
        scaled = FactorAnalysis(k, prior=False).fit(wine * np.logspace(-3, 3, 13) + 1e6)
        np.testing.assert_allclose(scaled.noise_variance_ / np.logspace(-6, 6, 13),
                                   ours.noise_variance_, rtol=1e-4)


@SLOW
@pytest.mark.filterwarnings("ignore:FactorAnalysis did not converge")  # scikit-learn's
@pytest.mark.filterwarnings("ignore::probml.ConvergenceWarning")  # a variance falls to 0 for ever
@pytest.mark.parametrize("k", range(1, 7))
def test_collinear_columns_do_not_keep_factor_analysis_below_scikit_learn(k):
    cancer = load_breast_cancer().data
    scaled = (cancer - cancer.mean(0)) / cancer.std(0)
    ours = FactorAnalysis(k, prior=False).fit(cancer)
    peer = Peer(k, tol=1e-7, max_iter=2000).fit(scaled)
    assert ours.score(cancer) + np.log(cancer.std(0)).sum() >= peer.score(scaled) - 1e-4


# Both


@pytest.fixture(scope="module", params=[FactorAnalysis, pytest.param(ProbabilisticPCA, marks=SLOW)])
def holed(request):
    return request.param(2).fit(HOLES)


def test_unseen_cells_are_exact_in_every_answer(holed):
    C, mu = holed.get_covariance(), holed.mean_
    np.testing.assert_allclose(holed.score_samples(HOLES), density(HOLES, mu, C), atol=1e-8)
    assert holed.score_samples(HOLES)[0] == pytest.approx(0.0, abs=1e-9) and np.allclose(
        holed.transform(HOLES)[0], 0
    )
    filled, latent = holed.impute(HOLES), holed.transform(HOLES)
    for i in range(1, 20):
        s = ~np.isnan(HOLES[i])
        if s.any():
            gain = np.linalg.solve(C[np.ix_(s, s)], HOLES[i, s] - mu[s])
            np.testing.assert_allclose(filled[i], np.where(s, HOLES[i], mu + C[:, s] @ gain),
                                       atol=1e-8)
            np.testing.assert_allclose(latent[i], holed.loadings_[s].T @ gain, atol=1e-8)
    unit = (HOLES - holed._centre) / holed._unit
    np.testing.assert_allclose(holed.fit_.impute({"x": unit})["x"] * holed._unit + holed._centre,
                               filled, atol=1e-8)
    assert np.sqrt(np.mean((filled - X)[np.isnan(HOLES)] ** 2)) < 0.8 * np.sqrt(
        np.mean((np.nanmean(HOLES, 0) - X)[np.isnan(HOLES)] ** 2)
    )


def test_a_fit_repeats_pickles_samples_and_names_its_features(holed):
    rows = holed.sample(2000)
    np.testing.assert_allclose(np.cov(rows.T, bias=True), holed.get_covariance(), atol=1.2)
    np.testing.assert_allclose(rows.mean(0), holed.mean_, atol=0.4)
    again = pickle.loads(pickle.dumps(holed))
    assert (again.transform(X) == holed.transform(X)).all()
    assert list(holed.get_feature_names_out()) == [f"{type(holed).__name__.lower()}{i}"
                                                   for i in range(2)]
    np.testing.assert_allclose(holed.bic(X) - holed.aic(X), holed.n_parameters_ * (np.log(150) - 2))


@pytest.mark.parametrize("estimator", [ProbabilisticPCA, pytest.param(FactorAnalysis, marks=SLOW)])
def test_a_weight_of_three_is_a_row_thrice_and_offsets_do_not_matter(estimator):
    thrice = estimator(2, prior=False).fit(np.r_[X[:50], X[:50], X[:50]])
    ours = estimator(2, prior=False).fit(X + 1e6,
                                         sample_weight=np.r_[np.full(50, 3.0), np.full(100, 1e-9)])
    np.testing.assert_allclose(ours.get_covariance(), thrice.get_covariance(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ours.mean_ - 1e6, thrice.mean_, atol=1e-6)


@SLOW
def test_estimators_work_in_pipelines_and_searches():
    y = X[:, 2]  # of the second factor alone
    search = GridSearchCV(make_pipeline(FactorAnalysis(), LinearRegression()),
                          {"factoranalysis__n_components": [1, 2]}, cv=3).fit(X, y)
    assert search.best_params_ == {"factoranalysis__n_components": 2}
    assert GridSearchCV(ProbabilisticPCA(), {"n_components": [1, 2]},
                        cv=3).fit(HOLES[1:]).best_params_ == {"n_components": 2}


def constant(column):
    out = X.copy()
    out[:, column] = 7.0
    return out


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize(
    ("settings", "x", "words"),
    [
        ({"n_components": 0}, X, "n_components=0.*at least 1"),
        ({"n_components": 5}, X, "n_components=5.*at most 4 components"),
        ({"scale": 0.0}, X, "scale=0.0.*above 0"),
        ({"prior": False}, X[:1], "n_samples=1"),
        ({"prior": False}, X[:3], "vary in only 2 of 4 dimensions.*prior=True"),
        ({}, np.full((5, 2), nan), "every value of X is missing"),
        ({}, np.where([True, False, False, False], nan, X),
         "column 0 of X is missing in every row"),
        ({}, np.where(X > 8, np.inf, X), "infinity"),
    ],
)
def test_bad_input_is_refused_by_name(estimator, settings, x, words):
    with pytest.raises(ValueError, match=words):
        estimator(**settings).fit(x)


def test_a_constant_column_is_refused_where_its_noise_has_no_maximum():
    with pytest.raises(ValueError, match="column 2 is constant.*prior=True"):
        FactorAnalysis(prior=False).fit(constant(2))


@SLOW
def test_under_a_prior_a_constant_column_and_a_single_row_are_as_good_as_any():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the prior has the maximum that the likelihood lacks
        fitted = FactorAnalysis(1).fit(constant(2))
    assert fitted.converged_ and fitted.noise_variance_[2] < 0.01
    assert ProbabilisticPCA(1).fit(X[:1]).score(X[:1]) < 10


def test_latent_rows_of_another_width_are_refused(pca):
    with pytest.raises(ValueError, match="Z has 3 columns, expected n_components=2"):
        pca.inverse_transform(np.zeros((2, 3)))


def test_principal_components_of_columns_in_units_of_their_own_warn():
    """A column of dates, in seconds: the prior's guess of the one noise is far beyond the others."""
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 3)) * [86400.0, 1.0, 1.0]
    with pytest.warns(RuntimeWarning, match="different units.*That of column 1 of X is"):
        ProbabilisticPCA(1).fit(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ProbabilisticPCA(1).fit(x / x.std(0))
