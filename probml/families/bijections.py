"""One-to-one maps from unbounded coordinates, in few operations, and on the host: the coordinates
are NumPyro's.

Its own maps break a stick by cumulative products, and pack a triangle by indices that every trace
makes anew: in a program that holds a map several times (an extrapolation, a density and its
gradient) they are longer than what they serve. Here running sums of few numbers are products with
a triangle of ones, and places are constants.

Source: Betancourt (2012), "Cruising the simplex", for the broken stick.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import transforms

FEW = 64  # numbers whose running sums are one product


class Sticks(transforms.StickBreakingTransform):
    """u (..., k − 1) → probabilities (..., k): z = σ(u − log(k − 1 − i)) of what is left at i."""

    def __call__(self, x: jax.Array) -> jax.Array:
        limits, size = jnp.finfo(x.dtype), x.shape[-1]
        t = x - _even(size, x.dtype)
        taken, left = jax.nn.log_sigmoid(jnp.stack([t, -t]))
        # held as NumPyro holds them, so that no part is nothing
        taken = jnp.maximum(taken, np.log(limits.tiny))
        left = jnp.maximum(left, np.log(limits.eps))
        before = (jnp.matmul(left, _later(size, x.dtype), precision="highest") if size <= FEW
                  else jnp.cumsum(left, -1))
        first = jnp.zeros((*x.shape[:-1], 1), x.dtype)
        return jnp.exp(jnp.concatenate([taken, first], -1) + jnp.concatenate([first, before], -1))

    def _inverse(self, y: jax.Array) -> jax.Array:
        size = y.shape[-1] - 1
        after = y[..., 1:]
        rest = (jnp.matmul(after, _later(size, y.dtype).T, precision="highest") if size <= FEW
                else jnp.cumsum(after[..., ::-1], -1)[..., ::-1])
        return jnp.log(y[..., :-1] / jnp.maximum(rest, jnp.finfo(y.dtype).tiny)) + _even(size,
                                                                                        y.dtype)


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


class Host(NamedTuple):
    """A map of NumPy's arrays: from coordinates to values, and back; any leading axes."""

    enter: Callable[[np.ndarray], np.ndarray]
    leave: Callable[[np.ndarray], np.ndarray]


def _sticks(u: np.ndarray) -> np.ndarray:
    limits, t = np.finfo(u.dtype), u - _even(u.shape[-1], u.dtype)
    taken = np.maximum(-np.logaddexp(0, -t), np.log(limits.tiny))
    left = np.maximum(-np.logaddexp(0, t), np.log(limits.eps))
    first = np.zeros((*u.shape[:-1], 1), u.dtype)
    return np.exp(np.concatenate([taken, first], -1)
                  + np.concatenate([first, np.cumsum(left, -1)], -1))


def _unbroken(y: np.ndarray) -> np.ndarray:
    rest = np.cumsum(y[..., :0:-1], -1)[..., ::-1]
    return np.log(y[..., :-1] / np.maximum(rest, np.finfo(y.dtype).tiny)) + _even(y.shape[-1] - 1,
                                                                                 y.dtype)


def _triangle(u: np.ndarray) -> np.ndarray:
    d = math.isqrt(2 * u.shape[-1])
    parts = [u[..., :-d], np.exp(u[..., -d:]), np.zeros((*u.shape[:-1], 1), u.dtype)]
    return np.concatenate(parts, -1)[..., _places(d)].reshape(*u.shape[:-1], d, d)


def _of_triangle(y: np.ndarray) -> np.ndarray:
    d = y.shape[-1]
    found = y.reshape(*y.shape[:-2], d * d)[..., _packed(d)]
    return np.concatenate([found[..., :-d], np.log(found[..., -d:])], -1)


def _definite(u: np.ndarray) -> np.ndarray:
    lower = _triangle(u)
    return lower @ np.swapaxes(lower, -1, -2)


def _of_definite(y: np.ndarray) -> np.ndarray:
    return _of_triangle(cholesky(y))


def cholesky(matrices: np.ndarray) -> np.ndarray:
    """Lower factors on the host; NaN where a matrix is not positive definite."""
    try:
        return np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        flat = matrices.reshape(-1, *matrices.shape[-2:])
        if len(flat) == 1:
            return np.full_like(matrices, np.nan)
        return np.concatenate([cholesky(one[None]) for one in flat]).reshape(matrices.shape)


def _chance(u: np.ndarray) -> np.ndarray:
    limits = np.finfo(u.dtype)
    return np.clip(np.exp(-np.logaddexp(0, -u)), limits.tiny, 1 - limits.eps)


PLAIN = Host(lambda u: u, lambda v: v)
LOGARITHMS = Host(np.exp, np.log)
LOGITS = Host(_chance, lambda p: np.log(p) - np.log1p(-p))
STICKS, TRIANGLES = Host(_sticks, _unbroken), Host(_triangle, _of_triangle)
DEFINITE = Host(_definite, _of_definite)


def _even(size: int, dtype: np.dtype) -> np.ndarray:
    """What makes equal parts of coordinates 0."""
    return np.log(size - np.arange(size)).astype(dtype)


@functools.cache
def _later(size: int, dtype: np.dtype) -> np.ndarray:
    """v @ this: running sums; v @ its transpose: those from the end."""
    return np.triu(np.ones((size, size), dtype))


@functools.cache
def _packed(d: int) -> np.ndarray:
    """Where in a (d, d) matrix its coordinates lie."""
    rows, columns = np.tril_indices(d, -1)
    return np.concatenate([rows * d + columns, np.arange(d) * (d + 1)])


@functools.cache
def _places(d: int) -> np.ndarray:
    """Of each entry of a (d, d) matrix the number of its coordinate; of those above the diagonal
    the one behind the last, a zero."""
    found = np.full(d * d, d * (d + 1) // 2)
    found[_packed(d)] = np.arange(d * (d + 1) // 2)
    return found


def _taken(values: jax.Array, places: np.ndarray) -> jax.Array:
    """Entries of the last axis by constant places, which nobody has to check."""
    return jnp.asarray(values).at[..., places].get(wrap_negative_indices=False,
                                                   mode="promise_in_bounds")
