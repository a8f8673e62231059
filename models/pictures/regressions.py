"""Pictures of regressions: the partial effect of a column, residuals against fitted values, normal
quantiles of residuals.

Each takes an estimator, or a probml Fit, with its data, draws on `ax` (by default on a new figure)
and returns the Axes."""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from probml import DataError, Fit, ModelError
from probml.dataset.described import Column, described
from probml.dataset.frames import as_pandas
from probml.errors import counted, listed, type_of
from probml.models.pictures.canvas import (
    COLOURS,
    INK,
    axes_of,
    fit_of,
    legend,
    numbers_of,
    palette,
    place_of,
)
from probml.numerics.process.libraries import pd
from probml.typing import DataLike, FitOrEstimator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 100  # of a curve
BINS = 20  # of the mean of residuals along the fitted values


def effects_of(fitted: FitOrEstimator, column: str | int, X: DataLike = None, *,
               level: float = 0.95, ax: "Axes | None" = None):
    """The partial effect of a column: what is predicted along it, all other columns fixed at their
    median or at their most frequent value; of a classifier the probability of each class.

    The band is `level` of the mean where the estimator has its standard error (`return_std`), or of
    new rows where it predicts these (`interval`); there is none where it has neither.

    Args:
        fitted: a regression or a classifier of probml.models, or a Fit of a function with inputs.
        column: its name, or its place among the columns.
        X: the rows that were fitted, as `fit` took them; by default those that the estimator
            still has (after `load` and from a pickle it has none).
        level: of the band, between 0 and 1.
        ax: matplotlib Axes; by default those of a new figure.

    Returns:
        matplotlib.axes.Axes: on which it was drawn.

    Raises:
        ModelError: not fitted, no such column. DataError: no rows.
    """
    fit = fit_of("effects_of", fitted)
    table = _table_of(fitted, X)
    if not (isinstance(level, int | float) and 0 < level < 1):
        raise ModelError(f"effects_of(level={level!r:.80}): expected a probability, such as 0.95")
    columns = described(table)
    names = [col.name for col in columns]
    place = place_of("effects_of", "column", column, names)
    column, varied = names[place], columns[place]
    grid = _grid(varied)
    rows = _rows(table, columns, place, grid)
    ax = axes_of(ax)
    if fitted is not fit and hasattr(fitted, "predict_proba") and hasattr(fitted, "classes_"):
        probs = np.asarray(fitted.predict_proba(rows))
        for curve, colour, label in zip(probs.T, palette(probs.shape[1]), fitted.classes_,
                                        strict=True):
            _line(ax, varied, grid, curve, None, None, colour, str(label))
        ax.set(ylabel="probability", ylim=(0, 1))
        legend(ax)
    else:
        mean, low, high, band = _prediction_band(fitted, fit, rows, level)
        _line(ax, varied, grid, mean, low, high, COLOURS[0], band)
        ax.set_ylabel("predicted mean")
        if low is not None:
            legend(ax)
    if varied.numeric:
        observed = np.asarray(_values(table, place), float)
        ax.plot(observed, np.zeros(len(observed)), "|", color=INK, alpha=0.35, markersize=7,
                transform=ax.get_xaxis_transform(), clip_on=False)
    others = ", the others at their median or most frequent value" if len(names) > 1 else ""
    ax.set_xlabel(column)
    ax.set_title(f"effect of {column}{others}", fontsize=9)
    return ax


def residuals(fitted: FitOrEstimator, X: DataLike, y: ArrayLike = None, *,
              ax: "Axes | None" = None):
    """Residuals against fitted values, with their mean along these: a curve suggests a missing
    term, a fan a variance that is not constant.

    Args:
        fitted: a regression of probml.models, or a Fit of a function.
        X: the rows; of a Fit its data as a mapping, with the one site that is predicted.
        y: the target, of an estimator.
        ax: matplotlib Axes; by default those of a new figure.

    Returns:
        matplotlib.axes.Axes: on which it was drawn.

    Raises:
        ModelError: not fitted, no regression. DataError: no target, or no numbers.
    """
    mean, residual, kind = _residuals("residuals", fitted, X, y)
    ax = axes_of(ax)
    ax.axhline(0, color="0.6", linewidth=1, linestyle=(0, (4, 2)), zorder=0)
    ax.plot(mean, residual, "o", color=COLOURS[0], markersize=4, alpha=0.6, markeredgewidth=0)
    order = np.argsort(mean)
    parts = [part for part in np.array_split(order, min(BINS, max(len(order) // 10, 1)))
             if len(part)]
    if len(parts) > 1:
        ax.plot([mean[part].mean() for part in parts], [residual[part].mean() for part in parts],
                color=COLOURS[1], linewidth=1.6, label="mean")
        legend(ax)
    ax.set(xlabel="fitted value", ylabel=kind, title="residuals and fitted values")
    ax.title.set_fontsize(9)
    return ax


def qq(fitted: FitOrEstimator, X: DataLike, y: ArrayLike = None, *, ax: "Axes | None" = None):
    """Quantiles of the standardised residuals against those of a normal: on the line they are
    normal, above it at the right end their tail is heavier.

    Args:
        fitted, X, y: as of `residuals`.
        ax: matplotlib Axes; by default those of a new figure.

    Returns:
        matplotlib.axes.Axes: on which it was drawn.

    Raises:
        ModelError: not fitted, no regression. DataError: no target, or no numbers.
    """
    from scipy.stats import norm

    _, residual, _ = _residuals("qq", fitted, X, y)
    residual = np.sort((residual - residual.mean()) / max(residual.std(), 1e-300))
    expected = norm.ppf((np.arange(len(residual)) + 0.5) / len(residual))
    ax = axes_of(ax, (4.8, 4.6))
    line = [min(expected[0], residual[0]), max(expected[-1], residual[-1])]
    ax.plot(line, line, color="0.6", linewidth=1, linestyle=(0, (4, 2)), zorder=0)
    ax.plot(expected, residual, "o", color=COLOURS[0], markersize=4, alpha=0.7, markeredgewidth=0)
    ax.set(xlabel="quantile of the normal", ylabel="standardised residual",
           title="normal quantiles of residuals")
    ax.title.set_fontsize(9)
    return ax


def _residuals(call: str, fitted: FitOrEstimator, X: DataLike,
               y: ArrayLike) -> tuple[np.ndarray, np.ndarray, str]:
    """FitOrEstimator values, residuals, and what these are."""
    fit = fit_of(call, fitted)
    if fitted is fit:
        if not isinstance(X, Mapping) and not hasattr(X, "columns"):
            raise DataError(f"{call}: for a Fit, X must be a table or a mapping from names to "
                            f"values, got {type_of(X)}")
        site = next((name for name in X if name in fit.structure.sites
                     and fit.structure.sites[name].rows), None)
        if site is None:
            sites = [s.name for s in fit.structure.sites.values() if s.rows and not s.factor]
            raise DataError(f"{call}: X has only the columns {listed(X)}, but residuals need "
                            f"the observed values of a site. Add a column, one of {listed(sites)}")
        target = numbers_of(call, site, X[site], (1,))
        rows = {name: X[name] for name in X if name != site}
        mean = np.asarray(fit.predict(rows, site), float)
        return mean, target - mean, f"residual of {site}"
    if y is None:
        raise DataError(f"{call}: the target y of the estimator is missing. Pass {call}(estimator, "
                        f"X, y)")
    if not hasattr(fitted, "predict") or hasattr(fitted, "classes_"):
        raise ModelError(f"{call}: expected a regression, got {type(fitted).__name__}. For other "
                         "models use pictures.picture(fitted)")
    target, mean = numbers_of(call, "y", y, (1,)), np.asarray(fitted.predict(X), float)
    if len(target) != len(mean):
        raise DataError(f"{call}: X has {counted(len(mean), 'row')}, y has {len(target)}. Pass "
                        "one y for each row of X")
    unit = getattr(y, "name", None)
    return mean, target - mean, "residual" if unit is None else f"residual of {unit}"


def _table_of(fitted: FitOrEstimator, X: DataLike) -> "pd.DataFrame":
    """The rows of an estimator, or the inputs of a fit."""
    if X is None:
        X = getattr(fitted, "_fitted_rows", {}).get("X")
    if X is None:
        raise DataError(f"effects_of: this {type(fitted).__name__} does not store the rows to "
                        f"which it was fitted. Pass the rows, effects_of(estimator, column, X)")
    if isinstance(fitted, Fit):
        return {name: X[name] for name in X if name in fitted.model.inputs}
    table = as_pandas(X)
    try:
        shape = (len(table),) if isinstance(table, Mapping) else np.shape(table)
    except ValueError:  # sequences of unequal lengths
        shape = ()
    if len(shape) not in (1, 2) or 0 in shape:
        raise DataError(f"effects_of(X={X!r:.80}): expected rows as a table or an array (n, d)")
    return table.to_frame() if hasattr(table, "to_frame") else table


def _values(table: "pd.DataFrame", place: int) -> np.ndarray:
    if isinstance(table, Mapping):
        return list(table.values())[place]
    if hasattr(table, "iloc"):
        return table if table.ndim == 1 else table.iloc[:, place]
    return np.asarray(table).reshape(len(table), -1)[:, place]


def _grid(varied: Column) -> np.ndarray:
    if varied.numeric:
        if varied.low is None:
            raise DataError(f"effects_of: column '{varied.name}' of X has only missing values. "
                            "Pass rows with values of this column")
        low, high = np.asarray((varied.low, varied.high))
        is_integer = varied.type == "integer" and high - low < POINTS
        return np.arange(low, high + 1) if is_integer else np.linspace(low, high, POINTS)
    return np.array(varied.labels, object)


def _rows(table: "pd.DataFrame", columns: list[Column], place: int, grid: np.ndarray) -> DataLike:
    """Rows along the grid, in the form of the table."""
    parts = []
    for j, col in enumerate(columns):
        series = _values(table, j)
        value = grid if j == place else np.full(len(grid), col.middle if col.numeric else
                                                _mode(series, col.middle))
        parts.append(value)
    if isinstance(table, Mapping):
        return dict(zip(table, parts, strict=True))
    if hasattr(table, "iloc"):
        frame = pd.DataFrame(dict(zip(table.columns, parts, strict=True)))
        kinds = {name: kind for name, kind in table.dtypes.items()
                 if isinstance(kind, pd.CategoricalDtype)}
        return frame.astype(kinds)
    return np.column_stack(parts)


def _mode(values: ArrayLike, text: Any) -> object:
    """The most frequent value itself, of which `text` is the writing."""
    return next((value for value in np.asarray(values, object) if str(value) == text), text)


def _prediction_band(fitted: FitOrEstimator, fit: Fit, rows: DataLike, level: float) -> tuple:
    """The mean, its band where there is one, and what that is."""
    from scipy.stats import norm

    if fitted is fit:
        site = next(name for name, node in fit.structure.sites.items()
                    if node.rows and not node.factor)
        return *fit.predict(rows, site, interval=level), f"{level:.0%} of new rows"
    params = inspect.signature(fitted.predict).parameters
    if "return_std" in params:
        mean, sd = fitted.predict(rows, return_std=True)
        half = norm.ppf(0.5 + level / 2) * np.asarray(sd)
        return mean, mean - half, mean + half, f"{level:.0%} interval"
    if "interval" in params:
        try:
            return *fitted.predict(rows, interval=level), f"{level:.0%} of new rows"
        except ModelError:  # of what is 0 or 1 there is none
            pass
    return fitted.predict(rows), None, None, ""


def _line(ax, varied: Column, grid, mean, low, high, colour, label: str) -> None:
    mean = np.asarray(mean, float)
    if varied.numeric:
        ax.plot(grid, mean, color=colour, linewidth=1.8,
                label=label if low is None else "mean")
        if low is not None:
            ax.fill_between(grid, np.asarray(low, float), np.asarray(high, float), color=colour,
                            alpha=0.2, linewidth=0, label=label)
        return
    place = np.arange(len(grid))
    if low is not None:
        ax.vlines(place, np.asarray(low, float), np.asarray(high, float), color=colour,
                  linewidth=2, label=label)
    ax.plot(place, mean, "o", color=colour, label="mean" if low is not None else label)
    ax.set_xticks(place, [str(value) for value in grid])
