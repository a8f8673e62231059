"""Log densities of distributions without a kernel, without differences of large numbers: of powers
of a value near its scale, of angles near the mean."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import i0e

from probml.numerics.logs import LOG_TWO_PI


def log_ratio(x: jax.Array, y: jax.Array):
    """log(x / y), to the last digits near 1 as well."""
    w = (x - y) / y
    return jnp.where(jnp.abs(w) < 0.5, jnp.log1p(jnp.clip(w, -0.5, 0.5)), jnp.log(x) - jnp.log(y))


def pareto(own: dist.Distribution, x: jax.Array):
    return jnp.log(own.alpha) - jnp.log(x) - own.alpha * log_ratio(x, own.scale)


def von_mises(own: dist.Distribution, x: jax.Array):
    k = own.concentration
    return -2 * k * jnp.sin((x - own.loc) / 2) ** 2 - LOG_TWO_PI - jnp.log(i0e(k))


def weibull(own: dist.Distribution, x: jax.Array):
    c, log = own.concentration, log_ratio(x, own.scale)
    return jnp.log(c) - jnp.log(own.scale) + (c - 1) * log - jnp.exp(c * log)
