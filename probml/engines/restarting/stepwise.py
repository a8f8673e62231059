"""Stepwise EM (Cappé & Moulines 2009): an M-step after every batch of rows, from statistics that
forget slowly what older parameters expected."""

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.layout import laid
from probml.device.load import load
from probml.device.rows import Known, Rows
from probml.engines.engine import Outcome, Problem, Status
from probml.engines.progress import Held, Progress, Turn, iterate
from probml.engines.start.race import SHORT, sample
from probml.errors import ModelError, Refusal
from probml.evidence.passes import Expected, expect, log_evidence
from probml.factors.digits import collapsed
from probml.factors.prior import log_prior
from probml.numerics.compiling import jit
from probml.numerics.transfer import placed, random_key
from probml.plan.plan import Plan
from probml.updates.updates import maximise

if TYPE_CHECKING:
    from probml.engines.em import EM

FORGETTING = 0.6  # what is new counts 1 / t**FORGETTING at batch t: between 1/2 and 1
BEGUN = 10_000  # rows, and BATCHES batches, on which a first point is found
BATCHES = 4
QUIET = 4  # batches before the first M-step


def refuse(engine: "EM", problem: Problem) -> None:
    """Raise Refusal where statistics are more than a sum over rows of one size.

    Raises:
        ModelError: a batch is larger than the data.
    """
    plan, rows = problem.plan, problem.size
    where = f"EM(batch_rows={engine.batch_rows}) cannot fit {problem}"
    if rows is not None and engine.batch_rows > rows:
        raise ModelError(f"{where}: the data have {rows} rows, and a batch is a part of them. "
                         f"Leave batch_rows out")
    lasting = [*plan.globals, *plan.rowwise, *(n for g in plan.latents for n in g.sites),
               *plan.effects]
    if lasting:
        raise Refusal(f"{where}: what rows tell of '{lasting[0]}' is no table of statistics to "
                      f"which batches add. Leave batch_rows out, or take MAP(optimizer=..., "
                      f"batch_rows=...) or SVI(batch_rows=...)")


def run(engine: "EM", problem: Problem) -> Outcome:
    """Passes over the rows in batches, in another order each time; `history` is the objective of
    all rows after each pass.

    The first point is that of EM on a sample. At the end of a pass its statistics, of every row
    once, take the place of those that forget: so nothing is left of the noise of batches but what
    the parameters have moved meanwhile.

    Cost: a pass is an E-step of all rows, an M-step a batch, and the evidence of all rows.
    """
    plan, rows, known = problem.plan, problem.rows, problem.known
    state = _first(engine, problem)
    params = placed_point(state)
    static = (engine.prior, engine.hard, int(engine.batch_rows))
    key = random_key(problem.seed)
    history = [float(_objective(plan, engine.prior, params, known, rows))]
    best, done_batches, statistics = (params, history[0]), np.asarray(0), None

    def turn(done: int) -> Turn:
        nonlocal params, statistics, done_batches, best
        if statistics is None:
            statistics = _blank(plan, params, known, rows)
        params, statistics, done_batches, value, sound = _passed(
            plan, static, params, statistics, done_batches, known, rows, jax.random.fold_in(key,
                                                                                            done)
        )
        history.append(float(value))
        if not sound or not np.isfinite(history[-1]):
            return Turn(1, history[-1], Status.COLLAPSED)
        gain = history[-1] - best[1]
        if gain > 0:
            best = (params, history[-1])
        small = gain <= engine.tolerance * rows.weight
        return Turn(1, history[-1], Status.CONVERGED if small else Status.RUNNING)

    def read() -> dict[str, Any]:
        return {"params": dict(params), "statistics": jax.tree.leaves(statistics),
                "batches": done_batches, "best": dict(best[0]), "history": list(history)}

    def write(held: dict[str, Any]) -> None:
        nonlocal params, statistics, done_batches, best
        statistics = jax.tree.unflatten(jax.tree.structure(_blank(plan, params, known, rows)),
                                        held["statistics"])
        params, done_batches = held["params"], held["batches"]
        history[:] = held["history"]
        best = (held["best"], max(history))

    with Progress("EM", engine.max_iterations, engine.progress) as bar:
        status = iterate(bar, engine.max_iterations, turn, held=Held(read, write))
    note = f"stepwise, in batches of {engine.batch_rows} rows"
    found = params if status is Status.COLLAPSED else best[0]
    return Outcome({name: np.asarray(value) for name, value in found.items()}, np.array(history),
                   status, len(history) - 1, (note,))


def placed_point(params: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Parameters on the device, in its type of numbers."""
    return {name: placed(np.asarray(value), jnp.result_type(float))
            for name, value in params.items()}


def _first(engine: "EM", problem: Problem) -> Mapping[str, Any]:
    """Where a short EM of some rows ends."""
    data, plan, weights = problem.data, problem.plan, problem.weights
    assert data is not None
    size = max(BEGUN, BATCHES * engine.batch_rows)
    if data.table.rows > size:
        data, weights = sample(data, weights, size, problem.seed)
    data = data._replace(survey=None)
    brief = replace(engine, batch_rows=None, max_iterations=SHORT, progress=False)
    part = replace(problem, data=data, weights=weights)
    copies = brief.copies(part)
    rows, known = load(data, plan, weights, laid(data, plan, copies), copies, params=problem.start)
    return brief.run(replace(part, rows=rows, known=known)).params


def _statistics(plan: Plan, params: Mapping, known: Known, rows: Rows) -> Any:
    return expect(plan, params, known, rows).statistics


@functools.partial(jit, static_argnums=0)
def _blank(plan: Plan, params: Mapping, known: Known, rows: Rows) -> Any:
    """Statistics of no rows."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
                        jax.eval_shape(functools.partial(_statistics, plan), params, known, rows))


@functools.partial(jit, static_argnums=(0, 1))
def _objective(plan: Plan, prior: bool, params: Mapping, known: Known, rows: Rows) -> jax.Array:
    value = log_evidence(plan, params, known, rows)
    return value + (log_prior(plan, params, known, mode=True) if prior else 0.0)


@functools.partial(jit, static_argnums=(0, 1))
def _passed(plan: Plan, static: tuple, params: Mapping, statistics: Any, count, known: Known,
            rows: Rows, key) -> tuple:
    """One pass: the parameters and statistics after it, batches met in all, the objective, and
    whether all is sound."""
    prior, hard, size = static
    every = rows.total(lambda chunk: chunk.weights.sum())

    def improved(statistics, params, batch):
        nothing = jnp.zeros(())
        expected = Expected(statistics, {}, [], nothing, nothing, {}, {})
        found = maximise(plan, expected, params, known, batch, prior)
        return {name: found[name].astype(params[name].dtype) for name in params}

    def step(carry, batch):
        params, running, whole, count = carry
        expected = expect(plan, params, known, batch, hard)
        weight = batch.total(lambda chunk: chunk.weights.sum())
        some = weight > 0
        share = jnp.where(some, every / jnp.where(some, weight, 1.0), 0.0)
        new = (count + 1.0) ** -FORGETTING
        mixed = jax.tree.map(lambda old, own: old + new * (share * own - old), running,
                             expected.statistics)
        after = improved(mixed, params, batch)
        moves = some & (count >= QUIET)
        whole = jax.tree.map(jnp.add, whole, expected.statistics)
        return (_chosen(moves, after, params), _chosen(some, mixed, running), whole, count + some)

    whole = jax.tree.map(jnp.zeros_like, statistics)
    params, _, whole, count = rows.walk(step, (dict(params), statistics, whole, count), size, key)
    params = improved(whole, params, rows)
    value = log_evidence(plan, params, known, rows)
    value = value + (log_prior(plan, params, known, mode=True) if prior else 0.0)
    return params, whole, count, value, ~collapsed(plan, params, known, rows)


def _chosen(flag, a: Any, b: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(flag, x, y), a, b)
