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


class SparseCodes(NamedTuple):
    """Codes, atoms, and the objective after every round, which never rises."""

    codes: np.ndarray  # (n, k)
    atoms: np.ndarray  # (k, d)
    history: list[float]
    converged: bool


def learn_codes(X: np.ndarray, atoms: np.ndarray, alpha: float, learn: bool, tolerance: float,
                iterations: int) -> SparseCodes:
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
    null_loss = 0.5 * float((left**2).sum())
    history, converged = [null_loss], False
    if not learn:
        _code_rows(codes, atoms, left, mask, alpha, tolerance, iterations)
        return SparseCodes(codes, atoms, history, True)
    for _ in range(iterations):
        _code(codes, atoms, left, mask, alpha)
        _learn(codes, atoms, left, mask)
        history.append(0.5 * float((left**2).sum()) + alpha * float(np.abs(codes).sum()))
        if history[-2] - history[-1] <= tolerance * null_loss:
            converged = True
            break
    return SparseCodes(codes, atoms, history, converged)


def _code_rows(codes: np.ndarray, atoms: np.ndarray, left: np.ndarray, mask: np.ndarray,
               alpha: float, tolerance: float, iterations: int) -> None:
    """Codes of rows under known atoms, in place: each row is done when its own objective gains next
    to nothing, so that its codes do not depend on the other rows."""
    rows, losses = np.arange(len(left)), 0.5 * (left**2).sum(1)
    tols = tolerance * losses
    for _ in range(iterations):
        if not len(rows):
            return
        row_codes, resid = codes[rows], left[rows]
        _code(row_codes, atoms, resid, mask[rows], alpha)
        codes[rows], left[rows] = row_codes, resid
        new_losses = 0.5 * (resid**2).sum(1) + alpha * np.abs(row_codes).sum(1)
        unfinished = losses[rows] - new_losses > tols[rows]
        losses[rows] = new_losses
        rows = rows[unfinished]


def _code(codes: np.ndarray, atoms: np.ndarray, left: np.ndarray, mask: np.ndarray,
          alpha: float) -> None:
    """Every code at its minimum given the others, one after the other; in place."""
    lengths = mask @ (atoms**2).T  # (n, k)
    for k, atom in enumerate(atoms):
        dots = left @ atom + lengths[:, k] * codes[:, k]
        value = np.sign(dots) * np.maximum(np.abs(dots) - alpha, 0.0)
        value = np.divide(value, lengths[:, k], where=lengths[:, k] > 0, out=np.zeros_like(value))
        left -= mask * np.outer(value - codes[:, k], atom)
        codes[:, k] = value


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
        updated = _in_ball(code @ left + weight * atoms[k], weight)
        left -= mask * np.outer(code, updated - atoms[k])
        atoms[k] = updated


def _in_ball(c: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The vector of least ½ Σ w_j v_j² − Σ c_j v_j within the unit ball."""
    active = weight > 0
    vector = np.zeros_like(c)
    c, weight = c[active], weight[active]
    if np.linalg.norm(c / weight) <= 1:
        vector[active] = c / weight
        return vector
    low, high = 0.0, float(np.linalg.norm(c))  # at |c| the length is below 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.linalg.norm(c / (weight + middle)) > 1 else (low, middle)
    vector[active] = c / (weight + high)
    return vector
