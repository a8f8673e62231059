"""The calibration of predicted probabilities: reliability curves, calibration errors, proper
scores, on held-out rows.

Of a bin b of rows with n_b members, mean predicted probability e_b and observed share o_b:

    expected calibration error = Σ_b n_b/n |o_b − e_b|

Of the top label (Guo et al. 2017) e is the probability of the predicted label and o the share that
was right; classwise (Nixon et al. 2019, "static") it is that of each label against all others,
averaged over labels. Of two labels each one's own error is Naeini, Cooper & Hauskrecht's (2015).
All are biased upwards in small bins, and fall with coarser ones: compare equal bins only.

Sources: Brier (1950); Good (1952) for the log score; Murphy & Winkler (1977) for reliability
    curves.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from probml.assessment.decisions import by_label, distribution
from probml.assessment.pages.html import noted, picture, records_of, table
from probml.dataset import tables
from probml.errors import DataError, ModelError, counted, listed
from probml.language.given import labels as as_labels
from probml.numerics.process.libraries import pd
from probml.queries import asking
from probml.queries.fitted import Fitted

MAX_BINS = 100_000
STRATEGIES = ("uniform", "quantile")


@dataclass(frozen=True, eq=False)
class Calibration:
    """A calibration report; printed, a table.

    Attributes:
        rows: the number evaluated; labels: the states.
        accuracy: share of rows whose most probable label was right.
        log_score: mean log p(true label), the higher the better; −∞ where a true label had
            probability 0.
        brier: mean Σ_k (p_k − [truth = k])², 0 … 2, the lower the better; of two labels twice
            scikit-learn's.
        ece, ece_classwise: expected calibration error of the top label, and the mean of those of
            each label.
        curve: the reliability curve of the top label, a DataFrame with a row a bin: low, high,
            rows, predicted (mean), observed (share).
        curves: label → the reliability curve of that label against all others.
        strategy: "uniform" (bins of equal width) or "quantile" (of equal numbers of rows).
    """

    rows: int
    labels: tuple
    accuracy: float
    log_score: float
    brier: float
    ece: float
    ece_classwise: float
    curve: "pd.DataFrame"
    curves: "Mapping[Hashable, pd.DataFrame]"
    strategy: str

    def table(self) -> "pd.DataFrame":
        """A row for the top label and each label: rows, mean predicted, observed share, expected
        calibration error."""
        records = {"top label": self.curve, **self.curves}
        columns = ("predicted", "observed")
        means = [{c: float((curve["rows"] * curve[c]).sum() / self.rows) for c in columns}
                 for curve in records.values()]
        errors = [{"ece": _error(curve)} for curve in records.values()]
        return pd.DataFrame([a | b for a, b in zip(means, errors, strict=True)],
                            index=pd.Index(records, name="label"))

    def __str__(self) -> str:
        scores = (f"accuracy {self.accuracy:.4f}, log score {self.log_score:.4f} per row, Brier "
                  f"score {self.brier:.4f}")
        errors = (f"expected calibration error {self.ece:.4f} of the most probable label, "
                  f"{self.ece_classwise:.4f} classwise ({self.strategy} bins)")
        curve_text = self.curve.round(4).to_string(index=False)
        return (f"{counted(self.rows, 'row')}: "
                f"{scores}\n{errors}\n{self.table().round(4).to_string()}\nreliability of the most "
                f"probable label:\n{curve_text}")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        scores = {"accuracy": self.accuracy, "log score per row": self.log_score,
                  "Brier score": self.brier, "calibration error, most probable label": self.ece,
                  "calibration error, classwise": self.ece_classwise}
        return noted(
            table([{"score": name, "value": value} for name, value in scores.items()],
                  f"{counted(self.rows, 'row')}, {self.strategy} bins")
            + picture("reliability", "Reliability of the most probable label",
                      "Each dot is a bin; its size is the number of rows. Calibrated "
                      "probabilities have their dots on the dashed line.", self)
            + table(records_of(self.table()), "labels"))


def calibration(
    truth: object, probabilities: object, labels: Sequence | None = None, *, bins: int = 10,
    strategy: str = "uniform"
) -> Calibration:
    """Evaluate probabilities against the true labels, on rows that were not fitted.

    Args:
        truth: (...,) of `labels`; rows whose truth is missing (NaN, None) are left out.
        probabilities: (..., k), p(state | row); of a table whose columns are the labels, by name.
        labels: of the k states in their order, by default their codes.
        bins: of the curves.
        strategy: "uniform": of equal width; "quantile": of equal numbers of rows, as far as ties
            allow.

    Raises:
        DataError: different lengths, a true value that is no label, none at all, invalid
            probabilities.
        ModelError: bins below 1, an unknown strategy.

    Cost: a sort of n numbers for each label at the most.
    """
    p = distribution(by_label(probabilities, labels), "calibration")
    names = tuple(range(p.shape[-1])) if labels is None else tuple(
        as_labels(labels, "calibration(labels)"))
    if len(names) != p.shape[-1]:
        raise DataError(f"calibration(labels=[{listed(names)}]): expected "
                        f"{counted(p.shape[-1], 'label')}, "
                        "one for each column of probabilities")
    if (not isinstance(bins, int | np.integer) or isinstance(bins, bool)
            or not 1 <= bins <= MAX_BINS):
        raise ModelError(f"calibration(bins={bins!r:.60}): expected an integer from 1 to "
                         f"{MAX_BINS:,}")
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise ModelError(f"calibration(strategy={strategy!r:.80}): expected one of "
                         f"{listed(STRATEGIES)}")
    codes, p = _with_known_truth(truth, p, names)
    n, predicted = len(codes), p.argmax(1)
    correct, one_hot = predicted == codes, np.eye(len(names))[codes]
    curve = _curve(p[np.arange(n), predicted], correct, bins, strategy)
    curves = {name: _curve(p[:, k], one_hot[:, k], bins, strategy) for k, name in enumerate(names)}
    accuracy, log_score, brier = _scores(codes, p, one_hot)
    classwise = float(np.mean([_error(label_curve) for label_curve in curves.values()]))
    return Calibration(n, names, accuracy, log_score, brier, _error(curve), classwise, curve,
                       curves, strategy)


def compute_calibration(fit: Fitted, data: object, site: str | None, plug_in: bool, bins: int,
                        strategy: str) -> Calibration:
    """See Fit.calibration."""
    rows = fit._read(data)
    rows.structure.need_rows("calibration")
    sites = [s for s in fit.structure.sites.values() if s.rows and s.states
             and s.name in rows.table.columns]
    if site is None and not sites:
        raise ModelError("calibration: expected data with observed values of a discrete site of "
                         f"model '{fit.model.name}', but the data contain only "
                         f"{listed(rows.table.columns)}. Add such values. For a continuous site x, "
                         "compare its values with the bounds of predict(data, 'x', interval=0.9)")
    if site is None and len(sites) != 1:
        raise ModelError(f"calibration: the data contain {counted(len(sites), 'discrete site')}, "
                         f"{listed([s.name for s in sites])}. Choose one of them, "
                         f"site='{sites[0].name}'")
    name = fit._checked_row_site(site or sites[0].name)
    column = rows.table.columns.get(name)
    if column is None or column.likelihood is not None:
        raise DataError(f"calibration: expected a column '{name}' of true labels (not of label "
                        f"probabilities), got the columns {listed(rows.table.columns)}. Add the "
                        f"true labels to the data as '{name}'")
    p = asking.answer(fit, rows.without([name]), [("probability", name)], plug_in)[1][
        "probability", name]
    truth = tables.to_labels(column.values, fit.names.get(name)).astype(object)
    if column.observed is not None:
        truth[~column.observed] = None
    return calibration(truth, p, fit.labels(name), bins=bins, strategy=strategy)


def _with_known_truth(truth: object, p: np.ndarray, names: tuple) -> tuple[np.ndarray, np.ndarray]:
    """(codes (n,), probabilities (n, k)) of the rows, or steps, whose true label is known."""
    truth = np.asarray(truth, object)
    if truth.shape != p.shape[:-1]:
        raise DataError("calibration(truth): expected one true label for each row of "
                        f"probabilities, shape {p.shape[:-1]}, got shape {truth.shape}. Give one "
                        "label for each row")
    flat = truth.ravel()
    known = ~pd.isna(flat)
    if not known.any():
        raise DataError("calibration(truth): every true label is missing, so the predictions "
                        "cannot be compared with them. Pass observed labels")
    order = {name: k for k, name in enumerate(names)}
    codes = np.array([order.get(label, -1) for label in flat[known]])
    if (codes < 0).any():
        label = flat[known][np.argmax(codes < 0)]
        raise DataError(f"calibration(truth): a true label is {label!r}, which is not one of the "
                        f"labels. Use the labels {listed(names)}")
    return codes, p.reshape(-1, p.shape[-1])[known]


def _curve(predicted: np.ndarray, outcomes: np.ndarray, bins: int, strategy: str) -> "pd.DataFrame":
    """The bins that have rows; a value on an edge belongs to the lower one, as in scikit-learn's
    calibration_curve."""
    edges = np.linspace(0, 1, bins + 1) if strategy == "uniform" else np.unique(
        np.quantile(predicted, np.linspace(0, 1, bins + 1))
    )
    edges = edges if len(edges) > 1 else np.repeat(edges, 2)
    bin_index = np.searchsorted(edges[1:-1], predicted)
    count = np.bincount(bin_index, minlength=len(edges) - 1)
    nonempty = count > 0
    predicted, observed = (np.bincount(bin_index, values, len(count))[nonempty] / count[nonempty]
                           for values in (predicted, outcomes))
    low, high = edges[:-1][nonempty], edges[1:][nonempty]
    return pd.DataFrame({"low": low, "high": high, "rows": count[nonempty], "predicted": predicted,
                         "observed": observed})


def _error(curve: "pd.DataFrame") -> float:
    return float(
        (curve["rows"] * (curve["observed"] - curve["predicted"]).abs()).sum() / curve["rows"].sum()
    )


def _scores(codes: np.ndarray, p: np.ndarray, one_hot: np.ndarray) -> tuple[float, float, float]:
    with np.errstate(divide="ignore"):
        log_score = np.log(p[np.arange(len(codes)), codes]).mean()
    accuracy, brier = (p.argmax(1) == codes).mean(), ((p - one_hot) ** 2).sum(1).mean()
    return float(accuracy), float(log_score), float(brier)
