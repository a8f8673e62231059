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
        setting = self.unlabelled_weight
        judge = _Judge(self, model, data, weights, start)
        if setting == "auto":
            scores = {weight: judge.score(weight) for weight in WEIGHTS}
            means = {weight: score.mean() for weight, score in scores.items() if score is not None}
            chosen = max(means, key=means.__getitem__) if means else 1.0
            reason = (f"chosen by the log score of held-out labels ({means[chosen]:.3f} per label)"
                      if means else "because there are too few labels to choose it")
            self.notes_.append(f"unlabelled_weight={chosen:g}, {reason}")
        else:
            chosen = float(setting)
        fit = judge.fit(np.arange(judge.rows), judge.codes, chosen)
        if setting != "auto" and chosen > 0:
            self._say(judge, chosen)
        self.unlabelled_weight_ = chosen
        return fit

    def _say(self, judge: "_Judge", weight: float) -> None:
        with_them, without = judge.score(weight), judge.score(0.0)
        if with_them is None or without is None:
            return
        losses = without - with_them
        error = losses.std() / np.sqrt(len(losses))
        if losses.mean() < MIN_LOSS_PER_LABEL or losses.mean() < DOUBT * error:
            return
        scores = {other: judge.score(other) for other in WEIGHTS if other < weight}
        means = {other: score.mean() for other, score in scores.items() if score is not None}
        best = max(means, key=means.__getitem__)
        text = (
            f"unlabelled rows ({int(judge.is_missing.sum())}) lower the log-likelihood of held-out "
            f"labels by {losses.mean():.2g} per label ({with_them.mean():.3f} with the unlabelled "
            f"rows, {without.mean():.3f} without). The clusters of the rows may differ from the "
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
        self.rows, self.is_missing = len(self.codes), np.isnan(self.codes)
        self.weights = np.ones(self.rows) if weights is None else np.asarray(weights, float)
        self.weighted = weights is not None
        self.within = {name for name, site in model.structure.nodes(data=True) if site["rows"]}
        self.known: dict[float, np.ndarray | None] = {}

    def fit(self, rows: np.ndarray, codes: np.ndarray, weight: float) -> Fit:
        """The fit to some rows with these labels; of weight 0, without the unlabelled ones."""
        if weight == 0:
            rows = rows[~np.isnan(codes[rows])]
        labels, complete = codes[rows], not np.isnan(codes[rows]).any()
        data = {name: np.asarray(value)[rows] if name in self.within else value
                for name, value in self.data.items()}
        data[self.estimator._target] = labels.astype(int) if complete else labels
        weights = self.weights[rows] * np.where(np.isnan(labels), weight, 1.0)
        unweighted = not self.weighted and (weight == 1 or complete)
        return self.estimator._infer(self.model, data, None if unweighted else weights, self.start,
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
        counts = np.bincount(self.codes[~self.is_missing].astype(int),
                             minlength=len(self.estimator.classes_))
        n_folds = min(FOLDS, int(counts.min()))
        engine = self.estimator.engine
        if n_folds < 2 or engine is not None and engine.capabilities.finds != "point":
            return None
        random = np.random.default_rng(0)
        rows = np.sort(random.permutation(self.rows)[:ROWS])
        codes = self.codes[rows][~self.is_missing[rows]].astype(int)
        if len(rows) < self.rows and np.bincount(codes, minlength=len(counts)).min() < n_folds:
            return None
        labelled = rows[~self.is_missing[rows]]
        fold_of = np.empty(len(labelled), int)
        shuffled = random.permutation(len(labelled))
        # stratified: every class is dealt out in turn
        order = shuffled[np.argsort(self.codes[labelled][shuffled], kind="stable")]
        fold_of[order] = np.arange(len(labelled)) % n_folds
        log_scores = np.empty(len(labelled))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a part that did not converge
            for i in range(n_folds):
                test = labelled[fold_of == i]
                codes = self.codes.copy()
                codes[test] = np.nan  # the row stays, unlabelled, as a new one would
                train = rows if weight > 0 else np.setdiff1d(rows, test)
                fit = self.fit(train, codes, weight)
                query = {name: np.asarray(self.data[name])[test]
                         for name in self.within & set(self.data) if name != self.estimator._target}
                probs = fit.predict_proba(query, self.estimator._target,
                                          plug_in=self.estimator._averages())
                log_scores[fold_of == i] = np.log(
                    np.maximum(probs[np.arange(len(test)), self.codes[test].astype(int)], 1e-12)
                )
        return log_scores
