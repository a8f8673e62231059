"""Trees pruned by evidence held to enumeration of all prunings; boosting held to scikit-learn;
neighbours held to counting."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

pytest.importorskip("sklearn")
from sklearn.datasets import load_iris
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.neighbors import KNeighborsClassifier

import probml
from probml import DataError, ModelError
from probml.models import Boosted, EvidenceTree, NearestNeighbours
from probml.models.trees.evidence_tree_estimator import (
    GrowingList,
    log_leaf,
    shares,
    weigh_prunings,
)

X, Y = load_iris(return_X_y=True)


# Trees


def grown(seed=0):
    """Seven nodes, counts of three classes that add up."""
    random = np.random.default_rng(seed)
    left, right = np.array([1, 2, -1, -1, 5, -1, -1]), np.array([4, 3, -1, -1, 6, -1, -1])
    counts = np.zeros((7, 3))
    counts[[2, 3, 5, 6]] = random.integers(0, 9, (4, 3))
    counts[1], counts[4] = counts[2] + counts[3], counts[5] + counts[6]
    counts[0] = counts[1] + counts[4]
    return GrowingList(left, right, counts, np.array([0, 1, 2, 2, 1, 2, 2]), np.array([6, 3, 1, 1, 2, 1, 1]))


def prunings(tree, t=0):
    """Every set of inner nodes that a pruning splits."""
    if tree.left[t] < 0:
        return [frozenset()]
    pairs = itertools.product(prunings(tree, tree.left[t]), prunings(tree, tree.right[t]))
    return [frozenset(), *(frozenset({t}) | a | b for a, b in pairs)]


@pytest.mark.parametrize("seed", range(4))
def test_the_sum_and_the_best_of_all_prunings_are_those_of_enumeration(seed):
    tree, c, base, power = grown(seed), 0.7, 0.8, 1.5
    leaf, logs, predictive = log_leaf(tree.counts, c), [], []
    share = (tree.counts + c) / (tree.counts + c).sum(1, keepdims=True)
    for split in prunings(tree):
        total, todo, ends = 0.0, [0], np.zeros((7, 3))
        while todo:
            t = todo.pop()
            chance = base * (1 + tree.depth[t]) ** -power if tree.left[t] >= 0 else 0.0
            if t in split:
                total += np.log(chance / tree.rules[t])
                todo += [tree.left[t], tree.right[t]]
                continue
            total += np.log1p(-chance) + leaf[t]
            below = [t]
            while below:
                node = below.pop()
                ends[node] = share[t]
                below += [tree.left[node], tree.right[node]] if tree.left[node] >= 0 else []
        logs.append(total)
        predictive.append(ends)
    found = weigh_prunings(tree, c, base, power)
    assert found.log_evidence == pytest.approx(np.logaddexp.reduce(logs), rel=1e-12)
    assert found.log_best == pytest.approx(max(logs), rel=1e-12)
    ends, p = [2, 3, 5, 6], np.exp(np.array(logs) - np.logaddexp.reduce(logs))
    mean = np.tensordot(p, np.array(predictive), 1)
    np.testing.assert_allclose(shares(tree, found, True, c)[ends], mean[ends], rtol=1e-12)
    np.testing.assert_allclose(shares(tree, found, False, c)[ends],
                               predictive[int(np.argmax(logs))][ends], rtol=1e-12)


def test_a_leaf_has_the_evidence_of_an_exact_fit():
    @probml.model
    def estimators():
        p = probml_sample("p", dist.Dirichlet(jnp.full(3, 0.7)))
        with probml.rows():
            probml_sample("y", dist.Categorical(p))

    from numpyro import sample as probml_sample

    counts = np.array([4, 0, 3])
    exact = estimators().fit({"y": np.repeat([0, 1, 2], counts)}, probml.Exact()).log_evidence
    assert log_leaf(counts.astype(float), 0.7) == pytest.approx(exact, rel=1e-5)


def test_noise_is_pruned_and_structure_is_kept():
    random = np.random.default_rng(0)
    noise = EvidenceTree().fit(random.normal(size=(200, 3)), random.integers(2, size=200))
    assert noise.n_leaves_ == 1 and noise.tree_.get_n_leaves() > 20
    np.testing.assert_allclose(noise.predict_proba(random.normal(size=(5, 3))), 0.5, atol=0.2)
    iris = EvidenceTree().fit(X, Y)
    assert 3 <= iris.n_leaves_ <= 5 and iris.score(X, Y) > 0.94
    assert iris.log_evidence_ > EvidenceTree(max_depth=1).fit(X, Y).log_evidence_
    best = EvidenceTree(average=False).fit(X, Y)
    assert len(np.unique(best.predict_proba(X).round(12), axis=0)) == best.n_leaves_


def test_units_do_not_matter_to_trees_and_neighbours():
    far = X * [1e6, 1.0, 1e-9, 1e-4] + [1e9, 1e9, 0.0, 0.0]
    for estimator in (EvidenceTree(), NearestNeighbours()):
        np.testing.assert_allclose(type(estimator)().fit(far, Y).predict_proba(far),
                                   estimator.fit(X, Y).predict_proba(X), atol=1e-6)


def test_an_estimator_without_a_fit_says_how_it_is_kept(tmp_path):
    with pytest.raises(ModelError, match="has no Fit.*pickle"):
        EvidenceTree().fit(X, Y).save(tmp_path / "tree")
    with pytest.raises(ModelError, match="not fitted yet"):
        EvidenceTree().save(tmp_path / "tree")


# Neighbours


def test_the_number_of_neighbours_is_that_under_which_labels_left_out_are_most_probable():
    estimator = NearestNeighbours(range(1, 12), scale=False).fit(X[::2], Y[::2])
    scores = {}
    for k in range(1, 12):
        logs = []
        for i in range(0, len(X), 2):
            others = np.array([j for j in range(0, len(X), 2) if j != i])
            near = others[np.argsort(((X[others] - X[i]) ** 2).sum(1), kind="stable")[:k]]
            logs.append(np.log(((Y[near] == Y[i]).sum() + 0.5) / (k + 1.5)))
        scores[k] = np.mean(logs)
    # rows at one distance are taken in an order of their own
    assert max(abs(estimator.scores_[k] - scores[k]) for k in scores) < 0.02
    assert estimator.n_neighbors_ == max(estimator.scores_, key=estimator.scores_.get)


def test_without_pseudo_counts_it_is_scikit_learns():
    ours = NearestNeighbours(7, concentration=0.0, scale=False).fit(X, Y)
    peer = KNeighborsClassifier(7).fit(X, Y)
    new = X + 0.013
    np.testing.assert_allclose(ours.predict_proba(new), peer.predict_proba(new), atol=1e-12)
    with pytest.raises(DataError, match="only 2 neighbours"):
        NearestNeighbours(5).fit(X[[0, 50, 100]], Y[[0, 50, 100]])
    with pytest.raises(DataError, match="missing in row 1"):
        NearestNeighbours(1).fit([[0.0], [np.nan], [1.0]], [0, 1, 1])


# Boosting


def test_boosted_log_odds_are_those_of_scikit_learn():
    y = (Y == 1).astype(int)
    ours = Boosted("bernoulli", n_estimators=20, max_depth=2).fit(X, y)
    peer = GradientBoostingClassifier(n_estimators=20, max_depth=2, random_state=0).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), peer.decision_function(X), atol=2e-4)
    assert (np.diff(ours.train_score_) > 0).all()


def test_boosted_squares_are_those_of_scikit_learn():
    y = X[:, 3] + 0.2 * np.random.default_rng(0).normal(size=len(X))
    ours = Boosted(n_estimators=15).fit(X[:, :3], y)
    peer = GradientBoostingRegressor(n_estimators=15, random_state=0).fit(X[:, :3], y)
    np.testing.assert_allclose(ours.predict(X[:, :3]), peer.predict(X[:, :3]), atol=2e-3)


def test_any_function_from_score_to_distribution_is_climbed():
    random = np.random.default_rng(0)
    x = random.uniform(-2, 2, (300, 1))
    y = random.poisson(np.exp(1 + np.sin(2 * x[:, 0])))
    mine = Boosted(lambda f: dist.Poisson(jnp.exp(f)), n_estimators=30).fit(x, y)
    named = Boosted("poisson", n_estimators=30).fit(x, y)
    np.testing.assert_allclose(mine.predict(x), named.predict(x), rtol=1e-6)
    assert mine.base_score_ == pytest.approx(np.log(y.mean()), rel=1e-5)
    assert np.corrcoef(mine.decision_function(x), np.sin(2 * x[:, 0]))[0, 1] > 0.9
    heavy = Boosted(lambda f: dist.StudentT(3.0, f, 1.0), n_estimators=20).fit(
        x, np.where(np.arange(300) == 7, 1e4, y))
    assert np.abs(heavy.predict(x)).max() < 20  # one wild row pulls nobody


def test_held_out_rows_say_when_to_stop():
    random = np.random.default_rng(1)
    x, y = random.normal(size=(120, 4)), random.integers(2, size=120)
    estimator = Boosted("bernoulli", validation_fraction=0.3).fit(x, y)
    assert estimator.n_estimators_ < 60 and len(estimator.trees_) == estimator.n_estimators_
    assert len(estimator.validation_score_) == len(estimator.train_score_) < 80


def test_what_a_likelihood_cannot_have_is_refused_by_row():
    with pytest.raises(DataError, match="y is 2 in row 2, which is not a possible value"):
        Boosted("bernoulli").fit(X[:3], [0, 1, 2])
    with pytest.raises(DataError, match="but the likelihood of y has no maximum there"):
        Boosted("poisson").fit(X[:3], [0, 0, 0])
    with pytest.raises(DataError, match="must return a NumPyro distribution of the shape"):
        Boosted(lambda f: dist.Normal(f.sum(), 1.0)).fit(X[:3], [0.0, 1.0, 2.0])
