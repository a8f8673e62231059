"""Data and an engine in, what was found out: the ladder Exact → EM → MAP → NUTS where the user
names none, sizes side by side, parts put together."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from probml import errors
from probml.dataset import dataset, digits, read, stated, tables
from probml.dataset.source import Part, naming, parts_of
from probml.dataset.sources import parts
from probml.device import layout, load
from probml.device.few import few
from probml.device.rows import Known, Rows, Summary
from probml.engines import EM, Exact
from probml.engines.engine import (
    Engine,
    Outcome,
    Problem,
    Status,
    checked,
    planned,
    problem_of,
)
from probml.engines.ladder import LADDER, choose
from probml.engines.progress import Progress
from probml.engines.start.prior import given_start
from probml.errors import Refusal
from probml.evidence.passes import global_posterior
from probml.factors.digits import short, wide
from probml.fits import boundary
from probml.fits.condensing import condensed, summarised
from probml.fits.double import precise, worst
from probml.fits.journals import journal_of
from probml.fits.merging import Kept, alike, keeps, together
from probml.fits.places import Place
from probml.fits.where import place_of
from probml.language.language import Bound
from probml.numerics.compiling import jit
from probml.numerics.outside.checkpoint import Checkpoint
from probml.numerics.tiers import ONCE
from probml.numerics.transfer import placed_all
from probml.plan import decide
from probml.plan.plan import Plan
from probml.plan.second_moments import by_moments, numbers
from probml.plan.squares import squared
from probml.posteriors.effects import found
from probml.posteriors.posterior import Point, Posterior
from probml.structure.trace import trace

# columns of the matrix of crossed effects up to which threads that wait for each other cost more
# than they bring: of 181 an evaluation took up to 2 s of processor, with one thread 0.03
CROSSED = 512
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
    given: dict
    posterior: Posterior  # of the sites outside rows
    kept: Kept | None
    double: bool  # whether float32 had too few digits
    pattern: Mapping[str, str]  # of the data as the engine took them


def infer(model: Bound, data: Any, engine: Engine | None, weights: Any, seed: int,
          start: Mapping[str, Any] | None, checkpoint: Checkpoint | None = None,
          where: Any = None) -> Found:
    """See Model.fit."""
    engine = None if engine is None else checked(engine)
    title = type(engine).__name__ if engine else f"fit of '{model.name}'"
    with Progress(title, None, False) as bar:
        held, run, note = _inferred(model, data, engine, weights, seed, start, bar, checkpoint,
                                    place_of(where, data))
    seen = held if held.survey is None else Seen(held.shapes, held.pattern, held.labels)
    return Found(seen, run.engine, _noted(run.outcome, note), jax.device_get(run.known.given),
                 run.posterior, run.kept, note is not None, run.pattern)


def _inferred(
    model: Bound, data: Any, engine: Engine | None, weights: Any, seed: int,
    start: Mapping[str, Any] | None, bar: Progress, checkpoint: Checkpoint | None,
    place: Place
) -> tuple[dataset.Data, "_Run", str | None]:
    """The data as they were read, what an engine found, and why in double."""
    if model.whole and weights is not None:
        raise Refusal(f"weights are those of rows, and model '{model.name}' is one density of "
                      f"everything: write `with probml.rows():` in the place of their plate, or "
                      f"numpyro.handlers.scale around what is weighed")
    with Progress("first look", None, False) as look, parts.telling(look.passed):
        held = place.opened(model, data, weights)
    bar.about, weight = held.extent, held.weights
    # a loss may look at inputs alone
    if not held.table.columns and not (held.structure.losses
                                       and (held.table.inputs or model.whole)):
        outside = next(iter(held.table.values), None)
        if outside is None:
            raise errors.DataError(f"model '{model.name}': every cell of the data is unseen "
                                   f"(missing), so there is nothing to learn from")
        size = np.shape(held.table.values[outside])[:1]
        advice = tables.outside(outside, held.structure.sites[outside].plates,
                                size[0] if size else None)
        raise errors.DataError(f"model '{model.name}': nothing inside rows() is seen, and "
                               f"'{outside}' is no site of rows: {advice}")
    if engine is not None:
        engine.refuse(problem_of(engine, held))
        engine = _in_batches(engine, held)
    asked, ladder = engine, (engine,)
    if engine is None:
        engine, _ = choose(held)
        ladder = LADDER[LADDER.index(engine) :]
    plan = planned(engine.taken(held), asked)
    # computed anew
    start = {name: value for name, value in (start or {}).items()
             if name not in (*held.structure.derived, *plan.effects)}
    given_start(plan, start)  # refused before anything is shipped or compiled
    stated.refuse_points(plan)
    if ladder[0].held and ladder[0].stated:
        stated.warn(held, plan)
    double = jax.config.jax_enable_x64

    def attempt() -> _Run:
        same = jax.config.jax_enable_x64 == double
        return _run(held if same else held._replace(structure=trace(model, held.shapes)), ladder,
                    weight, seed, start, place)

    with contextlib.ExitStack() as stack:
        if checkpoint is not None:
            bar.journal = stack.enter_context(journal_of(checkpoint, model, held, asked, weight,
                                                         seed, start))
        return held, *precise(attempt, lambda found: found.outcome, ladder[0].held,
                              digits.lost(held))


def _in_batches(engine: Engine, held: dataset.Data) -> Engine:
    """The engine as the function wants its rows taken, by subsample_size; as it is where it takes
    no batches of these."""
    batch = held.model.batch
    if batch is None or batch >= held.table.rows:
        return engine
    small = engine.in_batches(batch)
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


def _run(held: dataset.Data, ladder: tuple, weight: Any, seed: int, start: Mapping[str, Any],
         place: Place) -> _Run:
    """What the first engine finds that does not refuse; in float32 the first must not: it is asked
    again in double."""
    first = ladder[0]
    data = first.taken(held)
    plan = planned(data, first)
    problem = Problem(data, plan, None, None, weight, seed, start)
    with place.shipped(problem, first.copies(problem), _reducible(first, plan),
                       first.batch, first.whole, first.apart) as (rows, known):
        problem = reduced(first, replace(problem, rows=rows, known=known))
        rows = problem.rows
        for engine in ladder:
            try:
                if engine is not first and engine.taken(held) is not data:
                    return _run(held, ladder[ladder.index(engine) :], weight, seed, start, place)
                outcome = judged(plan, (engine if plan.free else Exact()).run(problem), known,
                                 rows)
                if (plan.latents or plan.groupings) and not plan.carried:
                    outcome = boundary.noted(plan, outcome, known, rows)
                if plan.groupings:
                    outcome = _with_effects(plan, outcome, known, rows)
                break
            except Refusal:
                if engine is ladder[-1] or not jax.config.jax_enable_x64:
                    raise
        additive = isinstance(rows, Summary) and not rows.squares
        kept = Kept(engine, *jax.device_get((rows, known))) if additive else None
        return _Run(engine, outcome, known, posterior(plan, outcome, known, rows), kept,
                    data.pattern)


def _with_effects(plan: Plan, outcome: Outcome, known: Known, rows: Rows) -> Outcome:
    """A point with the effects of groups given it, at their means there; of draws these have been
    drawn."""
    if set(plan.effects) <= set(outcome.params):
        return outcome
    belief = found(plan, {name: outcome.params[name] for name in plan.free}, known, rows)
    params = {**outcome.params, **belief.moments.mean}
    if outcome.posterior.varies:
        return outcome._replace(params=params)
    return outcome._replace(params=params, posterior=belief)


def judged(plan: Plan, outcome: Outcome, known: Known, rows: Rows) -> Outcome:
    """An outcome that says, if it was found in float32, whether that has digits for it."""
    if jax.config.jax_enable_x64 or not plan.free or outcome.status is Status.COLLAPSED:
        return outcome
    params = {name: outcome.params[name] for name in plan.free}
    if known.centre:
        outcome = outcome._replace(short=bool(_short(plan, params, known)))
    if any(map(plan.timed, plan.latents)):
        outcome = outcome._replace(wide=bool(_wide(plan, params, known, rows)))
    return outcome


def reduced(engine: Engine, problem: Problem) -> Problem:
    """With the statistics of the rows in their place, or a few rows of the same moments, where an
    engine needs no more of them."""
    if not isinstance(problem.rows, Summary) and _few(engine, problem):
        return replace(problem, rows=few(problem.rows, by_moments(problem.plan)))
    if isinstance(problem.rows, Summary) or not (_reducible(engine, problem.plan)
                                                 or _squarable(engine, problem)):
        return problem
    return replace(problem, rows=summarised(problem.plan, problem.known, problem.rows))


def _reducible(engine: Engine, plan: Plan) -> bool:
    return plan.additive and bool(plan.free) and engine.statistics


def _squarable(engine: Engine, problem: Problem) -> bool:
    """Whether all rows are worth two passes, which save each gradient's."""
    many = problem.in_parts or (problem.size or 0) >= MANY
    return engine.squares and many and bool(squared(problem.plan))


def _few(engine: Engine, problem: Problem) -> bool:
    """Whether a few rows of the same moments save passes over all."""
    names, plan = by_moments(problem.plan), problem.plan
    return engine.whole and bool(names and plan.free) and (problem.in_parts or (
        problem.size or 0) >= max(MANY, 2 * FEWER * numbers(plan, names)))


def posterior(plan: Plan, outcome: Outcome, known: Known, rows: Rows | Summary) -> Posterior:
    """What was found beyond the point; of a point, the discrete sites outside rows given it."""
    if not plan.globals or outcome.posterior.varies:
        return outcome.posterior
    return Point(_global_posterior(
        plan, placed_all(dict(outcome.params)), known, rows
    ))


def infer_sizes(models: Mapping[int, Bound], data: Any, site: str, engine: EM, weights: Any,
                seed: int) -> dict[int, Found]:
    """One model with several numbers of states of a hidden site, all restarts of all sizes in one
    program: see fit.grid."""
    sizes, double = sorted(models), jax.config.jax_enable_x64
    held = read.read(models[sizes[-1]], data).trimmed()
    weight = tables.read_weights(weights, held.table.rows)
    engine.refuse(Problem(held, held.plan()))

    def attempt() -> tuple[list[Outcome], Known]:
        same = jax.config.jax_enable_x64 == double
        at = held if same else held._replace(structure=trace(held.model, held.shapes))
        plan = at.plan()
        copies = len(sizes) * engine.starts(at, plan, {}, len(sizes))
        rows, known = load.load(at, plan, weight, layout.laid(at, plan, copies), copies)
        problem = Problem(at, plan, rows, known, weight, seed)
        return [judged(plan, outcome, known, rows)
                for outcome in engine.grid(problem, site, sizes)], known

    (found, known), note = precise(attempt, lambda found: worst(found[0]), engine.held,
                                   digits.lost(held))
    out = {}
    for size, outcome in zip(sizes, found, strict=True):
        structure = trace(models[size], held.shapes)
        parts = {name: tuple(slice(n) for n in structure.sites[name].shape)
                 for name in outcome.params}
        outcome = outcome._replace(params={name: value[parts[name]]
                                           for name, value in outcome.params.items()})
        out[size] = Found(held, engine, _noted(outcome, note), jax.device_get(known.given),
                          outcome.posterior, None, note is not None, held.pattern)
    return out


def _noted(outcome: Outcome, note: str | None) -> Outcome:
    return outcome if note is None else outcome._replace(notes=(*outcome.notes, note))


def merged(a, b) -> Found:
    """What the engine of two fits finds in the data of both: see Fit.merge."""
    alike(a, b)
    return _again(a, (b.kept, dict(b.pattern)))


def updated(fit, data: Any, weights: Any = None) -> Found:
    """What the engine of a fit finds with more rows: see Fit.update."""
    keeps(fit)
    data, weights = parts.weighed(data, weights)
    source, every = parts.source_of(data), None
    pieces = iter((Part("the data", data, weights=weights),)) if source is None else (
        parts_of(source))
    for part in pieces:
        with contextlib.nullcontext() if source is None else naming(part):
            more = _statistics(fit, part.rows, part.weights)
        every = more if every is None else together(fit.structure, every, more)
        del part  # before another comes
    if every is None:
        raise errors.DataError("the source has no parts: expected at least one")
    return _again(fit, every)


def _statistics(fit, data: Any, weights: Any) -> tuple[Kept, Mapping[str, str]]:
    """What is kept of further rows."""
    held = read.read(fit.model, data, fit.names, None, fit.shapes)
    held = held._replace(table=replace(held.table,
                                       values={**fit.given, **held.table.values})).trimmed()
    weight = tables.read_weights(weights, held.table.rows)
    plan = held.plan()
    if not plan.additive:
        hidden = next(iter((*plan.variables, *plan.torn, *plan.rowwise)))
        raise Refusal(f"update of model '{fit.model.name}': site '{hidden}' is unseen in part or "
                      f"not pooled; fit all rows at once")
    return Kept(None, *jax.device_get(condensed(held, plan, weight))), held.pattern


def _again(fit, part: tuple[Kept, Mapping]) -> Found:
    """The fit's engine once more, on its statistics and those of another part."""
    kept, pattern = together(fit.structure, (fit.kept, dict(fit.pattern)), part)
    plan = decide.make(fit.structure, pattern, tuple(fit.given))
    summary, known = placed_all(kept[1:])
    with Progress(type(kept.engine).__name__, None, False):
        outcome = kept.engine.run(Problem(None, plan, summary, known))
    return Found(Seen(fit.shapes, pattern, fit.names), kept.engine, outcome, fit.given,
                 outcome.posterior, kept, fit.double, pattern)


_global_posterior = jit(global_posterior, static_argnums=0, seldom=ONCE)
_short = jit(short, static_argnums=0, seldom=ONCE)
_wide = jit(wide, static_argnums=0, seldom=ONCE)
