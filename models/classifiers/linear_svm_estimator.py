"""The scikit-learn estimator of linear support vector machines."""

import warnings
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np

from probml import MAP, DataError
from probml.engines.engine import Engine
from probml.errors import counted
from probml.estimators.rules import (
    CLASS_WEIGHT,
    ENGINE,
    FLAG,
    LARGEST_INTEGER,
    SEED,
    ClassWeight,
    Seed,
    integer,
    number,
    one_of,
    parameter,
)
from probml.estimators.validation import ConvergenceWarning
from probml.models.classifiers.linear_classification import linear_support_vector_machine
from probml.models.classifiers.planes import Planes, with_class_labels
from probml.models.frames.complete import LossOnly
from probml.models.frames.standardized import row_weights
from probml.models.kernels.interior_point import Solution, hinge, solution

# by which the dual's maximum may be missed, relative to it
GAP = 1e-6
IDLE = 1e-6  # a decision value of which no digit is told


@dataclass(eq=False, repr=False)
class LinearSVM(LossOnly, Planes):
    """A linear support vector machine; of several classes, one against the rest.

        min over β, b:  ½ |β|² + C Σ_i weight_i · max(0, 1 − s_i (x_i β + b))^p,   s_i = ±1

    The intercept is not penalised (scikit-learn's LinearSVC penalises it, SVC does not). The
    squared hinge is optimised as probml.models.linear_support_vector_machine; the hinge is solved
    by its dual, whose support vectors are then known.

    Args:
        C: cost of a violation, which weighs rows against the penalty; that is in the columns' own
            units, as scikit-learn's, so that scale matters to it, and an offset does not.
        loss: "squared_hinge" (p = 2) or "hinge" (p = 1).
        fit_intercept: with b.
        class_weight: None, "balanced" or class → weight.
        max_iter: iterations of L-BFGS; of the dual, steps of an interior-point method, some 20.
        random_state: of no use, as nothing is random; accepted as in scikit-learn.
        engine: an engine's value for the squared hinge; by default MAP().

    Attributes:
        classes_, coef_ (1, d) or (k, d), intercept_, n_iter_, converged_, history_; support_ (of
        the hinge: rows at or within the margin of some plane); fit_: the probml Fit, a loss without
        likelihood, whose data are those of `as_data`.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris.drop(columns="Species"), iris["Species"]
        >>> from probml.models import LinearSVM
        >>> svm = LinearSVM().fit(X, y == "setosa")
        >>> print(svm.predict(X[:2]))
        [ True  True]
    """

    C: float = parameter(1.0, number(0.0, above=True))
    _: KW_ONLY
    loss: str = parameter("squared_hinge", one_of("squared_hinge", "hinge"))
    fit_intercept: bool = parameter(True, FLAG)
    class_weight: ClassWeight = parameter(None, CLASS_WEIGHT)
    max_iter: int = parameter(1000, integer(1))
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and labels y (n,).

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell, a label or a weight that cannot
                be used, by name; one class only.
        """
        X, codes, weights = self._balanced(X, y, sample_weight)
        k, x = len(self.classes_), self._frame(X, weights, force=True)
        if (self._scale() < 1).any():
            # the penalty bends such weights more than rows do: in these units it bends by 1
            self._unit = np.maximum(self._unit, 1 / np.sqrt(self.C))
            x = self._standardize(X)
        model = linear_support_vector_machine(
            classes=k, loss=self.loss, weight_scale="each",
            bias_scale=None if self.fit_intercept else 0
        )
        if self.loss == "hinge":
            self._dual(X, codes, weights, model)
            self._warn_if_uninformative(X)
            return self
        data = {"x": x, "y": codes, "weight_scale": self._scale()}
        engine = self.engine or MAP(steps=int(self.max_iter))
        fit = model.fit(data, engine, weights=row_weights(weights), seed=self._seed())
        self._found(with_class_labels(fit, self.classes_))
        planes = fit.params["beta"].shape[1]
        self.coef_, self.intercept_ = self._planes(fit.params["beta"],
                                                   fit.params.get("intercept", np.zeros(planes)))
        self._warn_if_uninformative(X)
        return self

    def _warn_if_uninformative(self, X) -> None:
        """Warn where the penalty shrinks all weights to 0: the sign of what is left is that of
        rounding."""
        peak = np.abs((X - self._centre) @ self.coef_.T).max(initial=0.0)
        is_small = X.std(0) < 1 / np.sqrt(self.C)
        if peak < IDLE and is_small.all() and (X != X[:1]).any():
            warnings.warn(
                "the penalty of LinearSVM shrinks all weights to nearly 0. All decision values "
                f"differ by at most {2 * peak:.1g}, so the predicted classes are not informative. "
                f"Columns with such small standard deviations ({self._spreads(X)}) need a much "
                "larger C, about 1 / (standard deviation)². Standardise the columns, or raise "
                f"C={self.C:g}",
                RuntimeWarning, stacklevel=3)

    @staticmethod
    def _spreads(X) -> str:
        low, high = np.sort(X.std(0))[[0, -1]]
        return f"{low:.1g}" if high < 2 * low else f"{low:.1g} to {high:.1g}"

    def _dual(self, X, codes, weights, model) -> None:
        """Each plane by its dual, on the columns about their means: Σβ = 0 says that an offset does
        not matter."""
        if not self.fit_intercept:
            raise DataError("LinearSVM(loss='hinge', fit_intercept=False): the hinge loss is "
                            "supported only with an intercept. Use fit_intercept=True, or "
                            "loss='squared_hinge'")
        # in the frame's units the penalty would be another
        x, planes = X - self._centre, [1] if len(self.classes_) == 2 else range(len(self.classes_))
        fits = [_plane(x, np.where(codes == plane, 1.0, -1.0), self.C * weights,
                       int(self.max_iter)) for plane in planes]
        beta = np.stack([x.T @ sol.beta for sol in fits], 1) * self._unit[:, None]
        bias = np.array([sol.bias for sol in fits])
        self.support_ = np.flatnonzero(np.any([sol.beta != 0 for sol in fits], 0))
        self.n_iter_, self.converged_ = (max(sol.turns for sol in fits),
                                         all(sol.gap <= GAP for sol in fits))
        self.history_ = np.array([sol.objective for sol in fits])
        if not self.converged_:
            warnings.warn(
                f"LinearSVM stopped after {counted(self.n_iter_, 'iteration')} with a relative "
                f"duality gap (0 at the optimum) of {max(e.gap for e in fits):.2g}. Standardise "
                f"the columns, lower C={self.C:g}, or raise "
                f"max_iter={self.max_iter}", ConvergenceWarning, stacklevel=3)
        self.coef_, self.intercept_ = self._planes(beta, bias)
        fit = model.at({"beta": beta, "intercept": bias, "weight_scale": self._scale()},
                       {"y": tuple(self.classes_.tolist())})
        self.fit_ = replace(fit, units=self._parameter_units(fit))


def _plane(x: np.ndarray, sign: np.ndarray, cost: np.ndarray, max_iter: int) -> Solution:
    """The plane of rows of sign 1 and −1; where its margin is so hard that an interior point runs
    out of digits, by LIBSVM's steps, `max_iter` for each row."""
    from sklearn.svm import SVC

    by_interior = hinge(x, sign, cost, max_iter)
    if by_interior.gap <= GAP:
        return by_interior
    svc = SVC(C=1.0, kernel="linear", tol=1e-6,
              max_iter=min(max_iter * len(x), LARGEST_INTEGER))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solver terminated early")
        svc.fit(x, sign, sample_weight=cost)
    beta = np.zeros(len(x))
    beta[svc.support_] = svc.dual_coef_[0]
    by_libsvm = solution(x, sign, cost, beta, int(svc.n_iter_[0]))
    return min(by_interior, by_libsvm, key=lambda sol: sol.gap)
