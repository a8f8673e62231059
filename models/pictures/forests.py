"""A forest plot: estimates with their intervals, one row each, as of coefficients or of the studies
of a meta-analysis."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probml import DataError, ModelError
from probml.errors import listed
from probml.estimators.rules import hold, within
from probml.interface.showing.summaries import summarize
from probml.models.pictures.canvas import COLOURS, as_names, axes_of, fit_of
from probml.numerics.process.libraries import pd
from probml.typing import DataLike, FitOrEstimator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# the names under which tables hold them, in order
ESTIMATE = ("estimate", "value", "mean", "coef", "effect", "yi", "odds ratio")
LOWER = ("lower", "2.5%", "5%", "ci.lb", "ci_lower", "[0.025", "0.025", "conf.low", "hdi_3%")
UPPER = ("upper", "97.5%", "95%", "ci.ub", "ci_upper", "0.975]", "0.975", "conf.high", "hdi_97%")
ERROR = ("std. error", "sd", "se", "std err", "error", "standard error")
WEIGHT, ALONE = ("weight", "weights"), 30.0  # size of a marker without a weight, points²


def forest(fitted: FitOrEstimator, data: DataLike = None, names: Iterable[str] | None = None, *,
           level: float = 0.95, summary: Sequence[str] = (), reference: float | None = 0.0,
           xlabel: str | None = None, ax: "Axes | None" = None):
    """Estimates with their intervals, one below the other.

    Args:
        fitted: a MetaAnalysis, whose studies are drawn and, as a diamond, their mean effect; an
            estimator or a Fit whose `summary()` has coefficients, which are drawn without
            the intercept; or a DataFrame with an estimate and `lower` and `upper`, or a standard
            error, in columns of the usual names (value, lower, upper; Estimate, 2.5%, 97.5%;
            Estimate, Std. Error). Its index names the rows; markers are as large as `weight`.
        data: not used; every picture takes it.
        names: of the rows to draw; by default all.
        level: the probability of intervals that are made of standard errors.
        summary: rows that are drawn as diamonds, such as the pooled effect of a meta-analysis.
        reference: where a dashed line marks no effect, in the units of the estimates; None: no
            line.
        xlabel: what the estimates are, with their unit.
        ax: matplotlib Axes; by default those of a new figure.

    Returns:
        matplotlib.axes.Axes: on which it was drawn.

    Raises:
        DataError: no estimates with their intervals. ModelError: not fitted.

    Example:
        >>> import pandas as pd
        >>> from probml.models import pictures
        >>> table = pd.DataFrame({"estimate": [0.2, 0.5], "lower": [-0.1, 0.3],
        ...                       "upper": [0.5, 0.7]}, index=["age", "dose"])
        >>> pictures.forest(table).get_xlabel()
        'estimate, 95% interval'
    """
    hold("forest", level=(level, within(0.0, 1.0)))
    if hasattr(fitted, "forest_table") and hasattr(fitted, "effects_"):  # a MetaAnalysis
        fitted = fitted.forest_table(level)
        summary = summary or [fitted.index[-1]]
    value, low, high, size, words = _read(fitted, level)
    index = [i for i, word in enumerate(words) if word != "Intercept"] if _is_fitted(fitted) else []
    if names is not None:
        index = [words.index(name) for name in as_names("forest", "names", names, words)]
    if index:
        value, low, high, size = (each[index] for each in (value, low, high, size))
        words = [words[i] for i in index]
    no_summary = summary is None or isinstance(summary, tuple | list) and not summary
    pooled = np.isin(words, [] if no_summary else as_names("forest", "summary", summary, words))
    if not isinstance(reference, int | float | np.number | None) or isinstance(reference, bool):
        raise ModelError(f"forest(reference={reference!r:.80}): expected a number or None")
    ax = axes_of(ax, (6.4, 1.1 + 0.3 * len(words)))
    positions = np.arange(len(words))
    if reference is not None:
        ax.axvline(reference, color="0.6", linewidth=1, linestyle=(0, (4, 2)), zorder=0)
    ax.hlines(positions, low, high, color=COLOURS[0], linewidth=1.8)
    ax.scatter(value[~pooled], positions[~pooled], s=size[~pooled], marker="s", color=COLOURS[0],
               zorder=3)
    for row in np.flatnonzero(pooled):
        ax.fill([low[row], value[row], high[row], value[row]], [row, row - 0.25, row, row + 0.25],
                color=COLOURS[1], zorder=3)
    ax.set_yticks(positions, words)
    ax.set_ylim(len(words) - 0.4, -0.6)
    ax.set_xlabel(f"estimate, {100 * level:g}% interval" if xlabel is None else str(xlabel))
    return ax


def _is_fitted(fitted: FitOrEstimator) -> bool:
    """Whether it is a fit or an estimator, not a table."""
    return not (hasattr(fitted, "columns") and hasattr(fitted, "index"))


def _read(fitted: FitOrEstimator, level: float) -> tuple:
    """Estimates, bounds, sizes of markers and names of the rows: of a fit or an estimator those of
    the first table of its summary that has all of them."""
    if _is_fitted(fitted):
        fit = fit_of("forest", fitted)
        summary = summarize(fit) if fit is fitted else fitted.summary()
        tables = [table.values for table in summary.tables]
    else:
        tables = [fitted]
    parsed = [each for each in (_intervals_of_table(table,
                                                    level) for table in tables) if each is not None]
    if not parsed:
        columns = dict.fromkeys(name for table in tables for name in table.columns)
        raise DataError("forest: expected a table with a column of estimates, named one of "
                        f"{listed(ESTIMATE)}, and columns 'lower' and 'upper' or one of standard "
                        f"errors. It has the columns {listed(columns)}")
    return parsed[0]


def _intervals_of_table(table: "pd.DataFrame", level: float) -> tuple | None:
    """What `_read` reads, of a table; None where it lacks estimates or bounds."""
    from scipy.stats import norm

    cols = {str(column).lower(): table[column] for column in table.columns}

    def first(names: Sequence[str]) -> np.ndarray | None:
        return next((np.asarray(cols[name], float) for name in names if name in cols), None)

    value, low, high, error, weight = map(first, (ESTIMATE, LOWER, UPPER, ERROR, WEIGHT))
    if value is not None and error is not None and ("lower" not in cols or "upper" not in cols):
        half = norm.ppf(0.5 + level / 2) * error
        low, high = value - half, value + half
    if value is None or low is None or high is None:
        return None
    size = np.full(len(value), ALONE) if weight is None else 16 + 120 * weight / np.nanmax(weight)
    return value, low, high, size, list(map(str, table.index))
