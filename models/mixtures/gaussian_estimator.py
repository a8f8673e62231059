"""Gaussian mixtures by the manners of scikit-learn."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike

from probml import VB, DataError, ModelError
from probml.engines.engine import Engine
from probml.errors import described
from probml.estimators.estimator import flat
from probml.estimators.mixture import Mixture
from probml.estimators.rules import (
    ANY,
    ENGINE,
    FLAG,
    SEED,
    STARTS,
    Seed,
    integer,
    number,
    numbers,
    one_of,
    optional,
    parameter,
    sizes,
)
from probml.models.frames.covariances import COVARIANCES, canonical
from probml.models.frames.ties import warn_of_ties_in_array
from probml.models.frames.units import InUnits
from probml.models.mixtures.gaussian_mixture import gaussian_mixture
from probml.models.mixtures.starts import precision_near
from probml.models.mixtures.weights import WEIGHTS

COVARIANCE = (
    "one of 'full', 'tied', 'diag', 'spherical', 'tied diag', 'tied spherical'",
    lambda value: isinstance(value, str) and canonical(value) in COVARIANCES,
)


@dataclass(eq=False, repr=False)
class GaussianMixture(InUnits, Mixture):
    """A mixture of normals; missing cells are NaN. The model is probml.models.gaussian_mixture.

    The names are scikit-learn's. What differs: the default is the mode under a weak, constant prior
    that no component can collapse under (prior=False is the likelihood); `tol` is the gain per row
    at which EM stops; there is no `reg_covar`.

    Args:
        n_components: components, k; or several, range(1, 10), to choose among by `criterion`.
        covariance_type: "full", "diag" or "spherical" for each; "tied", "tied diag" or "tied
            spherical" for one shared.
        tol: stop when an iteration gains less than this a row.
        max_iter: EM iterations at the most; one that stops there warns and leaves converged_ False.
        n_init: starts, run as one program; the best is used. None: as many as about a second buys,
            see EM.
        weights_init, means_init, precisions_init: start, (k,), (k, d), and the shape of
            precisions_. With means_init, weights that are not given are equal, and precisions one
            diagonal for all, 1 / the mean squared distance to the nearest mean, so that no unit of
            measurement matters; without means_init the engine finds what is not given.
        random_state: seed of the starts and of sample(); None is 0, a fit repeats.
        criterion: of several n_components the lowest "bic" (Schwarz 1978), "icl" (Biernacki, Celeux
            & Govaert 2000: BIC and twice the doubt of the assignments) or "aic" is used, or, with
            engine=VB(), the highest "bound" of the log evidence; all fits are starts of one
            program.
        prior: posterior mode (True) or maximum likelihood (False).
        accelerate: extrapolate EM (SQUAREM), fewer passes to the same point.
        hard: classification EM; with "tied spherical" and a large concentration it is k-means.
        concentration: pseudo-rows of every component's weight; components that no row wants fall
            to that. EM leaves those that have won some rows: weights="sparse" empties them.
        centre, mean_scale, scale: the prior of means and covariances in units of X, see
            gaussian_mixture; centre and scale are by default (None) each column's mean and its
            standard deviation within k-means clusters, as many as components (the most, of several
            n_components): no unit of measurement matters.
        weights: "even"; "sparse" or "sticks", priors under which components that the rows do not
            ask for empty themselves (see gaussian_mixture): n_components is then the most there can
            be, 20 for instance, and the engine is VB.
        engine: an engine's value instead of the EM, or VB, that these arguments describe.

    Attributes:
        weights_ (k,), means_ (k, d); covariances_ and precisions_: (k, d, d) full, (d, d) tied, (k,
        d) diag, (k,) spherical, (d,) tied diag, () tied spherical; converged_, n_iter_,
        lower_bound_ (the objective a row), lower_bounds_, n_parameters_;
        fit_: the probml Fit; of several n_components: n_components_, the chosen one, fits_
        (components → Fit) and table_, a DataFrame with n_components, loglik, parameters, aic, bic,
        icl, converged; with VB, bound, to which log k! is added, of k components that may change
        places (Bishop 2006, section 10.2.4).

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> faithful = pd.read_csv(files("probml.data") / "faithful.csv")
        >>> from probml.models import GaussianMixture
        >>> mixture = GaussianMixture(n_components=2, random_state=0).fit(faithful)
        >>> print(mixture.weights_.round(2))
        [0.36 0.64]
        >>> print(mixture.means_.round(1))
        [[ 2.  54.5]
         [ 4.3 80. ]]
        >>> print(mixture.predict_proba(faithful[:2]).round(2))
        [[0. 1.]
         [1. 0.]]
    """

    n_components: int | Sequence[int] = parameter(1, sizes(1))
    _: KW_ONLY
    covariance_type: str = parameter("full", COVARIANCE)
    tol: float = parameter(1e-7, number(0.0))
    max_iter: int = parameter(1000, integer(1))
    n_init: int | None = parameter(None, optional(STARTS))
    weights_init: ArrayLike | None = parameter(None, ANY)
    means_init: ArrayLike | None = parameter(None, ANY)
    precisions_init: ArrayLike | None = parameter(None, ANY)
    random_state: Seed = parameter(None, SEED)
    criterion: str = parameter("bic", one_of("bic", "icl", "aic", "bound"))
    prior: bool = parameter(True, FLAG)
    accelerate: bool = parameter(True, FLAG)
    hard: bool = parameter(False, FLAG)
    concentration: ArrayLike = parameter(1.0, numbers(0.0))
    centre: ArrayLike | None = parameter(None, optional(numbers(-np.inf)))
    mean_scale: float = parameter(1000.0, number(0.0, above=True))
    scale: ArrayLike | None = parameter(None, optional(numbers(0.0)))
    weights: str = parameter("even", one_of(*WEIGHTS))
    engine: Engine | None = parameter(None, ENGINE)

    @property
    def _components(self) -> int:  # type: ignore[override]
        """Clusters in which the prior's scale is measured: of components of which most are to be
        empty none are known, and the scale is that of all rows; nor are any looked for where
        nothing asks for a prior."""
        inits = (self.weights_init, self.means_init, self.precisions_init)
        all_given = not self.prior and all(value is not None for value in inits)
        return int(np.max(self.n_components)) if self.weights == "even" and not all_given else 1

    def _model(self, k):
        return gaussian_mixture(
            k=k,
            d=self.n_features_in_,
            covariance=canonical(self.covariance_type),
            concentration=self.concentration,
            mean_scale=self.mean_scale,
            weights=self.weights,
            **self._prior(),
        )

    def _ladder(self, complete):
        if self.engine is not None or self.weights == "even":
            return super()._ladder(complete)
        return (VB(max_iterations=self.max_iter, tolerance=self.tol, restarts=self.n_init),)

    def _labellings(self, k):
        return 0.0 if self.weights == "sticks" else super()._labellings(k)  # sticks have an order

    def _start(self, X, labels):
        inits = {"weights": self.weights_init, "mean": self.means_init,
                 "precision": self.precisions_init}
        if all(value is None for value in inits.values()):
            return {}
        k, d = self.n_components, self.n_features_in_
        if not isinstance(k, Integral):
            raise ModelError("weights_init, means_init and precisions_init need one number of "
                             f"components, but n_components={k!r} gives several. Give one, such as "
                             "n_components=3")
        tied = canonical(self.covariance_type).startswith("tied")
        shape = (() if tied else (int(k),)) + _matrix(self.covariance_type, d)
        names = {"weights": ("weights_init", (k,)), "mean": ("means_init", (k, d)),
                 "precision": ("precisions_init", shape)}
        start = {}
        for site, value in inits.items():
            name, expected = names[site]
            if value is None:
                continue
            try:
                start[site] = np.asarray(value, float)
            except (TypeError, ValueError):
                raise ModelError(
                    f"{name}: expected an array of numbers of shape {expected}, got "
                    f"{described(value)}"
                ) from None
            if start[site].shape != expected:
                raise ModelError(f"{name} has shape {start[site].shape}, expected {expected}. Give "
                                 "it this shape")
        # without means the engine finds some that suit what is given
        if self.means_init is not None:
            start.setdefault("weights", np.full(k, 1 / k))
            if "precision" not in start:
                start["precision"] = np.broadcast_to(
                    precision_near(X, start["mean"], _matrix(self.covariance_type, d)), shape)
        return start

    def _check_likelihood_is_bounded(self, X, codes):
        if not self.covariance_type.endswith("spherical") and (constant := flat(X)).any():
            raise DataError(
                f"{self._column(int(np.argmax(constant)))} is constant, so a normal distribution "
                "fitted to it has variance 0 and the likelihood has no maximum. Drop the column, "
                "or set prior=True"
            )

    def _row_notes(self, X):
        warn_of_ties_in_array(X, self._column,
                              "Drop such a column, or use MixedMixture, which treats it as "
                              "categories")
        return []

    @property
    def means_(self):
        return self.fit_.params["mean"]

    @property
    def precisions_(self):
        return self.fit_.params["precision"]

    @property
    def precisions_cholesky_(self):
        """Upper triangles U with U Uᵀ the precision matrices; of variances, 1 / standard
        deviation."""
        if canonical(self.covariance_type) not in ("full", "tied"):
            return np.sqrt(self.precisions_)
        return np.swapaxes(np.linalg.inv(np.linalg.cholesky(self.covariances_)), -1, -2)

    @property
    def covariances_(self):
        precision = self.fit_.params["precision"]
        return (np.linalg.inv(precision) if canonical(self.covariance_type) in ("full", "tied")
                else 1 / precision)


def _matrix(covariance_type: str, d: int) -> tuple[int, ...]:
    """The shape of one precision."""
    name = canonical(covariance_type)
    return () if name.endswith("spherical") else (d,) if name.endswith("diagonal") else (d, d)
