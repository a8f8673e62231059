"""Probabilities that may be zero: their logarithms, log-sum-exp, ratios, and finite substitutes of
±∞.

A log probability of 0 is −∞. In a matrix product, where 0 · (−∞) is NaN, −∞ is replaced by `FLOOR`
(`floored`, `unfloored`). +∞ is replaced by a huge finite number (`capped`), so that its sum with −∞
is −∞.
"""

import math

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

LOG_TWO_PI = math.log(2 * math.pi)
FLOOR = -(2.0**100)  # log 0 inside a matrix product
MAX_SERIES_ARGUMENT = 1 / 64  # of log1p_of_little


def floored(log: jax.Array) -> jax.Array:
    """Replaces −∞ by FLOOR."""
    return jnp.where(jnp.isneginf(log), FLOOR, log)


def unfloored(log: jax.Array) -> jax.Array:
    """Replaces sums that contain FLOOR by −∞, the inverse of `floored` after a product."""
    return jnp.where(log > FLOOR / 2, log, -jnp.inf)


def log_of(x: jax.Array) -> jax.Array:
    """Returns log x; −∞, with gradient 0, at 0."""
    # without the inner `where` the gradient of the unused branch would be NaN
    return jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1)), -jnp.inf)


def divide(a: jax.Array | float, b: jax.Array) -> jax.Array:
    """Returns a / b; 0, with gradient 0, where b is not positive."""
    return jnp.where(b > 0, a / jnp.where(b > 0, b, 1), 0)


def weighted_log(weight: jax.Array, log: jax.Array) -> jax.Array:
    """Returns weight × log; 0, with gradient 0, where the weight is not positive, whatever the log
    is there."""
    return weight * jnp.where(weight > 0, log, 0.0)


def finite(top: jax.Array) -> jax.Array:
    """Replaces a maximum of −∞ by 0, so that it can be subtracted."""
    return jnp.where(jnp.isneginf(top), 0.0, top)


def finite_max(log: jax.Array, axis: int | tuple[int, ...]) -> jax.Array:
    """Returns the maximum with the reduced axes as size 1; 0 where it is −∞. Its gradient is 0."""
    return finite(jnp.max(stop_gradient(log), axis=axis, keepdims=True))


def exp_below(below: jax.Array) -> jax.Array:
    """Returns exp of logs minus their maximum, at most 1 even where XLA rounds the two differently.
    The derivative is that of exp also at the maximum."""
    return jnp.exp(straight_through(below, jnp.minimum(below, 0.0)))


def log1p_of_little(u: jax.Array) -> jax.Array:
    """Returns log(1 + u) for 0 ≤ u ≤ MAX_SERIES_ARGUMENT by its Taylor series. On a CPU this is
    twice as fast as log1p, which XLA (jaxlib 0.10) does not vectorise."""
    digits = jnp.finfo(u.dtype).nmant + 1
    terms = next(n for n in range(1, 64) if MAX_SERIES_ARGUMENT**n / (n + 1) < 2.0**-digits / 4)
    total = jnp.full_like(u, 1 / terms)
    for n in reversed(range(1, terms)):
        total = 1 / n - u * total
    return u * total


def log_sum(log: jax.Array, axis: int) -> jax.Array:
    """Returns log Σ exp(log) over an axis; −∞ where all terms are −∞."""
    top = finite_max(log, axis)
    return log_of(jnp.sum(exp_below(log - top), axis)) + jnp.squeeze(top, axis)


def maximum(log: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
    """Returns the maximum over an axis and its index (int32). Ties go to the lowest index, which
    alone has a gradient."""
    arg = jnp.expand_dims(jnp.argmax(stop_gradient(log), axis).astype(jnp.int32), axis)
    chosen = jax.lax.broadcasted_iota(jnp.int32, log.shape, axis % log.ndim) == arg
    return jnp.sum(jnp.where(chosen, log, 0), axis), jnp.squeeze(arg, axis)


def capped(log: jax.Array) -> jax.Array:
    """Replaces +∞ by `huge`, with the derivative of the identity."""
    return straight_through(log, jnp.minimum(log, huge(log)))


def huge(x: jax.Array) -> float:
    """Returns the substitute of +∞, small enough that sums do not overflow."""
    return float(jnp.finfo(x.dtype).max) * 2.0**-20


def least(x: jax.Array) -> float:
    """Returns the smallest number that is distinguished from 0. Its inverse, times the weight of a
    row and summed over states, does not overflow in a gradient."""
    return float(jnp.finfo(x.dtype).tiny) * 2**20


@jax.custom_jvp
def straight_through(x: jax.Array, value: jax.Array) -> jax.Array:
    """Returns `value` with the derivative of x (straight-through estimator)."""
    return value


straight_through.defjvps(lambda slope, out, x, shown: slope, None)
