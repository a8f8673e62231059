"""Naive Bayes by the manners of scikit-learn."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import ArrayLike

from probml import DataError
from probml.engines.engine import Engine
from probml.errors import listed
from probml.estimators.classifier import Additive, Classifier, Joint
from probml.estimators.rules import (
    ANY,
    ENGINE,
    FLAG,
    SEED,
    Seed,
    integer,
    number,
    numbers,
    one_of,
    optional,
    parameter,
)
from probml.estimators.validation import check_is_fitted
from probml.models.frames.covariances import COVARIANCES, canonical
from probml.models.frames.learning import learn_for, validated_columns
from probml.models.frames.ties import refuse_constant
from probml.models.frames.units import InUnits
from probml.models.frames.unlabelled import WEIGHT, PartlyLabelled
from probml.models.mixtures.naive_bayes import naive_bayes
from probml.numerics.process.libraries import pd

COVARIANCE = (
    "one of 'own', 'shared', 'diagonal', 'spherical', 'shared diagonal', 'shared spherical', or "
    "scikit-learn's 'full', 'tied', 'diag'",
    lambda value: isinstance(value, str) and canonical(value) in COVARIANCES,
)


@dataclass(eq=False, repr=False)
class NaiveBayes(Joint, PartlyLabelled, InUnits, Additive, Classifier):
    """Naive Bayes over columns of any kind; missing cells, and missing labels, are NaN or None.

    The model is probml.models.naive_bayes. With all labels observed and prior=True the posterior is
    exact and predictions are averaged over it (plug_in=True: at the posterior mean); with some
    labels missing the fit is the mode, by EM; prior=False is maximum likelihood.

    Args:
        categorical: None, "all", or the categorical columns by name or index. Columns of text,
            booleans, categories, and of at most ten distinct whole numbers are categorical by
            themselves (probml.models.kinds); what was guessed is shown in columns_.
        kinds: a kind for all columns, or column → kind, for those that are not as guessed:
            "normal", "categorical", "bernoulli", "poisson", "geometric", "exponential", or
            "multinomial" (all such columns are one vector of counts).
        categories: None (those that occur), or column → categories, or one list for all: with
            partial_fit, those to come.
        alpha: pseudo-rows of every category; 1 is Laplace's rule.
        concentration: pseudo-rows of every class.
        unknown: "refuse", or "prior": a category that is new in a prediction gets the prior's mass
            alpha.
        prior: use the priors (True), or maximum likelihood (False).
        plug_in: predict at the point estimate instead of averaging over the posterior.
        centre, mean_scale, scale: prior of the normal columns, see naive_bayes; in units of X, by
            default (None) about each column's mean and its standard deviation within the classes,
            so that no unit of measurement matters.
        shape, rate: Gamma prior of Poisson and exponential rates, see naive_bayes; by default a
            hundredth of a row of counts, or of a column's mean waiting time.
        tol, max_iter: of EM, where labels are missing.
        unlabelled_weight: how much a row without a label counts, relative to 1 of one with a label;
            "auto": chosen by the log score of held-out labels. A warning says where such rows make
            held-out labels less probable, and which weight helps (Nigam et al. 2000).
        priors: (k,), probabilities of the classes, in their sorted order; None: learnt.
        random_state: seed of EM's start; None is 0.
        engine: an engine's value; by default Exact() where it can, else EM.

    Attributes:
        classes_, class_prior_ and class_count_ (k,), tables_ (column → parameter → (k, ...)),
        theta_ and var_ (k, normal columns), columns_, fit_: the probml Fit.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> votes = pd.read_csv(files("probml.data") / "votes.csv")
        >>> X, y = votes.drop(columns="Class"), votes["Class"]
        >>> from probml.models import NaiveBayes
        >>> bayes = NaiveBayes().fit(X, y)                # 392 missing votes need no imputation
        >>> round(bayes.score(X, y), 2)
        0.9
        >>> print(bayes.predict(X[:3]))
        ['republican' 'republican' 'republican']
    """

    _target = "class"
    _named = {kind: f"{kind}_prior" for kind in ("normal", "exponential", "poisson")}
    categorical: Collection | str | None = parameter(None, ANY)
    _: KW_ONLY
    kinds: Mapping[Hashable, str] | Sequence[str] | None = parameter(None, ANY)
    categories: Mapping[Hashable, Sequence] | Sequence | str | None = parameter(None, ANY)
    alpha: float = parameter(1.0, number(0.0, above=True))
    concentration: ArrayLike = parameter(1.0, numbers(0.0))
    unknown: str = parameter("refuse", one_of("refuse", "prior"))
    prior: bool = parameter(True, FLAG)
    plug_in: bool = parameter(False, FLAG)
    centre: ArrayLike | None = parameter(None, optional(numbers(-np.inf)))
    mean_scale: float = parameter(1000.0, number(0.0, above=True))
    scale: ArrayLike | None = parameter(None, optional(numbers(0.0)))
    shape: float = parameter(1.0, number(0.0, above=True))
    rate: float | None = parameter(None, optional(number(0.0, above=True)))
    tol: float = parameter(1e-7, number(0.0))
    max_iter: int = parameter(1000, integer(1))
    unlabelled_weight: float | str = parameter(1.0, WEIGHT)
    priors: ArrayLike | None = parameter(None, optional(numbers(0.0)))
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = isinstance(self.categorical, str)  # "all"
        return tags

    def _validated(self, X, reset):
        X = validated_columns(self, X, reset, frames=(self.categorical, self.kinds))
        if reset:
            self.columns_ = learn_for(self, X, self.categorical, self.kinds)
        return X

    def _site_columns(self):
        return self.columns_.cells

    def _categories(self):
        return self.columns_.categories

    def _data(self, X):
        return self.columns_.data(X)

    def _model(self, k):
        settings = {name: getattr(self, name) for name in ("concentration", "alpha", "mean_scale",
                                                           "shape")} | self._prior()
        return naive_bayes(classes=k, features=self.columns_.features, **settings)

    def _row_notes(self, X):
        return [self.columns_.status] if self.columns_.status else []

    def _check_likelihood_is_bounded(self, X, codes):
        data = self._data(X)
        for code, label in enumerate(self.classes_.tolist()):
            refuse_constant(self.columns_, {name: values[codes == code]
                                            for name, values in data.items()}, label)

    def bayes_factors(self, X, a, b):
        """p(x_f | class a) / p(x_f | class b) of every cell, (n, d): times the prior odds, their
        product is the posterior odds.

        A missing cell has the factor 1. The cells of a multinomial vector are one draw, whose
        factor has no parts.

        Raises:
            DataError: a or b is not a class, or a column is multinomial.
        """
        data, (n, width) = self._asked(X), np.shape(X)
        for label in (a, b):
            if np.ndim(label) or label not in self.classes_:
                raise DataError(f"bayes_factors: {label!r} is not one of the fitted classes. Use "
                                f"one of {listed(self.classes_.tolist())}")
        if "multinomial" in self.columns_.kinds:
            raise DataError("bayes_factors: the columns of kind 'multinomial' have one Bayes "
                            "factor in common, not one for each column. Use 'poisson' in "
                            "NaiveBayes(kinds=...)")
        single = {}  # every row d times, with one column seen in each
        for name, (_, js) in self.columns_.groups.items():
            cells = np.full((width, n, len(js)), np.nan)
            cells[js, :, range(len(js))] = np.asarray(data[name], float).T
            single[name] = cells.reshape(width * n, len(js))
        names = np.empty(width * n, object)
        logp = []
        for label in (a, b):
            names[:] = self.classes_[self.classes_ == label].tolist()[0]
            logp.append(self.fit_.log_prob({**single, self._target: names}, plug_in=self.plug_in))
        empty = {name: np.full((1, len(js)), np.nan)
                 for name, (_, js) in self.columns_.groups.items()}
        prior = self.fit_.predict_proba(empty, self._target, plug_in=self.plug_in)[0]
        odds = prior[self.classes_ == b][0] / prior[self.classes_ == a][0]
        return np.exp(logp[0] - logp[1]).reshape(width, n).T * odds

    @property
    def class_prior_(self):
        """The classes' weights, (k,)."""
        return self._parameter("weights")

    @property
    def tables_(self):
        """Column → parameter → (k, ...), each column's parameters in every class."""
        return self.columns_.tables(self.fit_.params)

    def table(self, column):
        """The estimates for one column, a pandas table with a row for each class: the probabilities
        of its categories, or its parameters.

        Raises:
            ModelError: no such column.
        """
        check_is_fitted(self, "fit_")
        return self.columns_.table(column, self.fit_.params, pd.Index(self.classes_, name="class"))

    @property
    def theta_(self):
        """Means of the normal columns, (k, normal columns)."""
        return self._parameter("normal_mean")

    @property
    def var_(self):
        """Variances of the normal columns, (k, normal columns)."""
        return 1 / self._parameter("normal_precision")
