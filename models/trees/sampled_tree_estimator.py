"""The scikit-learn estimator of trees drawn from their posterior."""

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpyro.diagnostics import split_gelman_rubin

from probml.estimators.classifier import Classifier
from probml.estimators.rules import PARTS, SEED, STARTS, Seed, check, integer, number, parameter
from probml.estimators.validation import ConvergenceWarning, check_is_fitted
from probml.models.trees.sampled_trees import Chain

INSIDE: Any = ("a number above 0 and below 1",
               lambda v: isinstance(v, int | float | np.number) and not isinstance(v, bool)
               and 0 < v < 1)
APART = 1.2  # R̂ of the log density above which a warning says that the chains disagree


@dataclass(eq=False, repr=False)
class SampledTree(Classifier):
    """Bayesian CART: decision trees drawn from their posterior by Metropolis–Hastings, Dirichlet
    leaves integrated out, and averaged (models/trees/sampled_trees.py). EvidenceTree sums the
    prunings of one grown tree instead, at once.

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
        seen = ~np.isnan(codes.astype(float))
        X, codes = X[seen], codes[seen].astype(int)
        weights = np.ones(len(X)) if weights is None else weights[seen]
        low, high = np.nanmin(X, 0, initial=0.0), np.nanmax(X, 0, initial=0.0)
        self._below = low - (high - low) - 1.0
        X = np.where(np.isnan(X), self._below, X)
        prior = float(self.base), float(self.power), float(self.concentration)
        self.trees_, logs = [], []
        for random in np.random.default_rng(self._seed()).spawn(self.chains):
            chain = Chain(X, codes, weights, len(self.classes_), prior, random)
            trees, density = [], []
            for step in range(self.warmup + self.draws * self.thin):
                chain.step()
                if step >= self.warmup and (step - self.warmup + 1) % self.thin == 0:
                    trees.append(chain.tree())
                    density.append(chain.log_density())
            self.trees_.append(trees)
            logs.append(density)
        self.log_density_ = np.array(logs)
        self.leaves_ = np.array([[tree.leaves for tree in trees] for trees in self.trees_])
        self.expected_leaves_ = float(self.leaves_.mean())
        self.r_hat_ = self._r_hat()
        if self.r_hat_ > APART:
            warnings.warn(f"SampledTree: chains disagree, R̂ of the log density is "
                          f"{self.r_hat_:.2f}, and the probabilities of the training rows differ "
                          f"by {self._chain_discrepancy(X):.2g} from their mean on average: "
                          f"chains rarely move between trees when rows are many, so more draws "
                          f"help little. predict_proba is the mean of all chains: raise chains "
                          f"(now {self.chains}), or use EvidenceTree, which needs no chains",
                          ConvergenceWarning, stacklevel=2)
        return self

    def _r_hat(self) -> float:
        if self.draws < 4 or np.ptp(self.log_density_) <= 1e-9:
            return 1.0  # too few to halve; or all trees are one
        with np.errstate(divide="ignore", invalid="ignore"):
            found = float(split_gelman_rubin(self.log_density_))
        return found if np.isfinite(found) else np.inf  # each chain stayed where it was

    def _chain_discrepancy(self, X) -> float:
        """The mean absolute difference between the probabilities of each chain and those of all
        chains."""
        own = np.array([sum(tree.predict(X) for tree in trees) / len(trees)
                        for trees in self.trees_])
        return float(np.abs(own - own.mean(0)).mean())

    def predict_proba(self, X):
        """p(class | row), (n, classes), the mean over all trees."""
        check_is_fitted(self, "trees_")
        X = self._validated(X, reset=False)
        X = np.where(np.isnan(X), self._below, X)
        trees = [tree for trees in self.trees_ for tree in trees]
        return sum(tree.predict(X) for tree in trees) / len(trees)
