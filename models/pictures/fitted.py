"""Pictures of fitted mixtures, classifiers and networks: densities, ellipses, responsibilities,
profiles, confusions, choosing k.

Each function takes a face, or a probml Fit with its data as a mapping, draws on `ax` (by default on
a new figure, without pyplot) and returns the Axes; `returned.figure` shows or saves it. Colours are
those of Okabe & Ito (2008), which every kind of colour vision tells apart; components bear their
number or name beside their colour. Needs matplotlib: probml[plot].
"""

from collections.abc import Sequence

import numpy as np

from probml import DataError, ModelError
from probml.models.pictures.colours import COLOURS
from probml.models.pictures.pictured import Asked, ask, column_of, normals, tables

ROWS = 2000  # bars of responsibilities at the most: further ones would be thinner than a pixel


def density(fitted, X, column=0, *, bins=None, ax=None):
    """The density of a mixture along one column over a histogram of it, with its components.

    Args:
        fitted: a face, or a Fit of a model with one discrete site in its rows.
        X: rows (n, d) as the face takes them, or the mapping {site: (n,) or (n, d)} of a Fit;
            unseen cells are left out.
        column: name or index; with more columns than one the others are integrated out.
        bins: of the histogram, as numpy.histogram takes them; counts have a bin each.

    Raises:
        ModelError: not fitted, or a column that is not there. DataError: data that are no numbers.
    """
    asked = ask(fitted, X)
    j = column_of(asked, column)
    x = asked.values[:, j][~np.isnan(asked.values[:, j])]
    if not len(x):
        raise DataError(f"density: no cell of column {asked.names[j]!r} is seen")
    whole = any(s.discrete for s in asked.fit.structure.sites.values() if s.rows
                and s.name != asked.target)
    if whole:
        grid = np.arange(x.min(), x.max() + 1)
        edges = np.append(grid, grid[-1] + 1) - 0.5
    else:
        margin = 0.08 * (np.ptp(x) or 1.0)
        grid = np.linspace(x.min() - margin, x.max() + margin, 400)
        # narrow components need narrow bins
        edges = max(len(np.histogram_bin_edges(x, "auto")) - 1, min(int(2 * len(x) ** 0.5), 40))
    at = np.full((len(grid), asked.values.shape[1]), np.nan)
    at[:, j] = grid
    data = asked.data(at)
    total = np.exp(asked.fit.log_prob(data))
    parts = total[:, None] * asked.fit.predict_proba(data, asked.target)
    ax, colours = _axes(ax), _palette(len(asked.classes))
    ax.hist(x, bins=edges if bins is None else bins, density=True, color="0.87", edgecolor="white",
            linewidth=0.5, label="data")
    style = {"marker": "o", "markersize": 3} if whole else {}
    for part, colour, name in zip(parts.T, colours, _titles(asked), strict=True):
        ax.plot(grid, part, color=colour, linewidth=1.6, label=name, **style)
    ax.plot(grid, total, color="black", linewidth=1.4, linestyle=(0, (4, 2)), label="mixture")
    ax.set_xlabel(asked.names[j])
    ax.set_ylabel("probability of a count" if whole else "density")
    _legend(ax)
    return ax


def ellipses(fitted, X, columns=(0, 1), *, sd=(1, 2), ax=None):
    """Rows in the mixed colours of their probabilities, and normal components as ellipses of some
    standard deviations.

    A row that sees one of the two columns only is a tick at the edge.

    Args:
        fitted: a face or Fit with normal components: GaussianMixture, GaussianDiscriminant,
            MixtureDiscriminant (whose ellipses have the colours of the classes), gaussian_mixture.
        X: rows (n, d), or the mapping {site: (n, d)} of a Fit.
        columns: two, by name or index; the others are left out of the ellipses, not of the
            probabilities.
        sd: sizes of the ellipses, in standard deviations along every direction.

    Raises:
        ModelError: no normal components, not two columns. DataError: data that are no numbers.
    """
    asked = ask(fitted, X)
    if isinstance(columns, str) or len(columns) != 2:
        raise ModelError(f"ellipses(columns={columns!r}): expected two columns")
    a, b = (column_of(asked, column) for column in columns)
    means, covariances, owners = normals(asked)
    ax, colours = _axes(ax), _palette(len(asked.classes))
    blend = np.clip(asked.fit.predict_proba(asked.data(asked.values), asked.target) @ colours, 0, 1)
    x, y = asked.values[:, a], asked.values[:, b]
    ax.scatter(x, y, s=18, c=blend, alpha=0.8, linewidths=0.3, edgecolors="white", zorder=2)
    for values, other, transform, marker in ((x, y, ax.get_xaxis_transform(), "|"),
                                             (y, x, ax.get_yaxis_transform(), "_")):
        alone = ~np.isnan(values) & np.isnan(other)
        if alone.any():
            edge = np.full(alone.sum(), 0.01)
            ax.scatter(
                *((values[alone], edge) if marker == "|" else (edge, values[alone])),
                c=blend[alone], marker=marker, transform=transform
            )
    angle = np.linspace(0, 2 * np.pi, 181)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    for mean, covariance, owner in zip(means, covariances, owners, strict=True):
        root = np.linalg.cholesky(covariance[np.ix_([a, b], [a, b])])
        for size in sd:
            edge = mean[[a, b], None] + size * root @ circle
            ax.plot(*edge, color=colours[owner], linewidth=1.4, zorder=3)
    for mean, name, owner in zip(means, _numbers(asked, owners), owners, strict=True):
        box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": colours[owner],
               "alpha": 0.85}
        ax.text(mean[a], mean[b], name, ha="center", va="center", fontsize=8, zorder=4, bbox=box,
                clip_on=True)
    ax.set_xlabel(asked.names[a])
    ax.set_ylabel(asked.names[b])
    return ax


def responsibilities(fitted, X, *, ax=None):
    """p(component | row) as stacked bars, a bar a row, sorted by the most probable component and
    how sure it is.

    Args:
        fitted, X: a face and its rows, or a Fit and its data; of many rows every so-and-so-many-th
            is drawn.
    """
    asked = ask(fitted, X, numbers=False)
    probability = np.asarray(asked.fit.predict_proba(asked.data(asked.values), asked.target))
    best = probability.argmax(1)
    order = np.lexsort((-probability[np.arange(len(best)), best], best))
    if len(order) > ROWS:
        order = order[np.linspace(0, len(order) - 1, ROWS).astype(int)]
    drawn = probability[order]
    ax, colours = _axes(ax), _palette(len(asked.classes))
    edges = np.linspace(0, len(best), len(drawn) + 1)
    ax.stackplot(edges, *np.vstack([drawn, drawn[-1:]]).T, step="post", colors=colours,
                 labels=_titles(asked), linewidth=0)
    ax.set(xlim=(0, len(best)), ylim=(0, 1),
           xlabel=f"{len(best)} rows, by their most probable {asked.title}")
    ax.set_ylabel(f"probability of each {asked.title}")
    _legend(ax, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def profile(fitted, *, ax=None):
    """What tells the components or classes apart: a row for each column, a cell for each component.

    The number is the mean in the column's own units, or the probability of a category or the share
    of a word; the colour is how far it lies from the mean over all components, in standard
    deviations of the column over all components: a category is read as the variable that is 1 where
    it holds. Of two categories the second is drawn.

    Args:
        fitted: NaiveBayes, LatentClass, MixedMixture, PoissonMixture, GaussianMixture,
            GaussianDiscriminant, or a Fit of naive_bayes or gaussian_mixture.

    Raises:
        ModelError: a model whose columns have no table of their own in every component.
    """
    asked = ask(fitted, None)
    weights = np.asarray(asked.fit.params["weights"])
    names, means, variances, chances = tables(fitted, asked)
    overall = means @ weights
    spread = np.sqrt((variances + (means - overall[:, None]) ** 2) @ weights)
    away = (means - overall[:, None]) / np.where(spread > 0, spread, 1.0)[:, None]
    if ax is None:
        ax = _axes(None, (1.6 + 1.2 * len(weights) + 0.055 * max(map(len, names)),
                          1.3 + 0.3 * len(names)))
    limit = max(1.0, np.abs(away).max())
    image = ax.imshow(away, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto")
    for (i, j), value in np.ndenumerate(means):
        text = (f"{value:.2f}" if chances[i] else f"{value:#.3g}".rstrip(".")
                if 1e-3 < abs(value) < 1000 else f"{value:.4g}")
        ax.text(j, i, text, ha="center", va="center", fontsize=8,
                color="white" if abs(away[i, j]) > 0.65 * limit else "black")
    ax.set_yticks(range(len(names)), names)
    shown = [f"{name}\n{weight:.0%}" for name, weight in zip(asked.classes, weights, strict=True)]
    ax.set_xticks(range(len(weights)), shown)
    ax.set_xlabel(f"{asked.title} and its share")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    bar = ax.figure.colorbar(image, ax=ax, shrink=min(1.0, 6 / len(names)), pad=0.02)
    bar.set_label("sd from the mean over all")
    bar.outline.set_visible(False)
    return ax


def confusion(truth, predicted, *, labels: Sequence | None = None, ax=None):
    """How often each true label met each predicted one, with counts; the colour is the share of the
    true label's rows.

    Args:
        truth: (n,) labels; a row whose truth is missing is left out.
        predicted: (n,) labels, or numbers of components: the two may have different ones.
        labels: order of the labels in rows and columns; by default sorted.

    Raises:
        DataError: other lengths, or a label that is not in `labels`.
    """
    truth, predicted = np.asarray(truth, object), np.asarray(predicted, object)
    if truth.shape != predicted.shape or truth.ndim != 1 or not len(truth):
        raise DataError(f"confusion: expected two lists of labels, equally long, got the shapes "
                        f"{truth.shape} and {predicted.shape}")
    kept = np.array([label is not None and label == label for label in truth])
    truth, predicted = truth[kept], predicted[kept]
    if labels is not None:
        if new := (set(truth) | set(predicted)) - set(labels):
            raise DataError(f"confusion: {_sorted(new)[0]!r} is not in labels={list(labels)!r}")
        rows = columns = list(labels)
    else:
        rows, columns = _sorted(truth), _sorted(predicted)
        # the same kind of labels: the same order, so that what is right lies on the diagonal
        if set(rows) & set(columns):
            rows = columns = _sorted([*rows, *columns])
    counts = np.zeros((len(rows), len(columns)), int)
    np.add.at(counts, ([rows.index(t) for t in truth], [columns.index(p) for p in predicted]), 1)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    ax = _axes(ax, (2.2 + 0.8 * len(columns), 1.6 + 0.6 * len(rows))) if ax is None else ax
    ax.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (i, j), count in np.ndenumerate(counts):
        ax.text(j, i, str(count), ha="center", va="center",
                color="white" if share[i, j] > 0.55 else "black" if count else "0.7")
    ax.set_xticks(range(len(columns)), list(map(str, columns)))
    ax.set_yticks(range(len(rows)), list(map(str, rows)))
    ax.set(xlabel="predicted", ylabel="true")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


_CRITERIA = {"bic": ("BIC", "o", "-"), "icl": ("ICL", "s", "--")}


def choosing(table, *, ax=None):
    """BIC, ICL and held-out score against the number of components; the best of each has a ring.

    Args:
        table: a DataFrame with `n_components` as a column or as its index, and any of the columns
            `bic`, `icl` (the lower the better) and `score` (held-out log density a row, the higher
            the better; on an axis of its own, at the right).

    Raises:
        DataError: no such columns.
    """
    table = table.reset_index() if "n_components" not in table.columns else table
    found = [name for name in (*_CRITERIA, "score") if name in table.columns]
    if "n_components" not in table.columns or not found:
        raise DataError(f"choosing: expected 'n_components' and any of 'bic', 'icl', 'score', got "
                        f"the columns {list(table.columns)}")
    table = table.sort_values("n_components")
    ax, k = _axes(ax), table["n_components"].to_numpy()
    lines, other = [], ax
    for name, colour in zip(found, _palette(len(found)), strict=True):
        value = table[name].to_numpy(float)
        if name == "score":
            title, marker, style, best = "held-out score", "D", ":", int(np.nanargmax(value))
            other = ax.twinx() if len(found) > 1 else ax
            other.set_ylabel("held-out log density a row: higher is better")
            other.spines["top"].set_visible(False)
            other.spines["right"].set_visible(True)
        else:
            (title, marker, style), best = _CRITERIA[name], int(np.nanargmin(value))
        on = other if name == "score" else ax
        lines += on.plot(k, value, color=colour, marker=marker, linestyle=style, markersize=5,
                         label=f"{title}: best at {k[best]}")
        on.plot(k[best], value[best], "o", markersize=14, markerfacecolor="none",
                markeredgecolor=colour, markeredgewidth=1.5)
    if found != ["score"]:
        ax.set_ylabel(" and ".join(_CRITERIA[name][0] for name in found if name in _CRITERIA)
                      + ": lower is better")
    ax.set_xticks(k)
    ax.set_xlabel("number of components")
    ax.legend(handles=lines, frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0.0, 1.0),
              ncols=3, borderaxespad=0.2)
    return ax


# column -> title, its unit, standard error of the difference from the best, whether the greater is
# the better
_CRITERION = {
    "elpd_kfold": ("held-out log score", "nats", "se_kfold_diff", True),
    "elpd_loo": ("leave-one-out log score", "nats", "se_diff", True),
    "log_score": ("held-out log score", "nats a row", "se_log_score_diff", True),
    "accuracy": ("held-out accuracy", "share of rows", "se_accuracy_diff", True),
    "brier": ("held-out Brier score", "0 … 2", "se_brier_diff", False),
    "rmse": ("held-out root mean squared error", "units of the target", "se_rmse_diff", False),
    "log_evidence": ("log evidence", "nats", None, True),
    "loglik": ("log likelihood", "nats", None, True),
    "bic": ("BIC", "units of −2 log likelihood", None, False),
    "aic": ("AIC", "units of −2 log likelihood", None, False),
}


def comparison(table, criterion=None, *, ax=None):
    """How much worse than the best each model is, by one criterion, the best on top; bars are a
    standard error of the difference.

    Args:
        table: of `probml.compare`.
        criterion: a column, such as "elpd_loo" or "bic"; by default the one by which the table is
            sorted. Models without a number are named but have no point.

    Raises:
        DataError: no such column, or no number in it.
    """
    criterion = table.attrs.get("criterion", "bic") if criterion is None else criterion
    if (criterion not in _CRITERION or criterion not in table.columns
        or table[criterion].isna().all()):
        have = [name for name in _CRITERION if name in table.columns and table[name].notna().any()]
        raise DataError(f"comparison(criterion={criterion!r}): expected a criterion with numbers, "
                        f"one of {have}")
    title, unit, error, greater = _CRITERION[criterion]
    table = table.sort_values(criterion, ascending=not greater)
    value = table[criterion].to_numpy(float)
    worse = (np.nanmax(value) - value) if greater else (value - np.nanmin(value))
    bars = (table[error].fillna(0.0).to_numpy(float) if error is not None and error in table.columns
            else np.zeros(len(value)))
    if ax is None:
        ax = _axes(None, (6.4, 1.4 + 0.36 * len(table)))
    y = np.arange(len(table))
    best = worse == 0
    ax.axvline(0, color="0.8", linewidth=1, zorder=1)
    widths = bars[~best] if bars.any() else None
    ax.errorbar(worse[~best], y[~best], xerr=widths, fmt="o", color=COLOURS[0], capsize=3,
                markersize=5, linewidth=1.4, zorder=3)
    ax.plot(worse[best], y[best], "D", color=COLOURS[2], markersize=6, zorder=3)
    digits = 1 if np.abs(value[np.isfinite(value)]).max(initial=0.0) > 10 else 3
    for at, low, number in zip(y, worse, value, strict=True):
        ax.annotate("none" if np.isnan(low) else f"{number:.{digits}f}", (1.0, at),
            xycoords=("axes fraction", "data"), xytext=(4, 0),
                    # fmt: skip
                    textcoords="offset points", va="center", fontsize=8, color="0.3",
                    annotation_clip=False)
    ax.set_yticks(y, list(map(str, table.index)))
    ax.set_ylim(len(table) - 0.4, -0.6)
    ax.set_xlabel(f"{title}: worse than the best by ({unit})")
    return ax


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
    from matplotlib.figure import Figure
    from scipy.stats import binom

    if not hasattr(report, "levels"):
        raise ModelError(f"calibration: expected what model.check(...) returns, got "
                         f"{type(report).__name__}")
    rejected = report.rejected
    names = list(quantities) if quantities is not None else sorted(
        report.table.index, key=lambda name: name not in rejected
    )[:24]
    unknown = next((name for name in names if name not in report.levels.columns), None)
    if unknown is not None or not names:
        raise ModelError(f"calibration(quantities={quantities!r}): expected some of "
                         f"{list(report.levels.columns)}")
    n, bins = len(report.levels), report.bins
    low, high = binom.interval(0.99, n, 1 / bins)
    columns = min(columns, len(names))
    lines = -(-len(names) // columns)
    figure = Figure(figsize=(2.6 * columns, 0.5 + 1.7 * lines), layout="constrained")
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


# How it is drawn


def _axes(ax, size=(6.4, 4.2)):
    if ax is not None:
        return ax
    # without pyplot there is no screen and no state of the process
    from matplotlib.figure import Figure

    ax = Figure(figsize=size, layout="constrained").subplots()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _palette(k: int) -> np.ndarray:
    """k colours, (k, 3)."""
    import matplotlib
    from matplotlib.colors import to_rgb

    if k <= len(COLOURS):
        return np.array([to_rgb(colour) for colour in COLOURS[:k]])
    return matplotlib.colormaps["viridis"](np.linspace(0, 0.95, k))[:, :3]  # in order of lightness


def _titles(asked: Asked) -> list[str]:
    weights = asked.fit.params.get("weights")
    names = asked.classes if asked.title == "class" else [
        f"{asked.title} {name}" for name in asked.classes
    ]
    return names if weights is None else [f"{name}, {weight:.0%}"
                                          for name, weight in zip(names, weights, strict=True)]


def _numbers(asked: Asked, owners) -> list[str]:
    return [asked.classes[owner] for owner in owners]


def _legend(ax, **where) -> None:
    ax.legend(frameon=False, fontsize=9, **where)


def _sorted(labels) -> list:
    return sorted(set(labels), key=lambda label: (isinstance(label, str), label))
