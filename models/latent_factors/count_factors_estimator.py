"""The scikit-learn estimator of Poisson–Gamma factorisation."""

import warnings
from dataclasses import KW_ONLY, dataclass

import numpy as np

from probml import DataError, ModelError
from probml.errors import counted
from probml.estimators.estimator import Estimator, Projection, absent
from probml.estimators.rules import PARTS, SEED, STARTS, Seed, check, integer, number, parameter
from probml.estimators.validation import ConvergenceWarning, check_is_fitted, places_of
from probml.models.latent_factors.count_factors import Factors, factorise


@dataclass(eq=False, repr=False)
class PoissonFactors(Projection, Estimator):
    """Counts as sums of few non-negative parts, x ≈ θ β, by variational Bayes; missing cells are
    NaN (models/latent_factors/count_factors.py).

    Of a small shape the prior is sparse: parts that the rows do not ask for empty themselves.

    Args:
        n_components: parts, k, at the most.
        shape, rate: of the gamma prior of θ, the rows' amounts.
        component_shape, component_rate: of that of β, the parts' profiles.
        n_init: random starts; the best bound is used.
        tol: stop when an iteration gains less than this a cell.
        max_iter: iterations at the most; one that stops there warns and leaves converged_ False.
        random_state: seed of the starts; None is 0.

    Attributes:
        components_ (k, d), means of β; amounts_ (n, k), means of θ of the rows that were fitted,
        parts in the order of what they explain; bound_, below log p(X); history_, converged_,
        n_iter_, n_features_in_.

    Examples:
        >>> import numpy as np
        >>> from probml.models import PoissonFactors
        >>> X = np.random.default_rng(0).poisson([[9, 9, 1, 1]] * 20 + [[1, 1, 9, 9]] * 20)
        >>> factors = PoissonFactors(n_components=2, random_state=0).fit(X)
        >>> factors.components_.shape
        (2, 4)
        >>> amounts = factors.transform(X)
        >>> bool(amounts[0].argmax() != amounts[-1].argmax())
        True
    """

    n_components: int = parameter(5, PARTS)
    _: KW_ONLY
    shape: float = parameter(0.3, number(0.0, above=True))
    rate: float = parameter(0.3, number(0.0, above=True))
    component_shape: float = parameter(0.3, number(0.0, above=True))
    component_rate: float = parameter(0.3, number(0.0, above=True))
    n_init: int = parameter(5, STARTS)
    tol: float = parameter(1e-7, number(0.0))
    max_iter: int = parameter(2000, integer(1))
    random_state: Seed = parameter(None, SEED)

    def fit(self, X, y=None):
        """Learn from counts X (n, d), NaN where missing; y is ignored, present for scikit-learn's
        convention.

        Raises:
            ModelError, DataError, ValueError: a parameter or a cell that cannot be used, by name.
        """
        check(self)
        X = self._counts(X, reset=True)
        if self.n_components > X.size:
            raise ModelError(f"PoissonFactors(n_components={self.n_components}): X has only "
                             f"{counted(X.size, 'cell')}. Use at most "
                             f"{counted(X.size, 'component')}")
        random = np.random.default_rng(self._seed())
        best = max((self._found(X, random) for _ in range(self.n_init)),
                   key=lambda best: best.history[-1])
        order = np.argsort(-(best.rows.mean.sum(0) * best.columns.mean.sum(1)), kind="stable")
        self._columns = type(best.columns)(best.columns.shape[order], best.columns.rate[order])
        self.components_, self.amounts_ = self._columns.mean, best.rows.mean[:, order]
        self.bound_, self.history_ = best.history[-1], np.array(best.history)
        self.converged_, self.n_iter_ = best.converged, len(best.history)
        if not best.converged:
            warnings.warn(f"PoissonFactors stopped at max_iter={self.max_iter}, before "
                          "the objective (a lower bound of the log probability of the data) "
                          "converged. Raise max_iter, or tol", ConvergenceWarning, stacklevel=2)
        return self

    def _found(self, X, random, columns=None) -> Factors:
        prior = self.shape, self.rate, self.component_shape, self.component_rate
        return factorise(X, self.n_components, prior, self.tol, self.max_iter, random, columns)

    def _counts(self, X, reset: bool) -> np.ndarray:
        X = self._numbers(X, reset).astype(float)
        if (X < 0).any():
            row, j = np.argwhere(X < 0)[0]
            raise DataError(f"Negative values in data: {self._column(int(j))} of X is "
                            f"{X[row, j]:g} in row {row}, expected a count of at least 0, or NaN "
                            f"for a missing value")
        return X

    predict_proba = absent("predict_proba", "use transform(X) for the amounts of components")

    def transform(self, X):
        """Mean amounts of the parts in rows, (n, k), given the parts that were learnt."""
        check_is_fitted(self, "components_")
        X = self._counts(X, reset=False)
        return self._found(X, np.random.default_rng(0), self._columns).rows.mean

    def inverse_transform(self, amounts):
        """Expected counts of rows with such amounts, (n, d)."""
        check_is_fitted(self, "components_")
        return places_of("amounts", amounts, len(self.components_)) @ self.components_

    def impute(self, X):
        """X with its missing cells at their expected counts, given the row's observed cells."""
        X = self._counts(X, reset=False)
        return np.where(np.isnan(X), self.inverse_transform(self.transform(X)), X)
