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
from probml.engines.run import Outcome, Progress, Status, check_settings
from probml.engines.start import check_distinct, starts
from probml.factors import Known, Rows, Summary, global_factors, log_prior, naturals, row_evidence
from probml.language import ModelError
from probml.passes import accumulate, expect, row_totals, total_evidence, weigh
from probml.plan import Plan
from probml.sequences import merged, picked
from probml.updates import maximise, transforms

BLOCK = 50  # iterations a device call
EDGE = 15.0  # the coordinate at which a climb from the edge of a support begins: 3e-7 inside, so float32 sees it


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
            params = _begin(plan, self.prior, params, known, rows)
        if self.optimizer is not None:
            return self._stochastic(data, plan, rows, known, seed, params)
        limit = self.steps or 1000
        u, history, status = _to_free(plan, params, known), [], Status.MAX_ITERATIONS
        with Progress("MAP", limit, self.progress) as bar:
            done = 0
            while done < limit:
                block = min(BLOCK, limit - done)
                u, value, count, trail, flat = _climb(plan, self.prior, u, params, known, rows, jnp.asarray(block), self.tolerance)
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
        return Outcome(_from_free(plan, u, params, known), history, status, len(history) - 1)

    def _stochastic(self, data: Data, plan: Plan, rows: Rows, known: Known, seed: int, params: Mapping) -> Outcome:
        limit = self.steps or 2000
        batch = min(self.batch_rows or 0, data.table.rows)
        u = _to_free(plan, params, known)
        state, key = self.optimizer.init(u), jax.random.key(seed)
        value, gradient = _objective(plan, self.prior, u, params, known, rows)
        history = [float(value)]
        with Progress("MAP", limit, self.progress) as bar:
            for done in range(0, limit, 200):
                count = min(200, limit - done)
                u, state = _descend(
                    plan, self.prior, self.optimizer, batch, data.table.rows, u, state, params, known, rows, key, done, count
                )
                value, gradient = _objective(plan, self.prior, u, params, known, rows)
                history.append(float(value))
                bar.update(done + count, history[-1])
        status = Status.COLLAPSED if not np.isfinite(history[-1]) else Status.CONVERGED if _flat(value, gradient) else Status.MAX_ITERATIONS
        return Outcome(_from_free(plan, u, params, known), np.array(history), status, limit)


@functools.partial(jit, static_argnames=("plan",))
def _to_free(plan: Plan, params: Mapping, known: Known):
    """Unconstrained coordinates; a value on the edge of its support (a rate or a probability of 0) a little inside."""
    maps = transforms(plan, params, known, list(params))
    free = {name: maps[name].inv(value) for name, value in params.items()}
    return jax.tree.map(lambda u: jnp.nan_to_num(u, nan=jnp.nan, posinf=EDGE, neginf=-EDGE), free)


@functools.partial(jit, static_argnames=("plan",))
def _from_free(plan: Plan, u: Mapping, params: Mapping, known: Known):
    maps = transforms(plan, params, known, list(u))
    return {name: maps[name](value) for name, value in u.items()}


def _loss(plan: Plan, prior: bool, u: Mapping, params: Mapping, known: Known, chunks: Rows, scale: float = 1.0):
    """−log posterior and its gradient, chunk by chunk, in unconstrained coordinates."""
    maps = transforms(plan, params, known, list(u))

    def point(u):
        return {name: maps[name](value) for name, value in u.items()}

    def chunk(rows):
        def total(u):
            p = point(u)
            return scale * weigh(row_evidence(plan, p, known, naturals(plan, p, known), rows), rows.weights)

        if not plan.touching:
            return jax.value_and_grad(total)(u), ()
        value, back = jax.vjp(total, u)
        basis = jnp.eye(value.size, dtype=value.dtype).reshape(-1, *value.shape)
        return (value, jax.vmap(lambda b: back(b)[0])(basis)), ()

    if isinstance(chunks, Summary):
        value, gradient = jax.value_and_grad(lambda u: row_totals(plan, point(u), known, chunks))(u)
    else:
        (value, gradient), _ = accumulate(chunk, chunks)

    def rest(u, total):
        p = point(u)
        return total_evidence(plan, global_factors(plan, p, known), total) + (log_prior(plan, p, known, mode=True) if prior else 0.0)

    whole, (outer, share) = jax.value_and_grad(rest, (0, 1))(u, value)
    rowwise = jax.tree.map(lambda g: jnp.tensordot(share.reshape(-1), g, 1) if plan.touching else share * g, gradient)
    return -whole, jax.tree.map(lambda a, b: -(a + b), outer, rowwise)


@functools.partial(jit, static_argnames=("plan", "prior"))
def _objective(plan, prior, u, params, known, chunks):
    value, gradient = _loss(plan, prior, u, params, known, chunks)
    return -value, gradient


@functools.partial(jit, static_argnames=("plan", "prior"))
def _climb(plan: Plan, prior: bool, u, params, known: Known, chunks: Rows, steps, tolerance):
    point, value, count, trail, gradient = lbfgs(lambda u: _loss(plan, prior, u, params, known, chunks), u, steps, tolerance, trail=BLOCK)
    return point, -value, count, -trail, _flat(value, gradient)


def _flat(value, gradient):
    """Whether a gradient is zero as far as the arithmetic can tell."""
    norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
    eps = jnp.finfo(value.dtype).eps
    return norm <= jnp.maximum(eps ** (1 / 3), 50 * eps**0.5) * (1 + jnp.abs(value))


@functools.partial(jit, static_argnames=("plan", "prior"))
def _begin(plan: Plan, prior: bool, params, known: Known, chunks: Rows):
    """The closed-form blocks at their maximum given the rest: a start that no unit of the data can mislead."""
    better = maximise(plan, expect(plan, params, known, chunks), params, known, chunks, prior, only_forms=True)
    sound = jnp.all(jnp.stack([jnp.all(jnp.isfinite(v)) for v in better.values()]))
    return {name: jnp.where(sound, better[name], params[name]) for name in params}


@functools.partial(jit, static_argnames=("plan", "prior", "optimizer", "batch", "count"))
def _descend(plan, prior, optimizer, batch, total, u, state, params, known, chunks: Rows, key, offset, count):
    import optax

    flat = merged(chunks)

    def step(carry, i):
        u, state = carry
        rows, scale = chunks, 1.0
        if batch:
            index = jax.random.randint(jax.random.fold_in(key, offset + i), (batch,), 0, total)
            rows = jax.tree.map(lambda leaf: leaf[None], picked(flat, index))
            scale = total / batch
        _, gradient = _loss(plan, prior, u, params, known, rows, scale)
        updates, state = optimizer.update(gradient, state, u)
        return (optax.apply_updates(u, updates), state), ()

    (u, state), _ = jax.lax.scan(step, (u, state), jnp.arange(count))
    return u, state
