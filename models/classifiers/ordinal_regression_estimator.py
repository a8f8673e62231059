"""The estimator of ordinal regression."""

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import jax
import numpy as np

from probml import MAP, DataError, Fit, ModelError
from probml.engines.engine import Engine
from probml.errors import listed
from probml.estimators.estimator import absent
from probml.estimators.rules import ANY, SEED, Seed, one_of, parameter
from probml.estimators.validation import check_is_fitted
from probml.models.classifiers.ordinal_regression import ORDINAL_LINKS, ordinal_regression
from probml.models.frames.margins import Margin
from probml.models.frames.standardized import Standardized, row_weights
from probml.models.regression.generalized_linear import LINKS
from probml.models.regression.results import RegressionResults, is_posterior
from probml.models.regression.weak_priors import BAYES, ENGINE_OR_BAYES
from probml.posteriors.units import Unit, of_rows


@dataclass(eq=False, repr=False)
class OrdinalRegression(RegressionResults, Standardized, Margin):
    """Ordinal regression of categories in an order, by default proportional odds; R's MASS::polr,
    statsmodels' OrderedModel.

        P(y ≤ k | x) = F(threshold_k − x β),   F the inverse of the link

    The function is probml.models.ordinal_regression.

    Args:
        link: "logit" (proportional odds), "probit" or "cloglog".
        categories: in their order; None: that of an ordered pandas column, else of numbers. Three
            categories that are text need an order.
        random_state: seed of a sampler; None is 0.
        engine: an engine's value; by default MAP(), maximum likelihood. "bayes": priors of
            coefficients as in models/regression/weak_priors.py, uniform probabilities of the
            categories at the means of the columns, and the engine that Model.fit chooses where none
            is named.

    Attributes:
        classes_: the categories in their order; coef_ (d,): positive makes later categories
        likelier; thresholds_ (k − 1,); covariance_ and standard_errors_ of both, in this order;
        deviance_: −2 log L; loglik_, aic_, bic_; n_iter_, converged_, history_, fit_: the probml
        Fit, whose data are those of as_data.

    Examples:
        >>> import numpy as np
        >>> from probml.models import OrdinalRegression
        >>> dose = np.repeat([[0.0], [1.0], [2.0]], 10, axis=0)
        >>> relief = np.repeat(["none", "some", "full"] * 3, [6, 3, 1, 3, 4, 3, 1, 3, 6])
        >>> model = OrdinalRegression(categories=["none", "some", "full"]).fit(dose, relief)
        >>> print(model.coef_.round(2), model.thresholds_.round(2))
        [1.29] [0.41 2.16]
        >>> print(model.predict([[0.0], [2.0]]))
        ['none' 'full']
    """

    link: str = parameter("logit", one_of(*ORDINAL_LINKS))
    _: KW_ONLY
    categories: Mapping[Hashable, Sequence] | Sequence | str | None = parameter(None, ANY)
    random_state: Seed = parameter(None, SEED)
    engine: Engine | str | None = parameter(None, ENGINE_OR_BAYES)

    fit_intercept = True  # the thresholds are
    residuals = absent("residuals", "differences of ordered categories are not defined; use "
                       "predict_proba(X)")

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and categories y (n,).

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell, a category or a weight that
                cannot be used, by name; one category only.
        """
        order = self._order(y)
        X, codes, weights, _ = self._read(X, y, sample_weight)
        if order is None:
            self._refuse_text()
        else:
            if unknown := [label for label in self.classes_.tolist() if label not in order]:
                raise DataError(f"y contains {unknown[0]!r}, which is not among "
                                f"categories=[{listed(order)}]. Add this category in the right "
                                "place of the order")
            ranks = [order.index(label) for label in self.classes_.tolist()]
            codes = np.argsort(np.argsort(ranks))[codes]
            self.classes_ = self.classes_[np.argsort(ranks)]
        k, weak = len(self.classes_), self.engine == BAYES
        model = ordinal_regression(categories=k, link=self.link, threshold_prior=weak,
                                   weight_scale=2.5 if weak else None)
        data = {"x": self._frame(X, weights, force=True), "y": codes}
        engine: Any = None if weak else self.engine or MAP(prior=False)
        # at no coefficients, the thresholds of the shares of the categories
        cum_share = np.cumsum(np.bincount(codes, weights, k) / weights.sum())[:-1]
        start = {"beta": np.zeros(X.shape[1]), "thresholds": np.log(cum_share / (1 - cum_share))}
        fit = model.fit(data, engine, weights=row_weights(weights), seed=self._seed(), start=start)
        self._found(replace(fit, names={**fit.names, "y": tuple(self.classes_.tolist())}))
        params = self.fit_.params
        self.coef_ = np.asarray(params["beta"], float) / self._unit
        self.thresholds_ = np.asarray(params["thresholds"], float) + self.coef_ @ self._centre
        self.covariance_ = self.fit_._covariance(self._coefficient_sites(), data,
                                                 row_weights(weights))
        self.standard_errors_ = np.sqrt(np.diag(self.covariance_))
        with np.errstate(divide="ignore"):
            log_probs = np.log(self._probabilities(X)[np.arange(len(codes)), codes])
        loglik = float((weights * log_probs).sum())
        self.deviance_ = -2 * loglik
        is_ml = not (weak or is_posterior(self.fit_))
        self._learn_likelihood(loglik if is_ml else None, self._rank(X, weights) - 1 + k - 1,
                               codes, weights)
        return self

    def _refuse_text(self) -> None:
        """
        Raises:
            DataError: three or more categories are text, whose order is unknown.
        """
        labels = self.classes_.tolist()
        if len(labels) > 2 and any(isinstance(label, str) for label in labels):
            raise DataError(f"y has the categories {listed(labels)}, whose order is unknown, "
                            f"because text has no order. Give the order, lowest first: "
                            f"OrdinalRegression(categories=[...]), or y as pandas.Categorical(y, "
                            f"categories=[...], ordered=True)")

    def _order(self, y) -> list | None:
        if self.categories is None:
            ordered = getattr(getattr(y, "dtype", None), "ordered", False)
            return list(y.dtype.categories) if ordered else None
        try:
            array = np.asarray(self.categories)
            order = array.tolist() if array.ndim == 1 else []
        except ValueError:  # lists of several lengths
            order = []
        if len(set(order)) < 2 or len(set(order)) < len(order):
            raise ModelError(f"OrdinalRegression(categories={self.categories!r}): expected two or "
                             "more categories in their order, each once, such as ['low', 'middle', "
                             "'high']")
        return order

    def _parameter_units(self, fit: Fit) -> dict[str, Unit]:
        """Thresholds and coefficients of the columns as they were given."""
        coef = np.outer(self._centre / self._unit, np.ones(len(self.classes_) - 1))
        return {"beta": Unit(1 / self._unit, names={0: self._column_names} if self._column_names
                             else {}),
                "thresholds": Unit(others={"beta": (-1, coef)}, names={0: self._threshold_names()}),
                **of_rows(x=(self._centre, self._unit))}

    def _coefficient_sites(self) -> tuple[str, ...]:
        return "beta", "thresholds"

    def _threshold_names(self) -> tuple[str, ...]:
        """The names of the thresholds."""
        return tuple(f"{a}|{b}" for a, b in itertools.pairwise(self.classes_.tolist()))

    def _coefficient_names(self) -> list[str]:
        columns = self._column_names or tuple(f"x{j}" for j in range(self.n_features_in_))
        return [*columns, *self._threshold_names()]

    def _probabilities(self, X) -> np.ndarray:
        with jax.enable_x64(True):
            cumulative = np.asarray(LINKS[self.link](self.thresholds_ - (X @ self.coef_)[:, None]))
        return np.diff(cumulative, axis=1, prepend=0.0, append=1.0)

    def as_data(self, X, y=None) -> dict[str, np.ndarray]:
        """Rows as the data of `fit_`: columns centred and scaled, labels y."""
        check_is_fitted(self, "fit_")
        data = {"x": self._standardize(self._require_complete(X, reset=False))}
        return data if y is None else {**data, "y": np.asarray(y)}

    def predict_proba(self, X):
        """p(category | row), (n, k), in the order of classes_; averaged over a posterior, where
        there is one."""
        check_is_fitted(self, "fit_")
        if is_posterior(self.fit_):
            return self.fit_.predict_proba(self.as_data(X), "y")
        return self._probabilities(self._require_complete(X, reset=False))

    def fitted(self, X):
        """p(category | row), (n, k), as predict_proba."""
        return self.predict_proba(X)

    def predict(self, X):
        """The most probable category of every row."""
        return self.classes_[self.predict_proba(X).argmax(1)]
