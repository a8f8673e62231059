"""The scikit-learn estimator of trees pruned by evidence.

All prunings of a grown tree, weighed by their evidence: the best one, and the mean over all.

A tree of binary splits is grown; a pruning cuts it at some of its nodes, which become leaves. The
labels in a leaf are a Dirichlet–categorical; a node at depth d is split with prior probability
a (1 + d)^(−b), by any of its r_t rules (a column, and a cut between two of its values in the node)
with the same (Chipman, George & McCulloch 1998). So of a node t with classes n_t, and
s_t = a (1 + d)^(−b) / r_t for the rule that was grown,

    L_t = D(n_t + c) / D(c)                                  the evidence of a leaf
    V_t = (1 − a (1 + d)^(−b)) L_t + s_t V_left V_right      the evidence, all prunings below summed
    M_t = max((1 − a (1 + d)^(−b)) L_t, s_t M_left M_right)  that of the best

in one pass from the leaves up; the probability that a row which comes to t goes on to a child is
s_t V_left V_right / V_t. The rules that were not grown are left out: V is a lower bound of the
evidence of Bayesian CART, in which each of them has its share, and a split that greed found on
the same rows has to pay for having been chosen among so many. The mean over exponentially many
prunings costs no more than one of them (Buntine 1992, "Learning classification trees"; Willems,
Shtarkov & Tjalkens 1995 for sequences).
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from probml.estimators.classifier import Classifier
from probml.estimators.rules import (
    FLAG,
    SEED,
    Rule,
    Seed,
    check,
    integer,
    number,
    optional,
    parameter,
)
from probml.estimators.validation import check_is_fitted
from probml.models.frames.scaling import middle_and_unit


class GrowingList(NamedTuple):
    """A tree as arrays over its m nodes, parents before their children."""

    left: np.ndarray  # (m,) number of the child; −1: none
    right: np.ndarray
    counts: np.ndarray  # (m, classes), weights of the rows of each class
    depth: np.ndarray  # (m,)
    rules: np.ndarray  # (m,) splits there are at a node; 1 where it has none


class PruningWeights(NamedTuple):
    """What is known of the prunings of a tree.

    Args:
        log_evidence: log Σ over prunings of their prior and evidence, a lower bound of that of all
            trees.
        log_best: of the most probable one, prior and evidence.
        split: (m,) posterior probability that a node which is reached is split.
        in_best: (m,) bool, nodes that the most probable pruning splits.
    """

    log_evidence: float
    log_best: float
    split: np.ndarray
    in_best: np.ndarray


def log_leaf(counts: np.ndarray, concentration: float) -> np.ndarray:
    """log D(n + c) / D(c) of the last axis."""
    k = counts.shape[-1]
    return (gammaln(counts + concentration).sum(-1) - gammaln(counts.sum(-1) + k * concentration)
            - k * gammaln(concentration) + gammaln(k * concentration))


def weigh_prunings(tree: GrowingList, concentration: float, base: float,
                   power: float) -> PruningWeights:
    """All prunings of a tree.

    Args:
        concentration: c, pseudo-rows of each class in a leaf.
        base, power: a and b of the prior of splits.
    """
    m = len(tree.left)
    leaf, mean, best = log_leaf(tree.counts, concentration), np.zeros(m), np.zeros(m)
    split, kept = np.zeros(m), np.zeros(m, bool)
    for t in reversed(range(m)):
        if tree.left[t] < 0:  # as grown: it could not be split, and is a leaf surely
            mean[t] = best[t] = leaf[t]
            continue
        p_split = base * (1.0 + tree.depth[t]) ** -power
        children = tree.left[t], tree.right[t]
        log_stop = np.log1p(-p_split) + leaf[t] if p_split < 1 else -np.inf
        rule = np.log(p_split / tree.rules[t]) if p_split > 0 else -np.inf
        log_split, best_split = rule + mean[[*children]].sum(), rule + best[[*children]].sum()
        mean[t] = np.logaddexp(log_stop, log_split)
        split[t], kept[t] = np.exp(log_split - mean[t]), best_split > log_stop
        best[t] = max(log_stop, best_split)
    return PruningWeights(float(mean[0]), float(best[0]), split, kept)


def shares(tree: GrowingList, weighed: PruningWeights, average: bool,
           concentration: float) -> np.ndarray:
    """(m, classes): the predictive of a row whose way ends at a node (and, of an inner node, of one
    that would go no further), all prunings averaged or by the best."""
    p = tree.counts + concentration
    p = p / p.sum(-1, keepdims=True)
    p_go = weighed.split if average else weighed.in_best.astype(float)
    probs, reach = np.zeros_like(p), np.zeros(len(p))
    reach[0] = 1.0
    for t in range(len(p)):
        inner = tree.left[t] >= 0
        p_stop = reach[t] * (1 - p_go[t] if inner else 1.0)
        probs[t] += p_stop * p[t]
        for child in (tree.left[t], tree.right[t]) if inner else ():
            reach[child], probs[child] = reach[t] * p_go[t], probs[t]
    return probs


UNIT: Rule = ("a number between 0 and 1",
              lambda v: isinstance(v, int | float | np.number) and not isinstance(v, bool)
              and bool(0 <= v <= 1))


@dataclass(eq=False, repr=False)
class EvidenceTree(Classifier):
    """A decision tree whose size is chosen by the marginal likelihood: grown with scikit-learn's
    splits, its prunings weighted by the marginal likelihood of Dirichlet leaves under the prior of
    Chipman, George & McCulloch, and averaged exactly.

    `log_evidence_` is a lower bound of the evidence of all trees: only prunings of the one that was
    grown are summed. In `probml.compare(..., target=)` it is listed next to other classifiers,
    scored on held-out rows.

    Args:
        average: predict by the mean over all prunings (True), or by the most probable (False).
        concentration: c, pseudo-rows of each class in a leaf.
        base, power: a node at depth d is split with prior probability base · (1 + d)^−power.
        max_depth, min_samples_leaf, splitting: of the tree that is grown, see scikit-learn's
            DecisionTreeClassifier (max_depth, min_samples_leaf, criterion).
        random_state: of the order in which columns that split alike are tried; None is 0.

    Attributes:
        classes_, log_evidence_ (all prunings summed), n_leaves_ of the most probable
        pruning, expected_leaves_ over all, tree_ (scikit-learn's, as grown, of columns in their own
        standard deviations), n_features_in_.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris.drop(columns="Species"), iris["Species"]
        >>> from probml.models import EvidenceTree
        >>> tree = EvidenceTree(random_state=0).fit(X, y)
        >>> round(tree.score(X, y), 2)
        0.96
        >>> print(tree.predict_proba(X[:1]).round(2))
        [[0.96 0.02 0.02]]
    """

    average: bool = parameter(True, FLAG)
    _: KW_ONLY
    concentration: float = parameter(1.0, number(0.0, above=True))
    base: float = parameter(0.95, UNIT)
    power: float = parameter(1.0, number(0.0))
    max_depth: int | None = parameter(None, optional(integer(1)))
    min_samples_leaf: int = parameter(1, integer(1))
    random_state: Seed = parameter(None, SEED)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d), cells NaN where missing, and labels y (n,), all observed.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell, a label or a weight that cannot
                be used, by name.
        """
        from sklearn.tree import DecisionTreeClassifier

        check(self)
        X, codes, weights = self._batch(X, y, sample_weight, None, True)
        labelled = ~np.isnan(codes.astype(float))
        X, codes = X[labelled], codes[labelled].astype(int)
        weights = None if weights is None else weights[labelled]
        # the trees keep six digits of a number
        self._middle, self._unit = middle_and_unit(X)
        X = (X - self._middle) / self._unit
        grown = DecisionTreeClassifier(max_depth=self.max_depth, criterion="entropy",
                                       min_samples_leaf=self.min_samples_leaf,
                                       random_state=self._seed())
        grown.fit(X, codes, sample_weight=weights)
        tree = grown.tree_
        counts = (tree.value[:, 0, :] * tree.weighted_n_node_samples[:, None])
        left, right = tree.children_left, tree.children_right
        depth = np.zeros(len(left), int)
        for t in np.flatnonzero(left >= 0):
            depth[left[t]] = depth[right[t]] = depth[t] + 1
        self._grown = GrowingList(left, right, counts, depth, _rules(grown, X))
        weighed = weigh_prunings(self._grown, self.concentration, self.base, self.power)
        self._shares = shares(self._grown, weighed, self.average, self.concentration)
        self.tree_, self.log_evidence_ = grown, weighed.log_evidence
        self.n_leaves_ = int(round(_leaves(self._grown, weighed.in_best.astype(float))))
        self.expected_leaves_ = _leaves(self._grown, weighed.split)
        return self

    def predict_proba(self, X):
        """p(class | row), (n, classes), the prunings averaged, or by the most probable."""
        check_is_fitted(self, "tree_")
        X = (self._validated(X, reset=False) - self._middle) / self._unit
        return self._shares[self.tree_.apply(X)]


def _rules(grown: Any, X: np.ndarray) -> np.ndarray:
    """How many splits there are at every node: columns, and cuts between two of their values."""
    paths = grown.decision_path(X).tocsc()
    n_rules = np.ones(paths.shape[1])
    for t in np.flatnonzero(grown.tree_.children_left >= 0):
        values = X[paths.indices[paths.indptr[t] : paths.indptr[t + 1]]].astype(np.float32)
        ordered = np.sort(values, 0)  # unseen cells last
        n_rules[t] = max(int((np.diff(ordered, axis=0) > 0).sum()), 1)
    return n_rules


def _leaves(tree: GrowingList, p_split: np.ndarray) -> float:
    """Leaves, expected where a node that is reached is split with such probabilities."""
    count = np.ones(len(p_split))
    for t in reversed(range(len(p_split))):
        if tree.left[t] >= 0:
            count[t] = (1 - p_split[t]) + p_split[t] * (count[tree.left[t]] + count[tree.right[t]])
    return float(count[0])
