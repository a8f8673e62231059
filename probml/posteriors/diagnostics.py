"""Diagnostics of draws: of chains R-hat, effective sample size (NumPyro's, of ranks) and E-BFMI; of
ratios of two densities Pareto's k, whether one represents the other."""

import numpy as np

# effective draws of a chain, below which means and tails are inaccurate (Vehtari et al. 2021)
MIN_EFFECTIVE_PER_CHAIN = 100


def _ranked(x: np.ndarray) -> np.ndarray:
    """Normal scores of the ranks over all chains, (chains, draws, ...)."""
    from scipy.special import ndtri  # imported here since SciPy is slow to import

    flat = x.reshape(x.shape[0] * x.shape[1], -1)
    ranks = np.empty(flat.shape)
    for j in range(flat.shape[1]):
        _, at, counts = np.unique(flat[:, j], return_inverse=True, return_counts=True)
        ranks[:, j] = (np.cumsum(counts) - (counts - 1) / 2)[at]  # of equal values their mean
    return ndtri((ranks - 0.375) / (len(flat) + 0.25)).reshape(x.shape)


def r_hat(x: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat, of the values or of their distances from the median, whichever
    is larger; 1 where chains agree.

    Args:
        x: (chains, draws, ...). One chain, fewer than 4 draws or a constant give NaN.

    Source: Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), eqs 4 and 14; Gelman & Rubin's by
        NumPyro.
    """
    from numpyro.diagnostics import split_gelman_rubin

    if x.shape[0] < 2 or x.shape[1] < 4:
        return np.full(x.shape[2:], np.nan)
    folded = np.abs(x - np.median(x, (0, 1)))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = [np.asarray(split_gelman_rubin(_ranked(v))) for v in (x, folded)]
    return np.where(x.std((0, 1)) > 0, np.fmax(*found), np.nan)


def effective(x: np.ndarray, tail: bool = False) -> np.ndarray:
    """Effective number of draws for means (bulk), or for the 5% and 95% quantiles (tail), whichever
    is smaller.

    Args:
        x: (chains, draws, ...). Fewer than 4 draws or a constant give NaN.

    Source: Vehtari et al. (2021), section 3; Geyer's (1992) sums by NumPyro.
    """
    from numpyro.diagnostics import effective_sample_size

    if x.shape[1] < 8:
        return np.full(x.shape[2:], np.nan)
    half = x.shape[1] // 2
    split = np.concatenate([x[:, :half], x[:, -half:]])
    with np.errstate(invalid="ignore", divide="ignore"):
        if not tail:
            return np.asarray(effective_sample_size(_ranked(split)))
        beyond = [(split <= np.quantile(x, q, (0, 1))).astype(float) for q in (0.05, 0.95)]
        return np.fmin(*(np.asarray(effective_sample_size(v)) for v in beyond))


def energy_fraction(energy: np.ndarray) -> np.ndarray:
    """E-BFMI of each chain, (chains, draws) → (chains,): the variance of the change of the energy
    from draw to draw over that of the energy; NaN of fewer than MIN_EFFECTIVE_PER_CHAIN draws
    or a constant.

    Source: Betancourt (2016), Diagnosing suboptimal cotangent disintegrations in HMC.
    """
    energy = np.asarray(energy, float)
    if energy.shape[1] < MIN_EFFECTIVE_PER_CHAIN:
        return np.full(len(energy), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (np.diff(energy, axis=1) ** 2).mean(1) / energy.var(1)


def log_mass(z: np.ndarray, log_density: np.ndarray) -> np.ndarray:
    """The log posterior mass about each chain, (chains,), up to a constant: that of a normal
    distribution with the mean log density and the covariance of its draws.

    Args:
        z: (chains, draws, d) in the coordinates of the density. log_density: (chains, draws).

    With fewer than 4 d draws only variances are used.
    """
    count, d = z.shape[1:]
    out = np.asarray(log_density, float).mean(1)
    for i, own in enumerate(np.asarray(z, float)):
        own = own - own.mean(0)
        if count >= 4 * d:
            values = np.linalg.svd(own, compute_uv=False)
        else:
            values = np.sqrt((own**2).sum(0))
        out[i] += np.log(np.maximum(values / np.sqrt(count), np.finfo(float).tiny)).sum()
    return out


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
    return np.array([np.inf if np.isnan(each).any() else k_hat(each) if np.isfinite(each).any()
                     else -np.inf for each in logs.T])


def k_limit(count: int) -> float:
    """The k up to which so many draws are enough (Vehtari et al. 2024, equation 11)."""
    return min(BAD, 1.0 - 1.0 / np.log10(max(count, 2)))


def smoothed(logs: np.ndarray) -> np.ndarray:
    """Weights (S,) of sum 1, of which the largest are replaced by quantiles of the Pareto
    distribution that is fitted to them. Arguments and source as of `k_hat`."""
    logs = np.asarray(logs, float)
    logs = np.where(np.isnan(logs), -np.inf, logs) - np.nanmax(logs)
    weights, (_, _, cut) = np.exp(logs), _cut(logs)
    at = np.flatnonzero(logs > cut)
    tail = np.sort(weights[at]) - np.exp(cut)
    if len(tail) >= MIN_TAIL and tail[-1] > 1e-9:
        k, scale = _shape(tail)
        share = (np.arange(len(tail)) + 0.5) / len(tail)
        beyond = (scale * np.expm1(-k * np.log1p(-share)) / k if abs(k) > 1e-9
                  else -scale * np.log1p(-share))
        weights[at[np.argsort(weights[at])]] = np.minimum(np.exp(cut) + beyond, 1.0)
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
    guess = 1 - np.sqrt(count / (np.arange(1, count + 1) - 0.5))
    guess = guess / (3 * tail[int(n / 4 + 0.5) - 1]) + 1 / tail[-1]
    k = np.log1p(-guess[:, None] * tail).mean(1)
    likelihood = n * (np.log(-guess / k) - k - 1)
    weight = 1 / np.exp(likelihood - likelihood[:, None]).sum(1)
    at = (guess * weight / weight.sum()).sum()
    found = np.log1p(-at * tail).mean()
    return float((n * found + 10 * 0.5) / (n + 10)), float(-found / at)
