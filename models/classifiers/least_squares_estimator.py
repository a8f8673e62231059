"""The scikit-learn estimator of classes as numbers, fitted by least squares."""

from dataclasses import KW_ONLY, dataclass, replace

import numpy as np

from probml import Fit
from probml.estimators.rules import (
    CLASS_WEIGHT,
    FLAG,
    ClassWeight,
    number,
    parameter,
)
from probml.estimators.validation import check_is_fitted
from probml.models.classifiers.planes import Planes
from probml.models.frames.complete import LossOnly
from probml.models.regression.bayesian_regression_estimator import BayesianLinearRegression

# prior standard deviation of a weight that is as good as free, in targets per standard deviation of
# its column
FLAT = 1e4


@dataclass(eq=False, repr=False)
class LeastSquaresClassifier(LossOnly, Planes):
    """Classes as numbers ±1, fitted by least squares: the plane of the largest value wins;
    scikit-learn's RidgeClassifier.

        min over β, b:  Σ_i weight_i |t_i − x_i β − b|² + alpha · |β|²,
        t_ij = 1 for the class j of the row, −1 for the others

    The regression is probml.models.BayesianLinearRegression with a known noise, so that its
    posterior is at hand; it is no model of classes, and has no probabilities of them. Where a class
    lies between two others it is masked (Hastie, Tibshirani & Friedman 2009, 4.2).

    Args:
        alpha: the penalty, in squared units of each column, as RidgeClassifier's: scale matters to
            it, an offset does not; 0 is least squares, to which neither does.
        fit_intercept: with b.
        class_weight: None, "balanced" or class → weight.

    Attributes:
        classes_, coef_ (1, d) or (k, d), intercept_, regression_: the regression, fit_: its probml
        Fit.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris.drop(columns="Species"), iris["Species"]
        >>> from probml.models import LeastSquaresClassifier
        >>> classifier = LeastSquaresClassifier().fit(X, y)
        >>> round(classifier.score(X, y), 2)
        0.85
    """

    alpha: float = parameter(1.0, number(0.0))
    _: KW_ONLY
    fit_intercept: bool = parameter(True, FLAG)
    class_weight: ClassWeight = parameter(None, CLASS_WEIGHT)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and labels y (n,).

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell, a label or a weight that cannot
                be used, by name; one class only.
        """
        X, codes, weights = self._balanced(X, y, sample_weight)
        self._frame(X, weights, force=True)
        scale = 1 / np.sqrt(self.alpha) if self.alpha > 0 else FLAT / self._unit
        self.regression_ = BayesianLinearRegression(weight_scale=scale, noise=1.0,
                                                    fit_intercept=self.fit_intercept)
        self.regression_.fit(X, self._targets(codes), sample_weight=weights)
        self._centre, self._unit = np.zeros(X.shape[1]), np.ones(X.shape[1])
        self.coef_ = np.atleast_2d(self.regression_.coef_)
        self.intercept_ = np.atleast_1d(self.regression_.intercept_)
        return self

    @property
    def fit_(self) -> Fit:  # type: ignore[override]
        """The probml Fit of the regression."""
        check_is_fitted(self, "coef_")
        fit, names = self.regression_.fit_, self._column_names
        named = {"beta": replace(fit.units["beta"], names={0: names})} if names else {}
        return replace(fit, units={**fit.units, **named})

    def as_data(self, X, y=None) -> dict[str, np.ndarray]:
        """Rows as the data of `fit_`; y as the numbers that represent its classes."""
        if y is not None:
            y = self._targets(self._codes_of_fitted(y, "as_data"))
        return self.regression_.as_data(X, y)

    def _targets(self, codes: np.ndarray) -> np.ndarray:
        """1 for the class of a row and −1 for the others: (n,) of two classes, else (n, k)."""
        k = len(self.classes_)
        return 2.0 * (codes if k == 2 else codes[:, None] == np.arange(k)) - 1.0
