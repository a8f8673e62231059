"""Refinement of an optimum found by a gradient method, by Newton steps in whitened coordinates.

L-BFGS assumes at first that every coordinate has scale 1. Where a scale is 10⁹ (a mean of prices in
cents), or two coordinates are nearly collinear (intercept and slope of a date of 738,000), it may
stall or converge slowly far from the maximum. Newton steps do not depend on the units.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from probml.numerics.curvature import DIFFERENCE_STEP, MIN_CURVATURE, Evaluate, curvature_axes
from probml.numerics.optimum import (
    BACKTRACKING_FACTOR,
    GRADIENT_TOLERANCE,
    MAX_STALLED_ITERATIONS,
    MIN_STEP_SIZE,
    VALUE_ROUNDINGS,
    Optimum,
    Result,
    maximize,
    negligible,
)

MAX_ITERATIONS = 60  # Newton iterations of refine_with_hessians
MAX_WIDTH = 1e12  # difference step, relative to 1 + |coordinate|
MIN_CHANGE = 64  # units of rounding of the value; a smaller change is not informative
MAX_IDLE_ITERATIONS = 2  # iterations without a gain while some curvature is unreliable
NEGLIGIBLE_GAIN = 1e-9  # of log density: 4e-5 standard deviations of a parameter
MAX_FIRST_STEP = 2.0  # of a logarithm or logit, of BFGS in whitened coordinates
REMAINING_GAIN = 1e-10  # relative to the objective, that it may leave
MAX_REMAINING_GAIN = 0.1  # after the last Newton step, relative to the gain predicted for it
# Factor on the gain predicted after the next step; a step is taken without an evaluation if the
# product is below the tolerance.
PREDICTION_SAFETY = 4.0


@dataclass(frozen=True)
class HostBFGS:
    """BFGS with a backtracking line search, on the host (Nocedal & Wright 2006, "Numerical
    Optimization", chapter 6). The inverse Hessian starts as the identity.

    It is meant for objectives that are expensive passes over many rows: it spends no evaluation to
    confirm convergence.

    Args:
        steps: maximum number of iterations.
        tolerance: stop when the gain of an iteration, relative to 1 + |value|, is below this.
        remaining_gain: stop when the remaining gain, relative to 1 + |value|, is below this, either
            now or as predicted after one more step. That step is taken without an evaluation. A
            positive value requires whitened coordinates; with 0 the first step is short, and sets
            the scale of the inverse Hessian.
        rounding: machine epsilon of the objective's arithmetic.

    Cost: one evaluation and d² operations a step.
    """

    steps: int
    tolerance: float
    remaining_gain: float = 0.0
    rounding: float = float(np.finfo(float).eps)

    @np.errstate(invalid="ignore", over="ignore")  # a trial point may have an infinite gradient
    def run(self, objective: Callable, start: np.ndarray) -> Result:
        tolerance, remaining_gain, rounding = self.tolerance, self.remaining_gain, self.rounding
        point, inverse, count, stalled = start, np.eye(len(start)), 0, 0
        last_gain, was_full_step = np.inf, False
        value, slope = objective(point)
        values, max_stalled = [value], MAX_STALLED_ITERATIONS if tolerance < rounding else 1
        tolerance = max(tolerance, rounding) if tolerance > 0 else 0.0
        while (count < self.steps and np.isfinite(value)
               and np.linalg.norm(slope) > GRADIENT_TOLERANCE):
            step = inverse @ slope
            if not remaining_gain and not count:
                step /= max(np.linalg.norm(slope), 1.0)
            gain, negligible_gain = 0.5 * slope @ step, remaining_gain * (1 + abs(value))
            predicted = PREDICTION_SAFETY * gain * min(gain / last_gain, 1.0)
            if remaining_gain and (gain <= negligible_gain
                           or was_full_step and predicted <= negligible_gain):
                point, value, count = point + step, value + gain, count + 1
                return Result(point, value, slope, count, np.array([*values, value]), True)
            size, new_value, new_slope, success = _line_search(objective, point, value, step, gain,
                                                               rounding)
            increase = new_value - value
            if not success:
                break
            move, change = size * step, slope - new_slope
            if (curvature := move @ change) > 0:
                if not remaining_gain and not count:
                    inverse = curvature / (change @ change) * inverse
                inverse = _update_inverse_hessian(inverse, move, change, curvature)
            point, slope, value, count = point + move, new_slope, max(new_value, value), count + 1
            values.append(value)
            last_gain, was_full_step = gain, size == 1.0
            stalled = stalled + 1 if increase <= tolerance * (1 + abs(value)) else 0
            if stalled >= max_stalled:
                break
        flat = np.linalg.norm(slope) <= (1 + abs(value)) * max(rounding ** (1 / 3),
                                                               50 * rounding**0.5)
        return Result(point, value, slope, count, np.array(values), bool(flat))


def _line_search(objective: Callable, point: np.ndarray, value: float, step: np.ndarray,
                 gain: float, rounding: float) -> tuple[float, float, np.ndarray, bool]:
    """Returns the step size that satisfies Armijo's condition or, between values that are equal up
    to rounding, reduces the slope; the value and the gradient there; and whether it succeeded."""
    size, indistinct = 1.0, VALUE_ROUNDINGS * rounding * (1 + abs(value))
    while True:
        new_value, slope = objective(point + size * step)
        increase = new_value - value
        flatter = abs(increase) <= indistinct and abs(slope @ step) <= 0.9 * 2 * gain
        if increase >= 1e-4 * size * 2 * gain or flatter or size <= MIN_STEP_SIZE:
            return size, new_value, slope, bool(increase > 0 or flatter)
        size *= BACKTRACKING_FACTOR


def _update_inverse_hessian(inverse: np.ndarray, move: np.ndarray, change: np.ndarray,
          curvature: float) -> np.ndarray:
    """Returns the BFGS update of an inverse Hessian (d, d).

    Args:
        move, change: (d,), of the point and of the gradient. curvature: their inner product.
    """
    newton = inverse @ change
    cross = np.outer(move, newton) / curvature
    return (inverse - cross - cross.T
            + (1 + change @ newton / curvature) * np.outer(move, move) / curvature)


def maximize_whitened(opt: Optimum, steps: int, tolerance: float,
                      logarithms: np.ndarray) -> Result:
    """The maximum that BFGS finds from a point, in coordinates whitened by the Hessian there, by
    differences of gradients: of few coordinates a third of the evaluations of L-BFGS, which begins
    without a scale and confirms convergence to rounding.

    Args:
        steps, tolerance: of BFGS. logarithms: (d,), which coordinates are logarithms or logits.

    Cost: a gradient a coordinate, and some ten.
    """
    start, kind = np.asarray(opt.point, float), opt.point.dtype
    rounding = float(np.finfo(kind).eps)
    width = rounding ** (1 / 3) * (1 + np.abs(start))
    with np.errstate(invalid="ignore", over="ignore"):
        hessian = np.array([(opt.evaluate((start + move).astype(kind))[1] - opt.gradient) / step
                            for move, step in zip(np.diag(width), width, strict=True)])
    valid = bool(np.isfinite(hessian).all())
    root = curvature_axes(0.5 * (hessian + hessian.T), MIN_CURVATURE[kind])[1] if valid else np.eye(
        len(start))
    # farther away a scale may be 0, where it is left
    first = (root @ (root.T @ opt.gradient))[logarithms]
    root *= min(1.0, (MAX_FIRST_STEP / np.abs(first).max(initial=MAX_FIRST_STEP)) ** 0.5)

    def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = (opt.evaluate((start + root @ z).astype(kind)) if z.any()
                        else opt.value_and_gradient)
        return value, -root.T @ slope

    result = maximize(objective, np.zeros(len(start)), HostBFGS(
        steps, tolerance, REMAINING_GAIN if valid else 0.0, rounding))
    return result._replace(point=(start + root @ result.point).astype(kind))


class Refined(NamedTuple):
    """A refined optimum.

    Attributes:
        u: (d,). heights: values of the iterations; the first is that of the given end point.
        predicted_gain: of a further Newton step; infinite if the Hessian is not finite.
        root: (d, d); in coordinates z with u + root z the negative Hessian is the identity.
        reliable: whether all curvatures are reliable.
    """

    u: np.ndarray
    heights: list[float]
    predicted_gain: float
    root: np.ndarray
    reliable: bool


def refine(opt: Optimum) -> tuple[Optimum, list[float], float]:
    """Returns the maximum near an end point, with `heights` and `predicted_gain` as in `Refined`.
    `refine_with_hessians` is called only if the optimum's estimated Hessian predicts a gain.

    Cost: d + 3 gradients at a maximum, otherwise the cost of `refine_with_hessians`.
    """
    least_gain = negligible(np.asarray(opt.value, opt.point.dtype))
    if opt.whitening is None or not opt.predicted_gain <= least_gain:
        u, heights, gain, *_ = refine_with_hessians(opt.evaluate, opt.point)
        return opt.moved_to(u), heights, gain
    u, heights, gain = _take_last_step(opt.evaluate, opt.point, opt.gradient, [opt.value],
                                       opt.predicted_gain, opt.whitening)
    return opt.moved_to(u, nearby=True), heights, gain


def refine_with_hessians(evaluate: Evaluate, end: np.ndarray) -> Refined:
    """Returns the maximum near an end point, and the curvature there.

    Each iteration computes the Hessian by differences of gradients in the whitened coordinates of
    the last iteration, u = end + R z, and takes a damped Newton step (Dennis & Schnabel 1983,
    "Numerical Methods for Unconstrained Optimization", sections 5.5 and 7.1). Two iterations are
    enough for a direction whose curvature is 10⁻⁹ of the others'.

    Args:
        evaluate: (d,) → the value, and the gradient of its negative.
        end: (d,).

    Cost: 4 d gradients at a maximum, 2 d more for each iteration.
    """
    dtype, u = np.dtype(end.dtype), end
    min_curvature, share = MIN_CURVATURE[dtype], DIFFERENCE_STEP[dtype]
    height, slope = evaluate(u)
    heights, gain = [height], np.inf
    root, reliable, n_idle = np.diag(_find_difference_steps(evaluate, u, height)), False, 0
    for iteration in range(MAX_ITERATIONS):
        hessian = _compute_hessian(evaluate, u, root, share if iteration else 1.0)
        if not np.isfinite(hessian).all():
            return Refined(u, heights, np.inf, root, False)
        curvature, axes = curvature_axes(hessian, min_curvature)
        root = root @ axes
        gain = 0.5 * float((slope @ root) @ (slope @ root))
        reliable = bool(iteration and curvature.min() > min_curvature)
        if not iteration:  # the first differences used steps unrelated to the width
            continue
        if gain <= negligible(np.asarray(height, end.dtype)) and reliable:
            u, heights, gain = _take_last_step(evaluate, u, slope, heights, gain, root.T)
            break
        u, slope, height = _newton_step(evaluate, u, root, slope, height)
        if height > heights[-1]:
            heights.append(height)
        elif reliable or n_idle == MAX_IDLE_ITERATIONS:
            break
        else:  # a gain may be possible along a direction with unreliable curvature
            n_idle += 1
    return Refined(u, heights, gain, root, reliable)


def _take_last_step(
    evaluate: Evaluate, end: np.ndarray, slope: np.ndarray, heights: list[float],
    predicted_gain: float, whitening: np.ndarray
) -> tuple[np.ndarray, list[float], float]:
    """Returns u, heights and predicted gain after a last Newton step, or unchanged if the step does
    not reduce the predicted gain to a tenth. Gradients show this gain, values round it away.

    Args:
        whitening: (d, d) W such that WᵀW is the inverse of the negative Hessian.
    """
    if predicted_gain > NEGLIGIBLE_GAIN:
        point = (end - whitening.T @ (whitening @ slope)).astype(end.dtype)
        value, gradient = evaluate(point)
        remaining = 0.5 * float(np.sum((whitening @ gradient) ** 2))
        if np.isfinite(value) and remaining <= MAX_REMAINING_GAIN * predicted_gain:
            return point, [*heights, max(heights[-1], value)], remaining
    return end, heights, predicted_gain


def _find_difference_steps(evaluate: Evaluate, u: np.ndarray, height: float) -> np.ndarray:
    """Returns for each coordinate a difference step (d,) that changes the value by more than
    rounding."""
    eps = np.finfo(u.dtype).eps
    rounding, widths = MIN_CHANGE * eps * (1 + abs(height)), eps ** (1 / 3) * (1 + np.abs(u))
    for i, widest in enumerate(MAX_WIDTH * (1 + np.abs(u))):
        while widths[i] < widest:
            shifted = u.copy()
            shifted[i] += widths[i]
            if not abs(evaluate(shifted)[0] - height) <= rounding:
                break
            widths[i] *= 10
    return widths


def _compute_hessian(evaluate: Evaluate, u: np.ndarray, root: np.ndarray,
                     step: float) -> np.ndarray:
    """Returns the Hessian (d, d) of the negative value in coordinates z, by central
    differences."""
    with np.errstate(invalid="ignore", over="ignore"):  # the caller rejects infinite entries
        grads = [[root.T @ evaluate((u + side * step * col).astype(u.dtype))[1] for side in (1, -1)]
                 for col in root.T]
        hessian = np.array([(up - down) / (2 * step) for up, down in grads], float)
        return 0.5 * (hessian + hessian.T)


def _newton_step(evaluate: Evaluate, u: np.ndarray, root: np.ndarray, slope: np.ndarray,
                 height: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Returns point, gradient and value after a backtracked Newton step, or unchanged if no step
    size gives a gain."""
    def both(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = evaluate((u + root @ z).astype(u.dtype))
        return (value if np.isfinite(value) else -np.inf), -(slope @ root)

    result = maximize(both, np.zeros(u.size), HostBFGS(1, 0.0, np.finfo(float).tiny))
    if not result.value > height + negligible(np.asarray(height, u.dtype)):
        return u, slope, height
    point = (u + root @ result.point).astype(u.dtype)
    value, slope = evaluate(point)
    return point, slope, value
