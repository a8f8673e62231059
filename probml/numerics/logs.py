"""Logarithms of numbers that may be zero: one way to write log 0, sums of exponentials, and what
stands for −∞ and +∞ where these would make NaN.

Two conventions meet here. A log that is shown or compared is −∞ for what is impossible; inside a
matrix product, where 0 · (−∞) is NaN, `FLOOR` stands in its place (`floored`, `unfloored`). +∞
counts as a huge finite number (`capped`), so that −∞ wins over it in a sum.
"""

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

FLOOR = -(2.0**100)  # stands for log 0 inside a product
LITTLE = 1 / 64


def floored(log: jax.Array) -> jax.Array:
    """Logs for a product: −∞ is FLOOR."""
    return jnp.where(jnp.isneginf(log), FLOOR, log)


def unfloored(log: jax.Array) -> jax.Array:
    """What came out of such a product: a sum that holds a FLOOR is −∞."""
    return jnp.where(log > FLOOR / 2, log, -jnp.inf)


def log_of(x: jax.Array) -> jax.Array:
    """log x, −∞ with a zero gradient at 0."""
    # the inner `where` keeps the gradient of the branch that is not taken finite
    return jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1)), -jnp.inf)


def finite(top: jax.Array) -> jax.Array:
    """A maximum that can be taken out of an exponential: 0 where all is impossible."""
    return jnp.where(jnp.isneginf(top), 0.0, top)


def finite_max(log: jax.Array, axis: int | tuple[int, ...]) -> jax.Array:
    """The maximum, kept as axes of size 1; 0 where everything is impossible. Constant under
    differentiation."""
    return finite(jnp.max(stop_gradient(log), axis=axis, keepdims=True))


def exp_below(below: jax.Array) -> jax.Array:
    """exp of logs less their maximum: never above 1, also where XLA computes the two by different
    roundings; with the derivative of exp there too, or the most probable state would lose its
    share."""
    return jnp.exp(straight_through(below, jnp.minimum(below, 0.0)))


def log1p_of_little(u: jax.Array) -> jax.Array:
    """log(1 + u) of 0 ≤ u ≤ LITTLE by its series: of many numbers twice as fast as the logarithm on
    a CPU, where XLA (jaxlib 0.10) does not make vectors of the latter."""
    digits = jnp.finfo(u.dtype).nmant + 1
    terms = next(n for n in range(1, 64) if LITTLE**n / (n + 1) < 2.0**-digits / 4)
    total = jnp.full_like(u, 1 / terms)
    for n in reversed(range(1, terms)):
        total = 1 / n - u * total
    return u * total


def log_sum(log: jax.Array, axis: int) -> jax.Array:
    """log Σ exp over an axis; −∞ where all is impossible."""
    top = finite_max(log, axis)
    return log_of(jnp.sum(exp_below(log - top), axis)) + jnp.squeeze(top, axis)


def maximum(log: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
    """The maximum over an axis and where it is (int32); ties, and the gradient, go to the lowest
    index alone."""
    arg = jnp.expand_dims(jnp.argmax(stop_gradient(log), axis).astype(jnp.int32), axis)
    chosen = jax.lax.broadcasted_iota(jnp.int32, log.shape, axis % log.ndim) == arg
    return jnp.sum(jnp.where(chosen, log, 0), axis), jnp.squeeze(arg, axis)


def capped(log: jax.Array) -> jax.Array:
    """+∞ counts as a huge number, with its own derivative."""
    return straight_through(log, jnp.minimum(log, huge(log)))


def huge(x: jax.Array) -> float:
    """What +∞ counts as: a sum of many must not overflow."""
    return float(jnp.finfo(x.dtype).max) * 2.0**-20


def least(x: jax.Array) -> float:
    """Smallest number told from zero: 1/least times a row's weight and a sum over states must not
    overflow in a gradient."""
    return float(jnp.finfo(x.dtype).tiny) * 2**20


@jax.custom_jvp
def straight_through(x: jax.Array, shown: jax.Array) -> jax.Array:
    """`shown`, with the derivative of x: a straight-through estimator."""
    return shown


straight_through.defjvps(lambda slope, out, x, shown: slope, None)
