"""A linear machine's dual by a primal-dual interior point method: a concave quadratic function in a
box, under one sum.

    max over β of cᵀβ − ½ |Xᵀβ|²,   Σβ = 0,   low ≤ β ≤ high

A turn solves with XXᵀ + D, D diagonal, by a QR of n d² operations, whatever the cost of a
violation is. LIBSVM's steps of two rows are as many as rows where C is small, and without bound
where it is large (500 × 20 rows at C = 100: nine million; here 20 turns); and LIBLINEAR, whose
steps are of columns, penalises the intercept.

Sources: Mehrotra (1992), the predictor and corrector; Ferris & Munson (2003), "Interior-point
methods for massive support vector machines"; Fine & Scheinberg (2001) for low ranks.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

TURNS = 100  # some 15 to 30 are usual
SNAP = 1e-3  # of the largest variable, beyond which none is said to be at its bound


class Solution(NamedTuple):
    """The dual's maximum.

    beta (n,); bias b; objective cᵀβ − ½ |Xᵀβ|²; turns; gap: what the primal problem is above the
    objective, relative to it.
    """

    beta: np.ndarray
    bias: float
    objective: float
    turns: int
    gap: float


def hinge(x: np.ndarray, sign: np.ndarray, cost: np.ndarray, max_turns: int) -> Solution:
    """A plane between rows of sign 1 and −1: the maximum of the dual of ½|w|² + Σ cost · max(0, 1 −
    sign (w·x + b)).

    Args:
        x: (n, d). sign, cost: (n,), costs above 0. max_turns: turns.

    Where the digits do not suffice the gap says so.
    """
    # in units in which rows have a length of 1
    unit = float(np.sqrt(np.mean((x**2).sum(1)))) or 1.0
    x, cost = x / unit, cost * unit**2
    bound = sign * cost
    low, high = np.minimum(bound, 0.0), np.maximum(bound, 0.0)
    beta, turns = maximum(x, sign, low, high, min(max_turns, TURNS))
    result = solution(x, sign, cost, beta, turns)
    return result._replace(beta=beta / unit**2, objective=result.objective / unit**2)


def solution(x: np.ndarray, sign: np.ndarray, cost: np.ndarray, beta: np.ndarray,
             turns: int) -> Solution:
    """What a dual point says: the plane w = Xᵀβ with the best b for it, a weighted median, and how
    far the two problems are apart."""
    w = beta @ x
    edge = sign - x @ w  # each row's b at its margin
    order, positive = np.argsort(edge), cost[sign > 0].sum()
    cum_cost = np.cumsum(cost[order])
    index = min(int(np.searchsorted(cum_cost, positive * (1 - 1e-12))), len(edge) - 1)
    tie = index + 1 < len(edge) and cum_cost[index] <= positive * (1 + 1e-12)
    bias = float(edge[order[index : index + 1 + tie]].mean())
    objective = float(sign @ beta - 0.5 * w @ w)
    primal = 0.5 * w @ w + cost @ np.maximum(0.0, 1 - sign * (x @ w + bias))
    gap = float(primal - objective) / max(abs(primal), np.finfo(float).tiny)
    return Solution(beta, bias, objective, turns, gap)


def _solver(x: np.ndarray, diagonal: np.ndarray) -> Callable:
    """v → (XXᵀ + D)⁻¹ v: what is left of v by a ridge regression on X, rows in units of D; by QR,
    since columns may be nearly collinear."""
    root = np.sqrt(diagonal)
    q = np.linalg.qr(np.concatenate([x / root[:, None], np.eye(x.shape[1])]))[0][: len(x)]

    def solve(v):
        v = v / root
        return (v - q @ (v @ q)) / root

    return solve


def maximum(x: np.ndarray, c: np.ndarray, low: np.ndarray, high: np.ndarray,
            max_turns: int = TURNS) -> tuple[np.ndarray, int]:
    """(β (n,), turns), low < high; where the digits are used up, as near as they reach.

    What ends at a bound is put there, and the rest moved so that Σβ = 0.
    """
    turn = 0
    # inside the box, of the size of a solution where costs are large, and such that Σβ = 0
    beta = np.clip((low + high) / 2, -1.0, 1.0)
    pos, neg = np.maximum(beta, 0.0), np.minimum(beta, 0.0)
    beta = (pos / pos.sum() - neg / neg.sum()) * min(pos.sum(), -neg.sum())
    shift, below, above = 0.0, np.ones_like(c), np.ones_like(c)  # multipliers
    while turn < max_turns:
        to_low, to_high = beta - low, high - beta
        slope = x @ (beta @ x) - c + shift - below + above
        mu = (below @ to_low + above @ to_high) / (2 * len(c))
        if mu * len(c) < 1e-12 * abs(c @ beta) and np.abs(slope).max() < 1e-8 * np.abs(c).max():
            break
        try:
            solve = _solver(x, below / to_low + above / to_high)
        except (np.linalg.LinAlgError, ValueError):  # the digits are used up
            break
        state = (solve, solve(np.ones_like(c)), slope, beta, to_low, to_high, below, above)
        d, _, d_below, d_above = _newton(*state, 0.0, 0.0)
        length = min(_step_limit(d, to_low, to_high),
                     _step_limit(np.r_[d_below, d_above], np.r_[below, above]))
        next_mu = ((below + length * d_below) @ (to_low + length * d) + (above + length * d_above)
                   @ (to_high - length * d)) / (2 * len(c))
        centre = mu * (next_mu / mu) ** 3
        d, d_shift, d_below, d_above = _newton(*state, centre - d_below * d, centre + d_above * d)
        length = 0.99 * min(_step_limit(d, to_low, to_high),
                            _step_limit(np.r_[d_below, d_above], np.r_[below, above]))
        proposal = beta + length * d
        if not np.isfinite(proposal).all() or not ((proposal > low) & (proposal < high)).all():
            break
        beta, shift, turn = proposal, shift + length * d_shift, turn + 1
        below, above = below + length * d_below, above + length * d_above
    # of a distance to a bound and its multiplier one is 0 at the maximum, in units of their own
    size = np.abs(beta).max()
    at_low, at_high = (distance < np.minimum(SNAP, multiplier / np.abs(c).max()) * size
                       for distance, multiplier in ((beta - low, below), (high - beta, above)))
    beta = np.where(at_low, low, np.where(at_high, high, beta))
    free = ~(at_low | at_high)
    if free.any():
        beta[free] = np.clip(beta[free] - beta.sum() / free.sum(), low[free], high[free])
    return beta, turn


def _newton(solve, ones, slope, beta, to_low, to_high, below, above, at_low, at_high):
    """Directions of β, of the multiplier of Σβ = 0 and of those of the bounds, towards the products
    `at_low` and `at_high`."""
    d_free = solve(-slope + at_low / to_low - at_high / to_high - below + above)
    up = (d_free.sum() + beta.sum()) / ones.sum()
    d = d_free - up * ones
    return d, up, (at_low - below * d) / to_low - below, (at_high + above * d) / to_high - above


def _step_limit(d: np.ndarray, down: np.ndarray, up: np.ndarray | None = None) -> float:
    """How far, up to 1, one may go along d with `down` below each variable and `up` above."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ways = np.where(d < 0, -down / d, np.inf if up is None else np.where(d > 0, up / d, np.inf))
    return float(min(1.0, np.nanmin(ways, initial=1.0)))
