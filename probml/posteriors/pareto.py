"""How far a distribution is from the one it stands for: the shape of the tail of the ratios of
their densities, Pareto's k."""

import numpy as np

FEWEST = 5  # of a tail
BAD = 0.7  # k above which no number of draws is enough


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
    logs, count, cut = _cut(logs)
    tail = np.exp(logs[logs > cut]) - np.exp(cut)
    if np.exp(logs[-1]) - np.exp(cut) < 1e-9:
        return -np.inf
    return np.inf if len(tail) < FEWEST else _shape(tail)[0]


def k_of_variance(values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Pareto's k of (x − mean)², of which the variance is the mean, for each of p numbers, (p,):
    above its limit draws do not determine their standard deviation. −∞ of a constant.

    Args:
        values: (S, p) draws. weights: (S,) of sum 1; None: all alike.

    Source: Vehtari et al. (2024), section 3.
    """
    weights = np.full(len(values), 1 / len(values)) if weights is None else weights
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(weights)[:, None] + 2 * np.log(np.abs(values - weights @ values))
    return np.array([k_hat(each) if np.isfinite(each).any() else -np.inf for each in logs.T])


def k_limit(count: int) -> float:
    """The k up to which so many draws are enough (Vehtari et al. 2024, equation 11)."""
    return min(BAD, 1.0 - 1.0 / np.log10(max(count, 2)))


def smoothed(logs: np.ndarray) -> np.ndarray:
    """Weights (S,) of sum 1 of draws, the largest of them as quantiles of the Pareto distribution
    that is fitted to them. Arguments and source as of `k_hat`."""
    logs = np.asarray(logs, float)
    logs = np.where(np.isnan(logs), -np.inf, logs) - np.nanmax(logs)
    weights, (_, _, cut) = np.exp(logs), _cut(logs)
    at = np.flatnonzero(logs > cut)
    tail = np.sort(weights[at]) - np.exp(cut)
    if len(tail) >= FEWEST and tail[-1] > 1e-9:
        k, scale = _shape(tail)
        share = (np.arange(len(tail)) + 0.5) / len(tail)
        beyond = (scale * np.expm1(-k * np.log1p(-share)) / k if abs(k) > 1e-9
                  else -scale * np.log1p(-share))
        weights[at[np.argsort(weights[at])]] = np.minimum(np.exp(cut) + beyond, 1.0)
    return weights / weights.sum()


def _cut(logs: np.ndarray) -> tuple[np.ndarray, int, float]:
    """Sorted logarithms, the largest 0; how many are the tail, and above which."""
    logs = np.asarray(logs, float)
    logs = np.sort(np.where(np.isnan(logs), -np.inf, logs) - np.nanmax(logs))
    count = int(np.ceil(min(len(logs) / 5, 3 * np.sqrt(len(logs)))))
    return logs, count, max(logs[-count - 1], np.log(np.finfo(float).tiny))


def _shape(tail: np.ndarray) -> tuple[float, float]:
    """k of sorted excesses above 0, a little towards 0.5 where they are few, and their scale (Zhang
    & Stephens 2009)."""
    n = len(tail)
    count = 30 + int(np.sqrt(n))
    guess = 1 - np.sqrt(count / (np.arange(1, count + 1) - 0.5))
    guess = guess / (3 * tail[int(n / 4 + 0.5) - 1]) + 1 / tail[-1]
    k = np.log1p(-guess[:, None] * tail).mean(1)
    likelihood = n * (np.log(-guess / k) - k - 1)
    weight = 1 / np.exp(likelihood - likelihood[:, None]).sum(1)
    at = (guess * weight / weight.sum()).sum()
    found = np.log1p(-at * tail).mean()
    return float((n * found + 10 * 0.5) / (n + 10)), float(-found / at)
