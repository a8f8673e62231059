"""Rotations of factor loadings towards simple structure, by gradient projection.

Sources: Kaiser (1958), "The varimax criterion for analytic rotation in factor analysis"; Jennrich
& Sampson (1966) for oblimin (here with γ = 0, quartimin); Bernaards & Jennrich (2005), "Gradient
projection algorithms and software for arbitrary rotation criteria in factor analysis".
"""

from collections.abc import Callable

import numpy as np

ROTATIONS = ("varimax", "oblimin")
STEPS, TOLERANCE = 1000, 1e-8  # iterations at the most; norm of the projected gradient


def _varimax(loadings: np.ndarray) -> tuple[float, np.ndarray]:
    """−Σ over factors of the variance of the squared loadings, and its gradient."""
    squares = loadings**2 - (loadings**2).mean(0)
    return -(squares**2).sum() / 4, -loadings * squares


def _oblimin(loadings: np.ndarray) -> tuple[float, np.ndarray]:
    """Σ over pairs of factors of products of their squared loadings, and its gradient."""
    squares = loadings**2
    others = squares @ (1 - np.eye(loadings.shape[1]))
    return (squares * others).sum() / 4, loadings * others


def rotate(loadings: np.ndarray, rotation: str) -> tuple[np.ndarray, np.ndarray]:
    """Loadings rotated towards simple structure, rows weighted equally (Kaiser's normalisation).

    Args:
        loadings: (items, k), of uncorrelated factors. rotation: one of ROTATIONS.

    Returns:
        (k, k) a matrix by which loadings are multiplied from the right, and (k, k) the
        correlations of the rotated factors, the identity for varimax.
    """
    norms = np.sqrt((loadings**2).sum(1, keepdims=True))
    unit = loadings / np.where(norms > 0, norms, 1.0)
    oblique = rotation == "oblimin"
    transform = _minimum(unit, _oblimin if oblique else _varimax, oblique)
    matrix = np.linalg.inv(transform).T if oblique else transform
    sign = np.where((loadings @ matrix).sum(0) < 0, -1.0, 1.0)
    return matrix * sign, (transform * sign).T @ (transform * sign)


def _minimum(loadings: np.ndarray, criterion: Callable, oblique: bool) -> np.ndarray:
    """The matrix T, orthogonal or with columns of length 1, that minimises the criterion of L T,
    or of L (Tᵀ)⁻¹."""
    transform, size = np.eye(loadings.shape[1]), 1.0

    def at(transform: np.ndarray) -> tuple[float, np.ndarray]:
        if not oblique:
            value, slope = criterion(loadings @ transform)
            return value, loadings.T @ slope
        inverse = np.linalg.inv(transform)
        value, slope = criterion(loadings @ inverse.T)
        return value, -((loadings @ inverse.T).T @ slope @ inverse).T

    value, slope = at(transform)
    for _ in range(STEPS):
        if oblique:
            projected = slope - transform * (transform * slope).sum(0)
        else:
            inner = transform.T @ slope
            projected = slope - transform @ (inner + inner.T) / 2
        norm = np.sqrt((projected**2).sum())
        if norm < TOLERANCE:
            break
        size *= 2
        for _ in range(30):
            step = transform - size * projected
            if oblique:
                candidate = step / np.sqrt((step**2).sum(0))
            else:
                u, _, vt = np.linalg.svd(step)
                candidate = u @ vt
            new_value, new_slope = at(candidate)
            if value - new_value > 0.5 * norm**2 * size:
                break
            size /= 2
        transform, value, slope = candidate, new_value, new_slope
    return transform
