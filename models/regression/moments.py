"""The rows of a Gaussian regression, added up once.

Rows enter through their number n, their mean and the triangular root R of their scatter about it,
RᵀR = Σ w (row − mean)(row − mean)ᵀ, found by QR: never by normal equations, so that a design of
condition κ costs κ and not κ² of the digits. Roots of two parts are one QR of both, so that parts
add up.

Source: Golub & Van Loan (2013), "Matrix Computations", section 5.3, for least squares by QR."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import helmert, qr, solve_triangular

from probml.errors import present

CELLS = 2**18  # numbers of one piece of rows: 2 MB, what a cache holds
TALL = 16  # rows a column from which on a root is found by matrix products


class Moments(NamedTuple):
    """What a Gaussian regression knows of its rows."""

    rows: float  # Σ weights
    mean: np.ndarray  # (p,) of the columns, weighted; 0 where they are not centred
    root: np.ndarray  # (p, p) upper triangular, RᵀR the scatter about the mean


def moments(table, extra=None, weights=None, centred: bool = True) -> Moments:
    """One pass over the rows of a table (n, p), a piece at a time. Cost: 2 n p².

    Args:
        table: an array (n, p); the last columns are the outputs, so that the root of the others
            does not depend on them.
        extra: further columns, (n,) or (n, q): the outputs, say.
        weights: (n,) or None; a row counts so many times.
        centred: about the mean; else about 0.
    """
    table = np.asarray(table)
    extra = np.zeros((len(table), 0)) if extra is None else np.asarray(extra).reshape(len(table),
                                                                                      -1)
    n, p = len(table), table.shape[1] + extra.shape[1]
    chunk, total = max(CELLS // max(p, 1), 64 * p, 1), None
    for start in range(0, n, chunk):
        rows, w = np.concatenate([table[start : start + chunk], extra[start : start + chunk]], 1,
                                 dtype=float), None
        if weights is not None:
            w = np.asarray(weights[start : start + chunk], float)
        count = float(len(rows)) if w is None else float(w.sum())
        mean = np.zeros(p)
        if centred and count > 0:
            mean = rows.mean(0) if w is None else w @ rows / count
            # at a large offset the first has lost digits
            mean = mean + ((rows - mean).mean(0) if w is None else w @ (rows - mean) / count)
        rows = rows - mean
        part = Moments(count, mean, _triangle(rows if w is None else rows * np.sqrt(w)[:, None], p))
        total = part if total is None else merged(total, part, centred)
    return present(total)


def merged(a: Moments, b: Moments, centred: bool = True) -> Moments:
    """The moments of two parts' rows together."""
    rows = a.rows + b.rows
    if not centred or not rows:
        return Moments(rows, a.mean, _triangle(np.concatenate([a.root, b.root]), a.root.shape[1]))
    shift = b.mean - a.mean
    between = np.sqrt(a.rows * b.rows / rows) * shift[None]
    return Moments(rows, a.mean + b.rows / rows * shift,
                   _triangle(np.concatenate([a.root, b.root, between]), a.root.shape[1]))


def _triangle(rows: np.ndarray, p: int) -> np.ndarray:
    """R of a QR, (p, p), where there are fewer rows its last ones 0.

    Of many rows by two Cholesky factors, the second of what the first made nearly orthogonal: as
    exact as Householder's where the first leaves digits enough, which is seen from the second, and
    matrix products only (Yamamoto et al. 2015, CholeskyQR2).
    """
    if len(rows) > TALL * p > 0:
        try:
            chol1 = np.linalg.cholesky(rows.T @ rows)
            whitened = solve_triangular(chol1, rows.T, lower=True, check_finite=False)
            chol2 = np.linalg.cholesky(whitened @ whitened.T)
        except np.linalg.LinAlgError:
            chol2 = None
        if chol2 is not None and np.abs(chol2 - np.eye(p)).max() < 0.1:
            return (chol1 @ chol2).T
    padded = np.zeros((p, p))
    r = qr(rows, mode="r", check_finite=False)[0][:p]
    padded[: len(r)] = np.triu(r)
    return padded


def few_rows(stats: Moments, centred: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """p + 1 rows and their weights with the same number, mean and scatter: any Gaussian model of
    the columns has the same likelihood.

    Returns:
        rows (p + 1, p), weights (p + 1,), Σ weights = n. Not centred: p rows.
    """
    p = len(stats.mean)
    if not centred:
        return stats.root * np.sqrt(p / stats.rows), np.full(p, stats.rows / p)
    # (p + 1, p): columns of length 1, at right angles to one another and to 1
    diffs = helmert(p + 1).T @ stats.root
    return stats.mean + diffs * np.sqrt((p + 1) / stats.rows), np.full(p + 1, stats.rows / (p + 1))
