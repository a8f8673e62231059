"""The scikit-learn estimator of Gaussian processes."""

import warnings
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from probml import MAP, DataError, Fit
from probml.engines.engine import Engine
from probml.errors import counted, present
from probml.estimators.estimator import best_of
from probml.estimators.rules import (
    ENGINE,
    FLAG,
    SEED,
    Seed,
    check_count,
    integer,
    number,
    one_of,
    optional,
    parameter,
)
from probml.estimators.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)
from probml.models.frames.standardized import Numeric
from probml.models.kernels.average_information import AverageInformation, Places
from probml.models.kernels.gaussian_process import (
    KERNELS,
    gaussian_process,
    kernel_of,
    nugget,
)
from probml.models.kernels.inducing_points import (
    MAX_POINTS,
    Bound,
    InducingPoints,
    inducing_points,
)
from probml.posteriors.units import Unit, of_rows

STARTS = (1.0, 0.2, 5.0, 0.04)  # lengths that are begun with, in standard deviations of a column
# rows on which starts compete if there are over twice as many: a step costs their cube
START_ROWS = 500
GROWTH = 4  # of the rows of one optimum, from which that of more begins: a 64th of their cost
MAX_EXACT = 5_000  # rows; of more the process is approximated, by default
MAX_COLUMNS = 1_000  # over which distances are computed in every step
MAX_ROWS = 20_000  # of an exact fit: a matrix of all pairs has 3.2 GB
MAX_APPROXIMATED = 200_000  # rows; of 1,000 points a step takes half a minute
BLOCK = 2**24  # covariances that are computed at once


@dataclass(eq=False, repr=False)
class GaussianProcess(Numeric):
    """Regression by a Gaussian process; scikit-learn's GaussianProcessRegressor.

        y = mean + f(x) + noise,   f ~ GP(0, variance · k)

    The function is probml.models.gaussian_process; variance, lengths and noise are at the maximum
    of the marginal likelihood, optimised from several initial lengths. Predictions are exact given
    these.

    Args:
        kernel: "rbf", "exponential", "matern32", "matern52", "rational" or "periodic".
        separate: a length for each column; False: one for all, columns in their own units.
        period: about which the period is looked for, in units of x; None: a tenth of its range.
        n_starts: number of initial values of the lengths, at most 4; of more than 1,000 rows
            they compete on 500, drawn at random, and the best goes on with 2,000, with inducing
            points where these suffice, and then with all.
        random_state: seed of a sampler; None is 0.
        engine: an engine's value; by default MAP(prior=False), of more than 1,000 rows the same
            optimum by few evaluations in LAPACK (average_information.py), and of more than 5,000
            rows that of a variational bound by at most 1,000 inducing points
            (inducing_points.py), with a warning.

    Attributes:
        variance_, length_ (d,) or (), noise_ (a standard deviation), parameters_: these and a
        kernel's own; mean_: of y; log_marginal_likelihood_; n_iter_, converged_, fit_: the probml
        Fit.

    Cost: O(n³) a step of the optimisation, O(n²) memory and an asked row; of more than 5,000 rows
        O(n m²), O(n m) and O(m²), with m inducing points.

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> mcycle = pd.read_csv(files("probml.data") / "mcycle.csv")[::4]
        >>> from probml.models import GaussianProcess
        >>> process = GaussianProcess("rbf").fit(mcycle[["times"]], mcycle["accel"])
        >>> mean, sd = process.predict(mcycle[["times"]][8:9], return_std=True)
        >>> print(mean.round(-1), sd.round(-1))
        [-40.] [20.]
    """

    _kind: ClassVar[str] = "smooth"

    kernel: str = parameter("rbf", one_of(*KERNELS))
    _: KW_ONLY
    separate: bool = parameter(True, FLAG)
    period: float | None = parameter(None, optional(number(0.0, above=True)))
    n_starts: int = parameter(3, integer(1, 10_000))
    random_state: Seed = parameter(None, SEED)
    engine: Engine | None = parameter(None, ENGINE)

    fit_intercept = True

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and y (n,).

        Raises:
            ModelError, DataError, ValueError: a parameter or a cell that cannot be used, by name;
                weights other than 1, which one density of all rows has not; fewer than 2 rows, or
                more than 200,000 (with an engine 20,000); more than 1,000 columns.
        """
        if sample_weight is not None and np.any(np.asarray(sample_weight) != 1):
            raise DataError("sample_weight is not supported by a Gaussian process, in which all "
                            "rows depend on one another. Repeat rows, or omit sample_weight")
        X, y, _, _ = self._read(X, y, None)
        exact = self.engine is not None or len(y) <= MAX_EXACT
        _refuse_sizes(len(y), X.shape[1], exact)
        sd = X.std(0)
        self._unit_x = np.where(sd > 0, sd, 1.0)
        if not self.separate:
            self._unit_x = np.full(X.shape[1], self._unit_x.mean())
        if self.kernel == "periodic":  # a period is one number in the units of x
            self._unit_x = np.full(X.shape[1], 1.0)
        self._middle, self.mean_, self._spread = X.mean(0), float(y.mean()), float(y.std()) or 1.0
        mean_sd = float(np.mean(sd / self._unit_x)) or 1.0
        period = self.period or 0.1 * float(np.ptp(X, 0).max())
        model = gaussian_process(kernel=self.kernel, separate=self.separate, unit=1.0, scale=1.0,
                                 period=1.0, mean=0.0)
        data = {"x": (X - self._middle) / self._unit_x, "y": (y - self.mean_) / self._spread}
        starts = []
        for share in STARTS[: self.n_starts]:
            length = np.full(X.shape[1], share * mean_sd)
            start = {"length": length if self.separate else length[0], "noise": np.asarray(0.3),
                     "variance": np.asarray(1.0)}
            if self.kernel == "periodic":
                start |= {"period": np.asarray(period), "length": 10 * start["length"]}
            starts.append(start)
        is_large = len(y) > 2 * START_ROWS
        engine = self.engine or (AverageInformation if is_large else MAP)(prior=False)
        order, rows = np.random.default_rng(self._seed()).permutation(len(y)), START_ROWS
        while 2 * rows < len(y) and (exact or rows < MAX_EXACT):
            subset = {name: value[order[:rows]] for name, value in data.items()}
            starts = self._optimum(model, subset, starts, engine)
            rows *= GROWTH
        self._points: np.ndarray | None = None
        if not exact or self.engine is None and len(y) > GROWTH * START_ROWS:
            points = self._inducing_points(
                data["x"][order[: GROWTH * START_ROWS if exact else MAX_EXACT]], starts[0])
            bound = gaussian_process(**model.bound | {"points": points})
            if not exact:
                model, engine, self._points = bound, InducingPoints(prior=False), points
            elif len(points) < MAX_POINTS:
                starts = self._optimum(bound, data, starts, InducingPoints(prior=False))
        self._found(self._highest(model, data, starts, engine))
        self._learn(data)
        return self

    def _inducing_points(self, x: np.ndarray, params) -> np.ndarray:
        """The rows x that determine f best at all of them, (m, d)."""
        with jax.enable_x64(True):
            covariance = np.array(kernel_of(self.kernel, params)(jnp.asarray(x), jnp.asarray(x)))
        return x[inducing_points(covariance, params["noise"] ** 2, params["variance"])]

    def _optimum(self, model, data, starts, engine) -> list[dict]:
        """A start: the highest optimum, about which no warning is issued, as it is no answer."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [dict(self._highest(model, data, starts, engine).point)]

    def _highest(self, model, data, starts, engine) -> Fit:
        """The fit of the highest likelihood of those that begin at these points."""
        # of rows near one another the covariance is singular but for the noise, whose share of it
        # may be less than float32 has digits for
        with jax.enable_x64(True):
            return best_of(partial(model.fit, data, engine, seed=self._seed(), start=start)
                           for start in starts)

    def _parameter_units(self, fit: Fit) -> dict[str, Unit]:
        scale, separate = self._spread, self.separate
        names = {0: self._column_names} if separate and self._column_names else {}
        units = {"variance": Unit(scale**2), "noise": Unit(scale),
                 "length": Unit(self._unit_x if separate else self._unit_x[0], names=names)}
        return {name: unit for name, unit in units.items() if name in fit.point} | of_rows(
            x=(self._middle, self._unit_x), y=(self.mean_, scale))

    def _learn(self, data) -> None:
        p, scale = self.fit_.params, self._spread
        self.variance_, self.noise_ = float(p["variance"]) * scale**2, float(p["noise"]) * scale
        length = np.asarray(p["length"], float)
        self.length_ = length * (self._unit_x if self.separate else self._unit_x[0])
        self.parameters_: dict[str, float | np.ndarray] = {
            "variance": self.variance_, "length": self.length_, "noise": self.noise_,
            **{name: float(p[name]) for name in ("alpha", "period", "waviness") if name in p}}
        self._x = data["x"] * self._unit_x + self._middle
        if self._points is not None:
            return self._learn_by_points(data, p, self._points)
        covariance = self._covariance(self._x, self._x)
        covariance[np.diag_indices_from(covariance)] += nugget(self.parameters_)
        # in its place: the transpose of a symmetric matrix is LAPACK's order of it
        self._factor = cho_factor(covariance.T, lower=True, overwrite_a=True)[0]
        targets = data["y"] * scale
        self._weights = cho_solve((self._factor, True), targets)
        self.log_marginal_likelihood_ = float(-0.5 * targets @ self._weights - np.log(
            np.diag(self._factor)).sum() - 0.5 * len(targets) * np.log(2 * np.pi))
        return None

    def _learn_by_points(self, data, params, points: np.ndarray) -> None:
        """What predictions need of the values at inducing points in place of the rows."""
        places, scale = Places.of(self.kernel, params), self._spread
        with jax.enable_x64(True):
            solved = present(Bound(places, data["x"], data["y"], points).solved(
                places.point(params)))
        self._x = points * self._unit_x + self._middle
        self._factor, self._inner = scale * solved.factor, solved.inner
        self._weights = solved.inverse.T @ solved.weights / scale
        self.log_marginal_likelihood_ = float(present(self.fit_.history)[-1]) - (
            len(data["y"]) * np.log(scale))

    def _covariance(self, x: np.ndarray, z: np.ndarray) -> np.ndarray:
        """The covariance of f at rows x and z, (n, m), by blocks of rows."""
        result, size = np.empty((len(x), len(z))), max(BLOCK // max(len(z), 1), 1)
        with jax.enable_x64(True):
            kernel, columns = kernel_of(self.kernel, self.parameters_), jnp.asarray(z)
            for low in range(0, len(x), size):
                result[low : low + size] = kernel(jnp.asarray(x[low : low + size]), columns)
        return result

    def _halves(self, cross: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(H, G) with covariance Hᵀ H − Gᵀ G that rows take from f at some rows, of their
        covariances with the fitted rows or points, (n, m)."""
        half = solve_triangular(self._factor, cross.T, lower=True)
        return half, (half[:0] if self._points is None else
                      solve_triangular(self._inner, half, lower=True))

    def predict(self, X, return_std: bool = False):
        """E[f(x) | y], (n,), and with return_std the standard deviations of f(x) + noise, (n,)."""
        check_is_fitted(self, "fit_")
        x = self._require_complete(X, reset=False)
        mean, variance = np.empty(len(x)), np.full(len(x), self.variance_)
        size = max(BLOCK // len(self._x), 1)  # rows whose covariances are in memory at once
        for rows in (slice(low, low + size) for low in range(0, len(x), size)):
            cross = self._covariance(x[rows], self._x)
            mean[rows] = self.mean_ + cross @ self._weights
            if return_std:
                half, correction = self._halves(cross)
                variance[rows] += (correction**2).sum(0) - (half**2).sum(0)
        if not return_std:
            return mean
        return mean, np.sqrt(np.maximum(variance, 0.0) + self.noise_**2)

    def sample_y(self, X, n_samples=1, random_state=0):
        """Draws of y at rows X together, given the rows that were fitted, (n, n_samples).

        Cost: O(n³) in addition to predict.
        """
        check_is_fitted(self, "fit_")
        check_count("sample_y", "n_samples", n_samples)
        x = self._require_complete(X, reset=False)
        cross = self._covariance(x, self._x)
        half, correction = self._halves(cross)
        covariance = self._covariance(x, x) - half.T @ half + correction.T @ correction
        covariance[np.diag_indices_from(covariance)] += self.noise_**2
        random = np.random.default_rng(self._seed(random_state, "sample_y"))
        return random.multivariate_normal(self.mean_ + cross @ self._weights, covariance,
                                          int(n_samples), method="eigh").T

    def as_data(self, X, y=None) -> dict[str, np.ndarray]:
        """Rows as the data of `fit_`: columns and y centred, in units of their standard
        deviations."""
        check_is_fitted(self, "fit_")
        data = {"x": (self._require_complete(X, reset=False) - self._middle) / self._unit_x}
        return data if y is None else {
            **data, "y": (np.asarray(y, float) - self.mean_) / self._spread}

    def log_prob(self, X, y):
        """log p(y | x, the rows that were fitted) of every row by itself, (n,); 0 where y is
        missing."""
        from scipy.stats import norm

        y = column_or_1d(y, dtype=float)
        check_consistent_length(X, y)
        mean, sd = self.predict(X, return_std=True)
        return np.where(np.isnan(y), 0.0, norm.logpdf(y, mean, sd))


def _refuse_sizes(n: int, d: int, exact: bool) -> None:
    """
    Raises:
        DataError: rows or columns are too few, or too many.
    """
    if n < 2:
        raise DataError(f"n_samples={n}: a Gaussian process needs at least 2 rows. Give more rows")
    if n > (n_max := MAX_ROWS if exact else MAX_APPROXIMATED):
        raise DataError(
            f"n_samples={n:,}: a Gaussian process "
            + (f"with engine= needs matrices of {n:,} × {n:,} numbers, {8e-9 * n**2:,.0f} GB each"
               if exact else "of so many rows takes too long, also by inducing points")
            + f". Fit at most {n_max:,} rows, such as a random sample"
            + (", or omit engine. Or" if exact else ". Or")
            + " use SmoothingSpline or Boosted, whose time is in proportion to the number of rows")
    if d > MAX_COLUMNS:
        raise DataError(
            f"X has {counted(d, 'column')}: every step computes {n:,} × {n:,} distances over all "
            f"of them. Fit at most {MAX_COLUMNS:,}, such as the scores of ProbabilisticPCA, or use "
            "Boosted")
