"""Pictures of checks: ranks of true values among posterior draws, of what `model.check(...)`
returns, and data beside replicated ones."""

import numpy as np

from probml import ModelError
from probml.assessment.replicated import Bins
from probml.errors import type_of
from probml.estimators.rules import hold, integer
from probml.models.pictures.canvas import COLOURS, INK, as_names, axes_of, figure_of


def calibration(report, quantities=None, *, columns=3):
    """Histograms of the ranks of true values: flat if model and engine are right, within the grey
    band 99% of the time.

    Dips in the middle: posteriors too narrow. A hill: too wide. A slope: too high or too low.
    Rejected quantities are orange.

    Args:
        report: of `model.check(...)`.
        quantities: those to draw; by default the rejected ones first, at most 24.
        columns: of histograms side by side.

    Returns:
        The array of Axes, of which `[0].figure` is the figure.

    Raises:
        ModelError: no Certificate, or a quantity that it has not.
    """
    from scipy.stats import binom

    if not hasattr(report, "levels"):
        raise ModelError("calibration: expected the result of model.check(...), got "
                         f"{type_of(report)}")
    hold("calibration", columns=(columns, integer(1, 100)))
    rejected = report.rejected
    names = sorted(report.table.index, key=lambda name: name not in rejected)[:24]
    if quantities is not None:
        names = as_names("calibration", "quantities", quantities, list(report.levels.columns))
    n, bins = len(report.levels), report.bins
    low, high = binom.interval(0.99, n, 1 / bins)
    columns = min(columns, len(names))
    lines = -(-len(names) // columns)
    figure = figure_of((2.6 * columns, 0.5 + 1.7 * lines))
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for ax, name in zip(axes, names, strict=False):
        ax.axhspan(low, high, color="0.9", linewidth=0, zorder=0)
        ax.axhline(n / bins, color="0.6", linewidth=1, zorder=1)
        colour = COLOURS[1] if name in rejected else COLOURS[0]
        ax.hist(report.levels[name], bins=np.linspace(0, 1, bins + 1), color=colour, alpha=0.85,
                edgecolor="white", linewidth=0.5, zorder=2)
        p = report.table["p_value"][name]
        ax.set_title(f"{name}, p = {p:.2g}" + (f"\n{rejected[name]}" if name in rejected else ""),
                     fontsize=9)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xticks([0, 0.5, 1], ["0", "½", "1"])
        ax.tick_params(labelbottom=True, labelsize=8)
    for ax in axes[len(names) :]:
        ax.set_visible(False)
    figure.supxlabel("rank of the true value among posterior draws", fontsize=9)
    figure.supylabel("simulations", fontsize=9)
    return axes[: len(names)]


def counts(bins: Bins, *, ax=None):
    """Values in each bin, as dots, over the band and the median of replicated data sets."""
    ax, middles = axes_of(ax), 0.5 * (bins.edges[1:] + bins.edges[:-1])
    ax.bar(bins.edges[:-1], bins.high - bins.low, np.diff(bins.edges), bins.low, align="edge",
           color=COLOURS[5], alpha=0.45, edgecolor="white")
    ax.hlines(bins.median, bins.edges[:-1], bins.edges[1:], color=INK, linewidth=1.4)
    ax.plot(middles, bins.observed, "o", color=COLOURS[1], markersize=5)
    ax.set(xlabel=bins.name, ylabel="values", ylim=(0, None))
    return ax
