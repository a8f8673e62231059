"""The scikit-learn estimator of sparse coding."""

import warnings
from dataclasses import KW_ONLY, dataclass

import numpy as np

from probml import DataError
from probml.estimators.estimator import Estimator, Projection, absent
from probml.estimators.rules import PARTS, SEED, STARTS, Seed, check, integer, number, parameter
from probml.estimators.validation import ConvergenceWarning, check_is_fitted, places_of
from probml.models.latent_factors.sparse_coding import SparseCodes, learn_codes


@dataclass(eq=False, repr=False)
class SparseCoding(Projection, Estimator):
    """Sparse coding: rows as sums of few of many atoms, by the mode under Laplace priors of the
    codes; scikit-learn's DictionaryLearning with missing values.

    Columns are taken as they are: centre them, and bring them to like units, first.

    Args:
        n_components: atoms, k; may be more than there are columns.
        alpha: σ²/b, in the units of X: codes of less than it along an atom are 0.
        n_init: starts from rows drawn at random; the best is used.
        tol: stop when a round gains less than this times ½ Σ X².
        max_iter: rounds at the most; one that stops there warns and leaves converged_ False.
        random_state: seed of the starts; None is 0.

    Attributes:
        components_ (k, d), the atoms, no longer than 1; codes_ (n, k) of the rows that were fitted,
        atoms in the order of what they carry; objective_, ½ Σ_observed (X − codes_ components_)² +
        α Σ |codes_|; history_, converged_, n_iter_, n_features_in_.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris[["Petal.Length", "Petal.Width"]], iris["Species"]
        >>> from probml.models import SparseCoding
        >>> coding = SparseCoding(n_components=3, alpha=0.1, random_state=0).fit(X - X.mean())
        >>> coding.transform(X - X.mean()).shape
        (150, 3)
    """

    n_components: int = parameter(8, PARTS)
    _: KW_ONLY
    alpha: float = parameter(1.0, number(0.0))
    n_init: int = parameter(3, STARTS)
    tol: float = parameter(1e-7, number(0.0))
    max_iter: int = parameter(2000, integer(1))
    random_state: Seed = parameter(None, SEED)

    def fit(self, X, y=None):
        """Learn from rows X (n, d), NaN where missing; y is ignored, present for scikit-learn's
        convention.

        Raises:
            ModelError, DataError, ValueError: a parameter or a cell that cannot be used, by name;
                an X that is 0 throughout.
        """
        check(self)
        X = self._numbers(X, reset=True).astype(float)
        if not np.nansum(np.abs(X)) > 0:
            raise DataError("SparseCoding: all observed values of X are 0, so nothing can be "
                            "estimated. Check how X was read")
        random = np.random.default_rng(self._seed())
        best = min((self._found(X, self._rows(X, random)) for _ in range(self.n_init)),
                   key=lambda best: best.history[-1])
        order = np.argsort(-np.abs(best.codes).sum(0), kind="stable")
        self.components_, self.codes_ = best.atoms[order], best.codes[:, order]
        self.objective_, self.history_ = best.history[-1], np.array(best.history)
        self.converged_, self.n_iter_ = best.converged, len(best.history) - 1
        if not best.converged:
            warnings.warn(f"SparseCoding stopped at max_iter={self.max_iter}, before "
                          f"the objective converged. Raise max_iter, or "
                          f"tol", ConvergenceWarning, stacklevel=2)
        return self

    def _rows(self, X: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """First atoms: rows, and where they are too few or 0 random directions, of length 1."""
        filled = np.nan_to_num(X)
        nonzero = np.flatnonzero((filled**2).sum(1) > 0)
        chosen = random.permutation(nonzero)[: self.n_components]
        atoms = random.standard_normal((self.n_components, X.shape[1]))
        atoms[: len(chosen)] = filled[chosen]
        return atoms / np.linalg.norm(atoms, axis=1, keepdims=True)

    def _found(self, X: np.ndarray, atoms: np.ndarray, learn: bool = True) -> SparseCodes:
        return learn_codes(X, atoms, float(self.alpha), learn,
                           self.tol if learn else self.tol * 1e-3,
                           self.max_iter)

    def transform(self, X):
        """Codes of rows, (n, k), given the atoms that were learnt; a row with nothing observed has
        none."""
        check_is_fitted(self, "components_")
        X = self._numbers(X, reset=False).astype(float)
        return self._found(X, self.components_, learn=False).codes

    predict_proba = absent("predict_proba", "use transform(X) for the codes")

    def inverse_transform(self, codes):
        """Rows of such codes, (n, d)."""
        check_is_fitted(self, "components_")
        return places_of("codes", codes, len(self.components_)) @ self.components_

    def impute(self, X):
        """X with its missing cells at the values that the codes of its observed ones give."""
        filled = self.inverse_transform(self.transform(X))
        X = self._numbers(X, reset=False).astype(float)
        return np.where(np.isnan(X), filled, X)
