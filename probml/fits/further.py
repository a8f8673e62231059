"""Fit.merge and Fit.update: the engine is run on the added sufficient statistics; where the model
has latent variables, each partition of further rows is an incremental step."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from probml.dataset.dataset import Data
from probml.dataset.measures import moments_by_column
from probml.dataset.source import Part, naming, parts_of
from probml.dataset.sources import parts
from probml.device.few import Moments, counted, rows_with_moments
from probml.device.rows import Known, Rows, Summary
from probml.engines.engine import LATER, Outcome, Problem
from probml.engines.progress import Progress
from probml.errors import DataError, Refusal
from probml.fits import boundary, stepping
from probml.fits.condensing import condensed
from probml.fits.double import retry_in_float64
from probml.fits.fitting import DataSummary, InferenceResult, check_precision
from probml.fits.merging import (
    RetainedStatistics,
    StatisticsWithPattern,
    check_has_statistics,
    check_mergeable,
    merge_statistics,
)
from probml.numerics.transfer import placed_all
from probml.plan import decide
from probml.plan.plan import Plan
from probml.plan.second_moments import by_moments, cells
from probml.queries.fitted import Fitted
from probml.typing import PyTree


def merged(a: Fitted, b: Fitted) -> InferenceResult:
    """The fit to the data of two fits: see Fit.merge."""
    check_mergeable(a, b)
    return _refit_from_statistics(a, (b.kept, dict(b.pattern)))


def updated(fit: Fitted, data: object, weights: object = None) -> InferenceResult:
    """The fit to the data of a fit and further rows: see Fit.update."""
    if fit.kept is None or not fit.kept.running:
        check_has_statistics(fit)
        merge = functools.partial(merge_statistics, fit.structure)
        return _refit_from_statistics(fit, functools.reduce(
            merge, _map_partitions(fit, data, weights, _statistics_of_rows)))
    at = stepping.IncrementalState(stepping.current_point(fit), fit.kept, dict(fit.pattern))
    history: list[float] = []
    for held, weight in _map_partitions(fit, data, weights, stepping.read_rows):
        at, value = stepping.step(fit, at, held, weight)
        history.append(value)
    outcome = stepping.to_outcome(fit, at, np.concatenate([fit.history, history]),
                                  fit.iterations + len(history))
    return InferenceResult(DataSummary(dict(fit.shapes), at.pattern, dict(fit.names)),
                           at.kept.engine, outcome, dict(fit.given), outcome.posterior, at.kept,
                           fit.double, at.pattern)


def running(fit: Fitted, data: object, weights: object = None) -> RetainedStatistics:
    """The running statistics that further rows update: see Fit.running."""
    point = stepping.current_point(fit)

    def expect_statistics(fit: Fitted, data: object, weights: object) -> StatisticsWithPattern:
        held, weight = stepping.read_rows(fit, data, weights)
        return stepping.expect_statistics(fit, point, held, weight)[0], held.pattern

    return functools.reduce(functools.partial(stepping.merge_expected_statistics, fit),
                            _map_partitions(fit, data, weights, expect_statistics))[0]


def _map_partitions(fit: Fitted, data: object, weights: object, made: Callable) -> Iterator[Any]:
    """made(fit, rows, weights) of further rows, or of every partition of a source of them.

    Raises:
        DataError: there is no partition, or bad rows, by name.
    """
    data, weights = parts.weighed(data, weights)
    source, found = parts.source_of(data), None
    pieces = iter((Part("the data", data, weights=weights),)) if source is None else (
        parts_of(source))
    for part in pieces:
        with contextlib.nullcontext() if source is None else naming(part):
            found = made(fit, part.rows, part.weights)
        del part  # before another comes
        yield found
    if found is None:
        raise DataError("the source has no batches: expected at least one")


def _statistics_of_rows(fit: Fitted, data: object, weights: object) -> StatisticsWithPattern:
    """The sufficient statistics of further rows, and their pattern."""
    held, weight = stepping.read_rows(fit, data, weights)
    plan = held.plan()
    if isinstance(fit.kept.summary, Moments):
        names = by_moments(plan)
        if not names:
            part = next((name for name, state in held.pattern.items() if state != "seen"), None)
            why = (f"site '{part}' is partially observed" if part else "its update needs more than "
                                                                       "the second moments of "
                                                                       "further rows")
            raise Refusal(f"update of model '{fit.model.name}': {why}; fit all rows at once")
        second_moments = counted([held.table.columns[name].values for name in names], weight)
        return RetainedStatistics.of(LATER, second_moments, fit.kept.known,
                                     measured=_prior_moments(fit, held, weight)), held.pattern
    if not plan.additive:
        hidden = next(iter((*plan.variables, *plan.partially_observed, *plan.rowwise,
                            *plan.hidden)), "?")
        raise Refusal(f"update of model '{fit.model.name}': site '{hidden}' is partially "
                      f"observed or has no sufficient statistics; fit all rows at once")
    return RetainedStatistics.of(LATER, *condensed(held, plan, weight),
                                 measured=_prior_moments(fit, held, weight)), held.pattern


def _prior_moments(fit: Fitted, held: Data, weight: np.ndarray | None) -> dict:
    """Moments of the columns of further rows on which data-dependent priors of the fit depend."""
    wanted = fit.kept.measured
    names = [name for name, site in held.structure.sites.items()
             if site.measure is not None and site.measure.of in wanted]
    return moments_by_column(held._replace(weights=weight), names)


def _refit_from_statistics(fit: Fitted, part: StatisticsWithPattern) -> InferenceResult:
    """The engine's fit to the statistics of a fit and of another part of the data."""
    kept, pattern = merge_statistics(fit.structure, (fit.kept, dict(fit.pattern)), part)

    def attempt() -> Outcome:  # in either precision: statistics are retained in float64
        plan = decide.make(fit.structure, pattern, tuple(fit.given))
        rows, known, start = _rows_from_statistics(plan, fit, kept)
        statistics: PyTree = rows
        outcome = kept.engine.run(Problem(LATER, plan, statistics, known, start=start))
        outcome = check_precision(plan, outcome, known, rows)
        return (boundary.with_boundary_findings(plan, outcome, known, rows) if plan.latents
                else outcome)

    with Progress(type(kept.engine).__name__, None, False):
        outcome, note = retry_in_float64(attempt, lambda found: found,
                                         kept.engine.capabilities.uses_prior)
    outcome = outcome.noting(note)
    given = {name: np.asarray(value) for name, value in kept.known.given.items()}
    return InferenceResult(DataSummary(dict(fit.shapes), pattern, dict(fit.names)), kept.engine,
                           outcome, given, outcome.posterior, kept,
                           fit.double or note is not None, pattern)


def _rows_from_statistics(plan: Plan, fit: Fitted,
                          kept: RetainedStatistics) -> tuple[Rows | Summary, Known, dict]:
    """The statistics, or rows that represent second moments, the values that rows share, and the
    start: with second moments, whose likelihood may have several maxima, the estimates of the
    fit."""
    if not isinstance(kept.summary, Moments):
        return *placed_all((kept.summary, kept.known)), {}
    start = {name: np.asarray(fit.params[name]) for name in plan.free}
    return rows_with_moments(kept.summary, cells(plan)), placed_all(kept.known), start
