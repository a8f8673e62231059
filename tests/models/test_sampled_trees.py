"""Trees drawn from their posterior are held to the sum over all trees, by going through the
rectangles of a small grid."""

import functools

import numpy as np
import pytest

pytest.importorskip("sklearn")

from contract import contract
from probml.models import SampledTree
from probml.models.trees.evidence_tree_estimator import log_leaf
from probml.models.trees.sampled_tree_estimator import Chain

A, B, C = 0.8, 1.0, 0.7


def table(rows=40, seed=0):
    random = np.random.default_rng(seed)
    X = np.stack([random.integers(0, 4, rows), random.integers(0, 3, rows)], 1).astype(float)
    chance = np.where(X[:, 0] > 1, 0.85, np.where(X[:, 1] > 1, 0.7, 0.15))
    return X, (random.random(rows) < chance).astype(int)


def every_tree(X, y):
    """(log evidence, mean leaves, p(class 1) of each row) over all trees, by recursion over the
    sets of rows that rules can leave."""

    @functools.cache
    def of(rows, depth):
        at = np.array(rows)
        counts = np.bincount(y[at], minlength=2).astype(float)
        rules = [(column, value) for column in (0, 1)
                 for value in np.unique(X[at, column])[:-1]]
        share = {row: (counts[1] + C) / (counts.sum() + 2 * C) for row in rows}
        own = log_leaf(counts, C)
        if not rules:
            return own, 1.0, share
        chance = A * (1 + depth) ** -B
        logs, leaves, shares = [np.log1p(-chance) + own], [1.0], [share]
        for column, value in rules:
            below = X[at, column] <= value
            left, right = of(tuple(at[below]), depth + 1), of(tuple(at[~below]), depth + 1)
            logs.append(np.log(chance / len(rules)) + left[0] + right[0])
            leaves.append(left[1] + right[1])
            shares.append({**left[2], **right[2]})
        total = np.logaddexp.reduce(logs)
        p = np.exp(logs - total)
        return total, float(p @ leaves), {row: float(sum(
            w * each[row] for w, each in zip(p, shares, strict=True))) for row in rows}

    return of(tuple(range(len(X))), 0)


def test_draws_average_to_the_sum_over_all_trees():
    X, y = table(20)
    _, leaves, shares = every_tree(X, y)
    estimator = SampledTree(400, warmup=300, thin=4, base=A, power=B, concentration=C).fit(X, y)
    assert estimator.r_hat_ < 1.1 and estimator.leaves_.shape == (4, 400)
    np.testing.assert_allclose(estimator.expected_leaves_, leaves, rtol=0.06)
    np.testing.assert_allclose(estimator.predict_proba(X)[:, 1], [shares[i] for i in range(len(X))],
                               atol=0.03)


def test_without_labels_that_tell_the_trees_are_the_priors():
    X = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1], [2, 0]])
    estimator = SampledTree(400, warmup=100, thin=2, base=A, power=B).fit(
        X, ["a", "b", "a", "b", "a"], sample_weight=np.full(5, 1e-9))
    stays = (estimator.leaves_ == 1).mean()
    np.testing.assert_allclose(stays, 1 - A, atol=0.06)


def test_the_density_of_a_tree_is_its_prior_and_evidence():
    X, y = table()
    chain = Chain(X, y, np.ones(len(y)), 2, (A, B, C), np.random.default_rng(1))
    np.testing.assert_allclose(chain.log_density(), np.log1p(-A) + log_leaf(
        np.bincount(y).astype(float), C))
    for _ in range(200):
        chain.step()
    total = 0.0
    for node in chain.nodes():
        at, chance = node.rows, A / (1 + node.depth) ** B
        rules = sum(len(np.unique(X[at, j])) - 1 for j in (0, 1))
        if node.children:
            below = X[at, node.column] <= node.cut
            assert set(node.children[0].rows) == set(at[below])
            total += np.log(chance / rules)
        else:
            total += log_leaf(np.bincount(y[at], minlength=2).astype(float), C)
            total += np.log1p(-chance) if rules else 0.0
    np.testing.assert_allclose(chain.log_density(), total)
    tree = chain.tree()
    assert tree.leaves == sum(not node.children for node in chain.nodes())


def test_unseen_cells_and_labels_are_taken_and_chains_that_disagree_are_told():
    X, y = table(80)
    holes, labels = X.copy(), np.array(["no", "yes"], object)[y]
    holes[::7, 0] = np.nan
    labels[::9] = None
    estimator = SampledTree(100, warmup=800, thin=8, chains=2, base=0.5).fit(holes, labels)
    found = estimator.predict_proba(holes)
    np.testing.assert_allclose(found.sum(1), 1.0)
    assert (estimator.predict(X) == np.array(["no", "yes"])[y]).mean() > 0.7
    far = np.random.default_rng(0).normal(size=(60, 6))
    with pytest.warns(RuntimeWarning, match="chains do not agree"):
        SampledTree(4, warmup=0, thin=1).fit(far, (far[:, 0] * far[:, 1] > 0).astype(int))


@pytest.mark.slow
@pytest.mark.one_in(3)
@contract(SampledTree(20, warmup=50))  # few draws: chains do not agree
def test_the_contract_of_scikit_learn_is_kept(estimator, check):
    check(estimator)
