"""How a posterior is found: one engine per file, and the ladder Exact → EM → MAP that chooses."""

from collections.abc import Mapping
from typing import Any

import jax

from probml import chunks, tables
from probml.compiling import jit
from probml.engines.em import EM as EM
from probml.engines.exact import Exact as Exact
from probml.engines.map import MAP as MAP
from probml.engines.run import Status as Status
from probml.engines.start import given_start
from probml.factors import global_posterior
from probml.language import Model, ModelError, Refusal
from probml.plan import Plan

LADDER = (Exact(), EM(), MAP())


def choose(data: chunks.Data, plan: Plan) -> tuple[Any, dict[str, str]]:
    """The first engine of the ladder that does not refuse, and the reasons of those that did (or would)."""
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


def fit(model: Model, data: Any, engine: Any = None, *, weights: Any = None, seed: int = 0, start: Mapping[str, Any] | None = None):
    """See Model.fit."""
    from probml.fit import Fit

    if engine is not None and not all(hasattr(engine, verb) for verb in ("refuse", "run")) or isinstance(engine, type):
        raise ModelError(f"engine={engine!r} is not an engine: pass a value, probml.EM(), probml.MAP() or probml.Exact(), or None")
    held = chunks.read(model, data)
    weight = tables.read_weights(weights, held.table.rows)
    if not held.table.columns:
        outside = next(iter(held.table.values), None)
        raise tables.DataError(
            f"model '{model.name}': every cell of the data is unseen (missing), so there is nothing to learn from"
            if outside is None
            else f"model '{model.name}': site '{outside}' lies outside rows(); data need a site inside `with probml.rows():`"
        )
    plan = held.plan()
    if engine is None:
        engine, _ = choose(held, plan)
        ladder = LADDER[LADDER.index(engine) :]
    else:
        engine.refuse(held, plan)
        ladder = (engine,)
    given_start(plan, dict(start or {}))  # refused before anything is shipped or compiled
    rows, known = chunks.load(held, plan, weight, chunks.order(held, plan))
    for engine in ladder:
        try:
            outcome = (engine if plan.free else Exact()).run(held, plan, rows, known, weight, seed, dict(start or {}))
            break
        except Refusal:
            if engine is ladder[-1]:
                raise
    table = _global_posterior(plan, {n: jax.numpy.asarray(v) for n, v in outcome.params.items()}, known, rows) if plan.globals else None
    return Fit.of(held, engine, outcome, jax.device_get(known.given), table)


_global_posterior = jit(global_posterior, static_argnums=0)
