"""Diagnostics of chains of draws: R-hat, effective sample size (NumPyro's, of ranks), E-BFMI."""

import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from scipy.special import ndtri

# effective draws of a chain, below which means and tails are inaccurate (Vehtari et al. 2021)
MIN_EFFECTIVE_PER_CHAIN = 100


def _ranked(x: np.ndarray) -> np.ndarray:
    """Normal scores of the ranks over all chains, (chains, draws, ...)."""
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
