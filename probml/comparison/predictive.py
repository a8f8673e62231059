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
    reason: str | None = None  # there is neither


@dataclass(frozen=True)
class _Predictor(ComparedFit):
    """A Fit, refitted to each training part by its own engine, also to rows whose target is
    missing."""

    target: str = ""

    @property
    def discrete(self) -> bool:
        return self.fit.structure.sites[self.target].states is not None

    def answer(self, train: np.ndarray, test: np.ndarray, seed: int) -> Answer:
        fit = refit(self.fit, self.data.taken(train), self.engine, seed)
        observed, losses = as_codes(self.data.taken(test)), fit.structure.losses
        masked = {**observed, self.target: np.full(len(test), np.nan)}
        why = f"the model has a loss ('{losses[0]}') and no likelihood" if losses else None
        if not self.discrete:
            density = None if losses else fit.log_prob(observed) - fit.log_prob(masked)
            return Answer(np.asarray(fit.predict(masked, self.target)), density=density, reason=why)
        labels = np.fromiter(self.fit.labels(self.target), object)
        if losses:
            return Answer(labels[np.asarray(fit.predict(masked, self.target), int)], reason=why)
        p = np.asarray(fit.predict_proba(masked, self.target), float)
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

        kind = type(self.estimator).__name__
        train = train[~missing(self.truth[train])]
        try:
            estimator = clone(self.estimator).fit(at(train), np.array(self.truth[train].tolist()))
            value = np.asarray(estimator.predict(at(test)))
        except ValueError as error:
            raise ModelError(f"fitting {kind} to the training rows, or predicting the test rows, "
                             f"failed: {error}. Call its fit and predict on these rows to find the "
                             "cause") from error
        if not self.discrete:
            if not hasattr(estimator, "log_prob"):
                return Answer(value,
                              reason=f"{kind} has no method log_prob(X, y), which returns log "
                              f"densities")
            log_density = estimator.log_prob(at(test), self.truth[test].astype(float))
            return Answer(value, density=np.asarray(log_density))
        if not hasattr(estimator, "predict_proba"):
            return Answer(value, reason=f"{kind} has no method predict_proba, which returns class "
                          f"probabilities")
        probabilities = np.asarray(estimator.predict_proba(at(test)), float)
        return Answer(value, probabilities, estimator.classes_)


def predictions(fits: Mapping[str, FitOrEstimator], data: object, target: str, folds: object,
                engines: Mapping[str, Engine], seed: int) -> "pd.DataFrame":
    """See probml.compare, `target`."""
    contestants, truth = _contestants(fits, data, target, engines)
    kinds = {name: contestant.discrete for name, contestant in contestants.items()}
    if len(set(kinds.values())) > 1:
        one, other = (next(name for name, kind in kinds.items() if kind is is_class)
                      for is_class in (True, False))
        raise ModelError(f"compare(target='{target}'): '{one}' predicts '{target}' as a class and "
                         f"'{other}' as a number. Compare only classifiers, or only regressions")
    discrete = next(iter(kinds.values()))
    with_y = np.flatnonzero(~missing(truth))
    if len(with_y) < 2:
        raise DataError(f"compare(target='{target}'): '{target}' is observed in {len(with_y)} of "
                        f"{counted(len(truth), 'row')}, but at least 2 are needed. Give more rows "
                        f"with values of '{target}'")
    no_y = np.setdiff1d(np.arange(len(truth)), with_y)
    splits = _splits(truth, with_y, no_y, folds, discrete, seed)
    scores, fallback = (DISCRETE, "accuracy") if discrete else (CONTINUOUS, "rmse")
    if discrete:
        _refuse_absent(truth, splits, target)
    terms: dict[str, dict[str, np.ndarray]] = {}
    failed: dict[str, str] = {}
    reasons_for: dict[str, dict[str, str]] = {}
    for name, contestant in contestants.items():
        try:
            terms[name], why = _terms(contestant, truth, splits, seed)
            reasons_for[name] = {} if why is None else dict.fromkeys(
                [score for score in scores if score != fallback], why)
        except (ModelError, DataError) as error:
            failed[name] = str(error)
            reasons_for[name] = dict.fromkeys(scores, str(error))
    warn_of_failed("compare", failed, contestants)
    table = _table(terms, scores, truth)
    scored = int(max((np.isfinite(t).sum() for each in terms.values() for t in each.values()),
                     default=0))
    # a model that could not be evaluated at all does not affect the criterion
    evaluated = table.notna().any(axis=1)
    criterion = next((score for score in scores if table[score][evaluated].notna().all()), fallback)
    table = table.sort_values(criterion, ascending=not scores[criterion], kind="stable")
    notes = [f"'{target}' is missing in {counted(len(no_y), 'row')}. Models of probml were "
             "fitted with these rows, estimators without them"] if len(no_y) else []
    reasons = {name: why for name, why in reasons_for.items() if why}
    table.attrs |= {"criterion": criterion, "rows": scored, "target": target, "folds": len(splits),
                    "missing": reasons, "notes": notes}
    return table


def _splits(truth: np.ndarray, with_y: np.ndarray, no_y: np.ndarray, folds: object, discrete: bool,
            seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and test rows of every fold: rows without the target are never test rows."""
    if folds is None or isinstance(folds, int | np.integer) or hasattr(folds, "split"):
        splits = splits_of(FOLDS if folds is None else folds, len(with_y), seed,
                           truth[with_y] if discrete else None)
        return [(np.concatenate([with_y[train], no_y]), with_y[test]) for train, test in splits]
    return [(train, np.intersect1d(test, with_y))
            for train, test in splits_of(folds, len(truth), seed)]


# Who is compared


def _contestants(fits: object, data: object, target: str,
                 engines: Mapping[str, Engine]) -> tuple[dict[str, Any], np.ndarray]:
    fits = checked(fits, engines)
    if data is None:
        raise ModelError(f"compare(target='{target}'): the data are missing. Pass data with the "
                         f"column '{target}'")
    contestants, first, truth = {}, None, np.empty(0)
    for name, rows in rows_of_each(fits, data).items():
        y = _truth(rows, target, name)
        if first is None:
            first, truth = name, y
        elif len(y) != len(truth) or not (
                (y == truth) | missing(y) & missing(truth)).all():
            raise DataError(f"compare(target='{target}'): '{first}' and '{name}' were fitted to "
                            f"different rows, or to different values of '{target}'. Fit all models "
                            f"to the same rows")
        contestants[name] = _contestant(str(name), fits[name], rows, target, y, engines.get(name))
    return contestants, truth


def _contestant(name: str, model: object, rows: object, target: str, truth: np.ndarray,
                engine: Engine | None) -> Any:
    if isinstance(model, Fit):
        site = model.structure.sites.get(target)
        if site is None or not site.rows or site.factor or site.cells:
            what = ("is not a site" if site is None else "has several values per row" if site.rows
                    else "is sampled outside rows()")
            raise ModelError(f"compare(target='{target}'): expected a site with one value per row, "
                             f"but '{target}' {what} in model '{model.model.name}' of '{name}'. "
                             "Choose another target")
        return _Predictor(name, model, reports.own_data(model, rows, f"compare('{name}')"),
                          engine, target)
    try:
        from sklearn.base import is_classifier, is_regressor
    except ModuleNotFoundError as error:
        raise ModelError(f"compare(fits): expected a Fit for '{name}', got {type_of(model)}. "
                         f"Estimators can be compared only if scikit-learn is installed ({error}). "
                         "Install it: pip install 'probml[sklearn]'") from None
    if isinstance(model, type) or not hasattr(model, "get_params") or not (is_classifier(model)
                                                                           or is_regressor(model)):
        what = f"the class {model.__name__}" if isinstance(model, type) else type_of(model)
        raise ModelError(
            "compare(fits): expected a Fit, or a classifier or regressor with the interface of "
            f"scikit-learn, for '{name}', got {what}. Pass an object, such as LogisticRegression()"
        )
    return _ComparedEstimator(name, model, _columns(rows, target, name), truth)


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
    sources = {site: as_pandas(values) for site, values in rows.items() if site != target}
    arrays = {site: np.asarray(values) for site, values in sources.items()}
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
    tables = {site: value for site, value in sources.items() if is_table(value)}
    if not tables and all(array.dtype.kind in "fiub" for array in flat.values()):
        return np.concatenate(list(flat.values()), 1)
    columns: dict[str, Any] = {}
    for site, array in flat.items():
        part = ({str(label): tables[site][label].array for label in tables[site].columns}
                if site in tables else
                {f"{site}{j}" if array.shape[1] > 1 else site: array[:, j]
                 for j in range(array.shape[1])})
        columns |= {f"{site}.{label}" if label in columns else label: column
                    for label, column in part.items()}
    return pd.DataFrame(columns)


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
    why = next((answer.reason for answer in answers if answer.reason), None)
    return mean_over_folds(splits, len(truth), scores), why


def _scores(answer: Answer, truth: np.ndarray, discrete: bool) -> dict[str, np.ndarray]:
    if not discrete:
        out = {"rmse": (answer.value.astype(float) - truth.astype(float)) ** 2}
        return out if answer.density is None else {"log_score": answer.density, **out}
    out = {"accuracy": np.array([a == b for a, b in zip(answer.value, truth, strict=True)], float)}
    if answer.probabilities is None:
        return out
    order = {label: k for k, label in enumerate(answer.labels)}
    codes = np.array([order.get(label, -1) for label in truth])
    # a label that a model does not know has probability 0 there
    p, is_known = answer.probabilities, codes >= 0
    p_truth = np.where(is_known, p[np.arange(len(codes)), codes], 0.0)
    with np.errstate(divide="ignore"):
        return {"log_score": np.log(p_truth), **out, "brier": (p**2).sum(1) - 2 * p_truth + 1}


def _table(terms: Mapping[str, Mapping[str, np.ndarray]], scores: Mapping[str, bool],
           truth: np.ndarray) -> "pd.DataFrame":
    names = [column for score in scores for column in (score, f"se_{score}", f"{score}_diff",
                                                       f"se_{score}_diff")]
    table = pd.DataFrame(np.nan, index=pd.Index(terms, name="model"),
                         columns=[*names, *(["r2"] if "rmse" in scores else [])])
    for score, greater in scores.items():
        rows = pd.DataFrame({name: found[score] for name, found in terms.items() if score in found})
        if rows.empty:
            continue
        mean = rows.mean()
        if score == "rmse":  # its root; terms by the derivative of the root
            scored = rows.notna().all(axis=1).to_numpy()
            variance = float(np.var(truth[scored].astype(float)))
            table.loc[mean.index, "r2"] = 1 - mean / variance if variance > 0 else np.nan
            mean = mean**0.5
            rows = rows / (2 * mean.clip(lower=np.finfo(float).tiny))
        best = mean.idxmax() if greater else mean.idxmin()
        with np.errstate(invalid="ignore"):
            differences, difference = rows.sub(rows[best], axis=0), mean - mean[best]
            differences[best] = difference[best] = 0.0
            errors = [np.sqrt(part.var(ddof=0) / rows.count()) for part in (rows, differences)]
        columns = [score, f"se_{score}", f"{score}_diff", f"se_{score}_diff"]
        table.loc[mean.index, columns] = np.stack([mean, errors[0], difference, errors[1]], 1)
    return table
