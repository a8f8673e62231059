"""All prunings of a grown tree, weighed by their evidence: the best one, and the mean over all.

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

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln


class GrowingList(NamedTuple):
    """A tree as arrays over its m nodes, parents before their children."""

    left: np.ndarray  # (m,) number of the child; −1: none
    right: np.ndarray
    counts: np.ndarray  # (m, classes), weights of the rows of each class
    depth: np.ndarray  # (m,)
    rules: np.ndarray  # (m,) splits there are at a node; 1 where it has none


class Weighed(NamedTuple):
    """What is known of the prunings of a tree.

    Args:
        log_evidence: log Σ over prunings of their prior and evidence, a lower bound of that of all
            trees.
        log_best: of the most probable one, prior and evidence.
        split: (m,) posterior probability that a node which is reached is split.
        kept: (m,) bool, nodes that the most probable pruning splits.
    """

    log_evidence: float
    log_best: float
    split: np.ndarray
    kept: np.ndarray


def log_leaf(counts: np.ndarray, concentration: float) -> np.ndarray:
    """log D(n + c) / D(c) of the last axis."""
    k = counts.shape[-1]
    return (gammaln(counts + concentration).sum(-1) - gammaln(counts.sum(-1) + k * concentration)
            - k * gammaln(concentration) + gammaln(k * concentration))


def weighed(tree: GrowingList, concentration: float, base: float, power: float) -> Weighed:
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
        chance = base * (1.0 + tree.depth[t]) ** -power
        children = tree.left[t], tree.right[t]
        ends = np.log1p(-chance) + leaf[t] if chance < 1 else -np.inf
        rule = np.log(chance / tree.rules[t]) if chance > 0 else -np.inf
        goes, most = rule + mean[[*children]].sum(), rule + best[[*children]].sum()
        mean[t] = np.logaddexp(ends, goes)
        split[t], kept[t] = np.exp(goes - mean[t]), most > ends
        best[t] = max(ends, most)
    return Weighed(float(mean[0]), float(best[0]), split, kept)


def shares(tree: GrowingList, found: Weighed, average: bool, concentration: float) -> np.ndarray:
    """(m, classes): the predictive of a row whose way ends at a node (and, of an inner node, of one
    that would go no further), all prunings averaged or by the best."""
    p = tree.counts + concentration
    p = p / p.sum(-1, keepdims=True)
    go = found.split if average else found.kept.astype(float)
    out, chance = np.zeros_like(p), np.zeros(len(p))
    chance[0] = 1.0
    for t in range(len(p)):
        inner = tree.left[t] >= 0
        stays = chance[t] * (1 - go[t] if inner else 1.0)
        out[t] += stays * p[t]
        for child in (tree.left[t], tree.right[t]) if inner else ():
            chance[child], out[child] = chance[t] * go[t], out[t]
    return out
