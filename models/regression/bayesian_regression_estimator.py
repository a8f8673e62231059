"""The scikit-learn estimator of Bayesian linear regression: scales chosen by evidence, an exact
posterior."""

import warnings
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np
from jax.typing import ArrayLike

from probml import DataError, Exact, Fit, ModelError
from probml.errors import counted
from probml.estimators.rules import (
    FLAG,
    Rule,
    parameter,
)
from probml.models.regression import evidence
from probml.models.regression.from_moments import FLAT_PRIOR_SD, NOISE, FromMoments, is_scale
from probml.models.regression.linear_regression import linear_regression
from probml.models.regression.moments import few_rows, moments
from probml.posteriors.units import of_rows, plane

# in the Fit, that of a weight whose scale was chosen as 0, in units of the noise a standard
# deviation of its column
NIL = 1e-8
MAX_COLUMNS = 8_000  # of which some minutes are needed
NONE = 1e-4  # of the variance of y: noise of rows that are met exactly
# times that spreads of columns may differ, and standard deviations by which that may move a weight
UNLIKE, HELD = 100.0, 0.3
SCALE: Rule = ("'shared', 'each' or numbers above 0", is_scale)


@dataclass(eq=False, repr=False)
class BayesianLinearRegression(FromMoments):
    """Linear regression with an exact posterior, its prior and noise scales chosen by log evidence
    (empirical Bayes).

    y ~ N(X β + b, σ²), β_j ~ N(0, s_j²), b flat. The model is probml.models.linear_regression; the
    scheme is MacKay's (1992) for one scale, scikit-learn's BayesianRidge, and Tipping's (2001) for
    a scale for each weight, its ARDRegression. Both are found at their maximum without hyperpriors,
    and b is integrated out, so that the noise has n − 1 rows and not n.

    Args:
        weight_scale: "shared": one s for all weights, chosen, as if columns were in like units (a
            warning says where they are not, and it matters);
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

    Examples:
        >>> from importlib.resources import files
        >>> import pandas as pd
        >>> penguins = pd.read_csv(files("probml.data") / "penguins.csv").dropna()
        >>> X = penguins[["flipper_length_mm", "bill_length_mm"]]
        >>> y = penguins["body_mass_g"]
        >>> from probml.models import BayesianLinearRegression
        >>> line = BayesianLinearRegression().fit(X, y)
        >>> print(line.coef_.round(0))
        [49.  5.]
        >>> mean, sd = line.predict(X[:1], return_std=True)
        >>> print(mean.round(-1), sd.round(-1))
        [3210.] [400.]
    """

    _several = True
    weight_scale: ArrayLike = parameter("shared", SCALE)
    _: KW_ONLY
    noise: float | None = parameter(None, NOISE)
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
            raise ModelError("BayesianLinearRegression(weight_scale=...): expected one number, or "
                             f"a list with one number for each column ({d}), got "
                             f"{len(self.weight_scale)}")
        if d > MAX_COLUMNS:
            raise DataError(
                f"BayesianLinearRegression: {counted(d, 'column')} need about ten matrices of "
                f"{d:,} × {d:,} "
                f"numbers, {8e-9 * d**2:,.1f} GB each. The time grows with the cube of the number "
                f"of columns. Fit at most {MAX_COLUMNS:,}, such as those most "
                "correlated with y or the scores of ProbabilisticPCA, or use "
                "GeneralizedLinearModel(penalty=...)")
        stats = moments(X, y, weights, centred)
        dof, chosen = stats.rows - centred, isinstance(self.weight_scale, str)
        if self.noise is None and (dof <= 0 or chosen and dof <= 1):
            extra = " in addition to the intercept" * centred
            count_text = f"n_samples={len(X)}" if weights is None else (
                f"the sample weights sum to {stats.rows:g} rows")
            raise DataError(f"{count_text}: too few rows to estimate the standard deviation of the "
                            f"noise{extra}{' and the scale of the coefficients' * chosen}. Give "
                            "more rows, or BayesianLinearRegression(noise=1.0) with a known value")
        self.moments_, self._scales, self.notes_ = stats, [], []
        per_weight = isinstance(self.weight_scale, str) and self.weight_scale == "each"
        groups = [[j] for j in range(d)] if per_weight else [np.arange(d)]
        variance = None if self.noise is None else float(self.noise) ** 2
        for i in range(y.shape[1]):
            system, floor = evidence.problem(stats, 0, d, i, centred), self._floor(y[:, i], centred)
            if chosen:
                self._scales.append(evidence.choose(system, groups, floor, variance))
                self._doubt_noise(self._scales[-1], system, i)
                continue
            prior = np.broadcast_to(np.asarray(self.weight_scale, float) ** 2, d)
            if variance is None:
                self._scales.append(evidence.choose_noise(system, prior, groups, floor))
            else:
                self._scales.append(evidence.evaluate(system, prior / variance, groups,
                                                      variance=variance))
        self._weights = [evidence.posterior(stats, 0, s.ratio, s.variance, i)
                         for i, s in enumerate(self._scales)]
        if chosen and not per_weight and d:
            self._doubt_units()
        self.__dict__.pop("fit_", None)
        return self

    def _doubt_units(self) -> None:
        """Say where one scale for weights of unlike units holds one back, by more of a standard
        deviation than the same scale for standardised columns does."""
        d = self.n_features_in_
        lengths = np.sqrt((self.moments_.root[:d, :d] ** 2).sum(0))
        if not (lengths > 0).all() or lengths.max() <= UNLIKE * lengths.min():
            return
        for i, (fitted, scales) in enumerate(zip(self._weights, self._scales, strict=True)):
            system = evidence.problem(self.moments_, 0, d, i, bool(self.fit_intercept))
            rescaled = system._replace(root=system.root / lengths)
            ref = evidence.choose(rescaled, [np.arange(d)], 0.0, scales.variance)
            ref_fit = evidence.posterior(self.moments_, 0, ref.ratio / lengths**2, ref.variance, i)
            distance = np.abs(fitted.mean - ref_fit.mean) / np.sqrt((ref_fit.spread**2).sum(1))
            j = int(np.argmax(distance))
            if distance[j] > HELD:
                names, unit = self._column_names, np.sqrt(self.moments_.rows)
                text = ("one prior scale is used for columns with standard deviations from "
                        f"{lengths.min() / unit:.1g} to {lengths.max() / unit:.1g}. The "
                        f"coefficient of column {names[j] if names else j!r} is {distance[j]:.2g} "
                        "standard deviations from its value for standardised columns. Standardise "
                        "the columns, or use weight_scale='each'")
                self.notes_.append(text)
                warnings.warn(f"BayesianLinearRegression: {text}", RuntimeWarning, stacklevel=3)
                return

    def _doubt_noise(self, scales, system: evidence.Problem, output: int) -> None:
        """Say where weights meet few rows exactly, so that the evidence rises as the noise goes to
        0: the noise is then where it was let to, and not what anybody measured."""
        total = system.residual_ss + float(system.target @ system.target)
        if (self.noise is not None or system.rows > self.n_features_in_
            or scales.variance * system.rows > NONE * total):
            return
        of = "" if self._flat_target else f" of output {output}"
        text = (f"the noise{of} was estimated as nearly 0, {np.sqrt(scales.variance):.2g}, because "
                f"{counted(self.n_features_in_, 'weight')} can fit all rows exactly. The "
                f"standard deviations of predictions are too small. Give noise=..., or fewer "
                f"columns")
        self.notes_.append(text)
        warnings.warn(f"BayesianLinearRegression: {text}", RuntimeWarning, stacklevel=3)

    def predict(self, X, return_std=False, interval=None):
        """The posterior mean of y at rows X, and the standard deviation of a new observation: of
        curve and noise together.

        Args:
            interval: a probability, such as 0.9: answer with an Interval (value, lower, upper), the
                bounds of a new y.

        Returns:
            mean (n,) or (n, m); with return_std (mean, std).
        """
        if interval is not None:
            mean, std = self.predict(X, return_std=True)
            return self._interval(mean, std, interval)
        X = self._asked(X)
        diffs, d = X - self.moments_.mean[: X.shape[1]], X.shape[1]
        mean = self.moments_.mean[d:] + np.column_stack(
            [diffs @ weights.mean for weights in self._weights]
        )
        if not return_std:
            return self._output(mean)
        columns = []
        for weights, scales in zip(self._weights, self._scales, strict=True):
            bias = scales.variance / self.moments_.rows if self.fit_intercept else 0.0
            columns.append(np.sqrt(scales.variance + bias + ((diffs @ weights.spread) ** 2).sum(1)))
        return self._output(mean), self._output(np.column_stack(columns))

    def _coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        if not self._flat_target:
            raise ModelError("confint: y has several outputs, but confint is for one output, y of "
                             "the shape (n,). Fit each output separately")
        weights, mean = self._weights[0], self.moments_.mean[: self.n_features_in_]
        errors = np.sqrt((weights.spread**2).sum(1))
        if not self.fit_intercept:
            return weights.mean, errors
        mean_var = self._scales[0].variance / self.moments_.rows
        return (np.append(self.intercept_, weights.mean),
                np.append(np.sqrt(mean_var + ((mean @ weights.spread) ** 2).sum()), errors))

    def confint(self, level=0.95):
        """See RegressionResults.confint; of the exact posterior at the chosen scales."""
        return self._wald(level)

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
        rows, weights = few_rows(self.moments_._replace(mean=0.0 * self.moments_.mean),
                                          centred)
        rms = np.sqrt((self.moments_.root[:, :d] ** 2).sum(0) / self.moments_.rows)
        min_scale = NIL / np.where(rms > 0, rms, 1.0)
        scale = np.maximum(np.sqrt(np.column_stack([s.ratio for s in self._scales])),
                           min_scale[:, None])
        variance = np.array([s.variance for s in self._scales])
        model = linear_regression(outputs=None if self._flat_target else m, weight_scale="each",
                                  bias_scale=FLAT_PRIOR_SD if centred else 0.0)
        data = {"x": rows[:, :d], "y": self._output(rows[:, d:]),
                "weight_scale": self._output(scale), "variance": self._output(variance)}
        names, axes = self._column_names, 1 if self._flat_target else 2
        units = plane("beta", "intercept", self.moments_.mean[:d], np.ones(d), axes,
                      self._output(self.moments_.mean[d:]), names=names)
        fit = model.fit(data, Exact(), weights=weights)
        units = {name: unit for name, unit in units.items() if name in fit.point}
        return replace(fit, units=units | of_rows(
            x=(self.moments_.mean[:d], 1.0), y=(self._output(self.moments_.mean[d:]), 1.0)))

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
        covariances = np.stack([weights.spread @ weights.spread.T for weights in self._weights])
        return covariances[0] if self._flat_target else covariances

    @property
    def alpha_(self):
        """Precision of the noise, 1/σ²."""
        return self._output(np.array([1 / scales.variance for scales in self._scales]))

    @property
    def lambda_(self):
        """Precisions of the weights, 1/s²: one number or (d,), or (m,) or (m, d)."""
        with np.errstate(divide="ignore"):
            precisions = np.stack([1 / (scales.ratio * scales.variance) for scales in self._scales])
        if isinstance(self.weight_scale, str) and self.weight_scale == "shared":
            precisions = precisions[:, 0]
        return precisions[0] if self._flat_target else precisions

    @property
    def log_evidence_(self):
        """log p(y | X, scales), nats; of several outputs (m,)."""
        return self._output(np.array([scales.log_evidence for scales in self._scales]))

    @property
    def effective_(self):
        """Σ_j (1 − posterior variance of β_j / its prior variance): how many weights the data
        determine."""
        return self._output(np.array([scales.effective.sum() for scales in self._scales]))
