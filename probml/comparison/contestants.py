"""The fits in a comparison: a Fit and its rows, or one of a function without rows and the elements
of its observed sites; their common rows and splits, and refits."""

import functools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from probml.assessment import either_arviz, reports, whole_arviz
from probml.dataset import dataset
from probml.device import load
from probml.engines.engine import Engine, Status, short_name
from probml.engines.ladder import parse_engine
from probml.errors import ModelError, Refusal, counted, listed
from probml.evidence import density, e_step
from probml.interface.fit import Fit
from probml.interface.functions.readings import ObservedSite
from probml.interface.model import Model
from probml.numerics.compiling import ONCE, jit
from probml.numerics.transfer import placed
from probml.plan.plan import Plan
from probml.typing import ArrayLike, DataLike, FitOrEstimator

EVIDENCE = ("log_evidence", "log_bayes_factor")


@dataclass(frozen=True)
class ComparedFit:
    """A Fit and its rows."""

    name: str
    fit: Fit
    data: dataset.Data
    engine: Engine | None = None  # of refits

    @property
    def rows(self) -> int:
        return self.data.table.rows

    @property
    def weights(self) -> np.ndarray:
        """How many rows each row counts as, (rows,)."""
        return np.ones(self.rows) if self.data.weights is None else np.asarray(self.data.weights)

    @functools.cached_property
    def is_observed(self) -> dict[str, np.ndarray]:
        """Site → its observed values."""
        return {name: column.values_or_nan if column.likelihood is None else column.likelihood
                for name, column in self.data.table.columns.items()}

    @property
    def count(self) -> float:
        """n of the Bayesian information criterion."""
        lengths: ArrayLike = 1
        if self.data.structure.chains:
            lengths = (self.data.steps or 1) if self.data.lengths is None else self.data.lengths
        return float((self.weights * lengths).sum())

    def logs(self, draws: Mapping[str, np.ndarray]) -> np.ndarray:
        """log p(row | parameters) at every draw: (chains, draws, rows)."""
        return reports.log_likelihood(self.fit, self.data, draws)

    def point(self) -> tuple[dict[str, float], dict[str, str]]:
        """Likelihood, parameters, criteria and evidence; and column → why it is missing."""
        fit = self.fit
        if not fit.model.is_joint:
            self.data.structure.need_likelihood("compare")
        loglik, count = self.likelihood()
        row = {"loglik": loglik, "parameters": count, "aic": -2 * loglik + 2 * count,
               "bic": -2 * loglik + count * np.log(self.count)}
        if fit.log_evidence is not None:
            return row | {"log_evidence": float(fit.log_evidence),
                          "bound": float(fit.log_evidence)}, {}
        if fit.bound is not None:
            return row | {"bound": float(fit.bound)}, dict.fromkeys(
                EVIDENCE, f"{short_name(fit.engine)} gives only a lower bound of the log marginal "
                          f"likelihood (log evidence), in the column `bound`")
        return row, dict.fromkeys(EVIDENCE, f"{short_name(fit.engine)} does not compute the log "
                                            f"marginal likelihood (log evidence); fit with "
                                            f"probml.Exact() if all priors are conjugate, or with "
                                            f"probml.Laplace() for an approximation")

    def likelihood(self) -> tuple[float, int]:
        """log p(rows | params), latent discrete sites summed out, and the degrees of freedom of the
        parameters on which rows depend."""
        fit = self.fit
        values = {**fit.given, **self.data.table.values}
        trimmed = self.data._replace(table=replace(self.data.table, values=values)).trimmed()
        plan = trimmed.plan(effects=fit.belief.partly)  # as they were when the point was found
        rows, known = load.load(trimmed, plan, trimmed.weights, params=fit.point)
        loglik = float(loglik_of(plan, {name: placed(fit.point[name]) for name in plan.free},
                                 known, rows))
        return loglik, 0 if fit.outcome is Status.KNOWN else freedom(plan)

    def leave_one_out(self) -> tuple[dict[str, float], np.ndarray]:
        """PSIS-LOO and its terms, (n,).

        Raises:
            ModelError: no posterior, arviz is absent, rows that have no likelihoods of their own.
        """
        try:
            draws = reports.posterior_draws(self.fit)
        except Refusal as why:
            raise ModelError(str(why)) from None
        either_arviz.require_arviz()
        if (self.weights != np.floor(self.weights)).any():
            raise ModelError("compare: leave-one-out cross-validation needs weights that are whole "
                             "numbers, the counts of each row. Fit with such weights, or use "
                             "compare(..., folds=10)")
        logs = self.logs(draws)
        loo = either_arviz.leave_one_out(draws, logs)
        row = {"elpd_loo": loo.elpd, "se": loo.se, "p_loo": loo.p,
               "bad_k": int(((loo.k > loo.good) & (self.weights > 0)).sum())}
        if self.data.weights is not None:
            flat_logs = logs.reshape(-1, logs.shape[-1]).astype(float)
            log_mean = np.logaddexp.reduce(flat_logs, 0) - np.log(len(flat_logs))
            row["p_loo"] = float(self.weights @ (log_mean - loo.terms))
        return row, loo.terms

    def held_out(self, train: np.ndarray, test: np.ndarray, seed: int) -> np.ndarray:
        """log p(row | the training rows) of the test rows."""
        fit = refit(self.fit, self.data.taken(train), self.engine, seed)
        return fit.log_prob(as_codes(self.data.taken(test)))


class ComparedDensity(ComparedFit):
    """A Fit of a function without rows, one joint density: its rows are the elements of its
    observed sites, each given the parameters and earlier sites."""

    @functools.cached_property
    def _observed(self) -> dict[str, ObservedSite]:
        model = self.fit.model
        sites = model.generative.observed(model.bound, self.data.inputs_of_one_row)
        if not sites:
            raise ModelError(f"compare: model '{self.name}' has no likelihood, because its "
                             f"function has numpyro.factor statements and no observed site. Write "
                             f"the likelihood as numpyro.sample(..., obs=...)")
        return sites

    @property
    def rows(self) -> int:
        return sum(int(site.known.sum()) for site in self._observed.values())

    @property
    def is_observed(self) -> dict[str, np.ndarray]:
        return {name: site.value for name, site in self._observed.items()}

    @property
    def count(self) -> float:
        return self.rows

    def logs(self, draws: Mapping[str, np.ndarray]) -> np.ndarray:
        logs = whole_arviz.log_likelihood(self.fit, self.data.inputs_of_one_row, draws)
        if set(logs) != set(self._observed):
            raise ModelError("the observed values depend on the same latent variables, so a single "
                             "value has no likelihood of its own. Compare the column log_evidence")
        return np.concatenate([logs[name].reshape(*logs[name].shape[:2], -1)[..., site.known]
                               for name, site in self._observed.items()], -1)

    def held_out(self, train: np.ndarray, test: np.ndarray, seed: int) -> np.ndarray:
        """
        Raises:
            Refusal: always: rows alone can be left out.
        """
        self.data.structure.need_likelihood("compare(folds=)")
        return super().held_out(train, test, seed)


loglik_of = jit(e_step.log_evidence, static_argnums=0, seldom=ONCE)


def freedom(plan: Plan) -> int:
    """Unbounded coordinates of the parameters on which rows, or discrete sites outside them, or
    effects of groups, depend."""
    sites, structure = plan.structure.sites, plan.structure
    relevant = {p for s in sites.values() if s.rows or s.discrete or s.name in plan.effects
                for p in structure.programs[s.name][1]}
    return sum(math.prod(shape) for name, shape in density.unbounded_shapes(plan).items()
               if name in relevant)


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


def as_codes(data: dataset.Data) -> dict[str, np.ndarray]:
    """Data as a mapping that the model can read; labels as codes, so that they are the same in a
    part that lacks some."""
    table = data.table
    columns = {name: column.values_or_nan if column.likelihood is None else column.likelihood
               for name, column in table.columns.items()}
    return {**table.inputs, **table.values, **columns}


def refit(fit: Fit, data: dataset.Data, engine: Engine | None, seed: int) -> Fit:
    """The same model fitted to other rows, by an engine or the fit's own."""
    assert isinstance(fit.model, Model)  # typed Bound in lower packages
    return fit.model.fit(as_codes(data), engine or engine_of(fit), weights=data.weights, seed=seed)


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
