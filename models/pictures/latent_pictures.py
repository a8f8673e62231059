"""Pictures of latent variables: effects of groups, and components of time series, with their
uncertainty; factor scores."""

from collections.abc import Mapping, Sequence

import numpy as np
from jax.typing import ArrayLike

from probml import ModelError, Refusal
from probml.errors import counted, listed
from probml.estimators.rules import TEXT, hold, optional
from probml.language.given import labels as items
from probml.models.pictures.canvas import (
    COLOURS,
    INK,
    axes_of,
    figure_of,
    fit_of,
    numbers_of,
    place_of,
    steps_of,
)
from probml.models.pictures.canvas import legend as _legend
from probml.numerics.process.libraries import pd
from probml.typing import DataLike, FitOrEstimator

MAX_NAMED_MEMBERS = 60  # members that a picture has names for
DRAWS = 1000  # of a posterior without a closed form
REACH = 1.96  # standard deviations of a band that holds 95%


def effects(fitted: FitOrEstimator, name: str | None = None, labels: Sequence | None = None,
            coordinate: int | str = 0, *, ax=None):
    """A caterpillar plot: the effect of each level of a grouping with a bar of 95%, the lowest
    first; bars that do not cross the mean of all are in colour.

    Args:
        fitted: a MixedModel, whose effects are in the units of y, or a Fit whose `posterior(name)`
            is normal, as that of effects that are integrated out.
        name: the grouping, of a Fit the site of the effects; None: the only one.
        labels: of the levels, such as fit.labels("school"); None: their numbers, of a MixedModel
            their names.
        coordinate: which coefficient of each level, where it has several, as a slope together with
            an intercept; of a MixedModel also the name of a column.

    Raises:
        ModelError: no such effects, other labels than levels, no such coordinate.
    """
    sites = getattr(fitted, "_sites", {})
    hold("effects", name=(name, optional(TEXT)))
    if name is None:
        known = list(sites) or groupings(fitted)
        if len(known) != 1:
            raise ModelError("effects: expected a fit with one grouping, but its groupings are "
                             f"{listed(known)}. Name one of several, effects(fitted, "
                             "name='subject')")
        name = known[0]
    heading, name = name, sites.get(name, name)
    mean, sd, levels, columns = _moments_of_levels(fitted, name)
    labels = levels if labels is None else labels
    if mean.ndim not in (1, 2):
        raise ModelError(f"effects(name={name!r}): expected effects of the shape (levels,) or "
                         f"(levels, coefficients), got the shape {mean.shape}")
    suffix = ""
    if mean.ndim == 2:
        coords = range(mean.shape[1]) if columns is None else columns
        j = place_of("effects", "coordinate", coordinate, coords)
        mean, sd = mean[:, j], sd[:, j]
        suffix = f" on {'intercept' if coords[j] == '1' else coords[j]}"
    words = list(range(len(mean))) if labels is None else items(labels, "effects(labels)")
    if len(words) != len(mean):
        raise ModelError(f"effects(labels=...): expected {counted(len(mean), 'label')}, one for "
                         f"each level of '{name}', got {len(words)}")
    order, overall = np.argsort(mean), mean.mean()
    mean, sd, words = mean[order], REACH * sd[order], [words[i] for i in order]
    named = len(mean) <= MAX_NAMED_MEMBERS
    ax = axes_of(ax, (5.2, min(max(0.24 * len(mean) + 1.1, 2.4), 12) if named else 6.0))
    positions, differs = np.arange(len(mean)), np.abs(mean - overall) > sd
    for mask, colour in ((~differs, "0.55"), (differs, COLOURS[0])):
        ax.errorbar(mean[mask], positions[mask], xerr=sd[mask], fmt="o", markersize=4,
                    linewidth=1.3, color=colour)
    ax.axvline(overall, color="0.7", linewidth=1, linestyle=(0, (4, 2)), zorder=0)
    ax.set_yticks(*((positions, list(map(str, words))) if named else ([], [])))
    ax.set_ylim(-0.8, len(mean) - 0.2)
    ax.set_xlabel(f"effect of {heading}{suffix}, with 95% intervals")
    return ax


def _moments_of_levels(
    fitted: FitOrEstimator, name: str
) -> tuple[np.ndarray, np.ndarray, Sequence | None, Sequence | None]:
    """Means and standard deviations of effects, (levels,) or (levels, coefficients), the labels of
    the levels and the names of the coefficients; None where there are none."""
    fit = fitted if hasattr(fitted, "posterior") else fit_of("effects", fitted)
    try:
        posterior = fit.posterior(name)
        mean, sd = np.asarray(posterior.mean, float), np.sqrt(np.asarray(posterior.variance, float))
    except Refusal:  # of draws
        posterior = np.asarray(fit.draws(DRAWS)[name], float)
        mean, sd = posterior.mean(0), posterior.std(0)
    unit = getattr(fit, "units", {}).get(name)
    if unit is not None:  # of an estimator: in the units of its columns, by their names
        return (unit.convert(name, {name: mean}), sd * unit.factor, unit.names.get(0),
                unit.names.get(1))
    indexed = fit.structure.indexed.values() if hasattr(fit, "structure") else ()
    index = next((index for index in indexed for axis in index.axes if axis.parameter == name),
                 None)
    return mean, sd, None if index is None else fit.names.get(index.input), None


def groupings(fitted: FitOrEstimator) -> list[str]:
    """The sites of a fit that are effects of groups."""
    sites = fit_of("effects", fitted).structure
    named = [axis.parameter for index in sites.indexed.values() for axis in index.axes]
    return [name for name in dict.fromkeys(named)
            if sites.sites[name].plates and not sites.sites[name].states]


def components(fitted: FitOrEstimator, X: DataLike = None, ahead: DataLike = None):
    """The parts of a time series under one another, each with its band; the series and what is
    forecast of it above.

    Args:
        fitted: a StructuralTimeSeries; or its parts, part → a table of value, lower, upper, as its
            `components` has them.
        X: the series, (n_steps,), NaN where it is missing; dates of its index are those of the
            picture.
        ahead: how many steps to forecast; or a table of value, lower, upper of the steps that
            follow.

    Returns: the axes, from above.

    Raises:
        ModelError: no parts, or tables without value, lower and upper.
    """
    if hasattr(fitted, "components"):
        parts, asked = fitted.components(X), isinstance(ahead, int | np.integer)
        ahead = fitted.forecast(X, int(ahead), interval=0.9) if asked else ahead
    else:
        parts = fitted
    series = X
    if not isinstance(parts, Mapping):
        raise ModelError(f"components(fitted={parts!r:.80}): expected a StructuralTimeSeries, or a "
                         f"mapping from names of components to tables")
    for name, table in {**parts, **({} if ahead is None else {"ahead": ahead})}.items():
        names = list(getattr(table, "columns", table if isinstance(table, Mapping) else ()))
        if not {"value", "lower", "upper"} <= set(names):
            raise ModelError(f"components: the table of the component {name!r} has the columns "
                             f"{listed(names)}, expected the columns 'value', 'lower' and 'upper'. "
                             "Pass the result of estimator.components(X)")
    values = (np.zeros(0) if series is None
              else numbers_of("components", "X", series, (1, 2)).ravel())
    count = len(parts) + (series is not None)
    if not count:
        raise ModelError("components(fitted={}): expected at least one component. Pass the result "
                         "of estimator.components(X)")
    length = _steps(parts, None if series is None else values)
    figure = figure_of((7.2, 0.6 + 1.55 * count))
    axes = np.atleast_1d(figure.subplots(count, sharex=True))
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    part_axes = list(axes)
    places, dated = steps_of(series, length + (0 if ahead is None else len(ahead)))
    if series is not None:
        ax0 = part_axes.pop(0)
        ax0.plot(places[: len(values)], values, color=INK, linewidth=1, marker=".", markersize=3,
                 label="observed")
        if ahead is not None:
            _band(ax0, places[len(values) :], ahead, COLOURS[1], "forecast")
            _legend(ax0, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2)
        ax0.set_ylabel(str(getattr(series, "name", None) or "series"))
    for i, (ax, (name, table)) in enumerate(zip(part_axes, parts.items(), strict=True)):
        _band(ax, places[: len(table)], table, COLOURS[(2 * i) % 6], None)
        ax.set_ylabel(name)
    axes[-1].set_xlabel("date" if dated else "time step")
    return axes


def _steps(parts: Mapping, values: np.ndarray | None) -> int:
    """How many time steps every component and the series have."""
    sizes = {**{name: len(table["value"]) for name, table in parts.items()},
             **({} if values is None else {"X": len(values)})}
    if len(set(sizes.values())) > 1:
        raise ModelError("components: X and each component must have the same number of time "
                         f"steps, got {sizes}. Pass the X from which the components were computed")
    return next(iter(sizes.values()))


def _band(ax, place: np.ndarray, table: "pd.DataFrame", colour: str, label: str | None) -> None:
    low, high = (np.asarray(table[column], float) for column in ("lower", "upper"))
    ax.fill_between(place, low, high, color=colour, alpha=0.22, linewidth=0)
    ax.plot(place, np.asarray(table["value"], float), color=colour, linewidth=1.4, label=label)


def _scores_of(fitted: FitOrEstimator,
               X: DataLike) -> tuple[np.ndarray, np.ndarray, list[str] | None, str]:
    """Scores, loadings, the names of columns, and what a score is of, of an estimator; else scores
    and loadings as they are."""
    if not hasattr(fitted, "transform"):
        return fitted, X, None, "factor"
    fit_of("biplot", fitted)
    loadings, names = (getattr(fitted, name, None) for name in ("loadings_", "feature_names_in_"))
    loadings = fitted.components_.T if loadings is None else loadings
    return (np.asarray(fitted.transform(X), float), np.asarray(loadings, float),
            None if names is None else list(map(str, names)),
            "component" if "PCA" in type(fitted).__name__ else "factor")


def _draw_arrows(ax, tips: np.ndarray, words: list[str], near: float) -> None:
    """An arrow from 0 to each tip, (d, 2), with its word at a distance of others."""
    for word, (across, up), shift in zip(words, tips, _offsets_of_labels(tips, near), strict=True):
        ax.annotate("", (across, up), (0, 0), arrowprops={"arrowstyle": "->", "color": INK,
                                                         "linewidth": 1.2, "shrinkA": 0,
                                                         "shrinkB": 0})
        offset = 4 if across >= 0 else -4, (3 if up >= 0 else -3) + shift
        ax.annotate(word, (across, up), xytext=offset,
                    textcoords="offset points", fontsize=9, ha="left" if across >= 0 else "right",
                    va="bottom" if up >= 0 else "top")


def _offsets_of_labels(tips: np.ndarray, near: float) -> list[float]:
    """How far, in points, each word is moved away from the words below it on its side."""
    offsets, previous = [0.0] * len(tips), {}
    for i in np.argsort(tips[:, 1]):
        side = tips[i, 0] >= 0
        place, shift = previous.get(side, (-np.inf, 0.0))
        offsets[i] = shift + 11.0 if tips[i, 1] - place < near else 0.0
        previous[side] = tips[i, 1], offsets[i]
    return offsets


def biplot(fitted: FitOrEstimator, X: DataLike, names: Sequence[str] | None = None,
           groups: ArrayLike = None, *, ax=None):
    """Rows at their first two factor scores, and columns as arrows by their loadings (Gabriel
    1971): columns that point alike go together, rows lie where their columns are large.

    Args:
        fitted: an estimator with `transform` and loadings of at least two factors: FactorAnalysis,
            ProbabilisticPCA; or scores (n, k).
        X: the rows; of scores the loadings (d, k).
        names: of the columns; None: those of the table that was fitted, else their numbers.
        groups: (n,), what rows are coloured by.

    Raises:
        ModelError: fewer than two factors, loadings of another width, other names than columns.
    """
    scores, loadings, columns, axis = _scores_of(fitted, X)
    scores, loadings = (numbers_of("biplot", name, value, (2,)) for name, value in (
        ("scores", scores), ("loadings", loadings)))
    names = columns if names is None else names
    if scores.ndim != 2 or scores.shape[1] < 2 or loadings.shape[1:] != scores.shape[1:]:
        raise ModelError(f"biplot: expected scores (n, k) and loadings (d, k) with the same k of "
                         f"at least 2, got the shapes {scores.shape} and {loadings.shape}")
    words = [str(j) for j in range(len(loadings))] if names is None else [
        str(n) for n in items(names, "biplot(names)")]
    if len(words) != len(loadings):
        raise ModelError(f"biplot(names=...): expected {counted(len(loadings), 'name')}, one for "
                         f"each column, got {len(words)}")
    groups = None if groups is None else items(groups, "biplot(groups)")
    if groups is not None and len(groups) != len(scores):
        raise ModelError(f"biplot(groups=...): expected {counted(len(scores), 'group label')}, one "
                         f"for each row, got {len(groups)}")
    ax = axes_of(ax, (6.2, 5.4))
    kinds = [None] if groups is None else list(dict.fromkeys(groups))
    for i, kind in enumerate(kinds):
        mask = slice(None) if groups is None else np.array([group is kind or group == kind
                                                            for group in groups])
        ax.scatter(*scores[mask, :2].T, s=14, alpha=0.7, linewidths=0, label=str(kind),
                   color="0.6" if groups is None else COLOURS[i % len(COLOURS)])
    scale = np.abs(scores[:, :2]).max() / max(np.abs(loadings[:, :2]).max(), 1e-300)
    tips = loadings[:, :2] * 0.85 * scale
    x_max, y_max = 1.35 * np.abs(np.concatenate([scores[:, :2], tips])).max(0)  # room for names
    _draw_arrows(ax, tips, words, 0.08 * y_max)
    ax.set(xlim=(-x_max, x_max), ylim=(-y_max, y_max))
    ax.axhline(0, color="0.85", linewidth=0.8, zorder=0)
    ax.axvline(0, color="0.85", linewidth=0.8, zorder=0)
    ax.set(xlabel=f"score of {axis} 1", ylabel=f"score of {axis} 2")
    if groups is not None:
        _legend(ax, loc="best")
    return ax
