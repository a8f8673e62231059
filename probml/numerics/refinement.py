"""The refinement of an optimum that slopes alone led to, whatever the units of coordinates are:
where Newton's step still promises something it goes on, in coordinates of the curvature there.

L-BFGS takes a coordinate for as wide as 1 until it has learnt otherwise. Where one is 10⁹ wide (a
mean of prices in cents), or two are narrow across and long along (level and slope beside a date of
738,000), it gains nothing for some steps far from the maximum, or creeps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from probml.numerics.curvature import SHARE, TOLD, Evaluate
from probml.numerics.optimum import (
    BLIND,
    NEAR,
    PATIENCE,
    SHORTER,
    SHORTEST,
    Optimum,
    Result,
    maximize,
    negligible,
)

TURNS = 60  # of the curvature at the most
WIDEST = 1e12  # times 1 and the coordinate itself
ROUNDINGS = 64  # of a height, beyond which a change is one
IDLE = 2  # turns that gain nothing, while a direction is not told
IDLY = 1e-9  # nats, 4e-5 of a standard deviation, that no answer shows
TAKEN = 0.1  # of what Newton's step promises, what may be left after it
# times what the next step is foretold to gain, from what the last ones did, that must be less than
# nothing for a step to be taken without a look at where it leads
SAFE = 4.0


@dataclass(frozen=True)
class HostBFGS:
    """BFGS from the unit matrix (Nocedal & Wright 2006, "Numerical Optimization", chapter 6), with
    a backtracking line search, decided on the host: where an evaluation is a pass over very many
    rows that threads share, and none is to be spent on seeing that a step gains nothing.

    Args:
        steps: at the most.
        tolerance: stop where the value rises by less than this, relative to 1 + |value|.
        enough: stop where what is left to gain, by the curvature as learnt so far, is less than
            this, relative to 1 + |value|; or is foretold to be after one more step, from how the
            last one shortened it. That step is taken without a look. 0: the curvature is not
            known to be −1, and learnt from the first step on, which is short.
        rounding: of the numbers that values are made of.

    Cost: one evaluation a step, and d² operations.
    """

    steps: int
    tolerance: float
    enough: float = 0.0
    rounding: float = float(np.finfo(float).eps)

    def run(self, objective: Callable, start: np.ndarray) -> Result:
        tolerance, enough, rounding = self.tolerance, self.enough, self.rounding
        point, inverse, count, calm, before, whole = start, np.eye(len(start)), 0, 0, np.inf, False
        value, slope = objective(point)
        trail, patience = [value], PATIENCE if tolerance < rounding else 1
        tolerance = max(tolerance, rounding) if tolerance > 0 else 0.0
        while count < self.steps and np.isfinite(value) and np.linalg.norm(slope) > NEAR:
            step = inverse @ slope
            if not enough and not count:
                step /= max(np.linalg.norm(slope), 1.0)
            gain, least = 0.5 * slope @ step, enough * (1 + abs(value))
            if enough and (gain <= least
                           or whole and SAFE * gain * min(gain / before, 1.0) <= least):
                point, value, count = point + step, value + gain, count + 1
                return Result(point, value, slope, count, np.array([*trail, value]), True)
            size, new, there, found = _line_search(objective, point, value, step, gain, rounding)
            rise = new - value
            if not found:
                break
            move, bend = size * step, slope - there
            if (along := move @ bend) > 0:
                if not enough and not count:
                    inverse = along / (bend @ bend) * inverse
                inverse = _bfgs(inverse, move, bend, along)
            point, slope, value, count = point + move, there, max(new, value), count + 1
            trail.append(value)
            before, whole = gain, size == 1.0
            calm = calm + 1 if rise <= tolerance * (1 + abs(value)) else 0
            if calm >= patience:
                break
        flat = np.linalg.norm(slope) <= (1 + abs(value)) * max(rounding ** (1 / 3),
                                                               50 * rounding**0.5)
        return Result(point, value, slope, count, np.array(trail), bool(flat))


def _line_search(objective: Callable, point: np.ndarray, value: float, step: np.ndarray,
                 gain: float, rounding: float) -> tuple[float, float, np.ndarray, bool]:
    """The share of a step that gains enough, value and slope there, and whether it is a way up."""
    size, blind = 1.0, BLIND * rounding * (1 + abs(value))
    while True:
        new, there = objective(point + size * step)
        rise = new - value
        flatter = abs(rise) <= blind and abs(there @ step) <= 0.9 * 2 * gain
        if rise >= 1e-4 * size * 2 * gain or flatter or size <= SHORTEST:
            return size, new, there, bool(rise > 0 or flatter)
        size *= SHORTER


def _bfgs(inverse: np.ndarray, move: np.ndarray, bend: np.ndarray, along: float) -> np.ndarray:
    """The inverse of the curvature, from what a move has bent the slope by."""
    turned = inverse @ bend
    across = np.outer(move, turned) / along
    return inverse - across - across.T + (1 + bend @ turned / along) * np.outer(move, move) / along


class Refined(NamedTuple):
    """Where a climb ends.

    Attributes:
        u: (d,). heights: on the way, of which the first is that of the end of the climb before.
        promise: nats that Newton's step would gain still; inf where the curvature told nothing.
        root: (d, d), u + root z are coordinates in which the curvature is 1, where it is `told`.
    """

    u: np.ndarray
    heights: list[float]
    promise: float
    root: np.ndarray
    told: bool


def refine(top: Optimum) -> tuple[Optimum, list[float], float]:
    """The maximum near the end of a climb, as `refine_frame` has it, where a first look
    (Optimum.glance) does not find that the end is one; heights and promise as of `Refined`.

    Cost: d + 3 gradients where the end is the maximum; else those of `refine_frame`.
    """
    if top.whiten is None or not top.promise <= negligible(np.asarray(top.value, top.point.dtype)):
        u, heights, promise, *_ = refine_frame(top.evaluate, top.point)
        return top.restarted_at(u), heights, promise
    u, heights, promise = _last(top.evaluate, top.point, top.gradient, [top.value], top.promise,
                                top.whiten)
    return top.restarted_at(u, nearby=True), heights, promise


def refine_frame(evaluate: Evaluate, end: np.ndarray) -> Refined:
    """The maximum near the end of a climb, and the curvature there.

    Each turn takes the curvature by differences of gradients in the coordinates of the last one,
    u = end + R z, so that what is 10⁻⁹ as curved as the rest is told after two, and then a step
    of Newton's or a share of it (Dennis & Schnabel 1983, "Numerical Methods for Unconstrained
    Optimization", sections 5.5 and 7.1).

    Args:
        evaluate: (d,) → the height, and the gradient of its negative.

    Cost: 4 d gradients where the end is the maximum, 2 d more for each turn.
    """
    u, told, share = end, TOLD[np.dtype(end.dtype)], SHARE[np.dtype(end.dtype)]
    height, slope = evaluate(u)
    heights, promise = [height], np.inf
    root, sure, idle = np.diag(_widths(evaluate, u, height)), False, 0
    for turn in range(TURNS):
        found = _curvature(evaluate, u, root, share if turn else 1.0)
        if not np.isfinite(found).all():
            return Refined(u, heights, np.inf, root, False)
        curvature, turned = _axes(found, told)
        root = root @ turned
        promise = 0.5 * float((slope @ root) @ (slope @ root))
        sure = bool(turn and curvature.min() > told)
        if not turn:  # by steps of no width
            continue
        if promise <= negligible(np.asarray(height, end.dtype)) and sure:
            u, heights, promise = _last(evaluate, u, slope, heights, promise, root.T)
            break
        u, slope, height = _step(evaluate, u, root, slope, height)
        if height > heights[-1]:
            heights.append(height)
        elif sure or idle == IDLE:
            break
        else:  # a direction that is not told yet may be where it gains
            idle += 1
    return Refined(u, heights, promise, root, sure)


def _last(evaluate: Evaluate, end: np.ndarray, slope: np.ndarray, heights: list[float],
          promise: float, whiten: np.ndarray) -> tuple[np.ndarray, list[float], float]:
    """u, heights and promise after Newton's step from an end, where that leaves a tenth of what it
    promised: what heights tell no more, since they are rounded, slopes still do.

    Args:
        whiten: (d, d) W, of which WᵀW is the inverse of the curvature.
    """
    if promise > IDLY:
        there = (end - whiten.T @ (whiten @ slope)).astype(end.dtype)
        found, gradient = evaluate(there)
        left = 0.5 * float(np.sum((whiten @ gradient) ** 2))
        if np.isfinite(found) and left <= TAKEN * promise:
            return there, [*heights, max(heights[-1], found)], left
    return end, heights, promise


def _widths(evaluate: Evaluate, u: np.ndarray, height: float) -> np.ndarray:
    """Of each coordinate a step that changes the height by more than rounding."""
    eps = np.finfo(u.dtype).eps
    rounding, widths = ROUNDINGS * eps * (1 + abs(height)), eps ** (1 / 3) * (1 + np.abs(u))
    for i, widest in enumerate(WIDEST * (1 + np.abs(u))):
        while widths[i] < widest:
            moved = u.copy()
            moved[i] += widths[i]
            if not abs(evaluate(moved)[0] - height) <= rounding:
                break
            widths[i] *= 10
    return widths


def _curvature(evaluate: Evaluate, u: np.ndarray, root: np.ndarray, step: float) -> np.ndarray:
    """Second derivatives (d, d) of the negative height in coordinates z, by central differences."""
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite tells nothing
        ends = [[root.T @ evaluate((u + side * step * way).astype(u.dtype))[1] for side in (1, -1)]
                for way in root.T]
        found = np.array([(up - down) / (2 * step) for up, down in ends], float)
        return 0.5 * (found + found.T)


def _axes(found: np.ndarray, least_told: float) -> tuple[np.ndarray, np.ndarray]:
    """Curvatures, each coordinate in its own unit, and coordinates in which they are 1, as far as
    they are told, in those in which they were taken: downhill along what curves upwards, too."""
    own = np.abs(np.diagonal(found))
    # what its own curvature would have to be beside what couples it to each other one
    with np.errstate(over="ignore"):  # infinite: of no width
        least = np.max(found**2 / np.where(own > 0, own, np.inf), 1, initial=0.0)
    own = np.maximum(own, least)
    unit = np.where(own > 0, 1 / np.sqrt(np.where(own > 0, own, 1.0)), 1.0)
    curvature, axes = np.linalg.eigh(found * unit[:, None] * unit)
    return curvature, unit[:, None] * axes / np.sqrt(np.maximum(np.abs(curvature), least_told))


def _step(evaluate: Evaluate, u: np.ndarray, root: np.ndarray, slope: np.ndarray,
          height: float) -> tuple[np.ndarray, np.ndarray, float]:
    """The largest share of Newton's step that gains as its slope says, where some does."""
    def both(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = evaluate((u + root @ z).astype(u.dtype))
        return (value if np.isfinite(value) else -np.inf), -(slope @ root)

    found = maximize(both, np.zeros(u.size), HostBFGS(1, 0.0, np.finfo(float).tiny))
    if not found.value > height + negligible(np.asarray(height, u.dtype)):
        return u, slope, height
    there = (u + root @ found.point).astype(u.dtype)
    value, slope = evaluate(there)
    return there, slope, value
