"""Second derivatives by differences of gradients, on the host, and what is read from a matrix of
them: units, directions, what Newton's step promises."""

from collections.abc import Callable

import numpy as np

# (d,) → a height, and the gradient of its negative
Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]

# curvature, in units of each coordinate's own, that a look tells at a time: what is flatter is
# looked at again in coordinates in which it is wider
TOLD = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-3}
SHARE = {np.dtype(np.float64): 1e-3, np.dtype(np.float32): 0.1}  # of a width, of differences
# of a slope's change, each in its coordinate's own unit, that curvatures must foretell
FORETOLD = 0.2


def units(hessian: np.ndarray) -> np.ndarray:
    """Of each coordinate the width that its own curvature gives it, by its size, (d,); 1 where it
    has none."""
    own = np.abs(np.diagonal(hessian))
    return np.where(own > 0, 1 / np.sqrt(np.where(own > 0, own, 1.0)), 1.0)


def scaled(hessian: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """The same second derivatives, every coordinate in its unit."""
    return hessian * unit[:, None] * unit


def whitened(hessian: np.ndarray, least: float) -> np.ndarray | None:
    """W (d, d), of which WᵀW is the inverse of a curvature; None where this is not above `least`
    in every direction, each coordinate in its own unit."""
    if not (np.isfinite(hessian).all() and (np.diagonal(hessian) > 0).all()):
        return None
    unit = units(hessian)
    curvature, axes = np.linalg.eigh(scaled(0.5 * (hessian + hessian.T), unit))
    return None if curvature.min() <= least else axes.T * unit / np.sqrt(curvature)[:, None]


def glanced(evaluate: Evaluate, end: np.ndarray, slope: np.ndarray) -> np.ndarray | None:
    """Second derivatives (d, d) by a first look, of one slope a coordinate; None where these are
    not to be believed: not as symmetric as second derivatives are, nearly flat in a direction, or
    not foretelling the slope some way along all coordinates at once, each by a share of its own
    width. What is rounding, or changes within that width, is found out so.

    Cost: d + 1 gradients.
    """
    eps, d = np.finfo(end.dtype).eps, end.size
    told, share = TOLD[np.dtype(end.dtype)], SHARE[np.dtype(end.dtype)]
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite tells nothing
        moved = [(end + way).astype(end.dtype) for way in np.diag(eps ** (1 / 3)
                                                                 * (1 + np.abs(end)))]
        found = np.array([(evaluate(at)[1] - slope) / (at - end)[i] for i, at in enumerate(moved)],
                         float)
        if whitened(found, told) is None:
            return None
        unit = units(found)
        bent = scaled(found, unit)
        if np.abs(bent - bent.T).max() > FORETOLD:
            return None
        wave = np.cos(2.4 * np.arange(d) + 0.4)  # no two coordinates together, and all of them
        way = share * unit * np.where(wave < 0, wave - 0.5, wave + 0.5)
        there = (end + way).astype(end.dtype)
        change = unit * (evaluate(there)[1] - slope)
        foretold = bent @ ((there - end) / unit)
        if not np.abs(change - foretold).max() <= FORETOLD * share:
            return None
    return 0.5 * (found + found.T)


def differences(gradient: Callable[[np.ndarray], np.ndarray], u: np.ndarray) -> np.ndarray:
    """Second derivatives (d, d) by central differences of a gradient: once rough, once by a share
    of the width that this told.

    Cost: 4 d gradients.
    """
    eps = np.finfo(u.dtype).eps
    rough = eps ** (1 / 3) * (1 + np.abs(u))
    share, width = SHARE[np.dtype(u.dtype)], rough
    for _ in range(2):
        ends = [[gradient((u + side * h).astype(u.dtype)) for side in (1, -1)]
                for h in np.diag(width)]
        with np.errstate(invalid="ignore"):  # where the density ends nothing is known
            found = np.array([(up - down) / (2 * h)
                              for (up, down), h in zip(ends, width, strict=True)], float)
        found = 0.5 * (found + found.T)
        told = np.diagonal(found) > 0
        width = np.where(told, share / np.sqrt(np.where(told, np.diagonal(found), 1.0)), rough)
        width = np.maximum(width, 1e-3 * rough)
    return found
