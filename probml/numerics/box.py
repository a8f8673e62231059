"""Global maximisation in a box without derivatives: multi-start L-BFGS with central differences.

Meant for functions of up to some tens of coordinates that are computed precisely, evaluate several
points in one call, and may have several local maxima and flat tails.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

GRID_POINTS = 19  # per axis, and along the diagonal of the box
DIFFERENCE_STEP = 1e-3  # in units of a coordinate
MIN_DISTANCE = 0.1  # between starting points, relative to the box
GRADIENT_TOLERANCE = 1e-4  # largest gradient of a converged search


class Top(NamedTuple):
    """The best local maximum of a search.

    Attributes:
        point: (axes,). value: there. first: the value at 0.
        history: values of the best local search.
        converged: whether it converged: the gradient is 0 or points out of the box.
        edge_values: (axes, 2), the value with one coordinate at its lower or upper bound.
    """

    point: np.ndarray
    value: float
    first: float
    history: np.ndarray
    converged: bool
    edge_values: np.ndarray


def search(f: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray, searches: int,
           n_random: int, iterations: int, random: np.random.Generator) -> Top | None:
    """Returns the best of several local searches; None if the function is −∞ at all candidates.

    Args:
        f: points (m, axes) → values (m,), −∞ outside the domain.
        low, high: (axes,), bounds; they include 0, where one of the searches starts.
        searches: number of local searches. n_random: random candidates in addition to the grids.
        iterations: maximum number for each search.
    """
    candidates = _make_candidates(low, high, n_random, random)
    values = f(candidates)
    if not np.isfinite(values).any():
        return None
    results = [_maximize_from(f, candidates[i], low, high, iterations)
               for i in _choose_starts(candidates / (high - low), values, searches)]
    point, history, converged = max(results, key=lambda result: result[1][-1])
    ends = np.array([np.where(axis, edge, point) for axis in np.eye(len(low), dtype=bool)
                     for edge in (low, high)])
    return Top(point, float(history[-1]), float(values[0]), history, converged,
               f(ends).reshape(-1, 2))


def _choose_starts(candidates: np.ndarray, values: np.ndarray, searches: int) -> list[int]:
    """Returns the numbers of the first candidate and of the best others, at least MIN_DISTANCE
    apart so that searches start in different basins."""
    starts: list[int] = []
    for i in [0, *np.argsort(-values)]:
        if np.isfinite(values[i]) and len(starts) < searches and all(
            np.abs(candidates[i] - candidates[j]).max() > MIN_DISTANCE for j in starts
        ):
            starts.append(int(i))
    return starts


def _make_candidates(low: np.ndarray, high: np.ndarray, n_random: int,
            random: np.random.Generator) -> np.ndarray:
    """Returns candidates (m, axes): 0, a grid along each axis and along the diagonal, and normal
    random points."""
    line = low + np.linspace(0, 1, GRID_POINTS)[:, None] * (high - low)
    along = [np.where(axis, line, 0.0) for axis in np.eye(len(low), dtype=bool)]
    points = random.normal(size=(n_random, len(low))) * (high - low) / 8
    return np.clip(np.concatenate([np.zeros((1, len(low))), *along, line, points]), low, high)


def _maximize_from(f: Callable, start: np.ndarray, low: np.ndarray, high: np.ndarray,
                   max_iter: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """Runs L-BFGS-B from a start; returns (point, values of the iterations, whether the gradient
    is 0 there)."""
    from scipy.optimize import minimize  # takes 0.1 s, which `import probml` does not need

    steps = np.concatenate([np.zeros((1, len(start))), DIFFERENCE_STEP * np.eye(len(start)),
                            -DIFFERENCE_STEP * np.eye(len(start))])
    values = [float(f(start[None])[0])]

    def loss(u):
        """Returns the negative value and its gradient by central differences, which may step out
        of the box."""
        evals = f(u + steps)
        up, down = evals[1 : 1 + len(u)], evals[1 + len(u) :]
        # at the boundary of the domain the gradient points inwards
        slope = np.where(np.isfinite(up) & np.isfinite(down),
                         (np.where(np.isfinite(up), up, 0) - np.where(np.isfinite(down), down, 0))
                         / (2 * DIFFERENCE_STEP), np.where(np.isfinite(up), 1.0, -1.0))
        value = evals[0] if np.isfinite(evals[0]) else values[0] - 1e6
        return -value, -slope

    res = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=list(zip(low, high,
                                                                             strict=True)),
                   callback=lambda u: values.append(float(f(u[None])[0])),
                   options={"maxiter": max_iter, "ftol": 1e-15, "gtol": 1e-7})
    slope = res.jac * ~((res.x <= low) & (res.jac > 0) | (res.x >= high) & (res.jac < 0))
    converged = np.abs(slope).max() <= GRADIENT_TOLERANCE * (1 + 1e-4 * abs(res.fun))
    return res.x, np.array([*values, -res.fun]), bool(converged)
