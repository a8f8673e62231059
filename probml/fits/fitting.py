"""Data and an engine in, what was found out: the ladder Exact → EM → Laplace → MAP → NUTS where
none is named, sizes side by side, parts put together."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from probml import errors
from probml.dataset import dataset, tables
from probml.dataset.checks import digits
from probml.dataset.sources import parts
from probml.device.few import Moments, by_cells, counted, moments, rows_with_moments
from probml.device.load import load
from probml.device.rows import Known, Resident, Rows, Summary
from probml.engines import EM, VB, Exact
from probml.engines.engine import (
    LATER,
    Engine,
    Outcome,
    Problem,
    Status,
    checked,
    planned,
    problem_of,
)
from probml.engines.findings import Code, Finding
from probml.engines.ladder import advised, choose, refusal
from probml.engines.laplace import about_optimum
from probml.engines.progress import Progress
from probml.engines.start.prior import given_start
from probml.errors import Refusal, present
from probml.evidence.passes import global_posterior
from probml.factors.digits import has_cancellation, has_diffuse_start
from probml.fits import boundary, standard_errors
from probml.fits.condensing import summarised
from probml.fits.double import precise, worst
from probml.fits.journals import journal_of
from probml.fits.merging import Kept
from probml.fits.places import Place
from probml.fits.standard_errors import Again
from probml.fits.unidentified_effects import find_few_groups, find_single_row_groups, singular
from probml.fits.where import place_of
from probml.language.language import Bound
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.numerics.outside.checkpoint import Checkpoint
from probml.numerics.process.threads import one_thread
from probml.numerics.transfer import placed_all
from probml.plan.effects import sparsely_crossed
from probml.plan.plan import Plan
from probml.plan.second_moments import by_members, by_moments, cells, numbers
from probml.plan.squares import is_affine_in_rows, squared
from probml.posteriors.effects import found
from probml.posteriors.posterior import Point, Posterior
from probml.structure.trace import trace

MANY = 1000  # rows from which squares are taken of them: another program, and no passes
FEWER = 4  # times as many rows as their moments' own, from which these stand for them


class Seen(NamedTuple):
    """What a Fit keeps of the data: the shapes of the inputs, which cells were seen, the labels."""

    shapes: dict[str, tuple]
    pattern: Mapping[str, str]
    labels: dict[str, tuple]


class Found(NamedTuple):
    """What an engine found: all that a Fit holds beside its model."""

    seen: dataset.Data | Seen
    engine: Engine
    outcome: Outcome
    given: dict[str, Any]
    posterior: Posterior  # of the sites outside rows
    kept: Kept | None
    double: bool  # whether float32 had too few digits
    pattern: Mapping[str, str]  # of the data as the engine took them
    again: Again | None = None


def infer(model: Bound, data: object, engine: Engine | None, weights: object, seed: int,
          start: Mapping[str, Any] | None, checkpoint: Checkpoint | None = None,
          where: object = None, seconds: float | None = None) -> Found:
    """See Model.fit."""
    engine = None if engine is None else checked(engine)
    if engine is not None and seconds is not None:
        raise errors.ModelError(f"fit({type(engine).__name__}(...), seconds={seconds!r}): seconds= "
                                f"limits the sampling by NUTS of a fit without a named engine. "
                                f"With an engine omit it; NUTS has a time limit of its own, "
                                f"NUTS(seconds={seconds!r})")
    title = type(engine).__name__ if engine else f"fit of '{model.name}'"
    with Progress(title, None, False) as bar:
        held, run, note = _inferred(model, data, engine, weights, seed, start, bar, checkpoint,
                                    place_of(where, data), seconds)
    seen = held if held.survey is None else Seen(held.shapes, held.pattern, held.labels)
    return Found(seen, run.engine, run.outcome.noting(note), jax.device_get(run.known.given),
                 run.posterior, run.kept, note is not None, run.pattern, run.again)


def _inferred(
    model: Bound, data: object, engine: Engine | None, weights: object, seed: int,
    start: Mapping[str, Any] | None, bar: Progress, checkpoint: Checkpoint | None,
    place: Place, seconds: float | None
) -> tuple[dataset.Data, '_Run', Finding | None]:
    """The data as they were read, what an engine found, and why in double."""
    if model.whole and weights is not None:
        raise Refusal(f"weights= are weights of rows, and model '{model.name}' has no rows: its "
                      f"function was read as one joint density of all data. Write `with "
                      f"probml.rows():` instead of the plate of the rows, or "
                      f"numpyro.handlers.scale around the sites to be weighted")
    with Progress("first look", None, False) as look, parts.reporting_progress(look.passed):
        held = place.open_data(model, data, weights)
    bar.about, weight = held.extent, held.weights
    _refuse_unobserved(held)
    if engine is not None:
        if (why := refusal(engine, held)) is not None:
            raise advised(why, held)
        engine = _in_batches(engine, held)
    asked, ladder = engine, choose(held, seconds)[0] if engine is None else (engine,)
    plan = planned(ladder[0].taken(held), asked)
    # computed anew
    start = {name: value for name, value in (start or {}).items()
             if name not in (*held.structure.derived, *plan.effects)}
    given_start(plan, start)  # refused before anything is shipped or compiled
    takes = ladder[0].capabilities
    double = jax.config.jax_enable_x64

    def attempt() -> _Run:
        same = jax.config.jax_enable_x64 == double
        return _run(held if same else held._replace(structure=trace(model, held.shapes)), ladder,
                    weight, seed, start, place, asked is not None)

    with contextlib.ExitStack() as stack:
        if checkpoint is not None:
            bar.journal = stack.enter_context(journal_of(checkpoint, model, held, asked, weight,
                                                         seed, start))
        short = None if double else digits.find_precision_loss(held) or _squared(ladder[0], plan,
                                                                                 held)
        try:
            run, note = precise(attempt, lambda found: found.outcome, takes.uses_prior, short)
        except Refusal as why:
            raise advised(why, held, type(ladder[0]).__name__) from None
    return held, run, note


def _refuse_unobserved(held: dataset.Data) -> None:
    """Refuse data that say nothing of the sites of rows; a loss may depend on inputs alone."""
    model, values = held.model, held.table.values
    if held.table.columns or held.structure.losses and (held.table.inputs or model.whole):
        return
    outside = next(iter(values), None)
    if outside is None:
        raise errors.DataError(f"model '{model.name}': every cell of the data is missing, "
                               f"so there is nothing to learn from")
    advice = tables.outside(outside, held.structure.sites[outside].plates,
                            next(iter(np.shape(values[outside])), None))
    raise errors.DataError(f"model '{model.name}': no site inside rows() is "
                           f"observed, and '{outside}' is not one of them: {advice}")


def _squared(engine: Engine, plan: Plan, held: dataset.Data) -> str | None:
    """Why rows in memory that tell only their second moments, or read crossed effects of many
    levels, are fitted in double, in words: the objective is flat along what these leave open, so
    that rounding hides where it ends, and in double the work is no more. None: neither."""
    alone = (engine.capabilities.uses_all_rows and held.survey is None
             and bool(plan.free and by_moments(plan)))
    if engine.capabilities.uses_all_rows and held.survey is None and sparsely_crossed(plan):
        return "crossed effects of many levels leave a flat objective, which loses precision"
    return "the likelihood depends on second moments alone, which lose precision" if alone else None


def _in_batches(engine: Engine, held: dataset.Data) -> Engine:
    """The engine as the function wants its rows taken, by subsample_size; as it is where it takes
    no batches of these."""
    batch = held.model.batch
    if batch is None or batch >= held.table.rows:
        return engine
    if not engine.capabilities.batches:
        return engine
    taken: Any = engine
    small = replace(taken, batch_rows=batch)
    try:
        small.refuse(problem_of(small, held))
    except Refusal:
        return engine
    return small


class _Run(NamedTuple):
    engine: Engine
    outcome: Outcome
    known: Known
    posterior: Posterior
    kept: Kept | None
    pattern: Mapping[str, str]
    again: Again | None


def _run(held: dataset.Data, ladder: tuple, weight: np.ndarray | None, seed: int,
         start: Mapping[str, Any], place: Place, asked: bool, astray: bool = False,
         seen: Mapping | None = None) -> _Run:
    """What the first engine finds that does not refuse; in float32 the first must not: it is asked
    again in double.

    Args:
        asked: the engine was named. astray, seen: see Problem.
    """
    first, takes = ladder[0], ladder[0].capabilities
    data = first.taken(held)
    plan = planned(data, first)
    problem = Problem(data, plan, LATER, LATER, weight, seed, start, asked=asked,
                      astray=astray, seen=seen)
    with place.shipped(problem, first.copies(problem), _reducible(first, plan),
                       takes.batch, takes.uses_all_rows, takes.held_out_fraction,
                       first.runs(problem)) as (rows, known):
        problem = replace(problem, rows=rows, known=known)
        told = _second_moments(first, problem)
        problem = by_member(first, reduced(first, problem, told))
        rows = problem.rows
        for engine in ladder:
            try:
                if engine is not first and engine.taken(held) is not data:
                    return _run(held, ladder[ladder.index(engine) :], weight, seed, start, place,
                                asked, astray, seen)
                with one_thread(plan.largest_matrix):
                    outcome = (engine if plan.free else Exact()).run(problem)
                outcome = check_precision(plan, outcome, known, rows)
                if not asked and engine.capabilities.finds == "point":
                    outcome = about_optimum(problem, outcome)
                if outcome.state.rejection and (run := _further(
                        held, ladder[ladder.index(engine) :], weight, seed, place, outcome)):
                    return run
                if (plan.latents or plan.groupings) and not plan.carried:
                    outcome = boundary.noted(plan, outcome, known, rows)
                if plan.groupings:
                    outcome = _with_effects(plan, outcome, known, rows)
                    outcome = outcome.noting(
                        find_single_row_groups(plan, data, outcome.posterior, weight is not None),
                        *singular(plan, outcome.posterior, outcome.params, known, rows),
                        *(find_few_groups(plan) if outcome.posterior.partly else ()))
                break
            except Refusal:
                if engine is ladder[-1] or not jax.config.jax_enable_x64:
                    raise
        return _Run(engine, outcome, known, posterior(plan, outcome, known, rows),
                    _sufficient_statistics(engine, problem, told, outcome), data.pattern,
                    standard_errors.keep_for_refits(engine, first, held, weight))


def _further(held: dataset.Data, ladder: tuple, weight: Any, seed: int, place: Place,
             before: Outcome) -> _Run | None:
    """What the ladder's next engines find where the answer of its first did not pass its test;
    None: nothing, and that answer stands."""
    first, *rest = ladder
    try:
        if not rest:
            raise Refusal(f"{type(first).__name__} found no answer: {before.state.rejection}")
        run = _run(held, tuple(rest), weight, seed, {}, place, False,
                   not is_affine_in_rows(held.plan()), before.state.posterior_points)
    except errors.ModelError:
        if not before.params:
            raise
        return None
    return run._replace(outcome=run.outcome.noting(Finding.of(
        Code.PREVIOUS_ENGINE, engine=type(first).__name__,
        reason=present(before.state.rejection).problem)))


def _with_effects(plan: Plan, outcome: Outcome, known: Known, rows: Rows) -> Outcome:
    """A point with the effects of groups given it, at their means there; of draws these have been
    drawn."""
    if set(plan.effects) <= set(outcome.params):
        return outcome
    belief = found(plan, {name: outcome.params[name] for name in plan.free}, known, rows)
    lost = next((name for name, mean in belief.moments.mean.items()
                 if not np.isfinite(mean).all()), None)
    if lost is not None:
        singular(plan, belief, outcome.params, known, rows)  # if that is why, it says so
        raise Refusal(f"model '{plan.structure.model.name}': the effects '{lost}' are not finite "
                      f"at the estimate ({outcome.status.headline}): weights, inputs or cells are "
                      f"too large or too small for double precision, or a standard deviation went "
                      f"to 0. Give the weights, inputs or cells in other units, or a prior that "
                      f"vanishes at 0")
    params = {**outcome.params, **belief.moments.mean}
    if outcome.posterior.varies:
        return outcome._replace(params=params)
    return outcome._replace(params=params, posterior=belief)


def check_precision(plan: Plan, outcome: Outcome, known: Known, rows: Rows | Summary) -> Outcome:
    """The outcome, with flags that say whether float32 had too few digits for it."""
    if jax.config.jax_enable_x64 or not plan.free or outcome.status is Status.COLLAPSED:
        return outcome
    params = {name: outcome.params[name] for name in plan.free}
    sites = plan.structure.sites
    if known.centre or any(sites[name].traits.terms for name in plan.pooled):
        outcome = outcome.with_state(imprecise_squares=bool(_short(plan, params, known)))
    if any(map(plan.timed, plan.latents)):
        outcome = outcome.with_state(imprecise_smoothing=bool(_wide(plan, params, known, rows)))
    return outcome


def _sufficient_statistics(engine: Engine, problem: Problem, told: Moments | None,
                           outcome: Outcome) -> Kept | None:
    """What is kept of a fit so that further rows can be added: sufficient statistics of an additive
    plan, or second moments; or the statistics from which incremental steps go on."""
    rows, known, measured = problem.rows, problem.known, problem.data.measured
    if isinstance(rows, Summary) and not rows.squares:
        return Kept.of(engine, rows, known, measured=measured)
    if outcome.state.statistics is not None:
        summary = Summary(outcome.state.statistics, np.zeros(()), np.asarray(rows.weight))
        return Kept.of(engine, summary, known, running=True)
    names = by_moments(problem.plan)
    if not (engine.capabilities.uses_all_rows and names and problem.plan.free):
        return None
    if told is None:
        columns = problem.data.table.columns
        told = counted([columns[name].values for name in names], problem.weights)
    return Kept.of(engine, told, known, measured=measured)


def _second_moments(engine: Engine, problem: Problem) -> Moments | None:
    """The second moments of rows of which a few representatives suffice; None where passes go over
    all rows."""
    if isinstance(problem.rows, Summary) or not _second_moments_suffice(engine, problem):
        return None
    return moments(problem.rows, by_moments(problem.plan))


def reduced(engine: Engine, problem: Problem, told: Moments | None = None) -> Problem:
    """With the statistics of the rows in their place, or a few rows of the same moments, where an
    engine needs no more of them.

    Args:
        told: those moments, where they are known.
    """
    told = _second_moments(engine, problem) if told is None else told
    if told is not None:
        return replace(problem, rows=rows_with_moments(told, cells(problem.plan)))
    if isinstance(problem.rows, Summary) or not (_reducible(engine, problem.plan)
                                                 or _squarable(engine, problem)):
        return problem
    return replace(problem, rows=summarised(problem.plan, problem.known, problem.rows))


def by_member(engine: Engine, problem: Problem) -> Problem:
    """With a few rows of each member of a group in the place of all, where these tell only second
    moments, and an engine needs no more of them than their sums."""
    told, rows = by_members(problem.plan), problem.rows
    if (told is None or not engine.capabilities.uses_all_rows or problem.in_parts
        or not isinstance(rows, Resident)
        or problem.data.survey is not None or (problem.size or 0) < MANY):
        return problem
    found = by_cells(problem.data, told, problem.weights, FEWER)
    return problem if found is None else replace(problem, rows=load(
        found[0], problem.plan, found[1])[0])


def _reducible(engine: Engine, plan: Plan) -> bool:
    return plan.additive and bool(plan.free) and engine.capabilities.statistics


def _squarable(engine: Engine, problem: Problem) -> bool:
    """Whether all rows are worth two passes, which save each gradient's."""
    many = problem.in_parts or (problem.size or 0) >= MANY
    return engine.capabilities.squares and many and bool(squared(problem.plan))


def _second_moments_suffice(engine: Engine, problem: Problem) -> bool:
    """Whether a few rows with the same second moments can replace all rows."""
    names, plan = by_moments(problem.plan), problem.plan
    takes = engine.capabilities
    return takes.uses_all_rows and bool(names and plan.free) and (problem.in_parts or (
        problem.size or 0) >= max(MANY, 2 * FEWER * numbers(plan, names)))


def posterior(plan: Plan, outcome: Outcome, known: Known, rows: Rows | Summary) -> Posterior:
    """What was found beyond the point; of a point, the discrete sites outside rows given it."""
    if not plan.globals or outcome.posterior.varies:
        return outcome.posterior
    return Point(_global_posterior(
        plan, placed_all(dict(outcome.params)), known, rows
    ))


def infer_sizes(models: Mapping[int, Bound], data: object, site: str, engine: EM | VB,
                weights: object, seed: int, where: object = None) -> dict[int, Found]:
    """One model with several numbers of states of a hidden site, all restarts of all sizes in one
    program: see fit.grid."""
    sizes, double = sorted(models), jax.config.jax_enable_x64
    place = place_of(where, data)
    held = place.open_data(models[sizes[-1]], data, weights)
    weight = held.weights
    engine.refuse(Problem(held, held.plan()))

    def attempt() -> tuple[list[Outcome], Known]:
        same = jax.config.jax_enable_x64 == double
        at = held if same else held._replace(structure=trace(held.model, held.shapes))
        plan = at.plan()
        runs = len(sizes) * engine.starts(at, plan, {}, len(sizes))
        problem = Problem(at, plan, LATER, LATER, weight, seed)
        of = [trace(models[size], at.shapes) for size in sizes]
        with place.shipped(problem, engine.together(problem, runs), False, None,
                           engine.capabilities.uses_all_rows,
                           runs=runs) as (rows, known):
            with one_thread(problem.plan.largest_matrix):
                found = engine.grid(replace(problem, rows=rows, known=known), site, sizes, of)
            return [check_precision(plan, outcome, known, rows) for outcome in found], known

    (found, known), note = precise(attempt, lambda found: worst(found[0]),
                                   engine.capabilities.uses_prior,
                                   None if double else digits.find_precision_loss(held))
    out = {}
    for size, outcome in zip(sizes, found, strict=True):
        outcome = engine.narrowed(held.plan(), trace(models[size], held.shapes), outcome)
        own = held._replace(model=models[size], structure=trace(models[size], held.shapes))
        out[size] = Found(held, engine, outcome.noting(note), jax.device_get(known.given),
                          outcome.posterior, None, note is not None, held.pattern,
                          standard_errors.keep_for_refits(engine, engine, own, weight))
    return out


_global_posterior = jit(global_posterior, static_argnums=0, seldom=ONCE)
_short = jit(has_cancellation, static_argnums=0, seldom=ONCE)
_wide = jit(has_diffuse_start, static_argnums=0, seldom=ONCE)
