"""Log densities linear in their natural parameters, η·T(x) + constant + base(x): one matrix product a chunk; exact log Γ ratios."""

import jax.numpy as jnp
from jax.scipy.special import gammaln

from probml.families.categorical import FLOOR

STIRLING = 32.0  # from here on four terms of Stirling's series are exact in float64


def floats(arguments):
    """Arguments in JAX's float type: a user may write Poisson(2)."""
    return {name: value.astype(jnp.result_type(float)) for name, value in arguments.items()}


def log_density(natural, x, seen, inside, statistics, harmless=1.0):
    """Σ over seen cells of η·T(x) + constant + base(x).

    Args:
        natural: "eta", (p, t c), one (p, c) beside the other for each of the t statistics, and "constant", (p, c). −∞ is
            allowed where the statistic is never negative: a positive one is then impossible.
        x: (b, c); seen: (b, c) bool or None; inside: (b, c) bool, whether x lies in the support.
        statistics: x → ([T(x), ...], base(x)), each (b, c); asked only inside the support.
        harmless: a value inside the support.

    Returns:
        (b, p); −∞ where a seen cell is impossible, never NaN, with finite gradients.
    """
    eta, constant = (jnp.where(jnp.isneginf(natural[leaf]), FLOOR, natural[leaf]) for leaf in ("eta", "constant"))
    real = inside if seen is None else inside & seen
    columns, base = statistics(jnp.where(real, x, harmless).astype(eta.dtype))
    real = real.astype(eta.dtype)
    columns = jnp.concatenate([column * real for column in columns], -1)
    value = columns @ eta.T + (constant.sum(-1) if seen is None else real @ constant.T)
    possible = (inside if seen is None else inside | ~seen).all(-1, keepdims=True)
    return jnp.where((value > FLOOR / 2) & possible, value, -jnp.inf) + (base * real).sum(-1, keepdims=True)


def _stirling(z):
    """log Γ(z) − (z − ½) log z + z − ½ log 2π."""
    square = 1 / z**2
    return (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / z


def rising(a, x):
    """log Γ(a + x) − log Γ(a) for a > 0, x ≥ 0, without the cancellation of two large logarithms."""
    large = jnp.maximum(a, STIRLING)
    series = (large + x - 0.5) * jnp.log1p(x / large) + x * (jnp.log(large) - 1) + _stirling(large + x) - _stirling(large)
    return jnp.where(a > STIRLING, series, gammaln(a + x) - gammaln(a))


def masked(log, seen):
    """Log densities of cells, 0 where unseen."""
    return log if seen is None else jnp.where(seen, log, 0.0)
