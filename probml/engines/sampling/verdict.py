"""Convergence diagnostics of a run of chains: R-hat, effective sample size, divergences, E-BFMI,
tree depth."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from probml.engines.findings import Code, Finding
from probml.posteriors.diagnostics import LEAST, effective, energy_fraction, r_hat
from probml.posteriors.pareto import k_limit, k_of_variance

# R-hat up to which chains agree; with fewer draws, whose means are noisy, MAX_R_HAT_OF_FEW
MAX_R_HAT, FEW_DRAWS, MAX_R_HAT_OF_FEW = 1.01, 400, 1.05
MAX_DIVERGING = 1e-3  # share of draws
MIN_E_BFMI = 0.3  # below it a chain hardly moves between low and high densities
MAX_FULL_TREES = 0.01  # share of draws with the maximum tree depth


class Verdict(NamedTuple):
    """The diagnostics of a run of chains.

    Attributes:
        findings: warnings first. steep: smaller steps may help. short: more draws may help.
        r_hat: the largest; NaN of one chain.
    """

    findings: list[Finding]
    steep: bool
    short: bool
    r_hat: float


def diagnose_chains(values: Mapping[str, Any], z: np.ndarray, stats: Mapping[str, Any],
                    target_accept: float, max_tree_depth: int) -> Verdict:
    """Convergence diagnostics of a run of chains.

    Args:
        values: the draws of the fit, name → (chains, draws, ...). z: all draws of the sampler, in
            its coordinates, (chains, iterations, d). stats: of these, (chains, iterations).
    """
    found = []
    diverging = np.asarray(stats["diverging"])
    chains, count = len(diverging), int(diverging.sum())
    draws = np.shape(next(iter(values.values()), diverging))[1]
    still = (z == z[:, :1]).all(1).any(1) & (z.shape[1] >= 4)
    stuck = ", ".join(str(chain + 1) for chain in np.flatnonzero(still))
    if stuck:
        found.append(Finding.of(Code.STUCK_CHAIN, chains=stuck))
    many = count > MAX_DIVERGING * diverging.size
    if count:
        found.append(Finding.of(Code.DIVERGENCES if many else Code.FEW_DIVERGENCES, count=count,
                                draws=diverging.size, target=target_accept))
    low = energy_fraction(stats["energy"])
    least = float(np.min(low, initial=np.inf, where=~np.isnan(low)))
    if least < MIN_E_BFMI:
        found.append(Finding.of(Code.E_BFMI, value=least, limit=MIN_E_BFMI))
    full = float(np.mean(np.asarray(stats["steps"]) >= 2**max_tree_depth - 1))
    if full > MAX_FULL_TREES:
        found.append(Finding.of(Code.TREE_DEPTH, share=full, depth=max_tree_depth))
    every = {name: np.asarray(value, float) for name, value in values.items()} | {
        "log density": np.asarray(stats["log_density"], float)
    }
    short, apart = bool(stuck), np.nan
    if chains == 1:
        found.append(Finding.of(Code.ONE_CHAIN))
    else:
        worst = {name: np.max(value, initial=1.0, where=~np.isnan(value))
                 for name, draw in every.items() if (value := r_hat(draw)).size}
        name = max(worst, key=lambda n: worst[n])
        limit, apart = MAX_R_HAT if draws >= FEW_DRAWS else MAX_R_HAT_OF_FEW, float(worst[name])
        if apart > limit:
            short, means = True, _means(every[name])
            found.append(Finding.of(Code.R_HAT, name, value=apart, limit=limit,
                                    least=means.min(), greatest=means.max()))
    fewest = {n: np.fmin(effective(v), effective(v, tail=True)) for n, v in every.items()}
    counts = {n: np.min(value, initial=np.inf, where=~np.isnan(value))
              for n, value in fewest.items()}
    name = min(counts, key=lambda n: counts[n])
    if counts[name] < LEAST * chains and draws >= 2 * LEAST:
        short = True
        found.append(Finding.of(Code.ESS, name, effective=counts[name], least=LEAST))
    if long := _long_tail({name: every[name] for name in values}):
        found.append(Finding.of(Code.DRAWS_TAIL, long[0], k=long[1]))
    found.sort(key=lambda finding: not finding.warns)
    return Verdict(found, many or bool(stuck) or least < MIN_E_BFMI, short, apart)


def _long_tail(values: Mapping[str, np.ndarray]) -> tuple[str, float] | None:
    """The parameter with the heaviest tail, and Pareto's k of its squared deviations, if draws do
    not determine its standard deviation; None: they determine all."""
    worst = {}
    for name, value in values.items():
        flat = value.reshape(-1, int(np.prod(value.shape[2:])))
        worst[name] = float(k_of_variance(flat).max(initial=-np.inf))
    name = max(worst, key=lambda name: worst[name], default="")
    return (name, worst[name]) if name and worst[name] > k_limit(len(flat)) else None


def _means(x: np.ndarray) -> np.ndarray:
    """The mean of each chain, for the element with the largest R-hat."""
    worst = int(np.argmax(np.nan_to_num(r_hat(x), nan=0.0)))
    return x.reshape(*x.shape[:2], -1)[..., worst].mean(1)
