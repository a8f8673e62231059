"""Classification by mixtures of experts, by the manners of scikit-learn."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import ArrayLike

from probml import DataError
from probml.engines.engine import Engine
from probml.estimators.classifier import Classifier
from probml.estimators.rules import (
    ENGINE,
    FLAG,
    SEED,
    Seed,
    integer,
    number,
    numbers,
    optional,
    parameter,
)
from probml.estimators.validation import check_consistent_length
from probml.models.experts.experts_frame import BRANCHES, ExpertsEstimator


@dataclass(eq=False, repr=False)
class MixtureOfExpertsClassifier(ExpertsEstimator, Classifier):
    """Classification by experts, each a softmax regression, that a softmax gate shares the rows out
    to.

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

    n_experts: int = parameter(2, integer(1))
    _: KW_ONLY
    branches: tuple[int, ...] | None = parameter(None, BRANCHES)
    gate: bool = parameter(True, FLAG)
    concentration: ArrayLike = parameter(1.0, numbers(0.0))
    gate_scale: float = parameter(1.0, number(0.0, above=True))
    weight_scale: float = parameter(1.0, number(0.0, above=True))
    prior: bool = parameter(True, FLAG)
    n_init: int | None = parameter(None, optional(integer(1)))
    tol: float = parameter(1e-8, number(0.0))
    max_iter: int = parameter(1000, integer(1))
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    def _learn(self, X, y, sample_weight, classes):
        X, codes, weights = self._batch(X, y, sample_weight, classes, True)
        seen = ~np.isnan(codes) if codes.dtype.kind == "f" else np.ones(len(codes), bool)
        X, codes, weights = (X[seen], codes[seen].astype(int),
                             None if weights is None else weights[seen])
        if len(self.classes_) < 2:
            raise DataError(f"y has one class, {self.classes_.tolist()[0]!r}, expected rows of two "
                            f"classes or more")
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
