"""Comparison of fitted models: likelihood, information criteria, evidence, leave-one-out and K-fold
scores, in one table."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probml.assessment import reports
from probml.comparison.contestants import (
    EVIDENCE,
    ComparedDensity,
    ComparedFit,
    checked,
    mean_over_folds,
    rows_of_each,
    splits_of,
    warn_of_failed,
)
from probml.comparison.predictive import predictions
from probml.dataset.dataset import Data
from probml.dataset.sources.parts import source_of, weighed
from probml.dataset.tables import read_weights
from probml.engines.engine import Engine
from probml.errors import DataError, ModelError, counted, listed
from probml.interface.fit import Fit
from probml.language.given import as_mapping
from probml.language.language import check_seed
from probml.numerics.process.libraries import pd

POINT = ("loglik", "parameters", "aic", "bic")
BOUND = ("bound",)
LOO = ("elpd_loo", "se", "p_loo", "bad_k", "elpd_diff", "se_diff")
FOLDS = ("elpd_kfold", "se_kfold", "kfold_diff", "se_kfold_diff")


def compare(
    fits: Mapping[str, Fit],
    data: object = None,
    *,
    weights: object = None,
    target: str | None = None,
    folds: object = None,
    engines: Mapping[str, Engine] | None = None,
    seed: int = 0,
) -> "pd.DataFrame":
    """Compare fits to the same rows by information criteria, evidence, cross-validation or
    predictions: a table with the best first.

    | column | |
    |---|---|
    | `loglik` | log p(data \\| `params`), latent discrete sites summed out |
    | `parameters` | degrees of freedom of what the rows depend on: k − 1 of a simplex of k |
    | `aic` | −2 loglik + 2 parameters (Akaike 1974) |
    | `bic` | −2 loglik + parameters · log n (Schwarz 1978), n rows, or steps of chains |
    | `log_evidence`, `log_bayes_factor` | log p(data), where exact; the same less the best's |
    | `bound` | a lower bound of log p(data), of VB, or the evidence itself; if a fit has one |
    | `elpd_loo`, `se` | Σ log p(row \\| all others), Pareto-smoothed, and its standard error |
    | `p_loo`, `bad_k` | effective parameters; rows whose Pareto k says that the sampling failed |
    | `elpd_diff`, `se_diff` | less the best's, and the standard error of that difference |
    | `elpd_kfold`, … | with `folds`: the same from refits without the rows that are scored |

    Leave-one-out is by Pareto-smoothed importance sampling (Vehtari, Gelman & Gabry 2017).
    Information criteria are those of maximum likelihood: under a strong prior, where `params` is
    not its estimate, they are pessimistic.

    With `target`, only the prediction of one site y from all other cells of the row is compared, on
    rows left out of the fit: generative models, discriminative ones and estimators of scikit-learn
    and of this library (cloned, never fitted themselves) are compared in one table.

    | with `target` | mean over rows, its standard error `se_…`, difference from the best `…_diff` |
    |---|---|
    | `log_score` | log p(y \\| all else of the row, the training rows); else NaN |
    | `accuracy`, `brier` | of classes: share of right answers; Σ_k (p_k − [y = k])², 0 … 2 |
    | `rmse`, `r2` | of numbers: root mean squared error; 1 − its square / variance of y |

    Of a function without rows, one joint density, the rows are the elements of its observed sites,
    in `bic` and, given the parameters and earlier observed sites, in `elpd_loo`.

    Args:
        fits: name → Fit, by any engine. They must have the same observed sites in the same rows;
            their inputs may differ. With `target` also estimators: X is the data's other columns,
            or its other arrays, concatenated.
        data: the rows all were fitted to, or name → rows where models differ in their inputs; a Fit
            by NUTS, SVI or Laplace retains its own.
        weights: as the fits had them, one a row or the name of their column; needed where they had
            some. A row of weight 2 counts as two rows everywhere; `elpd_loo`, which leaves out one
            of them, needs whole numbers; folds leave out whole rows.
        target: the site inside rows(), with one value a row, that is predicted. folds is then by
            default 5, stratified for classes.
        folds: a number of folds (shuffled by `seed`), a splitter of scikit-learn, or pairs of train
            and test indices: each model is fitted again to each training part, by its own engine.
        engines: name → the engine of these refits, by default that of the Fit; needed for a Fit
            from a file whose engine has functions as arguments.
        seed: of the folds and the refits.

    Returns:
        DataFrame: a row a model. `attrs["criterion"]` is the column it is sorted by (the held-out
        score, else the evidence, else the bound, else elpd_loo, each if all have it, else bic);
        `attrs["missing"]` has the reasons for missing numbers, model → column → reason; a model
        that could not be evaluated at all has no row, and a warning; `attrs["notes"]`.

    Raises:
        ModelError: no fits; no data; what is no Fit; scikit-learn absent. DataError: other rows, or
            another number of them.

    Cost: an evidence of the rows each; with a posterior one a draw; with folds as many fits. LOO
        needs probml[arviz].
    """
    seed = check_seed(seed, "compare")
    engines = as_mapping(engines, "compare(engines)", "{'a': probml.EM()}")
    if target is not None:
        if not isinstance(target, str):
            raise ModelError(f"compare(target={target!r:.80}): expected the name of the column "
                             "that is to be predicted, such as target='species'")
        _refuse_weights(fits, weights, target)
        return predictions(fits, data, target, folds, engines, seed)
    contestants = _contestants(fits, data, weights, engines)
    rows, weights = _same_rows(contestants)
    splits = None if folds is None else splits_of(folds, rows, seed)
    scores = _evaluate(contestants, splits, rows, seed)
    warn_of_failed("compare", scores.failed, contestants, stacklevel=3)
    bounds = BOUND if any(c.fit.bound is not None for c in contestants.values()) else ()
    return _ranked(scores, bounds, splits is not None, rows, weights)


@dataclass
class _Scores:
    """The criteria of every model, and why some are missing."""

    records: dict[str, dict[str, float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # models that have none
    missing: dict[str, dict[str, str]] = field(default_factory=dict)
    loo: dict[str, np.ndarray] = field(default_factory=dict)  # by rows
    folds: dict[str, np.ndarray] = field(default_factory=dict)


def _evaluate(contestants: Mapping, splits: Any, rows: int, seed: int) -> _Scores:
    """The criteria of every model that can be evaluated."""
    scores = _Scores()
    for name, contestant in contestants.items():
        try:
            scores.records[name], scores.missing[name] = contestant.point()
        except ModelError as error:
            scores.failed[name] = str(error)
            continue
        try:
            values, scores.loo[name] = contestant.leave_one_out()
            scores.records[name] |= values
        except ModelError as error:
            scores.missing[name] |= dict.fromkeys(LOO, str(error))
        if splits is not None:
            try:
                values = [{FOLDS[0]: contestant.held_out(*split, seed)} for split in splits]
                scores.folds[name] = mean_over_folds(splits, rows, values)[FOLDS[0]]
            except ModelError as error:
                scores.missing[name] |= dict.fromkeys(FOLDS, str(error))
                warnings.warn(f"compare: '{name}' has no held-out score. Correct this model, or "
                              f"omit folds=. The reason: {error}", UserWarning, stacklevel=3)
    return scores


def _ranked(scores: _Scores, bounds: tuple[str, ...], folded: bool, rows: int,
            weights: np.ndarray) -> "pd.DataFrame":
    """The table of all criteria, the best model first."""
    table = pd.DataFrame.from_dict(scores.records, orient="index")
    table = table.reindex(columns=[*POINT, *EVIDENCE, *bounds, *LOO,
                                   *(FOLDS if folded else ())]).astype(float)
    table.index.name = "model"
    table["log_bayes_factor"] = table["log_evidence"] - table["log_evidence"].max()
    _differences(table, scores.loo, LOO, weights)
    if folded:
        _differences(table, scores.folds, FOLDS, weights)
    if table["parameters"].notna().all():
        table["parameters"] = table["parameters"].astype(int)
    order = (*(("elpd_kfold",) if folded else ()), "log_evidence", *bounds, "elpd_loo")
    criterion = next((column for column in order if table[column].notna().all()), "bic")
    table = table.sort_values(criterion, ascending=criterion == "bic", kind="stable")
    unreliable = table["bad_k"][table["bad_k"] > 0]
    notes = [f"the elpd_loo of '{name}' is unreliable: the Pareto k (a diagnostic of leave-one-out "
             f"cross-validation) is above its limit in {k:.0f} of {counted(rows, 'row')}. Use "
             "compare(..., folds=10)"
             for name, k in unreliable.items()]
    if criterion in BOUND:
        notes.append("the models are ranked by a lower bound of the log evidence. The gap between "
                     "the bound and the log evidence differs from model to model. For a mixture of "
                     "k exchangeable components it is about log(k!)")
    reasons = {name: why for name, why in scores.missing.items() if why}
    table.attrs |= {"criterion": criterion, "rows": rows, "missing": reasons, "notes": notes}
    return table


def _refuse_weights(fits: object, weights: object, target: str) -> None:
    """
    Raises:
        ModelError: the predictions of one site by fits with weights.
    """
    name = next((name for name, fit in as_mapping(fits, "compare(fits)", "{'a': fit}").items()
                 if isinstance(fit, Fit) and fit.weighted), None)
    if weights is not None or name is not None:
        had = "got weights=" if name is None else f"'{name}' was fitted with weights"
        raise ModelError(f"compare(target={target!r}): {had}, but compare(target=...) does not "
                         f"support weights. Omit weights= here and in every fit. If the weights "
                         f"are counts, repeat each row that often, and keep its copies in one "
                         f"fold, folds=[(train, test), ...]")


def _contestants(fits: object, data: object, weights: object,
                 engines: Mapping[str, Engine]) -> dict[str, ComparedFit]:
    fits = checked(fits, engines)
    rows, contestants = rows_of_each(fits, data), {}
    for name, fit in fits.items():
        if not isinstance(fit, Fit):
            remedy = (". Pass its attribute fit_, which is a Fit" if hasattr(fit, "fit_") else
                      ". Fit it first, or pass target= to compare estimators by their predictions"
                      if hasattr(fit, "get_params") else "")
            raise ModelError(f"compare(fits): '{name}' has the type {type(fit).__name__}, expected "
                             f"a Fit{remedy or '. Pass what model.fit(data) returns'}")
        if source_of(rows[name]) is not None:
            raise ModelError(f"compare(fits): '{name}' was fitted to data that are read in "
                             f"batches, but compare needs all rows in memory. Hold out some "
                             f"batches, and compare fit.score(...) of the fits on these batches")
        own_rows, weight = weighed(rows[name], weights)
        obs = reports.own_data(fit, own_rows, f"compare('{name}')")
        obs = _with_weights(str(name), fit, obs, weight)
        kind = ComparedDensity if fit.model.is_joint else ComparedFit
        contestants[name] = kind(str(name), fit, obs, engines.get(name))
    return contestants


def _with_weights(name: str, fit: Fit, obs: Data, weights: object) -> Data:
    """The rows of a fit with their weights.

    Raises:
        DataError: the fit had weights, and there are none here, or the other way round; another
            number of rows.
    """
    n = obs.table.rows
    if weights is not None:
        obs = obs._replace(weights=read_weights(weights, n))
    if fit.weighted and obs.weights is None:
        raise DataError(f"compare: '{name}' was fitted with weights of rows, but compare was "
                        f"called without weights. Pass the weights of the fit, compare(..., "
                        f"weights=...)")
    if obs.weights is not None and not fit.weighted and fit.by is not None and (
            np.asarray(obs.weights) != 1).any():
        raise DataError(f"compare: '{name}' was fitted without weights of rows, but compare was "
                        f"called with weights. Omit weights=, or fit '{name}' with these weights")
    rows: float | None = fit.data.table.rows if fit.data is not None else None
    if rows is None and not fit.weighted and fit.kept is not None and not fit.kept.running:
        rows = float(np.asarray(fit.kept.summary.weights))
    if rows is not None and abs(rows - n) > 0.5:
        raise DataError(f"compare: '{name}' was fitted to {counted(round(rows), 'row')}, but the "
                        f"data have {n}. Pass the fitted rows, each row once")
    return obs


def _same_rows(contestants: Mapping[str, ComparedFit]) -> tuple[int, np.ndarray]:
    """The number of rows, which must be the same observed rows for all, and their weights."""
    first, *others = contestants.values()
    for other in others:
        if other.rows != first.rows:
            raise DataError(
                f"compare: '{first.name}' was fitted to {counted(first.rows, 'row')} and "
                f"'{other.name}' to {counted(other.rows, 'row')}, but likelihoods of different "
                "rows cannot be compared. Fit all models to the same rows"
            )
        if not np.array_equal(first.weights, other.weights):
            raise DataError(f"compare: '{first.name}' and '{other.name}' were fitted with "
                            f"different weights of rows. Fit all models with the same weights")
        ours, theirs = first.is_observed, other.is_observed
        if set(ours) != set(theirs):
            raise DataError(
                f"compare: '{first.name}' has the observed sites {listed(sorted(ours))}, but "
                f"'{other.name}' has {listed(sorted(theirs))}, and densities of different "
                "variables cannot be compared. Give all models the same observed sites (other "
                "columns can be inputs), or compare predictions of one, target=site"
            )
        for site in ours:
            a, b = np.asarray(ours[site]), np.asarray(theirs[site])
            is_equal = a.shape == b.shape and (
                np.isclose(a, b, rtol=1e-6, atol=0) | (np.isnan(a) & np.isnan(b))
            )
            if not np.all(is_equal):
                where = (f", first in row {int(np.argwhere(~is_equal)[0, 0])}" if a.shape == b.shape
                         else f": shapes {a.shape} and {b.shape}")
                raise DataError(f"compare: '{first.name}' and '{other.name}' were fitted to "
                                f"different values of '{site}'{where}. Fit all models to the same "
                                f"data")
    return first.rows, first.weights


# Numbers


def _differences(table: "pd.DataFrame", terms: Mapping[str, np.ndarray],
                 columns: tuple[str, ...], weights: np.ndarray) -> None:
    """Sums of terms over rows and of their differences from the best model's, with standard errors
    √(n · variance over rows); a row of weight 2 is two rows."""
    value, error, difference, diff_error = columns[0], columns[1], columns[-2], columns[-1]
    if not terms:
        return
    table.loc[list(terms), [value, error]] = [_sum(values, weights) for values in terms.values()]
    best = max(terms, key=lambda name: table[value][name])
    table.loc[list(terms), [difference, diff_error]] = [_sum(values - terms[best], weights)
                                                        for values in terms.values()]


def _sum(terms: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    mask = ~np.isnan(terms) & (weights > 0)
    terms, weights = terms[mask], weights[mask]
    if not len(terms):
        return 0.0, 0.0
    with np.errstate(invalid="ignore"):
        total = float(weights @ terms)
        deviations = terms - total / weights.sum()
        return total, float(np.sqrt(weights @ deviations**2))
