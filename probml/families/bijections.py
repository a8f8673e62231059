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
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.distributions import transforms

MAX_MATRIX_SUMS = 64  # numbers whose running sums are one product


def _stick_breaking(xp: ModuleType, u: ArrayLike) -> ArrayLike:
    """u (..., k − 1) → probabilities (..., k): z = σ(u − log(k − 1 − i)) of what is left at i, by
    the functions of NumPy or of JAX."""
    limits, t = np.finfo(u.dtype), u - _balance(u.shape[-1], u.dtype)
    # held as NumPyro holds them, so that no part is nothing
    log_share = xp.maximum(-xp.logaddexp(0, -t), np.log(limits.tiny))
    log_rest = xp.maximum(-xp.logaddexp(0, t), np.log(limits.eps))
    first = xp.zeros((*u.shape[:-1], 1), u.dtype)
    return xp.exp(xp.concatenate([log_share, first], -1)
                  + xp.concatenate([first, _running(xp, log_rest)], -1))


def _inverse_stick_breaking(xp: ModuleType, y: ArrayLike) -> ArrayLike:
    rest = _running(xp, y[..., :0:-1])[..., ::-1]
    return xp.log(y[..., :-1] / xp.maximum(rest, np.finfo(y.dtype).tiny)) + _balance(
        y.shape[-1] - 1, y.dtype)


def _triangle(xp: ModuleType, u: ArrayLike) -> ArrayLike:
    """u (..., d(d + 1)/2) → lower triangular (..., d, d): below the diagonal u itself, row by row,
    on it exp of the last d."""
    d = math.isqrt(2 * u.shape[-1])
    parts = [u[..., :-d], xp.exp(u[..., -d:]), xp.zeros((*u.shape[:-1], 1), u.dtype)]
    return _gather(xp, xp.concatenate(parts, -1),
                   _coordinate_numbers(d)).reshape(*u.shape[:-1], d, d)


def _inverse_triangle(xp: ModuleType, y: ArrayLike) -> ArrayLike:
    d = y.shape[-1]
    packed = _gather(xp, y.reshape(*y.shape[:-2], d * d), _packed(d))
    return xp.concatenate([packed[..., :-d], xp.log(packed[..., -d:])], -1)


class Sticks(transforms.StickBreakingTransform):
    """See _stick_breaking."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return _stick_breaking(jnp, x)

    def _inverse(self, y: jax.Array) -> jax.Array:
        return _inverse_stick_breaking(jnp, y)


class Triangle(transforms.LowerCholeskyTransform):
    """See _triangle."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return _triangle(jnp, x)

    def _inverse(self, y: jax.Array) -> jax.Array:
        return _inverse_triangle(jnp, y)


SIMPLEX, LOWER_CHOLESKY = Sticks(), Triangle()
POSITIVE_DEFINITE = transforms.ComposeTransform(
    [LOWER_CHOLESKY, transforms.CholeskyTransform().inv]
)


class Host(NamedTuple):
    """A map of NumPy's arrays: from coordinates to values, and back; any leading axes."""

    forward: Callable[[np.ndarray], np.ndarray]
    inverse: Callable[[np.ndarray], np.ndarray]


def cholesky(matrices: np.ndarray) -> np.ndarray:
    """Lower factors on the host; NaN where a matrix is not positive definite."""
    try:
        return np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        flat = matrices.reshape(-1, *matrices.shape[-2:])
        if len(flat) == 1:
            return np.full_like(matrices, np.nan)
        return np.concatenate([cholesky(one[None]) for one in flat]).reshape(matrices.shape)


def _definite(u: np.ndarray) -> np.ndarray:
    lower = _triangle(np, u)
    return lower @ np.swapaxes(lower, -1, -2)


def _clipped_sigmoid(u: np.ndarray) -> np.ndarray:
    limits = np.finfo(u.dtype)
    return np.clip(np.exp(-np.logaddexp(0, -u)), limits.tiny, 1 - limits.eps)


PLAIN = Host(lambda u: u, lambda v: v)
LOGARITHMS = Host(np.exp, np.log)
LOGITS = Host(_clipped_sigmoid, lambda p: np.log(p) - np.log1p(-p))
STICKS, TRIANGLES = (Host(functools.partial(enter, np), functools.partial(leave, np))
                     for enter, leave in ((_stick_breaking, _inverse_stick_breaking),
                                          (_triangle, _inverse_triangle)))
DEFINITE = Host(_definite, lambda y: _inverse_triangle(np, cholesky(y)))


def _balance(size: int, dtype: np.dtype) -> np.ndarray:
    """What makes equal parts of coordinates 0."""
    return np.log(size - np.arange(size)).astype(dtype)


def _running(xp: ModuleType, values: ArrayLike) -> ArrayLike:
    """Running sums; in a program those of few numbers are one product."""
    size = values.shape[-1]
    if xp is np or size > MAX_MATRIX_SUMS:
        return xp.cumsum(values, -1)
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
def _coordinate_numbers(d: int) -> np.ndarray:
    """The number of the coordinate of each entry of a (d, d) matrix; of entries above the diagonal
    the number after the last, a zero."""
    found = np.full(d * d, d * (d + 1) // 2)
    found[_packed(d)] = np.arange(d * (d + 1) // 2)
    return found


def _gather(xp: ModuleType, values: ArrayLike, places: np.ndarray) -> ArrayLike:
    """Entries of the last axis by constant places, which nobody has to check."""
    return values[..., places] if xp is np else jnp.asarray(values).at[..., places].get(
        wrap_negative_indices=False, mode="promise_in_bounds")
