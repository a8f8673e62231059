"""Passes over the rows in batches: an update after every batch, from statistics that forget slowly
what older points expected.

    s_t = s_{t−1} + ρ_t (rows/batch · s(batch; θ_{t−1}) − s_{t−1}),   ρ_t = t^−0.6
    θ_t = the optimum at s_t

which is stepwise EM of a point (Cappé & Moulines 2009, "On-line expectation–maximization algorithm
for latent data models"), and of a mean field stochastic variational inference: there θ are natural
parameters, prior + s, and averaging one averages the other (Sato 2001; Hoffman, Blei, Wang &
Paisley 2013, "Stochastic variational inference", equation 31). What a point is and how it moves, a
`Way` says.
"""

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.layout import choose_layout
from probml.device.load import load
from probml.device.rows import Known, Rows, Summary, compensated
from probml.engines.engine import Engine, Problem, Status, check_batch
from probml.engines.progress import Loop, Progress, Turn, iterate
from probml.engines.start.race import sample
from probml.errors import Refusal
from probml.evidence.expected import Expected
from probml.numerics.compiling import jit
from probml.numerics.outside.checkpoint import Grown
from probml.numerics.transfer import placed, random_key
from probml.plan.plan import Plan
from probml.posteriors.posterior import Posterior

FORGETTING = 0.6  # what is new counts 1 / t**FORGETTING at batch t: between 1/2 and 1
QUIET = 4  # batches before the first update
BEGUN = 10_000  # rows, and BATCHES batches, on which a first point is found
BATCHES = 4


class Way(Protocol):
    """How a point (any pytree) and statistics of rows make each other; frozen and hashable, for it
    is part of a program's name."""

    def update_point(self, plan: Plan, expected: Expected, point: Any, known: Known,
                     rows: Rows) -> Any:
        """The optimum given the statistics, starting from a point."""

    def point_of_fit(self, params: Mapping, posterior: Posterior) -> Any:
        """The point at which a fit ended."""

    def statistics_and_evidence(self, plan: Plan, point: Any, known: Known,
                                rows: Rows) -> tuple[Any, jax.Array]:
        """Expected statistics of the rows, and the part of the objective that depends on them."""

    def validity_and_prior(self, plan: Plan, point: Any, known: Known,
                           rows: Rows | Summary) -> tuple[jax.Array, jax.Array]:
        """Whether a point is valid, and the part of the objective that does not depend on rows."""

    def found(self, plan: Plan, point: Any, known: Known) -> tuple[dict[str, Any], Posterior]:
        """The parameters at a point, and what is known beyond them."""


def refuse(engine: Engine, problem: Problem, instead: str) -> None:
    """Raise Refusal where statistics are more than a sum over rows of one size.

    Raises:
        ModelError: a batch is larger than the data.
    """
    check_batch(engine, problem)
    if names := lasting(problem.plan):
        raise Refusal(f"{type(engine).__name__}(batch_rows={engine.capabilities.batch}) cannot fit "
                      f"{problem}: there are no sufficient statistics of '{names[0]}' that add up "
                      f"over batches. Leave batch_rows out, or take {instead}")


def lasting(plan: Plan) -> tuple[str, ...]:
    """The sites of which rows tell more than a table of statistics."""
    return (*plan.globals, *plan.rowwise, *(name for group in plan.latents for name in group.sites),
            *plan.effects)


def first(problem: Problem, brief: Engine, batch_rows: int) -> dict[str, jax.Array]:
    """Where a short run of an engine ends on some rows, drawn by chance; parameters on the
    device."""
    data, weights, plan = problem.data, problem.weights, problem.plan
    assert data is not None
    size = max(BEGUN, BATCHES * batch_rows)
    if data.table.rows > size:
        data, weights = sample(data, weights, size, problem.seed)
    part = replace(problem, data=data._replace(survey=None), weights=weights)
    copies = brief.copies(part)
    rows, known = load(part.data, plan, weights, choose_layout(part.data, plan, copies), copies,
                       params=problem.start)
    params: Mapping = brief.run(replace(part, rows=rows, known=known)).params
    return {name: placed(np.asarray(value), jnp.result_type(float))
            for name, value in params.items()}


def passes(title: str, way: Way, problem: Problem, point: Any, batch_rows: int,
           max_iterations: int, tolerance: float,
           progress: bool) -> tuple[Any, np.ndarray, Status, Any]:
    """Passes over the rows in batches, in another order each time, until one gains less than the
    tolerance a row: the best point, the objective of all rows after each pass, how it ended, and
    what all rows were expected to show in the last pass.

    At the end of a pass its statistics, of every row once, take the place of those that forget: so
    nothing is left of the noise of batches but what the point has moved meanwhile.

    Cost: a pass is the statistics of all rows, an update a batch, and the objective of all rows.
    """
    plan, rows, known = problem.plan, problem.rows, problem.known
    assert rows is not None and known is not None
    static, key = (way, int(batch_rows)), random_key(problem.seed)
    first = float(_objective(plan, way, point, known, rows)[0])
    # the point, its statistics, batches that were met; the best point, and its objective
    loop = Loop((point, _blank(plan, way, point, known, rows), np.asarray(0), point, first),
                history=Grown((), 1))
    history = loop.lists["history"]
    history.append(first)

    def turn(done: int) -> Turn:
        point, statistics, batches, best, highest = loop.state
        point, statistics, batches, value, sound = _passed(
            plan, static, point, statistics, batches, known, rows, key, np.int32(done)
        )
        history.append(float(value))
        sound = bool(sound) and np.isfinite(history[-1])
        gain = history[-1] - highest
        if sound and gain > 0:
            best, highest = point, history[-1]
        loop.state = point, statistics, batches, best, highest
        if not sound:
            return Turn(1, history[-1], Status.COLLAPSED)
        small = gain <= tolerance * rows.weight
        return Turn(1, history[-1], Status.CONVERGED if small else Status.RUNNING)

    with Progress(title, max_iterations, progress) as bar:
        status = iterate(bar, max_iterations, turn, held=loop)
    point, statistics, _, best, _ = loop.state
    return (point if status is Status.COLLAPSED else best, np.array(history), status,
            jax.device_get(statistics))


@functools.partial(jit, static_argnums=(0, 1))
def _blank(plan: Plan, way: Way, point: Any, known: Known, rows: Rows) -> Any:
    """Statistics of no rows."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(
        lambda point, known, rows: way.statistics_and_evidence(plan, point, known, rows)[0],
        point, known, rows))


def _total(plan: Plan, way: Way, point: Any, known: Known, rows: Rows) -> tuple:
    """The objective of all rows, and whether the point is one that may be kept."""
    valid, prior = way.validity_and_prior(plan, point, known, rows)
    return prior + way.statistics_and_evidence(plan, point, known, rows)[1], valid


_objective = jit(_total, static_argnums=(0, 1))


@functools.partial(jit, static_argnums=(0, 1))
def _passed(plan: Plan, static: tuple, point: Any, statistics: Any, count, known: Known,
            rows: Rows, key, epoch) -> tuple:
    """One pass: the point and statistics after it, batches met in all, the objective, and whether
    all is sound."""
    way, size = static
    every = rows.mass

    def improved(statistics, point, batch):
        nothing = jnp.zeros(())
        expected = Expected(statistics, {}, [], nothing, nothing, {}, {})
        found = way.update_point(plan, expected, point, known, batch)
        return jax.tree.map(lambda new, old: new.astype(old.dtype), found, point)

    def step(carry, batch):
        point, running, whole, lost, count = carry
        own = way.statistics_and_evidence(plan, point, known, batch)[0]
        weight = batch.total(lambda chunk: chunk.weights.sum())
        some = weight > 0
        share = jnp.where(some, every / jnp.where(some, weight, 1.0), 0.0)
        new = (count + 1.0) ** -FORGETTING
        mixed = jax.tree.map(lambda old, mine: old + new * (share * mine - old), running, own)
        after = improved(mixed, point, batch)
        moves = some & (count >= QUIET)
        return (_chosen(moves, after, point), _chosen(some, mixed, running),
                *compensated(whole, lost, own), count + some)

    whole = jax.tree.map(jnp.zeros_like, statistics)
    point, _, whole, _, count = rows.walk(step, (point, statistics, whole, whole, count), size,
                                          key, epoch)
    point = improved(whole, point, rows)
    return point, whole, count, *_total(plan, way, point, known, rows)


def _chosen(flag, a: Any, b: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(flag, x, y), a, b)
