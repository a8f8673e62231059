"""One-to-one maps from unbounded coordinates, in few operations: the coordinates are NumPyro's.

Its own maps break a stick by cumulative products, and pack a triangle by indices that every trace
makes anew: in a program that holds a map several times (an extrapolation, a density and its
gradient) they are longer than what they serve. Here running sums of few numbers are products with
a triangle of ones, and places are constants.

Source: Betancourt (2012), "Cruising the simplex", for the broken stick.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import transforms

MAX_MATRIX_SUMS = 64  # numbers whose running sums are one product


class Sticks(transforms.StickBreakingTransform):
    """u (..., k − 1) → probabilities (..., k): z = σ(u − log(k − 1 − i)) of what is left at i."""

    def __call__(self, x: jax.Array) -> jax.Array:
        limits, t = jnp.finfo(x.dtype), x - _balance(x.shape[-1], x.dtype)
        # held as NumPyro holds them, so that no part is nothing
        taken = jnp.maximum(-jnp.logaddexp(0, -t), np.log(limits.tiny))
        left = jnp.maximum(-jnp.logaddexp(0, t), np.log(limits.eps))
        first = jnp.zeros((*x.shape[:-1], 1), x.dtype)
        return jnp.exp(jnp.concatenate([taken, first], -1)
                       + jnp.concatenate([first, _running(left)], -1))

    def _inverse(self, y: jax.Array) -> jax.Array:
        rest = _running(y[..., :0:-1])[..., ::-1]
        return jnp.log(y[..., :-1] / jnp.maximum(rest, jnp.finfo(y.dtype).tiny)) + _balance(
            y.shape[-1] - 1, y.dtype)


class Triangle(transforms.LowerCholeskyTransform):
    """u (..., d(d + 1)/2) → lower triangular (..., d, d): below the diagonal u itself, row by row,
    on it exp of the last d."""

    def __call__(self, x: jax.Array) -> jax.Array:
        d = math.isqrt(2 * x.shape[-1])
        parts = [x[..., :-d], jnp.exp(x[..., -d:]), jnp.zeros((*x.shape[:-1], 1), x.dtype)]
        return _taken(jnp.concatenate(parts, -1), _places(d)).reshape(*x.shape[:-1], d, d)

    def _inverse(self, y: jax.Array) -> jax.Array:
        d = y.shape[-1]
        found = _taken(y.reshape(*y.shape[:-2], d * d), _packed(d))
        return jnp.concatenate([found[..., :-d], jnp.log(found[..., -d:])], -1)


SIMPLEX, LOWER_CHOLESKY = Sticks(), Triangle()
POSITIVE_DEFINITE = transforms.ComposeTransform(
    [LOWER_CHOLESKY, transforms.CholeskyTransform().inv]
)


def _balance(size: int, dtype: np.dtype) -> np.ndarray:
    """What makes equal parts of coordinates 0."""
    return np.log(size - np.arange(size)).astype(dtype)


def _running(values: jax.Array) -> jax.Array:
    """Running sums; those of few numbers are one product."""
    size = values.shape[-1]
    if size > MAX_MATRIX_SUMS:
        return jnp.cumsum(values, -1)
    return jnp.matmul(values, _later(size, values.dtype), precision="highest")


@functools.cache
def _later(size: int, dtype: np.dtype) -> np.ndarray:
    """The matrix M, (size, size), with which v @ M are the running sums of v."""
    return np.triu(np.ones((size, size), dtype))


@functools.cache
def _packed(d: int) -> np.ndarray:
    """Where in a (d, d) matrix its coordinates lie."""
    rows, columns = np.tril_indices(d, -1)
    return np.concatenate([rows * d + columns, np.arange(d) * (d + 1)])


@functools.cache
def _places(d: int) -> np.ndarray:
    """The number of the coordinate of each entry of a (d, d) matrix; of entries above the diagonal
    the number after the last, a zero."""
    found = np.full(d * d, d * (d + 1) // 2)
    found[_packed(d)] = np.arange(d * (d + 1) // 2)
    return found


def _taken(values: jax.Array, places: np.ndarray) -> jax.Array:
    """Entries of the last axis by constant places, which nobody has to check."""
    return jnp.asarray(values).at[..., places].get(wrap_negative_indices=False,
                                                   mode="promise_in_bounds")
