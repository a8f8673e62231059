"""Numerical maximisation: `maximize(objective, start, method)` with Newton's method (newton.py),
L-BFGS or, on the host, BFGS (refinement.py). An `Optimum` caches its value, gradient and Hessian.

| method | objective | use for |
|---|---|---|
| `Newton` | point → (value, gradient, Hessian) | few coordinates, or a cheap Hessian solve |
| `LBFGS` | point → (value, gradient) | everything else |
| `HostBFGS` | point → (value, gradient), in NumPy | few coordinates, very many rows |

Why no library is used: optax.lbfgs takes longer to compile (4.4 s against 3.2 s, logistic
regression with 300 rows and 5 coefficients, JAX 0.10.2), since its line search contains a second
copy of the objective. Optimistix's Newton solver may find a saddle point; it accepts no known
gradient, no preconditioner and no Hessian with a custom solver.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.numerics.curvature import (
    MIN_CURVATURE,
    differences,
    estimate_hessian,
    scaled,
    units,
    whitened,
)
from probml.numerics.process.libraries import optax
from probml.typing import PyTree

# norm in whitened coordinates, where it is the distance from the optimum in standard deviations
GRADIENT_TOLERANCE = 1e-6
# Consecutive iterations whose gain is below rounding, when the tolerance is below rounding too.
MAX_STALLED_ITERATIONS = 5
MAX_EVALUATIONS = 32  # of one accepted step, more than MIN_STEP_SIZE or MAX_DAMPING allows
MIN_STEP_SIZE = 1e-10  # a line search fails below this fraction of the full step
BACKTRACKING_FACTOR = 0.3  # applied to a step that increases the objective too little
# Of iterations that use slopes because values differ by rounding alone: the predicted gain,
# relative to 1 + |value|, below which they stop; their number; the units of rounding within which
# values count as equal.
NEGLIGIBLE_GAIN, MAX_SLOPE_ITERATIONS, VALUE_ROUNDINGS = 1e-8, 40, 4
# Curvature of a direction that may be flat, with each coordinate in units of its own width.
FLAT_CURVATURE = {np.dtype(np.float64): 1e-5, np.dtype(np.float32): 3e-3}
MAX_ROUNDING = 0.1  # of log densities that are compared


class Result(NamedTuple):
    """The result of a maximisation.

    Attributes:
        point: the best point found.
        value, gradient: at that point; with `Newton`, at the last evaluated point.
        iterations: number of accepted steps.
        history: the value at the start and after each step, padded with NaN.
        flat: whether the gradient is zero up to rounding.
        hessian, first: with `Newton`, at the last evaluated point and at the start.
    """

    point: PyTree
    value: jax.Array
    gradient: PyTree
    iterations: jax.Array
    history: jax.Array
    flat: jax.Array
    hessian: PyTree = ()
    first: PyTree = ()


@dataclass(frozen=True)
class LBFGS:
    """L-BFGS (optax's two-loop recursion) with a backtracking line search.

    Args:
        steps: maximum number of iterations.
        tolerance: stop when the gain of an iteration, relative to 1 + |value|, is below this.
        history: number of values to record after the start.
        preconditioned: the coordinates are whitened (the Hessian is about −I). Otherwise the scale
            is estimated from the first steps.
        remaining_gain: in whitened coordinates, stop when ½‖gradient‖², the remaining gain, is
            below this relative to 1 + |value|.
        slopes: if the tolerance is below rounding and two values are equal up to rounding, accept a
            step that reduces the directional derivative: the approximate Wolfe conditions of Hager
            & Zhang 2005, "A new conjugate gradient method with guaranteed descent and an efficient
            line search". Values locate the maximum to half of the digits, gradients to all.

    The program contains one copy of the objective, which dominates the compilation time.
    """

    steps: ArrayLike
    tolerance: ArrayLike
    history: int = 0
    preconditioned: bool = False
    remaining_gain: ArrayLike = 0.0
    slopes: bool = False

    def run(self, objective: Callable, start: PyTree) -> Result:
        curvature = optax.scale_by_lbfgs(memory_size=10, scale_init_precond=not self.preconditioned)
        steps, tolerance, remaining_gain = self.steps, self.tolerance, self.remaining_gain
        dtype = jax.tree.leaves(start)[0].dtype
        rounding = jnp.finfo(dtype).eps
        # along a curved ridge single iterations may gain less than rounding
        max_stalled = jnp.where(tolerance < rounding, MAX_STALLED_ITERATIONS, 1)
        slopes = self.slopes and dtype != jnp.float64
        below_rounding = tolerance < rounding if slopes else False
        tolerance = jnp.maximum(tolerance, jnp.where(tolerance > 0, rounding, 0.0))

        def evaluate(state):
            """Evaluate the objective at `point + size · direction`, then accept that point or
            backtrack."""
            first = state.count < 0
            point = jax.tree.map(lambda p, d: p + state.size * d, state.point, state.direction)
            value, gradient = jax.tree.map(jnp.negative, objective(point))  # minimised here
            flatter = slopes and below_rounding & _is_slope_reduced(state, value, gradient)
            state = _accept_or_backtrack(state, point, value, gradient, flatter, tolerance)
            norm = optax.tree.norm(state.gradient)
            target = jnp.maximum(
                GRADIENT_TOLERANCE, jnp.sqrt(2 * remaining_gain * (1 + jnp.abs(state.value)))
            ) if self.preconditioned else jnp.where(first, 1e-14 * (1 + norm), state.target)
            unscaled = jnp.minimum(1.0, 1.0 / jnp.maximum(norm, 1e-30))
            full = jnp.where(first & (not self.preconditioned), unscaled, 1.0)
            return _update_direction(state._replace(target=target.astype(dtype)), curvature,
                                     full.astype(dtype))

        def is_running(state):
            promising = below_rounding & (state.stalled < MAX_SLOPE_ITERATIONS) & (
                -0.5 * state.slope > NEGLIGIBLE_GAIN * (1 + jnp.abs(state.value)))
            # the limit on evaluations only guards against an endless loop
            return (state.evaluations < MAX_EVALUATIONS * (steps + 2)) & (
                ~state.ended | (state.count < 0) | (
                    (state.count < steps) & ((state.stalled < max_stalled) | promising)
                    & (optax.tree.norm(state.gradient) > state.target)))

        zeros, zero = jax.tree.map(jnp.zeros_like, start), jnp.zeros((), dtype)
        infinite, none = jnp.full((), jnp.inf, dtype), jnp.zeros((), int)
        state = jax.lax.while_loop(is_running, evaluate, _Search(
            start, infinite, zeros, curvature.init(start), zeros, zero, zero, infinite, zero,
            jnp.full((), -1), jnp.full(self.history + 1, jnp.nan, dtype), jnp.ones((), bool), none,
            none))
        return Result(state.point, -state.value, jax.tree.map(jnp.negative, state.gradient),
                      state.count, -state.values, is_flat(state.value, state.gradient))


class _Search(NamedTuple):
    """State of L-BFGS, which minimises −objective, within a line search.

    Attributes:
        point, value, gradient: of the best point so far, of −objective.
        memory: optax's L-BFGS state.
        direction: of the line search. slope: the directional derivative at `point`.
        size: step size to be evaluated next.
        decrease: of the value by the last line search.
        target: gradient norm below which the method has converged.
        count: completed line searches; −1 before the start is evaluated.
        values: the value after each line search.
        ended: whether the current line search is complete.
        stalled: consecutive line searches whose decrease was below the tolerance.
        evaluations: of the objective.
    """

    point: PyTree
    value: jax.Array
    gradient: PyTree
    memory: PyTree
    direction: PyTree
    slope: jax.Array
    size: jax.Array
    decrease: jax.Array
    target: jax.Array
    count: jax.Array
    values: jax.Array
    ended: jax.Array
    stalled: jax.Array
    evaluations: jax.Array


def _is_slope_reduced(state: _Search, value: jax.Array, gradient: PyTree) -> jax.Array:
    """Whether a new value equals the last one up to rounding and its slope is smaller."""
    rounding = jnp.finfo(state.value.dtype).eps
    equal = jnp.abs(value - state.value) <= VALUE_ROUNDINGS * rounding * (
        1 + jnp.abs(state.value))
    return equal & (jnp.abs(optax.tree.vdot(gradient, state.direction))
                    <= 0.9 * jnp.abs(state.slope))


def _accept_or_backtrack(state: _Search, point: PyTree, value: jax.Array, gradient: PyTree,
                         flatter: jax.Array, tolerance: jax.Array) -> _Search:
    """Returns the state after an evaluation, at the new point if this is accepted: its value
    satisfies Armijo's condition, or its slope is smaller (`flatter`)."""
    first = state.count < 0
    accepted = first | (value <= state.value + 1e-4 * state.size * state.slope) | flatter
    choose = functools.partial(jnp.where, accepted & (first | (value < state.value) | flatter))
    # written so that a NaN step size ends the line search
    ended = accepted | ~(state.size > MIN_STEP_SIZE)
    decrease = jnp.where(ended, jnp.where(accepted & (value < state.value), state.value - value,
                                          0.0), state.decrease)
    stalled = jnp.where(decrease <= tolerance * (1 + jnp.abs(state.value)), state.stalled + 1, 0)
    return state._replace(
        point=jax.tree.map(choose, point, state.point),
        # the lower of two values that are equal up to rounding
        value=choose(jnp.where(first, value, jnp.minimum(value, state.value)), state.value),
        gradient=jax.tree.map(choose, gradient, state.gradient), decrease=decrease, ended=ended,
        stalled=jnp.where(ended & (state.count > -1), stalled, state.stalled))


def _update_direction(state: _Search, curvature: PyTree, full: jax.Array) -> _Search:
    """Returns the state with the next step to evaluate: along a new L-BFGS direction with step size
    `full` if the line search has ended, otherwise a smaller step along the same direction."""
    direction, memory = curvature.update(state.gradient, state.memory, state.point)
    slope = -optax.tree.vdot(direction, state.gradient)
    # steepest descent where the L-BFGS direction is not a descent direction
    direction = jax.tree.map(lambda d, g: jnp.where(slope < 0, -d, -g), direction, state.gradient)
    slope = jnp.where(slope < 0, slope, -optax.tree.vdot(state.gradient, state.gradient))
    choose = functools.partial(jnp.where, state.ended)
    count = jnp.where(state.ended, state.count + 1, state.count)
    index = jnp.where(state.ended, count, state.values.size)
    return state._replace(
        memory=jax.tree.map(choose, memory, state.memory),
        direction=jax.tree.map(choose, direction, state.direction),
        slope=choose(slope, state.slope), count=count, evaluations=state.evaluations + 1,
        size=choose(full, BACKTRACKING_FACTOR * state.size),
        values=state.values.at[index].set(state.value, mode="drop"))


def maximize(objective: Callable, start: PyTree, method: PyTree) -> Result:
    """Returns the local maximum that a method finds from a start.

    Args:
        objective: point → (value, gradient), for `Newton` (value, gradient, Hessian). A pure JAX
            function; for `HostBFGS` a function of NumPy arrays.
        start: the initial point, of the form that the objective takes.
        method: `Newton`, `LBFGS` or `HostBFGS`.
    """
    return method.run(objective, start)


def is_flat(value, gradient):
    """Whether a gradient, a pytree, is zero up to rounding of the value."""
    norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
    eps = jnp.finfo(value.dtype).eps
    return norm <= jnp.maximum(eps ** (1 / 3), 50 * eps**0.5) * (1 + jnp.abs(value))


def newton_converged(value, gradient, hessian):
    """Whether the predicted decrease of the Newton step at a minimum is negligible. Unlike
    `is_flat`, this does not depend on the units of the coordinates."""
    unit = units(hessian, jnp)  # without them lstsq would treat small curvatures as singular
    step = unit * jnp.linalg.lstsq(scaled(hessian, unit), unit * gradient)[0]
    predicted = 0.5 * jnp.vdot(gradient, step)
    return (predicted >= 0) & (predicted <= negligible(value))


def hides_differences(log_density: float) -> bool:
    """Whether rounding of log densities of this size, in JAX's present precision, may hide that
    one is higher than another by MAX_ROUNDING."""
    return 4 * float(jnp.finfo(jnp.result_type(float)).eps) * abs(log_density) > MAX_ROUNDING


def negligible(value):
    """Returns the gain below which an improvement of this value counts as rounding error. A NumPy
    value is computed by NumPy, without compiling a program."""
    return max(1e-10, 10 * float(jnp.finfo(value.dtype).eps)) * (1 + abs(value))


Maximization = Callable[[np.ndarray, int], tuple[np.ndarray, float, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Optimum:
    """The end point of a maximisation, with its value, gradient and Hessian, each computed at first
    use and cached. Gradients and Hessians are those of the negative of the value.

    Attributes:
        maximization: (start (d,), number of steps) → (end point, its value, its gradient); with 0
            steps it evaluates the start.
        point: (d,).
        known_hessian: (d, d), if the method has computed it.
        subsampled: values are computed from a subsample of the rows, whose maximum lies elsewhere.
        valued: point (d,) → the value, where that is much quicker without the gradient.
    """

    maximization: Maximization
    point: np.ndarray
    known_hessian: np.ndarray | None = None
    subsampled: bool = False
    valued: Callable[[np.ndarray], float] | None = None

    def evaluate(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        """Returns the value and the gradient at u (d,), without compiling a new program."""
        return self.maximization(u, 0)[1:]

    def value_at(self, u: np.ndarray) -> float:
        return self.maximization(u, 0)[1] if self.valued is None else self.valued(u)

    def maximize_from(self, u: np.ndarray, steps: int) -> tuple[np.ndarray, float]:
        """Returns the end point of a maximisation from u (d,), and its value."""
        return self.maximization(u, steps)[:2]

    @functools.cached_property
    def value_and_gradient(self) -> tuple[float, np.ndarray]:
        """The value and the gradient at `point`."""
        return self.evaluate(self.point)

    @property
    def value(self) -> float:
        return self.value_and_gradient[0]

    @property
    def gradient(self) -> np.ndarray:
        return self.value_and_gradient[1]

    @functools.cached_property
    def estimated_hessian(self) -> np.ndarray | None:
        """The known Hessian, or an estimate by forward differences of gradients; None if that
        estimate is unreliable (see `estimate_hessian`)."""
        return self.known_hessian if self.known_hessian is not None else estimate_hessian(
            self.evaluate, self.point, self.gradient)

    @functools.cached_property
    def hessian(self) -> np.ndarray:
        """The Hessian, (d, d): the known one, an existing estimate without flat directions, or
        central differences of gradients."""
        if self.known_hessian is not None:
            return self.known_hessian
        estimate = self.__dict__.get("estimated_hessian")
        if estimate is not None and whitened(
                estimate, FLAT_CURVATURE[np.dtype(self.point.dtype)]) is not None:
            return estimate
        return differences(lambda u: self.evaluate(u)[1], self.point)

    @functools.cached_property
    def whitening(self) -> np.ndarray | None:
        """W (d, d) such that WᵀW is the inverse of `estimated_hessian`; None if that is None."""
        return None if self.estimated_hessian is None else whitened(
            self.estimated_hessian, MIN_CURVATURE[np.dtype(self.point.dtype)])

    @property
    def predicted_gain(self) -> float:
        """The predicted gain of a Newton step at `point`; infinite without a reliable Hessian."""
        return np.inf if self.whitening is None else 0.5 * float(
            np.sum((self.whitening @ self.gradient) ** 2))

    def moved_to(self, u: np.ndarray, nearby: bool = False) -> "Optimum":
        """Returns the same maximisation at another point u (d,); `nearby`: u is so close to `point`
        that the Hessian is reused."""
        out = Optimum(self.maximization, u, self.known_hessian if nearby else None, self.subsampled,
                      self.valued)
        if nearby and "estimated_hessian" in self.__dict__:
            out.__dict__["estimated_hessian"] = self.estimated_hessian
        return out
