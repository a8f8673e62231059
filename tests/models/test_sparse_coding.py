"""Sparse codes are soft thresholds, satisfy the conditions of a minimum, and cost no more than
scikit-learn's."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.decomposition import DictionaryLearning, sparse_encode

from contract import contract
from probml import DataError
from probml.models import SparseCoding
from probml.models.latent_factors.sparse_coding import learn_codes


def planted(n=80, k=6, d=8, seed=0, noise=0.05):
    """Rows of two atoms each."""
    random = np.random.default_rng(seed)
    atoms = random.normal(size=(k, d))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    codes = np.zeros((n, k))
    for row in codes:
        row[random.permutation(k)[:2]] = random.normal(0, 3, 2)
    return codes @ atoms + noise * random.normal(size=(n, d)), atoms


def objective(X, codes, atoms, alpha):
    return 0.5 * np.nansum((X - codes @ atoms) ** 2) + alpha * np.abs(codes).sum()


def test_codes_of_orthogonal_atoms_are_soft_thresholds():
    atoms = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    X = np.random.default_rng(1).normal(size=(20, 5))
    found = learn_codes(X, atoms, 0.4, False, 1e-14, 100)
    along = X @ atoms.T
    np.testing.assert_allclose(found.codes, np.sign(along) * np.maximum(np.abs(along) - 0.4, 0),
                               atol=1e-12)


def test_codes_of_given_atoms_are_scikit_learns_lasso():
    X, atoms = planted()
    found = learn_codes(X, atoms, 0.5, False, 1e-15, 5000)
    theirs = sparse_encode(X, atoms, algorithm="lasso_lars", alpha=0.5)
    np.testing.assert_allclose(found.codes, theirs, atol=1e-5)


def test_the_objective_never_rises_and_ends_at_a_minimum_of_every_block_with_cells_unseen():
    X, _ = planted()
    X[np.random.default_rng(3).random(X.shape) < 0.15] = np.nan
    estimator = SparseCoding(6, alpha=0.3, n_init=1, tol=1e-12, max_iter=20000).fit(X)
    assert (np.diff(estimator.history_) <= 1e-9).all() and estimator.converged_
    codes, atoms = estimator.codes_, estimator.components_
    np.testing.assert_allclose(estimator.objective_, objective(X, codes, atoms, 0.3), rtol=1e-10)
    assert (np.linalg.norm(atoms, axis=1) <= 1 + 1e-9).all()
    left = np.nan_to_num(X - codes @ atoms)
    slope = left @ atoms.T  # α sign(z) where z is not 0, within ±α where it is
    used = codes != 0
    np.testing.assert_allclose(slope[used], 0.3 * np.sign(codes[used]), atol=1e-3)
    assert (np.abs(slope[~used]) <= 0.3 + 1e-3).all()
    pull = codes.T @ left  # along the atom itself, outwards, where it has length 1
    along = (pull * atoms).sum(1, keepdims=True)
    np.testing.assert_allclose(pull, along * atoms, atol=0.02)
    assert (along > -1e-6).all()


def test_the_objective_is_no_larger_than_scikit_learns():
    X, _ = planted()
    theirs = DictionaryLearning(6, alpha=0.3, fit_algorithm="cd", transform_algorithm="lasso_cd",
                                max_iter=300, tol=1e-8, random_state=0).fit(X)
    codes = sparse_encode(X, theirs.components_, algorithm="lasso_lars", alpha=0.3)
    estimator = SparseCoding(6, alpha=0.3, tol=1e-5).fit(X)
    assert estimator.objective_ <= objective(X, codes, theirs.components_, 0.3) * 1.001


def test_atoms_that_made_the_rows_are_found_and_fill_unseen_cells():
    X, atoms = planted(n=200)
    hidden = np.random.default_rng(2).random(X.shape) < 0.1
    estimator = SparseCoding(6, alpha=0.1, n_init=5, tol=1e-4).fit(np.where(hidden, np.nan, X))
    assert (np.abs(estimator.components_ @ atoms.T).max(0) > 0.95).all()
    filled = estimator.impute(np.where(hidden, np.nan, X))
    assert ((filled - X)[hidden] ** 2).mean() < 0.3 * (X[hidden] ** 2).mean()
    np.testing.assert_array_equal(filled[~hidden], X[~hidden])
    assert estimator.transform(X).shape == (200, 6)
    np.testing.assert_array_equal(estimator.transform(np.full((1, 8), np.nan)), 0.0)


def test_more_atoms_than_rows_and_nothing_to_code():
    X, _ = planted(n=4)
    estimator = SparseCoding(10, alpha=0.1, n_init=1, tol=1e-4).fit(X)
    assert estimator.components_.shape == (10, 8) and estimator.objective_ < 0.5 * (X**2).sum()
    with pytest.raises(DataError, match="all observed values of X are 0"):
        SparseCoding(2).fit(np.zeros((3, 4)))
    with pytest.warns(RuntimeWarning, match="max_iter=1"):
        SparseCoding(3, alpha=0.1, max_iter=1, tol=0.0).fit(X)


@pytest.mark.slow
@pytest.mark.one_in(3)
@contract(SparseCoding(3))
def test_the_contract_of_scikit_learn_is_kept(estimator, check):
    check(estimator)
