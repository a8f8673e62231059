"""Poisson–Gamma factorisation held to its evidence by integration, to its formulas over every
division of the counts, and to scikit-learn's factorisation where priors say nothing."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import digamma, gammaln
from scipy.stats import gamma, multinomial, nbinom

pytest.importorskip("sklearn")
from sklearn.decomposition import NMF

from probml import DataError
from probml.models import PoissonFactors
from probml.models.latent_factors.count_factors import factorise


def planted(n=40, seed=0):
    random = np.random.default_rng(seed)
    parts = np.zeros((3, 9))
    parts[0, :3], parts[1, 3:6], parts[2, 6:] = 4.0, 6.0, 5.0
    amounts = random.gamma(0.6, 1.5, (n, 3))
    return random.poisson(amounts @ parts).astype(float), amounts, parts


def test_the_bound_is_below_the_evidence_and_never_falls():
    found = factorise(np.array([[3.0]]), 1, (2.0, 1.0, 3.0, 2.0), 1e-14, 500,
                      np.random.default_rng(0))
    assert (np.diff(found.history) > -1e-10).all() and found.converged
    # θ integrated out of a Poisson count leaves a negative binomial
    evidence = np.log(quad(lambda b: nbinom.pmf(3, 2.0, 1.0 / (1.0 + b))
                           * gamma.pdf(b, 3.0, scale=0.5), 0, 40)[0])
    assert evidence - 0.4 < found.history[-1] < evidence


def test_the_bound_is_the_mean_over_every_division_of_the_counts():
    """E log p(x, parts, θ, β) − E log q, the parts multinomial at the fixed point."""
    x = np.array([[2.0, 1.0]])
    a, b, c, d = prior = (0.7, 1.3, 1.1, 0.9)
    found = factorise(x, 2, prior, 1e-15, 3000, np.random.default_rng(1))
    theta, beta = found.rows, found.columns
    logs = [digamma(each.shape) - np.log(each.rate * np.ones_like(each.shape))
            for each in (theta, beta)]
    total = 0.0
    for j, count in enumerate(x[0]):
        log = logs[0][0] + logs[1][:, j]
        phi = np.exp(log) / np.exp(log).sum()
        for first in range(int(count) + 1):
            parts = np.array([first, count - first])
            q = multinomial(int(count), phi).pmf(parts)
            total += q * ((parts * log).sum() - gammaln(parts + 1).sum() - np.log(q))
        total -= theta.mean[0] @ beta.mean[:, j]
    for each, (shape, rate) in ((theta, (a, b)), (beta, (c, d))):
        s, r = each.shape, each.rate * np.ones_like(each.shape)
        entropy = s - np.log(r) + gammaln(s) + (1 - s) * digamma(s)
        prior_log = (shape * np.log(rate) - gammaln(shape)
                     + (shape - 1) * (digamma(s) - np.log(r)) - rate * s / r)
        total += (entropy + prior_log).sum()
    assert found.history[-1] == pytest.approx(total, rel=1e-9)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::sklearn.exceptions.ConvergenceWarning")
def test_without_priors_and_with_large_counts_it_is_scikit_learns():
    X = 1e5 * np.random.default_rng(2).gamma(2.0, size=(12, 3)) @ np.random.default_rng(3).gamma(
        0.5, size=(3, 8))
    estimator = PoissonFactors(3, shape=1e-9, rate=1e-12, component_shape=1e-9, component_rate=1e-12,
                               tol=1e-7, max_iter=2000, n_init=1).fit(X)
    peer = NMF(3, beta_loss="kullback-leibler", solver="mu", max_iter=10_000, tol=1e-11,
               init="nndsvda", random_state=0).fit(X)
    ours, theirs = estimator.amounts_ @ estimator.components_, peer.transform(X) @ peer.components_
    assert np.abs(ours - theirs).max() < 0.02 * X.max() and np.abs(ours / X - 1).max() < 0.05


def test_planted_parts_are_found_and_others_stay_empty():
    X, _, parts = planted()
    estimator = PoissonFactors(6).fit(X)
    explained = estimator.amounts_.sum(0) * estimator.components_.sum(1)
    assert (explained[:3] > 100).all() and (explained[3:] < 0.05 * X.sum()).all()
    found = estimator.components_[:3] / estimator.components_[:3].sum(1, keepdims=True)
    truth = parts / parts.sum(1, keepdims=True)
    assert min(np.abs(found[list(order)] - truth).sum(1).max()
               for order in itertools.permutations(range(3))) < 0.25
    np.testing.assert_allclose(estimator.transform(X), estimator.amounts_, rtol=2e-2, atol=2e-2)


def test_unseen_cells_say_nothing_and_are_filled():
    X, amounts, parts = planted(80, seed=1)
    hidden = np.random.default_rng(4).random(X.shape) < 0.2
    estimator = PoissonFactors(3).fit(np.where(hidden, np.nan, X))
    filled = estimator.impute(np.where(hidden, np.nan, X))
    np.testing.assert_array_equal(filled[~hidden], X[~hidden])
    error = np.mean((filled - amounts @ parts)[hidden] ** 2)
    assert error < 0.4 * np.mean((X.mean(0) - amounts @ parts)[hidden] ** 2)


def test_negative_counts_are_refused_by_cell():
    with pytest.raises(DataError, match="Negative values.*column 1 of X is -2 in row 0"):
        PoissonFactors(2).fit([[1.0, -2.0], [3.0, 4.0]])
