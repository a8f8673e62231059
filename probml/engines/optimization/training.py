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
from probml.engines.progress import Held, Progress, Turn, iterate
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
    plan, rows, known = problem.plan, problem.rows, problem.known
    limit, key = engine.steps or STEPS, random_key(problem.seed)
    # what no batch divides is one whole
    n = problem.size if engine.batch_rows or engine.held_out else 1
    held = None
    if engine.held_out:
        rows, held, count = divided(rows, engine.held_out, key, n)
        if not 0 < count < n:
            raise ModelError(f"MAP(held_out={engine.held_out}) of {n} rows holds out {count}: "
                             f"expected at least 1, and 1 to learn from")
        n -= count
        if (engine.batch_rows or 0) > n:
            raise ModelError(f"MAP(batch_rows={engine.batch_rows}, held_out={engine.held_out}): "
                             f"{n} rows are learnt from, and a batch is a part of them. Leave "
                             f"batch_rows out")
    batch = engine.batch_rows or n
    epoch = max(n // batch, 1)
    every = BLOCK if batch == n else -(-BLOCK // epoch) * epoch  # steps between evaluations
    u = to_coordinates(plan, params, known)
    state, history, curve, order = engine.optimizer.init(u), [], [], None
    since = 0

    def record_objective(u):
        """Record the objective and, where rows are held out, their mean log-likelihood."""
        value, gradient = objective(plan, engine.prior, u, known, rows)
        history.append(float(value))
        if held is not None:
            curve.append(float(_mean(plan, u, known, held)))
        return value, gradient

    def turn(before: int) -> Turn:
        """Steps up to the next evaluation."""
        nonlocal u, state, order, since, best, value, gradient
        done = before
        while done < min(before + every, limit):
            count = min(BLOCK, before + every - done, limit - done)
            size = batch if batch < n else 0
            if size:
                count = min(count, epoch - done % epoch)
                if done % epoch == 0:
                    order = rows.ordered(key, 1 + done // epoch, n)
            u, state = _descend(plan, engine.prior, engine.optimizer, size, u, state, known, rows,
                                order, n, done % epoch, count)
            done += count
        value, gradient = record_objective(u)
        status = Status.RUNNING
        if not np.isfinite(history[-1]):
            status = Status.COLLAPSED
        elif curve:
            since = 0 if curve[-1] > best[1] else since + 1
            best = (u, curve[-1]) if since == 0 else best
            if engine.patience is not None and since >= engine.patience:
                status = Status.EARLY
        return Turn(done - before, history[-1], status)

    def read() -> dict[str, Any]:
        trees = {"u": u, "state": state, "best": best[0], "gradient": gradient}
        return {"trees": {name: jax.tree.leaves(tree) for name, tree in trees.items()},
                "value": value, "peak": float(best[1]), "since": since,
                "history": list(history), "curve": list(curve)}

    def write(held: dict[str, Any]) -> None:
        nonlocal u, state, best, value, gradient, since
        trees = held["trees"]
        if bool(held["curve"]) != bool(curve):
            raise ValueError(f"its held-out rows had {held['curve']!r:.60}")
        form = jax.tree.structure(u)
        u, top, gradient = (jax.tree.unflatten(form, trees[name])
                            for name in ("u", "best", "gradient"))
        state = jax.tree.unflatten(jax.tree.structure(state), trees["state"])
        best, value, since = (top, held["peak"]), held["value"], held["since"]
        history[:], curve[:] = held["history"], held["curve"]

    value, gradient = record_objective(u)
    best = (u, curve[-1]) if curve else (u, -np.inf)
    with Progress("MAP", limit, engine.progress) as bar:
        status = iterate(bar, limit, turn, held=Held(
            read, write, dict.fromkeys(["history", *["curve"] * bool(curve)], Grown(()))))
    if status is Status.MAX_ITERATIONS:
        status = (Status.CONVERGED if bool(is_flat(value, gradient)) else Status.WANDERED
                  if _wanders(history) else status)
    u = best[0] if curve and status is not Status.COLLAPSED else u
    return Outcome(from_coordinates(plan, u, known), np.array(history), status, bar.count,
                   held_out=np.array(curve) if curve else None)


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
