"""EM: expected statistics and a block-wise M-step, many restarts in one program, accelerated and safeguarded."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.chunks import Data
from probml.engines.run import Outcome, Progress, Status, check_settings
from probml.engines.start import starts
from probml.factors import Known, Rows, collapsed, expect, log_prior
from probml.language import Refusal
from probml.plan import Plan
from probml.updates import blocks, maximise, transforms

BLOCK = 32  # evaluations a device call at the most: progress shows and Ctrl-C works in between


@dataclass(frozen=True)
class EM:
    """Expectation–maximisation (Dempster, Laird & Rubin 1977) of the posterior mode, or of the likelihood.

    Args:
        max_iterations: M-steps at the most.
        tolerance: stop when an iteration gains less than this of the objective per unit of total weight, in nats.
        restarts: starts run as one vmapped program; the best is kept.
        prior: maximise log posterior (True) or log likelihood (False).
        hard: classification EM (Celeux & Govaert 1992): the hidden states at their joint maximum instead of averaged.
        accelerate: SQUAREM extrapolation (Varadhan & Roland 2008), accepted only where the objective does not fall.
        progress: show a progress bar.

    Cost: one pass over the rows an iteration: O(rows × evidence), memory of the data and one chunk.
    """

    max_iterations: int = 1000
    tolerance: float = 1e-7
    restarts: int = 1
    prior: bool = True
    hard: bool = False
    accelerate: bool = True
    progress: bool = False

    def __post_init__(self):
        check_settings(self, positive=("max_iterations", "restarts"), nonnegative=("tolerance",))

    def refuse(self, data: Data, plan: Plan, ladder: bool = False) -> None:
        """Raise Refusal, naming the site and the reason, where EM cannot treat the plan."""
        where = f"EM cannot fit model '{plan.structure.model.name}'"
        if self.hard and plan.globals:
            raise Refusal(f"{where} with hard=True: site '{plan.globals[0]}' lies outside rows(); use EM() or Exact()")
        if not ladder or not plan.free:
            return
        for stage in blocks(plan, self.prior):
            for block in stage:
                if plan.complete and not (block.form and block.conjugate):
                    raise Refusal(
                        f"{where} faster than MAP: nothing discrete is unseen and '{block.names[0]}' has no closed form ({block.why}); use MAP()"
                    )

    def run(self, data: Data, plan: Plan, rows: Rows, known: Known, weights, seed: int, start: Mapping[str, Any]) -> Outcome:
        params = starts(data, plan, known, weights, self.restarts, seed, start, self.prior)
        static = (self.prior, self.hard, self.accelerate)
        state = _initial(plan, params, known)
        total = float(rows.weights.sum())
        history, done, limit, ceiling = [], False, 0, self.max_iterations + 1
        with Progress("EM", self.max_iterations, self.progress) as bar:
            while not done:
                limit = min(limit + BLOCK, ceiling)
                state, trail, done = _advance(plan, static, state, known, rows, jnp.asarray(limit), self.tolerance * total)
                history.append(np.asarray(trail))
                done = bool(done) or limit >= ceiling
                bar.update(int(np.max(state.count)) - 1, float(np.max(state.value)))
        return _outcome(self, plan, state, np.concatenate(history, 1), known)


class _State(NamedTuple):
    """One restart. `pending` is evaluated next; `params`, `value` are the best evaluated; see _step for the rest."""

    pending: dict
    params: dict
    value: jax.Array
    phase: jax.Array  # 0: plain; 1: one step made from `base`; 2: `pending` is an extrapolation
    base: dict  # unconstrained coordinates of the cycle's first point
    fallback: dict
    calm: jax.Array  # how many evaluations in a row gained less than the tolerance
    count: jax.Array
    status: jax.Array


@functools.partial(jax.jit, static_argnames=("plan",))
def _initial(plan: Plan, params: Mapping, known: Known) -> _State:
    restarts = next(iter(params.values())).shape[0] if params else 1
    zero = jnp.zeros(restarts, jnp.int32)
    u = jax.vmap(lambda p: _free(plan, p, known))(params) if params else {}
    dtype = jnp.result_type(float)
    return _State(params, params, jnp.full(restarts, -jnp.inf, dtype), zero, u, params, zero, zero, zero)


def _free(plan: Plan, params: Mapping, known: Known) -> dict:
    """Unconstrained coordinates, a boundary value held at a large finite one."""
    maps = transforms(plan, params, known, list(params))
    return {
        n: jnp.nan_to_num(maps[n].inv(jnp.maximum(v, 1e-30) if _is_table(plan, n) else v), nan=0.0, posinf=1e2, neginf=-1e2)
        for n, v in params.items()
    }


def _is_table(plan: Plan, name: str) -> bool:
    return plan.structure.sites[name].kind == "Dirichlet"


@functools.partial(jax.jit, static_argnames=("plan", "static"))
def _advance(plan: Plan, static: tuple, state: _State, known: Known, rows: Rows, limit, gain):
    """Evaluate until `limit` or until every restart has stopped; the objective's trail, (restarts, BLOCK)."""
    restarts = state.value.shape[0]
    trail = jnp.full((restarts, BLOCK), jnp.nan, state.value.dtype)

    def more(carry):
        state, _, i = carry
        return (i < BLOCK) & jnp.any((state.status == 0) & (state.count < limit))

    def body(carry):
        state, trail, i = carry
        new = jax.vmap(lambda s: _step(plan, static, s, known, rows, gain))(state)
        running = (state.status == 0) & (state.count < limit)
        state = jax.tree.map(lambda a, b: jnp.where(running.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, state)
        return state, trail.at[:, i].set(jnp.where(running, state.value, jnp.nan)), i + 1

    state, trail, _ = jax.lax.while_loop(more, body, (state, trail, 0))
    return state, trail, jnp.all(state.status != 0)


def _step(plan: Plan, static: tuple, state: _State, known: Known, rows: Rows, gain) -> _State:
    """One evaluation at `pending` (E-step), one M-step, and the choice of the next point.

    A cycle is base → M → M → extrapolate; an extrapolation that falls below the last objective is thrown away.
    """
    prior, hard, accelerate = static
    expected = expect(plan, state.pending, known, rows, hard)
    value = expected.log_evidence + (log_prior(plan, state.pending, known, mode=True) if prior else 0.0)
    healthy = jnp.isfinite(value) & ~collapsed(plan, state.pending, known)
    noise = 64 * jnp.finfo(value.dtype).eps * (1 + jnp.abs(value))
    rejected = (state.phase == 2) & ~(healthy & (value >= state.value))
    fell = (state.phase != 2) & healthy & (value < state.value - noise)
    improved = maximise(plan, expected, state.pending, known, rows, prior) if plan.free else {}
    unconstrained = _free(plan, state.pending, known)

    def choose(flag, a, b):
        return jax.tree.map(lambda x, y: jnp.where(flag, x, y), a, b)

    # where to go next
    after = _free(plan, improved, known)
    here = unconstrained
    step = jax.tree.map(lambda a, b: a - b, here, state.base)
    bend = jax.tree.map(lambda a, b, r: a - b - r, after, here, step)
    length = -jnp.sqrt(_square(step) / jnp.maximum(_square(bend), jnp.finfo(value.dtype).tiny))
    length = jnp.clip(length, -256.0, -1.0)
    leap = jax.tree.map(lambda b, r, v: b - 2 * length * r + length**2 * v, state.base, step, bend)
    maps = transforms(plan, state.pending, known, list(state.pending))
    leap = {name: maps[name](u) for name, u in leap.items()}
    extrapolate = accelerate & (state.phase == 1)
    pending = choose(extrapolate, leap, choose(rejected, state.fallback, improved))
    phase = jnp.where(rejected, 0, jnp.where(extrapolate, 2, 1)) if accelerate else jnp.zeros_like(state.phase)

    small = value - state.value <= gain
    calm = jnp.where(rejected, state.calm, jnp.where(small, state.calm + 1, 0))
    status = jnp.where(
        ~healthy & ~rejected,
        Status.COLLAPSED,
        jnp.where(fell, Status.FELL, jnp.where(calm >= (2 if accelerate else 1), Status.CONVERGED, Status.RUNNING)),
    ).astype(state.status.dtype)
    keep = ~rejected & healthy & ~fell
    return _State(
        pending,
        choose(keep, state.pending, state.params),
        jnp.where(keep, value, state.value),
        phase.astype(state.phase.dtype),
        choose(rejected | (state.phase != 1), unconstrained, state.base),
        improved if plan.free else {},
        calm.astype(state.calm.dtype),
        state.count + 1,
        status,
    )


def _square(tree) -> jax.Array:
    return sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(()))


def _outcome(engine: EM, plan: Plan, state: _State, trail: np.ndarray, known: Known) -> Outcome:
    status, value = np.asarray(state.status), np.asarray(state.value)
    alive = (status != Status.COLLAPSED) & np.isfinite(value)
    best = int(np.argmax(np.where(alive, value, -np.inf)))
    history = trail[best][np.isfinite(trail[best])]
    notes = [f"{int((~alive).sum())} of {len(value)} restarts collapsed and were discarded"] if alive.any() and not alive.all() else []
    final = Status(int(status[best])) if alive[best] else Status.COLLAPSED
    return Outcome(
        {name: leaf[best] for name, leaf in state.params.items()},
        history,
        Status.MAX_ITERATIONS if final == Status.RUNNING else final,
        max(int(np.asarray(state.count)[best]) - 1, 0),
        tuple(notes),
    )
