"""Diagnostics of chains of draws: R-hat, effective sample size (NumPyro's, of ranks), E-BFMI."""

import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from scipy.special import chdtri, ndtri

# effective draws of a chain, below which means and tails are inaccurate (Vehtari et al. 2021)
MIN_EFFECTIVE_PER_CHAIN = 100
# R-hat up to which chains agree, and beyond which they do not; the former for 500 draws a chain or
# more, with fewer nearer to the latter
MIN_R_HAT, HIGH_R_HAT, DRAWS_OF_MIN = 1.01, 1.1, 500
CHANCE = 0.01  # that chains of one distribution exceed the limits of R-hat between these


def _ranked(x: np.ndarray) -> np.ndarray:
    """Normal scores of the ranks over all chains, (chains, draws, ...)."""
    flat = x.reshape(x.shape[0] * x.shape[1], -1)
    ranks = np.empty(flat.shape)
    for j in range(flat.shape[1]):
        _, inverse, counts = np.unique(flat[:, j], return_inverse=True, return_counts=True)
        ranks[:, j] = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # of equal values their mean
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
    with np.errstate(invalid="ignore", divide="ignore"):
        values = [np.asarray(split_gelman_rubin(scores)) for scores in _scores(x)]
    return np.where(x.std((0, 1)) > 0, np.fmax(*values), np.nan)


def r_hat_limits(x: np.ndarray, r_hats: np.ndarray) -> np.ndarray:
    """R-hat of each entry that chains of one distribution exceed by chance alone, with the
    probability CHANCE for any of the entries, given how many effective draws half a chain has.

    Args:
        x: (chains, draws, entries). r_hats: their `r_hat`, (entries,).

    Source: between halves the variance of means, as a share of that within, is χ² / degrees of
        freedom / effective draws; Gelman & Rubin (1992), eq. 4.
    """
    min_limit = 1 + (MIN_R_HAT - 1) * max(DRAWS_OF_MIN / x.shape[1], 1.0)
    limits, indices = np.full(r_hats.shape, min_limit), np.flatnonzero(r_hats > min_limit)
    if not len(indices):
        return limits
    degrees, half = 2 * len(x) - 1, x.shape[1] // 2
    effective_draws = []
    for scores in _scores(x[..., indices]):
        halves = np.stack([scores[:, :half], scores[:, -half:]])
        sizes = np.asarray(effective_sample_size(np.moveaxis(halves, 2, 0)[None]))
        effective_draws.append(sizes.mean((0, 1)))
    chance = chdtri(degrees, CHANCE / r_hats.size) / degrees
    with np.errstate(invalid="ignore"):  # of few draws the effective number may be negative
        limits[indices] = np.clip(np.sqrt(1 + (chance - 1) / np.fmin(*effective_draws)),
                                  min_limit, max(min_limit, HIGH_R_HAT))
    return limits


def _scores(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normal scores of the ranks of values, and of their distances from the median."""
    return _ranked(x), _ranked(np.abs(x - np.median(x, (0, 1))))


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
        indicators = [(split <= np.quantile(x, q, (0, 1))).astype(float) for q in (0.05, 0.95)]
        return np.fmin(*(np.asarray(effective_sample_size(v)) for v in indicators))


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
    masses = np.asarray(log_density, float).mean(1)
    for i, draws in enumerate(np.asarray(z, float)):
        draws = draws - draws.mean(0)
        if count >= 4 * d:
            values = np.linalg.svd(draws, compute_uv=False)
        else:
            values = np.sqrt((draws**2).sum(0))
        masses[i] += np.log(np.maximum(values / np.sqrt(count), np.finfo(float).tiny)).sum()
    return masses
