"""Log densities of distributions without a kernel, without differences of large numbers: of powers
of a value near its scale, of shares near 1, of angles near the mean."""

import math

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import i0e
from numpyro.distributions.util import log1mexp


def log_ratio(x: jax.Array, y: jax.Array):
    """log(x / y), to the last digits near 1 as well."""
    w = (x - y) / y
    return jnp.where(jnp.abs(w) < 0.5, jnp.log1p(jnp.clip(w, -0.5, 0.5)), jnp.log(x) - jnp.log(y))


def dagum(own: dist.Distribution, x: jax.Array):
    log = own.sharpness * log_ratio(x, own.scale)
    height = jnp.log(own.sharpness) + jnp.log(own.concentration) - jnp.log(x)
    return height - own.concentration * jax.nn.softplus(-log) - jax.nn.softplus(log)


def kumaraswamy(own: dist.Distribution, x: jax.Array):
    a, b = own.concentration1, own.concentration0
    inside = (x > 0) & (x < 1)
    log = jnp.log(jnp.where(inside, x, 0.5))
    rest = (b - 1) * log1mexp(a * log)
    return jnp.where(inside, jnp.log(a) + jnp.log(b) + (a - 1) * log + rest, -jnp.inf)


def pareto(own: dist.Distribution, x: jax.Array):
    return jnp.log(own.alpha) - jnp.log(x) - own.alpha * log_ratio(x, own.scale)


def power_law_above(own: dist.Distribution, x: jax.Array):
    s = 1.0 + own.alpha
    return jnp.log(-s) - jnp.log(x) + s * log_ratio(x, own.low)


def power_law_between(own: dist.Distribution, x: jax.Array):
    """x^α s / (high^s − low^s), s = α + 1, which may be 0."""
    s, width = 1.0 + own.alpha, log_ratio(own.high, own.low)
    size = jnp.where(s > 0, s, -s) * width
    near = size < 1e-2
    far = jnp.where(near, 1.0, size)
    whole = jnp.where(near, -size / 2 + size**2 / 24, jnp.log(-jnp.expm1(-far)) - jnp.log(far))
    fall = jnp.where(s > 0, -s * log_ratio(own.high, x), s * log_ratio(x, own.low))
    return fall - whole - jnp.log(width) - jnp.log(x)


def von_mises(own: dist.Distribution, x: jax.Array):
    k = own.concentration
    return -2 * k * jnp.sin((x - own.loc) / 2) ** 2 - math.log(2 * math.pi) - jnp.log(i0e(k))


def weibull(own: dist.Distribution, x: jax.Array):
    c, log = own.concentration, log_ratio(x, own.scale)
    return jnp.log(c) - jnp.log(own.scale) + (c - 1) * log - jnp.exp(c * log)
