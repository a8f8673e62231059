"""Log densities linear in their natural parameters, η·T(x) + constant + base(x): one matrix product
a chunk; exact log Γ ratios."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, gammaln

from probml.numerics.logs import FLOOR, floored, unfloored

SHIFT = 8
SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
FACTORIALS = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, 256)))])  # log 0!, log 1!, ...


def floats(arguments):
    """Arguments in JAX's float type: a user may write Poisson(2)."""
    return {name: value.astype(jnp.result_type(float)) for name, value in arguments.items()}


@jax.custom_jvp
def log_beta(a, b):
    """log B(a, b) = log Γ(min) − log (Γ(max + min) / Γ(max)), to 1e-14; its derivatives are those
    of a and b, also where they are equal.

    (JAX's `betaln` is off by 3e-7 from arguments of 8 on, and has second derivatives of 0 where the
    two are equal.)
    """
    low, high = jnp.minimum(a, b), jnp.maximum(a, b)
    return gammaln(low) - rising(high, low)


@log_beta.defjvp
def _log_beta_slope(at, along):
    (a, b), (da, db) = at, along
    both = digamma(a + b)
    return log_beta(a, b), (digamma(a) - both) * da + (digamma(b) - both) * db


def log_density(natural, x, seen, inside, statistics, harmless=1.0):
    """Σ over seen cells of η·T(x) + constant + base(x).

    Args:
        natural: "eta", (p, t c), one (p, c) beside the other for each of the t statistics, and
            "constant", (p, c). −∞ is allowed where the statistic is never negative: a positive one
            is then impossible. Where one is +∞ an argument has overflowed (a rate of exp(1000)),
            and all is impossible.
        x: (b, c); seen: (b, c) bool or None; inside: (b, c) bool, whether x lies in the support.
        statistics: x → ([T(x), ...], base(x)), each (b, c); asked only inside the support.
        harmless: a value inside the support.

    Returns:
        (b, p); −∞ where a seen cell is impossible, never NaN, with finite gradients.
    """
    eta, constant = (floored(natural[leaf]) for leaf in ("eta", "constant"))
    cells, statistic = jnp.isposinf(constant), constant.shape[-1]
    for first in range(0, eta.shape[-1], statistic):
        cells |= jnp.isposinf(eta[..., first : first + statistic])
    eta, constant = jnp.where(jnp.isposinf(eta), 0.0, eta), jnp.where(cells, FLOOR, constant)
    real = inside if seen is None else inside & seen
    columns, base = statistics(jnp.where(real, x, harmless).astype(eta.dtype))
    real = real.astype(eta.dtype)
    columns = jnp.concatenate([column * real for column in columns], -1)
    value = columns @ eta.T + (constant.sum(-1) if seen is None else real @ constant.T)
    possible = (inside if seen is None else inside | ~seen).all(-1, keepdims=True)
    return jnp.where(possible, unfloored(value), -jnp.inf) + (base * real).sum(-1, keepdims=True)


def _stirling(z):
    """log Γ(z) − (z − ½) log z + z − ½ log 2π for z ≥ 8, to 1e-15 (Abramowitz & Stegun 1964,
    6.1.41)."""
    square, total = 1 / z**2, 0.0
    for term in reversed(SERIES):
        total = term + square * total
    return total / z


def log_factorial(x):
    """log x! of whole numbers: looked up below 256, by Stirling's series from there on; six times
    as fast as log Γ."""
    table = jnp.asarray(FACTORIALS, x.dtype)
    z = jnp.maximum(x, len(FACTORIALS)) + 1
    series = (z - 0.5) * jnp.log(z) - z + 0.5 * math.log(2 * math.pi) + _stirling(z)
    return jnp.where(x < len(FACTORIALS), table[jnp.clip(x, 0, len(FACTORIALS) - 1).astype(int)],
                     series)


def rising(a, x):
    """log Γ(a + x) − log Γ(a) for a > 0, x ≥ 0, without the cancellation of two large logarithms.

    Stirling's series at a, or at a + 8 where a is small: Γ(a + x)/Γ(a) = Γ(a + 8 + x)/Γ(a + 8) · Π
    (a + i)/(a + x + i).
    """
    small = a < SHIFT
    z = jnp.where(small, a + SHIFT, a)
    near = jnp.where(small, a, 1.0)
    ratio = [1 + x / (near + i) for i in range(SHIFT)]
    shift = jnp.log(math.prod(ratio[: SHIFT // 2])) + jnp.log(math.prod(ratio[SHIFT // 2 :]))
    series = (z + x - 0.5) * jnp.log1p(x / z) + x * (jnp.log(z) - 1) + _stirling(z + x) - _stirling(
        z
    )
    return series - jnp.where(small, shift, 0.0)


@jax.custom_jvp
def log_gamma(a, y):
    """a log y − y − log Γ(a) for a > 0, y > 0: y times the density of a Gamma(a, 1) at y.

    From a = 8 on by r = y/a, as a (log r − r + 1) + ½ log(a/2π) less Stirling's series, no term of
    which is larger than the sum: as they stand, the terms of a = 10⁶ leave float32 errors of a nat.
    """
    many, few = jnp.maximum(a, SHIFT), jnp.minimum(a, SHIFT)
    r = y / many
    log = jnp.log(r)
    far = many * _log_less(r, log) + 0.5 * jnp.log(many / (2 * math.pi)) - _stirling(many)
    return jnp.where(a >= SHIFT, far, few * (log + jnp.log(many)) - y - gammaln(few))


@log_gamma.defjvp
def _log_gamma_slope(at, along):
    (a, y), (da, dy) = at, along
    return log_gamma(a, y), (jnp.log(y / a) + log_less_digamma(a)) * da + (a - y) / y * dy


def log_dirichlet(a, x):
    """log of the density of a Dirichlet(a) times Π xᵢ, (..., k) → (...): of x with a sum of 1."""
    total = a.sum(-1)
    return log_gamma(a, total[..., None] * x).sum(-1) - log_gamma(total, total)


def _log_less(r, log):
    """log r − (r − 1), near 1 without the cancellation of the two: 2 artanh s, s = w / (2 + w),
    w = r − 1."""
    near = jnp.abs(r - 1) < 0.2
    w = jnp.where(near, r - 1, 0.0)
    s, series = w / (2 + w), 0.0
    for power in reversed(range(3, 21 if r.dtype == jnp.float64 else 13, 2)):
        series = 1 / power + s**2 * series
    return jnp.where(near, s * (2 * s**2 * series - w), log - r + 1)


def products(ratio, halvings=3):
    """Fewer numbers of the same Σ log(1 + ·) along the last axis, an eighth of them: (1 + a)(1 + b)
    = 1 + (a + b + ab), which loses no digits of a and b. Infinite where a product is too large."""
    width = 2**halvings
    ratio = jnp.pad(ratio, ((0, 0),) * (ratio.ndim - 1) + ((0, -ratio.shape[-1] % width),))
    for _ in range(halvings):
        half = ratio.shape[-1] // 2
        a, b = ratio[..., :half], ratio[..., half:]
        ratio = a + b + a * b
    return ratio


def log_less_digamma(a):
    """log a − ψ(a) for a > 0, which is about 1/2a, without the cancellation of the two (Abramowitz
    & Stegun 1964, 6.3.5 and 6.3.18)."""
    z, near = a + SHIFT, jnp.minimum(a, 1e6)  # far out log1p below and its sum cancel
    square, total = 1 / z**2, 0.0
    for term in reversed((1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)):
        total = square * (term + total)
    far = 1 / (2 * a) + 1 / (12 * a**2) - 1 / (120 * a**4)
    steps = sum(1 / (near + i) for i in range(SHIFT))
    return jnp.where(a > 1e3, far, 1 / (2 * z) + total + steps - jnp.log1p(SHIFT / near))


def masked(log, seen):
    """Log densities of cells, 0 where unseen."""
    return log if seen is None else jnp.where(seen, log, 0.0)
