"""MAP: the log posterior, unseen discrete sites summed out, climbed by L-BFGS or any optax optimiser."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.ascent import lbfgs
from probml.blocks import blocks
from probml.chunks import Data
from probml.compiling import jit
from probml.density import from_free, to_free, value_and_gradient
from probml.engines.run import Outcome, Progress, Status, check_settings
from probml.engines.start import check_distinct, starts
from probml.factors import Known, Rows
from probml.language import ModelError
from probml.passes import expect
from probml.plan import Plan
from probml.sequences import merged, picked
from probml.updates import maximise

BLOCK = 50  # iterations a device call


@dataclass(frozen=True)
class MAP:
    """The mode of the posterior, each parameter in its own coordinate (no Jacobian of a transform).

    Args:
        optimizer: any optax GradientTransformation; None = L-BFGS with a backtracking line search.
        steps: iterations at the most; by default 1000 for L-BFGS, 2000 for an optax optimiser.
        batch_rows: rows of a random mini-batch a step (optax only); None = all rows.
        prior: maximise log posterior (True) or log likelihood (False).
        tolerance: L-BFGS stops when an iteration gains less than this of the objective, relative to its size.
        progress: show a progress bar.

    Cost: one value and gradient of the evidence of all rows (or of a batch) a step.
    """

    optimizer: Any = None
    steps: int | None = None
    batch_rows: int | None = None
    prior: bool = True
    tolerance: float = 1e-14
    progress: bool = False

    def __post_init__(self):
        check_settings(self, positive=("steps", "batch_rows"), nonnegative=("tolerance",))
        if self.optimizer is not None and not hasattr(self.optimizer, "update"):
            raise ModelError(f"MAP(optimizer={self.optimizer!r}): expected an optax optimiser such as optax.adam(1e-2), or None for L-BFGS")
        if self.batch_rows is not None and self.optimizer is None:
            raise ModelError("MAP(batch_rows=...) needs optimizer=, for example optax.adam(1e-2): L-BFGS wants all rows at every step")

    def refuse(self, data: Data, plan: Plan, ladder: bool = False) -> None:
        """MAP treats every plan."""
        check_distinct(data, plan)

    def run(self, data: Data, plan: Plan, rows: Rows, known: Known, weights, seed: int, start: Mapping[str, Any]) -> Outcome:
        first = starts(data, plan, known, weights, 1, seed, start, self.prior, whole=True)
        params = {name: jnp.asarray(value[0]) for name, value in first.params.items()}
        if plan.complete and not start and any(block.form for stage in blocks(plan, self.prior) for block in stage):
            params = closed_start(plan, self.prior, params, known, rows)
        if self.optimizer is not None:
            return self._stochastic(data, plan, rows, known, seed, params)
        limit = self.steps or 1000
        u, history, status = _to_free(plan, params, known), [], Status.MAX_ITERATIONS
        with Progress("MAP", limit, self.progress) as bar:
            done = 0
            while done < limit:
                block = min(BLOCK, limit - done)
                u, value, count, trail, flat = _climb(plan, self.prior, u, known, rows, jnp.asarray(block), self.tolerance)
                history.append(np.asarray(trail)[: int(count) + 1])
                done += max(int(count), 1)
                bar.update(done, float(value))
                if not np.isfinite(value):
                    status = Status.COLLAPSED
                    break
                if int(count) < block:
                    status = Status.CONVERGED if bool(flat) else Status.STALLED
                    break
        history = np.concatenate([history[0], *(h[1:] for h in history[1:])])
        return Outcome(_from_free(plan, u, known), history, status, len(history) - 1)

    def _stochastic(self, data: Data, plan: Plan, rows: Rows, known: Known, seed: int, params: Mapping) -> Outcome:
        limit = self.steps or 2000
        batch = min(self.batch_rows or 0, data.table.rows)
        u = _to_free(plan, params, known)
        state, key = self.optimizer.init(u), jax.random.key(seed)
        value, gradient = _objective(plan, self.prior, u, known, rows)
        history = [float(value)]
        with Progress("MAP", limit, self.progress) as bar:
            for done in range(0, limit, 200):
                count = min(200, limit - done)
                u, state = _descend(plan, self.prior, self.optimizer, batch, data.table.rows, u, state, known, rows, key, done, count)
                value, gradient = _objective(plan, self.prior, u, known, rows)
                history.append(float(value))
                bar.update(done + count, history[-1])
        status = Status.COLLAPSED if not np.isfinite(history[-1]) else Status.CONVERGED if _flat(value, gradient) else Status.MAX_ITERATIONS
        return Outcome(_from_free(plan, u, known), np.array(history), status, limit)


_to_free = functools.partial(jit, static_argnames=("plan",))(to_free)


@functools.partial(jit, static_argnames=("plan",))
def _from_free(plan: Plan, u: Mapping, known: Known):
    return from_free(plan, u, known)[0]


def _loss(plan: Plan, prior: bool, u: Mapping, known: Known, chunks: Rows, scale: float = 1.0):
    """−log posterior and its gradient in unbounded coordinates, the density itself in the parameters' own."""

    def point(u):
        return from_free(plan, u, known)[0], 0.0

    value, gradient = value_and_gradient(plan, point, u, known, chunks, prior, mode=True, scale=scale)
    return -value, jax.tree.map(jnp.negative, gradient)


@functools.partial(jit, static_argnames=("plan", "prior"))
def _objective(plan, prior, u, known, chunks):
    value, gradient = _loss(plan, prior, u, known, chunks)
    return -value, gradient


@functools.partial(jit, static_argnames=("plan", "prior"))
def _climb(plan: Plan, prior: bool, u, known: Known, chunks: Rows, steps, tolerance):
    point, value, count, trail, gradient = lbfgs(lambda u: _loss(plan, prior, u, known, chunks), u, steps, tolerance, trail=BLOCK)
    return point, -value, count, -trail, _flat(value, gradient)


def _flat(value, gradient):
    """Whether a gradient is zero as far as the arithmetic can tell."""
    norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
    eps = jnp.finfo(value.dtype).eps
    return norm <= jnp.maximum(eps ** (1 / 3), 50 * eps**0.5) * (1 + jnp.abs(value))


@functools.partial(jit, static_argnames=("plan", "prior"))
def closed_start(plan: Plan, prior: bool, params, known: Known, chunks: Rows):
    """The closed-form blocks at their maximum given the rest: a start that no unit of the data can mislead."""
    better = maximise(plan, expect(plan, params, known, chunks), params, known, chunks, prior, only_forms=True)
    sound = jnp.all(jnp.stack([jnp.all(jnp.isfinite(v)) for v in better.values()]))
    return {name: jnp.where(sound, better[name], params[name]) for name in params}


@functools.partial(jit, static_argnames=("plan", "prior", "optimizer", "batch", "count"))
def _descend(plan, prior, optimizer, batch, total, u, state, known, chunks: Rows, key, offset, count):
    import optax

    flat = merged(chunks)

    def step(carry, i):
        u, state = carry
        rows, scale = chunks, 1.0
        if batch:
            index = jax.random.randint(jax.random.fold_in(key, offset + i), (batch,), 0, total)
            rows = jax.tree.map(lambda leaf: leaf[None], picked(flat, index))
            scale = total / batch
        _, gradient = _loss(plan, prior, u, known, rows, scale)
        updates, state = optimizer.update(gradient, state, u)
        return (optax.apply_updates(u, updates), state), ()

    (u, state), _ = jax.lax.scan(step, (u, state), jnp.arange(count))
    return u, state
