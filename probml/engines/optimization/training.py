"""Optimisation by optax: mini-batches in a new order every epoch, held-out rows, early stopping."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.held_out import check_held_out, split_rows
from probml.device.rows import Known, Rows
from probml.engines.engine import Outcome, Problem, Status
from probml.engines.progress import Loop, Progress, StepResult, iterate
from probml.errors import ModelError, counted
from probml.evidence.density import (
    from_unbounded_by_name,
    log_posterior_and_gradient,
    unbounded_by_name,
)
from probml.evidence.e_step import row_totals, total_evidence
from probml.factors.factors import global_factors
from probml.numerics.compiling import ONCE, jit
from probml.numerics.optimum import is_flat
from probml.numerics.process.libraries import optax
from probml.numerics.transfer import random_key
from probml.plan.plan import Plan
from probml.typing import PyTree

BLOCK = 200  # steps a device call
MAX_STEPS = 2000
MIN_GAIN = 1e-6  # of the last third of a run, relative to the objective; less is none


Training = Any  # a MAP with an optimizer, which has its settings

# parameters → unbounded coordinates, both by name, by which optimisers may treat them differently
to_coordinates = jit(unbounded_by_name, static_argnames=("plan",), seldom=ONCE)


@jit(static_argnames=("plan",), seldom=ONCE)
def from_coordinates(plan: Plan, u: Mapping, known: Known) -> dict[str, jax.Array]:
    """Unbounded coordinates by name → parameters."""
    return from_unbounded_by_name(plan, u, known)[0]


@jit(static_argnames=("plan", "prior"))
def objective(plan: Plan, prior: bool, u: Mapping, known: Known, rows: Rows):
    """The objective of MAP and its gradient, at unbounded coordinates by name."""
    return log_posterior_and_gradient(plan, prior, u, known, rows)


def run(engine: Training, problem: Problem, params: Mapping) -> Outcome:
    """The result of `engine.optimizer` from `params`; `history` is the objective of the training
    rows, evaluated once an epoch, at least BLOCK steps apart.

    Raises:
        ModelError: there are no held-out rows, no training rows, or fewer than a batch.
    """
    plan, known, key = problem.plan, problem.known, random_key(problem.seed)
    rows, heldout, n = _split_rows(engine, problem, key)
    batch, limit = engine.batch_rows or n, engine.steps or MAX_STEPS
    epoch = max(n // batch, 1)
    every = BLOCK if batch == n else -(-BLOCK // epoch) * epoch  # steps between evaluations
    loop = Loop(None, "history", *["curve"] * (heldout is not None))
    history, curve = loop.lists["history"], loop.lists.get("curve", [])

    def evaluate(u: Mapping) -> tuple[jax.Array, PyTree]:
        """The objective and its gradient; recorded, with the mean log-likelihood of held-out rows.
        """
        value, gradient = objective(plan, engine.prior, u, known, rows)
        history.append(float(value))
        if heldout is not None:
            curve.append(float(_mean_log_evidence(plan, u, known, heldout)))
        return value, gradient

    def turn(before: int) -> StepResult:
        """Takes the steps up to the next evaluation."""
        (u, state, _, best), done, order = loop.state, before, None
        size, end = batch if batch < n else 0, min(before + every, limit)
        while done < end:
            count = min(BLOCK, end - done)
            if size:
                count = min(count, epoch - done % epoch)
                if done % epoch == 0:
                    order = rows.ordered(key, 1 + done // epoch, n)
            u, state = _descend(plan, engine.prior, engine.optimizer, size, u, state, known, rows,
                                order, n, done % epoch, count)
            done += count
        found = evaluate(u)
        # evaluations without a better one of the held-out rows
        since = len(curve) - 1 - int(np.argmax(np.nan_to_num(curve, nan=-np.inf))) if curve else 0
        loop.state = u, state, found, best if since else u
        early = curve and engine.patience is not None and since >= engine.patience
        status = Status.EARLY if early else Status.RUNNING
        return StepResult(done - before, history[-1],
                          status if np.isfinite(history[-1]) else Status.COLLAPSED)

    first = to_coordinates(plan, params, known)
    loop.state = first, engine.optimizer.init(first), evaluate(first), first
    with Progress("MAP", limit, engine.progress) as bar:
        status = iterate(bar, limit, turn, held=loop)
    u, _, end, best = loop.state
    if status is Status.MAX_ITERATIONS:
        # an end below the start is none, however small the gradient is relative to its value
        flat = bool(is_flat(*end)) and history[-1] >= history[0]
        status = (Status.CONVERGED if flat
                  else Status.FLUCTUATING if _is_fluctuating(history) else status)
    u = best if curve and status is not Status.COLLAPSED else u
    return Outcome(from_coordinates(plan, u, known), np.array(history), status, bar.count,
                   held_out=np.array(curve) if curve else None)


def _split_rows(engine: Training, problem: Problem,
                key: jax.Array) -> tuple[Rows, Rows | None, int]:
    """The training rows, the held-out rows, and the number of the former; 1 without batches."""
    n = problem.size if engine.batch_rows or engine.held_out else 1
    if not engine.held_out:
        return problem.rows, None, n
    rows, heldout, n_held = split_rows(problem.rows, engine.held_out, key, n)
    check_held_out(engine.held_out, n_held, n)
    n -= n_held
    if (engine.batch_rows or 0) > n:
        raise ModelError(f"MAP(batch_rows={engine.batch_rows}, held_out={engine.held_out}): only "
                         f"{counted(n, 'row remains', 'rows remain')} for fitting. Give a smaller "
                         "batch_rows, or omit it")
    return rows, heldout, n


def _is_fluctuating(history: list[float]) -> bool:
    """Whether the objective did not rise in the last third of a long enough run."""
    start = len(history) - len(history) // 3
    return len(history) >= 9 and max(history[start:]) - max(history[:start]) <= MIN_GAIN * (
        1 + abs(history[-1])
    )


@jit(static_argnames=("plan",))
def _mean_log_evidence(plan: Plan, u: jax.Array, known: Known, rows: Rows):
    """Mean log evidence of rows; discrete sites outside rows are summed out under their prior."""
    params = from_unbounded_by_name(plan, u, known)[0]
    total = row_totals(plan, params, known, rows)
    states = global_factors(plan, params, known)[: len(plan.globals)]
    return total_evidence(plan, states, total) / rows.total(lambda chunk: chunk.weights.sum())


@jit(static_argnames=("plan", "prior", "optimizer", "batch", "count"))
def _descend(plan: Plan, prior: bool, optimizer: "optax.GradientTransformation", batch: int,
             u: jax.Array, state: PyTree, known: Known, all_rows: Rows, order: object, n: jax.Array,
             offset: jax.Array, count: int):
    """`u` and the optimiser's state after `count` steps, each on the next `batch` rows of `order`,
    or on all rows (0)."""
    def step(carry: tuple, i: jax.Array):
        u, state = carry
        rows, scale = all_rows, 1.0
        if batch:
            rows = all_rows.batch(order, offset + i, batch)
            scale = n / batch
        _, gradient = log_posterior_and_gradient(plan, prior, u, known, rows, scale)
        updates, state = optimizer.update(jax.tree.map(jnp.negative, gradient), state, u)
        return (optax.apply_updates(u, updates), state), ()

    (u, state), _ = jax.lax.scan(step, (u, state), jnp.arange(count))
    return u, state
