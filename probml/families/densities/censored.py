"""Log probabilities of lying below or above a value, and log densities of censored values.

NumPyro takes the log of one minus a probability: 6 standard deviations away, or where an
exponential has fallen by 16 nats, float32 leaves of it what stands for 0, and no slope.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.nn import log_sigmoid
from jax.scipy.special import gammainc, gammaincc, log_ndtr
from numpyro.distributions import util

from probml.families.densities.accurate import log_ratio


def log1mexp(log: jax.Array):
    """log(1 − exp(log)), finite at 0 with its slopes."""
    return util.log1mexp(jnp.minimum(log, -jnp.finfo(log.dtype).tiny))


def _normal(own: dist.Distribution, x: jax.Array):
    z = (x - own.loc) / own.scale
    return log_ndtr(z), log_ndtr(-z)


def _by_survival(log_survival: Callable) -> Callable:
    """Both chances from (distribution, x) → log P(X > x)."""

    def both(own: dist.Distribution, x: jax.Array):
        above = log_survival(own, x)
        return log1mexp(above), above

    return both


def _logistic(own: dist.Distribution, x: jax.Array):
    z = (x - own.loc) / own.scale
    return log_sigmoid(z), log_sigmoid(-z)


def _laplace(own: dist.Distribution, x: jax.Array):
    z = (x - own.loc) / own.scale
    tail = jnp.log(0.5) - jnp.abs(z)
    return jnp.where(z < 0, tail, jnp.log1p(-jnp.exp(tail))), jnp.where(
        z > 0, tail, jnp.log1p(-jnp.exp(tail)))


def _gumbel(own: dist.Distribution, x: jax.Array):
    below = -jnp.exp(-(x - own.loc) / own.scale)
    return below, log1mexp(below)


def _cauchy(own: dist.Distribution, x: jax.Array):
    z = (x - own.loc) / own.scale
    return jnp.log(jnp.arctan2(1.0, -z) / jnp.pi), jnp.log(jnp.arctan2(1.0, z) / jnp.pi)


def _gamma(own: dist.Distribution, x: jax.Array):
    y, least = own.rate * x, jnp.finfo(x.dtype).tiny
    return tuple(jnp.log(jnp.maximum(chance(own.concentration, y), least))
                 for chance in (gammainc, gammaincc))


# kind → (distribution, x) → log P(X ≤ x), log P(X > x)
LOG_CHANCES: dict[type, Callable] = {
    dist.Normal: _normal,
    dist.LogNormal: lambda own, x: _normal(own, jnp.log(x)),
    dist.HalfNormal: _by_survival(lambda own, x: jnp.log(2.0) + log_ndtr(-x / own.scale)),
    dist.Exponential: _by_survival(lambda own, x: -own.rate * x),
    dist.Weibull: _by_survival(
        lambda own, x: -jnp.exp(own.concentration * log_ratio(x, own.scale))),
    dist.Gompertz: _by_survival(lambda own, x: -own.concentration * jnp.expm1(own.rate * x)),
    dist.Pareto: _by_survival(lambda own, x: -own.alpha * log_ratio(x, own.scale)),
    dist.Logistic: _logistic, dist.Laplace: _laplace, dist.Gumbel: _gumbel, dist.Cauchy: _cauchy,
    dist.Gamma: _gamma,
}


def log_chances(base: dist.Distribution, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """log P(X ≤ x) and log P(X > x), within the support; NumPyro's cdf of what is not in
    LOG_CHANCES."""
    while isinstance(base, dist.ExpandedDistribution):
        base = base.base_dist
    low, high = (getattr(base.support, end, bound) for end, bound in (
        ("lower_bound", -jnp.inf), ("upper_bound", jnp.inf)))
    inside = (x > low) & (x < high)
    known = LOG_CHANCES.get(type(base))
    if known is None:
        eps, least = jnp.finfo(x.dtype).eps, 100.0 * jnp.finfo(x.dtype).tiny
        below = base.cdf(x)
        return (jnp.log(jnp.clip(below, least, 1.0)), jnp.log1p(-jnp.clip(below, 0.0, 1 - eps)))
    harmless = base.support.feasible_like(jnp.broadcast_to(x, jnp.broadcast_shapes(
        jnp.shape(x), base.batch_shape)))
    below, above = known(base, jnp.where(inside, x, harmless))
    return (jnp.where(inside, below, jnp.where(x > low, 0.0, -jnp.inf)),
            jnp.where(inside, above, jnp.where(x > low, -jnp.inf, 0.0)))


def one_sided(own: dist.Distribution, value: jax.Array):
    """log p of a value, or of all on the side of it on which it is censored."""
    x = jnp.asarray(value, jnp.result_type(float))
    side = isinstance(own, dist.RightCensoredDistribution)
    return jnp.where(own.censored, log_chances(own.base_dist, x)[side], own.base_dist.log_prob(x))


def log_between(base: dist.Distribution, low: jax.Array, high: jax.Array) -> jax.Array:
    """log P(low < X ≤ high), by the smaller of the two sides' chances; of ends so close that
    nothing of their difference is left, by the density between them."""
    (below, above), (under, over) = (_chances_at(base, end) for end in (low, high))
    upper = above < under
    whole, less = jnp.where(upper, above, under), jnp.where(upper, over, below)
    some = jnp.isfinite(less)
    apart = jnp.where(some, whole - less, 1.0)
    near = apart**2 < jnp.finfo(apart.dtype).eps
    width = jnp.where(near, high - low, 1.0)
    middle = jnp.where(near, low + 0.5 * width, base.support.feasible_like(width))
    return jnp.where(near, jnp.log(width) + base.log_prob(middle),
                     whole + jnp.where(some, log1mexp(-jnp.where(near, 1.0, apart)), 0.0))


def _chances_at(base, end):
    """log_chances of an end that may be infinite."""
    finite = jnp.where(jnp.isfinite(end), end, 0.0)
    harmless = base.support.feasible_like(finite)
    below, above = log_chances(base, jnp.where(jnp.isfinite(end), end, harmless))
    return (jnp.where(jnp.isneginf(end), -jnp.inf, jnp.where(jnp.isposinf(end), 0.0, below)),
            jnp.where(jnp.isneginf(end), 0.0, jnp.where(jnp.isposinf(end), -jnp.inf, above)))


def censored_log_prob(own: dist.Distribution, value: jax.Array):
    """log p of a censored value: the density where both ends agree, else the probability of the
    interval between them or, with censoring on both sides, outside of it."""
    value = jnp.asarray(value, jnp.result_type(float))
    low, high = value[..., 0], value[..., 1]
    no_low, no_high, _, outside, point = own._get_censoring_masks(value)
    low = jnp.where(no_low, -jnp.inf, low)
    high = jnp.where(no_high, jnp.inf, jnp.where(point, jnp.inf, high))
    beyond = jnp.logaddexp(_chances_at(own.base_dist, low)[0], _chances_at(own.base_dist, high)[1])
    log = jnp.where(outside, beyond, log_between(own.base_dist, low, high))
    return jnp.where(point, own.base_dist.log_prob(jnp.where(no_low, high, low)), log)
