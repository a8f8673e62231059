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
    key = random_key(problem.seed)
    rows, held, n = _split_rows(engine, problem, key)
    loop = _Descent(engine, problem, rows, held, n, key, params)
    with Progress("MAP", loop.limit, engine.progress) as bar:
        status = iterate(bar, loop.limit, loop.turn, held=loop)
    return loop.outcome(status, bar.count)


def _split_rows(engine: Training, problem: Problem,
                key: jax.Array) -> tuple[Rows, Rows | None, int]:
    """The training rows, the held-out rows, and the number of the former; 1 without batches."""
    n = problem.size if engine.batch_rows or engine.held_out else 1
    if not engine.held_out:
        return problem.rows, None, n
    rows, held, count = split_rows(problem.rows, engine.held_out, key, n)
    check_held_out(engine.held_out, count, n)
    n -= count
    if (engine.batch_rows or 0) > n:
        raise ModelError(f"MAP(batch_rows={engine.batch_rows}, held_out={engine.held_out}): only "
                         f"{counted(n, 'row remains', 'rows remain')} for fitting. Give a smaller "
                         "batch_rows, or omit it")
    return rows, held, n


class _Descent(Loop):
    """The coordinates `u`, the optimiser's state, and the evaluations so far: `history`, the
    objective; `curve`, the mean log-likelihood of held-out rows; `best`, the coordinates with its
    highest value, and this value; `since`, evaluations without a better one."""

    kept = ("u", "state", "gradient", "value", "best", "since")

    def __init__(self, engine: Training, problem: Problem, rows: Rows, held: Rows | None, n: int,
                 key: jax.Array, params: Mapping):
        super().__init__(None, "history", *["curve"] * (held is not None))
        self.history, self.curve = self.lists["history"], self.lists.get("curve", [])
        self.engine, self.plan, self.known = engine, problem.plan, problem.known
        self.rows, self.held, self.n, self.key = rows, held, n, key
        self.limit = engine.steps or MAX_STEPS
        self.batch = engine.batch_rows or n
        self.epoch = max(n // self.batch, 1)
        # steps between evaluations
        self.every = BLOCK if self.batch == n else -(-BLOCK // self.epoch) * self.epoch
        self.u = to_coordinates(self.plan, params, self.known)
        self.state, self.order, self.since = engine.optimizer.init(self.u), None, 0
        self._record()
        self.best = (self.u, self.curve[-1]) if self.curve else (self.u, -np.inf)

    def _record(self) -> None:
        """Records the objective and, if rows are held out, their mean log-likelihood."""
        self.value, self.gradient = objective(self.plan, self.engine.prior, self.u, self.known,
                                              self.rows)
        self.history.append(float(self.value))
        if self.held is not None:
            self.curve.append(float(_mean_log_evidence(self.plan, self.u, self.known, self.held)))

    def turn(self, before: int) -> StepResult:
        """Takes the steps up to the next evaluation."""
        done, end = before, min(before + self.every, self.limit)
        while done < end:
            count = min(BLOCK, end - done)
            size = self.batch if self.batch < self.n else 0
            if size:
                count = min(count, self.epoch - done % self.epoch)
                if done % self.epoch == 0:
                    self.order = self.rows.ordered(self.key, 1 + done // self.epoch, self.n)
            self.u, self.state = _descend(
                self.plan, self.engine.prior, self.engine.optimizer, size, self.u, self.state,
                self.known, self.rows, self.order, self.n, done % self.epoch, count)
            done += count
        self._record()
        return StepResult(done - before, self.history[-1], self._status())

    def _status(self) -> Status:
        """The status after the last evaluation."""
        if not np.isfinite(self.history[-1]):
            return Status.COLLAPSED
        if self.curve:
            self.since = 0 if self.curve[-1] > self.best[1] else self.since + 1
            self.best = (self.u, self.curve[-1]) if self.since == 0 else self.best
            if self.engine.patience is not None and self.since >= self.engine.patience:
                return Status.EARLY
        return Status.RUNNING

    def outcome(self, status: Status, count: int) -> Outcome:
        """The point after `count` steps, or the one with the best value of the held-out rows."""
        if status is Status.MAX_ITERATIONS:
            # an end below the start is none, however small the gradient is relative to its value
            flat = bool(is_flat(self.value, self.gradient)) and self.history[-1] >= self.history[0]
            status = (Status.CONVERGED if flat
                      else Status.FLUCTUATING if _is_fluctuating(self.history) else status)
        u = self.best[0] if self.curve and status is not Status.COLLAPSED else self.u
        return Outcome(from_coordinates(self.plan, u, self.known), np.array(self.history), status,
                       count, held_out=np.array(self.curve) if self.curve else None)


def _is_fluctuating(history: list[float]) -> bool:
    """Whether the objective did not rise in the last third of a long enough run."""
    late = len(history) - len(history) // 3
    return len(history) >= 9 and max(history[late:]) - max(history[:late]) <= MIN_GAIN * (
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
