"""The scikit-learn estimators of discriminants: a normal distribution or a mixture of them for each
class, and Fisher's linear discriminant.
"""

import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from probml import DataError, Fit, Refusal
from probml.engines.engine import Engine
from probml.errors import counted
from probml.estimators.classifier import Additive, Classifier, Joint, Stepwise
from probml.estimators.estimator import Estimator, Projection, flat, objective_of
from probml.estimators.rules import (
    ENGINE,
    FLAG,
    SEED,
    STARTS,
    Seed,
    fixed,
    integer,
    number,
    numbers,
    optional,
    parameter,
)
from probml.estimators.validation import check_is_fitted
from probml.fits.memory import check_matrix_memory
from probml.models.classifiers.naive_bayes_estimator import COVARIANCE
from probml.models.frames.complete import require_classes
from probml.models.frames.covariances import canonical
from probml.models.frames.ties import warn_of_ties_in_array
from probml.models.frames.units import InUnits, moments
from probml.models.frames.unlabelled import WEIGHT, PartlyLabelled
from probml.models.mixtures.gaussian_mixture import gaussian_mixture
from probml.models.mixtures.mixture_of_mixtures import mixture_of_mixtures
from probml.models.mixtures.starts import far_rows, precision_near


class _Normals:
    """What is found of classes that are normal, or several normals."""

    covariance: str  # of the estimator
    fit_: Fit
    _parameter: Callable[..., Any]

    @property
    def priors_(self):
        return self._parameter("weights")

    @property
    def means_(self):
        return self.fit_.params["mean"]

    @property
    def covariance_(self):
        precision = self.fit_.params["precision"]
        return (np.linalg.inv(precision) if canonical(self.covariance) in ("full", "tied")
                else 1 / precision)


@dataclass(eq=False, repr=False)
class GaussianDiscriminant(_Normals, Joint, PartlyLabelled, InUnits, Additive, Classifier):
    """Gaussian discriminant analysis: a normal in each class. "own" is quadratic (QDA), "shared"
    linear (LDA).

    The model is probml.models.gaussian_mixture with its components observed. prior=False is maximum
    likelihood; scikit-learn's QDA divides by n − 1 instead, and its LDA by n.

    Args:
        covariance: "own", "diagonal" or "spherical" in each class; "shared", "shared diagonal" or
            "shared spherical" for all; scikit-learn's words "full", "tied" and "diag" are taken as
            well.
        prior, plug_in, tol, max_iter, unlabelled_weight, priors, random_state, engine: as in
            NaiveBayes.
        concentration: pseudo-rows of every class.
        centre, mean_scale, scale: prior of means and covariances in units of X, see
            gaussian_mixture; centre and scale are by default (None) each column's mean and its
            standard deviation within the classes: no unit of measurement matters.

    Attributes:
        classes_, priors_ (k,), means_ (k, d), covariance_ (k, d, d), (d, d), (k, d), (d,), (k,) or
        (), fit_.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris.drop(columns="Species"), iris["Species"]
        >>> from probml.models import GaussianDiscriminant
        >>> qda = GaussianDiscriminant("own").fit(X, y)
        >>> round(qda.score(X, y), 2)
        0.98
        >>> print(qda.predict_proba(X[70:71]).round(2))
        [[0.   0.34 0.66]]
    """

    _title: ClassVar[str] = "Gaussian discriminant analysis"

    covariance: str = parameter("own", COVARIANCE)
    _: KW_ONLY
    prior: bool = parameter(True, FLAG)
    plug_in: bool = parameter(False, FLAG)
    concentration: ArrayLike = parameter(1.0, numbers(0.0))
    centre: ArrayLike | None = parameter(None, optional(numbers(-np.inf)))
    mean_scale: float = parameter(1000.0, number(0.0, above=True))
    scale: ArrayLike | None = parameter(None, optional(numbers(0.0)))
    tol: float = parameter(1e-7, number(0.0))
    max_iter: int = parameter(1000, integer(1))
    unlabelled_weight: float | str = parameter(1.0, WEIGHT)
    priors: ArrayLike | None = parameter(None, optional(numbers(0.0)))
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    def _model(self, k):
        settings = {name: getattr(self, name)
                    for name in ("concentration", "mean_scale")} | self._prior()
        return gaussian_mixture(k=k, d=self.n_features_in_, covariance=canonical(self.covariance),
                                **settings)

    def _check_likelihood_is_bounded(self, X, codes):
        _refuse_flat(self, X, codes)


def _refuse_flat(estimator: Estimator, X, codes) -> None:
    """A column without spread has no maximum of the likelihood: in a class, or in all where the
    covariance is shared."""
    if estimator.covariance.endswith("spherical"):
        return
    groups = {f" in class {label!r}": X[codes == code]
              for code, label in enumerate(estimator.classes_.tolist())}
    if canonical(estimator.covariance).startswith("tied") and len(X) <= len(groups):
        raise DataError(f"{type(estimator).__name__}: X has {counted(len(X), 'row')} of "
                        f"{counted(len(groups), 'class', 'classes')}. The number of samples must "
                        f"be more than the "
                        "number of classes to estimate the variance within classes. Give more "
                        "rows, or set prior=True")
    # what is left after the classes' means, of all classes together
    if canonical(estimator.covariance).startswith("tied"):
        groups = {" in every class": np.concatenate(
            [rows - np.nanmean(rows, 0) for rows in groups.values() if len(rows) > 1]
        )}
    for scope, rows in groups.items():
        if len(rows) < 2:
            raise DataError(
                f"{scope.removeprefix(' in ')} has only {len(rows)} row, so a normal distribution "
                "fitted to this class alone has variance 0 and the likelihood has no maximum. Set "
                "prior=True or covariance='shared', or drop the class"
            )
        if (constant := flat(rows)).any():
            raise DataError(
                f"{estimator._column(int(np.argmax(constant)))} is constant{scope}, so its "
                "variance is 0 and the likelihood has no maximum. Drop the column, or set "
                "prior=True"
            )


@dataclass(eq=False, repr=False)
class MixtureDiscriminant(_Normals, Joint, PartlyLabelled, InUnits, Stepwise, Classifier):
    """Discriminant analysis by mixtures: a Gaussian mixture in each class (MclustDA), fitted by EM
    with the labels observed.

    The model is probml.models.mixture_of_mixtures.

    Args:
        n_components: components of each class, k.
        covariance: as in GaussianDiscriminant; "shared" is one for all components of all classes.
        n_init: starts, each by k-means++ within the classes; the best is used.
        prior, tol, max_iter, unlabelled_weight, priors, random_state, engine, concentration,
            centre, mean_scale, scale: as in GaussianDiscriminant, the standard deviation within
            k-means clusters of every class.

    Attributes:
        classes_, priors_ (classes,), weights_ (classes, k) of the components in a class, means_
        (classes, k, d), covariance_, fit_.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> iris = pd.read_csv(files("probml.data") / "iris.csv")
        >>> X, y = iris.drop(columns="Species"), iris["Species"]
        >>> from probml.models import MixtureDiscriminant
        >>> mda = MixtureDiscriminant(n_components=2, random_state=0).fit(X, y)
        >>> round(mda.score(X, y), 2)
        0.98
    """

    _title: ClassVar[str] = "Mixture discriminant analysis"

    _target = "class"
    n_components: int = parameter(2, integer(1, 1_000_000))
    _: KW_ONLY
    covariance: str = parameter("own", COVARIANCE)
    n_init: int = parameter(1, STARTS)
    prior: bool = parameter(True, FLAG)
    concentration: ArrayLike = parameter(1.0, numbers(0.0))
    centre: ArrayLike | None = parameter(None, optional(numbers(-np.inf)))
    mean_scale: float = parameter(1000.0, number(0.0, above=True))
    scale: ArrayLike | None = parameter(None, optional(numbers(0.0)))
    tol: float = parameter(1e-7, number(0.0))
    max_iter: int = parameter(1000, integer(1))
    unlabelled_weight: float | str = parameter(1.0, WEIGHT)
    priors: ArrayLike | None = parameter(None, optional(numbers(0.0)))
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    @property
    def _components(self) -> int:  # type: ignore[override]
        return self.n_components

    def _model(self, k):
        settings = {name: getattr(self, name)
                    for name in ("concentration", "mean_scale")} | self._prior()
        return mixture_of_mixtures(classes=k, k=self.n_components, d=self.n_features_in_,
                                   covariance=canonical(self.covariance), **settings)

    def _check_likelihood_is_bounded(self, X, codes):
        _refuse_flat(self, X, codes)

    def _row_notes(self, X):
        if self.n_components > 1:
            warn_of_ties_in_array(X, self._column,
                                  "Drop such a column, or use NaiveBayes, which can treat the "
                                  "column as categorical")
        return []

    def _infer(self, model, data, weights, start, complete):
        """The best of n_init starts, each with its own means: the engine's own start labels rows
        without regard to classes."""
        is_sampled = self.engine is not None and self.engine.capabilities.finds != "point"
        if self.n_components == 1 or is_sampled:
            return super()._infer(model, data, weights, start, complete)
        fits = []
        # only the best one's warnings are the user's business
        with warnings.catch_warnings(record=True):
            for i in range(self.n_init):
                start = self._begin(data["x"], data["class"], weights,
                                    np.random.RandomState([self._seed(), i]))
                try:
                    fits.append(super()._infer(model, data, weights, start, False))
                except Refusal as refusal:  # a start whose component collapsed
                    failure = refusal
        if not fits:
            raise failure
        best = max(fits, key=objective_of)
        for finding in best.warnings:
            finding.issue(type(self).__name__, stacklevel=4)
        return best

    def _begin(self, X, codes, weights, random) -> dict[str, np.ndarray]:
        """Every class begins at equal shares, at rows of its own that lie far from each other, and
        at their spread."""
        classes, k, d = self.classes_.tolist(), self.n_components, X.shape[1]
        event = {"full": (d, d), "tied": (d, d)}.get(
            canonical(self.covariance), () if self.covariance.endswith("spherical") else (d,)
        )
        if event == (d, d):
            count = 1 if canonical(self.covariance) == "tied" else len(classes) * k
            check_matrix_memory(f"{type(self).__name__}(covariance={self.covariance!r})", count, d)
        X = np.where(np.isnan(X), moments(X, weights).centre, X)
        means, precisions = [], []
        for code, label in enumerate(classes):
            rows = X[codes == code]
            row_weights = None if weights is None else weights[codes == code]
            if (n_distinct := len(np.unique(rows, axis=0))) < k:
                raise DataError(f"class {label!r} has {counted(n_distinct, 'distinct row')}, fewer "
                                f"than n_components={k}. Give the class more rows, or use "
                                f"n_components={n_distinct}")
            means.append(far_rows(rows, k, random, row_weights))
            precisions.append(precision_near(rows, means[-1], event, row_weights))
        precision = np.stack(
            [precisions] * k, 1
        ) if not canonical(self.covariance).startswith("tied") else np.mean(precisions, 0)
        weights, shares = np.full(len(classes), 1 / len(classes)), np.full((len(classes), k), 1 / k)
        return {"weights": weights, "shares": shares, "mean": np.stack(means),
                "precision": precision}

    @property
    def weights_(self):
        return self.fit_.params["shares"]


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
        n_max = min(k - 1, d)
        if self.n_components is not None and self.n_components > n_max:
            raise DataError(f"FisherDiscriminant(n_components={self.n_components}): expected at "
                            f"most {n_max}. The maximum is min(classes − 1, columns), and X has "
                            f"{counted(k, 'class', 'classes')} and {counted(d, 'column')}")
        self.mean_ = self.priors_ @ self.means_
        offsets = self.means_ - self.mean_
        root = np.linalg.cholesky(self.covariance_)
        whitened = np.linalg.solve(root, offsets.T) * np.sqrt(self.priors_)  # (d, k)
        axes, lengths, _ = np.linalg.svd(whitened, full_matrices=False)
        n_used = self.n_components or n_max
        self.explained_variance_ratio_ = (lengths**2 / (lengths**2).sum())[:n_used]
        self.scalings_ = np.linalg.solve(root.T, axes[:, :n_used])
        return self

    def _batch(self, X, y, sample_weight, classes, reset):
        X, codes, weights = super()._batch(X, y, sample_weight, classes, reset)
        require_classes(self.classes_[np.unique(codes[~np.isnan(codes.astype(float))]).astype(int)])
        return X, codes, weights

    @property
    def _n_features_out(self):
        return self.scalings_.shape[1]

    def transform(self, X):
        """Coordinates of rows in the discriminant directions, (n, n_components), centred; NaN for a
        row with a missing value."""
        check_is_fitted(self, "scalings_")
        return (self._validated(X, reset=False) - self.mean_) @ self.scalings_

    @property
    def coef_(self):
        """The coefficients of the log odds of the classes, (k, d), up to a constant that all
        classes share; (1, d) for two classes."""
        coefs = np.linalg.solve(self.covariance_, self.means_.T).T
        return coefs[1:] - coefs[:1] if len(coefs) == 2 else coefs

    @property
    def intercept_(self):
        """The intercepts that belong to coef_: (k,) or (1,)."""
        quadratic = np.einsum("kd,dk->k", self.means_,
                              np.linalg.solve(self.covariance_, self.means_.T))
        intercepts = np.log(self.priors_) - 0.5 * quadratic
        return intercepts[1:] - intercepts[:1] if len(intercepts) == 2 else intercepts
