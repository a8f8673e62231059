"""scikit-learn estimators of linear latent spaces: probabilistic PCA and factor analysis."""

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import ClassVar

import numpy as np

from probml import MAP, DataError, Fit, ModelError
from probml.engines.engine import Engine
from probml.errors import counted
from probml.estimators.estimator import Estimator, Projection, absent, flat
from probml.estimators.information_criteria import InformationCriteria, choose_lowest, criteria
from probml.estimators.rules import (
    ENGINE,
    FLAG,
    SEED,
    Seed,
    check,
    check_count,
    integer,
    number,
    one_of,
    optional,
    parameter,
    sizes,
)
from probml.estimators.validation import check_is_fitted, clone, places_of
from probml.interface.showing.estimates import Estimates, Quantity
from probml.interface.showing.summary import Table
from probml.models.latent_factors.factor_analysis import (
    covariance_root,
    factor_analysis,
    factors,
    principal,
    probabilistic_pca,
    spectrum,
)
from probml.models.latent_factors.rotation import ROTATIONS, rotate
from probml.models.summaries.factors import factor_tables
from probml.numerics.process.libraries import pd
from probml.posteriors.units import Unit, of_rows

STEP = 0.01  # of a tolerance of EM's iterations, for steps of L-BFGS, which are smaller


@dataclass(eq=False, repr=False)
class _Linear(InformationCriteria, Projection, Estimator):
    """What both estimators share. Columns are fitted about their means in units of their spread,
    and attributes are in those of X."""

    _kind: ClassVar[str] = "factors"

    n_components: int | Sequence[int] = parameter(2, sizes(1))
    _: KW_ONLY
    prior: bool = parameter(True, FLAG)
    loading_scale: float = parameter(10.0, number(0.0, above=True))
    scale: float = parameter(0.1, number(0.0, above=True))
    tol: float = parameter(1e-9, number(0.0))
    max_iter: int = parameter(1000, integer(1))
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    def fit(self, X, y=None, sample_weight=None):
        """Learn from rows X (n, d), missing cells NaN; y is ignored, present for scikit-learn's
        convention.

        Args:
            sample_weight: (n,), how many times each row counts.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name.
        """
        check(self)
        self.__dict__.pop("table_", None)
        if not isinstance(self.n_components, Integral):
            return self._choose(X, sample_weight)
        X = self._validated(X, reset=True).astype(float)
        weights, kept_rows = self._weigh(X, sample_weight)
        if kept_rows is not None:
            X = X[kept_rows]
            self._refuse_missing(np.isnan(X).all(0))
        (n, d), k = X.shape, self.n_components
        if k > d:
            raise ModelError(f"{type(self).__name__}(n_components={k}): X has only "
                             f"{counted(d, 'column')} (n_features={d}). Use at most "
                             f"{counted(d, 'component')}")
        self._centre, self._unit = _means(X, weights), np.ones(d)
        self._unit = self._units((covariance_root(X - self._centre, weights)**2).sum(0))
        x = self._data(X)["x"]
        root = covariance_root(x, weights)
        if not self.prior:
            self._check_rank(X, root)
        W, noise = self._begin(root, int(k))
        start = {"mean": np.zeros(d), "loadings": W, "precision": 1 / noise}
        model = self._function(k=int(k), d=d, loading_scale=float(self.loading_scale),
                               scale=float(self.scale))
        self._keep(self._infer(model, {"x": x}, weights, start, not np.isnan(x).any()),
                   n if weights is None else weights.sum())
        self._tell_units(np.sqrt((root**2).sum(0)), noise)
        mask = ~np.isnan(X)
        log_units = np.log(self._unit) @ (mask.sum(0) if weights is None else weights @ mask)
        # log density in the units of X
        self.lower_bounds_ = self.lower_bounds_ - log_units / self.total_weight_
        self.lower_bound_ = float(self.lower_bounds_[-1])
        self._name()
        self.loglik_ = self._log_likelihood(x, weights) - float(log_units)
        return self

    def _log_likelihood(self, x: np.ndarray, weights: np.ndarray | None) -> float:
        """log p of the rows as they were fitted; of complete ones in NumPy, for which nothing is
        compiled."""
        w = np.ones(len(x)) if weights is None else weights
        if np.isnan(x).any():
            return float(w @ self.fit_.log_prob({"x": x}, plug_in=True))
        p = {name: np.asarray(value, float) for name, value in self.fit_.params.items()}
        sd = np.broadcast_to(p["precision"]**-0.5, p["mean"].shape)
        residual, slope = (x - p["mean"]) / sd, p["loadings"] / sd[:, None]
        inner = slope.T @ slope + np.eye(slope.shape[1])
        z = np.linalg.solve(inner, slope.T @ residual.T).T  # E[z | x]
        squares = ((residual - z @ slope.T)**2).sum(1) + (z**2).sum(1)
        log = 2 * np.log(sd).sum() + np.linalg.slogdet(inner)[1] + len(sd) * np.log(2 * np.pi)
        return float(-0.5 * (w.sum() * log + w @ squares))

    @property
    def aic_(self):
        """−2 loglik_ + 2 · parameters (Akaike 1974)."""
        return criteria(self.loglik_, self.n_parameters_, self.total_weight_)["aic"]

    @property
    def bic_(self):
        """−2 loglik_ + parameters · log n (Schwarz 1978)."""
        return criteria(self.loglik_, self.n_parameters_, self.total_weight_)["bic"]

    def _choose(self, X, sample_weight):
        """Fit every number of components, and keep the best by the BIC."""
        fits = {k: clone(self).set_params(n_components=k).fit(X, sample_weight=sample_weight)
                for k in sorted({int(k) for k in np.atleast_1d(self.n_components)})}
        table, best = choose_lowest([
            {"n_components": k, **criteria(model.loglik_, model.n_parameters_, model.total_weight_),
             "converged": model.converged_} for k, model in fits.items()], "bic")
        chosen = {name: value for name, value in vars(fits[best]).items()
                  if name not in self.get_params()}
        self.__dict__.update(chosen, table_=table, n_components_=best)
        return self

    def _ladder(self, complete: bool) -> tuple:
        """Complete rows are few (of their second moments), and the likelihood is climbed as it is:
        where a noise ends near 0, EM goes ever slower. Without a prior it may have no maximum but
        there, and what is gained on the way is judged; with one it is climbed to the end."""
        if self.engine is None and complete:
            return (MAP(prior=bool(self.prior), steps=int(self.max_iter), tolerance=(
                MAP.tolerance if self.prior else float(self.tol) * STEP)),)
        return super()._ladder(False)

    def _tell_units(self, spread, noise) -> None:
        """Warn where columns are in units of their own, and the prior's one guess of their noise
        outweighs the rows. `noise`: what the rows tell by themselves."""
        psi = 1 / np.asarray(self.fit_.point["precision"])
        small = np.flatnonzero((spread > 0) & (spread < self.scale))
        if self.prior and len(small) and (psi > 2 * noise).all():
            j, unit = int(small[0]), float(self._unit[small[0]])
            warnings.warn(
                f"{type(self).__name__}(scale={self.scale}): the columns have different units, and "
                "the prior of the noise dominates the data. The standard deviation of the noise "
                f"was estimated as {np.sqrt(psi.max()) * unit:.2g}, but by maximum likelihood it "
                f"is {np.sqrt(np.max(noise)) * unit:.2g}. (That of {self._column(j)} of X is "
                f"{spread[j] * unit:.2g}.) Standardise the columns, lower scale=, or use "
                "FactorAnalysis, which does not depend on units",
                RuntimeWarning, stacklevel=3)

    def _check_rank(self, X, root) -> None:
        k, d = self.n_components, X.shape[1]
        values = spectrum(root, d)[0]
        tol = 64 * np.finfo(float).eps * d
        if len(X) == 1 or not np.isnan(X).any() and values[min(k, d - 1)] <= tol * values[0]:
            raise DataError(
                f"{type(self).__name__}(n_components={k}, prior=False): the rows "
                f"(n_samples={len(X)}) vary in only {int((values > tol * values[0]).sum())} of "
                f"{counted(d, 'dimension')}. This many components reproduce them without noise, "
                "so the likelihood has no maximum. Use fewer components, or set prior=True"
            )

    def _data(self, X):
        return {"x": (X - self._centre) / self._unit}

    # What was learnt, in the units of X

    def _parameter_units(self, fit: Fit) -> dict[str, Unit]:
        names = {0: self._column_names} if self._column_names else {}
        per_column = np.ndim(fit.point["precision"])
        return {"loadings": Unit(self._unit[:, None], names=names),
                "mean": Unit(self._unit, self._centre, names=names),
                "precision": Unit(1 / self._unit**2 if per_column else 1 / self._unit[0] ** 2,
                                  names=names if per_column else {}),
                **of_rows(x=(self._centre, self._unit))}

    def _name(self) -> None:
        """W without its freedom of rotation: columns orthogonal in units of the noise, the
        strongest first, its largest entry above 0."""
        params = self.fit_.params
        W = np.asarray(params["loadings"], float) * self._unit[:, None]
        psi = np.broadcast_to(self._unit**2 / np.asarray(params["precision"], float), len(W))
        # no column is without any: a Heywood case
        self._psi = np.maximum(psi, np.finfo(float).eps * ((W**2).sum(1) + psi))
        rotation = np.linalg.svd(W / np.sqrt(self._psi)[:, None], full_matrices=False)[2].T
        W = W @ rotation
        sign = np.where(W[np.abs(W).argmax(0), np.arange(W.shape[1])] < 0, -1.0, 1.0)
        self._turn, self._W = rotation * sign, W * sign  # from the model's z to the columns'
        self.rotation_ = self.factor_correlation_ = np.eye(W.shape[1])
        if self.rotation is not None and W.shape[1] > 1:
            self.rotation_, self.factor_correlation_ = self._rotated(self._W, self._psi)
        self.mean_ = np.asarray(params["mean"], float) * self._unit + self._centre

    rotation: ClassVar[str | None] = None

    def _rotated(self, loadings: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rotation of loadings in standard deviations of the columns, and the correlations of
        the rotated factors."""
        sd = np.sqrt((loadings**2).sum(1) + noise)
        return rotate(loadings / sd[:, None], self.rotation or ROTATIONS[0])

    @property
    def loadings_(self):
        """W, (d, k): x = mean_ + W z + noise; without a rotation orthogonal columns in units of the
        noise, the strongest first."""
        check_is_fitted(self, "fit_")
        return self._W @ self.rotation_

    def _tables(self, estimates: Estimates) -> list[Table]:
        rotated = self.rotation is not None and len(self.rotation_) > 1
        tables = factor_tables(estimates, (lambda loadings, noise: loadings @ self._rotated(
            loadings, noise)[0]) if rotated else None)
        if rotated and self.rotation == "oblimin":
            names = pd.Index([f"factor {i + 1}" for i in range(len(self.rotation_))])
            tables.insert(1, estimates.across("Correlations of the factors", names, names, Quantity(
                {"Estimate": self.factor_correlation_})))
        return tables

    def get_covariance(self):
        """W Wᵀ + noise, (d, d)."""
        check_is_fitted(self, "fit_")
        return self._W @ self._W.T + np.diag(self._psi)

    @property
    def n_parameters_(self) -> int:  # type: ignore[override]
        """Free parameters: loadings less their rotations, noise, mean."""
        check_is_fitted(self, "fit_")
        d, k = self._W.shape
        return d * k - k * (k - 1) // 2 + np.size(self.fit_.params["precision"]) + d

    # Answers

    def transform(self, X):
        """E[z | observed cells], (n, k), exact where cells are missing; 0 in empty rows.

        Cost: O(n d k); rows with missing cells O(d k² + k³) each.
        """
        z = self.fit_.impute(self._asked(X))["z"] @ self._turn
        return z @ np.linalg.inv(self.rotation_).T

    def inverse_transform(self, Z):
        """E[x | z] = mean_ + W z, (n, d)."""
        check_is_fitted(self, "fit_")
        return places_of("Z", Z, self._W.shape[1]) @ self.loadings_.T + self.mean_

    def score_samples(self, X):
        """log p(observed cells of the row), (n,), in units of X; 0 where nothing is observed."""
        data = self._asked(X)
        return self.fit_.log_prob(data) - ~np.isnan(data["x"]) @ np.log(self._unit)

    def score(self, X, y=None):
        """The mean of score_samples."""
        return float(self.score_samples(X).mean())

    def impute(self, X):
        """X with its missing cells at their mean given the row's observed cells."""
        check_is_fitted(self, "fit_")
        X = self._validated(X, reset=False).astype(float)
        filled = self.fit_.impute(self._data(X))["x"] * self._unit + self._centre
        return np.where(np.isnan(X), filled, X)

    def sample(self, n_samples=1, random_state=None):
        """New rows, (n_samples, d)."""
        check_is_fitted(self, "fit_")
        check_count("sample", "n_samples", n_samples)
        simulated = self.fit_.simulate(int(n_samples), seed=self._seed(random_state, "sample"))
        return simulated["x"] * self._unit + self._centre

    predict_proba = absent("predict_proba", "use transform(X) for the coordinates of the rows")


def _means(X, weights) -> np.ndarray:
    """Column means of the seen cells: twice, since the first loses digits at an offset."""
    observed = ~np.isnan(X)
    w = observed * (1.0 if weights is None else weights[:, None])
    centre = np.where(observed, X, 0.0)[observed.argmax(0), np.arange(X.shape[1])]
    return centre + (w * np.where(observed, X - centre, 0.0)).sum(0) / w.sum(0)


class ProbabilisticPCA(_Linear):
    """Probabilistic principal components (Tipping & Bishop 1999); missing cells are NaN. The model
    is probml.models.probabilistic_pca.

    With prior=False and complete rows it is PCA: the axes and variances are those of the
    covariance's eigenvectors, divided by n. As there, all columns have one noise and are in units
    that can be compared: standardise others, or take FactorAnalysis, to which no unit matters. One
    unit for all columns, and offsets, matter to neither.

    Args:
        n_components: k, at most d; or several to choose among by the BIC, whose figures `table_`
            has. With k = d the noise is not determined by the likelihood.
        prior: posterior mode (True) or maximum likelihood (False).
        loading_scale: prior standard deviation of a loading, in root mean squared standard
            deviations of the columns.
        scale: prior guess of the noise, worth a row or two, in the same units.
        tol: of rows with missing cells, by EM: stop when an iteration gains less than this a row
            ; of complete ones without prior: when a step gains less than a hundredth of this,
            relative to the objective.
        max_iter: iterations at the most; one that stops there warns and leaves converged_ False.
        random_state: seed of sample(); None is 0.
        engine: an engine's value instead of these: MAP of complete rows, else EM.

    Attributes:
        components_ (k, d): orthonormal axes; explained_variance_ (k,): the variances along them,
        noise included; noise_variance_ (): σ²; mean_ (d,); loadings_ (d, k); lower_bound_,
        lower_bounds_, converged_, n_iter_, n_parameters_; fit_: the probml Fit, of columns less
        their means and in units of their standard deviation.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> penguins = pd.read_csv(files("probml.data") / "penguins.csv")
        >>> X = penguins[["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]]
        >>> from probml.models import ProbabilisticPCA
        >>> pca = ProbabilisticPCA(n_components=2).fit((X - X.mean()) / X.std())
        >>> print(pca.explained_variance_.round(1))
        [2.7 0.8]
        >>> pca.transform((X - X.mean()) / X.std()).shape
        (344, 2)
    """

    _function = staticmethod(probabilistic_pca)

    def _units(self, variance):
        sd = np.sqrt(variance.mean())
        return np.full(len(variance), sd if sd > 0 else 1.0)

    def _begin(self, root, k: int):
        W, noise = principal(root, k)
        return W, np.asarray(max(noise, 1e-12))

    @property
    def components_(self):
        """The axes, orthonormal, (k, d)."""
        check_is_fitted(self, "fit_")
        norms = np.sqrt((self._W**2).sum(0))
        return (self._W / np.where(norms > 0, norms, 1.0)).T

    @property
    def noise_variance_(self):
        """σ²."""
        check_is_fitted(self, "fit_")
        return float(self._psi[0])

    @property
    def explained_variance_(self):
        """The variance along every axis, signal and noise, (k,)."""
        check_is_fitted(self, "fit_")
        return (self._W**2).sum(0) + self._psi[0]

    @property
    def explained_variance_ratio_(self):
        """The explained variances as shares of the variance of all columns, (k,)."""
        return self.explained_variance_ / ((self._W**2).sum() + self._psi.sum())


@dataclass(eq=False, repr=False)
class FactorAnalysis(_Linear):
    """Factor analysis (Rubin & Thayer 1982); missing cells are NaN. The model is
    probml.models.factor_analysis.

    Args:
        n_components: factors, k, at most d; or several to choose among by the BIC, whose
            figures `table_` has.
        rotation: of the loadings towards simple structure: "varimax", of uncorrelated factors,
            "oblimin", of correlated ones, whose correlations are `factor_correlation_`; None: the
            axes along which the factors explain most.
        loading_scale: prior standard deviation of a loading, in standard deviations of its column.
        scale: prior guess of the noise, worth a row or two, in standard deviations of a column.
        prior, tol, max_iter, random_state, engine: as in ProbabilisticPCA.

    Attributes:
        components_ (k, d): the loadings, Wᵀ; noise_variance_ (d,): ψ; explained_variance_ (k,): Σ
        over columns of squared loadings; rotation_ (k, k), factor_correlation_ (k, k);
        communalities_ (d,); loglik_, aic_, bic_; mean_ (d,); and those of ProbabilisticPCA.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> penguins = pd.read_csv(files("probml.data") / "penguins.csv")
        >>> X = penguins[["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]]
        >>> from probml.models import FactorAnalysis
        >>> factors = FactorAnalysis(n_components=1).fit((X - X.mean()) / X.std())
        >>> print(abs(factors.components_).round(1))              # a factor's sign is arbitrary
        [[0.7 0.6 1.  0.9]]
        >>> print(factors.noise_variance_.round(1))
        [0.6 0.7 0.  0.2]
    """

    _size_noun: ClassVar[str] = "factors"
    _: KW_ONLY
    rotation: str | None = parameter(None, optional(one_of(*ROTATIONS)))  # type: ignore[misc]
    _function = staticmethod(factor_analysis)

    def _units(self, variance):
        sd = np.sqrt(variance)
        return np.where(sd > 0, sd, 1.0)

    def _begin(self, root, k: int):
        return factors(root, k)

    def _check_rank(self, X, root):
        if (constant := flat(X)).any():
            raise DataError(
                f"{self._column(int(np.argmax(constant)))} is constant (n_samples={len(X)}), so "
                "its noise is 0 and the likelihood has no maximum. Drop the column, or set "
                "prior=True"
            )
        super()._check_rank(X, root)

    @property
    def components_(self):
        """The loadings, (k, d)."""
        return self.loadings_.T

    @property
    def communalities_(self):
        """The share of each column's variance that the factors explain, (d,); 1 less it is the
        uniqueness."""
        check_is_fitted(self, "fit_")
        common = (self._W**2).sum(1)
        return common / (common + self._psi)

    @property
    def noise_variance_(self):
        """ψ, (d,)."""
        check_is_fitted(self, "fit_")
        return self._psi

    @property
    def explained_variance_(self):
        """Squared loadings, summed over columns, (k,)."""
        return (self.loadings_**2).sum(0)
