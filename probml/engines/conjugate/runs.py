"""All restarts of variational Bayes until they converge, in one program."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Known, Rows
from probml.engines.conjugate.sweep import bound, updated, with_means
from probml.engines.engine import Status
from probml.engines.restarting.restarts import run_to_convergence
from probml.engines.start.race import Race
from probml.engines.start.start import Start
from probml.evidence.passes import expect
from probml.numerics import lapack
from probml.numerics.compile_effort import ONCE
from probml.numerics.compiling import jit
from probml.plan.plan import Plan
from probml.posteriors.closed import Closed
from probml.updates.updates import maximise

BLOCK = 16  # iterations of a device call, at most: progress shows and Ctrl-C works in between
PATIENCE = 3  # consecutive iterations that gain less than the tolerance, after which a run ends
MATRICES = 16  # of an iteration for each matrix of the plan, about: for the size of batches

Own = Mapping[str, Mapping[str, jax.Array]]  # field of Known → values of each restart


class Run(NamedTuple):
    """All restarts; the first axis of every leaf is that of restarts.

    Attributes:
        closed: q(θ) that is evaluated next, or was evaluated last if the run has ended.
        value: the bound. stalled: consecutive iterations that gained less than the tolerance.
        count: iterations. status: of the run.
    """

    closed: Closed
    value: jax.Array
    stalled: jax.Array
    count: jax.Array
    status: jax.Array


@functools.partial(jit, static_argnames=("plan",), seldom=ONCE)
def initial_posteriors(plan: Plan, first: Start, known: Known, rows: Rows, own: Own) -> Run:
    """q(θ) of every restart after one update from the responsibilities at its start; for labelled
    rows the start is their mode."""

    def update_restart(first: Start, own: Own):
        params, here = dict(first.params), known._replace(**dict[str, Any](own))
        if first.expected is not None:
            params = {**maximise(plan, first.expected, params, known, rows, True), **first.fixed}
        expected = expect(plan, params, here._replace(allowed=first.allowed or here.allowed), rows)
        return updated(plan, expected, params, here, rows, None)

    closed = _map_restarts(plan, update_restart, first, own)
    restarts = len(jax.tree.leaves(first.params)[0])
    value = jnp.full(restarts, -jnp.inf, jnp.result_type(float))
    zero = jnp.zeros(restarts, jnp.int32)
    return Run(closed, value, zero, zero, zero)


@functools.partial(jit, static_argnames=("plan",))
def advance(plan: Plan, run: Run, known: Known, rows: Rows, own: Own, limit: jax.Array,
            ceiling: jax.Array, gain: jax.Array):
    """Iterations until `limit` or until every restart has ended: the restarts, and their bounds,
    (restarts, BLOCK).

    Args:
        ceiling: evaluations at most; q(θ) does not move after the last.
    """
    restarts = run.value.shape[0]
    values = jnp.full((restarts, BLOCK), jnp.nan, run.value.dtype)

    def more(carry: tuple):
        run, _, i = carry
        return (i < BLOCK) & jnp.any((run.status == 0) & (run.count < limit))

    def body(carry: tuple):
        run, values, i = carry
        new = _map_restarts(plan, lambda one,
                            own: _iteration(plan, one, known._replace(**own), rows,
                                            ceiling, gain), run, own)
        going = (run.status == 0) & (run.count < limit)
        new = jax.tree.map(lambda a, b: jnp.where(going.reshape(-1, *(1,) * (a.ndim - 1)), a, b),
                           new, run)
        return new, values.at[:, i].set(jnp.where(going, new.value, jnp.nan)), i + 1

    run, values, _ = jax.lax.while_loop(more, body, (run, values, 0))
    return run, values


def _map_restarts(plan: Plan, function: Callable, *restarts: object):
    """A function of every restart: in one batch, or one after the other if their matrices are too
    many for a batch (numerics/lapack.py)."""
    count = len(jax.tree.leaves(restarts)[0])
    if count == 1:
        found = function(*jax.tree.map(lambda leaf: leaf[0], restarts))
        return jax.tree.map(lambda leaf: leaf[None], found)
    if MATRICES * count * plan.factorising < lapack.WORK:
        return jax.vmap(function)(*restarts)
    return jax.lax.map(lambda each: function(*each), restarts)


def _iteration(plan: Plan, run: Run, known: Known, rows: Rows, ceiling: jax.Array,
               gain: jax.Array) -> Run:
    """One restart after an iteration: its bound, and the next q(θ) unless it has ended."""
    expected, value = bound(plan, run.closed, known, rows)
    noise = 64 * jnp.finfo(value.dtype).eps * (1 + jnp.abs(value) + expected.size)
    stalled = jnp.where(value - run.value <= gain, run.stalled + 1, 0).astype(run.stalled.dtype)
    fell = value < run.value - noise
    status = jnp.where(~jnp.isfinite(value), Status.COLLAPSED, jnp.where(
        fell, Status.FELL, jnp.where(stalled >= PATIENCE, Status.CONVERGED, Status.RUNNING)
    )).astype(run.status.dtype)
    count = run.count + 1
    ended = (status != Status.RUNNING) | (count >= ceiling)
    after = updated(plan, expected, run.closed.params, known, rows, run.closed)
    closed = jax.tree.map(lambda new, old: jnp.where(ended, old, new), after, run.closed)
    return Run(closed, value, stalled, count, status)


def run_restarts(plan: Plan, run: Run, known: Known, rows: Rows, own: Own, race: Race | None,
                 limit: int, gain: float, progress: bool) -> tuple[Run, np.ndarray]:
    """Every restart at its end, and its bounds, (restarts, iterations + 1).

    Args:
        own: fields of `known` of each restart, with a leading axis of restarts.
        limit: iterations at most. gain: of the bound, below which an iteration counts as stalled.
    """
    ceiling = np.int32(limit + 1)

    def steps(run: Run, own: Own, limit: int) -> tuple[Run, jax.Array, bool]:
        return *advance(plan, run, known, rows, own, np.int32(limit), ceiling, gain), False

    return run_to_convergence("VB", plan, rows, run, own, steps, BLOCK, limit, race, progress)


# plan, q(θ) of one restart, known → q(θ) with its means
add_means = functools.partial(jit, static_argnames=("plan",), seldom=ONCE)(with_means)
