"""Common rows and splits for all models of a comparison, and refits."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from probml.dataset import dataset
from probml.engines.engine import Engine, Status
from probml.engines.ladder import parse_engine
from probml.errors import ModelError, Refusal, counted, listed
from probml.interface.fit import Fit
from probml.interface.model import Model
from probml.typing import DataLike, FitOrEstimator


def checked(fits: object, engines: Mapping[str, Engine]) -> Mapping:
    """
    Raises:
        ModelError: no fits, or one that do() returned; an engine of what is no Fit.
    """
    if not isinstance(fits, Mapping) or not fits:
        raise ModelError("compare(fits): expected a mapping from names to Fits or estimators, with "
                         f"at least one of them, got {fits!r:.80}. Write compare({{'a': a, 'b': "
                         "b}, data)")
    own = {name: fit for name, fit in fits.items() if isinstance(fit, Fit)}
    for name in engines:
        if name not in own:
            raise ModelError(f"compare(engines): '{name}' is not among the fits. Use the names of "
                             f"the fits, {listed(own)}")
    for name, fit in own.items():
        if fit.learnt is not None:
            raise ModelError(f"compare(fits): '{name}' is a Fit that was returned by do(). Pass "
                             f"the Fit on which do() was called")
    return fits


def rows_of_each(fits: Mapping[str, FitOrEstimator], data: DataLike) -> dict[str, DataLike]:
    """Name → its data, shared by all or each with its own."""
    own = isinstance(data, Mapping) and all(isinstance(data.get(n), Mapping)
                                            or hasattr(data.get(n), "columns") for n in fits)
    return {name: data[name] if own else data for name in fits}


def warn_of_failed(verb: str, failed: Mapping[str, str], contestants: Mapping[str, Any],
                   stacklevel: int = 4) -> None:
    """Warn of models that could not be evaluated at all, with the reasons; they have no row.

    Raises:
        Refusal: none could be evaluated.
    """
    if failed and len(failed) == len(contestants):
        shown = "; ".join(f"'{name}': {reason}" for name, reason in failed.items())
        raise Refusal(f"{verb}: none of the models could be evaluated. Correct the models or the "
                      f"data. The reasons: {shown}")
    for name, reason in failed.items():
        warnings.warn(f"{verb}: '{name}' could not be evaluated, so the table has no row for it. "
                      f"Correct this model or leave it out. The reason: {reason}", UserWarning,
                      stacklevel=stacklevel)


def as_codes(held: dataset.Data) -> dict[str, np.ndarray]:
    """Data as a mapping that the model can read; labels as codes, so that they are the same in a
    part that lacks some."""
    table = held.table
    columns = {name: column.values_or_nan if column.likelihood is None else column.likelihood
               for name, column in table.columns.items()}
    return {**table.inputs, **table.values, **columns}


def refit(fit: Fit, held: dataset.Data, engine: Engine | None, seed: int) -> Fit:
    """The same model fitted to other rows, by an engine or the fit's own."""
    assert isinstance(fit.model, Model)  # typed Bound in lower packages
    return fit.model.fit(as_codes(held), engine or engine_of(fit), weights=held.weights, seed=seed)


def engine_of(fit: Fit) -> Engine:
    """The engine of a fit; of a fit from a file, made from its representation there."""
    if fit.outcome is Status.KNOWN:
        raise ModelError("this Fit cannot be refitted to the training rows, because its "
                         "parameters were given to model.at(...), not estimated. Pass the result "
                         "of model.fit(...)")
    return fit.by or parse_engine(fit.engine)


def mean_over_folds(splits: Sequence[tuple[np.ndarray, np.ndarray]], rows: int,
                    scores: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Score → its terms, (rows,): of a row in several test parts the mean, NaN where it is in none.

    Args:
        scores: for each fold, score → its terms of the test rows.
    """
    total: dict[str, np.ndarray] = {}
    count = np.zeros(rows)
    for (_, test), found in zip(splits, scores, strict=True):
        count[test] += 1
        for score, terms in found.items():
            total.setdefault(score, np.zeros(rows))[test] += terms
    return {score: np.where(count > 0, sums / np.maximum(count, 1), np.nan)
            for score, sums in total.items()}


def splits_of(folds: Any, rows: int, seed: int, classes: np.ndarray | None = None) -> list[
    tuple[np.ndarray, np.ndarray]
]:
    """Pairs of train and test indices, checked; with `classes`, (rows,) labels, their shares are
    alike in all parts."""
    if isinstance(folds, int | np.integer) and not isinstance(folds, bool):
        if not 2 <= folds <= rows:
            raise ModelError(f"compare(folds={folds}): expected an integer from 2 to {rows}, the "
                             f"number of rows")
        try:
            from sklearn.model_selection import KFold, StratifiedKFold
        except ModuleNotFoundError as error:
            raise ModelError(f"compare(folds={folds}) needs scikit-learn ({error}). Install it: "
                             "pip install 'probml[sklearn]'") from None
        folds = (KFold if classes is None else StratifiedKFold)(int(folds), shuffle=True,
                                                                random_state=seed)
    codes = None if classes is None else np.unique(classes.astype(str), return_inverse=True)[1]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            pairs = (list(folds.split(np.zeros((rows, 1)), codes)) if hasattr(folds, "split")
                     else list(folds))
        out = [(np.arange(rows)[train], np.arange(rows)[test]) for train, test in pairs]
    except (TypeError, ValueError, IndexError) as error:
        raise ModelError(
            f"compare(folds={folds!r}): expected a number, a splitter of scikit-learn or pairs "
            f"(training indices, test indices) with indices below {rows}, such as folds=5 ({error})"
        ) from None
    for train, test in out:
        if not len(train) or not len(test) or np.intersect1d(train, test).size:
            raise ModelError("compare(folds=...): a fold has "
                             f"{counted(len(train), 'training row')} and "
                             f"{counted(len(test), 'test row')}, "
                             f"{np.intersect1d(train, test).size} of them in both. Expected at "
                             "least one of each, and none in both. Use folds=5")
    return out
