"""Pareto's k of ratios of two densities: whether draws of one represent the other."""

import numpy as np

MIN_TAIL = 5  # draws
BAD = 0.7  # k above which no number of draws is enough


def k_hat(logs: np.ndarray) -> float:
    """The shape k of a generalised Pareto distribution that is fitted to the largest ratios of two
    densities: below 0.5 their variance is finite, above 0.7 no number of draws is enough.

    Args:
        logs: (S,), log p(u) − log q(u) at draws u ~ q, up to a constant.

    Returns:
        k; −∞ if all ratios are equal, ∞ if the tail has too few draws for a fit.

    Source: Vehtari, Simpson, Gelman, Yao & Gabry (2024), Pareto smoothed importance sampling; Yao,
        Vehtari, Simpson & Gelman (2018), Yes, but did it work?
    """
    logs, count, cut = _cut(logs)
    tail = np.exp(logs[logs > cut]) - np.exp(cut)
    if np.exp(logs[-1]) - np.exp(cut) < 1e-9:
        return -np.inf
    return np.inf if len(tail) < MIN_TAIL else _shape(tail)[0]


def k_of_variance(values: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Pareto's k of squared deviations (x − mean)², for each of p variables, (p,): above its limit
    draws do not determine their standard deviation. −∞ for a constant, ∞ where a draw of positive
    weight is not finite.

    Args:
        values: (S, p) draws. weights: (S,) of sum 1; None: equal.

    Source: Vehtari et al. (2024), section 3.
    """
    weights = np.full(len(values), 1 / len(values)) if weights is None else weights
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(weights)[:, None] + 2 * np.log(np.abs(values - weights @ values))
    return np.array([np.inf if np.isnan(col).any() else k_hat(col) if np.isfinite(col).any()
                     else -np.inf for col in logs.T])


def k_limit(count: int) -> float:
    """The k up to which so many draws are enough (Vehtari et al. 2024, equation 11)."""
    return min(BAD, 1.0 - 1.0 / np.log10(max(count, 2)))


def smoothed(logs: np.ndarray) -> np.ndarray:
    """Weights (S,) of sum 1, of which the largest are replaced by quantiles of the Pareto
    distribution that is fitted to them. Arguments and source as of `k_hat`."""
    logs = np.asarray(logs, float)
    logs = np.where(np.isnan(logs), -np.inf, logs) - np.nanmax(logs)
    weights, (_, _, cut) = np.exp(logs), _cut(logs)
    tail_index = np.flatnonzero(logs > cut)
    tail = np.sort(weights[tail_index]) - np.exp(cut)
    if len(tail) >= MIN_TAIL and tail[-1] > 1e-9:
        k, scale = _shape(tail)
        share = (np.arange(len(tail)) + 0.5) / len(tail)
        excess = (scale * np.expm1(-k * np.log1p(-share)) / k if abs(k) > 1e-9
                  else -scale * np.log1p(-share))
        weights[tail_index[np.argsort(weights[tail_index])]] = np.minimum(np.exp(cut) + excess, 1.0)
    return weights / weights.sum()


def _cut(logs: np.ndarray) -> tuple[np.ndarray, int, float]:
    """Sorted logarithms, the largest 0; the number of the tail, and the value above which it is."""
    logs = np.asarray(logs, float)
    logs = np.sort(np.where(np.isnan(logs), -np.inf, logs) - np.nanmax(logs))
    count = int(np.ceil(min(len(logs) / 5, 3 * np.sqrt(len(logs)))))
    return logs, count, max(logs[-count - 1], np.log(np.finfo(float).tiny))


def _shape(tail: np.ndarray) -> tuple[float, float]:
    """k of sorted positive excesses, shrunk towards 0.5 if they are few, and their scale (Zhang &
    Stephens 2009)."""
    n = len(tail)
    count = 30 + int(np.sqrt(n))
    theta = 1 - np.sqrt(count / (np.arange(1, count + 1) - 0.5))
    theta = theta / (3 * tail[int(n / 4 + 0.5) - 1]) + 1 / tail[-1]
    k = np.log1p(-theta[:, None] * tail).mean(1)
    likelihood = n * (np.log(-theta / k) - k - 1)
    with np.errstate(over="ignore"):  # a weight of 0
        weight = 1 / np.exp(likelihood - likelihood[:, None]).sum(1)
    theta_hat = (theta * weight / weight.sum()).sum()
    k_raw = np.log1p(-theta_hat * tail).mean()
    return float((n * k_raw + 10 * 0.5) / (n + 10)), float(-k_raw / theta_hat)
