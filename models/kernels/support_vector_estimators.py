"""scikit-learn estimators of support vector machines, of classes and of numbers.

The dual is solved by LIBSVM through scikit-learn's SVC and SVR, which are no slower than what stood
here; what the estimators add are words for what cannot be used, weights without rows of weight 0,
digits at an offset of the columns, and the loss as a function, `fit_`.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from probml import Fit, ModelError
from probml.errors import listed
from probml.estimators.estimator import Estimator
from probml.estimators.rules import (
    CLASS_WEIGHT,
    LARGEST_INTEGER,
    ClassWeight,
    Rule,
    integer,
    number,
    one_of,
    parameter,
)
from probml.estimators.validation import (
    ConvergenceWarning,
    RegressorMixin,
    check_is_fitted,
    compute_class_weight,
)
from probml.interface.showing.estimates import Estimates, no_tables
from probml.interface.showing.summary import Table
from probml.models.frames.complete import LossOnly, NoProbabilities, Numbered
from probml.models.frames.margins import Margin
from probml.models.kernels.support_vectors import (
    KERNELS,
    Kernel,
    pairs,
    support_vector_machine,
    support_vector_regression,
)

LARGEST = float(np.finfo(np.float32).max)  # LIBSVM keeps its kernel in float32
CACHE = 1000  # MB of it
REAL: Rule = ("a number",
              lambda v: isinstance(v, Real) and not isinstance(v, bool) and math.isfinite(v))
GAMMA: Rule = (
    "'scale', 'auto' or a number of at least 0",
    lambda v: v in ("scale", "auto") if isinstance(v, str) else REAL[1](v) and v >= 0,
)


class _Machine(Estimator):
    """What both estimators share: the kernel, the dual, sums over support vectors."""

    # of the estimator
    kernel: str
    gamma: float | str
    degree: int
    coef0: float
    C: float
    tol: float
    max_iter: int
    support_: np.ndarray
    support_vectors_: np.ndarray
    n_iter_: Any
    _dual: np.ndarray
    _linear: np.ndarray
    _bias: np.ndarray
    _rows: Callable[..., np.ndarray]
    _fit_at_solution: Callable[[], Fit]

    def _tables(self, estimates: Estimates) -> list[Table]:
        return no_tables(estimates)

    def _figures(self):
        return {**super()._figures(), "support vectors": len(self.support_)}

    def _kernel(self, X: np.ndarray, weights: np.ndarray) -> Kernel:
        gamma = self.gamma
        if isinstance(gamma, str):
            # a row of weight 2 is two
            spread = X.var() if np.ptp(weights) == 0 else np.average(
                ((X - np.average(X.mean(1), weights=weights)) ** 2).mean(1), weights=weights)
            gamma = (1 / X.shape[1] if gamma == "auto" else 1 / (X.shape[1] * spread)
                     if spread > 0 else 1.0)
        return Kernel(self.kernel, float(gamma), float(self.degree), float(self.coef0))

    def _settle(self, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Learn the kernel, and where it has its origin, if that changes nothing but the digits:
        of a linear kernel Σβ = 0 says so. X about it.

        Raises:
            ModelError: the kernel has numbers that LIBSVM cannot hold.
        """
        self.kernel_ = self._kernel(X, weights)
        self._origin = X.mean(0) if self.kernel == "linear" else np.zeros(X.shape[1])
        X = X - X.mean(0) if self.kernel == "rbf" else self._about(X)
        with np.errstate(over="ignore"):
            diag = self.kernel_.own(X)
        if not (np.abs(diag) < LARGEST).all():
            row = int(np.argmin(np.abs(diag) < LARGEST))
            raise ModelError(f"{type(self).__name__}(kernel={self.kernel!r}): the kernel of row "
                             f"{row} with itself is {diag[row]:g}, which is too large for accurate "
                             f"results. Standardise the columns of X")
        return X

    def _about(self, X: np.ndarray) -> np.ndarray:
        return X - self._origin if self._origin.any() else X

    def _run_solver(self, machine: type, X: np.ndarray, y: np.ndarray, weights: np.ndarray,
                    **settings):
        """SVC or SVR, fitted; a warning where it stopped at its limit."""
        kernel = self.kernel_
        solver = machine(C=self.C, kernel=kernel.name, gamma=kernel.gamma,
                         degree=int(kernel.degree), coef0=kernel.coef0, tol=self.tol,
                         max_iter=self.max_iter, cache_size=CACHE, **settings)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Solver terminated early")
            solver.fit(X, y, sample_weight=weights)
        self.n_iter_ = np.atleast_1d(solver.n_iter_)
        self.converged_ = solver.fit_status_ == 0
        if not self.converged_:
            warnings.warn(
                f"{type(self).__name__} stopped at max_iter={self.max_iter} before it "
                f"converged to the tolerance tol={self.tol:g}. Standardise the columns, lower "
                f"C={self.C:g}, or raise max_iter",
                ConvergenceWarning,
                stacklevel=4,
            )
        return solver

    @property
    def dual_objective_(self):
        """Σ_i c_i β_i − ½ βᵀKβ of every pair, (pairs,); c the classes' signs, or y less the
        tube."""
        check_is_fitted(self)
        quadratic, start = np.zeros(len(self._dual)), 0
        for block in self._kernel_blocks(self.support_vectors_):
            part = self._dual[:, start : start + len(block)]
            quadratic += np.einsum("pi,pi->p", part, self._dual @ block.T)
            start += len(block)
        return (self._linear * self._dual).sum(1) - 0.5 * quadratic

    def _sums(self, X: np.ndarray) -> np.ndarray:
        """Σ_i β_i K(x_i, x) + b of every row and pair, (n, pairs)."""
        parts = [block @ self._dual.T for block in self._kernel_blocks(X)]
        return np.concatenate(parts) + self._bias

    def _kernel_blocks(self, X: np.ndarray):
        return self.kernel_.blocks(self._about(X), self._about(self.support_vectors_))

    @property
    def intercept_(self):
        """b of every pair, (pairs,), at the kernel's own origin."""
        check_is_fitted(self)
        return self._bias - self.coef_ @ self._origin if self._origin.any() else self._bias

    @property
    def coef_(self):
        """Σ_i β_i x_i of a linear kernel, (pairs, d)."""
        if self.kernel != "linear":
            raise AttributeError("coef_ is defined only for kernel='linear'. Use support_vectors_ "
                                 "and dual_coef_ instead: this estimator has "
                                 f"kernel={self.kernel!r}")
        check_is_fitted(self)
        return self._dual @ self._about(self.support_vectors_)

    def as_data(self, X, y=None) -> dict[str, np.ndarray]:
        """Rows as the data of `fit_`: their kernel values against the support vectors, (n, n_SV),
        linear ones about the mean, and y."""
        data = {"kernel": np.concatenate(list(self._kernel_blocks(self._rows(X))))}
        return data if y is None else {**data, "y": np.asarray(y)}

    @cached_property
    def fit_(self) -> Fit:  # type: ignore[override]
        """The probml Fit of what was found, made when it is first asked for; its data are those of
        `as_data`."""
        check_is_fitted(self)
        return self._fit_at_solution()


@dataclass(eq=False, repr=False)
class SupportVectorMachine(LossOnly, _Machine, Margin):
    """Classification by a margin in the space of a kernel: the dual of the hinge loss,
    scikit-learn's SVC.

        min over f, b:  ½ |f|² + Σ_i C_i max(0, 1 − y_i (f(x_i) + b)),
        C_i = C · class weight · row weight

    More than two classes are parted one against one, as LIBSVM does: each pair's machine has a
    vote, and a tie goes to the greater sum of (squashed) decision values, as SVC(break_ties=True).
    The function of `fit_` is probml.models.support_vector_machine; it takes the class of the least
    sum of its pairs' losses, which may break ties otherwise.

    Args:
        C: cost of a violation.
        kernel: "linear", "poly", "rbf" or "sigmoid" (which is no inner product: the solution is
            then a local one).
        degree, gamma, coef0: of the kernel: poly (γ a·b + coef0)^degree, rbf exp(−γ|a − b|²),
            sigmoid tanh(γ a·b + coef0). gamma "scale" is 1/(d · variance of all cells, by
            the weights of their rows), "auto" 1/d.
            Distances are in the columns' own units, as scikit-learn's: standardise columns of
            different units or means, which enter that variance. One offset of all columns matters
            to poly and sigmoid alone.
        class_weight: None, "balanced" (rows / (classes · rows of the class)) or class → weight.
        decision_function_shape: "ovr": a column for each class, votes and squashed sums; "ovo": one
            for each pair, positive for its first class. Of two classes there is one number,
            positive for classes_[1].
        tol: by which the conditions of optimality may be missed, in units of the decision value.
        max_iter: steps for each pair of classes, after which it stops with a warning.

    Attributes:
        classes_, support_ (rows of the support vectors, by class), support_vectors_, n_support_
        (k,), dual_coef_ (k − 1, n_SV) and intercept_ (pairs,) as SVC has them, coef_ (pairs, d) of
        a linear kernel, dual_objective_ (pairs,) Σα − ½ βKβ, n_iter_ (pairs,),
        converged_, kernel_, fit_: the probml Fit.

    LIBSVM rounds kernel values to float32; all else is in float64, whatever JAX's precision.
    Cost: as many steps of O(n) as rows, each a row of the kernel, of which a GB is cached; many
    more
        for a large C on a flat kernel, where a linear machine has LinearSVM(loss="hinge").

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris.drop(columns="Species"), iris["Species"]
        >>> from probml.models import SupportVectorMachine
        >>> svm = SupportVectorMachine(C=1.0, kernel="rbf").fit(X, y)
        >>> round(svm.score(X, y), 2)
        0.97
    """

    C: float = parameter(1.0, number(0.0, above=True))
    _: KW_ONLY
    kernel: str = parameter("rbf", one_of(*KERNELS))
    degree: int = parameter(3, integer(0, LARGEST_INTEGER))
    gamma: float | str = parameter("scale", GAMMA)
    coef0: float = parameter(0.0, REAL)
    class_weight: ClassWeight = parameter(None, CLASS_WEIGHT)
    decision_function_shape: str = parameter("ovr", one_of("ovr", "ovo"))
    tol: float = parameter(1e-3, number(0.0, above=True))
    max_iter: int = parameter(10_000_000, integer(1, LARGEST_INTEGER))

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and labels y (n,).

        Args:
            sample_weight: (n,), of which C is a multiple; rows of weight 0 are left out.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell, a label or a weight that cannot
                be used, by name; one class only.
        """
        from sklearn.svm import SVC

        X, codes, weights, kept_rows = self._read(X, y, sample_weight)
        solver = self._run_solver(SVC, self._settle(X, weights), codes,
                                  weights * self._weights_of_classes(codes)[codes])
        self.support_, self.support_vectors_ = kept_rows[solver.support_], X[solver.support_]
        self.n_support_, self.dual_coef_ = solver.n_support_.astype(int), solver.dual_coef_
        self._bias = solver.intercept_
        # of every pair the coefficients of its two classes, which stand in the other's row
        sv_codes, k = codes[solver.support_], len(self.classes_)
        first, second = pairs(k)
        self._dual = np.zeros((len(first), len(sv_codes)))
        for pair, (i, j) in enumerate(zip(first, second, strict=True)):
            for here, there in ((i, j), (j, i)):
                in_class = sv_codes == here
                self._dual[pair, in_class] = self.dual_coef_[there - (there > here), in_class]
        self._linear = np.sign(self._dual)
        self.__dict__.pop("fit_", None)
        return self

    def _weights_of_classes(self, codes: np.ndarray) -> np.ndarray:
        if isinstance(self.class_weight, Mapping):
            classes = self.classes_.tolist()
            unknown = next((name for name in self.class_weight if name not in classes), None)
            if unknown is not None:
                raise ModelError(f"SupportVectorMachine(class_weight=...): {unknown!r} is not one "
                                 f"of the classes. Use the classes {listed(classes)} as keys")
            weights = np.array([self.class_weight.get(name, 1.0) for name in classes], float)
            if not (np.isfinite(weights) & (weights > 0)).all():
                raise ModelError(f"SupportVectorMachine(class_weight={dict(self.class_weight)!r}): "
                                 f"expected numbers above 0")
            return weights
        return compute_class_weight(self.class_weight, classes=np.arange(len(self.classes_)),
                                    y=codes)

    def decision_function(self, X):
        """f(x) of two classes, (n,), positive for classes_[1]; of more classes (n, k), or (n,
        pairs) where decision_function_shape="ovo"."""
        sums, k = self._sums(self._rows(X)), len(self.classes_)
        if k == 2:
            return sums[:, 0]
        return sums if self.decision_function_shape == "ovo" else self._votes(sums)

    def _votes(self, sums: np.ndarray) -> np.ndarray:
        """Votes of the pairs, and within a vote the sums of their decision values, squashed into
        (−1/3, 1/3); (n, k)."""
        states, (first, second) = np.arange(len(self.classes_)), pairs(len(self.classes_))
        is_first, is_second = ((first[:, None] == states).astype(float),
                               (second[:, None] == states).astype(float))
        total = sums @ (is_first - is_second)
        return (sums >= 0) @ is_first + (sums < 0) @ is_second + total / (3 * (np.abs(total) + 1))

    def predict(self, X):
        """The class of every row, as a label."""
        sums = self._sums(self._rows(X))
        return self.classes_[(sums[:, 0] > 0).astype(int) if len(self.classes_) == 2
                             else self._votes(sums).argmax(1)]

    def _fit_at_solution(self) -> Fit:
        model = support_vector_machine(classes=len(self.classes_), c=float(self.C))
        return model.at({"dual": self._dual, "bias": self._bias},
                        {"y": tuple(self.classes_.tolist())})


@dataclass(eq=False, repr=False)
class SupportVectorRegression(RegressorMixin, _Machine, Numbered, NoProbabilities, Estimator):
    """Regression by a tube of half-width epsilon in the space of a kernel: the dual of the
    ε-insensitive loss, scikit-learn's SVR.

        min over f, b:  ½ |f|² + Σ_i C_i max(0, |y_i − f(x_i) − b| − ε)

    Args:
        C, kernel, degree, gamma, coef0, tol, max_iter: as in SupportVectorMachine.
        epsilon: half-width of the tube in which errors cost nothing, in units of y.

    Attributes:
        support_ (rows of the support vectors), support_vectors_, dual_coef_ (1, n_SV), intercept_
        (1,), coef_ (1, d) of a linear kernel, dual_objective_, n_iter_, converged_, kernel_; fit_:
        the probml Fit of probml.models.support_vector_regression (a missing y is refused, as any
        number on which a loss depends: predict here).

    Cost: as SupportVectorMachine, two variables a row.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> mcycle = pd.read_csv(files("probml.data") / "mcycle.csv")
        >>> from probml.models import SupportVectorRegression
        >>> X, y = mcycle[["times"]], mcycle["accel"]
        >>> curve = SupportVectorRegression(C=100.0, epsilon=10.0, gamma=0.01).fit(X, y)
        >>> round(curve.score(X, y), 1)
        0.8
    """

    C: float = parameter(1.0, number(0.0, above=True))
    _: KW_ONLY
    epsilon: float = parameter(0.1, number(0.0))
    kernel: str = parameter("rbf", one_of(*KERNELS))
    degree: int = parameter(3, integer(0, LARGEST_INTEGER))
    gamma: float | str = parameter("scale", GAMMA)
    coef0: float = parameter(0.0, REAL)
    tol: float = parameter(1e-3, number(0.0, above=True))
    max_iter: int = parameter(10_000_000, integer(1, LARGEST_INTEGER))

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and numbers y (n,).

        Args:
            sample_weight: (n,), of which C is a multiple; rows of weight 0 are left out.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name.
        """
        from sklearn.svm import SVR

        X, y, weights, kept_rows = self._read(X, y, sample_weight)
        solver = self._run_solver(SVR, self._settle(X, weights), y, weights, epsilon=self.epsilon)
        self.support_, self.support_vectors_ = kept_rows[solver.support_], X[solver.support_]
        self._dual = self.dual_coef_ = solver.dual_coef_
        self._bias = solver.intercept_
        self._linear = y[solver.support_] - self.epsilon * np.sign(self._dual)
        self.__dict__.pop("fit_", None)
        return self

    def _fit_at_solution(self) -> Fit:
        model = support_vector_regression(c=float(self.C), epsilon=float(self.epsilon))
        return model.at({"dual": self._dual[0], "bias": self._bias[0]})

    def _rows(self, X) -> np.ndarray:
        check_is_fitted(self)
        return self._require_complete(X, reset=False)

    def predict(self, X):
        """f(x) + b of every row, (n,)."""
        return self._sums(self._rows(X))[:, 0]
