"""Training by an optax optimiser: mini-batches in a new order every epoch, held-out rows, early
stopping."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.held_out import divided
from probml.device.rows import Known, Rows
from probml.engines.engine import Outcome, Problem, Status
from probml.engines.optimization.objective import from_coordinates, objective, to_coordinates
from probml.engines.progress import Loop, Progress, Turn, iterate
from probml.errors import ModelError
from probml.evidence.density import from_free, log_posterior_and_gradient
from probml.evidence.passes import row_totals, total_evidence
from probml.factors.factors import global_factors
from probml.numerics.compiling import jit
from probml.numerics.optimum import is_flat
from probml.numerics.outside.checkpoint import Grown
from probml.numerics.transfer import random_key
from probml.plan.plan import Plan

BLOCK = 200  # steps a device call
STEPS = 2000


class Training(NamedTuple):
    """What MAP says of its optimizer; see there."""

    optimizer: Any
    steps: int | None
    batch_rows: int | None
    held_out: float
    patience: int | None
    prior: bool
    progress: bool


def run(engine: Training, problem: Problem, params: Mapping) -> Outcome:
    """Steps of `engine.optimizer` from `params`; `history` is the objective of the rows learnt
    from, evaluated once an epoch, at least BLOCK steps apart.

    Raises:
        ModelError: the held-out share leaves no row on one side, or fewer than a batch has to learn
            from.
    """
    key = random_key(problem.seed)
    rows, held, n = _divided(engine, problem, key)
    found = _Descent(engine, problem, rows, held, n, key, params)
    with Progress("MAP", found.limit, engine.progress) as bar:
        status = iterate(bar, found.limit, found.turn, held=found)
    return found.outcome(status, bar.count)


def _divided(engine: Training, problem: Problem, key: jax.Array) -> tuple[Rows, Rows | None, int]:
    """The rows that are learnt from, those that are held out, and the number of the former."""
    # what no batch divides is one whole
    n = problem.size if engine.batch_rows or engine.held_out else 1
    if not engine.held_out:
        return problem.rows, None, n
    rows, held, count = divided(problem.rows, engine.held_out, key, n)
    if not 0 < count < n:
        raise ModelError(f"MAP(held_out={engine.held_out}) of {n} rows holds out {count}: "
                         f"expected at least 1, and 1 to learn from")
    n -= count
    if (engine.batch_rows or 0) > n:
        raise ModelError(f"MAP(batch_rows={engine.batch_rows}, held_out={engine.held_out}): "
                         f"{n} rows are learnt from, and a batch is a part of them. Leave "
                         f"batch_rows out")
    return rows, held, n


class _Descent(Loop):
    """The coordinates `u`, the optimiser's state, and what was evaluated so far: `history`, the
    objective; `curve`, the mean log-likelihood of held-out rows, and `best`, its highest with the
    coordinates there."""

    kept = ("u", "state", "gradient", "value", "best", "since")

    def __init__(self, engine: Training, problem: Problem, rows: Rows, held: Rows | None, n: int,
                 key: jax.Array, params: Mapping):
        super().__init__(**dict.fromkeys(["history", *["curve"] * (held is not None)], Grown(())))
        self.history, self.curve = self.lists["history"], self.lists.get("curve", [])
        self.engine, self.plan, self.known = engine, problem.plan, problem.known
        self.rows, self.held, self.n, self.key = rows, held, n, key
        self.limit = engine.steps or STEPS
        self.batch = engine.batch_rows or n
        self.epoch = max(n // self.batch, 1)
        # steps between evaluations
        self.every = BLOCK if self.batch == n else -(-BLOCK // self.epoch) * self.epoch
        self.u = to_coordinates(self.plan, params, self.known)
        self.state, self.order, self.since = engine.optimizer.init(self.u), None, 0
        self._record()
        self.best = (self.u, self.curve[-1]) if self.curve else (self.u, -np.inf)

    def _record(self) -> None:
        """Record the objective and, where rows are held out, their mean log-likelihood."""
        self.value, self.gradient = objective(self.plan, self.engine.prior, self.u, self.known,
                                              self.rows)
        self.history.append(float(self.value))
        if self.held is not None:
            self.curve.append(float(_mean(self.plan, self.u, self.known, self.held)))

    def turn(self, before: int) -> Turn:
        """Steps up to the next evaluation."""
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
        return Turn(done - before, self.history[-1], self._status())

    def _status(self) -> Status:
        """Whether the last evaluation ends the training."""
        if not np.isfinite(self.history[-1]):
            return Status.COLLAPSED
        if self.curve:
            self.since = 0 if self.curve[-1] > self.best[1] else self.since + 1
            self.best = (self.u, self.curve[-1]) if self.since == 0 else self.best
            if self.engine.patience is not None and self.since >= self.engine.patience:
                return Status.EARLY
        return Status.RUNNING

    def outcome(self, status: Status, count: int) -> Outcome:
        """The point after `count` steps, or, of held-out rows, the best one."""
        if status is Status.MAX_ITERATIONS:
            flat = bool(is_flat(self.value, self.gradient))
            status = (Status.CONVERGED if flat else Status.WANDERED if _wanders(self.history)
                      else status)
        u = self.best[0] if self.curve and status is not Status.COLLAPSED else self.u
        return Outcome(from_coordinates(self.plan, u, self.known), np.array(self.history), status,
                       count, held_out=np.array(self.curve) if self.curve else None)



SMALL = 1e-6  # a gain of a third of a run, relative to the objective, that is none


def _wanders(history: list[float]) -> bool:
    """Whether the last third of a long enough run has not risen above what was there before."""
    late = len(history) - len(history) // 3
    return len(history) >= 9 and max(history[late:]) - max(history[:late]) <= SMALL * (
        1 + abs(history[-1])
    )


@functools.partial(jit, static_argnames=("plan",))
def _mean(plan: Plan, u, known: Known, rows: Rows):
    """Mean log evidence of rows, at the prior of what lies outside them."""
    params = from_free(plan, u, known)[0]
    total = row_totals(plan, params, known, rows)
    states = global_factors(plan, params, known)[: len(plan.globals)]
    return total_evidence(plan, states, total) / rows.total(lambda chunk: chunk.weights.sum())


@functools.partial(jit, static_argnames=("plan", "prior", "optimizer", "batch", "count"))
def _descend(plan: Plan, prior: bool, optimizer: Any, batch: int, u, state, known: Known,
             every: Rows, order, n, offset, count: int):
    """`count` steps; `batch` rows a step, the next ones of `order`, or all rows (0)."""
    import optax

    def step(carry, i):
        u, state = carry
        rows, scale = every, 1.0
        if batch:
            rows = every.batch(order, offset + i, batch)
            scale = n / batch
        _, gradient = log_posterior_and_gradient(plan, prior, u, known, rows, scale)
        updates, state = optimizer.update(jax.tree.map(jnp.negative, gradient), state, u)
        return (optax.apply_updates(u, updates), state), ()

    (u, state), _ = jax.lax.scan(step, (u, state), jnp.arange(count))
    return u, state
