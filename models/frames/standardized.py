"""What estimators of regressions share: rows in units in which they can be climbed, numbers as
targets, coefficients in the user's units."""

import dataclasses
from typing import Any

import numpy as np

from probml import Fit
from probml.engines.engine import Engine
from probml.estimators.estimator import Estimator
from probml.estimators.validation import RegressorMixin, check_is_fitted
from probml.models.frames.complete import Complete, NoProbabilities, Numbered
from probml.posteriors.units import Unit, of_rows, plane

MAX_SAMPLED_ROWS = 2**14  # rows that tell the centre and the unit of a column
# standard deviations a mean, and units a standard deviation, may be off before columns are
# standardised
MAX_CENTRE_SDS, MAX_UNIT = 10.0, 1e3


class Standardized(Complete):
    """An estimator of planes x β + b: columns about a centre, in units of their own, where they
    need it."""

    fit_intercept: bool  # of the estimator
    _column_names: Any

    def _frame(self, X, weights, force: bool = False) -> np.ndarray:
        """Learn where columns are centred, and their units; X in these. Columns that are well are
        left alone, and not copied, but for a posterior: its draws are then the same in all units.

        For conditioning only, no estimates: large data are subsampled.
        """
        all_rows, step = X, max(len(X) // MAX_SAMPLED_ROWS, 1)
        X, weights = np.ascontiguousarray(X[::step]), weights[::step]
        d, total = X.shape[1], weights.sum()
        mean, mean_sq = weights @ X / total, np.einsum("i,ij,ij->j", weights / total, X, X)
        sd = np.sqrt(np.maximum(mean_sq - mean**2, 0.0))
        imprecise = mean_sq * 1e-12 > sd**2  # rounding: measure about the mean
        if imprecise.any():
            sd[imprecise] = np.sqrt(weights @ (X[:, imprecise] - mean[imprecise]) ** 2 / total)
        sd = np.where(sd > 1e-14 * np.abs(mean), sd, 0.0)
        unit = np.where(sd > 0, sd, np.where(np.abs(mean) > 0, np.abs(mean), 1.0))
        centre = mean if self.fit_intercept else np.zeros(d)
        force = force or finds_posterior(getattr(self, "engine", None))
        if (not force and (np.abs(centre) <= MAX_CENTRE_SDS * sd + 1).all()
            and (unit < MAX_UNIT).all() and (unit > 1 / MAX_UNIT).all()):
            centre, unit = np.zeros(d), np.ones(d)
        self._centre, self._unit = centre, unit
        return self._standardize(all_rows)

    def _is_unscaled(self) -> bool:
        """Whether the columns were neither centred nor scaled."""
        return not self._centre.any() and bool((self._unit == 1).all())

    def _standardize(self, X) -> np.ndarray:
        if self._is_unscaled():
            return X
        return (X - self._centre) / self._unit

    def _digits(self, X) -> float:
        """What rounding of its cells, of a unit of a column."""
        return float(np.finfo(float).eps * np.max(np.abs(X).max(0) / self._unit, initial=1.0))

    def _design(self, X) -> np.ndarray:
        """The columns of X as they are fitted, after the intercept if there is one."""
        x = self._standardize(X)
        return np.column_stack([np.ones(len(X)), x]) if self.fit_intercept else x

    def _rank(self, X, weights) -> int:
        """How many coefficients the rows X identify, of the intercept and the columns."""
        rank = 0
        sizes = (4 * X.shape[1] + 64, MAX_SAMPLED_ROWS, len(X))  # few rows, more, all
        for step in dict.fromkeys(max(len(X) // size, 1) for size in sizes):
            subset = X[::step]  # what some rows identify, all do
            rows = self._design(subset) * np.sqrt(weights[::step])[:, None]
            wide = rows.shape[0] < rows.shape[1]
            size = np.linalg.svd(np.linalg.qr(rows.T if wide else rows, mode="r"), compute_uv=False)
            rank = int(_is_significant(size, rows, self._digits(subset) * step).sum())
            if rank == rows.shape[1]:
                break
        return rank

    def _planes(self, beta: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights (planes, d) and biases (planes,) in the user's units, from (d, planes) and
        (planes,) of the frame."""
        coef = (beta / self._unit[:, None]).T
        return coef, bias - coef @ self._centre

    _level, _spread = 0.0, 1.0  # of the y of `fit_`: where its 0 lies, and its unit
    _base, _slope = 0.0, 0.0  # of x β + b there; a slope of 0: they are those of y

    def _parameter_units(self, fit: Fit) -> dict[str, Unit]:
        point = fit.point
        base, slope = ((self._base, self._slope) if self._slope
                       else (self._level, self._spread))
        units = plane("beta", "intercept", self._centre, self._unit, np.ndim(point["beta"]), base,
                      slope, self._column_names)
        # the scales that go with slopes and noise, where they were not given
        units |= {"weight_scale": Unit(slope / self._unit), "variance": Unit(self._spread**2),
                  "sigma": Unit(self._spread)}
        return {name: unit for name, unit in units.items() if name in point} | of_rows(
            x=(self._centre, self._unit), y=(self._level, self._spread))

    def _found(self, fit: Fit) -> None:
        self.fit_ = dataclasses.replace(fit, units=self._parameter_units(fit))
        self.n_iter_, self.converged_, self.history_ = (max(fit.iterations, 1), fit.converged,
                                                        np.asarray(fit.history))

    def as_data(self, X, y=None) -> dict[str, np.ndarray]:
        """Rows as the data of `fit_`: the columns, and numbers y, centred and scaled where they
        were for the fit."""
        check_is_fitted(self)
        data = {"x": self._standardize(self._require_complete(X, reset=False))}
        return data if y is None else {**data, "y": self._about(y)}

    def _about(self, y) -> np.ndarray:
        """y in the coordinates of `fit_`."""
        shifted = self._level != 0 or self._spread != 1
        return (np.asarray(y, float) - self._level) / self._spread if shifted else np.asarray(y)


class Numeric(Standardized, Numbered, NoProbabilities, RegressorMixin, Estimator):
    """An estimator of y, a number."""

    def log_prob(self, X, y):
        """log p(y | x) of every row, (n,), in units of y; where the engine has a posterior,
        averaged over it."""
        return self.fit_.log_prob(self.as_data(X, y)) - np.log(self._spread)


def finds_posterior(engine: object) -> bool:
    """Whether an estimator's setting `engine` is an engine that finds a posterior."""
    return isinstance(engine, Engine) and engine.capabilities.finds == "posterior"


def without_prior(engine, penalty: float):
    """An engine that, without a penalty, maximises the likelihood alone: then no coefficient has a
    prior, and one of a noise or a concentration is there for posteriors."""
    drops_prior = engine.capabilities.finds == "point" and not penalty and hasattr(engine, "prior")
    return dataclasses.replace(engine, prior=False) if drops_prior else engine


def row_weights(weights: np.ndarray) -> np.ndarray | None:
    """Row weights for a fit; None where all are 1."""
    return None if (weights == 1).all() else weights


def directions(rows: np.ndarray, rounding: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(which of k = min(n, p) orthogonal directions of coefficients the rows (n, p) tell, (k,), how
    much, (k,), the directions (k, p)), by singular values: the information would square the
    condition."""
    _, singular, axes = np.linalg.svd(np.linalg.qr(rows, mode="r") if rows.shape[0] > rows.shape[1]
                                      else rows, full_matrices=False)
    return _is_significant(singular, rows, rounding), singular, axes


def _is_significant(singular: np.ndarray, rows: np.ndarray, rounding: float) -> np.ndarray:
    """Which of the singular values of rows are not rounding."""
    return singular > singular[:1] * rounding * max(rows.shape)
