"""Passes over the rows in batches: an update after every batch, from a running average of expected
statistics.

    s_t = s_{t−1} + ρ_t (rows/batch · s(batch; θ_{t−1}) − s_{t−1}),   ρ_t = t^−0.6
    θ_t = the optimum given s_t

For point estimates this is stepwise EM (Cappé & Moulines 2009, "On-line expectation–maximization
algorithm for latent data models"), for a mean field stochastic variational inference: there θ are
natural parameters, prior + s, and averaging one averages the other (Sato 2001; Hoffman, Blei, Wang
& Paisley 2013, "Stochastic variational inference", equation 31). An `IncrementalUpdate` says what θ
is and how it is computed.

Stepwise EM (Cappé & Moulines 2009): an M-step after every batch of rows, see batches.py; and
E-steps and M-steps separately, for rows that are added to a fit (fits/further.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.device.layout import choose_layout
from probml.device.load import load
from probml.device.rows import Known, Rows, Summary, compensated
from probml.engines.engine import Engine, Outcome, Problem, State, Status, check_batch
from probml.engines.findings import Code, Finding
from probml.engines.progress import Loop, Progress, StepResult, iterate
from probml.engines.start.race import MAX_PILOT_EVALUATIONS, sample_rows
from probml.errors import Refusal
from probml.evidence.e_step import Expected, expect
from probml.factors.digits import has_collapsed_scale
from probml.factors.naturals import log_prior
from probml.numerics.compiling import jit
from probml.numerics.transfer import placed, random_key
from probml.plan.plan import Plan
from probml.posteriors.posterior import Point, Posterior
from probml.typing import PyTree
from probml.updates.updates import maximise

FORGETTING = 0.6  # batch t has weight 1 / t**FORGETTING, between 1/2 and 1
QUIET_BATCHES = 4  # before the first update
START_ROWS, START_BATCHES = 10_000, 4  # rows, or batches, on which the first point is found


class IncrementalUpdate(Protocol):
    """How a point (any pytree) and expected statistics determine each other; frozen and hashable,
    since it is a static argument of compiled programs."""

    def update_point(self, plan: Plan, expected: Expected, point: PyTree, known: Known,
                     rows: Rows | Summary) -> PyTree:
        """The optimum given the statistics, starting from a point."""

    def point_of_fit(self, params: Mapping, posterior: Posterior) -> PyTree:
        """The point at which a fit ended."""

    def statistics_and_evidence(self, plan: Plan, point: PyTree, known: Known,
                                rows: Rows) -> tuple[PyTree, jax.Array]:
        """Expected statistics of the rows, and the part of the objective that depends on them."""

    def validity_and_prior(self, plan: Plan, point: PyTree, known: Known,
                           rows: Rows | Summary) -> tuple[jax.Array, jax.Array]:
        """Whether a point is valid, and the part of the objective that does not depend on rows."""

    def found(self, plan: Plan, point: PyTree,
              known: Known) -> tuple[dict[str, ArrayLike], Posterior]:
        """The parameters at a point, and what is known beyond them."""


def refuse(engine: Engine, problem: Problem, instead: str) -> None:
    """Raises Refusal if some sites have no sufficient statistics, ModelError if a batch is larger
    than the data."""
    check_batch(engine, problem)
    if names := sites_without_statistics(problem.plan):
        raise Refusal(f"{type(engine).__name__}(batch_rows={engine.capabilities.batch}) cannot fit "
                      f"{problem}: site '{names[0]}' has no sufficient statistics (sums of the "
                      "data that determine its likelihood) to add up over batches. "
                      f"Omit batch_rows, or use {instead}")


def sites_without_statistics(plan: Plan) -> tuple[str, ...]:
    """The sites without sufficient statistics that add up over batches."""
    return (*plan.globals, *plan.rowwise, *(name for group in plan.latents for name in group.sites),
            *plan.effects)


def expected_of(statistics: PyTree) -> Expected:
    """An E-step of which there are only the statistics."""
    zero = jnp.zeros(())
    return Expected(statistics, {}, [], zero, zero, {}, {})


def first_point(problem: Problem, engine: Any) -> dict[str, jax.Array]:
    """The parameters, on the device, after a short run of EM or VB, without batches, on a random
    sample of rows."""
    data, weights, plan = problem.data, problem.weights, problem.plan
    brief = replace(engine, batch_rows=None, max_iterations=MAX_PILOT_EVALUATIONS, progress=False)
    size = max(START_ROWS, START_BATCHES * engine.batch_rows)
    if data.table.rows > size:
        data, weights = sample_rows(data, weights, size, problem.seed)
    part = replace(problem, data=data._replace(survey=None), weights=weights)
    copies = brief.copies(part)
    rows, known = load(part.data, plan, weights, choose_layout(part.data, plan, copies), copies,
                       params=problem.start)
    params: Mapping = brief.run(replace(part, rows=rows, known=known)).params
    return {name: placed(np.asarray(value), jnp.result_type(float))
            for name, value in params.items()}


def run_passes(engine: Any, problem: Problem, point: PyTree, kind: str) -> Outcome:
    """Passes over the rows in batches, in another order each time, until one gains less than the
    tolerance per row: the best point, the objective of all rows after each pass, and the expected
    statistics of all rows in the last pass.

    At the end of a pass the statistics of every row once replace the running average: of the noise
    of batches only that remains by which the point has moved meanwhile.

    Args:
        engine: EM or VB, with `batch_rows`. kind: of its updates, in words.

    Cost: a pass is the statistics of all rows, an update a batch, and the objective of all rows.
    """
    plan, rows, known = problem.plan, problem.rows, problem.known
    updater: IncrementalUpdate = engine.capabilities.incremental_update
    static, key = (updater, int(engine.batch_rows)), random_key(problem.seed)
    first_value = float(_objective(plan, updater, point, known, rows)[0])
    # the point, its statistics, number of batches so far; the best point, and its objective
    loop = Loop((point, _zero_statistics(plan, updater, point, known, rows), np.asarray(0), point,
                 first_value), "history")
    history = loop.lists["history"]
    history.append(first_value)

    def turn(done: int) -> StepResult:
        point, statistics, batches, best, highest = loop.state
        point, statistics, batches, value, is_valid = _run_pass(
            plan, static, point, statistics, batches, known, rows, key, np.int32(done)
        )
        history.append(float(value))
        is_valid = bool(is_valid) and np.isfinite(history[-1])
        gain = history[-1] - highest
        if is_valid and gain > 0:
            best, highest = point, history[-1]
        loop.state = point, statistics, batches, best, highest
        if not is_valid:
            return StepResult(1, history[-1], Status.COLLAPSED)
        is_small = gain <= engine.tolerance * rows.weight
        return StepResult(1, history[-1], Status.CONVERGED if is_small else Status.RUNNING)

    limit = engine.max_iterations
    with Progress(type(engine).__name__, limit, engine.progress) as bar:
        status = iterate(bar, limit, turn, held=loop)
    point, statistics, _, best, _ = loop.state
    params, posterior = updater.found(plan, point if status is Status.COLLAPSED else best, known)
    return Outcome(jax.device_get(params), np.array(history), status, len(history) - 1,
                   (Finding.of(Code.BATCHES, kind=kind, rows=engine.batch_rows),), posterior,
                   state=State(statistics=jax.device_get(statistics)))


@jit(static_argnums=(0, 1))
def _zero_statistics(plan: Plan, updater: IncrementalUpdate, point: PyTree, known: Known,
                     rows: Rows) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(
        lambda point, known, rows: updater.statistics_and_evidence(plan, point, known, rows)[0],
        point, known, rows))


def _objective_and_validity(plan: Plan, updater: IncrementalUpdate, point: PyTree, known: Known,
                            rows: Rows) -> tuple:
    """The objective of all rows, and whether the point is valid."""
    valid, prior = updater.validity_and_prior(plan, point, known, rows)
    return prior + updater.statistics_and_evidence(plan, point, known, rows)[1], valid


_objective = jit(_objective_and_validity, static_argnums=(0, 1))


@jit(static_argnums=(0, 1))
def _run_pass(plan: Plan, static: tuple, point: PyTree, statistics: PyTree, count: jax.Array,
              known: Known, rows: Rows, key: jax.Array, epoch: jax.Array) -> tuple:
    """One pass: the point and statistics after it, the number of batches so far, the objective, and
    whether the point is valid."""
    updater, size = static
    total_weight = rows.mass

    def improved(statistics: PyTree, point: PyTree, batch: Rows):
        updated = updater.update_point(plan, expected_of(statistics), point, known, batch)
        return jax.tree.map(lambda new, old: new.astype(old.dtype), updated, point)

    def step(carry: tuple, batch: Rows):
        point, average, total, remainder, count = carry
        stats = updater.statistics_and_evidence(plan, point, known, batch)[0]
        weight = batch.total(lambda chunk: chunk.weights.sum())
        has_weight = weight > 0
        share = jnp.where(has_weight, total_weight / jnp.where(has_weight, weight, 1.0), 0.0)
        rate = (count + 1.0) ** -FORGETTING
        mixed = jax.tree.map(lambda old, fresh: old + rate * (share * fresh - old), average, stats)
        new_point = improved(mixed, point, batch)
        is_moving = has_weight & (count >= QUIET_BATCHES)
        return (_select(is_moving, new_point, point), _select(has_weight, mixed, average),
                *compensated(total, remainder, stats), count + has_weight)

    total = jax.tree.map(jnp.zeros_like, statistics)
    point, _, total, _, count = rows.walk(step, (point, statistics, total, total, count), size,
                                          key, epoch)
    point = improved(total, point, rows)
    return point, total, count, *_objective_and_validity(plan, updater, point, known, rows)


def _select(flag: np.ndarray, a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(lambda x, y: jnp.where(flag, x, y), a, b)


@dataclass(frozen=True)
class PointUpdate:
    """Point estimates, updated by M-steps."""

    prior: bool
    hard: bool

    def update_point(self, plan: Plan, expected: Expected, point: Mapping, known: Known,
                     rows: Rows | Summary) -> dict[str, jax.Array]:
        params = maximise(plan, expected, point, known, rows, self.prior)
        return {name: params[name] for name in point}

    def point_of_fit(self, params: Mapping, posterior: Posterior) -> PyTree:
        return dict(params)

    def statistics_and_evidence(self, plan: Plan, point: Mapping, known: Known,
                                rows: Rows) -> tuple[PyTree, jax.Array]:
        expected = expect(plan, point, known, rows, self.hard)
        return expected.statistics, expected.log_evidence

    def validity_and_prior(self, plan: Plan, point: Mapping, known: Known,
                           rows: Rows | Summary) -> tuple[jax.Array, jax.Array]:
        prior = log_prior(plan, point, known, mode=True) if self.prior else jnp.zeros(())
        return ~has_collapsed_scale(plan, point, known, rows), prior

    def found(self, plan: Plan, point: Mapping,
              known: Known) -> tuple[dict[str, ArrayLike], Posterior]:
        return dict(point), Point()


@jit(static_argnums=(0, 1))
def expected_statistics(plan: Plan, updater: IncrementalUpdate, point: object, known: Known,
                        rows: Rows) -> tuple[PyTree, jax.Array]:
    """Expected statistics of the rows at a point, and the part of the objective that depends on
    them."""
    return updater.statistics_and_evidence(plan, point, known, rows)


@jit(static_argnums=(0, 1))
def improve_point(plan: Plan, updater: IncrementalUpdate, summary: Summary, point: object,
             known: Known) -> tuple[PyTree, jax.Array, jax.Array]:
    """The optimum given statistics, starting from a point; whether it is valid; and the part of the
    objective at the point before that does not depend on rows."""
    improved = updater.update_point(plan, expected_of(summary.statistics), point, known, summary)
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(improved)]))
    return (improved, finite & updater.validity_and_prior(plan, improved, known, summary)[0],
            updater.validity_and_prior(plan, point, known, summary)[1])
