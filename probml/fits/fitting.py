"""Data and an engine in, what was found out: the ladder Exact → EM → MAP → NUTS where the user
names none, sizes side by side, parts put together."""

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from probml import errors
from probml.dataset import dataset, digits, read, stated, tables
from probml.device import load
from probml.device.rows import Known, Summary
from probml.engines import EM, MAP, NUTS, Exact
from probml.engines.double import precise, worst
from probml.engines.engine import Outcome, Progress, Status
from probml.engines.start.prior import given_start, prior_point
from probml.errors import ModelError, Refusal
from probml.evidence.passes import global_posterior, summarise
from probml.factors.digits import short
from probml.fits.merging import Kept, alike, keeps, together
from probml.language.language import Bound
from probml.numerics.compiling import jit
from probml.plan import decide
from probml.plan.plan import Plan
from probml.structure.trace import trace

# nobody asked for it by name: it takes the more careful steps
LADDER = (Exact(), EM(), MAP(), NUTS(target_accept=0.9))


class Seen(NamedTuple):
    """What a Fit keeps of the data: the shapes of the inputs, which cells were seen, the labels."""

    shapes: dict[str, tuple]
    pattern: Mapping[str, str]
    labels: dict[str, tuple]


class Found(NamedTuple):
    """What an engine found: all that a Fit holds beside its model."""

    seen: dataset.Data | Seen
    engine: Any
    outcome: Outcome
    given: dict
    states: Any  # log p(discrete sites outside rows | data)
    kept: Kept | None
    double: bool  # whether float32 had too few digits


def infer(model: Bound, data: Any, engine: Any, weights: Any, seed: int,
          start: Mapping[str, Any] | None) -> Found:
    """See Model.fit."""
    if (engine is not None and not all(hasattr(engine, verb) for verb in ("refuse", "run"))
        or isinstance(engine, type)):
        raise ModelError(f"engine={engine!r} is not an engine: pass a value, such as probml.EM(), "
                         f"probml.Exact() or probml.NUTS(), or None")
    with Progress(type(engine).__name__ if engine else f"fit of '{model.name}'", None, False):
        held, run, note = _inferred(model, data, engine, weights, seed, start)
    return Found(held, run.engine, _noted(run.outcome, note), jax.device_get(run.known.given),
                 run.states, run.kept, note is not None)


def choose(data: dataset.Data, plan: Plan) -> tuple[Any, dict[str, str]]:
    """The first engine of the ladder that does not refuse, and the reasons of those that did (or
    would)."""
    chosen, reasons = None, {}
    for engine in LADDER:
        try:
            engine.refuse(data, plan, ladder=True)
        except Refusal as refusal:
            reasons[type(engine).__name__] = str(refusal)
        else:
            chosen = chosen or engine
    if chosen is None:
        raise Refusal("no engine can treat this model: " + "; ".join(reasons.values()))
    return chosen, reasons


def _inferred(
    model: Bound, data: Any, engine: Any, weights: Any, seed: int, start: Mapping[str, Any] | None
) -> tuple[dataset.Data, "_Run", str | None]:
    """The data as they were read, what an engine found, and why in double."""
    held = read.read(model, data).trimmed()
    if model.whole and weights is not None:
        raise Refusal(f"weights are those of rows, and model '{model.name}' is one density of "
                      f"everything: write `with probml.rows():` in the place of their plate, or "
                      f"numpyro.handlers.scale around what is weighed")
    weight = tables.read_weights(weights, held.table.rows)
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
    plan = held.plan()
    if engine is None:
        engine, _ = choose(held, plan)
        ladder = LADDER[LADDER.index(engine) :]
    else:
        engine.refuse(held, plan)
        ladder = (engine,)
    # computed anew
    start = {name: value for name, value in (start or {}).items()
             if name not in held.structure.derived}
    given_start(plan, start)  # refused before anything is shipped or compiled
    if getattr(ladder[0], "prior", True):
        stated.warn(held, plan)
    double = jax.config.jax_enable_x64

    def attempt() -> _Run:
        same = jax.config.jax_enable_x64 == double
        return _run(held if same else held._replace(structure=trace(model, held.shapes)), ladder,
                    weight, seed, start)

    return held, *precise(attempt, lambda found: found.outcome, getattr(ladder[0], "prior", True),
                          digits.lost(held))


class _Run(NamedTuple):
    engine: Any
    outcome: Outcome
    known: Known
    states: Any
    kept: Kept | None


def _run(held: dataset.Data, ladder: tuple, weight: Any, seed: int,
         start: Mapping[str, Any]) -> _Run:
    """What the first engine finds that does not refuse; in float32 the first must not: it is asked
    again in double."""
    plan, engine = held.plan(), ladder[0]
    rows, known = load.load(held, plan, weight, load.order(held, plan),
                            _copies(engine, held, plan, start), params=start)
    rows = reduced(engine, plan, known, rows)
    for engine in ladder:
        try:
            outcome = judged(plan, (engine if plan.free else Exact()).run(
                held, plan, rows, known, weight, seed, start
            ), known)
            break
        except Refusal:
            if engine is ladder[-1] or not jax.config.jax_enable_x64:
                raise
    kept = Kept(engine, *jax.device_get((rows, known))) if isinstance(rows, Summary) else None
    return _Run(engine, outcome, known, states(plan, outcome, known, rows), kept)


def judged(plan: Plan, outcome: Outcome, known: Known) -> Outcome:
    """An outcome that says, if it was found in float32, whether that has digits for it."""
    if (jax.config.jax_enable_x64 or not (plan.free and known.centre)
        or outcome.status is Status.COLLAPSED):
        return outcome
    params = {name: outcome.params[name] for name in plan.free}
    return outcome._replace(short=bool(_short(plan, params, known)))


def _copies(engine: Any, data: dataset.Data, plan: Plan, start: Mapping[str, Any]) -> int:
    """How many parameter values the rows will be met with at once."""
    return engine.starts(data, plan, start) if isinstance(engine, EM) else 1


def reduced(engine: Any, plan: Plan, known, rows):
    """The rows, or their statistics where an engine needs no more of them."""
    # some rows and not others
    picks = getattr(engine, "batch_rows", None) or getattr(engine, "held_out", 0)
    return _summarise(plan, known, rows) if plan.additive and plan.free and not picks else rows


def states(plan: Plan, outcome, known, rows):
    """log p(discrete sites outside rows | data): at the point that was found, or the mean over
    draws."""
    if not plan.globals:
        return None
    tables = getattr(outcome.belief, "tables", None)
    if tables is not None:
        flat = np.asarray(tables).reshape(-1, *tables.shape[2:])
        return np.logaddexp.reduce(flat, axis=0) - np.log(len(flat))
    return _global_posterior(plan, {n: jax.numpy.asarray(v) for n, v in outcome.params.items()},
                             known, rows)


def infer_sizes(models: Mapping[int, Bound], data: Any, site: str, engine: EM, weights: Any,
                seed: int) -> dict[int, Found]:
    """One model with several numbers of states of a hidden site, all restarts of all sizes in one
    program: see fit.grid."""
    sizes, double = sorted(models), jax.config.jax_enable_x64
    held = read.read(models[sizes[-1]], data).trimmed()
    weight = tables.read_weights(weights, held.table.rows)
    engine.refuse(held, held.plan())

    def attempt() -> tuple[list[Outcome], Known]:
        same = jax.config.jax_enable_x64 == double
        at = held if same else held._replace(structure=trace(held.model, held.shapes))
        plan = at.plan()
        rows, known = load.load(at, plan, weight, load.order(at, plan),
                                len(sizes) * engine.starts(at, plan, {}, len(sizes)))
        return [judged(plan, outcome, known)
                for outcome in engine.grid(at, plan, rows, known, weight, seed, site, sizes)], known

    (found, known), note = precise(attempt, lambda found: worst(found[0]), engine.prior,
                                   digits.lost(held))
    out = {}
    for size, outcome in zip(sizes, found, strict=True):
        structure = trace(models[size], held.shapes)
        parts = {name: tuple(slice(n) for n in structure.sites[name].shape)
                 for name in outcome.params}
        outcome = outcome._replace(params={name: value[parts[name]]
                                           for name, value in outcome.params.items()})
        out[size] = Found(held, engine, _noted(outcome, note), jax.device_get(known.given), None,
                          None, note is not None)
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
    held = read.read(fit.model, data, fit.names, None, fit.shapes)
    held = held._replace(table=replace(held.table,
                                       values={**fit.given, **held.table.values})).trimmed()
    weight = tables.read_weights(weights, held.table.rows)
    plan = held.plan()
    if not plan.additive:
        hidden = next(iter((*plan.variables, *plan.torn, *plan.rowwise)))
        raise Refusal(f"update of model '{fit.model.name}': site '{hidden}' is unseen in part or "
                      f"not pooled; fit all rows at once")
    rows, known = load.load(held, plan, weight)
    return _again(fit, (Kept(None, *jax.device_get((_summarise(plan, known, rows), known))),
                        held.pattern))


def _again(fit, part: tuple[Kept, Mapping]) -> Found:
    """The fit's engine once more, on its statistics and those of another part."""
    kept, pattern = together(fit.structure, (fit.kept, dict(fit.pattern)), part)
    plan = decide.make(fit.structure, pattern, tuple(fit.given))
    summary, known = jax.tree.map(jax.numpy.asarray, kept[1:])
    with Progress(type(kept.engine).__name__, None, False):
        outcome = kept.engine.run(None, plan, summary, known, None, 0, {})
    return Found(Seen(fit.shapes, pattern, fit.names), kept.engine, outcome, fit.given, None, kept,
                 fit.double)


_global_posterior = jit(global_posterior, static_argnums=0)
_short = jit(short, static_argnums=0)


@functools.partial(jit, static_argnums=0)
def _summarise(plan, known, rows):
    return summarise(plan, prior_point(plan, known), known, rows)
