"""The end of a climb by slopes, judged whatever the units: where Newton's step still promises
something the climb goes on, in coordinates of the curvature there.

L-BFGS takes a coordinate for as wide as 1 until it has learnt otherwise. Where one is 10⁹ wide (a
mean of prices in cents), or two are narrow across and long along (level and slope beside a date of
738,000), it gains nothing for some steps far from the maximum, or creeps.
"""

from collections.abc import Callable

import numpy as np

from probml.numerics.ascent import nothing

Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]

TURNS = 60  # of the curvature at the most
# curvature, in units of each coordinate's own, that is told at a time: what is flatter is looked at
# again in coordinates in which it is wider
TOLD = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-3}
SHARE = {np.dtype(np.float64): 1e-3, np.dtype(np.float32): 0.1}  # of a width, of differences
WIDEST = 1e12  # times 1 and the coordinate itself
TRIED = 12  # shares of a step, each a third of the one before
ROUNDINGS = 64  # of a height, beyond which a change is one


def righted(evaluate: Evaluate, end: np.ndarray) -> tuple[np.ndarray, list[float], float]:
    """The maximum near the end of a climb.

    Each turn takes the curvature by differences of gradients in the coordinates of the last one,
    u = end + R z, so that what is 10⁻⁹ as curved as the rest is told after two, and then a step
    of Newton's or a share of it (Dennis & Schnabel 1983, "Numerical Methods for Unconstrained
    Optimization", sections 5.5 and 7.1).

    Args:
        evaluate: (d,) → the height, and the gradient of its negative.

    Returns:
        where it ends, the heights on the way, of which the first is that of `end`, and what
        Newton's step still promises there, in nats; inf where the curvature told nothing.

    Cost: 4 d gradients where the end is the maximum, 2 d more for each turn.
    """
    u, told, share = end, TOLD[np.dtype(end.dtype)], SHARE[np.dtype(end.dtype)]
    height, slope = evaluate(u)
    heights, promise = [height], np.inf
    root = np.diag(_widths(evaluate, u, height))
    for turn in range(TURNS):
        found = _curvature(evaluate, u, root, share if turn else 1.0)
        if not np.isfinite(found).all():
            return u, heights, np.inf
        curvature, turned = _axes(found, told)
        root = root @ turned
        promise = 0.5 * float((slope @ root) @ (slope @ root))
        if not turn:  # by steps of no width
            continue
        if promise <= nothing(np.asarray(height, end.dtype)) and curvature.min() > told:
            break
        u, slope, height = _step(evaluate, u, root, slope, height)
        if height <= heights[-1]:
            break
        heights.append(height)
    return u, heights, promise


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
    least = np.max(found**2 / np.where(own > 0, own, np.inf), 1, initial=0.0)
    own = np.maximum(own, least)
    unit = np.where(own > 0, 1 / np.sqrt(np.where(own > 0, own, 1.0)), 1.0)
    curvature, axes = np.linalg.eigh(found * unit[:, None] * unit)
    return curvature, unit[:, None] * axes / np.sqrt(np.maximum(np.abs(curvature), least_told))


def _step(evaluate: Evaluate, u: np.ndarray, root: np.ndarray, slope: np.ndarray,
          height: float) -> tuple[np.ndarray, np.ndarray, float]:
    """The largest share of Newton's step that gains as its slope says, where some does."""
    way = -(slope @ root)
    least = float(nothing(np.asarray(height, u.dtype)))
    for share in 3.0 ** -np.arange(TRIED):
        there = (u + share * (root @ way)).astype(u.dtype)
        found, gradient = evaluate(there)
        if np.isfinite(found) and found > height + max(1e-4 * share * (way @ way), least):
            return there, gradient, found
    return u, slope, height
