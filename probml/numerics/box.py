"""The highest point of a function in a box, without its derivatives: a look around, then climbs
from the best places by L-BFGS on central differences.

For functions of some tens of numbers that are exact to many digits, have several maxima and flat
tails, and answer for several points in one call.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

GRID = 19  # looks along an axis, and along all together
STEP = 1e-3  # of the differences
APART = 0.1  # of the box, between places from which climbs begin
GRADIENT = 1e-4  # a unit of a coordinate, from which a climb is not at its top


class Top(NamedTuple):
    """Where a search ended."""

    point: np.ndarray
    value: float
    first: float  # at 0, where it began
    history: np.ndarray  # of the best climb
    arrived: bool  # the gradient is 0 there, or leads out of the box
    ends: np.ndarray  # (axes, 2) the value with one coordinate at its lowest, or highest


def search(at: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray, climbs: int,
           looks: int, iterations: int, random: np.random.Generator) -> Top | None:
    """The highest of several climbs; None where the function is −∞ wherever it was looked at.

    Args:
        at: points (m, axes) → values (m,), −∞ where there is none.
        low, high: of each coordinate, (axes,), about 0, from which one of the climbs begins.
        climbs: how many. looks: random places beside the grids. iterations: of a climb.
    """
    seen = _places(low, high, looks, random)
    values = at(seen)
    if not np.isfinite(values).any():
        return None
    found = [_maximize_from(at, seen[i], low, high, iterations)
             for i in _starts(seen / (high - low), values, climbs)]
    point, history, arrived = max(found, key=lambda climb: climb[1][-1])
    ends = np.array([np.where(own, edge, point) for own in np.eye(len(low), dtype=bool)
                     for edge in (low, high)])
    return Top(point, float(history[-1]), float(values[0]), history, arrived,
               at(ends).reshape(-1, 2))


def _starts(seen: np.ndarray, values: np.ndarray, climbs: int) -> list[int]:
    """The first place, and the best ones that are APART, so that climbs lead up several hills."""
    starts: list[int] = []
    for i in [0, *np.argsort(-values)]:
        if np.isfinite(values[i]) and len(starts) < climbs and all(
            np.abs(seen[i] - seen[j]).max() > APART for j in starts
        ):
            starts.append(int(i))
    return starts


def _places(low: np.ndarray, high: np.ndarray, looks: int,
            random: np.random.Generator) -> np.ndarray:
    """0, a grid along each axis and along all together, and random places, nearer ones rather."""
    line, one = low + np.linspace(0, 1, GRID)[:, None] * (high - low), np.eye(len(low), dtype=bool)
    along = [np.where(own, line, 0.0) for own in one]
    places = random.normal(size=(looks, len(low))) * (high - low) / 8
    return np.clip(np.concatenate([np.zeros((1, len(low))), *along, line, places]), low, high)


def _maximize_from(at: Callable, start: np.ndarray, low: np.ndarray, high: np.ndarray,
                   most: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """(point, values of the iterations, whether the gradient is 0 there) by L-BFGS in a box."""
    from scipy.optimize import minimize  # late: 0.1 s that `import probml` need not take

    steps = np.concatenate([np.zeros((1, len(start))), STEP * np.eye(len(start)),
                            -STEP * np.eye(len(start))])
    values = [float(at(start[None])[0])]

    def loss(u: jax.Array):
        """The evidence and its central differences, also a step beyond the box."""
        found = at(u + steps)
        up, down = found[1 : 1 + len(u)], found[1 + len(u) :]
        # at the rim of where there is an evidence, the way back
        slope = np.where(np.isfinite(up) & np.isfinite(down),
                         (np.where(np.isfinite(up), up, 0) - np.where(np.isfinite(down), down, 0))
                         / (2 * STEP), np.where(np.isfinite(up), 1.0, -1.0))
        value = found[0] if np.isfinite(found[0]) else values[0] - 1e6
        return -value, -slope

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=list(zip(low, high,
                                                                               strict=True)),
                     callback=lambda u: values.append(float(at(u[None])[0])),
                     options={"maxiter": most, "ftol": 1e-15, "gtol": 1e-7})
    slope = found.jac * ~((found.x <= low) & (found.jac > 0) | (found.x >= high) & (found.jac < 0))
    return found.x, np.array([*values, -found.fun]), bool(np.abs(slope).max() <= GRADIENT * (
        1 + 1e-4 * abs(found.fun)))
