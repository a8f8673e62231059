"""A concave quadratic function in a box, under one sum, by a primal-dual interior point method;
where steps of two are slow.

    max over β of cᵀβ − ½ βᵀKβ,   Σβ = 0,   low ≤ β ≤ high

A turn solves with K + D, D diagonal: by Cholesky, n³/3; or, where K = XXᵀ has a low rank d, by
Woodbury's identity, n d².

Sources: Mehrotra (1992), the predictor and corrector; Ferris & Munson (2003), "Interior-point
methods for massive support vector machines"; Fine & Scheinberg (2001) for low ranks.
"""

from collections.abc import Callable

import numpy as np

TURNS = 100  # some 15 to 30 are usual
SNAP = 1e-7  # of the width of its box, within which a variable is at its bound


class Dense:
    """K as it is, (n, n)."""

    def __init__(self, kernel: np.ndarray):
        self.kernel = kernel

    def of(self, live: np.ndarray) -> "Dense":
        return Dense(self.kernel[np.ix_(live, live)])

    def times(self, v: np.ndarray) -> np.ndarray:
        return self.kernel @ v

    def solver(self, diagonal: np.ndarray) -> Callable:
        """v → (K + D)⁻¹ v."""
        from scipy.linalg import cho_factor, cho_solve

        root = cho_factor(self.kernel + np.diag(diagonal))
        return lambda v: cho_solve(root, v)


class Products:
    """K = XXᵀ by X (n, d)."""

    def __init__(self, x: np.ndarray):
        self.x = x

    def of(self, live: np.ndarray) -> "Products":
        return Products(self.x[live])

    def times(self, v: np.ndarray) -> np.ndarray:
        return self.x @ (v @ self.x)

    def solver(self, diagonal: np.ndarray) -> Callable:
        """v → (K + D)⁻¹ v."""
        from scipy.linalg import cho_factor, cho_solve

        scaled = self.x / diagonal[:, None]
        root = cho_factor(np.eye(self.x.shape[1]) + self.x.T @ scaled)
        return lambda v: v / diagonal - scaled @ cho_solve(root, v @ scaled)


def maximum(quadratic: Dense | Products, c: np.ndarray, low: np.ndarray,
            high: np.ndarray) -> np.ndarray | None:
    """β (n,); None where K is not positive or the digits do not suffice.

    What ends within SNAP of its box's width from a bound is put there, and the rest moved so that
    Σβ = 0.
    """
    live = high > low
    out = np.zeros(len(live))
    q, c, low, high = quadratic.of(live), c[live], low[live], high[live]
    width = high - low
    beta = (low + high) / 2
    beta -= (beta.sum() / width.sum()) * width  # Σβ = 0, inside the box as 0 is
    shift, below, above = 0.0, np.ones_like(c), np.ones_like(c)  # multipliers
    for _ in range(TURNS):
        to_low, to_high = beta - low, high - beta
        slope = q.times(beta) - c + shift - below + above
        mu = (below @ to_low + above @ to_high) / (2 * len(c))
        left, size = mu * len(c), max(1.0, abs(c @ beta))
        if not np.isfinite(mu):
            return None
        if left < 1e-12 * size and np.abs(slope).max() < 1e-8 * max(1.0, np.abs(c).max()):
            break
        try:
            if min(to_low.min(), to_high.min()) <= 0:
                raise np.linalg.LinAlgError  # the digits are used up
            solve = q.solver(below / to_low + above / to_high)
        except (np.linalg.LinAlgError, ValueError):
            if left > 1e-6 * size:
                return None
            break
        now = (solve, solve(np.ones_like(c)), slope, beta, to_low, to_high, below, above)
        d, _, d_below, d_above = _newton(*now, 0.0, 0.0)
        length = min(_room(d, to_low, to_high), _room(np.r_[d_below, d_above], np.r_[below, above]))
        next_mu = ((below + length * d_below) @ (to_low + length * d) + (above + length * d_above)
                   @ (to_high - length * d)) / (2 * len(c))
        centre = mu * (next_mu / mu) ** 3
        d, d_shift, d_below, d_above = _newton(*now, centre - d_below * d, centre + d_above * d)
        length = 0.99 * min(_room(d, to_low, to_high),
                            _room(np.r_[d_below, d_above], np.r_[below, above]))
        beta, shift = beta + length * d, shift + length * d_shift
        below, above = below + length * d_below, above + length * d_above
    beta = np.where(beta - low < SNAP * width, low,
                    np.where(high - beta < SNAP * width, high, beta))
    free = (beta > low) & (beta < high)
    if free.any():
        beta[free] -= beta.sum() / free.sum()
    if not free.any() or (beta < low).any() or (beta > high).any():
        return None
    out[live] = beta
    return out


def _newton(solve, ones, slope, beta, to_low, to_high, below, above, at_low, at_high):
    """Directions of β, of the multiplier of Σβ = 0 and of those of the bounds, towards the products
    `at_low` and `at_high`."""
    free = solve(-slope + at_low / to_low - at_high / to_high - below + above)
    up = (free.sum() + beta.sum()) / ones.sum()
    d = free - up * ones
    return d, up, (at_low - below * d) / to_low - below, (at_high + above * d) / to_high - above


def _room(d: np.ndarray, down: np.ndarray, up: np.ndarray | None = None) -> float:
    """How far, up to 1, one may go along d with `down` below each variable and `up` above."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ways = np.where(d < 0, -down / d, np.inf if up is None else np.where(d > 0, up / d, np.inf))
    return float(min(1.0, np.nanmin(ways, initial=1.0)))
