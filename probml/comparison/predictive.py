"""Predictive comparison of fits and scikit-learn estimators: one site is predicted from all other
cells of the row, by the same folds.

    log score = 1/n Σ log p(y | all other cells of the row, the training rows)

A generative model has p(y | x) = p(x, y) / p(x), a discriminative one p(y | x) at once, an
estimator its predict_proba, so that on this scale all are comparable, while their joint likelihoods
are not.

Sources: Gneiting & Raftery (2007) for log and Brier scores; Vehtari, Gelman & Gabry (2017) for
    paired differences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from probml.assessment import reports
from probml.comparison.contestants import (
    ComparedFit,
    as_codes,
    checked,
    mean_over_folds,
    refit,
    rows_of_each,
    splits_of,
    warn_of_failed,
)
from probml.dataset.arrays import missing
from probml.dataset.frames import as_pandas, is_table, names_of
from probml.engines.engine import Engine
from probml.errors import DataError, ModelError, counted, listed, type_of
from probml.interface.fit import Fit
from probml.numerics.process.libraries import pd
from probml.typing import DataLike, FitOrEstimator

FOLDS = 5
# score → whether greater is better
DISCRETE = {"log_score": True, "accuracy": True, "brier": False}
CONTINUOUS = {"log_score": True, "rmse": False}


class Answer(NamedTuple):
    """The predictions of a model for test rows."""

    value: np.ndarray  # (n,) labels, or numbers
    probabilities: np.ndarray | None = None  # (n, k) of a discrete target
    labels: Sequence | np.ndarray = ()  # of the k columns
    density: np.ndarray | None = None  # (n,) log p(truth), of a continuous target
    why: str | None = None  # there is neither


@dataclass(frozen=True)
class _Predictor(ComparedFit):
    """A Fit, refitted to each training part by its own engine, also to rows whose target is
    missing."""

    target: str = ""

    @property
    def discrete(self) -> bool:
        return self.fit.structure.sites[self.target].states is not None

    def answer(self, train: np.ndarray, test: np.ndarray, seed: int) -> Answer:
        fit = refit(self.fit, self.held.taken(train), self.engine, seed)
        shown, losses = as_codes(self.held.taken(test)), fit.structure.losses
        blind = {**shown, self.target: np.full(len(test), np.nan)}
        why = f"the model has a loss ('{losses[0]}') and no likelihood" if losses else None
        if not self.discrete:
            density = None if losses else fit.log_prob(shown) - fit.log_prob(blind)
            return Answer(np.asarray(fit.predict(blind, self.target)), density=density, why=why)
        labels = np.fromiter(self.fit.labels(self.target), object)
        if losses:
            return Answer(labels[np.asarray(fit.predict(blind, self.target), int)], why=why)
        p = np.asarray(fit.predict_proba(blind, self.target), float)
        return Answer(labels[p.argmax(1)], p, labels)


@dataclass(frozen=True)
class _ComparedEstimator:
    """An estimator, of scikit-learn or this library: cloned, and fitted to the labelled rows of
    each training part."""

    name: str
    estimator: object
    rows: DataLike  # DataFrame or array, without the target
    truth: np.ndarray

    @property
    def discrete(self) -> bool:
        from sklearn.base import is_classifier

        return is_classifier(self.estimator)

    def answer(self, train: np.ndarray, test: np.ndarray, seed: int) -> Answer:
        from sklearn.base import clone

        def at(index: np.ndarray):
            return self.rows.iloc[index] if hasattr(self.rows, "iloc") else self.rows[index]

        what = type(self.estimator).__name__
        train = train[~missing(self.truth[train])]
        try:
            estimator = clone(self.estimator).fit(at(train), np.array(self.truth[train].tolist()))
            value = np.asarray(estimator.predict(at(test)))
        except ValueError as error:
            raise ModelError(f"fitting {what} to the training rows, or predicting the test rows, "
                             f"failed: {error}. Call its fit and predict on these rows to find the "
                             "cause") from error
        if not self.discrete:
            if not hasattr(estimator, "log_prob"):
                return Answer(value, why=f"{what} has no method log_prob(X, y), which returns log "
                              f"densities")
            found = estimator.log_prob(at(test), self.truth[test].astype(float))
            return Answer(value, density=np.asarray(found))
        if not hasattr(estimator, "predict_proba"):
            return Answer(value, why=f"{what} has no method predict_proba, which returns class "
                          f"probabilities")
        probabilities = np.asarray(estimator.predict_proba(at(test)), float)
        return Answer(value, probabilities, estimator.classes_)


def predictions(fits: Mapping[str, FitOrEstimator], data: object, target: str, folds: object,
                engines: Mapping[str, Engine], seed: int) -> "pd.DataFrame":
    """See probml.compare, `target`."""
    contestants, truth = _contestants(fits, data, target, engines)
    kinds = {name: contestant.discrete for name, contestant in contestants.items()}
    if len(set(kinds.values())) > 1:
        one, other = (next(name for name, kind in kinds.items() if kind is wanted)
                      for wanted in (True, False))
        raise ModelError(f"compare(target='{target}'): '{one}' predicts '{target}' as a class and "
                         f"'{other}' as a number. Compare only classifiers, or only regressions")
    discrete = next(iter(kinds.values()))
    known = np.flatnonzero(~missing(truth))
    if len(known) < 2:
        raise DataError(f"compare(target='{target}'): '{target}' is observed in {len(known)} of "
                        f"{counted(len(truth), 'row')}, but at least 2 are needed. Give more rows "
                        f"with values of '{target}'")
    others = np.setdiff1d(np.arange(len(truth)), known)
    splits = _splits(truth, known, others, folds, discrete, seed)
    scores, plain = (DISCRETE, "accuracy") if discrete else (CONTINUOUS, "rmse")
    if discrete:
        _refuse_absent(truth, splits, target)
    terms: dict[str, dict[str, np.ndarray]] = {}
    failed: dict[str, str] = {}
    lacking: dict[str, dict[str, str]] = {}
    for name, contestant in contestants.items():
        try:
            terms[name], why = _terms(contestant, truth, splits, seed)
            lacking[name] = {} if why is None else dict.fromkeys(
                [score for score in scores if score != plain], why)
        except (ModelError, DataError) as error:
            failed[name] = str(error)
            lacking[name] = dict.fromkeys(scores, str(error))
    warn_of_failed("compare", failed, contestants)
    table = _table(terms, scores, truth)
    scored = int(max((np.isfinite(t).sum() for each in terms.values() for t in each.values()),
                     default=0))
    # a model that could not be evaluated at all does not affect the criterion
    alive = table.notna().any(axis=1)
    criterion = next((score for score in scores if table[score][alive].notna().all()), plain)
    table = table.sort_values(criterion, ascending=not scores[criterion], kind="stable")
    notes = [f"'{target}' is missing in {counted(len(others), 'row')}. Models of probml were "
             "fitted with these rows, estimators without them"] if len(others) else []
    reasons = {name: why for name, why in lacking.items() if why}
    table.attrs |= {"criterion": criterion, "rows": scored, "target": target, "folds": len(splits),
                    "missing": reasons, "notes": notes}
    return table


def _splits(truth: np.ndarray, known: np.ndarray, others: np.ndarray, folds: object, discrete: bool,
            seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and test rows of every fold: rows without the target are never test rows."""
    if folds is None or isinstance(folds, int | np.integer) or hasattr(folds, "split"):
        found = splits_of(FOLDS if folds is None else folds, len(known), seed,
                          truth[known] if discrete else None)
        return [(np.concatenate([known[train], others]), known[test]) for train, test in found]
    return [(train, np.intersect1d(test, known))
            for train, test in splits_of(folds, len(truth), seed)]


# Who is compared


def _contestants(fits: object, data: object, target: str,
                 engines: Mapping[str, Engine]) -> tuple[dict[str, Any], np.ndarray]:
    fits = checked(fits, engines)
    if data is None:
        raise ModelError(f"compare(target='{target}'): the data are missing. Pass data with the "
                         f"column '{target}'")
    out, first, truth = {}, None, np.empty(0)
    for name, rows in rows_of_each(fits, data).items():
        mine = _truth(rows, target, name)
        if first is None:
            first, truth = name, mine
        elif len(mine) != len(truth) or not (
                (mine == truth) | missing(mine) & missing(truth)).all():
            raise DataError(f"compare(target='{target}'): '{first}' and '{name}' were fitted to "
                            f"different rows, or to different values of '{target}'. Fit all models "
                            f"to the same rows")
        out[name] = _contestant(str(name), fits[name], rows, target, mine, engines.get(name))
    return out, truth


def _contestant(name: str, given: object, rows: object, target: str, truth: np.ndarray,
                engine: Engine | None) -> Any:
    if isinstance(given, Fit):
        site = given.structure.sites.get(target)
        if site is None or not site.rows or site.factor or site.cells:
            what = ("is not a site" if site is None else "has several values per row" if site.rows
                    else "is sampled outside rows()")
            raise ModelError(f"compare(target='{target}'): expected a site with one value per row, "
                             f"but '{target}' {what} in model '{given.model.name}' of '{name}'. "
                             "Choose another target")
        return _Predictor(name, given, reports.own_data(given, rows, f"compare('{name}')"),
                          engine, target)
    try:
        from sklearn.base import is_classifier, is_regressor
    except ModuleNotFoundError as error:
        raise ModelError(f"compare(fits): expected a Fit for '{name}', got {type_of(given)}. "
                         f"Estimators can be compared only if scikit-learn is installed ({error}). "
                         "Install it: pip install 'probml[sklearn]'") from None
    if isinstance(given, type) or not hasattr(given, "get_params") or not (is_classifier(given)
                                                                           or is_regressor(given)):
        what = f"the class {given.__name__}" if isinstance(given, type) else type_of(given)
        raise ModelError(
            "compare(fits): expected a Fit, or a classifier or regressor with the interface of "
            f"scikit-learn, for '{name}', got {what}. Pass an object, such as LogisticRegression()"
        )
    return _ComparedEstimator(name, given, _columns(rows, target, name), truth)


def _truth(rows: DataLike, target: str, name: str) -> np.ndarray:
    """The target of every row, (n,) objects, None or NaN where missing."""
    names = list(rows) if isinstance(rows, Mapping) else names_of(rows)
    if target not in names:
        raise DataError(f"compare(target='{target}'): the data of '{name}' have no column "
                        f"'{target}', which is to be predicted. Add it, or choose one of the "
                        f"columns, {listed(names)}")
    values = rows[target]
    values = (values.to_numpy(dtype=object, na_value=None) if hasattr(values, "na_value")
              or hasattr(values, "iloc") else np.asarray(values))
    if values.ndim != 1:
        raise DataError(f"compare(target='{target}'): expected a site with one value per row, "
                        f"shape (n,), got shape {values.shape}. Choose another target")
    return values.astype(object)


def _columns(rows: DataLike, target: str, name: str) -> DataLike:
    """All columns but the target, as X: a table as it is; one array of numbers, or several
    concatenated; a table among them keeps the names and dtypes of its columns."""
    rows = as_pandas(rows)
    if hasattr(rows, "columns"):
        return rows.drop(columns=[target])
    given = {site: as_pandas(values) for site, values in rows.items() if site != target}
    arrays = {site: np.asarray(values) for site, values in given.items()}
    if not arrays:
        raise DataError(f"compare: the data of '{name}' have only the column '{target}'. Add the "
                        f"columns from which '{target}' is to be predicted")
    n = len(np.asarray(rows[target]))
    odd = next((site for site, array in arrays.items() if array.ndim < 1 or len(array) != n), None)
    if odd is not None:
        raise DataError(f"compare: in the data of '{name}', '{odd}' has shape {arrays[odd].shape}, "
                        f"but '{target}' has {counted(n, 'row')}. Give both the same number of "
                        "rows")
    flat = {site: array.reshape(n, -1) for site, array in arrays.items()}
    tables = {site: value for site, value in given.items() if is_table(value)}
    if not tables and all(array.dtype.kind in "fiub" for array in flat.values()):
        return np.concatenate(list(flat.values()), 1)
    parts: dict[str, Any] = {}
    for site, array in flat.items():
        named = ({str(label): tables[site][label].array for label in tables[site].columns}
                 if site in tables else
                 {f"{site}{j}" if array.shape[1] > 1 else site: array[:, j]
                  for j in range(array.shape[1])})
        parts |= {f"{site}.{label}" if label in parts else label: column
                  for label, column in named.items()}
    return pd.DataFrame(parts)


def _refuse_absent(truth: np.ndarray, splits: list, target: str) -> None:
    for fold, (train, test) in enumerate(splits):
        for label in dict.fromkeys(truth[test]):
            if not (truth[train] == label).any():
                count = int((truth == label).sum())
                raise DataError(
                    f"compare(folds=...): class {label!r} of '{target}' ({counted(count, 'row')}) "
                    f"is in the test rows of fold {fold} but in none of its training rows. No "
                    "model can predict this class. Use fewer folds or stratified folds, or drop "
                    "the class"
                )


# Numbers


def _terms(contestant: Any, truth: np.ndarray, splits: list,
           seed: int) -> tuple[dict[str, np.ndarray], str | None]:
    """Score → its terms, (n,), as of `mean_over_folds`, and why some are missing."""
    answers = [contestant.answer(train, test, seed) for train, test in splits]
    scores = [_scores(answer, truth[test], contestant.discrete)
              for answer, (_, test) in zip(answers, splits, strict=True)]
    why = next((answer.why for answer in answers if answer.why), None)
    return mean_over_folds(splits, len(truth), scores), why


def _scores(answer: Answer, truth: np.ndarray, discrete: bool) -> dict[str, np.ndarray]:
    if not discrete:
        out = {"rmse": (answer.value.astype(float) - truth.astype(float)) ** 2}
        return out if answer.density is None else {"log_score": answer.density, **out}
    out = {"accuracy": np.array([a == b for a, b in zip(answer.value, truth, strict=True)], float)}
    if answer.probabilities is None:
        return out
    order = {label: k for k, label in enumerate(answer.labels)}
    at = np.array([order.get(label, -1) for label in truth])
    # a label that a model does not know has probability 0 there
    p, right = answer.probabilities, at >= 0
    own = np.where(right, p[np.arange(len(at)), at], 0.0)
    with np.errstate(divide="ignore"):
        return {"log_score": np.log(own), **out, "brier": (p**2).sum(1) - 2 * own + 1}


def _table(terms: Mapping[str, Mapping[str, np.ndarray]], scores: Mapping[str, bool],
           truth: np.ndarray) -> "pd.DataFrame":
    names = [column for score in scores for column in (score, f"se_{score}", f"{score}_diff",
                                                       f"se_{score}_diff")]
    table = pd.DataFrame(np.nan, index=pd.Index(terms, name="model"),
                         columns=[*names, *(["r2"] if "rmse" in scores else [])])
    for score, greater in scores.items():
        each = pd.DataFrame({name: found[score] for name, found in terms.items() if score in found})
        if each.empty:
            continue
        mean = each.mean()
        if score == "rmse":  # its root; terms by the derivative of the root
            scored = each.notna().all(axis=1).to_numpy()
            spread = float(np.var(truth[scored].astype(float)))
            table.loc[mean.index, "r2"] = 1 - mean / spread if spread > 0 else np.nan
            mean = mean**0.5
            each = each / (2 * mean.clip(lower=np.finfo(float).tiny))
        best = mean.idxmax() if greater else mean.idxmin()
        with np.errstate(invalid="ignore"):
            away, difference = each.sub(each[best], axis=0), mean - mean[best]
            away[best] = difference[best] = 0.0
            errors = [np.sqrt(part.var(ddof=0) / each.count()) for part in (each, away)]
        own = [score, f"se_{score}", f"{score}_diff", f"se_{score}_diff"]
        table.loc[mean.index, own] = np.stack([mean, errors[0], difference, errors[1]], 1)
    return table
