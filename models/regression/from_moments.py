"""What the estimators of Gaussian regression share: rows read once, into their moments; predictions
in float64 whatever JAX's precision; and `fit_`, the Fit by Exact() of the generative function at
the chosen scales on a few rows that have the same moments."""

from functools import cached_property

import jax
import numpy as np
from scipy.stats import norm

from probml import Fit
from probml.assessment.intervals import Interval
from probml.estimators.estimator import Estimator
from probml.estimators.rules import (
    check,
    hold,
    optional,
    within,
)
from probml.estimators.validation import (
    RegressorMixin,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    refuse_nonfinite,
)
from probml.models.frames.complete import Complete, NoProbabilities
from probml.models.regression.results import RegressionResults

# prior standard deviation of what is flat where scales are chosen, in units of the noise
FLAT_PRIOR_SD = 1e8
WIDEST = 1e150  # standard deviation, whose square is a number, too
NOISE = optional((f"a number above 0, from {1 / WIDEST:g} to {WIDEST:g}",
                  within(1 / WIDEST, WIDEST)[1]))


def is_scale(value) -> bool:
    if isinstance(value, str):
        return value in ("shared", "each")
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool) and array.ndim <= 1 and array.size > 0 and bool(
        (np.isfinite(array) & (array > 0)).all()
    )


class FromMoments(RegressionResults, RegressorMixin, Complete, NoProbabilities, Estimator):
    """What the estimators of regression share: reading rows, and the Fit when it is first asked
    for."""

    _several = False
    _why = "use predict(X, return_std=True) for the mean and the standard deviation"

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self._several
        return tags

    def _read(self, X, y, sample_weight):
        """(X (n, d), y (n, m), weights or None) as floats, checked."""
        check(self)
        X = self._require_complete(X, reset=True)
        y = y if hasattr(y, "iloc") else np.asarray(y)
        multi = y.ndim == 2 and self._several
        y = check_array(y if multi else column_or_1d(y, warn=True), dtype=np.float64,
                        ensure_2d=multi, ensure_all_finite=False, input_name="y")
        refuse_nonfinite("y", y)
        check_consistent_length(X, y)
        weights, kept_rows = self._weigh(X, sample_weight)
        self._flat_target = y.ndim == 1
        y = y[:, None] if y.ndim == 1 else y
        return (X, y, weights) if kept_rows is None else (X[kept_rows], y[kept_rows], weights)

    def _asked(self, X) -> np.ndarray:  # type: ignore[override]
        check_is_fitted(self, "moments_")
        return self._require_complete(X, reset=False)

    def _floor(self, y, centred: bool = True) -> float:
        """The least noise variance that is looked at: the digits of y, and those of the arithmetic
        of `fit_` about its mean."""
        digits, spread = (1e-10 if jax.config.jax_enable_x64 else 1e-5,
                          np.sqrt(np.mean((y - y.mean() * centred) ** 2)))
        return float((max(digits * spread, np.finfo(float).eps * np.abs(y).max()) or digits) ** 2)

    @cached_property
    def fit_(self) -> Fit:  # type: ignore[override]
        """The probml Fit: made when it is first asked for, of the model at the chosen scales, on
        rows centred as `as_data` gives them."""
        check_is_fitted(self, "moments_")
        return self._exact()

    def log_prob(self, X, y):
        """log p(y | x) of every row at the chosen scales, the weights integrated out, (n,)
        ."""
        return self.fit_.log_prob(self.as_data(X, y))

    def _interval(self, mean: np.ndarray, std: np.ndarray, interval: float) -> Interval:
        """The normal interval of a new y of this standard deviation."""
        hold("predict", interval=(interval, within(0, 1)))
        half = norm.ppf((1 + interval) / 2) * std
        return Interval(mean, mean - half, mean + half)

    def _output(self, value: np.ndarray) -> np.ndarray:
        """(..., m) without the axis of outputs where y had none."""
        return value[..., 0] if self._flat_target else value
