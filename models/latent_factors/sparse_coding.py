"""Sparse coding: rows as sums of few of many atoms, all at their most probable values.

    x_nj ~ N(Σ_k z_nk D_kj, σ²),   z_nk ~ Laplace(0, b),   D_k uniform in the unit ball

Minus log p(x, z, D), times σ² and but for constants, is what falls, with α = σ²/b:

    ½ Σ_seen (x_nj − Σ_k z_nk D_kj)² + α Σ |z_nk|,   |D_k| ≤ 1

block by block, each at its minimum given the others. With r what the other atoms leave of x:

    z_nk = soft(Σ_j D_kj r_nj, α) / Σ_j D_kj²     soft(c, α) = sign(c) max(|c| − α, 0), over seen j
    D_kj = c_j / (w_j + λ),   c_j = Σ_n z_nk r_nj,  w_j = Σ_n z_nk², over seen n;  λ ≥ 0 the least
                              at which |D_k| ≤ 1

It is written by hand, as the modes of the codes lie at kinks, at exact zeros, where no gradient
leads.

Sources: Olshausen & Field (1996), "Emergence of simple-cell receptive field properties by learning
a sparse code for natural images"; Friedman, Hastie & Tibshirani (2010), "Regularization paths for
generalized linear models via coordinate descent", for the codes; Mairal, Bach, Ponce & Sapiro
(2009), "Online dictionary learning for sparse coding", for the atoms.
"""

from typing import NamedTuple

import numpy as np


class Coded(NamedTuple):
    """Codes, atoms, and the objective after every round, which never rises."""

    codes: np.ndarray  # (n, k)
    atoms: np.ndarray  # (k, d)
    history: list[float]
    converged: bool


def learn_codes(X: np.ndarray, atoms: np.ndarray, alpha: float, learn: bool, tolerance: float,
                iterations: int) -> Coded:
    """Rounds over codes, and atoms if they are to be learnt, until a round gains less than the
    tolerance times the objective of codes that are all 0.

    Args:
        X: (n, d), NaN where unseen.
        atoms: (k, d), the first ones, of length 1 at most.

    Cost: O(n d k) a round.
    """
    seen = ~np.isnan(X)
    mask, left = seen.astype(float), np.where(seen, X, 0.0)  # left: of seen cells, what no atom has
    codes, atoms = np.zeros((len(X), len(atoms))), atoms.copy()
    nothing = 0.5 * float((left**2).sum())
    history, converged = [nothing], False
    if not learn:
        _code_rows(codes, atoms, left, mask, alpha, tolerance, iterations)
        return Coded(codes, atoms, history, True)
    for _ in range(iterations):
        _code(codes, atoms, left, mask, alpha)
        _learn(codes, atoms, left, mask)
        history.append(0.5 * float((left**2).sum()) + alpha * float(np.abs(codes).sum()))
        if history[-2] - history[-1] <= tolerance * nothing:
            converged = True
            break
    return Coded(codes, atoms, history, converged)


def _code_rows(codes: np.ndarray, atoms: np.ndarray, left: np.ndarray, mask: np.ndarray,
               alpha: float, tolerance: float, iterations: int) -> None:
    """Codes of rows under known atoms, in place: each row is done when its own objective gains next
    to nothing, so that its codes do not depend on the other rows."""
    rows, height = np.arange(len(left)), 0.5 * (left**2).sum(1)
    least = tolerance * height
    for _ in range(iterations):
        if not len(rows):
            return
        some, rest = codes[rows], left[rows]
        _code(some, atoms, rest, mask[rows], alpha)
        codes[rows], left[rows] = some, rest
        found = 0.5 * (rest**2).sum(1) + alpha * np.abs(some).sum(1)
        goes_on = height[rows] - found > least[rows]
        height[rows] = found
        rows = rows[goes_on]


def _code(codes: np.ndarray, atoms: np.ndarray, left: np.ndarray, mask: np.ndarray,
          alpha: float) -> None:
    """Every code at its minimum given the others, one after the other; in place."""
    lengths = mask @ (atoms**2).T  # (n, k)
    for k, atom in enumerate(atoms):
        along = left @ atom + lengths[:, k] * codes[:, k]
        found = np.sign(along) * np.maximum(np.abs(along) - alpha, 0.0)
        found = np.divide(found, lengths[:, k], where=lengths[:, k] > 0, out=np.zeros_like(found))
        left -= mask * np.outer(found - codes[:, k], atom)
        codes[:, k] = found


def _learn(codes: np.ndarray, atoms: np.ndarray, left: np.ndarray, mask: np.ndarray) -> None:
    """Every atom at its minimum given the others; one that no row uses becomes what is left of the
    row of which most is; in place."""
    for k in range(len(atoms)):
        code = codes[:, k]
        if not code.any():
            worst = left[np.argmax((left**2).sum(1))]
            if (length := np.linalg.norm(worst)) > 0:
                atoms[k] = worst / length
            continue
        weight = mask.T @ code**2
        found = _in_ball(code @ left + weight * atoms[k], weight)
        left -= mask * np.outer(code, found - atoms[k])
        atoms[k] = found


def _in_ball(c: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The vector of least ½ Σ w_j v_j² − Σ c_j v_j within the unit ball."""
    used = weight > 0
    out = np.zeros_like(c)
    c, weight = c[used], weight[used]
    if np.linalg.norm(c / weight) <= 1:
        out[used] = c / weight
        return out
    low, high = 0.0, float(np.linalg.norm(c))  # at |c| the length is below 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.linalg.norm(c / (weight + middle)) > 1 else (low, middle)
    out[used] = c / (weight + high)
    return out
