"""Newton's method for numerical maximisation (optimum.py), and its steps."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from probml.jaxpr import backward
from probml.numerics.curvature import scaled, units
from probml.numerics.optimum import MAX_EVALUATIONS, Result, is_flat, negligible
from probml.numerics.process.inline_calls import traced_once
from probml.typing import PyTree

# Relative to the diagonal of −H: of the step after the first rejected one (60 models need a tenth
# fewer evaluations with 0.1 than with 0.001); of a step that is below rounding.
FIRST_DAMPING, MAX_DAMPING = 0.1, 1e12


def dense_step(point: jax.Array, gradient: jax.Array, hessian: jax.Array,
               damping: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the damped Newton step (d,), the solution of (−H + damping · diag −H) step =
    gradient, and its predicted gain. Both are NaN if that matrix is not positive definite."""
    unit = units(hessian, jnp)
    damped = damping * jnp.eye(len(unit), dtype=hessian.dtype) - scaled(hessian, unit)
    step = unit * jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(damped), True), unit * gradient)
    return step, 0.5 * jnp.vdot(gradient, step)


def saddle_free_step(point: jax.Array, gradient: jax.Array, hessian: jax.Array,
                     damping: jax.Array) -> tuple[jax.Array, jax.Array]:
    """As `dense_step`, but −H need not be positive definite: its eigenvalues are replaced by their
    absolute values (Dauphin et al. 2014, "Identifying and attacking the saddle point problem").
    Of posteriors of few parameters this saves half of the evaluations; an eigendecomposition costs
    some ten times a Cholesky factor, so few coordinates are meant. Where slope and curvature are
    both rounding, as along directions that nothing determines, there is no step."""
    unit = units(hessian, jnp)
    axes, curvature = jax.lax.linalg.eigh(-scaled(hessian, unit), symmetrize_input=False)
    curvature = jnp.abs(curvature)
    rounding = len(unit) * jnp.finfo(curvature.dtype).eps
    least = rounding * jnp.max(curvature, initial=0.0)
    slopes = (unit * gradient) @ axes
    slopes = jnp.where((curvature <= least)
                       & (jnp.abs(slopes) <= rounding * jnp.max(jnp.abs(slopes), initial=0.0)),
                       0.0, slopes)
    step = unit * (axes @ (slopes / (jnp.maximum(curvature, least) + damping)))
    return step, 0.5 * jnp.vdot(gradient, step)


def clipped_step(point: PyTree, gradient: PyTree, curvature: PyTree,
                 damping: jax.Array) -> tuple[PyTree, jax.Array]:
    """Returns the damped Newton step and its predicted gain for a sum of univariate functions.

    The step of each coordinate is bounded by 1 + |x|. Where the second derivative is not negative,
    it follows the gradient.

    Args:
        point, gradient, curvature: pytrees; curvature holds second derivatives.
    """
    def move(x, g, h):
        h = h * (1 + damping)
        step = jnp.where(h < 0, -g / jnp.where(h < 0, h, -1.0),
                         jnp.sign(g) * jnp.minimum(jnp.abs(g), 0.5) / (1 + damping))
        return jnp.clip(step, -1.0 - jnp.abs(x), 1.0 + jnp.abs(x))

    step = jax.tree.map(move, point, gradient, curvature)
    return step, 0.5 * sum(jnp.vdot(g, s) for g, s in zip(*map(jax.tree.leaves, (gradient, step)),
                                                          strict=True))


@dataclass(frozen=True)
class Newton:
    """Damped Newton method (Levenberg 1944, Marquardt 1963). Damping starts at 0, grows after a
    rejected step or where −H is not positive definite, and shrinks after an accepted step. The
    final value is at least that of the start.

    Args:
        steps: maximum number of iterations.
        tolerance: stop when the predicted or the actual gain of a step, relative to 1 + |value|, is
            below this. With 0 only a `negligible` predicted gain stops the method.
        gain_tolerance: stop when the predicted gain is below this, in units of the value.
        history: number of values to record after the start.
        step: (point, gradient, Hessian, damping) → (step, predicted gain). The Hessian may have any
            form that this function can solve with; the default expects a matrix.
        slack: units of rounding by which an accepted value may be lower than the last one.
        skip_last_evaluation: take the last step, whose predicted gain is `negligible`, without
            evaluating the objective there. Otherwise value, gradient and Hessian belong to the
            returned point.
    """

    steps: ArrayLike
    tolerance: ArrayLike
    gain_tolerance: float = 0.0
    history: int = 0
    step: Callable = dense_step
    slack: float = 0.0
    skip_last_evaluation: bool = True

    def run(self, objective: Callable, start: PyTree) -> Result:
        evaluate, steps = traced_once(objective), self.steps
        value, gradient, hessian = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(evaluate, start))
        rounding = jnp.finfo(value.dtype).eps  # a smaller relative gain is none
        tolerance = jnp.maximum(self.tolerance, jnp.where(self.tolerance > 0, rounding, 0.0))

        def propose(point, value, gradient, hessian, damping):
            step, predicted = self.step(point, gradient, hessian, damping)
            valid = jnp.isfinite(predicted) & (predicted >= 0) & functools.reduce(
                jnp.logical_and, [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(step)])
            least = jnp.maximum(tolerance * (1 + jnp.abs(value)), self.gain_tolerance)
            small = valid & (damping <= 1e-3) & (predicted <= least)
            last = (small & (predicted <= negligible(value)) if self.skip_last_evaluation
                    else jnp.zeros((), bool))
            return step, valid, small, last

        def iterate(carry):
            (point, value, gradient, hessian, first, damping, count, evaluations, values, rejected,
             (step, valid, small, _, _)) = carry
            at_start = count < 0
            new_point = jax.tree.map(lambda p, s: jnp.where(valid, p + s, p), point, step)
            new_value, new_gradient, new_hessian = evaluate(new_point)
            low = value - rounding * self.slack * (1 + jnp.abs(value)) if self.slack else value
            accepted = at_start | (valid & jnp.isfinite(new_value) & (new_value >= low))
            gain = jnp.where(accepted, new_value - value, jnp.inf)
            # if less damping was rejected and this damping gains nothing, they would alternate
            min_gain = jnp.where(damping == 0, tolerance * (1 + jnp.abs(value)), 0.0)
            converged = small | (accepted & ((damping == 0) | rejected) & (gain <= min_gain)
                                 & ~at_start)
            damping = jnp.where(accepted, jnp.where(damping < 1e-4, 0.0, damping / 10),
                                jnp.maximum(10 * damping, FIRST_DAMPING))
            point, value, gradient, hessian = jax.tree.map(
                functools.partial(jnp.where, accepted),
                (new_point, new_value, new_gradient, new_hessian),
                (point, value, gradient, hessian))
            first = jax.tree.map(functools.partial(jnp.where, at_start), hessian, first)
            count = count + accepted
            values = jnp.where(accepted & (jnp.arange(values.size) == count), value, values)
            return (point, value, gradient, hessian, first, damping, count, evaluations + 1, values,
                    ~accepted, (*propose(point, value, gradient, hessian, damping), converged))

        def is_running(carry):
            _, value, _, _, _, damping, count, evaluations, _, _, (*_, last, converged) = carry
            running = ~converged & ~last & (damping < MAX_DAMPING)
            # XLA may round the new value in two ways: a step that lowers the damping is not counted
            bounded = evaluations < MAX_EVALUATIONS * (steps + 1)
            return (count < 0) | (running & (count < steps) & bounded & jnp.isfinite(value))

        values = jnp.full(self.history + 1, jnp.nan, value.dtype)
        zero, false, none = jnp.zeros((), value.dtype), jnp.zeros((), bool), jnp.zeros((), int)
        carry = (start, value, gradient, hessian, hessian, zero, none - 1, none, values, false,
                 (jax.tree.map(jnp.zeros_like, start), false, false, false, false))
        (point, value, gradient, hessian, first, _, count, _, values, _,
         (step, _, _, last, converged)) = jax.lax.while_loop(is_running, iterate, carry)
        if self.skip_last_evaluation:
            point = jax.tree.map(
                lambda p, s: jnp.where(last & ~converged & (count < steps), p + s, p), point, step)
        return Result(point, value, gradient, count, values, is_flat(value, gradient), hessian,
                      first)


def chords(hessian: jax.Array, steps: int) -> Newton:
    """Returns the simplified Newton method (chord method), which uses one Hessian for all steps.

    A Hessian costs one pass over the rows per coordinate, a step only two; convergence is linear
    instead of quadratic (Ortega & Rheinboldt 1970, "Iterative Solution of Nonlinear Equations in
    Several Variables", section 7.1).

    Args:
        hessian: (d, d), at the start.
        steps: maximum number of iterations. The objective returns () as its Hessian.
    """
    return Newton(steps, 1e-16, step=lambda point, gradient, _, damping: dense_step(
        point, gradient, hessian, damping))


def separable(function: Callable) -> Callable:
    """Returns u → (value, gradient, second derivatives) of a sum of univariate functions, the
    objective that `clipped_step` expects."""
    gradient = backward.gradient(function)

    def evaluate(u):
        slope, curvature = jax.jvp(gradient, (u,), (jax.tree.map(jnp.ones_like, u),))
        return function(u), slope, curvature

    return evaluate
