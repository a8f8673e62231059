"""The scikit-learn estimator of logistic and softmax regression."""

from dataclasses import KW_ONLY, dataclass, replace

import numpy as np
from scipy.special import logsumexp

from probml import MAP, Fit, ModelError, Refusal
from probml.engines.engine import Engine
from probml.errors import counted
from probml.estimators.rules import (
    CLASS_WEIGHT,
    ENGINE,
    FLAG,
    SEED,
    ClassWeight,
    Seed,
    integer,
    number,
    parameter,
)
from probml.estimators.validation import check_is_fitted
from probml.models.classifiers.planes import COST, Planes, with_class_labels
from probml.models.frames.standardized import finds_posterior, row_weights, without_prior
from probml.models.regression.generalized_linear import logistic_regression, softmax_regression
from probml.models.regression.results import RegressionResults, is_posterior
from probml.numerics.process.libraries import pd
from probml.posteriors.units import Unit

# prior standard deviation in logits of intercepts that a posterior needs and nothing tells
LOOSE = 30.0


@dataclass(eq=False, repr=False)
class LogisticRegression(RegressionResults, Planes):
    """Logistic regression, softmax regression of several classes (= maximum entropy): p(class | x)
    ∝ exp(x β_class + b_class).

        min over β, b:  ½ |β|² + C Σ_i weight_i · (−log p(y_i | x_i))

    β ~ N(0, C), as scikit-learn's; the intercept is flat. With engine=probml.Laplace() or NUTS()
    the coefficients have a posterior, over which the probabilities are averaged. The functions are
    probml.models.logistic_regression and softmax_regression.

    Args:
        C: prior variance of a weight, in inverse squared units of its column, as scikit-learn's:
            scale matters to it, an offset does not. inf: maximum likelihood, to which neither does.
        fit_intercept: with b.
        class_weight: None, "balanced" or class → weight.
        tol: L-BFGS, which optimises where classes and columns are many, stops where an iteration
            gains less of the objective.
        max_iter: Newton or L-BFGS iterations.
        random_state: seed of a sampler; None is 0.
        engine: an engine's value; by default MAP() at the penalty.

    Attributes:
        classes_, coef_ (1, d) or (k, d), intercept_ (1,) or (k,), n_iter_, converged_, history_,
        fit_: the probml Fit, whose data are those of `as_data`.

    A maximum that does not exist, of classes that are separated with C=inf, is warned of. Cost: see
    MAP; half a second for 1,000,000 × 50.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris.drop(columns="Species"), iris["Species"]
        >>> from probml.models import LogisticRegression
        >>> classifier = LogisticRegression(C=1.0).fit(X, y)
        >>> round(classifier.score(X, y), 2)
        0.97
        >>> classifier.coef_.shape
        (3, 4)
    """

    C: float = parameter(1.0, COST)
    _: KW_ONLY
    fit_intercept: bool = parameter(True, FLAG)
    class_weight: ClassWeight = parameter(None, CLASS_WEIGHT)
    tol: float = parameter(1e-9, number(0.0))
    max_iter: int = parameter(10_000, integer(1))
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and labels y (n,).

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell, a label or a weight that cannot
                be used, by name; one class only.
        """
        X, codes, weights = self._balanced(X, y, sample_weight)
        k = len(self.classes_)
        # too many coefficients for Newton's steps: units matter to L-BFGS
        x = self._frame(X, weights, force=k > 2)
        # A shift of all intercepts changes no probability: where there is to be a posterior, a
        # prior that tells nothing else holds it.
        penalty = 1 / self.C
        bias_scale = LOOSE if k > 2 and finds_posterior(self.engine) else None
        settings = {"weight_scale": "each" if penalty else None,
                    "bias_scale": bias_scale if self.fit_intercept else 0}
        model = logistic_regression(**settings) if k == 2 else softmax_regression(states=k,
                                                                                  **settings)
        engine = without_prior(self.engine or MAP(steps=int(self.max_iter),
                                                  tolerance=float(self.tol)), penalty)
        data = {"x": x, "y": codes} | ({"weight_scale": self._scale()} if penalty else {})
        try:
            fit = model.fit(data, engine, weights=row_weights(weights), seed=self._seed())
        except Refusal as refusal:
            if self.engine is None or np.isfinite(self.C) or "improper" not in str(refusal):
                raise
            raise Refusal(
                f"LogisticRegression(C={self.C}, engine={self.engine!r}): the posterior is "
                "improper (the integral of its density is infinite). C=inf gives the weights a "
                "flat prior, and the rows do not determine all weights. Choose a finite C, such as "
                f"C=100 ({refusal})"
            ) from refusal
        self._found(with_class_labels(fit, self.classes_))
        beta, bias = (fit.params["beta"].reshape(X.shape[1], -1),
                      np.reshape(fit.params.get("intercept", np.zeros(1 if k == 2 else k)), -1))
        if k > 2:
            beta, bias = beta - beta.mean(1, keepdims=True), bias - bias.mean()
        self.coef_, self.intercept_ = self._planes(beta, bias)
        loglik = None
        if np.isinf(self.C) and not is_posterior(fit):
            logits = X @ self.coef_.T + self.intercept_
            logits = np.column_stack([np.zeros(len(X)), logits]) if k == 2 else logits
            log_probs = logits[np.arange(len(X)), codes] - logsumexp(logits, axis=1)
            loglik = float((weights * log_probs).sum())
        self._learn_likelihood(loglik, (k - 1) * self._rank(X, weights), codes, weights)
        return self

    def _coefficient_names(self):
        names = super()._coefficient_names()
        if len(self.classes_) == 2:
            return names
        return pd.MultiIndex.from_product([names, self.classes_], names=["column", "class"])

    def _family_of_y(self) -> str:
        if len(self.classes_) > 2:
            raise ModelError(f"residuals: the model has "
                             f"{counted(len(self.classes_), 'class', 'classes')}, but "
                             "residuals are defined only for two classes, 0 and 1. Compare "
                             "predict_proba(X) with y instead")
        return "bernoulli"

    def _numbers_of(self, y) -> np.ndarray:
        """1 for classes_[1], the class whose probability is fitted."""
        return (self._codes_of_fitted(y, "residuals") == len(self.classes_) - 1).astype(float)

    def _inverse_link(self, X) -> np.ndarray:
        return self.fitted(X)

    def fitted(self, X):
        """p(class | x) of every row: of two classes that of classes_[1], (n,), else (n, k)."""
        probs = self.predict_proba(X)
        return probs[:, 1] if probs.shape[1] == 2 else probs

    def _parameter_units(self, fit: Fit) -> dict[str, Unit]:
        """Class coefficients are centred over classes: only their differences are identified, so
        that the centred ones have standard errors."""
        units, k = super()._parameter_units(fit), len(self.classes_)
        return units | {name: replace(units[name], mix=(-1, np.eye(k) - 1 / k))
                        for name in ("intercept", "beta") if k > 2 and name in units}

    def predict_proba(self, X):
        """p(class | row), (n, k); averaged over a posterior, where there is one."""
        check_is_fitted(self, "coef_")
        if self.fit_.drawn is not None:
            return self.fit_.predict_proba(self.as_data(X), "y")
        logits = self.decision_function(X)
        logits = np.column_stack([np.zeros(len(logits)), logits]) if logits.ndim == 1 else logits
        exps = np.exp(logits - logits.max(1, keepdims=True))
        return exps / exps.sum(1, keepdims=True)
