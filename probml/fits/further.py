"""Fits of parts put together, and further rows: the engine once more, on what was kept of all; or,
where something is hidden, a step for each part of them."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
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
from probml.fits.double import precise
from probml.fits.fitting import Found, Seen, check_precision
from probml.fits.merging import Kept, check_mergeable, keeps, together
from probml.numerics.transfer import placed_all
from probml.plan import decide
from probml.plan.plan import Plan
from probml.plan.second_moments import by_moments, cells
from probml.queries.fitted import Fitted


def merged(a: Fitted, b: Fitted) -> Found:
    """What the engine of two fits finds in the data of both: see Fit.merge."""
    check_mergeable(a, b)
    return _again(a, (b.kept, dict(b.pattern)))


def updated(fit: Fitted, data: object, weights: object = None) -> Found:
    """What the engine of a fit finds with more rows: see Fit.update."""
    if fit.kept is None or not fit.kept.running:
        keeps(fit)
        return _again(fit, functools.reduce(functools.partial(together, fit.structure),
                                            _parts(fit, data, weights, _statistics)))
    at = stepping.Standing(stepping.current_point(fit), fit.kept, dict(fit.pattern))
    history: list[float] = []
    for held, weight in _parts(fit, data, weights, stepping.read_rows):
        at, value = stepping.step(fit, at, held, weight)
        history.append(value)
    outcome = stepping.ended(fit, at, np.concatenate([fit.history, history]),
                             fit.iterations + len(history))
    return Found(Seen(dict(fit.shapes), at.pattern, dict(fit.names)), at.kept.engine, outcome,
                 dict(fit.given), outcome.posterior, at.kept, fit.double, at.pattern)


def running(fit: Fitted, data: object, weights: object = None) -> Kept:
    """What further rows go on from: see Fit.running."""

    point = stepping.current_point(fit)

    def expected(fit: Fitted, data: object, weights: object) -> tuple[Kept, Mapping[str, str]]:
        held, weight = stepping.read_rows(fit, data, weights)
        return stepping.expected(fit, point, held, weight)[0], held.pattern

    return functools.reduce(functools.partial(stepping.joined, fit),
                            _parts(fit, data, weights, expected))[0]


def _parts(fit: Fitted, data: object, weights: object, made: Callable) -> Iterator[Any]:
    """made(fit, rows, weights) of further rows, or of every part of a source of them.

    Raises:
        DataError: there is no part, or bad rows, by name.
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


def _statistics(fit: Fitted, data: object, weights: object) -> tuple[Kept, Mapping[str, str]]:
    """What is kept of further rows."""
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
        told = counted([held.table.columns[name].values for name in names], weight)
        return Kept.of(LATER, told, fit.kept.known,
                       measured=_measured(fit, held, weight)), held.pattern
    if not plan.additive:
        hidden = next(iter((*plan.variables, *plan.partially_observed, *plan.rowwise,
                            *plan.hidden)), "?")
        raise Refusal(f"update of model '{fit.model.name}': site '{hidden}' is partially "
                      f"observed or has no sufficient statistics; fit all rows at once")
    return Kept.of(LATER, *condensed(held, plan, weight),
                   measured=_measured(fit, held, weight)), held.pattern


def _measured(fit: Fitted, held: Data, weight: np.ndarray | None) -> dict:
    """The columns of further rows by which priors of the fit are measured."""
    wanted = fit.kept.measured
    names = [name for name, site in held.structure.sites.items()
             if site.measure is not None and site.measure.of in wanted]
    return moments_by_column(held._replace(weights=weight), names)


def _again(fit: Fitted, part: tuple[Kept, Mapping]) -> Found:
    """The fit's engine once more, on its statistics and those of another part."""
    kept, pattern = together(fit.structure, (fit.kept, dict(fit.pattern)), part)

    def attempt() -> Outcome:  # in either precision: statistics are kept in double
        plan = decide.make(fit.structure, pattern, tuple(fit.given))
        rows, known, start = _rows(plan, fit, kept)
        statistics: Any = rows
        outcome = kept.engine.run(Problem(LATER, plan, statistics, known, start=start))
        outcome = check_precision(plan, outcome, known, rows)
        return boundary.noted(plan, outcome, known, rows) if plan.latents else outcome

    with Progress(type(kept.engine).__name__, None, False):
        outcome, note = precise(attempt, lambda found: found, kept.engine.capabilities.uses_prior)
    outcome = outcome.noting(note)
    given = {name: np.asarray(value) for name, value in kept.known.given.items()}
    return Found(Seen(dict(fit.shapes), pattern, dict(fit.names)), kept.engine, outcome, given,
                 outcome.posterior, kept, fit.double or note is not None, pattern)


def _rows(plan: Plan, fit: Fitted, kept: Kept) -> tuple[Rows | Summary, Known, dict]:
    """What stands for all rows, what they share, and where to begin: of second moments, whose
    likelihood may have several maxima, at what the fit had found."""
    if not isinstance(kept.summary, Moments):
        return *placed_all((kept.summary, kept.known)), {}
    start = {name: np.asarray(fit.params[name]) for name in plan.free}
    return rows_with_moments(kept.summary, cells(plan)), placed_all(kept.known), start
