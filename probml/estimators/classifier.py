"""The base classes of classifiers."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from probml.dataset.arrays import distinct, missing, positions
from probml.errors import DataError, ModelError, listed, shortly
from probml.estimators.estimator import (
    Estimator,
    keep_few_rows,
    make_updatable,
    replace_given,
    rows,
)
from probml.estimators.rules import check
from probml.estimators.validation import (
    ClassifierMixin,
    assert_all_finite,
    check_classification_targets,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)
from probml.interface.fit import Fit
from probml.interface.model import Model
from probml.typing import ArrayLike, DataLike

SUM_TOLERANCE = 1e-6  # of probabilities


class Classifier(ClassifierMixin, Estimator):
    """An estimator whose target is observed, at least in part: rows whose y is None or NaN are used
    without their label."""

    def fit(self, X: object, y: object, sample_weight: object = None):
        """Learn from rows X (n, d) and labels y (n,); missing cells and missing labels are NaN or
        None.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell, a label or a weight that cannot
                be used, by name.
        """
        check(self)
        return self._learn(X, y, sample_weight, None)

    def _learn(self, X: object, y: object, sample_weight: object, classes: object):
        X, codes, weights = self._batch(X, y, sample_weight, classes, True)
        if not self.prior:
            self._check_likelihood_is_bounded(X, codes)
        complete, data = codes.dtype.kind != "f", {**self._data(X), self._target: codes}
        self.notes_ = self._row_notes(X)
        data |= self._hyperparameters(data, weights) | self._class_weights()
        fit = self._solve(self._model(len(self.classes_)), data, weights, self._start(X, codes),
                          complete)
        self._remember(fit, X, codes, weights)
        fit = dataclasses.replace(fit,
                                  names={**fit.names, self._target: tuple(self.classes_.tolist())})
        self._keep(fit, len(codes) if weights is None else weights.sum())
        self.class_count_ = _class_weights_of(codes, weights, len(self.classes_))
        return self

    def _class_weights(self) -> dict[str, np.ndarray]:
        """The class probabilities that the user gives, as the value of their site.

        Raises:
            ModelError: not as many as classes, or they do not sum to 1.
        """
        given = getattr(self, "priors", None)
        if given is None:
            return {}
        given, k = np.asarray(given, float), len(self.classes_)
        if given.shape != (k,) or abs(given.sum() - 1) > SUM_TOLERANCE:
            raise ModelError(f"{type(self).__name__}(priors={shortly(given.tolist())}): expected "
                             f"{k} probabilities that sum to 1, one for each of the classes "
                             f"{listed(self.classes_.tolist())}, in this order")
        return {"weights": given}

    def _solve(self, model: Model, data: Mapping, weights: object, start: Mapping,
               complete: bool) -> Fit:
        return self._infer(model, data, weights, start, complete)

    def _remember(self, fit: Fit, X: object, codes: np.ndarray, weights: object) -> None:
        """Store the state from which partial_fit continues, in an estimator that has it."""

    def _batch(self, X: object, y: object, sample_weight: object, classes: object,
               reset: bool) -> tuple:
        """(X, codes, weights) of one batch, checked; `reset`: columns and classes are set by it."""
        weights, used_rows = self._weigh(X, sample_weight)
        if used_rows is not None:
            check_consistent_length(X, y)
            y = np.asarray(y)[used_rows]
        X = self._validated(rows(X, used_rows), reset)
        check_consistent_length(X, y)
        return X, self._codes(y, classes), weights

    def _codes(self, y: ArrayLike, classes: ArrayLike | None) -> np.ndarray:
        """y as codes into `classes_`, which y determines where `classes` is None; NaN where a label
        is missing."""
        y = column_or_1d(y, warn=True)
        is_missing = missing(y)
        given = y[~is_missing] if is_missing.any() else y
        given = np.array(given.tolist()) if given.dtype.kind == "O" and len(given) else given
        if not len(given):
            raise DataError("every label in y is missing. Give at least one row of each class its "
                            "label")
        if given.dtype.kind == "f":
            assert_all_finite(given, input_name="y")
        values = distinct(given) if given.dtype.kind in "iub" else given
        if 2 * len(values) > len(given):  # a slow check, needless where few integers recur
            check_classification_targets(given)
        self.classes_ = distinct(values) if classes is None else np.unique(classes)
        codes = positions(self.classes_, given)
        if classes is not None and (new := codes < 0).any():
            raise DataError(f"y contains the class {given[new].tolist()[0]!r}, which is not one of "
                            f"the classes {listed(self.classes_.tolist())}. Drop its rows, or name "
                            "all classes in the first call, partial_fit(X, y, classes=[...])")
        return _with_missing(codes, is_missing)

    def predict(self, X: object):
        """The most probable class of every row, as a label."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def predict_log_proba(self, X: object):
        """log p(class | row), shape (n, k)."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


def _with_missing(codes: np.ndarray, is_missing: np.ndarray) -> np.ndarray:
    """Codes of the observed labels → of all rows, NaN where a label is missing."""
    if not is_missing.any():
        return codes
    all_codes = np.full(len(is_missing), np.nan)
    all_codes[~is_missing] = codes
    return all_codes


def _class_weights_of(codes: np.ndarray, weights: object, classes: int) -> np.ndarray:
    """The total weight of the rows of every class, (classes,), without rows whose label is
    missing."""
    observed = ~np.isnan(codes) if codes.dtype.kind == "f" else np.ones(len(codes), bool)
    row_weights = None if weights is None else np.asarray(weights, float)[observed]
    return np.bincount(codes[observed].astype(int), row_weights, classes).astype(float)


class Joint(Classifier):
    """A classifier that models rows and classes together."""

    def predict_joint_log_proba(self, X: object):
        """log p(row, class), (n, k); missing cells are summed out."""
        rows = self.fit_.log_prob(self._asked(X), plug_in=self._averages())
        return np.asarray(rows)[:, None] + self.predict_log_proba(X)

    def decision_function(self, X: object):
        """log p(row, class) of every class, (n, k); of two classes the log odds of classes_[1],
        (n,)."""
        check_is_fitted(self)
        if len(self.classes_) > 2:
            return self.predict_joint_log_proba(X)
        log_proba = self.predict_log_proba(X)
        return log_proba[:, 1] - log_proba[:, 0]


class Stepwise(Classifier):
    """A classifier with partial_fit."""

    unlabelled_weight: float | str

    def partial_fit(self, X: DataLike, y: ArrayLike, classes: ArrayLike | None = None,
                    sample_weight: ArrayLike | None = None):
        """Learn from further rows. Without latent variables, by adding their sufficient statistics:
        chunks with all labels observed give the same result as one batch. From the first chunk with
        a missing label, or with components of classes, each is a step of stepwise EM, see
        Fit.update.

        The first rows may have been fitted by `fit`. With prior=False every chunk needs a maximum
        of its own, and so rows of every class.

        Args:
            classes: all classes of all calls; in the first call only, by default those of its y.
        """
        check(self)
        if not hasattr(self, "fit_"):
            self._learn(X, y, sample_weight, classes)
            if self.fit_.kept is None and self.fit_.by is not None and (
                    self.fit_.by.capabilities.incremental_update is not None):
                self.fit_ = make_updatable(
                    self, lambda: (self._coded(self.fit_), *self._weighted_data(
                        *self._batch(X, y, sample_weight, self.classes_, False))))
            return self
        if self.fit_.kept is None:
            self.fit_ = make_updatable(self)
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise DataError(f"partial_fit(classes=[{listed(classes)}]): expected the same classes "
                            f"as in the first call, {listed(self.classes_.tolist())}. Omit "
                            "classes= after the first call")
        data, weights = self._weighted_data(*self._batch(X, y, sample_weight, self.classes_, False))
        if weights is not None and not weights.any():
            return self  # only unlabelled rows, of weight 0
        values = self._hyperparameters(data, weights, further=True)
        previous = replace_given(self.fit_, values)
        if data[self._target].dtype.kind == "f":
            previous = self._made_incremental(previous)
        updated = self._coded(previous).update(data | values, weights=weights)
        fit = dataclasses.replace(updated, names=self.fit_.names)
        added = len(data[self._target]) if weights is None else weights.sum()
        self._keep(fit, self.total_weight_ + added)
        self.class_count_ = self.class_count_ + _class_weights_of(data[self._target], weights,
                                                                  len(self.classes_))
        return self

    def _remember(self, fit: Fit, X: object, codes: np.ndarray, weights: object) -> None:
        keep_few_rows(self, fit, *self._weighted_data(X, codes, weights))

    def _weighted_data(self, X: object, codes: np.ndarray,
                 weights: ArrayLike | None) -> tuple[dict, np.ndarray | None]:
        """A batch as data, and its weights, in which unlabelled rows have the weight
        `unlabelled_weight`."""
        data = {**self._data(X), self._target: codes}
        share = getattr(self, "unlabelled_weight_", self.unlabelled_weight)
        if codes.dtype.kind != "f" or share in (1.0, "auto"):
            return data, weights
        row_weights = np.where(np.isnan(codes), float(share), 1.0)
        return data, row_weights if weights is None else row_weights * weights

    def _coded(self, fit: Fit) -> Fit:
        """The fit with codes as the labels of its classes."""
        return dataclasses.replace(fit, names={name: labels for name, labels in fit.names.items()
                                               if name != self._target})

    def _made_incremental(self, fit: Fit) -> Fit:
        """A fit of complete rows with running statistics, which steps of EM can update."""
        if fit.kept is None or fit.kept.running:
            return fit
        engine = self._ladder(False)[-1]
        retained = fit.kept._replace(engine=engine, running=True)
        return dataclasses.replace(fit, by=engine, engine=repr(engine), kept=retained)


class Additive(Stepwise):
    """A classifier with partial_fit whose sufficient statistics add up if nothing is latent, so
    that chunks and parts give the same result as one batch."""

    def merge(self, *others: Estimator):
        """Add the sufficient statistics of other estimators with the same parameters, columns and
        classes, fitted to other rows; returns self.

        Raises:
            DataError: a part of another class, or with other classes or columns.
        """
        check_is_fitted(self, "fit_")
        for other in others:
            check_is_fitted(other, "fit_")
            if (type(other) is not type(self) or other.fit_.model != self.fit_.model
                or not np.array_equal(other.classes_, self.classes_)):
                raise DataError("merge: expected two estimators of the same model and classes, got "
                                f"{self.fit_.model!r} with the classes "
                                f"{listed(self.classes_.tolist())} and {other.fit_.model!r} with "
                                f"the classes {listed(getattr(other, 'classes_', []))}. Fit both "
                                "with the same classes")
            values = self._merged_hyperparameters([other])
            self._keep(replace_given(self.fit_, values).merge(replace_given(other.fit_, values)),
                       self.total_weight_ + other.total_weight_)
            self.class_count_ = self.class_count_ + other.class_count_
        return self
