"""Fit.merge and Fit.update: the engine is run on the added sufficient statistics; where the model
has latent variables, each partition of further rows is an incremental step.

Expected statistics depend on the point, so that parts cannot be added: each part moves the point by
a step of stepwise EM (Cappé & Moulines 2009, "On-line expectation–maximization algorithm for latent
data models"), or a mean field by one of stochastic variational inference (Hoffman et al. 2013),
with running statistics

    s ← s + ρ (s(part; θ) − s),   ρ = (w / n)^0.6,   θ ← the optimum at n s,

per unit of weight: w is the weight of the part, n that of all rows so far. For parts of equal size
ρ is t^−0.6, as in engines/restarting/batches.py, so that expectations at earlier points lose
weight slowly.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from probml.dataset import read, tables
from probml.dataset.dataset import Data
from probml.dataset.measures import moments_by_column
from probml.dataset.source import Part, naming, parts_of
from probml.dataset.sources import parts
from probml.device.few import Moments, moments_on_host, rows_with_moments
from probml.device.load import load
from probml.device.rows import Known, Rows, Summary
from probml.engines.engine import NOT_LOADED, Outcome, Problem, Status, short_name
from probml.engines.progress import Progress
from probml.engines.restarting.batches import (
    FORGETTING,
    expected_statistics,
    improve_point,
    sites_without_statistics,
)
from probml.errors import Refusal, present
from probml.fits import latent_findings
from probml.fits.double import retry_in_float64
from probml.fits.fitting import DataSummary, InferenceResult, check_precision
from probml.fits.merging import (
    RetainedStatistics,
    StatisticsWithPattern,
    check_has_statistics,
    check_mergeable,
    merge_patterns,
    merge_statistics,
)
from probml.fits.places import condensed
from probml.numerics.transfer import placed_all
from probml.plan import decide
from probml.plan.plan import Plan
from probml.plan.sufficient_statistics import by_moments, cell_shapes
from probml.queries.fitted import Fitted
from probml.typing import PyTree


def merged(a: Fitted, b: Fitted) -> InferenceResult:
    """The fit to the data of two fits: see Fit.merge."""
    check_mergeable(a, b)
    return _refit_from_statistics(a, (b.kept, dict(b.pattern)), b.weighted)


def updated(fit: Fitted, data: object, weights: object = None) -> InferenceResult:
    """The fit to the data of a fit and further rows: see Fit.update."""
    if fit.kept is None or not fit.kept.running:
        check_has_statistics(fit)
        merge = functools.partial(merge_statistics, fit.structure)
        return _refit_from_statistics(fit, functools.reduce(
            merge, _map_partitions(fit, data, weights, _statistics_of_rows)), weights is not None)
    state = IncrementalState(current_point(fit), fit.kept, dict(fit.pattern))
    history: list[float] = []
    for obs, weight in _map_partitions(fit, data, weights, read_rows):
        state, value = step(fit, state, obs, weight)
        history.append(value)
    outcome = to_outcome(fit, state, np.concatenate([fit.history, history]),
                                  fit.iterations + len(history))
    return InferenceResult(DataSummary(dict(fit.shapes), state.pattern, dict(fit.names)),
                           state.kept.engine, outcome, dict(fit.given), outcome.posterior,
                           state.kept,
                           fit.double, state.pattern, weighted=fit.weighted or weights is not None)


def running(fit: Fitted, data: object, weights: object = None) -> RetainedStatistics:
    """The running statistics that further rows update: see Fit.running."""
    point = current_point(fit)

    def expect_rows(fit: Fitted, data: object, weights: object) -> StatisticsWithPattern:
        obs, weight = read_rows(fit, data, weights)
        return expect_statistics(fit, point, obs, weight)[0], obs.pattern

    return functools.reduce(functools.partial(merge_expected_statistics, fit),
                            _map_partitions(fit, data, weights, expect_rows))[0]


def _map_partitions(fit: Fitted, data: object, weights: object, made: Callable) -> Iterator[Any]:
    """made(fit, rows, weights) of further rows, or of every partition of a source of them.

    Raises:
        DataError: there is no partition, or bad rows, by name.
    """
    data, weights = parts.weighed(data, weights)
    source = parts.source_of(data)
    partitions = iter((Part("the data", data, weights=weights),)) if source is None else (
        parts_of(source))
    for part in partitions:
        with contextlib.nullcontext() if source is None else naming(part):
            result = made(fit, part.rows, part.weights)
        del part  # before another comes
        yield result


def _statistics_of_rows(fit: Fitted, data: object, weights: object) -> StatisticsWithPattern:
    """The sufficient statistics of further rows, and their pattern."""
    obs, weight = read_rows(fit, data, weights)
    plan = obs.plan()
    if isinstance(fit.kept.summary, Moments):
        names = by_moments(plan)
        if not names:
            partial = next((name for name, state in obs.pattern.items() if state != "seen"), None)
            why = (f"site '{partial}' has missing values in the new rows" if partial else
                   "the likelihood of the new rows is not determined by their sums of squares and "
                   "products")
            raise Refusal(f"update of model '{fit.model.name}': {why}. Fit the old and new rows "
                          f"together")
        second_moments = moments_on_host([obs.table.columns[name].values for name in names],
                                         weight)
        return RetainedStatistics.of(NOT_LOADED, second_moments, fit.kept.known,
                                     measured=_prior_moments(fit, obs, weight)), obs.pattern
    if not plan.additive:
        hidden = next(iter((*plan.variables, *plan.hidden, *plan.partially_observed)), None)
        raise Refusal(f"update of model '{fit.model.name}': site " + (
            f"'{hidden}' has missing values in the new rows" if hidden is not None else
            f"'{next(iter((*plan.rowwise, *plan.effects)))}' has no sufficient statistics (sums "
            f"from which the fit could be continued)") + ". Fit the old and new rows together")
    return RetainedStatistics.of(NOT_LOADED, *condensed(obs, plan, weight),
                                 measured=_prior_moments(fit, obs, weight)), obs.pattern


def _prior_moments(fit: Fitted, obs: Data, weight: np.ndarray | None) -> dict:
    """Moments of the columns of further rows on which data-dependent priors of the fit depend."""
    measured = fit.kept.measured
    names = [name for name, site in obs.structure.sites.items()
             if site.measure is not None and site.measure.of in measured]
    return moments_by_column(obs._replace(weights=weight), names)


def _refit_from_statistics(fit: Fitted, part: StatisticsWithPattern,
                           weighted: bool) -> InferenceResult:
    """The engine's fit to the statistics of a fit and of another part of the data.

    Args:
        weighted: whether the rows of that part had weights.
    """
    retained, pattern = merge_statistics(fit.structure, (fit.kept, dict(fit.pattern)), part)

    def attempt() -> Outcome:  # in either precision: statistics are retained in float64
        plan = decide.make(fit.structure, pattern, tuple(fit.given))
        rows, known, start = _rows_from_statistics(plan, fit, retained)
        statistics: PyTree = rows
        outcome = retained.engine.run(Problem(NOT_LOADED, plan, statistics, known, start=start))
        outcome = check_precision(plan, outcome, known, rows)
        return (latent_findings.with_boundary_findings(
            plan, outcome, known, rows, retained.engine.capabilities.uses_prior) if plan.latents
                else outcome)

    with Progress(type(retained.engine).__name__, None, False):
        outcome, note = retry_in_float64(attempt, lambda result: result,
                                         retained.engine.capabilities.uses_prior)
    outcome = outcome.noting(note)
    given = {name: np.asarray(value) for name, value in retained.known.given.items()}
    return InferenceResult(DataSummary(dict(fit.shapes), pattern, dict(fit.names)), retained.engine,
                           outcome, given, outcome.posterior, retained,
                           fit.double or note is not None, pattern,
                           weighted=fit.weighted or weighted)


def _rows_from_statistics(plan: Plan, fit: Fitted,
                          retained: RetainedStatistics) -> tuple[Rows | Summary, Known, dict]:
    """The statistics, or rows that represent second moments, the values that rows share, and the
    start: with second moments, whose likelihood may have several maxima, the estimates of the
    fit."""
    if not isinstance(retained.summary, Moments):
        return *placed_all((retained.summary, retained.known)), {}
    start = {name: np.asarray(fit.params[name]) for name in plan.free}
    return rows_with_moments(retained.summary, cell_shapes(plan)), placed_all(retained.known), start


class IncrementalState(NamedTuple):
    """The state of a fit between steps: its point, its running statistics, and the pattern of
    observed cells of all parts."""

    point: PyTree  # as the engine has it, see IncrementalUpdate
    kept: RetainedStatistics
    pattern: Mapping[str, str]


def read_rows(fit: Fitted, rows: object, weights: object) -> tuple[Data, np.ndarray | None]:
    """Rows read with the labels of the fit, and their weights.

    Raises:
        DataError: bad rows, by name.
    """
    obs = read.read(fit.model, rows, fit.names, None, fit.shapes)
    obs = obs._replace(table=replace(obs.table,
                                     values={**fit.given, **obs.table.values})).trimmed()
    return obs, tables.read_weights(weights, obs.table.rows)


def current_point(fit: Fitted) -> PyTree:
    """The point of a fit, in the form for its engine's incremental steps.

    Raises:
        Refusal: an engine that takes no steps.
    """
    updater = None if fit.by is None else fit.by.capabilities.incremental_update
    if updater is None:
        raise Refusal(f"update of model '{fit.model.name}' by {short_name(fit.engine)}: a fit with "
                      f"latent variables can be updated only if it was fitted by EM() or VB(). Fit "
                      f"the old and new rows together")
    return updater.point_of_fit(fit.point, fit.belief)


def expect_statistics(fit: Fitted, point: object, obs: Data,
             weight: np.ndarray | None) -> tuple[RetainedStatistics, float]:
    """The expected sufficient statistics of rows at a point, and their log evidence.

    Raises:
        Refusal: a site without sufficient statistics.

    Cost: one pass.
    """
    engine, plan = present(fit.by), obs.plan()
    if names := sites_without_statistics(plan):
        raise Refusal(f"update of model '{fit.model.name}' by {short_name(fit.engine)}: site "
                      f"'{names[0]}' has no sufficient statistics (sums of the data) that can be "
                      "updated with further rows. Fit the old and new rows together")
    rows, known = load(obs, plan, weight, params=fit.point)
    statistics, value = expected_statistics(plan, engine.capabilities.incremental_update,
                                            placed_all(point), known,
                                            rows)
    summary = Summary(statistics, np.zeros(()), np.asarray(rows.weight))
    return RetainedStatistics.of(engine, summary, known, running=True), float(value)


def step(fit: Fitted, state: IncrementalState, obs: Data,
         weight: np.ndarray | None) -> tuple[IncrementalState, float]:
    """The state after a step by a part of further rows; and the objective of all rows so far,
    estimated from this part at the point before the step.

    Raises:
        Refusal: a component has collapsed.

    Cost: one pass over the part, and an M-step.
    """
    added, value = expect_statistics(fit, state.point, obs, weight)
    old_weight, new_weight = float(state.kept.summary.weights), float(added.summary.weights)
    total, rate = old_weight + new_weight, (new_weight / (old_weight + new_weight)) ** FORGETTING
    retained, pattern = merge_expected_statistics(
        fit, (_scaled(state.kept, (1 - rate) * total / old_weight), state.pattern),
        (_scaled(added, rate * total / new_weight), obs.pattern))
    plan = decide.make(fit.structure, pattern, tuple(fit.given))
    summary, known, point = placed_all((retained.summary, retained.known, state.point))
    updater = added.engine.capabilities.incremental_update
    improved, is_valid, prior = jax.device_get(improve_point(plan, updater, summary, point, known))
    if not is_valid:
        raise Refusal(f"update of model '{fit.model.name}': with the new rows a component of the "
                      f"mixture collapses onto a single point. Fit with the prior, "
                      f"EM(prior=True), or update with more rows at once")
    return IncrementalState(improved, retained, pattern), total * value / new_weight + float(prior)


def to_outcome(fit: Fitted, state: IncrementalState, history: np.ndarray, steps: int) -> Outcome:
    """The state after the steps as an outcome of the engine.

    Args:
        history: the objective before each step. steps: iterations in all.
    """
    plan = decide.make(fit.structure, state.pattern, tuple(fit.given))
    updater = state.kept.engine.capabilities.incremental_update
    params, posterior = updater.found(plan, state.point, placed_all(state.kept.known))
    return Outcome(params, history, Status.UPDATED, steps, posterior=posterior)


def merge_expected_statistics(fit: Fitted, one: StatisticsWithPattern,
                              other: StatisticsWithPattern) -> StatisticsWithPattern:
    """As merging.merge_statistics, also where a discrete site is observed in one part and latent in
    the other.

    Raises:
        Refusal: such a site has several cells in a row, whose statistics are those of each cell
            where observed, and of all cells together where latent.
    """
    plan = decide.make(fit.structure, merge_patterns(one[1], other[1]), tuple(fit.given))

    def as_latent(part: StatisticsWithPattern) -> StatisticsWithPattern:
        retained, summary = part[0], _summary(part[0])
        statistics = dict(summary.statistics)
        for name in plan.variables:
            site_stats = statistics.get(name)
            if isinstance(site_stats, Mapping) and not fit.structure.sites[name].chain:
                if site_stats["log"].shape[-2] > 1:
                    raise Refusal(f"update of model '{fit.model.name}': site '{name}' has several "
                                  f"values in each row, and is observed in some batches and "
                                  f"missing in others. The statistics of such batches cannot be "
                                  f"added. Fit the old and new rows together")
                statistics[name] = site_stats["log"][..., 0, :]
        return retained._replace(summary=summary._replace(statistics=statistics)), part[1]

    return merge_statistics(fit.structure, as_latent(one), as_latent(other))


def _summary(retained: RetainedStatistics) -> Summary:
    assert isinstance(retained.summary, Summary)
    return retained.summary


def _scaled(retained: RetainedStatistics, factor: float) -> RetainedStatistics:
    """Statistics times a number, as of rows of the same weight."""
    summary = _summary(retained)
    scaled = jax.tree.map(lambda leaf: leaf * np.asarray(factor, leaf.dtype), summary.statistics)
    return retained._replace(summary=summary._replace(statistics=scaled))
