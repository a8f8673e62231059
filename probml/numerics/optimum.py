"""Optima: `maximize(objective, start, method)` with Newton's method, L-BFGS and, on the host, BFGS
(refinement.py); and an `Optimum` with its value, gradient and Hessian, each computed once.

| method | objective | for |
|---|---|---|
| `Newton` | point → (value, gradient, Hessian) | few coordinates, or a Hessian easily solved |
| `LBFGS` | point → (value, gradient) | everything else |
| `HostBFGS` | the same, in NumPy | few, expensive passes over very many rows |

Why not a library's: on a logistic regression of 300 rows and 5 coefficients (JAX 0.10.2, two busy
cores), trace, lowering and compilation took 3.9 s by `Newton` and 3.2 s by `LBFGS` here, 4.4 s by
optax.lbfgs (its line search holds a second copy of the objective), 1.9 s by Optimistix's BFGS and
3.2 s by its LBFGS, but 1.0 s more to import it with Lineax and Equinox. Optimistix has no damped
Newton method for a maximum (its Newton finds a root of the gradient, a saddle as gladly; its dogleg
took 6.8 s), takes no gradient that is known, no preconditioner, no Hessian with an own solver.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.jaxpr.opened import backward
from probml.numerics.curvature import TOLD, differences, estimate_hessian, whitened
from probml.numerics.process.inline_calls import traced_once

STIFF = 1e12  # damping, in units of the curvature, from which no step is looked for
# standard deviations from the top, in coordinates of the curvature, that are as good as there
NEAR = 1e-6
# iterations in a row that gain no more than rounding, where digits are too few to tell a smaller
# gain
PATIENCE = 5
TURNS = 32  # evaluations of a search along one direction, of which none takes so many
SHORTEST = 1e-10  # share of a step below which no ascent is looked for
SHORTER = 0.3  # of a step that gained too little
# of a search that goes on by slopes: what is left to gain, by the curvature that it has learnt,
# relative to 1 + |value|, that is nothing; iterations that it takes so at the most; roundings of
# the value within which slopes are asked
LEFT, LONG, BLIND = 1e-8, 40, 4
# curvature, every coordinate in units of its own width, of a direction that may be level
NULL = {np.dtype(np.float64): 1e-5, np.dtype(np.float32): 3e-3}


class Result(NamedTuple):
    """What a method found.

    Attributes:
        point: the best one. value, gradient: there; of Newton's, where it was last evaluated.
        iterations: steps taken. history: the value of the start and after each step, NaN beyond.
        flat: whether the gradient is zero as far as the arithmetic can tell.
        hessian, first: of Newton's, at the point where it was last evaluated, and at the start.
    """

    point: Any
    value: Any
    gradient: Any
    iterations: Any
    history: Any
    flat: Any
    hessian: Any = ()
    first: Any = ()


def dense_step(point: jax.Array, gradient: jax.Array, hessian: jax.Array,
               damping: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Newton's damped step, (−H + damping · diag −H) step = gradient, and what it promises; NaN
    where the damped matrix is not positive definite."""
    diagonal = jnp.maximum(jnp.abs(jnp.diagonal(hessian)), jnp.finfo(hessian.dtype).tiny)
    # what its own curvature would have to be beside what couples it to each other one
    least = jnp.max(hessian**2 / diagonal, 1)
    unit = jnp.sqrt(jnp.maximum(diagonal, jnp.where(jnp.isfinite(least), least, 0.0)))
    scaled = damping * jnp.eye(len(unit), dtype=hessian.dtype) - hessian / unit[:, None] / unit
    step = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(scaled), True), gradient / unit) / unit
    return step, 0.5 * jnp.vdot(gradient, step)


def clipped_step(point: Mapping[str, jax.Array], gradient: Mapping[str, jax.Array],
                 curvature: Mapping[str, jax.Array], damping: jax.Array) -> tuple[Any, Any]:
    """The same for a sum of functions of one number each, of which `curvature` is the second
    derivative: bounded, and uphill where that is positive."""
    def move(x: jax.Array, g: jax.Array, h: jax.Array):
        h = h * (1 + damping)
        step = jnp.where(h < 0, -g / jnp.where(h < 0, h, -1.0),
                         jnp.sign(g) * jnp.minimum(jnp.abs(g), 0.5) / (1 + damping))
        return jnp.clip(step, -1.0 - jnp.abs(x), 1.0 + jnp.abs(x))

    step = jax.tree.map(move, point, gradient, curvature)
    return step, 0.5 * sum(jnp.vdot(g, s) for g, s in zip(*map(jax.tree.leaves, (gradient, step)),
                                                          strict=True))


@dataclass(frozen=True)
class Newton:
    """Newton's steps, damped (Levenberg 1944, Marquardt 1963): not at all where they go well, the
    more where they do not, or where minus the Hessian is not positive definite. Never ends below
    the start.

    Args:
        steps: at the most.
        tolerance: stop when a step promises less than this, relative to 1 + |value|, or gains less;
            0: never, but for what is `negligible`.
        enough: stop when a step promises less than this, in units of the value.
        history: how many values to keep beside the start's.
        step: (point, gradient, Hessian, damping) → (step, the gain that it promises); by default of
            vectors and matrices. The Hessian may be anything that it knows to solve with.
        slack: roundings by which a value may be lower and be taken for none the lower.
        blind: whether the last step, which promises a `negligible` gain, is taken without a look at
            where it leads; else everything in the result is of its point.
    """

    steps: Any
    tolerance: Any
    enough: float = 0.0
    history: int = 0
    step: Callable = dense_step
    slack: float = 0.0
    blind: bool = True

    def run(self, objective: Callable, start: object) -> Result:
        evaluate, steps = traced_once(objective), self.steps  # for the start and the loop

        def ahead(point: object, value: jax.Array, gradient: object, hessian: object,
                  damping: jax.Array):
            step, promise = self.step(point, gradient, hessian, damping)
            sound = jnp.isfinite(promise) & (promise >= 0) & functools.reduce(
                jnp.logical_and, [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(step)])
            small = sound & (damping <= 1e-3) & (promise <= enough(value))
            last = small & (promise <= negligible(value)) if self.blind else jnp.zeros((), bool)
            return step, sound, small, last

        def enough(value: jax.Array):
            return jnp.maximum(tolerance * (1 + jnp.abs(value)), self.enough)

        def turn(carry: tuple):
            (point, value, gradient, hessian, damping, count, values, refused,
             (step, sound, small, _, _)) = carry
            there = jax.tree.map(lambda p, s: jnp.where(sound, p + s, p), point, step)
            new, slope, bend = evaluate(there)
            low = value - rounding * self.slack * (1 + jnp.abs(value)) if self.slack else value
            taken = sound & jnp.isfinite(new) & (new >= low)
            gain = jnp.where(taken, new - value, jnp.inf)
            # where less damping was refused, and this much gains nothing, the two would alternate
            least = jnp.where(damping == 0, tolerance * (1 + jnp.abs(value)), 0.0)
            ended = small | (taken & ((damping == 0) | refused) & (gain <= least))
            damping = jnp.where(taken, jnp.where(damping < 1e-4, 0.0, damping / 10),
                                jnp.maximum(10 * damping, 1e-3))
            point, value, gradient, hessian = jax.tree.map(
                functools.partial(jnp.where, taken), (there, new, slope, bend),
                (point, value, gradient, hessian))
            count = count + taken
            values = values.at[jnp.where(taken, count, values.size)].set(value, mode="drop")
            return (point, value, gradient, hessian, damping, count, values, ~taken,
                    (*ahead(point, value, gradient, hessian, damping), ended))

        def more(carry: tuple):
            _, value, _, _, damping, count, _, _, (*_, last, ended) = carry
            going = ~ended & ~last & (damping < STIFF)
            return going & (count < steps) & jnp.isfinite(value)

        value, gradient, first = evaluate(start)
        rounding = jnp.finfo(value.dtype).eps
        # less is rounding
        tolerance = jnp.maximum(self.tolerance, jnp.where(self.tolerance > 0, rounding, 0.0))
        values = jnp.full(self.history + 1, jnp.nan, value.dtype).at[0].set(value)
        none, no = jnp.zeros((), value.dtype), jnp.zeros((), bool)
        carry = (start, value, gradient, first, none, jnp.zeros((), int), values, no,
                 (*ahead(start, value, gradient, first, none), no))
        point, value, gradient, hessian, _, count, values, _, (step, _, _, last, ended) = (
            jax.lax.while_loop(more, turn, carry))
        if self.blind:
            point = jax.tree.map(lambda p, s: jnp.where(last & ~ended & (count < steps), p + s, p),
                                 point, step)
        return Result(point, value, gradient, count, values, is_flat(value, gradient), hessian,
                      first)


def chords(hessian: jax.Array, steps: int) -> Newton:
    """Newton's method with the Hessian of the start at every step: the objective returns () for it.

    A Hessian costs as many passes over rows as there are directions, a step two: steps after the
    first gain a constant factor each instead of doubling the digits (Ortega & Rheinboldt 1970,
    "Iterative Solution of Nonlinear Equations", section 7.1).
    """
    return Newton(steps, 1e-16, step=lambda point, gradient, _, damping: dense_step(
        point, gradient, hessian, damping))


def separable(function: Callable) -> Callable:
    """u → (value, gradient, second derivatives) of a sum of functions of one number each, for
    `clipped_step`."""
    gradient = backward.gradient(function)

    def at(u: Mapping[str, jax.Array]):
        slope, curvature = jax.jvp(gradient, (u,), (jax.tree.map(jnp.ones_like, u),))
        return function(u), slope, curvature

    return at


@dataclass(frozen=True)
class LBFGS:
    """L-BFGS (optax's two-loop recursion) with a backtracking line search.

    Args:
        steps: at the most.
        tolerance: stop when the value rises by less than this, relative to 1 + |value|.
        history: how many values to keep beside the start's.
        preconditioned: the coordinates are such that the curvature is about −1; else it is learnt
            from the first steps on.
        enough: of such coordinates, stop where half the square of the gradient, which is what is
            left to gain, is less than this, relative to 1 + |value|.
        slopes: where values differ by rounding alone, and the tolerance is less than that, take
            a step that flattens the slope along it (Hager & Zhang 2005, "A new conjugate gradient
            method with guaranteed descent and an efficient line search", the approximate Wolfe
            conditions): values tell half the digits of where the maximum is, gradients all.

    The program holds one copy of the objective, which is what takes long to compile: every turn of
    the loop evaluates it once.
    """

    steps: Any
    tolerance: Any
    history: int = 0
    preconditioned: bool = False
    enough: Any = 0.0
    slopes: bool = False

    def run(self, objective: Callable, start: Mapping[str, jax.Array]) -> Result:
        import optax  # late: not every model climbs

        curvature = optax.scale_by_lbfgs(memory_size=10, scale_init_precond=not self.preconditioned)
        steps, tolerance, enough = self.steps, self.tolerance, self.enough
        dtype = jax.tree.leaves(start)[0].dtype
        rounding = jnp.finfo(dtype).eps
        # what looks like no gain in few digits may be the way along a valley
        patience = jnp.where(tolerance < rounding, PATIENCE, 1)
        slopes = self.slopes and dtype != jnp.float64
        further = tolerance < rounding if slopes else False
        tolerance = jnp.maximum(tolerance, jnp.where(tolerance > 0, rounding, 0.0))

        def step(at: Any):
            """One evaluation, at `point + size · direction`: taken, if the value falls by enough,
            else tried again nearer by."""
            first = at.count < 0
            there = jax.tree.map(lambda p, d: p + at.size * d, at.point, at.direction)
            new, gradient = jax.tree.map(jnp.negative, objective(there))  # minimised here
            blind = further & _is_flatter(at, new, gradient) if slopes else False
            at = _accepted(at, there, new, gradient, blind, tolerance)
            norm = optax.tree.norm(at.gradient)
            least = (jnp.maximum(NEAR, jnp.sqrt(2 * enough * (1 + jnp.abs(at.value))))
                     if self.preconditioned else jnp.where(first, 1e-14 * (1 + norm), at.least))
            short = jnp.minimum(1.0, 1.0 / jnp.maximum(norm, 1e-30))
            full = jnp.where(first & (not self.preconditioned), short, 1.0)
            return _redirected(at._replace(least=least.astype(dtype)), curvature,
                               full.astype(dtype))

        def more(at: Any):
            left = further & (at.calm < LONG) & (-0.5 * at.slope > LEFT * (1 + jnp.abs(at.value)))
            # each search ends by its length; that all do is made sure of
            return (at.turns < TURNS * (steps + 2)) & (~at.ended | (at.count < 0) | (
                (at.count < steps) & ((at.calm < patience) | left)
                & (optax.tree.norm(at.gradient) > at.least)))

        blank, zero = jax.tree.map(jnp.zeros_like, start), jnp.zeros((), dtype)
        highest, none = jnp.full((), jnp.inf, dtype), jnp.zeros((), int)
        at = jax.lax.while_loop(more, step, _Search(
            start, highest, blank, curvature.init(start), blank, zero, zero, highest, zero,
            jnp.full((), -1), jnp.full(self.history + 1, jnp.nan, dtype), jnp.ones((), bool), none,
            none))
        return Result(at.point, -at.value, jax.tree.map(jnp.negative, at.gradient), at.count,
                      -at.values, is_flat(at.value, at.gradient))


class _Search(NamedTuple):
    """Where L-BFGS is in its search along a direction, and what it remembers.

    Attributes:
        point, value, gradient: the best so far, of what is minimised. memory: optax's.
        direction, slope, size: of the search, and how far along it is looked next.
        fall: by how much the last search lowered the value. least: a gradient that is none.
        count: searches ended; −1 before the start is evaluated. values: after each.
        ended: this search has. calm: searches in a row that gained less than the tolerance.
        turns: evaluations.
    """

    point: Any
    value: jax.Array
    gradient: Any
    memory: Any
    direction: Any
    slope: jax.Array
    size: jax.Array
    fall: jax.Array
    least: jax.Array
    count: jax.Array
    values: jax.Array
    ended: jax.Array
    calm: jax.Array
    turns: jax.Array


def _is_flatter(at: _Search, new: jax.Array, gradient: object) -> jax.Array:
    """Whether rounding alone tells a new value from the last, and the slope is less there."""
    import optax

    rounding = jnp.finfo(at.value.dtype).eps
    same = jnp.abs(new - at.value) <= BLIND * rounding * (1 + jnp.abs(at.value))
    return same & (jnp.abs(optax.tree.vdot(gradient, at.direction)) <= 0.9 * jnp.abs(at.slope))


def _accepted(at: _Search, there: Mapping[str, jax.Array], new: jax.Array,
              gradient: Mapping[str, jax.Array], blind: bool, tolerance: jax.Array) -> _Search:
    """After an evaluation: the new point, if its value falls by enough."""
    first = at.count < 0
    taken = first | (new <= at.value + 1e-4 * at.size * at.slope) | blind
    keep = functools.partial(jnp.where, taken & (first | (new < at.value) | blind))
    # of the search along one direction; a slope that is no number makes its length none
    ended = taken | ~(at.size > SHORTEST)
    fall = jnp.where(ended, jnp.where(taken & (new < at.value), at.value - new, 0.0), at.fall)
    idle = jnp.where(fall <= tolerance * (1 + jnp.abs(at.value)), at.calm + 1, 0)
    return at._replace(
        point=jax.tree.map(keep, there, at.point),
        # of values that rounding alone tells apart the lower one
        value=keep(jnp.where(first, new, jnp.minimum(new, at.value)), at.value),
        gradient=jax.tree.map(keep, gradient, at.gradient), fall=fall, ended=ended,
        calm=jnp.where(ended & (at.count > -1), idle, at.calm))


def _redirected(at: _Search, curvature: Any, full: jax.Array) -> _Search:
    """With the next direction, to be tried at the size `full`, where the search along the last one
    has ended; else nearer by."""
    import optax

    ahead, memory = curvature.update(at.gradient, at.memory, at.point)
    descent = -optax.tree.vdot(ahead, at.gradient)
    ahead = jax.tree.map(lambda d, g: jnp.where(descent < 0, -d, -g), ahead, at.gradient)
    descent = jnp.where(descent < 0, descent, -optax.tree.vdot(at.gradient, at.gradient))
    renew = functools.partial(jnp.where, at.ended)
    count = jnp.where(at.ended, at.count + 1, at.count)
    place = jnp.where(at.ended, count, at.values.size)
    return at._replace(
        memory=jax.tree.map(renew, memory, at.memory),
        direction=jax.tree.map(renew, ahead, at.direction), slope=renew(descent, at.slope),
        size=renew(full, SHORTER * at.size), count=count, turns=at.turns + 1,
        values=at.values.at[place].set(at.value, mode="drop"))


def maximize(objective: Callable, start: Any, method: Any) -> Result:
    """The maximum that a method reaches from a start.

    Args:
        objective: point → (value, gradient), and the Hessian for Newton's method; pure JAX, or for
            `HostBFGS` a function of NumPy arrays.
        method: `Newton`, `LBFGS` or `HostBFGS`.
    """
    return method.run(objective, start)


def is_flat(value: jax.Array, gradient: object):
    """Whether a gradient is zero as far as the arithmetic can tell."""
    norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
    eps = jnp.finfo(value.dtype).eps
    return norm <= jnp.maximum(eps ** (1 / 3), 50 * eps**0.5) * (1 + jnp.abs(value))


def newton_converged(value: jax.Array, gradient: jax.Array, hessian: jax.Array):
    """Whether Newton's step near a minimum promises nothing any more: whatever the units, as
    `is_flat` is not."""
    own = jnp.abs(jnp.diagonal(hessian))  # small ones are not to count as none
    unit = jnp.where(own > 0, 1 / jnp.sqrt(jnp.where(own > 0, own, 1.0)), 1.0)
    scaled = hessian * unit[:, None] * unit
    step = unit * jnp.linalg.lstsq(scaled, unit * gradient)[0]
    promise = 0.5 * jnp.vdot(gradient, step)
    return (promise >= 0) & (promise <= negligible(value))


def negligible(value: jax.Array):
    """A gain that is none, at a value of this size; of a NumPy number no program is made."""
    return max(1e-10, 10 * float(jnp.finfo(value.dtype).eps)) * (1 + abs(value))


Climb = Callable[[np.ndarray, int], tuple[np.ndarray, float, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Optimum:
    """Where a maximization ended, and what is asked of that point, each computed once, when it is
    first asked. Gradients and second derivatives are those of what is minimised, minus the value.

    Attributes:
        again_from: (d,) and how many steps → where the same maximization ends from there, its
            value, and the gradient; by 0 steps it evaluates a point.
        point: (d,).
        known: second derivatives (d, d) where the method took them.
        sampled: values are those of a sample of the rows, which has its maximum elsewhere.
    """

    again_from: Climb
    point: np.ndarray
    known: np.ndarray | None = None
    sampled: bool = False

    def evaluate(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        """The value somewhere, and the gradient, by the program of the maximization."""
        return self.again_from(u, 0)[1:]

    def value_at(self, u: np.ndarray) -> float:
        return self.again_from(u, 0)[1]

    def again(self, u: np.ndarray, steps: int) -> tuple[np.ndarray, float]:
        """Where a maximization from elsewhere ends, and its value."""
        return self.again_from(u, steps)[:2]

    @functools.cached_property
    def here(self) -> tuple[float, np.ndarray]:
        return self.evaluate(self.point)

    @property
    def value(self) -> float:
        return self.here[0]

    @property
    def gradient(self) -> np.ndarray:
        return self.here[1]

    @functools.cached_property
    def glance(self) -> np.ndarray | None:
        """Second derivatives that were known, or by a first look; None: not to be believed."""
        return self.known if self.known is not None else estimate_hessian(
            self.evaluate, self.point, self.gradient)

    @functools.cached_property
    def hessian(self) -> np.ndarray:
        """Second derivatives, (d, d): those that were known, those of a first look that was taken
        and leaves no direction that may be level, or central differences."""
        if self.known is not None:
            return self.known
        first = self.__dict__.get("glance")
        if first is not None and whitened(first, NULL[np.dtype(self.point.dtype)]) is not None:
            return first
        return differences(lambda u: self.evaluate(u)[1], self.point)

    @functools.cached_property
    def whiten(self) -> np.ndarray | None:
        """W (d, d), of which WᵀW is the inverse of the curvature by a first look."""
        return None if self.glance is None else whitened(self.glance,
                                                         TOLD[np.dtype(self.point.dtype)])

    @property
    def promise(self) -> float:
        """What Newton's step would gain, as far as a first look tells; else inf."""
        return np.inf if self.whiten is None else 0.5 * float(
            np.sum((self.whiten @ self.gradient) ** 2))

    def restarted_at(self, u: np.ndarray, nearby: bool = False) -> "Optimum":
        """The same elsewhere; `nearby`: by a step that is as good as none, so that the look at the
        curvature stays."""
        out = Optimum(self.again_from, u, self.known if nearby else None, self.sampled)
        if nearby and "glance" in self.__dict__:
            out.__dict__["glance"] = self.glance
        return out
