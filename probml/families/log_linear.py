"""Log densities linear in their natural parameters, η·T(x) + constant + base(x): one matrix product
a chunk; exact log Γ ratios."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.scipy.special import digamma, gammaln

from probml.families.likelihood import Arguments
from probml.numerics.logs import FLOOR, LOG_TWO_PI, floored, log_of, unfloored

SHIFT = 8
SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
# of log z − ψ(z) − 1/2z in powers of 1/z²
DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
FACTORIALS = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, 256)))])  # log 0!, log 1!, ...


def floats(arguments: Arguments):
    """Arguments in JAX's float type: a user may write Poisson(2)."""
    return {name: value.astype(jnp.result_type(float)) for name, value in arguments.items()}


def inexact(*arrays: jax.Array):
    """The same arrays, whole numbers as floats: these have no slope to take."""
    return tuple(x if jnp.issubdtype(jnp.result_type(x), jnp.inexact)
                 else jnp.asarray(x, jnp.result_type(float)) for x in arrays)


@jax.custom_jvp
def log_beta(a: jax.Array, b: jax.Array):
    """log B(a, b) = log Γ(min) − log (Γ(max + min) / Γ(max)), to 1e-14; its derivatives are those
    of a and b, also where they are equal.

    (JAX's `betaln` is off by 3e-7 from arguments of 8 on, and has second derivatives of 0 where the
    two are equal.)
    """
    low, high = jnp.minimum(a, b), jnp.maximum(a, b)
    return gammaln(low) - rising(high, low)


@log_beta.defjvp
def _log_beta_slope(primals: tuple, tangents: tuple):
    (a, b), (da, db) = primals, tangents
    digamma_sum = digamma(a + b)
    return log_beta(a, b), (digamma(a) - digamma_sum) * da + (digamma(b) - digamma_sum) * db


def log_density(natural: Arguments, x: jax.Array, mask: jax.Array | None, valid: jax.Array,
                statistics: Callable[[jax.Array], jax.Array], safe: float = 1.0):
    """Σ over seen cells of η·T(x) + constant + base(x).

    Args:
        natural: "eta", (p, t c), one (p, c) beside the other for each of the t statistics, and
            "constant", (p, c). −∞ is allowed where the statistic is never negative: a positive one
            is then impossible. Where one is +∞ an argument has overflowed (a rate of exp(1000)),
            and all is impossible.
        x: (b, c); mask: (b, c) bool or None; valid: (b, c) bool, whether x lies in the support.
        statistics: x → ([T(x), ...], base(x)), each (b, c); asked only inside the support.
        safe: a value inside the support.

    Returns:
        (b, p); −∞ where a seen cell is impossible, never NaN, with finite gradients.
    """
    eta, constant = (floored(natural[leaf]) for leaf in ("eta", "constant"))
    cells, statistic = jnp.isposinf(constant), constant.shape[-1]
    for first in range(0, eta.shape[-1], statistic):
        cells |= jnp.isposinf(eta[..., first : first + statistic])
    eta, constant = jnp.where(jnp.isposinf(eta), 0.0, eta), jnp.where(cells, FLOOR, constant)
    usable = valid if mask is None else valid & mask
    columns, base = statistics(jnp.where(usable, x, safe).astype(eta.dtype))
    usable = usable.astype(eta.dtype)
    columns = jnp.concatenate([column * usable for column in columns], -1)
    value = columns @ eta.T + (constant.sum(-1) if mask is None else usable @ constant.T)
    possible = (valid if mask is None else valid | ~mask).all(-1, keepdims=True)
    return jnp.where(possible, unfloored(value), -jnp.inf) + (base * usable).sum(-1, keepdims=True)


def _stirling(z: jax.Array):
    """log Γ(z) − (z − ½) log z + z − ½ log 2π for z ≥ 8, to 1e-15 (Abramowitz & Stegun 1964,
    6.1.41)."""
    square, total = 1 / z**2, 0.0
    for term in reversed(SERIES):
        total = term + square * total
    return total / z


def log_factorial(x: jax.Array):
    """log x! of whole numbers: looked up below 256, by Stirling's series from there on; six times
    as fast as log Γ."""
    table = jnp.asarray(FACTORIALS, x.dtype)
    z = jnp.maximum(x, len(FACTORIALS)) + 1
    series = (z - 0.5) * jnp.log(z) - z + 0.5 * LOG_TWO_PI + _stirling(z)
    return jnp.where(x < len(FACTORIALS), table[jnp.clip(x, 0, len(FACTORIALS) - 1).astype(int)],
                     series)


def rising(a: jax.Array, x: jax.Array | float):
    """log Γ(a + x) − log Γ(a) for a > 0, x ≥ 0, without the cancellation of two large logarithms.

    Stirling's series at a, or at a + 8 where a is small: Γ(a + x)/Γ(a) = Γ(a + 8 + x)/Γ(a + 8) · Π
    (a + i)/(a + x + i).
    """
    small = a < SHIFT
    z = jnp.where(small, a + SHIFT, a)
    small_a = jnp.where(small, a, 1.0)
    ratio = [1 + x / (small_a + i) for i in range(SHIFT)]
    shift = jnp.log(math.prod(ratio[: SHIFT // 2])) + jnp.log(math.prod(ratio[SHIFT // 2 :]))
    series = (z + x - 0.5) * jnp.log1p(x / z) + x * (jnp.log(z) - 1) + _stirling(z + x) - _stirling(
        z
    )
    return series - jnp.where(small, shift, 0.0)


def log_gamma(a: jax.Array, y: jax.Array, log_y: jax.Array | None = None):
    """a log y − y − log Γ(a) for a > 0, y ≥ 0: y times the density of a Gamma(a, 1) at y.

    Args:
        log_y: log y, where y itself may have been rounded to 0.
    """
    a, y = inexact(a, y)
    return _log_gamma(a, y, log_of(y) if log_y is None else log_y)


@jax.custom_jvp
def _log_gamma(a: jax.Array, y: jax.Array, log_y: jax.Array | None):
    w = (y - a) / a
    return _about(a, w, _log1p(w, log_y - jnp.log(a)))


@functools.partial(_log_gamma.defjvp, symbolic_zeros=True)
def _log_gamma_slope(primals: tuple, tangents: tuple):
    (a, y, log_y), (da, _, dlog) = primals, tangents
    return _log_gamma(a, y, log_y), _along(
        (da, lambda: _log1p((y - a) / a, log_y - jnp.log(a)) + log_less_digamma(a)),
        (dlog, lambda: a - y))


def _along(*terms: tuple[jax.Array | SymbolicZero, Callable[[], jax.Array]]):
    """Σ tangent × slope; slopes of numbers that do not move, as of a count, are not computed, which
    would take most of the time of a gradient."""
    moved = [slope() * tangent for tangent, slope in terms if not isinstance(tangent, SymbolicZero)]
    return functools.reduce(jnp.add, moved) if moved else jnp.zeros_like(terms[0][1]())


def _about(a: jax.Array, w: jax.Array, log: jax.Array):
    """a log y − y − log Γ(a) at y = a (1 + w), log = log(1 + w).

    From a = 8 on as a (log(1 + w) − w) + ½ log(a/2π) less Stirling's series, no term of which is
    larger than the sum: as they stand, the terms of a = 10⁶ leave float32 errors of a nat.
    """
    high, low = jnp.maximum(a, SHIFT), jnp.minimum(a, SHIFT)
    large = high * _log_less(w, log) + 0.5 * jnp.log(high / (2 * math.pi)) - _stirling(high)
    return jnp.where(a >= SHIFT, large, low * (jnp.log(low) + log) - low * (1 + w) - gammaln(low))


def _log1p(w: jax.Array, given: jax.Array):
    """log(1 + w), of 1 + w below a half as it is given, `given`: there w has lost its digits."""
    return jnp.where(w > -0.5, jnp.log1p(jnp.maximum(w, -0.5)), given)


def log_poisson(k: jax.Array, mean: jax.Array, log_mean: jax.Array | None = None):
    """log of the probability of k ≥ 0 under a Poisson, to the last digits however large they are.

    Args:
        log_mean: log mean, where the mean itself may have been rounded to 0.
    """
    k, mean = inexact(k, mean)
    positive_k = jnp.where(k > 0, k, 1.0)
    return jnp.where(k > 0, log_gamma(positive_k, mean, log_mean) - jnp.log(positive_k), -mean)


def log_multinomial(counts: jax.Array, p: jax.Array, log_p: jax.Array | None = None):
    """log of the probability of counts (..., k) of so many draws from k kinds: independent Poisson
    counts, given their sum."""
    counts, p = inexact(counts, p)
    n = counts.sum(-1, keepdims=True)
    log_mean = None if log_p is None else log_of(n) + log_p
    return log_poisson(counts, n * p, log_mean).sum(-1) - log_poisson(n, n)[..., 0]


def log_negative_binomial(k: jax.Array, concentration: jax.Array, mean: jax.Array,
                          log_mean: jax.Array | None = None):
    """log of the probability of k ≥ 0 under a negative binomial: the Poisson, where the
    concentration is large.

    Γ(c + k) / (Γ(c) k!) · (c/(c + m))^c (m/(c + m))^k, by how far k is from the mean: of log Γ at
    c = 10⁵ float32 would leave errors of a tenth. No derivative in k.
    """
    k, concentration, mean = inexact(k, concentration, mean)
    log_mean = log_of(mean) if log_mean is None else log_mean
    return _log_negative_binomial(lax.stop_gradient(k), concentration, mean, log_mean)


@jax.custom_jvp
def _log_negative_binomial(k: jax.Array, c: jax.Array, m: jax.Array, log_m: jax.Array):
    pos_k = jnp.where(k > 0, k, 1.0)
    w, log = _relative_excess(pos_k, c, m, log_m)
    back = (m - pos_k) / pos_k * (c / (c + m))
    rest = _log1p(back, log_m - jnp.log(pos_k) + log)
    log_sum = _about(c + pos_k, jnp.zeros_like(w), jnp.zeros_like(w))
    value = _about(c, w, log) + _about(pos_k, back, rest) - log_sum - jnp.log(pos_k)
    return jnp.where(k > 0, value, c * _relative_excess(jnp.zeros_like(pos_k), c, m, log_m)[1])


@functools.partial(_log_negative_binomial.defjvp, symbolic_zeros=True)
def _log_negative_binomial_slope(primals: tuple, tangents: tuple):
    (k, c, m, log_m), (_, dc, _, dlog) = primals, tangents
    w, log = _relative_excess(k, c, m, log_m)
    return _log_negative_binomial(*primals), _along(
        (dc, lambda: _log_less(w, log) + log_less_digamma(c) - log_less_digamma(c + k)),
        (dlog, lambda: c * w))


def _relative_excess(k: jax.Array, c: jax.Array, m: jax.Array, log_m: jax.Array):
    """w = (k − m) / (c + m), and log(1 + w)."""
    w = (k - m) / (c + m)
    return w, _log1p(w, jnp.log(c + k) - jnp.logaddexp(jnp.log(c), log_m))


def log_dirichlet_multinomial(counts: jax.Array, concentration: jax.Array):
    """log of the probability of counts (..., k) whose kinds have probabilities from a Dirichlet:
    independent negative binomial counts of one scale, given their sum."""
    counts, concentration = inexact(counts, concentration)
    n, total = counts.sum(-1, keepdims=True), concentration.sum(-1, keepdims=True)
    scale = lax.stop_gradient(n / total)  # whichever
    log_counts = log_negative_binomial(counts, concentration, concentration * scale).sum(-1)
    return log_counts - log_negative_binomial(n, total, total * scale)[..., 0]


def log_dirichlet(a: jax.Array, x: jax.Array):
    """log of the density of a Dirichlet(a) times Π xᵢ, (..., k) → (...): of x with a sum of 1."""
    a, x = inexact(a, x)
    total = a.sum(-1)
    return log_gamma(a, total[..., None] * x).sum(-1) - log_gamma(total, total)


def _log_less(w: jax.Array, log: jax.Array):
    """log(1 + w) − w, near 0 without the cancellation of the two: 2 artanh s − w, s = w / (2 + w).

    Args:
        log: log(1 + w).
    """
    is_small = jnp.abs(w) < 0.2
    small_w = jnp.where(is_small, w, 0.0)
    s, series = small_w / (2 + small_w), 0.0
    for power in reversed(range(3, 21 if w.dtype == jnp.float64 else 13, 2)):
        series = 1 / power + s**2 * series
    return jnp.where(is_small, s * (2 * s**2 * series - small_w), log - w)


@jax.custom_jvp
def log_less_digamma(a: jax.Array):
    """log a − ψ(a) for a > 0, which is about 1/2a, without the cancellation of the two (Abramowitz
    & Stegun 1964, 6.3.5 and 6.3.18)."""
    z, capped = a + SHIFT, jnp.minimum(a, 1e6)  # far out log1p below and its sum cancel
    square, total = 1 / z**2, 0.0
    for term in reversed(DIGAMMA_SERIES):
        total = square * (term + total)
    asymptotic = 1 / (2 * a) + 1 / (12 * a**2) - 1 / (120 * a**4)
    steps = sum(1 / (capped + i) for i in range(SHIFT))
    return jnp.where(a > 1e3, asymptotic, 1 / (2 * z) + total + steps - jnp.log1p(SHIFT / capped))


@log_less_digamma.defjvp
def _log_less_digamma_slope(primals: tuple, tangents: tuple):
    """1/a − ψ′(a), term by term: second and third derivatives of a density with log Γ compile in
    half the time of automatic ones."""
    (a,), (da,) = primals, tangents
    z = a + SHIFT
    square, total = 1 / z**2, 0.0
    for power, term in reversed(list(enumerate(DIGAMMA_SERIES, 1))):
        total = square * (2 * power * term + total)
    asymptotic = (1 / 2 + 1 / (6 * a) - 1 / (30 * a**3)) / a**2
    # 1/(a + i)² − 1/((a + i) (a + i + 1))
    steps = sum(1 / ((a + i) ** 2 * (a + i + 1)) for i in range(SHIFT))
    return log_less_digamma(a), -jnp.where(a > 1e3, asymptotic, square / 2 + total / z + steps) * da


def masked(log: jax.Array, mask: jax.Array | None):
    """Log densities of cells, 0 where unseen."""
    return log if mask is None else jnp.where(mask, log, 0.0)
