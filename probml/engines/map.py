"""MAP: the log posterior, unseen discrete sites summed out, climbed by Newton's steps, L-BFGS or
any optax optimiser."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.dataset import Data
from probml.device.rows import Known, Rows, Summary, merged, picked
from probml.engines import training
from probml.engines.engine import Outcome, Progress, Status, check_settings
from probml.engines.start.prior import (
    UNDRAWABLE,
    compiled_prior_point,
    given_start,
    impossible,
    need_prior,
    noise_of,
    prior_draws,
)
from probml.engines.start.start import check_distinct, shaken, starts
from probml.errors import ModelError, Refusal
from probml.evidence import density
from probml.evidence.density import climbed, value_and_gradient, value_gradient_hessian
from probml.evidence.passes import expect
from probml.numerics.ascent import arrived, damped_newton, lbfgs, level
from probml.numerics.compiling import jit
from probml.numerics.transfer import placed, placed_all
from probml.plan import hierarchy
from probml.plan.blocks import NEWTON, blocks
from probml.plan.plan import Plan
from probml.updates.updates import maximise

BLOCK = 50  # iterations a device call
SAMPLE = 2**14  # rows whose curvature stands for that of many more
ROUGH = 1e-6  # how near the maximum of a sample, relative to its height, is near enough
CHUNK = 2**11  # of these at once
# curvature at the end, in units of that at the start, of a direction in which parameters run away
VANISHED = 1e-6
# a tolerance that is met where L-BFGS stops; a smaller one asks for a gradient of zero
ASKED = 1e-12
ENDLESS = 1e-2  # of the way so far: a step there that is no end of it
# draws of the prior that are looked at where the start leads nowhere, and the best of them that are
# climbed from
DRAWN, CLIMBED = 64, 3
# relative: a way that is none, as from a point where the gradient is zero by symmetry
HARDLY = 1e-6
# curvature at the start, in units of its coordinates', of a direction that the rows do not tell at
# all
BLIND = 1e-8


@dataclass(frozen=True)
class MAP:
    """The mode of the posterior, each parameter in its own coordinate (no Jacobian of a transform).

    Without an optimiser the plan chooses: a smooth regression of few coefficients with nothing
    unseen takes damped Newton steps (of very many rows, L-BFGS in the coordinates of the curvature
    of a sample of them); all else L-BFGS.

    Args:
        optimizer: any optax GradientTransformation; None = Newton or L-BFGS.
        steps: iterations at the most; by default 1000, of an optax optimiser 2000.
        batch_rows: rows of a mini-batch a step (optax only), drawn without replacement, every epoch
            in a new order; None = all rows.
        prior: maximise log posterior (True) or log likelihood (False).
        tolerance: Newton and L-BFGS stop when an iteration gains less than this of the objective,
            relative to its size.
        held_out: a share of the rows that is not learnt from (optax only): `Fit.held_out` has their
            mean log evidence at every entry of `history`, and the parameters kept are those where
            it is highest.
        patience: stop after so many entries without a better one; None = never.
        progress: show a progress bar at once; else it comes after ten seconds, in a terminal or a
            notebook.

    Cost: one value and gradient of the evidence of all rows (or of a batch) a step; a Hessian of d
        coefficients costs about d / 10.
    """

    optimizer: Any = None
    steps: int | None = None
    batch_rows: int | None = None
    prior: bool = True
    tolerance: float = 1e-14
    held_out: float = 0.0
    patience: int | None = None
    progress: bool = False

    def __post_init__(self):
        check_settings(self, positive=("steps", "batch_rows", "patience"),
                       nonnegative=("tolerance",))
        if self.optimizer is not None and not hasattr(self.optimizer, "update"):
            raise ModelError(f"MAP(optimizer={self.optimizer!r}): expected an optax optimiser such "
                             f"as optax.adam(1e-2), or None for L-BFGS")
        if (isinstance(self.held_out, bool) or not isinstance(self.held_out, int | float)
            or not 0 <= self.held_out < 1):
            raise ModelError(f"MAP(held_out={self.held_out!r}): expected a share of the rows, 0 ≤ "
                             f"held_out < 1")
        for name in ("batch_rows", "held_out"):
            if getattr(self, name) and self.optimizer is None:
                raise ModelError(f"MAP({name}=...) needs optimizer=, for example optax.adam(1e-2): "
                                 f"L-BFGS wants all rows at every step")
        if self.patience is not None and not self.held_out:
            raise ModelError(f"MAP(patience={self.patience}) needs held_out=, a share of the rows "
                             f"to judge by, for example 0.1")

    def refuse(self, data: Data, plan: Plan, ladder: bool = False) -> None:
        """In the ladder MAP refuses a hierarchy; asked for by name it warns of one."""
        check_distinct(data, plan)
        need_prior(plan, "MAP", self.prior)
        hierarchy.judge(plan, data.table.rows, "MAP", ladder)

    def climb(self, data: Data, plan: Plan) -> str:
        """How the plan would be climbed, in words."""
        if self.optimizer is not None:
            return "by the optimiser"
        known = Known(placed_all(dict(data.table.values)), {}, {})
        return "by Newton's steps" if curved(plan, known) else "by L-BFGS"

    def run(self, data: Data, plan: Plan, rows: Rows, known: Known, weights, seed: int,
            start: Mapping[str, Any]) -> Outcome:
        outcome = self._run(data, plan, rows, known, weights, seed, start)
        begun = {**jax.device_get(compiled_prior_point(plan, known)),
                 **start} if hierarchy.ties(plan) else {}
        notes = hierarchy.vanished(plan, begun, outcome.params)
        return outcome._replace(status=Status.RUNAWAY,
                                notes=(*outcome.notes, *notes)) if notes else outcome

    def _run(self, data: Data, plan: Plan, rows: Rows, known: Known, weights, seed: int,
             start: Mapping[str, Any]) -> Outcome:
        if self.optimizer is None and curved(plan, known):
            begin = compiled_prior_point(plan, known) | given_start(plan, start)
            return self._unstuck(self._newton, data, plan, rows, known, begin, seed, start)
        first = starts(data, plan, known, weights, 1, seed, start, self.prior, whole=True)
        params = {name: placed(np.asarray(value)[0]) for name, value in first.params.items()}
        if plan.complete and not start and any(block.form for stage in blocks(plan, self.prior)
                                               for block in stage):
            params = closed_start(plan, self.prior, params, known, rows)
        if self.optimizer is not None:
            _, gradient = training.objective(
                plan, self.prior, training.to_coordinates(plan, params, known), known, rows
            )
            stuck = [name for name in plan.free if name not in start and not np.any(gradient[name])]
            return training.run(self, data, plan, rows, known, seed,
                                _moved(plan, params, known, seed, stuck))
        return self._unstuck(self._climb, data, plan, rows, known, params, seed, start)

    def _unstuck(self, climb, data: Data, plan: Plan, rows: Rows | Summary, known: Known,
                 params: Mapping, seed: int, start) -> Outcome:
        """A climb; and others, where parameters have not moved at all (from a draw of their prior),
        where it found no way up though the gradient is not zero (by L-BFGS, whose first step is
        along the gradient), or where the start is impossible: a start is never an answer.

        Raises:
            Refusal: none of them found a way up.
            ModelError: no point was found that has a density.
        """

        def better(found, other):
            return max(found, other, key=lambda each: np.nan_to_num(each.history[-1], nan=-np.inf))

        outcome = climb(data, plan, rows, known, params)
        stuck = [name for name in plan.free if name not in start
                 and _unmoved(outcome.params[name], params[name])]
        moved = _moved(plan, placed_all(dict(outcome.params)),
                       known, seed, stuck)
        if not all(np.array_equal(moved[name], outcome.params[name]) for name in stuck):
            outcome = better(outcome, climb(data, plan, rows, known, moved))
        apart = shaken(plan, outcome.params, seed) if outcome.status is Status.CONVERGED else None
        if apart is not None:  # states that ended alike: a saddle?
            outcome = better(outcome, climb(
                data, plan, rows, known, placed_all(apart)
            ))
        nowhere = not np.isfinite(outcome.history[0])
        if outcome.status is not Status.STALLED and not nowhere:
            return outcome
        here = placed_all(dict(outcome.params))
        others = [here | point
                  for point in self._elsewhere(plan, rows, known, seed, given_start(plan, start))]
        if nowhere and not others:
            impossible(plan, params, known, "MAP", outcome.history[0])
        for point in others if nowhere else [here, *others]:
            outcome = better(outcome, self._climb(data, plan, rows, known, point))
            if outcome.status is Status.CONVERGED:
                return outcome
        if outcome.iterations == 0:
            raise Refusal(
                f"MAP of model '{plan.structure.model.name}' found no way up from its start, nor "
                f"from draws of the prior, though the "
                f"gradient is not zero: the log density is {outcome.history[-1]:.6g} there. Give "
                f"it another start, fit(..., start=...), "
                "an optimiser, MAP(optimizer=optax.adam(1e-2)), or look for a kink or a jump in "
                "the model's function"
            )
        return outcome

    def _elsewhere(self, plan: Plan, rows: Rows | Summary, known: Known, seed: int,
                   fixed: Mapping) -> list[dict[str, jax.Array]]:
        """The best few of some draws of the prior, where it can be drawn; what the user fixed
        stays."""
        try:
            drawn = jax.device_get(prior_draws(plan, known, noise_of(plan, DRAWN, seed)))
            points = [training.from_coordinates(
                plan, {name: leaf[i] for name, leaf in drawn.items()}, known
            ) | fixed for i in range(DRAWN)]
        except UNDRAWABLE:
            return []
        values = [float(training.objective(
            plan, self.prior, training.to_coordinates(plan, p, known), known, rows
        )[0]) for p in points]
        order = [i for i in np.argsort(
            [-value if np.isfinite(value) else np.inf for value in values]
        ) if np.isfinite(values[i])]
        return [points[i] for i in order[:CLIMBED]]

    def _climb(self, data: Data, plan: Plan, rows: Rows | Summary, known: Known,
               params: Mapping) -> Outcome:
        """By L-BFGS."""

        def block(u, count):
            u, value, count, trail, flat = _climb(plan, self.prior, u, known, rows,
                                                  np.asarray(count), self.tolerance)
            return u, value, count, trail, bool(flat)

        u, history, status = self._blocks(block, training.to_coordinates(plan, params, known))
        return Outcome(training.from_coordinates(plan, u, known), history, status, len(history) - 1)

    def _newton(self, data: Data, plan: Plan, rows: Rows, known: Known, params: Mapping) -> Outcome:
        """By Newton's steps; of many rows, on a sample of them, whose curvature tells the
        coordinates in which all are climbed."""
        u, n = _flat(plan, params, known), data.table.rows
        many, ends = n > 4 * SAMPLE, {}
        near = (_sample(rows, np.linspace(0, n - 1, SAMPLE).astype(int))
                if many else rows)
        scale = n / SAMPLE if many else 1.0

        def block(u, count):
            u, value, count, trail, flat, ends["last"], first, ends["step"] = _stiff(
                plan, self.prior, u, known, near, scale, np.asarray(count),
                ROUGH if many else self.tolerance
            )
            ends.setdefault("first", first)
            return u, value, count, trail, bool(flat)

        top, history, status = self._blocks(block, u)
        if many:
            centre, root = _frame(u, top, ends["last"])

            def block(z, count):
                z, value, count, trail, flat = _framed(plan, self.prior, z, centre, root, known,
                                                       rows, np.asarray(count), self.tolerance)
                return z, value, count, trail, bool(flat)

            z, history, status = self._blocks(block, jnp.zeros_like(u))
            top = centre + root @ z
        found = _unflat(plan, top, known)
        free = not self.prior or any(plan.structure.sites[name].entry.improper
                                     for name in plan.free)
        notes = _runaway(plan, known, *(
            np.asarray(ends[name]) for name in ("first", "last", "step")
        ), np.asarray(top) - np.asarray(u)) if free else ()
        return Outcome(found, history, Status.RUNAWAY if notes else status, len(history) - 1, notes)

    def _blocks(self, block, u) -> tuple[Any, np.ndarray, Status]:
        """A climb in blocks of iterations, so that progress shows and Ctrl-C works."""
        limit, history, status, done = self.steps or 1000, [], Status.MAX_ITERATIONS, 0
        with Progress("MAP", limit, self.progress) as bar:
            while done < limit:
                size = min(BLOCK, limit - done)
                u, value, count, trail, flat = block(u, size)
                history.append(np.asarray(trail)[: int(count) + 1])
                done += max(int(count), 1)
                bar.update(done, float(value))
                if not np.isfinite(value):
                    status = Status.COLLAPSED
                    break
                if int(count) < size:
                    status = Status.CONVERGED if flat else Status.STALLED
                    break
                if done >= limit and flat:
                    status = Status.CONVERGED
        return u, np.concatenate([history[0], *(h[1:] for h in history[1:])]), status


def curved(plan: Plan, known: Known) -> bool:
    """Whether Newton's steps pay: rows are passed over, their density is smooth in few
    coefficients, nothing is summed out."""
    if not plan.rowwise or plan.variables or plan.torn or plan.structure.chains:
        return False
    kinds = [plan.structure.sites[name] for name in (*plan.rowwise, *plan.free)]
    return (all(not s.entry.kinked and not s.factor for s in kinds)
            and density.size(plan, known) <= NEWTON)


def _unmoved(value: Any, start: Any) -> bool:
    return bool(np.all(
        np.abs(np.asarray(value) - np.asarray(start)) <= HARDLY * (1 + np.abs(np.asarray(start)))
    ))


def _moved(plan: Plan, params: Mapping, known: Known, seed: int,
           stuck: list[str]) -> dict[str, jax.Array]:
    """Parameters in which the density was flat, as in hidden units that are all alike or at 0 of
    what is squared, at a draw from their prior instead."""
    used = {p for name in (*plan.pooled, *plan.rowwise)
            for uses in plan.structure.sites[name].uses.values() for p in uses}
    stuck = [name for name in stuck if name in used]
    if not stuck:
        return dict(params)
    try:
        drawn = jax.device_get(prior_draws(plan, known, noise_of(plan, 1, seed)))
        values = training.from_coordinates(plan, {name: leaf[0] for name, leaf in drawn.items()},
                                           known)
    except UNDRAWABLE:
        return dict(params)
    return {name: values[name] if name in stuck else value for name, value in params.items()}


def _runaway(plan: Plan, known: Known, first: np.ndarray, last: np.ndarray, step: np.ndarray,
             moved: np.ndarray) -> tuple[str, ...]:
    """What runs away: directions whose curvature has vanished on the way, and in which the steps do
    not get shorter for all that.

    Args:
        first, last: the Hessians at the start and the end, (d, d). step: Newton's next, (d,).
            moved: the way from the start, (d,).
    """
    if not all(np.isfinite(array).all() for array in (first, last, step)):
        return ()
    unit = 1 / np.sqrt(np.maximum(np.abs(np.diagonal(first)), np.finfo(first.dtype).tiny))
    value, axes = np.linalg.eigh(first * unit[:, None] * unit)
    told = value > BLIND * max(value.max(), 0.0)
    if not told.any():
        return ()
    base = axes[:, told] / np.sqrt(value[told])
    left, where = np.linalg.eigh(base.T @ (last * unit[:, None] * unit) @ base)
    along = np.linalg.lstsq(base @ where[:, :1], np.stack([step, moved], 1) / unit[:, None],
                            rcond=None)[0][0]
    if left[0] > (VANISHED if first.dtype == np.float64 else 1e-4) or abs(along[0]) < ENDLESS * abs(
        along[1]
    ):
        return ()
    owners, loads = density.owners(plan, known), np.abs(base @ where[:, 0])
    named = list(dict.fromkeys(owners[i].partition("[")[0] for i in np.argsort(-loads)
                               if loads[i] > 0.1 * loads.max()))
    names = ", ".join(repr(name) for name in named)
    return (
        f"{names} diverge: the likelihood rises the further they go, since the rows are separated "
        f"by them (a class, or a count of 0, "
        "that is certain in some of the rows). Give them a prior that holds them, prior=True, or "
        "fewer columns",
    )




_flat = jit(density.flat, static_argnums=0)


@functools.partial(jit, static_argnames=("plan",))
def _unflat(plan: Plan, u: jax.Array, known: Known):
    return density.unflat(plan, u, known)[0]


@functools.partial(jit, static_argnames=("plan", "prior"))
def _climb(plan: Plan, prior: bool, u, known: Known, chunks: Rows, steps, tolerance):
    def loss(u):
        return jax.tree.map(jnp.negative, climbed(plan, prior, u, known, chunks))

    point, value, count, trail, gradient = lbfgs(loss, u, steps, tolerance, trail=BLOCK)
    return point, -value, count, -trail, level(value, gradient) | (tolerance >= ASKED)


@functools.partial(jit, static_argnames=("plan", "prior"))
def _stiff(plan: Plan, prior: bool, u: jax.Array, known: Known, chunks: Rows, scale, steps,
           tolerance):
    """Newton's steps; also the Hessians at the end and at the start, and the step that would come
    next."""

    def evaluate(u):
        def point(u):
            return density.unflat(plan, u, known)[0], 0.0

        return jax.tree.map(jnp.negative, value_gradient_hessian(plan, point, u, known, chunks,
                                                                 prior, mode=True, scale=scale))

    point, value, count, trail, gradient, hessian, first = damped_newton(evaluate, u, steps,
                                                                         tolerance, trail=BLOCK)
    ahead, there = arrived(value, gradient, hessian)
    return point, -value, count, -trail, level(value, gradient) | there, hessian, first, ahead


@functools.partial(jit, static_argnames=("plan", "prior"))
def _framed(plan: Plan, prior: bool, z: jax.Array, centre, root, known: Known, chunks: Rows, steps,
            tolerance):
    """L-BFGS in coordinates z, u = centre + root z."""

    def both(z):
        def point(z):
            return density.unflat(plan, centre + root @ z, known)[0], 0.0

        value, gradient = value_and_gradient(plan, point, z, known, chunks, prior, mode=True)
        return -value, -gradient

    point, value, count, trail, gradient = lbfgs(both, z, steps, tolerance, trail=BLOCK,
                                                 framed=True)
    return point, -value, count, -trail, level(value, gradient)


@jit
def _sample(chunks: Rows, index: jax.Array) -> Rows:
    """Some rows, in chunks of their own."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, CHUNK, *leaf.shape[1:]),
                        picked(merged(chunks), index))


@jit
def _frame(start: jax.Array, top: jax.Array, hessian: jax.Array):
    """Coordinates about the mode of a sample in which its curvature is 1; where it has none, those
    of the start."""
    factor = jnp.linalg.cholesky(hessian)
    root = jax.scipy.linalg.solve_triangular(factor, jnp.eye(len(top), dtype=top.dtype),
                                             lower=True).T
    sound = jnp.all(jnp.isfinite(root)) & jnp.all(jnp.isfinite(top))
    return jnp.where(sound, top, start), jnp.where(sound, root, jnp.eye(len(top), dtype=top.dtype))


@functools.partial(jit, static_argnames=("plan", "prior"))
def closed_start(plan: Plan, prior: bool, params, known: Known, chunks: Rows):
    """The closed-form blocks at their maximum given the rest: a start that no unit of the data can
    mislead."""
    better = maximise(plan, expect(plan, params, known, chunks), params, known, chunks, prior,
                      only_forms=True)
    sound = jnp.all(jnp.stack([jnp.all(jnp.isfinite(v)) for v in better.values()]))
    return {name: jnp.where(sound, better[name], params[name]) for name in params}
