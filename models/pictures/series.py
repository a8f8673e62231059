"""Pictures along something: the states of a chain over time, a prediction over a covariate, the
objective over iterations, and what parameters are with their spread.

Each function draws on `ax` (by default on a new figure) and returns the Axes."""

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from jax.typing import ArrayLike

from probml import DataError, Fit, ModelError
from probml.errors import listed, type_of
from probml.estimators.rules import hold, within
from probml.models.pictures.canvas import (
    COLOURS,
    as_names,
    axes_of,
    fit_of,
    legend,
    numbers_of,
    palette,
    steps_of,
)
from probml.typing import DataLike, FitOrEstimator, SiteValues

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPREAD = 1.6449  # of a normal: half of a 90% interval
MAX_TRACE_POINTS = 800  # of a chain, about


def timeline(fitted: FitOrEstimator, X: DataLike, *, row: int = 0, column: int = 0,
             ax: "Axes | None" = None):
    """A sequence with the most probable state of every step (Viterbi's path): a line through the
    values, points and bands in the colours of the states.

    Args:
        fitted: a HiddenMarkov, or a Fit of a model with one MarkovChain.
        X: one sequence, (steps,) or (steps, d); of a Fit its data as a mapping with one seen site.
        row: of a Fit, which sequence. column: of several.

    Raises:
        ModelError: no chain, or not fitted. DataError: a mapping with several sites.
    """
    fit = fit_of("timeline", fitted)
    chains = fit.structure.markov
    if len(chains) != 1:
        raise ModelError("timeline: expected a fit with one MarkovChain, but the "
                         f"model of this {type(fitted).__name__} has {len(chains)}. Pass a fit of "
                         "a hidden Markov model, such as HiddenMarkov(3)")
    if isinstance(fitted, Fit):
        if not isinstance(X, Mapping) or len(X) != 1:
            raise DataError("timeline: for a Fit, X must be a mapping with one site, such as "
                            "{'y': y}, got "
                            f"{listed(X) if isinstance(X, Mapping) else type_of(X)}")
        (name, data), = X.items()
        path = fit.decode(X, [chains[0]])[chains[0]]
        row = _one_of("timeline", "row", row, len(path))
        values, states = numbers_of("timeline", "X", data[row], (1, 2)), path[row]
        names = list(map(str, fit.labels(chains[0])))
        states = np.array([names.index(str(state)) for state in states])
    else:
        name = str(getattr(X, "name", None) or "value")
        states, values = np.asarray(fitted.predict(X)), numbers_of("timeline", "X", X, (1, 2))
        names = [str(i) for i in range(fit.structure.sites[chains[0]].finite or 0)]
    values = values.reshape(len(values), -1)
    column = _one_of("timeline", "column", column, values.shape[1])
    label = name if values.shape[1] == 1 else f"{name}, column {column}"
    ax, colours = axes_of(ax, (8.0, 3.2)), palette(len(names))
    steps, dated = steps_of(X, len(values))
    half = (steps[1] - steps[0]) / 2 if len(steps) > 1 else 0.5
    edges = np.flatnonzero(np.diff(states)) + 1
    for start, end in zip([0, *edges], [*edges, len(states)], strict=True):
        ax.axvspan(steps[start] - half, steps[end - 1] + half, color=colours[states[start]],
                   alpha=0.14, linewidth=0)
    ax.plot(steps, values[:, column], color="0.6", linewidth=0.9, zorder=2)
    for state, text in enumerate(names):
        mask = states == state
        ax.plot(steps[mask], values[mask, column], "osD^vP*"[state % 7], color=colours[state],
                markersize=4, label=f"state {text}, {mask.mean():.0%} of the steps", zorder=3)
    ax.set(xlabel="date" if dated else "time step", ylabel=label,
           xlim=(steps[0] - half, steps[-1] + half))
    legend(ax, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.2)
    return ax


def bands(fitted: FitOrEstimator, X: SiteValues, along: str, site: str | None = None, *,
          interval: float = 0.9, ax: "Axes | None" = None):
    """A predicted site over one of its inputs: its mean, and a central interval of new rows.

    Args:
        fitted: a Fit. X: rows to predict, sorted here by `along`; where they contain `site`, its
            values are drawn as points.
        along: the input on the horizontal axis.

    Raises:
        ModelError, DataError: as Fit.predict.
    """
    fit = fit_of("bands", fitted)
    if not hasattr(X, "items"):
        raise DataError(f"bands(X={X!r:.80}): expected a table, or a mapping from names to values")
    if not isinstance(along, str) or along not in X:
        raise DataError(f"bands(along={along!r:.80}): expected one of {listed(X)}")
    hold("bands", interval=(interval, within(0.0, 1.0)))
    if not isinstance(site, str | None):
        raise DataError(f"bands(site={site!r:.80}): expected one of {listed(X)}")
    if site is None:
        site = next((name for name in X if name in fit.structure.sites), None)
    rows = {name: value for name, value in X.items() if name != site}
    mean, low, high = fit.predict(rows, site, interval=interval)
    x = numbers_of("bands", "along", X[along], (1,))
    order, ax = np.argsort(x), axes_of(ax)
    ax.fill_between(x[order], np.asarray(low)[order], np.asarray(high)[order], color=COLOURS[0],
                    alpha=0.2, linewidth=0, label=f"{interval:.0%} of new rows")
    ax.plot(x[order], np.asarray(mean)[order], color=COLOURS[0], label="mean")
    if site is not None and site in X:
        ax.plot(x, np.asarray(X[site], float), ".", color="0.35", markersize=5, label="observed")
    ax.set(xlabel=along, ylabel=site)
    legend(ax)
    return ax


def learning(fitted: FitOrEstimator, X: DataLike = None, *, ax: "Axes | None" = None):
    """The objective at every iteration; of MAP(held_out=...) the rows held out beside it.

    Args:
        fitted: a Fit, or an estimator. X: not used; every picture takes it.

    Raises:
        ModelError: an engine that does not iterate.
    """
    fit = fit_of("learning", fitted)
    history = np.asarray([] if fit.history is None else fit.history, float).ravel()
    if history.size < 2:
        raise ModelError(f"learning: {fit.engine} does not store the objective of each iteration, "
                         f"so there is nothing to draw. Fit by EM() or MAP(), for example")
    ax = axes_of(ax)
    lines = ax.plot(history, color=COLOURS[0], label="objective")
    ax.set(xlabel="iteration", ylabel="objective")
    if fit.held_out is not None:
        other = ax.twinx()
        lines += other.plot(np.asarray(fit.held_out, float), color=COLOURS[1], linestyle="--",
                            label="held-out rows, log density per row")
        other.set_ylabel("log density of a held-out row")
        ax.legend(handles=lines, frameon=False, fontsize=9)
    return ax


def intervals(fitted: FitOrEstimator, names: Iterable[str] | None = None, *,
              ax: "Axes | None" = None):
    """What parameters are: means with central 90% intervals, a line an entry; of a mode 1.645
    standard errors to either side; points where there is no spread.

    Args:
        fitted: a Fit, or an estimator.
        names: of parameters, all entries of each; by default all.

    Raises:
        ModelError: a name that is no parameter.
    """
    fit = fit_of("intervals", fitted)
    table = fit.summary()
    if names is not None:
        names = as_names("intervals", "names", names, list(fit.params))
        table = table[[entry.partition("[")[0] in names for entry in table.index]]
    value = table["mean"].to_numpy(float) if "mean" in table else table["value"].to_numpy(float)
    half_width = SPREAD * table["sd"].to_numpy(float) if "sd" in table else np.zeros(len(value))
    low = table["5%"].to_numpy(float) if "5%" in table else value - half_width
    high = table["95%"].to_numpy(float) if "95%" in table else value + half_width
    return entries(table.index, low, value, high, "value, in the units of the model; 90% intervals",
                   ax=ax)


def entries(names: Iterable, low: ArrayLike, middle: ArrayLike, high: ArrayLike, unit: str, *,
            ax: "Axes | None" = None):
    """Intervals with a dot in each, a line an entry."""
    names = list(map(str, names))
    ax, y = axes_of(ax, (6.4, 1.0 + 0.28 * len(names))), np.arange(len(names))
    ax.hlines(y, low, high, color=COLOURS[0], linewidth=2)
    ax.plot(middle, y, "o", color=COLOURS[0], markersize=5)
    ax.set_yticks(y, names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlabel(unit)
    return ax


def traces(draws: np.ndarray, name: str, *, ax: "Axes | None" = None):
    """Draws (chains, draws) of a number, a line a chain."""
    ax, step = axes_of(ax), max(draws.shape[1] // MAX_TRACE_POINTS, 1)
    for chain, colour in zip(draws, itertools.cycle(COLOURS)):
        ax.plot(np.arange(0, draws.shape[1], step), chain[::step], color=colour, linewidth=1)
    ax.set(xlabel="draw", ylabel=name)
    return ax


def _one_of(call: str, name: str, value: ArrayLike, count: int) -> int:
    """A place among so many, from either end."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or not -count <= value < count:
        raise ModelError(f"{call}({name}={value!r:.80}): expected an integer from 0 to {count - 1}")
    return int(value)
