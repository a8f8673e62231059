"""Whether chains agree and how many independent draws they are worth: NumPyro's measures on
ranks."""

from collections.abc import Mapping
from typing import Any

import numpy as np

# effective draws a chain, below which means and tails are not to be trusted (Vehtari et al. 2021)
LEAST = 100
# R-hat up to which chains agree; of fewer draws, by the noise of their means, up to LOOSELY
AGREED, FEW, LOOSELY = 1.01, 400, 1.05


def _ranked(x: np.ndarray) -> np.ndarray:
    """Normal scores of the ranks over all chains, (chains, draws, ...)."""
    from scipy.special import ndtri  # late: half of what importing this module would cost

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


def complaints(values: Mapping[str, Any], stats: Mapping[str, Any],
               settings: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What a user should know of a run: what is wrong with it, in words that say what to do, and
    what is missing."""
    chains, draws = np.shape(stats["diverging"])
    wrong, missing = [], []
    count = int(np.sum(stats["diverging"]))
    if count:
        wrong.append(
            f"{count} of {chains * draws} draws diverged: the sampler left the density there, so "
            f"that regions may be missing. Raise "
            f"target_accept (now {settings['target_accept']:g}); if they stay, give scales and "
            f"heavy tails priors that hold them"
        )
    full = float(np.mean(np.asarray(stats["steps"]) >= 2 ** settings["max_tree_depth"] - 1))
    if full > 0.01:
        wrong.append(
            f"{full:.0%} of the draws took all 2^{settings['max_tree_depth']} − 1 steps they may: "
            f"the density is long and narrow. "
            "Centre and scale the inputs, drop one of two parameters that stand for each other, or "
            "raise max_tree_depth"
        )
    every = {name: np.asarray(value, float) for name, value in values.items()} | {
        "log density": np.asarray(stats["log_density"], float)
    }
    if chains == 1:
        missing.append(
            "R-hat is missing: it compares chains and there is one; use chains=2 or more"
        )
    else:
        worst = {name: np.max(found, initial=1.0, where=~np.isnan(found))
                 for name, value in every.items() if (found := r_hat(value)).size}
        name = max(worst, key=lambda n: worst[n])
        limit = AGREED if draws >= FEW else LOOSELY
        if worst[name] > limit:
            wrong.append(
                f"the chains do not agree: R-hat of '{name}' is {worst[name]:.3f}, more than "
                f"{limit}. Sample longer (warmup=, draws=); "
                "if that does not help, the posterior has several modes or directions that the "
                "data do not tell"
            )
    least = {n: np.fmin(effective(v), effective(v, tail=True)) for n, v in every.items()}
    counts = {n: np.min(found, initial=np.inf, where=~np.isnan(found))
              for n, found in least.items()}
    name = min(counts, key=lambda n: counts[n])
    if counts[name] < LEAST * chains and draws >= 2 * LEAST:
        wrong.append(
            f"'{name}' has {counts[name]:.0f} effective draws, fewer than {LEAST} a chain: its "
            f"mean and quantiles are rough. Raise draws="
        )
    return wrong, missing
