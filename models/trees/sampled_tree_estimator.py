"""The scikit-learn estimator of trees drawn from their posterior.

Decision trees drawn from their posterior: Bayesian CART (Chipman, George & McCulloch 1998).

A node at depth d is split with prior probability a (1 + d)^(−b), by any of its r rules (a column,
and a cut between two of its neighbouring values in the node) with the same; a node whose rows are
all alike is a leaf. The labels in a leaf are Dirichlet(c, …, c)–categorical, integrated out, so
that what is sampled is the tree alone, by Metropolis–Hastings:

    grow    a leaf, drawn among those that have rules, is split by one of them
    prune   an inner node with two leaves becomes one
    change  an inner node with two leaves is split by another of its rules

Rules are drawn as the prior draws them, so that the r of a grown node cancel. The chain is slow to
exchange what stands near the root: several chains, each from a single leaf, tell whether it was.

Source: Chipman, George & McCulloch (1998), "Bayesian CART model search".
"""

import warnings
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
from numpyro.diagnostics import split_gelman_rubin
from scipy.special import gammaln

from probml.estimators.classifier import Classifier
from probml.estimators.rules import (
    PARTS,
    SEED,
    STARTS,
    Rule,
    Seed,
    check,
    integer,
    number,
    parameter,
)
from probml.estimators.validation import ConvergenceWarning, check_is_fitted

INSIDE: Rule = ("a number above 0 and below 1",
                lambda v: isinstance(v, int | float | np.number) and not isinstance(v, bool)
                and bool(0 < v < 1))
APART = 1.2  # R̂ of the log density above which a warning says that the chains disagree


@dataclass(eq=False, repr=False)
class SampledTree(Classifier):
    """Bayesian CART: decision trees drawn from their posterior by Metropolis–Hastings, Dirichlet
    leaves integrated out, and averaged. EvidenceTree sums the prunings of one grown tree instead,
    at once.

    A missing cell counts as a value below all others of its column, for which a rule can ask.

    Args:
        draws: number of trees drawn by each chain.
        warmup: steps of a chain that are not.
        thin: steps between the trees that are used.
        chains: each from a single leaf.
        concentration: c, pseudo-rows of each class in a leaf.
        base, power: a node at depth d is split with prior probability base · (1 + d)^−power.
        random_state: seed of the chains; None is 0.

    Attributes:
        classes_; leaves_ (chains, draws), leaves of each tree; log_density_ (chains, draws), log
        p(tree, labels); r_hat_, split R̂ of it, far from 1 where chains disagree; expected_leaves_;
        trees_, lists of chains; n_features_in_.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris[["Petal.Length", "Petal.Width"]], iris["Species"]
        >>> from probml.models import SampledTree
        >>> trees = SampledTree(draws=100, random_state=0).fit(X, y == "setosa")
        >>> round(trees.score(X, y == "setosa"), 1)
        1.0
    """

    draws: int = parameter(250, integer(2, 1_000_000))
    _: KW_ONLY
    warmup: int = parameter(1000, integer(0, 10_000_000))
    thin: int = parameter(4, PARTS)
    chains: int = parameter(4, STARTS)
    concentration: float = parameter(1.0, number(0.0, above=True))
    base: float = parameter(0.95, INSIDE)
    power: float = parameter(1.0, number(0.0))
    random_state: Seed = parameter(None, SEED)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d), cells NaN where missing, and labels y (n,); rows without a
        label are left out.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell, a label or a weight that cannot
                be used, by name.

        Cost: O(n d log n) a step.
        """
        check(self)
        X, codes, weights = self._batch(X, y, sample_weight, None, True)
        labelled = ~np.isnan(codes.astype(float))
        X, codes = X[labelled], codes[labelled].astype(int)
        weights = np.ones(len(X)) if weights is None else weights[labelled]
        low, high = np.nanmin(X, 0, initial=0.0), np.nanmax(X, 0, initial=0.0)
        self._below = low - (high - low) - 1.0
        X = np.where(np.isnan(X), self._below, X)
        prior = float(self.base), float(self.power), float(self.concentration)
        self.trees_, log_densities = [], []
        for random in np.random.default_rng(self._seed()).spawn(self.chains):
            chain = Chain(X, codes, weights, len(self.classes_), prior, random)
            trees, density = [], []
            for step in range(self.warmup + self.draws * self.thin):
                chain.step()
                if step >= self.warmup and (step - self.warmup + 1) % self.thin == 0:
                    trees.append(chain.tree())
                    density.append(chain.log_density())
            self.trees_.append(trees)
            log_densities.append(density)
        self.log_density_ = np.array(log_densities)
        self.leaves_ = np.array([[tree.leaves for tree in trees] for trees in self.trees_])
        self.expected_leaves_ = float(self.leaves_.mean())
        self.r_hat_ = self._r_hat()
        if self.r_hat_ > APART:
            warnings.warn(f"SampledTree: the chains do not agree. R-hat of the log density is "
                          f"{self.r_hat_:.2f}. On average, the class probabilities of a chain "
                          f"differ by {self._chain_discrepancy(X):.2g} from those of "
                          "predict_proba, the mean of all chains. More draws help little with "
                          f"many rows. Raise chains= (now {self.chains}), or use EvidenceTree, "
                          "which does not sample",
                          ConvergenceWarning, stacklevel=2)
        return self

    def _r_hat(self) -> float:
        if self.draws < 4 or np.ptp(self.log_density_) <= 1e-9:
            return 1.0  # too few to halve; or all trees are one
        with np.errstate(divide="ignore", invalid="ignore"):
            r_hat = float(split_gelman_rubin(self.log_density_))
        return r_hat if np.isfinite(r_hat) else np.inf  # each chain stayed where it was

    def _chain_discrepancy(self, X) -> float:
        """The mean absolute difference between the probabilities of each chain and those of all
        chains."""
        probs = np.array([sum(tree.predict(X) for tree in trees) / len(trees)
                          for trees in self.trees_])
        return float(np.abs(probs - probs.mean(0)).mean())

    def predict_proba(self, X):
        """p(class | row), (n, classes), the mean over all trees."""
        check_is_fitted(self, "trees_")
        X = self._validated(X, reset=False)
        X = np.where(np.isnan(X), self._below, X)
        trees = [tree for trees in self.trees_ for tree in trees]
        return sum(tree.predict(X) for tree in trees) / len(trees)


GROW, PRUNE, CHANGE = range(3)


@dataclass(eq=False)
class Node:
    """Rows that come to a node, and its rule and children where it has some."""

    rows: np.ndarray
    depth: int
    counts: np.ndarray  # (classes,) weights of the rows of each
    values: list[np.ndarray]  # of each column, the distinct ones here
    column: int = -1
    cut: float = np.nan
    children: tuple["Node", ...] = ()

    @property
    def rules(self) -> int:
        return sum(len(each) - 1 for each in self.values)


@dataclass
class Chain:
    """One Markov chain over trees.

    Args:
        X: (n, d), no cell unseen. labels: (n,) codes. weights: (n,).
        classes: how many. prior: (a, b, c).
    """

    X: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    classes: int
    prior: tuple[float, float, float]
    random: np.random.Generator
    root: Node = field(init=False)

    def __post_init__(self):
        self.root = self._node(np.arange(len(self.X)), 0)

    def _node(self, rows: np.ndarray, depth: int) -> Node:
        counts = np.bincount(self.labels[rows], self.weights[rows], self.classes)
        return Node(rows, depth, counts, [np.unique(column) for column in self.X[rows].T])

    def evidence(self, node: Node) -> float:
        """log p(node is a leaf) + log p(its labels)."""
        a, b, c = self.prior
        k, n = self.classes, node.counts
        leaf = (gammaln(n + c).sum() - gammaln(n.sum() + k * c) - k * gammaln(c) + gammaln(k * c))
        return float(leaf + (np.log1p(-a * (1.0 + node.depth) ** -b) if node.rules else 0.0))

    def log_density(self) -> float:
        """log p(tree, labels)."""
        a, b, _ = self.prior
        return sum(np.log(a) - b * np.log1p(node.depth) - np.log(node.rules) if node.children
                   else self.evidence(node) for node in self.nodes())

    def nodes(self) -> list[Node]:
        nodes, stack = [], [self.root]
        while stack:
            node = stack.pop()
            nodes.append(node)
            stack.extend(node.children)
        return nodes

    def step(self) -> None:
        """One proposal, taken or not."""
        nodes = self.nodes()
        growable = [node for node in nodes if not node.children and node.rules]
        prunable = [node for node in nodes if node.children and not any(child.children for child
                                                                     in node.children)]
        kind = int(self.random.integers(3))
        if kind == GROW and growable:
            self._grow(growable[self.random.integers(len(growable))], len(growable), prunable)
        elif kind == PRUNE and prunable:
            self._prune(prunable[self.random.integers(len(prunable))], len(prunable), growable)
        elif kind == CHANGE and prunable:
            node = prunable[self.random.integers(len(prunable))]
            column, cut, children = self._split(node)
            if self._accept(sum(map(self.evidence, children))
                            - sum(map(self.evidence, node.children))):
                node.column, node.cut, node.children = column, cut, children

    def _grow(self, leaf: Node, n_growable: int, prunable: list[Node]) -> None:
        column, cut, children = self._split(leaf)
        # above it there may be one that had two leaves, and no longer has
        fewer = any(leaf is child for node in prunable for child in node.children)
        ratio = self._gain(leaf, children) + np.log(n_growable) - np.log(len(prunable) + 1 - fewer)
        if self._accept(ratio):
            leaf.column, leaf.cut, leaf.children = column, cut, children

    def _prune(self, node: Node, n_prunable: int, growable: list[Node]) -> None:
        n_after = len(growable) - sum(bool(child.rules) for child in node.children) + 1
        ratio = -self._gain(node, node.children) + np.log(n_prunable) - np.log(n_after)
        if self._accept(ratio):
            node.column, node.cut, node.children = -1, np.nan, ()

    def _gain(self, node: Node, children: tuple[Node, ...]) -> float:
        """log of the density with a split over that without, but for 1 / rules."""
        a, b, _ = self.prior
        return (np.log(a) - b * np.log1p(node.depth) + sum(map(self.evidence, children))
                - self.evidence(node))

    def _split(self, node: Node) -> tuple[int, float, tuple[Node, Node]]:
        cuts = np.array([len(each) - 1 for each in node.values])
        rule = int(self.random.integers(cuts.sum()))
        column = int(np.searchsorted(np.cumsum(cuts), rule, side="right"))
        index = rule - int(cuts[:column].sum())
        low, high = node.values[column][index : index + 2]
        is_low = self.X[node.rows, column] <= low
        children = (self._node(node.rows[is_low], node.depth + 1),
                    self._node(node.rows[~is_low], node.depth + 1))
        return column, float(low + (high - low) / 2), children

    def _accept(self, ratio: float) -> bool:
        return bool(np.log(self.random.random()) < ratio)

    def tree(self) -> "Tree":
        """The tree as it is, for new rows."""
        return Tree.of(self.root, self.prior[2])


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree as arrays over its nodes, the root first."""

    columns: np.ndarray  # (m,) −1 at leaves
    cuts: np.ndarray
    children: np.ndarray  # (m, 2)
    shares: np.ndarray  # (m, classes) p(class) in a node

    @classmethod
    def of(cls, root: Node, concentration: float) -> "Tree":
        nodes, places = [root], {id(root): 0}
        for node in nodes:  # grows as it goes
            for child in node.children:
                places[id(child)] = len(nodes)
                nodes.append(child)
        counts = np.array([node.counts for node in nodes]) + concentration
        return cls(np.array([node.column for node in nodes]),
                   np.array([node.cut for node in nodes]),
                   np.array([[places[id(child)] for child in node.children] or [0, 0]
                             for node in nodes]),
                   counts / counts.sum(1, keepdims=True))

    @property
    def leaves(self) -> int:
        return int((self.columns < 0).sum())

    def predict(self, X: np.ndarray) -> np.ndarray:
        """p(class) of rows, (n, classes)."""
        nodes = np.zeros(len(X), int)
        while (inner := np.flatnonzero(self.columns[nodes] >= 0)).size:
            node = nodes[inner]
            is_high = X[inner, self.columns[node]] > self.cuts[node]
            nodes[inner] = self.children[node, is_high.astype(int)]
        return self.shares[nodes]
