"""What estimators share that part classes by planes and have no probabilities: reading rows and
labels, classes by decision values."""

import numpy as np

from probml import DataError
from probml.errors import listed
from probml.estimators.classifier import Classifier
from probml.estimators.rules import check
from probml.estimators.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    compute_class_weight,
)
from probml.models.frames.complete import Complete, require_classes


class Margin(Complete, Classifier):
    """A classifier by planes."""

    def _read(self, X, y, sample_weight) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(X (n, d), codes (n,), weights (n,), their rows among those given (n,)), rows of weight 0
        left out.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell, a label or a weight that cannot
                be used, by name; one class only.
        """
        check(self)
        X = self._require_complete(X, reset=True)
        check_consistent_length(X, y)
        weights, kept_rows = self._weigh(X, sample_weight)
        codes = self._codes(y, None)
        if codes.dtype.kind == "f":
            row = int(np.argmax(np.isnan(codes)))
            raise DataError(f"y is missing in row {row}, but {type(self).__name__} needs the class "
                            f"of every row. Drop rows without a class")
        if kept_rows is not None:
            X, codes = X[kept_rows], codes[kept_rows]
        kept_rows = np.arange(len(codes)) if kept_rows is None else kept_rows
        weights = np.ones(len(kept_rows)) if weights is None else weights
        present = np.flatnonzero(np.bincount(codes, minlength=len(self.classes_)))
        require_classes(self.classes_[present])
        if len(present) < len(self.classes_):
            self.classes_, codes = self.classes_[present], np.searchsorted(present, codes)
        return X, codes, weights, kept_rows

    def _balanced(self, X, y, sample_weight):
        """(X, codes, weights) checked, class weights in them."""
        X, codes, weights, _ = self._read(X, y, sample_weight)
        if self.class_weight is not None:
            labels = self.classes_[codes]
            weights = weights * compute_class_weight(self.class_weight, classes=self.classes_,
                                                     y=labels, sample_weight=weights)[codes]
        return X, codes, weights

    def _codes_of_fitted(self, y, verb: str) -> np.ndarray:
        """Labels as codes into the classes of the fit, (n,).

        Raises:
            DataError: a label that is none of them, by row.
        """
        check_is_fitted(self)
        labels = np.asarray(column_or_1d(y)).tolist()
        code_of = {label: code for code, label in enumerate(self.classes_.tolist())}
        codes = np.array([code_of.get(label, -1) for label in labels], int)
        if (codes < 0).any():
            row = int(np.argmin(codes))
            raise DataError(f"{verb}: y is {labels[row]} in row {row}, which is not one of the "
                            f"fitted classes, {listed(self.classes_.tolist())}. Drop this row, or "
                            "fit again with rows of this class")
        return codes

    def _rows(self, X) -> np.ndarray:
        check_is_fitted(self)
        return self._require_complete(X, reset=False)

    def predict(self, X):
        """The class of every row, as a label."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)]
