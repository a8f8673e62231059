"""How far a distribution is from the one it stands for: the shape of the tail of the ratios of
their densities, Pareto's k."""

import numpy as np

FEWEST = 5  # of a tail


def k_hat(logs: np.ndarray) -> float:
    """The shape k of a generalised Pareto distribution that is fitted to the largest ratios of two
    densities: below 0.5 their variance is finite, above 0.7 no number of draws makes up for what
    one of the two lacks in its tails.

    Args:
        logs: (S,), log p(u) − log q(u) at draws u ~ q, up to a constant.

    Returns:
        k; −∞ where all ratios are alike, ∞ where one is more than all others together can tell of.

    Source: Vehtari, Simpson, Gelman, Yao & Gabry (2024), Pareto smoothed importance sampling; Yao,
        Vehtari, Simpson & Gelman (2018), Yes, but did it work?
    """
    logs = np.asarray(logs, float)
    logs = np.sort(np.where(np.isnan(logs), -np.inf, logs) - np.nanmax(logs))
    count = int(np.ceil(min(len(logs) / 5, 3 * np.sqrt(len(logs)))))
    cut = max(logs[-count - 1], np.log(np.finfo(float).tiny))
    tail = np.exp(logs[logs > cut]) - np.exp(cut)
    if np.exp(logs[-1]) - np.exp(cut) < 1e-9:
        return -np.inf
    return np.inf if len(tail) < FEWEST else _shape(tail)


def _shape(tail: np.ndarray) -> float:
    """k of sorted excesses above 0, a little towards 0.5 where they are few (Zhang & Stephens
    2009)."""
    n = len(tail)
    count = 30 + int(np.sqrt(n))
    guess = 1 - np.sqrt(count / (np.arange(1, count + 1) - 0.5))
    guess = guess / (3 * tail[int(n / 4 + 0.5) - 1]) + 1 / tail[-1]
    k = np.log1p(-guess[:, None] * tail).mean(1)
    likelihood = n * (np.log(-guess / k) - k - 1)
    weight = 1 / np.exp(likelihood - likelihood[:, None]).sum(1)
    at = (guess * weight / weight.sum()).sum()
    found = np.log1p(-at * tail).mean()
    return float((n * found + 10 * 0.5) / (n + 10))
