"""scikit-learn faces of regression: scales chosen by evidence, an exact posterior, smooth curves.

Rows are read once, into their moments; from those the scales are chosen and predictions made, in
float64 whatever JAX's precision. `fit_` is the Fit, by Exact(), of the generative function at the
chosen scales on a few rows that have the same moments.
"""

from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any

import jax
import numpy as np

from probml import DataError, Exact, Fit, ModelError
from probml.estimators.face import Face
from probml.estimators.rules import (
    ANY,
    FLAG,
    Rule,
    check,
    number,
    one_of,
    optional,
    parameter,
    sizes,
)
from probml.models.frames.complete import Complete, Unsure
from probml.models.regression import evidence
from probml.models.regression.linear_regression import linear_regression
from probml.models.regression.smoothing import design, smooth_moments, smoothing

try:
    from sklearn.base import RegressorMixin
    from sklearn.utils import column_or_1d
    from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted
except ModuleNotFoundError as error:
    raise ImportError(f"the faces of probml.models stand on scikit-learn ({error}): pip install "
                      f"probml[sklearn]") from error

# prior standard deviation of what is flat where scales are chosen, in units of the noise
WIDE = 1e8
# in the Fit, that of a weight whose scale was chosen as 0, in units of the noise a standard
# deviation of its column
NIL = 1e-8


def _scale(value) -> bool:
    if isinstance(value, str):
        return value in ("shared", "each")
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool) and array.ndim <= 1 and array.size > 0 and bool(
        (np.isfinite(array) & (array > 0)).all()
    )


SCALE: Rule = ("'shared', 'each' or numbers above 0", _scale)
LAM: Rule = ("None or numbers above 0",
             lambda v: v is None or _scale(v) and not isinstance(v, str))


class _Regression(RegressorMixin, Complete, Unsure, Face):
    """What the faces of regression share: reading rows, and the Fit when it is first asked for."""

    _several = False
    _why = "predict(X, return_std=True) tells mean and standard deviation"

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self._several
        return tags

    def _read(self, X, y, sample_weight):
        """(X (n, d), y (n, m), weights or None) as floats, checked."""
        check(self, self._rules)
        self._required(y)
        X = self._whole(X, reset=True)
        y = y if hasattr(y, "iloc") else np.asarray(y)
        if y.ndim == 2 and self._several:
            y = check_array(y, dtype=np.float64, input_name="y")
        else:
            y = check_array(column_or_1d(y, warn=True), dtype=np.float64, ensure_2d=False,
                            input_name="y")
        check_consistent_length(X, y)
        weights, kept = self._weigh(X, sample_weight)
        self._flat_target = y.ndim == 1
        y = y[:, None] if y.ndim == 1 else y
        return (X, y, weights) if kept is None else (X[kept], y[kept], weights)

    def _asked(self, X) -> np.ndarray:
        check_is_fitted(self, "moments_")
        return self._whole(X, reset=False)

    def _floor(self, y, centred: bool = True) -> float:
        """The least noise variance that is looked at: the digits of y, and those of the arithmetic
        of `fit_` about its mean."""
        digits, spread = (1e-10 if jax.config.jax_enable_x64 else 1e-5,
                          np.sqrt(np.mean((y - y.mean() * centred) ** 2)))
        return float((max(digits * spread, np.finfo(float).eps * np.abs(y).max()) or digits) ** 2)

    @property
    def fit_(self) -> Fit:
        """The probml Fit: made when it is first asked for, of the model at the chosen scales, on
        rows centred as `as_data` gives them."""
        check_is_fitted(self, "moments_")
        if not hasattr(self, "_fit"):
            self._fit = self._exact()
        return self._fit

    def log_prob(self, X, y):
        """log p(y | x) of every row at the chosen scales, the weights integrated out, (n,),
        nats."""
        return self.fit_.log_prob(self.as_data(X, y))

    def _output(self, value: np.ndarray) -> np.ndarray:
        """(..., m) without the axis of outputs where y had none."""
        return value[..., 0] if self._flat_target else value


@dataclass(eq=False, repr=False)
class BayesianLinearRegression(_Regression):
    """Linear regression with an exact posterior, its prior and noise scales chosen by log evidence
    (empirical Bayes).

    y ~ N(X β + b, σ²), β_j ~ N(0, s_j²), b flat. The model is probml.models.linear_regression; the
    scheme is MacKay's (1992) for one scale, scikit-learn's BayesianRidge, and Tipping's (2001) for
    a scale for each weight, its ARDRegression. Both are found at their maximum without hyperpriors,
    and b is integrated out, so that the noise has n − 1 rows and not n.

    Args:
        weight_scale: "shared": one s for all weights, chosen, as if columns were in like units;
            "each": one for each, chosen, 0 where a column does not help: no unit matters to it; or
            known, numbers: prior standard deviations in units of y per unit of X, one or (d,). A
                very large one is least squares. Offsets matter to none.
        noise: σ in units of y; None: chosen.
        fit_intercept: with b; else X and y are taken as they are, about 0.

    Attributes:
        coef_ (d,) or (m, d) for y (n, m), intercept_; sigma_: the posterior covariance of the
        weights, (d, d) or (m, d, d);
        alpha_: 1/σ²; lambda_: 1/s², ∞ for a weight left out; log_evidence_: log p(y | X, scales),
        with b integrated over a density of 1; effective_: numbers of well-determined weights;
        moments_; fit_: the probml Fit. With several outputs each has its own.

    Cost: one pass over the rows, 2 n (d + m)² operations; then O(d³).
    """

    _several = True
    weight_scale: Any = parameter("shared", SCALE)
    _: KW_ONLY
    noise: float | None = parameter(None, optional(number(0.0, above=True)))
    fit_intercept: bool = parameter(True, FLAG)

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and y (n,), or (n, m) for m outputs with noise and weights of
        their own.

        Args:
            sample_weight: (n,), how many times each row counts.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name.
        """
        X, y, weights = self._read(X, y, sample_weight)
        d, centred = X.shape[1], bool(self.fit_intercept)
        if np.ndim(self.weight_scale) == 1 and len(self.weight_scale) != d:
            raise ModelError(f"BayesianLinearRegression(weight_scale=...): expected one number or "
                             f"{d}, got {len(self.weight_scale)}")
        found = evidence.moments(X, y, weights, centred)
        if found.rows <= centred and self.noise is None:
            raise DataError(f"n_samples=1: one row does not tell the "
                            f"noise{' beside the intercept' * centred}; give more, or noise=...")
        self.moments_, self._scales = found, []
        each = isinstance(self.weight_scale, str) and self.weight_scale == "each"
        groups = [[j] for j in range(d)] if each else [np.arange(d)]
        variance = None if self.noise is None else float(self.noise) ** 2
        for i in range(y.shape[1]):
            given, floor = evidence.problem(found, 0, d, i, centred), self._floor(y[:, i], centred)
            if isinstance(self.weight_scale, str):
                self._scales.append(evidence.choose(given, groups, floor, variance))
                continue
            prior = np.broadcast_to(np.asarray(self.weight_scale, float) ** 2, d)
            if variance is None:
                self._scales.append(evidence.choose_noise(given, prior, groups, floor))
            else:
                self._scales.append(evidence.evaluate(given, prior / variance, groups,
                                                      variance=variance))
        self._weights = [evidence.posterior(found, 0, s.ratio, s.variance, i)
                         for i, s in enumerate(self._scales)]
        vars(self).pop("_fit", None)
        return self

    def predict(self, X, return_std=False):
        """The posterior mean of y at rows X, and the standard deviation of a new observation: of
        curve and noise together.

        Returns:
            mean (n,) or (n, m); with return_std (mean, std).
        """
        X = self._asked(X)
        away, d = X - self.moments_.mean[: X.shape[1]], X.shape[1]
        mean = self.moments_.mean[d:] + np.column_stack(
            [away @ weights.mean for weights in self._weights]
        )
        if not return_std:
            return self._output(mean)
        columns = []
        for weights, scales in zip(self._weights, self._scales, strict=True):
            bias = scales.variance / self.moments_.rows if self.fit_intercept else 0.0
            columns.append(np.sqrt(scales.variance + bias + ((away @ weights.spread) ** 2).sum(1)))
        return self._output(mean), self._output(np.column_stack(columns))

    def as_data(self, X, y=None) -> dict[str, np.ndarray]:
        """Rows as the data of `fit_`: X and y about the means of the rows that were fitted."""
        X = self._asked(X)
        data = {"x": X - self.moments_.mean[: X.shape[1]]}
        if y is not None:
            data["y"] = np.asarray(y, float) - self._output(self.moments_.mean[X.shape[1] :])
        return data

    def _exact(self) -> Fit:
        d, m = self.n_features_in_, len(self._scales)
        centred = bool(self.fit_intercept)
        rows, weights = evidence.few_rows(self.moments_._replace(mean=0.0 * self.moments_.mean),
                                          centred)
        length = np.sqrt((self.moments_.root[:, :d] ** 2).sum(0) / self.moments_.rows)
        least = NIL / np.where(length > 0, length, 1.0)
        scale = np.maximum(np.sqrt(np.column_stack([s.ratio for s in self._scales])),
                           least[:, None])
        variance = np.array([s.variance for s in self._scales])
        model = linear_regression(outputs=None if self._flat_target else m, weight_scale="each",
                                  bias_scale=WIDE if centred else 0.0)
        data = {"x": rows[:, :d], "y": self._output(rows[:, d:]),
                "weight_scale": self._output(scale), "variance": self._output(variance)}
        return model.fit(data, Exact(), weights=weights)

    @property
    def coef_(self):
        """Posterior means of the weights, (d,) or (m, d)."""
        return self._weights[0].mean if self._flat_target else np.stack(
            [weights.mean for weights in self._weights]
        )

    @property
    def intercept_(self):
        """Posterior mean of b at X = 0, a number or (m,)."""
        d = self.n_features_in_
        return self._output(self.moments_.mean[d:] - np.stack([w.mean for w in self._weights])
                            @ self.moments_.mean[:d])

    @property
    def sigma_(self):
        """Posterior covariance of the weights given the scales, (d, d) or (m, d, d)."""
        found = np.stack([weights.spread @ weights.spread.T for weights in self._weights])
        return found[0] if self._flat_target else found

    @property
    def alpha_(self):
        """Precision of the noise, 1/σ²."""
        return self._output(np.array([1 / scales.variance for scales in self._scales]))

    @property
    def lambda_(self):
        """Precisions of the weights, 1/s²: one number or (d,), or (m,) or (m, d)."""
        with np.errstate(divide="ignore"):
            found = np.stack([1 / (scales.ratio * scales.variance) for scales in self._scales])
        if isinstance(self.weight_scale, str) and self.weight_scale == "shared":
            found = found[:, 0]
        return found[0] if self._flat_target else found

    @property
    def log_evidence_(self):
        """log p(y | X, scales), nats; of several outputs (m,)."""
        return self._output(np.array([scales.log_evidence for scales in self._scales]))

    @property
    def effective_(self):
        """Σ_j (1 − posterior variance of β_j / its prior variance): how many weights the data
        determine."""
        return self._output(np.array([scales.effective.sum() for scales in self._scales]))


@dataclass(eq=False, repr=False)
class SmoothingSpline(_Regression):
    """Smooth curves, y = b + Σ_j f_j(x_j) + noise, their smoothness and the noise chosen by log
    evidence (REML).

    The model is probml.models.smoothing: cubic B-splines with a Gaussian prior against curvature,
    what mgcv's gam(y ~ s(x), method="REML") fits. Straight lines are not penalised. Columns with
    fewer than 4 distinct values enter as lines. Beyond the values that were fitted a curve goes on
    as the straight line that touches it there.

    Args:
        knots: interior knots of every curve, or one number for each column; more only cost time,
            the prior smooths.
        penalty: "curvature": ∫ f''², knots at quantiles (a smoothing spline on few knots);
            "differences": second differences of the coefficients, equal distances (a P-spline).
        linear: columns that enter as straight lines, by name or index.
        lam: λ of |y − f|² + λ · penalty; None: chosen; or known, one number or one for each curve.
            x is in units of its range in ∫ f''².
        noise: σ in units of y; None: chosen.

    Attributes:
        lam_ (curves,), noise_: σ; edf_: effective degrees of freedom, the intercept and lines
        included; log_evidence_: the restricted log likelihood; intercept_: mean of y; design_: the
        basis; moments_; fit_: the probml Fit.

    Cost: one pass, about 20 operations a row and pair of columns; then O(d³) of the d columns of
        the basis.
    """

    knots: Any = parameter(20, sizes(1))
    _: KW_ONLY
    penalty: str = parameter("curvature", one_of("curvature", "differences"))
    linear: Any = parameter((), ANY)
    lam: Any = parameter(None, LAM)
    noise: float | None = parameter(None, optional(number(0.0, above=True)))

    def fit(self, X, y, sample_weight=None):
        """Learn from rows X (n, d) and y (n,).

        Args:
            sample_weight: (n,), how many times each row counts; knots do not depend on it.

        Raises:
            ModelError, DataError, ValueError: a parameter, a cell or a weight that cannot be used,
                by name.
        """
        X, y, weights = self._read(X, y, sample_weight)
        d = X.shape[1]
        if np.ndim(self.knots) == 1 and len(self.knots) != d:
            raise ModelError(f"SmoothingSpline(knots={self.knots!r}): expected one number or {d}, "
                             f"one for each column")
        self.design_ = design(X, self.knots, self.penalty, self._lines(d), weights)
        groups = self.design_.groups
        size = sum(map(len, groups))
        rows = float(len(y) if weights is None else weights.sum())
        if rows <= d + 1 and (self.noise is None or len(y) == 1):
            raise DataError(f"n_samples={len(y)}: too few for an intercept and {d} straight lines, "
                            f"which need more than {d + 1} rows")
        found = smooth_moments(self.design_, X, y[:, 0], weights)
        try:
            given = evidence.problem(found, d, size)
        except ValueError as error:
            raise DataError(
                f"{self._column(error.args[0])} of X is constant, or a linear combination of the "
                f"columns before it: its line is not "
                "determined. Drop it"
            ) from None
        floor, variance = self._floor(y), None if self.noise is None else float(self.noise) ** 2
        if self.lam is None and groups:
            scales = evidence.choose(given, groups, floor, variance)
        else:
            if np.ndim(self.lam) == 1 and len(self.lam) != len(groups):
                raise ModelError(f"SmoothingSpline(lam={self.lam!r}): expected one number or "
                                 f"{len(groups)}, one for each curve")
            each = np.broadcast_to(1.0 if self.lam is None else self.lam, len(groups))
            ratio = np.concatenate([np.zeros(0), *(np.full(len(m), 1 / lam)
                                                   for m, lam in zip(groups, each, strict=True))])
            scales = evidence.evaluate(given, ratio, groups, floor, variance)
        self.moments_, self._scales = found, scales
        self._weights = evidence.posterior(found, d, scales.ratio, scales.variance)
        vars(self).pop("_fit", None)
        return self

    def _lines(self, d: int) -> set[int]:
        """`linear` as indices."""
        names, found = list(getattr(self, "feature_names_in_", [])), set()
        given = [self.linear] if isinstance(self.linear, str | Integral) else list(self.linear)
        for column in given:
            if isinstance(column, Integral) and not isinstance(column, bool) and 0 <= column < d:
                found.add(int(column))
            elif column in names:
                found.add(names.index(column))
            else:
                known = names or f"0 … {d - 1}"
                raise ModelError(f"SmoothingSpline(linear={self.linear!r}): {column!r} is no "
                                 f"column; they are {known}")
        return found

    def predict(self, X, return_std=False):
        """The posterior mean of b + Σ f_j(x_j) at rows X, and its standard deviation: of the curve,
        without the noise, as mgcv's se.

        Returns:
            mean (n,); with return_std (mean, std).
        """
        X = self._asked(X)
        mix, centre = self.design_.mixing(), self.moments_.mean
        found = self.design_.sparse(X)
        mean = centre[-1] - centre[:-1] @ self._weights.mean + found @ (mix @ self._weights.mean)
        if not return_std:
            return mean
        away = found @ (mix @ self._weights.spread) - centre[:-1] @ self._weights.spread
        return mean, np.sqrt(self._scales.variance / self.moments_.rows + (away**2).sum(1))

    def as_data(self, X, y=None) -> dict[str, np.ndarray]:
        """Rows as the data of `fit_`: the columns of the basis and y, about the means of the rows
        that were fitted."""
        data = {"h": self.design_.columns(self._asked(X)) - self.moments_.mean[:-1]}
        return data if y is None else {**data, "y": np.asarray(y, float) - self.moments_.mean[-1]}

    def _exact(self) -> Fit:
        rows, weights = evidence.few_rows(self.moments_._replace(mean=0.0 * self.moments_.mean))
        groups = self.design_.groups
        model = smoothing(lines=self.n_features_in_, curves=tuple(map(len, groups)), wide=WIDE)
        data = {"h": rows[:, :-1], "y": rows[:, -1], "variance": self._scales.variance}
        if groups:
            data["smoothness"] = np.sqrt([self._scales.ratio[members[0]] for members in groups])
        return model.fit(data, Exact(), weights=weights)

    @property
    def intercept_(self):
        """The level of the curves: the mean of y."""
        return float(self.moments_.mean[-1])

    @property
    def lam_(self):
        """λ of every curve, (curves,)."""
        return np.array([1 / self._scales.ratio[members[0]] for members in self.design_.groups])

    @property
    def noise_(self):
        """σ, in units of y."""
        return float(np.sqrt(self._scales.variance))

    @property
    def edf_(self):
        """Effective degrees of freedom: 1 + lines + what the curves add."""
        return float(1 + self.n_features_in_ + self._scales.effective.sum())

    @property
    def log_evidence_(self):
        """log p(y | X, scales) with intercept and lines integrated over a density of 1: the
        restricted log likelihood, nats."""
        return self._scales.log_evidence
