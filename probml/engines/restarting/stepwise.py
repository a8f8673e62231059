"""Stepwise EM (Cappé & Moulines 2009): an M-step after every batch of rows, see batches.py; and its
two halves by themselves, for rows that come later (fits/stepping.py)."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows, Summary
from probml.engines.engine import Outcome, Problem
from probml.engines.findings import Code, Finding
from probml.engines.restarting import batches
from probml.engines.restarting.batches import Way
from probml.engines.start.race import SHORT
from probml.evidence.passes import Expected, expect, log_evidence
from probml.factors.digits import collapsed
from probml.factors.prior import log_prior
from probml.numerics.compiling import jit
from probml.plan.plan import Plan
from probml.posteriors.posterior import Point, Posterior
from probml.updates.updates import maximise

if TYPE_CHECKING:
    from probml.engines.em import EM


@dataclass(frozen=True)
class Maximised:
    """A point of the parameters, at the maximum of the M-step."""

    prior: bool
    hard: bool

    def statistics(self, plan: Plan, point: Mapping, known: Known, rows: Rows) -> Any:
        return expect(plan, point, known, rows, self.hard).statistics

    def moved(self, plan: Plan, expected: Expected, point: Mapping, known: Known,
              rows: Rows) -> dict[str, jax.Array]:
        found = maximise(plan, expected, point, known, rows, self.prior)
        return {name: found[name] for name in point}

    def objective(self, plan: Plan, point: Mapping, known: Known,
                  rows: Rows) -> tuple[jax.Array, jax.Array]:
        value = log_evidence(plan, point, known, rows)
        value = value + (log_prior(plan, point, known, mode=True) if self.prior else 0.0)
        return value, ~collapsed(plan, point, known, rows)

    def standing(self, params: Mapping, posterior: Posterior) -> dict[str, Any]:
        return dict(params)

    def told(self, plan: Plan, point: Mapping, known: Known,
             rows: Rows) -> tuple[Any, jax.Array]:
        found = expect(plan, point, known, rows, self.hard)
        return found.statistics, found.log_evidence

    def held(self, plan: Plan, point: Mapping, known: Known,
             summary: Summary) -> tuple[jax.Array, jax.Array]:
        prior = log_prior(plan, point, known, mode=True) if self.prior else jnp.zeros(())
        return ~collapsed(plan, point, known, summary), prior

    def found(self, plan: Plan, point: Mapping, known: Known) -> tuple[dict[str, Any], Posterior]:
        return dict(point), Point()


def refuse(engine: "EM", problem: Problem) -> None:
    """Raise Refusal where statistics are more than a sum over rows of one size."""
    batches.refuse(engine, problem, "MAP(optimizer=..., batch_rows=...) or SVI(batch_rows=...)")


def run(engine: "EM", problem: Problem) -> Outcome:
    """Passes over the rows in batches; `history` is the objective of all rows after each pass. The
    first point is that of EM on a sample."""
    way = engine.way
    brief = replace(engine, batch_rows=None, max_iterations=SHORT, progress=False)
    point = batches.first(problem, brief, int(engine.batch_rows or 0))
    found, history, status, statistics = batches.passes(
        "EM", way, problem, point, engine.batch_rows, engine.max_iterations, engine.tolerance,
        engine.progress)
    said = Finding.of(Code.BATCHES, kind="stepwise", rows=engine.batch_rows)
    return Outcome({name: np.asarray(value) for name, value in found.items()}, history, status,
                   len(history) - 1, (said,), shown=statistics)


@functools.partial(jit, static_argnums=(0, 1))
def shown(plan: Plan, way: Way, point: Any, known: Known, rows: Rows) -> tuple[Any, jax.Array]:
    """What rows are expected to show at a point, and their part of the objective there."""
    return way.told(plan, point, known, rows)


@functools.partial(jit, static_argnums=(0, 1))
def improved(plan: Plan, way: Way, summary: Summary, point: Any,
             known: Known) -> tuple[Any, jax.Array, jax.Array]:
    """The optimum at statistics, from a point on; whether it may be kept; what the objective at the
    point before has beside rows."""
    nothing = jnp.zeros(())
    expected = Expected(summary.statistics, {}, [], nothing, nothing, {}, {})
    found = way.moved(plan, expected, point, known, summary)
    whole = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(found)]))
    return (found, whole & way.held(plan, found, known, summary)[0],
            way.held(plan, point, known, summary)[1])
