"""The scikit-learn estimator of Fisher's linear discriminant."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from probml import DataError
from probml.engines.engine import Engine
from probml.estimators.estimator import Projection
from probml.estimators.rules import (
    ENGINE,
    FLAG,
    SEED,
    Seed,
    fixed,
    integer,
    number,
    numbers,
    optional,
    parameter,
)
from probml.estimators.validation import check_is_fitted
from probml.models.classifiers.discriminant_estimators import GaussianDiscriminant


@dataclass(eq=False, repr=False)
class FisherDiscriminant(Projection, GaussianDiscriminant):
    """Fisher's linear discriminant: the directions in which the classes' means lie furthest apart,
    in units of the standard deviation within classes.

        max over v:  vᵀ S_b v / vᵀ S_w v,   S_w = Σ_j π_j Σ, S_b = Σ_j π_j (μ_j − μ)(μ_j − μ)ᵀ

    The model is gaussian_mixture with the labels observed and one covariance for all classes, whose
    posterior of the class this classifier
    takes: normal classes of one covariance are parted by planes. Missing cells of X are integrated
        out of the fit and of predictions.

    Args:
        n_components: number of directions, at most min(classes − 1, d); None: all of these.
        prior: False (Fisher's): maximum likelihood; True: the priors of GaussianDiscriminant, as
            wide as they are by default.
        priors: (k,), probabilities of the classes, in their sorted order; None: learnt.

    Attributes:
        classes_, priors_, means_, covariance_ (d, d) within classes, scalings_ (d, n_components)
        with vᵀ S_w v = 1, explained_variance_ratio_, mean_, fit_.

    Sources: Fisher (1936), "The use of multiple measurements in taxonomic problems"; Rao (1948) for
        several classes.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris.drop(columns="Species"), iris["Species"]
        >>> from probml.models import FisherDiscriminant
        >>> lda = FisherDiscriminant(n_components=2).fit(X, y)
        >>> lda.transform(X).shape
        (150, 2)
        >>> round(lda.score(X, y), 2)
        0.98
    """

    _title: ClassVar[str] = "Fisher discriminant analysis"

    n_components: int | None = parameter(None, optional(integer(1)))
    _: KW_ONLY
    covariance: str = fixed("shared")
    prior: bool = parameter(False, FLAG)
    plug_in: bool = fixed(False)
    concentration: float = fixed(1.0)
    centre: None = fixed(None)
    mean_scale: float = fixed(1000.0)
    scale: None = fixed(None)
    unlabelled_weight: float = fixed(1.0)
    priors: ArrayLike | None = parameter(None, optional(numbers(0.0)))
    tol: float = parameter(1e-7, number(0.0))
    max_iter: int = parameter(1000, integer(1))
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and labels y (n,); see GaussianDiscriminant.

        Raises:
            DataError: more components than directions, one class only; and as GaussianDiscriminant.
        """
        super().fit(X, y, sample_weight)
        k, d = self.means_.shape
        most = min(k - 1, d)
        if self.n_components is not None and self.n_components > most:
            raise DataError(f"FisherDiscriminant(n_components={self.n_components}): expected at "
                            f"most {most}, the number of discriminant directions of {k} classes "
                            f"and {d} columns")
        self.mean_ = self.priors_ @ self.means_
        away = self.means_ - self.mean_
        root = np.linalg.cholesky(self.covariance_)
        whitened = np.linalg.solve(root, away.T) * np.sqrt(self.priors_)  # (d, k)
        axes, lengths, _ = np.linalg.svd(whitened, full_matrices=False)
        kept = self.n_components or most
        self.explained_variance_ratio_ = (lengths**2 / (lengths**2).sum())[:kept]
        self.scalings_ = np.linalg.solve(root.T, axes[:, :kept])
        return self

    def _batch(self, X, y, sample_weight, classes, reset):
        X, codes, weights = super()._batch(X, y, sample_weight, classes, reset)
        if len(np.unique(codes[~np.isnan(codes.astype(float))])) < 2:
            names = self.classes_.tolist()
            raise DataError(f"The number of classes has to be greater than one; y has 1 class, "
                            f"{names}: give rows of another class")
        return X, codes, weights

    @property
    def _n_features_out(self):
        return self.scalings_.shape[1]

    def transform(self, X):
        """Rows in the discriminant directions, (n, n_components), about the mean; a row with an
        missing cell is NaN."""
        check_is_fitted(self, "scalings_")
        return (self._validated(X, reset=False) - self.mean_) @ self.scalings_

    @property
    def coef_(self):
        """Of the log odds of the classes, (k, d), up to what all have in common; (1, d) of two
        classes."""
        found = np.linalg.solve(self.covariance_, self.means_.T).T
        return found[1:] - found[:1] if len(found) == 2 else found

    @property
    def intercept_(self):
        """Beside coef_: (k,) or (1,)."""
        quadratic = np.einsum("kd,dk->k", self.means_,
                              np.linalg.solve(self.covariance_, self.means_.T))
        found = np.log(self.priors_) - 0.5 * quadratic
        return found[1:] - found[:1] if len(found) == 2 else found
