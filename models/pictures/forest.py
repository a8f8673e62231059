"""Forest plots: the estimates of studies, or the coefficients of a regression, with their intervals
one below the other."""

from typing import Any

import numpy as np
from scipy.stats import norm

from probml import ModelError
from probml.estimators.rules import hold, within
from probml.models.pictures.canvas import COLOURS, axes_of
from probml.models.regression.meta_analysis_estimator import MetaAnalysis
from probml.models.regression.results import RegressionResults


def forest(fitted: Any, level: float = 0.95, *, ax: Any = None):
    """A forest plot. Of a MetaAnalysis the estimate of each study, its marker as large as its
    weight, the mean effect as a diamond, and as a dashed line the prediction interval of a new
    study; of another regression its coefficients without the intercept.

    Args:
        fitted: a fitted estimator.
        level: the probability of the intervals.
        ax: matplotlib's Axes; None: a new figure.

    Returns:
        The Axes.

    Raises:
        ModelError: no fitted regression; no probability.

    Example:
        >>> pictures.forest(MetaAnalysis().fit(table["yi"], table["vi"] ** 0.5))
    """
    hold("forest", level=(level, within(0, 1)))
    if not isinstance(fitted, RegressionResults) or not hasattr(fitted, "fit_"):
        raise ModelError(f"forest: expected a fitted regression, such as MetaAnalysis, got a "
                         f"{type(fitted).__name__}")
    if isinstance(fitted, MetaAnalysis):
        return _studies(fitted, level, ax)
    bounds = fitted.confint(level).drop(index="Intercept", errors="ignore")
    return _rows([" ".join(map(str, np.atleast_1d(np.asarray(name, object))))
                  for name in bounds.index], bounds.to_numpy().mean(1), bounds.to_numpy(), level,
                 ax, 36.0)


def _rows(names, middle, bounds, level, ax, size, below: int = 0):
    """A row for each interval, from above; `below`: rows that are left for others."""
    ax = axes_of(ax, (6.4, 1.2 + 0.3 * (len(names) + below)))
    at = np.arange(len(names), 0, -1) + below
    ax.hlines(at, bounds[:, 0], bounds[:, 1], color=COLOURS[0])
    ax.scatter(middle, at, s=size, marker="s", color=COLOURS[0], zorder=3)
    ax.axvline(0.0, color=COLOURS[6], linewidth=0.8)
    ax.set_yticks(at, names)
    ax.set_xlabel(f"estimate, {100 * level:g}% interval")
    return ax


def _studies(fitted: MetaAnalysis, level: float, ax: Any):
    table, half = fitted.effects_, norm.ppf((1 + level) / 2)
    middle, error = table["estimate"].to_numpy(), table["standard error"].to_numpy()
    alone = not len(fitted.coef_)  # without moderators there is one mean
    names = [str(name) for name in table.index]
    weight = table["weight"].to_numpy()
    ax = _rows(names, middle, np.column_stack([middle - half * error, middle + half * error]),
               level, ax, 16 + 120 * weight / weight.max(), 2 * alone)
    if alone:
        mean, own = fitted.intercept_, half * fitted.standard_errors_[0]
        ax.fill([mean - own, mean, mean + own, mean], [1, 1.3, 1, 0.7], color=COLOURS[1])
        if fitted.tau_ > 0:
            _, low, high = fitted.predict(interval=level)
            ax.hlines(1, low, high, color=COLOURS[1], linestyle="dashed")
        ax.set_yticks([*ax.get_yticks(), 1], [*names, f"mean (I² {fitted.I2_:.0f}%)"])
    return ax
