"""Boosting: a sum of small trees that climbs a log-likelihood of rows, stage by stage."""

import functools
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from probml import DataError, ModelError
from probml.errors import counted, listed
from probml.estimators.estimator import Estimator, absent
from probml.estimators.rules import (
    SEED,
    SHARE,
    Rule,
    Seed,
    check,
    integer,
    number,
    optional,
    parameter,
)
from probml.estimators.validation import check_is_fitted, column_or_1d
from probml.language.given import floats
from probml.models.frames.scaling import middle_and_unit

LIKELIHOODS: dict[str, Callable] = {
    "normal": lambda score: dist.Normal(score, 1.0),
    "bernoulli": lambda score: dist.Bernoulli(logits=score),
    "poisson": lambda score: dist.Poisson(jnp.exp(score)),
    "exponential": lambda score: dist.Exponential(jnp.exp(-score)),
}
LIKELIHOOD: Rule = (f"one of {listed(LIKELIHOODS)}, or a function of the score that "
                   f"gives a NumPyro distribution",
                   lambda v: callable(v) or isinstance(v, str) and v in LIKELIHOODS)
MIN_CURVATURE = 1e-10  # curvature of a leaf below which it stays as it is
HALVINGS = 12  # of a leaf's step
STEPS = 50  # of Newton's to the first, constant score
PATIENCE = 20  # stages without a gain on held-out rows, after which no more are made


class _Programs(NamedTuple):
    """What is asked of a likelihood, each one program for so many rows."""

    slopes: Callable  # scores, y → (slope, −curvature) of each row's log-likelihood
    logs: Callable  # scores, y → log p(y | f), (n,)
    within: Callable  # y → whether each lies in the support at a score of 0, (n,)


def _programs_of(likelihood: Callable, jit: Callable = jax.jit) -> _Programs:
    """The programs of a likelihood."""

    def logs(scores, y):
        return likelihood(scores).log_prob(y)

    def slopes(scores, y):
        slope, curvature = jax.jvp(jax.grad(lambda f: logs(f, y).sum()), (scores,),
                                   (jnp.ones_like(scores),))
        return slope, -curvature

    return _Programs(jit(slopes), jit(logs),
                     jit(lambda y: likelihood(jnp.zeros_like(y)).support(y)))


_of_name = functools.cache(lambda name: _programs_of(LIKELIHOODS[name]))  # all fits share them


def _logs(scores: np.ndarray, y: np.ndarray, programs: _Programs) -> np.ndarray:
    with jax.enable_x64(True):  # of the scores' own digits, as the trees'
        return np.asarray(programs.logs(jnp.asarray(scores), jnp.asarray(y)), float)


@dataclass(eq=False, repr=False)
class Boosted(Estimator):
    """A score f(x) = f_0 + rate · Σ_m tree_m(x) under any likelihood of a row, p(y | f(x)),
    optimised by gradient boosting (Friedman 2001).

        g_i = ∂ log p(y_i | f) / ∂f at f(x_i),    h_i = −∂² log p / ∂f²
        tree_m: least squares on g;  in a leaf the step Σ g / Σ |h|

    which is Newton's where the log-likelihood is concave, and is halved where it would lower the
    log-likelihood of a leaf.

    With "bernoulli" it is stagewise additive logistic regression (Friedman, Hastie & Tibshirani
    2000), scikit-learn's GradientBoostingClassifier; but the likelihood is any function from score
    to distribution, whose derivatives JAX takes: `lambda f: dist.StudentT(4, f, 2.0)`,
    `lambda f: dist.NegativeBinomial2(jnp.exp(f), 3.0)`.

    Args:
        likelihood: "normal" (of variance 1: least squares), "bernoulli" (f the log odds of 1),
            "poisson" (f the log rate), "exponential" (f the log mean), or a function f (n,) →
            NumPyro distribution of n rows.
        n_estimators: trees at the most.
        learning_rate: how much of each tree's step is made.
        max_depth, min_samples_leaf: of the trees.
        validation_fraction: share of the rows that are held out to say when to stop, after 20 trees
            that gained nothing there, keeping the best number; 0: all trees are made on all rows.
        random_state: of the held-out rows, and of columns that split alike; None is 0.

    Attributes:
        base_score_ (f_0), trees_ (scikit-learn's), n_estimators_ (those used), train_score_ and
        validation_score_ (mean log p(y | x) per row, after each tree; of no held-out rows
        empty), n_features_in_.

    Raises: see fit.
    Cost: a tree each stage; gradients are one program of the rows.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris[["Petal.Length", "Petal.Width"]], iris["Species"]
        >>> from probml.models import Boosted
        >>> boosted = Boosted("bernoulli", n_estimators=50, random_state=0).fit(X, y == "virginica")
        >>> print(boosted.predict(X[:2]))
        [0.0028589 0.0028589]
    """

    likelihood: Any = parameter("normal", LIKELIHOOD)
    _: KW_ONLY
    n_estimators: int = parameter(200, integer(1, 1_000_000))
    learning_rate: float = parameter(0.1, number(0.0, above=True))
    max_depth: int | None = parameter(3, optional(integer(1)))
    min_samples_leaf: int = parameter(1, integer(1))
    validation_fraction: float = parameter(0.0, SHARE)
    random_state: Seed = parameter(None, SEED)

    def fit(self, X, y):
        """Learn from rows X (n, d), cells NaN where missing, and targets y (n,).

        Raises:
            ModelError, DataError, ValueError: a parameter or a cell that cannot be used; y outside
                the likelihood's support, or of which the likelihood has no maximum.
        """
        from sklearn.tree import DecisionTreeRegressor

        check(self)
        programs = self._programs()
        X, y = self._validated(X, reset=True), self._target_of(X, y, programs)
        # the trees keep six digits of a number
        self._middle, self._unit = middle_and_unit(X)
        X = (X - self._middle) / self._unit
        train, held_out = self._split(len(y))
        self.base_score_ = self._constant(y[train], programs)
        scores = np.full(len(y), self.base_score_)
        self.trees_, train_score, held_score = [], [], []
        for _ in range(self.n_estimators):
            with jax.enable_x64(True):
                g, h = (np.asarray(part, float) for part in programs.slopes(scores[train],
                                                                             y[train]))
            tree = DecisionTreeRegressor(max_depth=self.max_depth, random_state=self._seed(),
                                         min_samples_leaf=self.min_samples_leaf).fit(X[train], g)
            leaf = tree.apply(X[train])
            # |h|: rows at which the log-likelihood is not concave
            grad, curv = (np.bincount(leaf, part, tree.tree_.node_count) for part in (g, np.abs(h)))
            step = self._safe(np.where(curv > MIN_CURVATURE, grad / np.maximum(curv, MIN_CURVATURE),
                                       0.0), leaf,
                              scores[train], y[train], programs)
            tree.tree_.value[:, 0, 0] = step
            self.trees_.append(tree)
            scores += self.learning_rate * tree.predict(X)
            logs = _logs(scores, y, programs)
            train_score.append(logs[train].mean())
            if not np.isfinite(train_score[-1]):
                raise DataError(f"Boosted: the log-likelihood is {train_score[-1]} after "
                                f"{counted(len(self.trees_), 'tree')}, which is not finite. Lower "
                                "learning_rate, or use a likelihood with heavier tails")
            if len(held_out):
                held_score.append(logs[held_out].mean())
                if len(held_score) - 1 - int(np.argmax(held_score)) >= PATIENCE:
                    break
        n_best = int(np.argmax(held_score)) + 1 if len(held_out) else len(self.trees_)
        self.trees_, self.n_estimators_ = self.trees_[:n_best], n_best
        self.train_score_, self.validation_score_ = np.array(train_score), np.array(held_score)
        return self

    def _likelihood(self) -> Callable:
        return LIKELIHOODS[self.likelihood] if isinstance(self.likelihood, str) else self.likelihood

    def _programs(self) -> _Programs:
        """The programs, of a function anew for each fit, since what it reads from outside may have
        changed."""
        if isinstance(self.likelihood, str):
            return _of_name(self.likelihood)
        return _programs_of(self.likelihood)

    def _target_of(self, X, y, programs: _Programs) -> np.ndarray:
        y = floats(column_or_1d(y, warn=True), "Boosted: y")
        if len(y) != len(X):
            raise DataError(f"Boosted: X has {counted(len(X), 'row')}, y has {len(y)}: "
                            "inconsistent numbers of samples. Pass one y for each row of X")
        captured: list = []
        try:
            with jax.enable_x64(True):
                jax.eval_shape(lambda f: captured.append(self._likelihood()(f)), np.zeros(len(y)))
        except Exception as error:  # of the user's function, which may raise anything
            message = f"{type(error).__name__}: {error}".splitlines()[0]
            raise ModelError(f"Boosted: the function likelihood= failed for an array of scores\n"
                             f"{message}\nExpected a function written in jax.numpy, such as "
                             "lambda f: dist.StudentT(4, f, 2.0)") from error
        result = captured[0]
        if not isinstance(result, dist.Distribution) or result.shape() != (len(y),):
            got = (f"the shape {result.shape()}" if isinstance(result, dist.Distribution)
                   else f"an object of the type {type(result).__name__}")
            raise DataError("Boosted: the function likelihood= must return a NumPyro distribution "
                            f"of the shape ({len(y)},), one value for each score, got {got}. "
                            "Write, for example, lambda f: dist.Normal(f, 1.0)")
        with jax.enable_x64(True):
            in_support = np.asarray(programs.within(y)) & np.isfinite(y)
        if not in_support.all():
            row = int(np.argmin(in_support))
            raise DataError(f"Boosted: y is {y[row]:g} in row {row}, which is not a possible value "
                            f"of the likelihood, {type(result).__name__}. Check this value, or "
                            "choose another likelihood=")
        return y

    def _split(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        count = int(round(self.validation_fraction * n))
        order = np.random.default_rng(self._seed()).permutation(n) if count else np.arange(n)
        return np.sort(order[count:]), np.sort(order[:count])

    def _constant(self, y: np.ndarray, programs: _Programs) -> float:
        """The best score without any tree, by Newton's steps."""
        score, max_step = 0.0, 4.0
        for _ in range(STEPS):
            with jax.enable_x64(True):
                g, h = (float(np.asarray(part).sum())
                        for part in programs.slopes(np.full(len(y), score), y))
            step = g / h if h > MIN_CURVATURE * len(y) else np.sign(g)
            score += float(np.clip(step, -max_step, max_step))
            max_step = 2 * max_step if abs(step) > max_step else 4.0  # as of y in grams
            if abs(step) < 1e-12:
                break
        if not abs(step) < 1e-3:
            raise DataError("Boosted: boosting starts from the best prediction that is the same in "
                            "all rows, but the likelihood of y has no maximum there. Check whether "
                            "y is the same in every row")
        return score

    def _safe(self, step: np.ndarray, leaf: np.ndarray, scores: np.ndarray,
              y: np.ndarray, programs: _Programs) -> np.ndarray:
        """Steps of the leaves, halved until none lowers the log-likelihood of its rows."""
        before = _logs(scores, y, programs)
        for _ in range(HALVINGS):
            after = _logs(scores + self.learning_rate * step[leaf], y, programs)
            gain = np.bincount(leaf, np.where(np.isnan(after), -np.inf, after) - before, len(step))
            if not (gain < -1e-6 * (1 + np.abs(before).sum())).any():
                break
            step = np.where(gain < 0, 0.5 * step, step)
        return step

    # Answers

    def decision_function(self, X):
        """The score f(x), (n,)."""
        check_is_fitted(self, "trees_")
        X = (self._validated(X, reset=False) - self._middle) / self._unit
        return self.base_score_ + self.learning_rate * sum(
            (tree.predict(X) for tree in self.trees_), np.zeros(len(X)))

    def distribution(self, X) -> dist.Distribution:
        """p(y | x) of every row, a NumPyro distribution of n."""
        return self._likelihood()(jnp.asarray(self.decision_function(X)))

    predict_proba = absent("predict_proba", "use distribution(X) for the probabilities of y")

    def predict(self, X):
        """The mean of y given x, (n,)."""
        with jax.enable_x64(True):
            return np.asarray(self.distribution(X).mean, float)

    def log_prob(self, X, y):
        """log p(y | x), (n,)."""
        programs = (self._programs() if isinstance(self.likelihood, str)
                    else _programs_of(self.likelihood, jit=lambda function: function))
        y = self._target_of(self._validated(X, False), y, programs)
        return _logs(self.decision_function(X), y, programs)

    def score(self, X, y):
        """The mean of log_prob."""
        return float(self.log_prob(X, y).mean())
