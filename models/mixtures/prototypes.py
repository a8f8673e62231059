"""Groups around prototypes: k-medoids and fuzzy c-means, beside the mixtures that they stand near.

k-medoids chooses k of the rows so that the distances to the nearest of them are least in sum: hard
EM of p(x | z) ∝ exp(−distance(x, row z) / b), with medoids for the centres. From d₁ and d₂, the
distances to the nearest and the second medoid, the change of the sum by taking row x for medoid i
is, for all x and i in one product of matrices,

    Σ_o min(d(o, x) − d₁(o), 0) + Σ_{o of i} [clip(d(o, x), d₁(o), d₂(o)) − d₁(o)]

and the best exchange is made until none helps (PAM's; no pair exchanged lowers the sum then).

Fuzzy c-means has memberships u for probabilities, with no noise behind them:

    least Σ_nk u_nk^m |x_n − c_k|²,  u_nk = 1 / Σ_j (|x_n − c_k| / |x_n − c_j|)^(2/(m − 1)),
    c_k = Σ_n u_nk^m x_n / Σ_n u_nk^m,  over seen cells, |·|² scaled up by the share of them

m near 1 is k-means; a spherical mixture's probabilities fall with exp(−distance²) instead.

Sources: Kaufman & Rousseeuw (1990), "Finding Groups in Data", chapter 2; Schubert & Rousseeuw
(2021), "Fast and eager k-medoids clustering", for the exchange; Bezdek (1981), "Pattern Recognition
with Fuzzy Objective Function Algorithms"; Hathaway & Bezdek (2001), "Fuzzy c-means clustering of
incomplete data", the partial distances.
"""

from typing import NamedTuple

import numpy as np

TINY = 1e-300


class Medoids(NamedTuple):
    """Rows that are medoids, whose each row is, and the sum of the distances."""

    chosen: np.ndarray  # (k,)
    labels: np.ndarray  # (n,)
    loss: float
    exchanges: int


def medoids(distances: np.ndarray, weights: np.ndarray, chosen: np.ndarray) -> Medoids:
    """The best exchange of a medoid for a row, until none lowers the sum.

    Args:
        distances: (n, n).
        weights: (n,); a row of weight 0 is no medoid.
        chosen: (k,) rows, the first medoids, distinct.

    Cost: O(n² k) an exchange.
    """
    chosen, rows, k = chosen.copy(), np.arange(len(distances)), len(chosen)
    exchanges = 0
    while True:
        near = distances[:, chosen]
        labels = near.argmin(1)
        first = near[rows, labels]
        near[rows, labels] = np.inf
        second = near.min(1) if k > 1 else np.full(len(rows), np.inf)
        loss = float(weights @ first)
        gain = weights @ np.minimum(distances - first[:, None], 0.0)  # (n,) of each row x
        own = np.zeros((k, len(rows)))
        own[labels, rows] = weights
        change = gain + own @ (np.clip(distances, first[:, None], second[:, None]) - first[:, None])
        change[:, chosen] = change[:, weights == 0] = np.inf
        i, x = np.unravel_index(np.argmin(change), change.shape)
        if not change[i, x] < -1e-12 * loss:
            return Medoids(chosen, labels, loss, exchanges)
        chosen[i] = x
        exchanges += 1


class Fuzzy(NamedTuple):
    """Centres, memberships, and the objective of every round, which never rises."""

    centres: np.ndarray  # (k, d)
    memberships: np.ndarray  # (n, k)
    history: list[float]
    converged: bool


def squares(X: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Squared distances over the seen cells of a row, scaled up to all of them, (n, k)."""
    seen = ~np.isnan(X)
    left = np.where(seen[:, None], X[:, None] - centres, 0.0)
    return (left**2).sum(2) * (X.shape[1] / np.maximum(seen.sum(1), 1))[:, None]


def memberships(distances: np.ndarray, m: float) -> np.ndarray:
    """(n, k) from squared distances; a row on a centre is that one's alone."""
    logs = -np.log(np.maximum(distances, TINY)) / (m - 1)
    out = np.exp(logs - logs.max(1, keepdims=True))
    return out / out.sum(1, keepdims=True)


def fuzzy(X: np.ndarray, weights: np.ndarray, centres: np.ndarray, m: float, tolerance: float,
          iterations: int) -> Fuzzy:
    """Memberships and centres in turn, until a round gains less than the tolerance times the first
    objective.

    Args:
        X: (n, d), NaN where unseen. weights: (n,). centres: (k, d), the first.

    Cost: O(n d k) a round.
    """
    seen = ~np.isnan(X)
    filled, share = np.where(seen, X, 0.0), X.shape[1] / np.maximum(seen.sum(1), 1)
    history: list[float] = []
    for _ in range(iterations):
        distances = squares(X, centres)
        u = memberships(distances, m)
        history.append(float((weights[:, None] * u**m * distances).sum()))
        if len(history) > 1 and history[-2] - history[-1] <= tolerance * history[0]:
            return Fuzzy(centres, u, history, True)
        # a row counts by its share: the centres are then the minimum of the same objective
        powers = (weights * share)[:, None] * u**m
        total = powers.T @ seen
        centres = np.where(total > 0, powers.T @ filled / np.maximum(total, TINY), centres)
    return Fuzzy(centres, memberships(squares(X, centres), m), history, False)
