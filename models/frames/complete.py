"""What estimators share whose rows must be seen whole, and those that have no probabilities."""

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from probml import DataError
from probml.errors import listed
from probml.estimators.rules import check
from probml.estimators.validation import (
    check_array,
    check_consistent_length,
    column_or_1d,
    refuse_nonfinite,
)


def finite_target(y) -> np.ndarray:
    """The target of a regression as numbers, (n,).

    Raises:
        DataError: one that is not finite, by row. ValueError, TypeError: no numbers, or no column;
            in scikit-learn's words.
    """
    y = check_array(column_or_1d(y, warn=True), dtype=np.float64, ensure_2d=False,
                    ensure_all_finite=False, input_name="y")
    refuse_nonfinite("y", y)
    return y


def require_classes(classes: np.ndarray) -> None:
    """
    Raises:
        DataError: there is only one class; in scikit-learn's words.
    """
    if len(classes) < 2:
        raise DataError(f"The number of classes has to be greater than one; y has 1 class, "
                        f"{listed(classes.tolist())}. Give rows of another class")


def refuse_missing(estimator, X: np.ndarray, but: str) -> None:
    """
    Args:
        but: why X must be complete, and what to do.

    Raises:
        DataError: a cell is missing, by column and row.
    """
    if (missing := np.isnan(X)).any():
        row, j = np.argwhere(missing)[0]
        raise DataError(f"Input X contains NaN: {estimator._column(int(j))} is missing in row "
                        f"{row} (rows with missing values: {missing.any(1).sum()}), but {but}")


class Complete:
    """An estimator whose rows, and answers where there are any, must be seen whole."""

    _numbers: Callable[..., np.ndarray]  # of the estimator
    _column: Callable[[int], str]
    _weigh: Callable[..., tuple]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = False
        return tags

    def _require_complete(self, X, reset: bool) -> np.ndarray:
        """X as float64 (n, d).

        Raises:
            DataError: a cell is missing, by column and row.
        """
        return self._numbers(X, reset).astype(float, copy=False)

    def _refuse_gaps(self, X: np.ndarray, reset: bool) -> None:
        super()._refuse_gaps(X, reset)  # type: ignore[misc]
        refuse_missing(self, X, f"{type(self).__name__} does not support missing values of X. "
                       f"Drop these rows, or fill in the values; or fit a joint model of X and y, "
                       f"such as GaussianDiscriminant, or gaussian_mixture(k=1, d=...)")


class Numbered(Complete):
    """One whose answers are numbers."""

    def _read(self, X, y, sample_weight) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(X (n, d), y (n,), weights (n,), their rows among those given), rows of weight 0 left
        out.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name.
        """
        check(self)
        X = self._require_complete(X, reset=True)
        y = finite_target(y)
        check_consistent_length(X, y)
        weights, kept_rows = self._weigh(X, sample_weight)
        rows = np.arange(len(y)) if kept_rows is None else kept_rows
        if kept_rows is not None:
            X, y = X[kept_rows], y[kept_rows]
        return X, y, np.ones(len(rows)) if weights is None else weights, rows


class NoProbabilities:
    """An estimator of numbers, which has no probabilities of classes."""

    _why: ClassVar[str] = "it predicts numbers, not classes. Use predict(X)"

    @property
    def predict_proba(self):
        """There are no probabilities."""
        raise AttributeError(f"{type(self).__name__} has no predict_proba: {self._why}")

    @property
    def predict_log_proba(self):
        """There are no probabilities."""
        raise AttributeError(f"{type(self).__name__} has no predict_log_proba: {self._why}")


class LossOnly(NoProbabilities):
    """A classifier whose loss has no probabilities."""

    _why = ("its loss is not a likelihood, so it has no class probabilities. Use "
            "LogisticRegression for class probabilities")
