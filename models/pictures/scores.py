"""Pictures of how well models do: confusions, numbers of components, several models side by side.

Each function draws on `ax` (by default on a new figure) and returns the Axes."""

from collections.abc import Sequence

import numpy as np

from probml import DataError, ModelError
from probml.errors import listed, type_of
from probml.language.given import labels as items
from probml.models.pictures.canvas import COLOURS, across, axes_of, palette


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
    truth, predicted = (np.fromiter(items(value, f"confusion({name})"), object) for name, value in (
        ("truth", truth), ("predicted", predicted)))
    if truth.shape != predicted.shape:
        raise DataError("confusion: the true and the predicted labels have the shapes "
                        f"{truth.shape} and {predicted.shape}, expected two lists of equal length. "
                        "Give one prediction for each true label")
    has_truth = np.array([label is not None and label == label for label in truth])
    truth, predicted = truth[has_truth], predicted[has_truth]
    if labels is not None:
        labels = items(labels, "confusion(labels)")
        if unknown := (set(truth) | set(predicted)) - set(labels):
            raise DataError(f"confusion: the label {_sort_labels(unknown)[0]!r} is not in "
                            f"labels=[{listed(labels)}]. Add it to labels=")
        rows = columns = list(labels)
    else:
        rows, columns = _sort_labels(truth), _sort_labels(predicted)
        # the same kind of labels: the same order, so that what is right lies on the diagonal
        if set(rows) & set(columns):
            rows = columns = _sort_labels([*rows, *columns])
    counts = np.zeros((len(rows), len(columns)), int)
    np.add.at(counts, ([rows.index(t) for t in truth], [columns.index(p) for p in predicted]), 1)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    ax = axes_of(ax, (2.2 + 0.8 * len(columns), 1.6 + 0.6 * len(rows)))
    ax.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (i, j), count in np.ndenumerate(counts):
        ax.text(j, i, str(count), ha="center", va="center",
                color="white" if share[i, j] > 0.55 else "black" if count else "0.7")
    across(ax, list(map(str, columns)))
    ax.set_yticks(range(len(rows)), list(map(str, rows)))
    ax.set(xlabel="predicted", ylabel="true")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


_CRITERIA = {"bic": ("BIC", "o", "-"), "icl": ("ICL", "s", "--")}


def choosing(fitted, X=None, *, ax=None):
    """BIC, ICL and held-out score against the number of components; the best of each has a ring.

    Args:
        fitted: an estimator of a range of components, whose `table_` is drawn; or such a DataFrame,
            with `n_components` as a column or as its index, and any of the columns
            `bic`, `icl` (the lower the better) and `score` (held-out log density a row, the higher
            the better; on an axis of its own, at the right).
        X: not used; every picture takes it.

    Raises:
        DataError: no such columns.
    """
    table = getattr(fitted, "table_", fitted)
    _table("choosing", table)
    table = table.rename(columns={"n_states": "n_components"})
    table = table.reset_index() if "n_components" not in table.columns else table
    criteria = [name for name in (*_CRITERIA, "score") if name in table.columns]
    if "n_components" not in table.columns or not criteria:
        raise DataError("choosing: expected a table with the column 'n_components' and one of "
                        f"'bic', 'icl' and 'score', got the columns {listed(table.columns)}. Pass "
                        "the attribute table_ of an estimator that was fitted with several "
                        "numbers of components, such as GaussianMixture(range(1, 6))")
    table = table.sort_values("n_components")
    ax, k = axes_of(ax), table["n_components"].to_numpy()
    lines, other = [], ax
    for name, colour in zip(criteria, palette(len(criteria)), strict=True):
        value = table[name].to_numpy(float)
        if name == "score":
            title, marker, style, best = "held-out score", "D", ":", int(np.nanargmax(value))
            other = ax.twinx() if len(criteria) > 1 else ax
            other.set_ylabel("held-out log density per row (higher is better)")
            other.spines["top"].set_visible(False)
            other.spines["right"].set_visible(True)
        else:
            (title, marker, style), best = _CRITERIA[name], int(np.nanargmin(value))
        panel = other if name == "score" else ax
        lines += panel.plot(k, value, color=colour, marker=marker, linestyle=style, markersize=5,
                            label=f"{title}: best at {k[best]}")
        panel.plot(k[best], value[best], "o", markersize=14, markerfacecolor="none",
                   markeredgecolor=colour, markeredgewidth=1.5)
    if criteria != ["score"]:
        ax.set_ylabel(" and ".join(_CRITERIA[name][0] for name in criteria if name in _CRITERIA)
                      + " (lower is better)")
    ax.set_xticks(k)
    ax.set_xlabel("number of components")
    ax.legend(handles=lines, frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0.0, 1.0),
              ncols=3, borderaxespad=0.2)
    return ax


# column -> title, unit, standard error of the difference from the best, whether greater is better
_CRITERION = {
    "elpd_kfold": ("held-out log score", "natural log", "se_kfold_diff", True),
    "elpd_loo": ("leave-one-out log score", "natural log", "se_diff", True),
    "log_score": ("held-out log score", "log density per row", "se_log_score_diff", True),
    "accuracy": ("held-out accuracy", "share of rows", "se_accuracy_diff", True),
    "brier": ("held-out Brier score", "0 … 2", "se_brier_diff", False),
    "rmse": ("held-out root mean squared error", "units of the target", "se_rmse_diff", False),
    "log_evidence": ("log evidence", "natural log", None, True),
    "loglik": ("log likelihood", "natural log", None, True),
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
    _table("comparison", table)
    criterion = table.attrs.get("criterion", "bic") if criterion is None else criterion
    if (not isinstance(criterion, str) or criterion not in _CRITERION
        or criterion not in table.columns or table[criterion].isna().all()):
        known = [name for name in _CRITERION if name in table.columns and table[name].notna().any()]
        raise DataError(f"comparison(criterion={criterion!r:.80}): the table has no column of this "
                        f"criterion. Expected one of {listed(known)}")
    title, unit, error, greater = _CRITERION[criterion]
    table = table.sort_values(criterion, ascending=not greater)
    value = table[criterion].to_numpy(float)
    gaps = (np.nanmax(value) - value) if greater else (value - np.nanmin(value))
    bars = (table[error].fillna(0.0).to_numpy(float) if error is not None and error in table.columns
            else np.zeros(len(value)))
    ax = axes_of(ax, (6.4, 1.4 + 0.36 * len(table)))
    y, best = np.arange(len(table)), gaps == 0
    ax.axvline(0, color="0.8", linewidth=1, zorder=1)
    ax.errorbar(gaps[~best], y[~best], xerr=bars[~best] if bars.any() else None, fmt="o",
                color=COLOURS[0], capsize=3, markersize=5, linewidth=1.4, zorder=3)
    ax.plot(gaps[best], y[best], "D", color=COLOURS[2], markersize=6, zorder=3)
    digits = 1 if np.abs(value[np.isfinite(value)]).max(initial=0.0) > 10 else 3
    for y_i, low, number in zip(y, gaps, value, strict=True):
        ax.annotate("none" if np.isnan(low) else f"{number:.{digits}f}", (1.0, y_i),
                    xycoords=("axes fraction", "data"), xytext=(4, 0), va="center", fontsize=8,
                    textcoords="offset points", color="0.3", annotation_clip=False)
    ax.set_yticks(y, list(map(str, table.index)))
    ax.set_ylim(len(table) - 0.4, -0.6)
    ax.set_xlabel(f"{title}: difference to the best ({unit})")
    return ax


def _sort_labels(labels) -> list:
    return sorted(set(labels), key=lambda label: (isinstance(label, str), label))


def _table(call: str, table) -> None:
    if not all(hasattr(table, attribute) for attribute in ("columns", "attrs", "sort_values")):
        raise ModelError(f"{call}(table={table!r:.80}): expected a DataFrame, got "
                         f"{type_of(table)}. Convert it by pandas.DataFrame(table)")
