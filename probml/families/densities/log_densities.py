"""Log densities of distributions without a kernel, without differences of large numbers: of powers
of a value near its scale, of angles near the mean."""

import math

import jax.numpy as jnp
from jax.scipy.special import i0e


def log_ratio(x, y):
    """log(x / y), to the last digits near 1 as well."""
    w = (x - y) / y
    return jnp.where(jnp.abs(w) < 0.5, jnp.log1p(jnp.clip(w, -0.5, 0.5)), jnp.log(x) - jnp.log(y))


def pareto(own, x):
    return jnp.log(own.alpha) - jnp.log(x) - own.alpha * log_ratio(x, own.scale)


def von_mises(own, x):
    k = own.concentration
    return -2 * k * jnp.sin((x - own.loc) / 2) ** 2 - math.log(2 * math.pi) - jnp.log(i0e(k))


def weibull(own, x):
    c, log = own.concentration, log_ratio(x, own.scale)
    return jnp.log(c) - jnp.log(own.scale) + (c - 1) * log - jnp.exp(c * log)
