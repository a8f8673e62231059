"""What the estimators share that part classes by planes: the scale of their weights, decision
values, answers in labels."""

import dataclasses

import numpy as np

from probml import Fit
from probml.estimators.rules import (
    number,
)
from probml.estimators.validation import check_is_fitted
from probml.models.frames.margins import Margin
from probml.models.frames.standardized import Standardized

COST = ("a number above 0, inf for no penalty",
        lambda v: v == np.inf if isinstance(v, float) and v == np.inf else number(0.0, True)[1](v))


class Planes(Standardized, Margin):
    """What estimators of planes share: the scale of the weights, decision values."""

    def _scale(self) -> np.ndarray:
        """Prior standard deviations of the weights, in units of the frame: √C in those of the
        user."""
        return np.sqrt(self.C if np.isfinite(self.C) else 1.0) * self._unit

    def decision_function(self, X):
        """x β + b of every row: (n,) of two classes, positive for classes_[1], else (n, k)."""
        check_is_fitted(self, "coef_")
        scores = self._require_complete(X, reset=False) @ self.coef_.T + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores


def with_class_labels(fit: Fit, classes: np.ndarray) -> Fit:
    """The fit, answering in labels."""
    return dataclasses.replace(fit, names={**fit.names, "y": tuple(classes.tolist())})
