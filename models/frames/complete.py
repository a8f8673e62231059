"""What faces share whose rows must be seen whole, and those that have no probabilities."""

from typing import ClassVar

import numpy as np

from probml import DataError
from probml.estimators.validation import finite


class Complete:
    """A face whose rows, and answers where there are any, must be seen whole."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False
        return tags

    def _whole(self, X, reset: bool) -> np.ndarray:
        """X as float64 (n, d).

        Raises:
            DataError: a cell is missing, by column and row.
        """
        X = self._numbers(X, reset).astype(float, copy=False)
        if not finite(X) and (hole := np.isnan(X)).any():
            row, j = np.argwhere(hole)[0]
            raise DataError(
                f"X contains NaN: {self._column(int(j))} is missing in row {row} "
                f"({hole.any(1).sum()} rows have such cells), and "
                f"{type(self).__name__} does not say how X is distributed. Drop those rows, fill "
                f"them, or fit a model in which X is a "
                "site beside y, such as GaussianDiscriminant, or gaussian_mixture(k=1, d=...) "
                "of both"
            )
        return X

    def _required(self, y) -> None:
        if y is None:
            raise DataError(f"This {type(self).__name__} estimator requires y to be passed, but "
                            f"the target y is None.")


class Unsure:
    """A face without probabilities of classes."""

    _why: ClassVar[str] = "its loss is no likelihood. LogisticRegression has one"

    @property
    def predict_proba(self):
        """There are no probabilities."""
        raise AttributeError(f"{type(self).__name__} has no predict_proba: {self._why}")

    @property
    def predict_log_proba(self):
        """There are no probabilities."""
        raise AttributeError(f"{type(self).__name__} has no predict_log_proba: {self._why}")
