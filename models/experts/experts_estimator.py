"""The scikit-learn estimators of mixtures of experts, for regression and for classification."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import ArrayLike

from probml import DataError
from probml.engines.engine import Engine
from probml.errors import counted
from probml.estimators.classifier import Classifier
from probml.estimators.estimator import absent
from probml.estimators.rules import (
    ENGINE,
    FLAG,
    SEED,
    STARTS,
    Seed,
    check,
    integer,
    number,
    numbers,
    optional,
    parameter,
)
from probml.estimators.validation import (
    RegressorMixin,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)
from probml.models.experts.experts_frame import BRANCHES, ExpertsEstimator, centre_and_unit
from probml.models.frames.complete import require_classes


@dataclass(eq=False, repr=False)
class _Settings:
    """The parameters that both estimators have."""

    n_experts: int = parameter(2, integer(1))
    _: KW_ONLY
    branches: tuple[int, ...] | None = parameter(None, BRANCHES)
    gate: bool = parameter(True, FLAG)
    concentration: ArrayLike = parameter(1.0, numbers(0.0))
    gate_scale: float = parameter(1.0, number(0.0, above=True))
    weight_scale: float = parameter(1.0, number(0.0, above=True))
    prior: bool = parameter(True, FLAG)
    n_init: int | None = parameter(None, optional(STARTS))
    tol: float = parameter(1e-8, number(0.0))
    max_iter: int = parameter(1000, integer(1))
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)


@dataclass(eq=False, repr=False)
class MixtureOfExperts(_Settings, RegressorMixin, ExpertsEstimator):
    """Regression by a mixture of experts: each expert is a linear regression with its own noise,
    and a softmax gate gives its probability in each row.

    The model is probml.models.mixture_of_experts, or the tree hierarchical_mixture_of_experts, of
    standardised X and y. By default the mode under weak priors in those units; prior=False is
    maximum likelihood, as flexmix and mixtools.

    Args:
        n_experts: k.
        branches: None, or the ways of every gate of a tree from the top; (2, 2) has four experts,
            and n_experts is not read.
        gate: False: the experts' shares do not depend on X, a mixture of regressions.
        concentration: pseudo-rows of every expert's share; without a gate only.
        gate_scale: prior standard deviation of the gates' coefficients, logits per standard
            deviation of a column.
        weight_scale: that of the experts' slopes, standard deviations of y per standard deviation
            of a column.
        scale: s; at the mode an expert's σ² is (residual squares + s²)/(rows + 1), s in standard
            deviations of y.
        prior: posterior mode (True) or maximum likelihood (False).
        n_init: starts, run as one program; the best is used. None: as many as about a second buys,
            see EM.
        tol: stop when an iteration gains less than this a row.
        max_iter: EM iterations at the most; one that stops there warns and leaves converged_ False.
        random_state: seed of the starts; None is 0, a fit repeats.
        engine: an engine's value instead of the EM that these arguments describe.

    Attributes:
        coef_ (k, d), intercept_ (k,), scale_ (k,): σ of every expert; gate_coef_, gate_intercept_
        or shares_; history_: the objective, log posterior or log-likelihood in units of y;
        lower_bound_, converged_, n_iter_, n_parameters_; fit_: the probml Fit, whose data `as_data`
        gives.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> mcycle = pd.read_csv(files("probml.data") / "mcycle.csv")
        >>> from probml.models import MixtureOfExperts
        >>> X, y = mcycle[["times"]], mcycle["accel"]
        >>> experts = MixtureOfExperts(n_experts=2, n_init=2, random_state=0).fit(X, y)
        >>> experts.predict(X).shape
        (133,)
    """

    _: KW_ONLY
    gate_scale: float = parameter(10.0, number(0.0, above=True))
    weight_scale: float = parameter(10.0, number(0.0, above=True))
    scale: float = parameter(0.1, number(0.0, above=True))

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and numbers y (n,); rows whose y is NaN say nothing and are left
        out.

        Args:
            sample_weight: (n,), how many times each row counts.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name.
        """
        check(self)
        X, y = self._validated(X, reset=True), _answers(y)
        check_consistent_length(X, y)
        weights, kept_rows = self._weigh(X, sample_weight)
        X, y = (X, y) if kept_rows is None else (X[kept_rows], y[kept_rows])
        has_y = ~np.isnan(y)
        if not has_y.any():
            raise DataError("every value of y is missing, so nothing can be estimated. Check how y "
                            "was read, and pass observed values")
        X, y, weights = X[has_y], y[has_y], None if weights is None else weights[has_y]
        self._refuse_few(X, y)
        k, d = self._leaves, X.shape[1]
        if not self.prior and len(y) <= k * (d + 1):
            raise DataError(
                f"n_samples={len(y)}: {counted(k, 'expert')} with {counted(d + 1, 'coefficient')} "
                "each fit so few rows exactly, so the likelihood has no maximum. Give more than "
                f"{counted(k * (d + 1), 'row')}, or set prior=True"
            )
        if not self.prior and y.min() == y.max():
            raise DataError(f"y is constant ({y[0]:g}), so the residual standard deviation of "
                            "every expert is 0 and the likelihood has no maximum. Set prior=True")
        self._standardise(X, weights)
        self._answer_centre, self._answer_unit = (float(v) for v in centre_and_unit(y, weights))
        data = self._data(X) | {"y": (y - self._answer_centre) / self._answer_unit}
        self._learnt(self._infer(self._experts(scale=float(self.scale)), data, weights, {}, False),
                     X, weights, self._answer_unit)
        return self

    def as_data(self, X, y=None):
        """Rows as the data of `fit_`: X, and y, less their means and in their standard
        deviations."""
        data = self._asked(X)
        if y is None:
            return data
        y = _answers(y)
        check_consistent_length(data["x"], y)
        return data | {"y": (y - self._answer_centre) / self._answer_unit}

    def predict(self, X):
        """E[y | x] = Σ_j p(expert j | x) · its plane at x, (n,)."""
        data = self._asked(X)
        return np.asarray(self.fit_.predict(data, "y"),
                          float) * self._answer_unit + self._answer_centre

    predict_proba = absent("predict_proba", "use gates(X) for p(expert | x), or "
                                            "responsibilities(X, y) for p(expert | x, y)")

    @property
    def scale_(self):
        """σ of every expert, (experts,), in units of y."""
        check_is_fitted(self, "fit_")
        return np.asarray(self.fit_.params["precision"], float) ** -0.5 * self._answer_unit


def _answers(y) -> np.ndarray:
    y = column_or_1d(y, warn=True)
    return check_array(y, dtype=np.float64, ensure_2d=False, ensure_all_finite="allow-nan",
                       input_name="y").astype(float)


@dataclass(eq=False, repr=False)
class MixtureOfExpertsClassifier(_Settings, ExpertsEstimator, Classifier):
    """Classification by a mixture of experts: each expert is a softmax regression, and a softmax
    gate gives its probability in each row.

    The model is that of MixtureOfExperts with softmax experts, of standardised X. Rows whose label
    is None or NaN are left out.

    Args: those of MixtureOfExperts but for `scale`. gate_scale and weight_scale are in logits per
        standard deviation of a column and 1 by default, which is the penalty of a logistic
        regression with C = 1: a label says far less than a number, and under wider priors experts
        learn a few hundred rows by heart (benchmarks/defaults.md).

    Attributes:
        classes_; coef_ (k, classes − 1, d) and intercept_ (k, classes − 1), logits against the
        first class; and those of MixtureOfExperts but for scale_.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris[["Petal.Length", "Petal.Width"]], iris["Species"]
        >>> from probml.models import MixtureOfExpertsClassifier
        >>> experts = MixtureOfExpertsClassifier(n_experts=2, n_init=3, random_state=0).fit(X, y)
        >>> round(experts.score(X, y), 2)
        0.96
    """

    def _learn(self, X, y, sample_weight, classes):
        X, codes, weights = self._batch(X, y, sample_weight, classes, True)
        labelled = ~np.isnan(codes) if codes.dtype.kind == "f" else np.ones(len(codes), bool)
        X, codes, weights = (X[labelled], codes[labelled].astype(int),
                             None if weights is None else weights[labelled])
        require_classes(self.classes_)
        self._refuse_few(X, codes)
        self._standardise(X, weights)
        model = self._experts(classes=len(self.classes_))
        self._learnt(self._infer(model, {**self._data(X), "y": codes}, weights, {}, False), X,
                     weights, 1.0)
        return self

    def as_data(self, X, y=None):
        """Rows as the data of `fit_`: X less its means and in its standard deviations, and y as
        codes of classes_, NaN where missing."""
        data = self._asked(X)
        if y is None:
            return data
        check_consistent_length(data["x"], y)
        return data | {"y": self._codes(y, self.classes_)}
