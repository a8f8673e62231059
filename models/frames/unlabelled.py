"""Rows without a label in a classifier that models its columns: how much they may count, and
whether they help.

Where the model of the columns is wrong, many unlabelled rows pull the classes onto clusters that
are not the classes. Their weight is the remedy (Nigam et al. 2000, "Text classification from
labeled and unlabeled documents using EM", section 5.1: λ), and the judge is the log score of labels
that were held out, log p(y | x), in parts of the labelled rows.
"""

import warnings
from collections.abc import Callable, Mapping

import numpy as np

from probml import DataError, Fit, ModelError
from probml.estimators.rules import number
from probml.typing import SiteValues

FOLDS = 5
ROWS = 5000  # rows that the comparison looks at, at the most
WEIGHTS = (0.0, 0.01, 0.1, 0.3, 1.0)  # tried by "auto", and to name one that helps
DOUBT = 1.5  # standard errors of the mean difference from which a loss is said
MIN_LOSS_PER_LABEL = 0.02  # nats a label below which no loss is said

WEIGHT = (
    "a number of at least 0, or 'auto'",
    lambda v: v == "auto" if isinstance(v, str) else number(0.0)[1](v),
)


class PartlyLabelled:
    """A classifier whose labels may be seen in part, with the setting `unlabelled_weight`."""

    # of the classifier
    unlabelled_weight: float | str
    notes_: list[str]
    _infer: Callable[..., Fit]

    def _solve(self, model, data: SiteValues, weights, start: Mapping,
               complete: bool) -> Fit:
        """The fit, its unlabelled rows at their weight; a warning where they make held-out labels
        less probable."""
        if complete:
            return self._infer(model, data, weights, start, complete)
        asked = self.unlabelled_weight
        judge = _Judge(self, model, data, weights, start)
        if asked == "auto":
            scores = {weight: judge.score(weight) for weight in WEIGHTS}
            able = {weight: score.mean() for weight, score in scores.items() if score is not None}
            chosen = max(able, key=able.__getitem__) if able else 1.0
            how = (f"chosen by the log score of held-out labels ({able[chosen]:.3f} per label)"
                   if able else "because there are too few labels to choose it")
            self.notes_.append(f"unlabelled_weight={chosen:g}, {how}")
        else:
            chosen = float(asked)
        fit = judge.fit(np.arange(judge.rows), judge.codes, chosen)
        if asked != "auto" and chosen > 0:
            self._say(judge, chosen)
        self.unlabelled_weight_ = chosen
        return fit

    def _say(self, judge: "_Judge", weight: float) -> None:
        with_them, alone = judge.score(weight), judge.score(0.0)
        if with_them is None or alone is None:
            return
        lost = alone - with_them
        error = lost.std() / np.sqrt(len(lost))
        if lost.mean() < MIN_LOSS_PER_LABEL or lost.mean() < DOUBT * error:
            return
        able = {other: judge.score(other) for other in WEIGHTS if other < weight}
        means = {other: score.mean() for other, score in able.items() if score is not None}
        best = max(means, key=means.__getitem__)
        text = (
            f"unlabelled rows ({int(judge.hidden.sum())}) lower the log-likelihood of held-out "
            f"labels by {lost.mean():.2g} per label ({with_them.mean():.3f} with the unlabelled "
            f"rows, {alone.mean():.3f} without). The clusters of the rows may differ from the "
            f"classes. With unlabelled_weight={best:g} the log-likelihood is "
            f"{means[best]:.3f} per label"
        )
        self.notes_.append(text)
        warnings.warn(f"{type(self).__name__}: {text}. Use this weight, or "
                      "unlabelled_weight='auto'", UserWarning,
                      stacklevel=6)


class _Judge:
    """Fits to parts of the rows, and the log scores of the labels that were held out."""

    def __init__(self, estimator, model, data: SiteValues, weights, start: Mapping):
        self.estimator, self.model, self.data, self.start = estimator, model, data, start
        self.codes = np.asarray(data[estimator._target], float)
        self.rows, self.hidden = len(self.codes), np.isnan(self.codes)
        self.weights = np.ones(self.rows) if weights is None else np.asarray(weights, float)
        self.weighted = weights is not None
        self.within = {name for name, site in model.structure.nodes(data=True) if site["rows"]}
        self.known: dict[float, np.ndarray | None] = {}

    def fit(self, rows: np.ndarray, codes: np.ndarray, weight: float) -> Fit:
        """The fit to some rows with these labels; of weight 0, without the unlabelled ones."""
        if weight == 0:
            rows = rows[~np.isnan(codes[rows])]
        mine, complete = codes[rows], not np.isnan(codes[rows]).any()
        data = {name: np.asarray(value)[rows] if name in self.within else value
                for name, value in self.data.items()}
        data[self.estimator._target] = mine.astype(int) if complete else mine
        weights = self.weights[rows] * np.where(np.isnan(mine), weight, 1.0)
        plain = not self.weighted and (weight == 1 or complete)
        return self.estimator._infer(self.model, data, None if plain else weights, self.start,
                                     complete)

    def score(self, weight: float) -> np.ndarray | None:
        """log p(label | columns) of the labelled rows, each predicted by a fit without its label;
        None where it cannot be had."""
        if weight not in self.known:
            try:
                self.known[weight] = self._score(weight)
            # a part that cannot be fitted, as with a class of too few rows
            except (ModelError, DataError, ValueError):
                self.known[weight] = None
        return self.known[weight]

    def _score(self, weight: float) -> np.ndarray | None:
        counts = np.bincount(self.codes[~self.hidden].astype(int),
                             minlength=len(self.estimator.classes_))
        parts = min(FOLDS, int(counts.min()))
        engine = self.estimator.engine
        if parts < 2 or engine is not None and engine.capabilities.finds != "point":
            return None
        random = np.random.default_rng(0)
        some = np.sort(random.permutation(self.rows)[:ROWS])
        if len(some) < self.rows and np.bincount(self.codes[some][~self.hidden[some]].astype(int),
                                                 minlength=len(counts)).min() < parts:
            return None
        labelled = some[~self.hidden[some]]
        part = np.empty(len(labelled), int)
        mixed = random.permutation(len(labelled))
        # stratified: every class is dealt out in turn
        order = mixed[np.argsort(self.codes[labelled][mixed], kind="stable")]
        part[order] = np.arange(len(labelled)) % parts
        out = np.empty(len(labelled))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a part that did not converge
            for i in range(parts):
                test = labelled[part == i]
                codes = self.codes.copy()
                codes[test] = np.nan  # the row stays, unlabelled, as a new one would
                kept = some if weight > 0 else np.setdiff1d(some, test)
                fit = self.fit(kept, codes, weight)
                asked = {name: np.asarray(self.data[name])[test]
                         for name in self.within & set(self.data) if name != self.estimator._target}
                p = fit.predict_proba(asked, self.estimator._target,
                                      plug_in=self.estimator._averages())
                out[part == i] = np.log(
                    np.maximum(p[np.arange(len(test)), self.codes[test].astype(int)], 1e-12)
                )
        return out
