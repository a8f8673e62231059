"""The scikit-learn estimator of the perceptron."""

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property

import numpy as np

from probml import Fit
from probml.errors import counted
from probml.estimators.rules import FLAG, SEED, Seed, integer, parameter
from probml.estimators.validation import ConvergenceWarning, check_is_fitted
from probml.interface.showing.estimates import Estimates, Quantity, no_tables
from probml.interface.showing.summary import Table
from probml.models.classifiers.perceptron import learn, perceptron
from probml.models.frames.complete import LossOnly
from probml.models.frames.margins import Margin
from probml.models.frames.standardized import Standardized
from probml.numerics.process.libraries import pd
from probml.posteriors.units import Unit, of_rows


@dataclass(eq=False, repr=False)
class Perceptron(LossOnly, Standardized, Margin):
    """The perceptron: hyperplanes that separate the classes, found by Rosenblatt's rule, which
    moves them at every misclassified row until none is left.

    Several classes are parted together by Kesler's rule, the class of the greatest of k linear
    functions; not one against the rest, which needs each class to be parted from all others by a
    plane. The model is probml.models.perceptron.

    Steps are as long as the rows, in the columns' own units, as Rosenblatt's. On columns of very
    different size, or far from 0, the rule needs too many of them: it is then run on standardised
    columns, and so it is, once more, where it ends with mistaken rows; the result is used. The
    size of a step does not matter, as the start is 0.

    Args:
        fit_intercept: with b: a column of ones; else planes through 0.
        max_iter: epochs, after which it stops with a warning, as it does where no planes part the
            classes.
        shuffle: another order of the rows in every epoch, from random_state; else as they stand.
        random_state: seed; None is 0.

    Attributes:
        classes_, coef_ and intercept_, of two classes (1, d) and (1,), of more (k, d) and (k,),
        those of the epoch that ended with the fewest mistaken rows; converged_: they mistake no
        row; n_iter_: epochs; mistakes_: steps taken, which Novikoff's (R/γ)² bounds for two
        classes; mistaken_: rows that the final planes misclassify; fit_: the probml Fit.

    Cost: an epoch O(n k d), one mistake after the other, in float64 whatever JAX's precision.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris.drop(columns="Species"), iris["Species"]
        >>> from probml.models import Perceptron
        >>> perceptron = Perceptron(random_state=0).fit(X, y == "setosa")
        >>> perceptron.score(X, y == "setosa")
        1.0
    """

    _: KW_ONLY
    fit_intercept: bool = parameter(True, FLAG)
    max_iter: int = parameter(1000, integer(1))
    shuffle: bool = parameter(True, FLAG)
    random_state: Seed = parameter(None, SEED)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and labels y (n,).

        Args:
            sample_weight: (n,), by which a row's steps are multiplied, as in scikit-learn's; rows
                of weight 0 are left out. Planes that part the classes part them whatever the
                weights.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell, a label or a weight that cannot
                be used, by name; one class only.
        """
        X, codes, weights, _ = self._read(X, y, sample_weight)
        self._learn_in(self._frame(X, weights), codes, weights)
        if self.mistaken_ and self._is_unscaled():
            self._learn_in(self._frame(X, weights, force=True), codes, weights)
        self.converged_ = self.mistaken_ == 0
        self.__dict__.pop("fit_", None)
        if not self.converged_:
            warnings.warn(
                f"Perceptron stopped after max_iter={self.max_iter} epochs, and the best "
                f"separating hyperplanes misclassify {self.mistaken_} of {counted(len(X), 'row')}. "
                "Either the classes are not linearly separable, or more epochs are needed. "
                "Standardise the columns, and raise max_iter; or use LogisticRegression or "
                "SupportVectorMachine, which do not need separable classes",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _learn_in(self, x: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> None:
        """The rule on rows x of the frame."""
        k, d = len(self.classes_), x.shape[1]
        rows = np.column_stack([x, np.ones(len(x))]) if self.fit_intercept else x
        final = learn(rows, codes, weights, k, self.max_iter,
                      self._seed() if self.shuffle else None)
        planes = final.planes[1:] if k == 2 else final.planes
        self._own = planes[:, :d], planes[:, -1] if self.fit_intercept else np.zeros(len(planes))
        self.coef_, self.intercept_ = self._planes(self._own[0].T, self._own[1])
        self.n_iter_, self.mistakes_, self.mistaken_ = final.epochs, final.updates, final.mistaken

    def decision_function(self, X):
        """w·x + b: of two classes (n,), positive for classes_[1]; of more (n, k)."""
        X = self._rows(X)
        scores = self._standardize(X) @ self._own[0].T + self._own[1]
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def _tables(self, estimates: Estimates) -> list[Table]:
        no_tables(estimates)
        terms = ["Intercept", *(self._column_names or range(self.n_features_in_))]
        coefs = np.concatenate([self.intercept_[:, None], self.coef_], 1).T
        index = self.classes_ if coefs.shape[1] > 1 else [str(self.classes_[1])]
        return [estimates.across("Coefficients", terms, pd.Index(index, name="class"),
                                 Quantity({"Estimate": coefs}))]

    @cached_property
    def fit_(self) -> Fit:  # type: ignore[override]
        """The probml Fit of the estimates, made when it is first used; its data are those of
        `as_data`."""
        check_is_fitted(self)
        model = perceptron(classes=len(self.classes_))
        fit = model.at(dict(zip(("weights", "bias"), self._own, strict=True)),
                       {"y": tuple(self.classes_.tolist())})
        return replace(fit, units=self._parameter_units(fit))

    def _parameter_units(self, fit: Fit) -> dict[str, Unit]:
        names = {1: self._column_names} if self._column_names else {}
        return {"weights": Unit(1 / self._unit, names=names),
                "bias": Unit(others={"weights": (-1, -self._centre / self._unit)}),
                **of_rows(x=(self._centre, self._unit))}
