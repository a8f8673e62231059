"""The scikit-learn estimator of item response."""

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import numpy as np

from probml import MAP, DataError, ReliabilityWarning
from probml.engines.engine import Engine
from probml.estimators.estimator import Estimator, Projection, absent
from probml.estimators.rules import ENGINE, FLAG, SEED, Seed, check, one_of, parameter
from probml.estimators.validation import check_is_fitted
from probml.language.given import as_numbers
from probml.models.latent_factors.item_response import MODELS, item_response

MIN_DISCRIMINATION = 1e-3  # below which it is in effect 0


@dataclass(eq=False, repr=False)
class ItemResponse(Projection, Estimator):
    """Item response: answers 0 and 1 of persons, each by one ability; R's ltm and mirt.

        logit p(x_ij = 1 | z_i) = a_j z_i + c_j,   z_i ~ N(0, 1)

    The function is probml.models.item_response; abilities are integrated out by quadrature, missing
    answers (NaN) drop out.

    Args:
        kind: "2pl", a discrimination an item, or "1pl", one for all (Rasch).
        prior: the function's weak priors; False: maximum likelihood.
        random_state: seed of a sampler; None is 0.
        engine: an engine's value; by default MAP(prior=prior).

    Attributes:
        discrimination_ (items,), a; easiness_ (items,), c; difficulty_ (items,), −c / a: the
        ability at which half answer 1; loglik_ of the answers; n_iter_, converged_, fit_: the
        probml Fit, whose data are {"y": X}.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> lsat = pd.read_csv(files("probml.data") / "lsat.csv")
        >>> from probml.models import ItemResponse
        >>> model = ItemResponse("1pl").fit(lsat[::10])     # Rasch
        >>> model.transform(lsat[:2]).shape
        (2, 1)
        >>> print(model.difficulty_.round(1))
        [-3.5 -1.2 -0.3 -1.7 -2.5]
    """

    _title: ClassVar[str] = "Item response model"

    kind: str = parameter("2pl", one_of(*MODELS))
    _: KW_ONLY
    prior: bool = parameter(True, FLAG)
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    def fit(self, X, y=None, sample_weight=None):
        """Learn from answers X (persons, items), 0, 1 or NaN; y is ignored, present for
        scikit-learn's convention.

        Raises:
            ModelError, DataError, ValueError: a parameter, an answer or a weight that cannot be
                used, by name; an item that all answer alike.
        """
        check(self)
        X = self._answers(X, reset=True)
        weights, kept_rows = self._weigh(X, sample_weight)
        if kept_rows is not None:
            X = X[kept_rows]
            self._refuse_missing(np.isnan(X).all(0))
        for j, (low, high) in enumerate(zip(np.nanmin(X, 0), np.nanmax(X, 0), strict=True)):
            if low == high and not self.prior:
                raise DataError(f"{self._column(j)} has the answer {low:g} for every person, so "
                                f"the maximum likelihood estimate of the difficulty of this item "
                                f"is infinite. Drop the column, or set prior=True")
        model = item_response(items=X.shape[1], kind=self.kind)
        fit = model.fit({"y": X}, self.engine or MAP(prior=bool(self.prior)),
                        weights=weights, seed=self._seed())
        names = {"y": self._column_names} if self._column_names else {}
        self.fit_ = replace(fit, columns=names)
        self.n_iter_, self.converged_ = max(self.fit_.iterations, 1), self.fit_.converged
        params = self.fit_.params
        self.easiness_ = np.asarray(params["easiness"], float)
        self.discrimination_ = np.broadcast_to(np.asarray(params["discrimination"], float),
                                               self.easiness_.shape).copy()
        self.difficulty_ = -self.easiness_ / self.discrimination_
        item = int(np.argmin(self.discrimination_))
        if self.discrimination_[item] < MIN_DISCRIMINATION:
            warnings.warn(f"ItemResponse: the discrimination of {self._column(item)} is 0, so its "
                          "difficulty is undefined. Discriminations are positive, but these "
                          "answers fall with ability or do not depend on it. Reverse the column, 1 "
                          "- x, or drop it", ReliabilityWarning, stacklevel=3)
        log_probs = np.asarray(self.fit_.log_prob({"y": X}, plug_in=True))
        self.loglik_ = float(log_probs.sum() if weights is None else weights @ log_probs)
        return self

    def _answers(self, X, reset: bool) -> np.ndarray:
        X = self._numbers(X, reset).astype(float)
        invalid = ~(np.isnan(X) | (X == 0) | (X == 1))
        if invalid.any():
            row, j = np.argwhere(invalid)[0]
            raise DataError(f"{self._column(int(j))} of X is {X[row, j]:g} in row {row}, expected "
                            f"an answer, 0 or 1, or NaN for a missing answer")
        return X

    _n_features_out = 1

    def _data(self, X):
        return {"y": self._answers(X, reset=False)}

    predict_proba = absent("predict_proba", "use transform(X) for the abilities")

    def transform(self, X):
        """Abilities of persons given their answers, expected a posteriori, (persons, 1); 0 of one
        without answers."""
        return self._ability_posterior(X)[0][:, None]

    def standard_errors(self, X):
        """Standard deviations of abilities given the answers, (persons,)."""
        return np.sqrt(self._ability_posterior(X)[1])

    def _ability_posterior(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Means and variances of abilities given answers."""
        check_is_fitted(self, "fit_")
        posterior = self.fit_.conditional({"y": self._answers(X, reset=False)}, "ability")
        return (np.asarray(posterior.mean, float).reshape(-1),
                np.asarray(posterior.variance, float).reshape(-1))

    def information(self, ability):
        """Fisher's information of the whole test at abilities (m,), (m,): 1 / variance of an
        estimate of them."""
        check_is_fitted(self, "fit_")
        ability = as_numbers(ability, "information(ability)")
        if np.isnan(ability).any():
            raise DataError("information(ability): expected numbers, got NaN. Drop missing "
                            "abilities")
        eta = ability[..., None] * self.discrimination_ + self.easiness_
        probs = 1 / (1 + np.exp(-eta))
        return (self.discrimination_**2 * probs * (1 - probs)).sum(-1)
