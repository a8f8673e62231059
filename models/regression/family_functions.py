"""Mean, variance function, density and deviance of y by family, from μ, the inverse of the link at
the linear predictor: what residuals, likelihoods and dispersions need.

Sources: McCullagh & Nelder (1989), chapter 2; Lambert (1992); Ferrari & Cribari-Neto (2004).
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import xlogy

from probml import ModelError
from probml.families.log_linear import log_negative_binomial
from probml.models.regression.generalized_linear import LINKS


def inverse_link(link: str, eta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """μ and dμ/dη at linear predictors, in double precision."""
    with jax.enable_x64(True):
        eta = jnp.asarray(eta, float)
        mean, slope = jax.jvp(LINKS[link], (eta,), (jnp.ones_like(eta),))
    return np.asarray(mean, float), np.asarray(slope, float)


def best_level(link: str, level: ArrayLike, offset: np.ndarray,
               deviance: Callable[[np.ndarray], float]) -> np.ndarray:
    """μ of every row at the intercept of the least deviance, given an offset, (n,).

    Args:
        level: about that of an offset of 0.
    """
    start = float(level) - float(np.mean(offset))
    optimum = minimize_scalar(lambda b: deviance(inverse_link(link, b + offset)[0]),
                              bracket=(start, start + 0.1 * max(abs(start), 1.0)))
    return inverse_link(link, optimum.x + offset)[0]


def mean_of_y(family: str, mu: np.ndarray, extra: Mapping[str, float]) -> np.ndarray:
    """E[y], of the binomial the rate.

    Args:
        mu: (n,). extra: the parameters of the family that are the same in every row.
    """
    if family == "hurdle_poisson":
        return (1 - extra["zero_probability"]) * mu / -np.expm1(-mu)
    return mu * (1 - extra["zero_probability"]) if family.startswith("zero_inflated") else mu


def variance_function(family: str, mu: np.ndarray, trials: ArrayLike | None,
                      extra: Mapping[str, float]) -> np.ndarray:
    """The variance of y, up to the dispersion: 1 of the normal, μ² of gamma, of student_t the
    square of its scale; of the binomial that of the rate. Arguments as of mean_of_y."""
    zero, conc = extra.get("zero_probability", 0.0), extra.get("concentration", np.inf)
    variances = {
        "normal": lambda: np.ones_like(mu), "gamma": lambda: mu**2, "poisson": lambda: mu,
        "negative binomial": lambda: mu + mu**2 / conc,
        "student_t": lambda: np.full_like(mu, extra["sigma"] ** 2),
        "beta": lambda: mu * (1 - mu) / (1 + conc),
        "zero_inflated_poisson": lambda: (1 - zero) * (mu + zero * mu**2),
        "zero_inflated_negative_binomial": lambda: (1 - zero) * mu * (1 + mu * (zero + 1 / conc)),
        "hurdle_poisson": lambda: ((1 - zero) * (mu + mu**2) / -np.expm1(-mu)
                                   - mean_of_y(family, mu, extra) ** 2),
    }  # fmt: skip
    return variances.get(family, lambda: np.maximum(mu * (1 - mu), 1e-300) / trials)()


def log_density(family: str, y: np.ndarray, mu: np.ndarray, trials: ArrayLike | None,
                extra: Mapping[str, float]) -> np.ndarray:
    """log p(y) of every row, (n,), in double precision; arguments as of mean_of_y.

    Args:
        y: of the binomial the rate.
    """
    zero, conc = extra.get("zero_probability", 0.0), extra.get("concentration")
    with np.errstate(divide="ignore", invalid="ignore"):
        if family in ("bernoulli", "binomial"):
            return stats.binom.logpmf(np.round(y * trials), trials, mu)
        if family == "normal":
            noise = extra["sigma"]
            return stats.norm.logpdf(y, mu, noise) if noise > 0 else np.full_like(mu, np.inf)
        if family == "student_t":
            return stats.t.logpdf(y, extra["df"], mu, extra["sigma"])
        if family == "gamma":
            return stats.gamma.logpdf(y, conc, scale=mu / conc)
        if family == "beta":
            return stats.beta.logpdf(y, mu * conc, (1 - mu) * conc)
        count = stats.poisson.logpmf(y, mu)
        if conc:  # of what is no count −inf, as of the Poisson
            with jax.enable_x64(True):
                log_probs = log_negative_binomial(np.asarray(y, float), conc, np.asarray(mu, float))
            count = np.where(np.isfinite(count), log_probs, count)
        if family == "hurdle_poisson":
            positive = np.log1p(-zero) + count - np.log(-np.expm1(-mu))
            return np.where(y == 0, np.log(zero), positive)
        log_zero = np.where(y == 0, np.log(zero), -np.inf)
        return np.logaddexp(log_zero, np.log1p(-zero) + count)


def unit_deviance(family: str, y: np.ndarray, mu: np.ndarray, trials: ArrayLike | None,
                  extra: Mapping[str, float]) -> np.ndarray:
    """2 (log p(y | μ = y) − log p(y | μ)) of every row, (n,), times the dispersion; arguments as of
    mean_of_y.

    Args:
        y: of the binomial the rate.

    Raises:
        ModelError: no μ of the family gives its greatest density at every y.
    """
    conc, mu = extra.get("concentration"), np.asarray(mu, float)
    if family in ("poisson", "gamma", "negative binomial"):
        mu = np.maximum(mu, 1e-300)
    if family == "normal":
        return (y - mu) ** 2
    if family == "poisson":
        return 2 * (xlogy(y, y) - xlogy(y, mu) - y + mu)
    if family == "gamma":
        return 2 * (np.log(mu / y) + y / mu - 1)
    if family == "negative binomial":
        return 2 * (xlogy(y, y) - xlogy(y, mu) - (y + conc) * np.log1p((y - mu) / (mu + conc)))
    if family == "student_t":
        return (extra["df"] + 1) * np.log1p((y - mu) ** 2 / (extra["sigma"] ** 2 * extra["df"]))
    if family == "beta":
        saturated, fitted = (log_density(family, y, mean, trials, extra) for mean in (y, mu))
        return 2 * np.maximum(saturated - fitted, 0.0)
    if family in ("bernoulli", "binomial"):
        return 2 * (xlogy(y, y) - xlogy(y, mu)
                    + xlogy(1 - y, 1 - y) - xlogy(1 - y, 1 - mu)) * trials
    raise ModelError(f"residuals: the family {family!r} has no deviance residuals. Use "
                     "residuals(X, y, kind='pearson')")
