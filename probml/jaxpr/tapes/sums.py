"""Primitives that combine entries: reductions, matrix products, sorting, matrix factorisations."""

import math
from collections.abc import Callable, Sequence

import jax
import numpy as np

from probml.jaxpr.tapes.operation import SECONDS_PER_CALL, Avals, Operation, Unsupported, seconds

SECONDS_PER_PRODUCT = 5e-10  # of two numbers, in a matrix product
SECONDS_PER_SORTED_ENTRY = 1e-7
SECONDS_PER_FACTORISED_ENTRY = 1e-7  # of matrices that are factorised one by one

Build = Callable[..., Callable]


def _reduced(function: np.ufunc) -> Build:
    def build(ins: Avals, outs: Avals, axes: Sequence[int]) -> Callable:
        axis, dtype = tuple(axes), outs[0].dtype
        if function.identity is not None:
            return lambda x: function.reduce(x, axis=axis, dtype=dtype)
        initial = _extremes(dtype)[function is np.minimum]  # of no entries
        return lambda x: function.reduce(x, axis=axis, dtype=dtype, initial=initial)

    return build


def _extremes(dtype: np.dtype) -> tuple[float, float]:
    """The least and the greatest number of a dtype."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    return (-np.inf, np.inf) if dtype.kind == "f" else (False, True)


def _placed(function: Callable) -> Build:
    """argmax and argmin."""
    return lambda ins, outs, axes: lambda x: function(x, axis=axes[0])


def _running(function: np.ufunc) -> Build:
    def build(ins: Avals, outs: Avals, axis: int, reverse: bool) -> Callable:
        dtype = outs[0].dtype

        def along(x: np.ndarray):
            return function.accumulate(x, axis=axis, dtype=dtype)

        return (lambda x: np.flip(along(np.flip(x, axis)), axis)) if reverse else along

    return build


def _contracted(ins: Avals, outs: Avals,
                dimension_numbers: jax.lax.DotDimensionNumbers) -> Callable:
    (left, right), (batch, other) = dimension_numbers
    a, b = (aval.shape for aval in ins)
    free_a = [i for i in range(len(a)) if i not in left and i not in batch]
    free_b = [i for i in range(len(b)) if i not in right and i not in other]
    order_a, order_b = (*batch, *free_a, *left), (*other, *right, *free_b)
    lead, inner = tuple(a[i] for i in batch), math.prod(a[i] for i in left)
    first = (*lead, math.prod(a[i] for i in free_a), inner)
    second = (*lead, inner, math.prod(b[i] for i in free_b))
    shape = outs[0].shape
    if order_a == tuple(range(len(a))) and order_b == tuple(range(len(b))) and (
            a, b, shape) == (first, second, (*first[:-1], second[-1])):
        return np.matmul
    return lambda x, y: np.matmul(x.transpose(order_a).reshape(first),
                                  y.transpose(order_b).reshape(second)).reshape(shape)


def _contraction(ins: Avals, outs: Avals, dimension_numbers: jax.lax.DotDimensionNumbers) -> float:
    (left, _), _ = dimension_numbers
    inner = math.prod(ins[0].shape[i] for i in left)
    return 3 * SECONDS_PER_CALL + seconds(ins, outs) + SECONDS_PER_PRODUCT * outs[0].size * inner


def _ordered(ins: Avals, outs: Avals, dimension: int, num_keys: int) -> Callable:
    """A stable sort with NaN last."""

    def ordered(*columns: np.ndarray):
        keys = columns[:num_keys]
        order = (np.argsort(keys[0], axis=dimension, kind="stable") if num_keys == 1
                 else np.lexsort(keys[::-1], axis=dimension))
        return [np.take_along_axis(column, order, dimension) for column in columns]

    return ordered


def _decomposed(function: Callable, ins: Avals, outs: Avals) -> Callable:
    """A decomposition of matrices, several results; all NaN of a matrix on which LAPACK fails, as
    Cholesky's factor of one that is not positive definite."""
    batch = len(ins[0].shape) - 2

    def decomposed(x: np.ndarray) -> list[np.ndarray]:
        try:
            return list(function(x))
        except np.linalg.LinAlgError:
            if x.ndim > 2:
                return [np.stack(each) for each in zip(*map(decomposed, x), strict=True)]
            return [np.full(aval.shape[batch:], np.nan, aval.dtype) for aval in outs]

    return decomposed


def _solved(ins: Avals, outs: Avals, left_side: bool, lower: bool, transpose_a: bool,
            unit_diagonal: bool) -> Callable:
    """A triangular solve, row by row for all matrices at once."""
    size = ins[0].shape[-1]
    flipped = transpose_a == left_side  # x a = b is aᵀ xᵀ = bᵀ
    order = range(size) if lower != flipped else range(size - 1, -1, -1)

    def solved(a: np.ndarray, b: np.ndarray):
        a = np.swapaxes(a, -1, -2) if flipped else a
        x = np.array(b if left_side else np.swapaxes(b, -1, -2))
        rows: list[int] = []
        for i in order:
            if rows:
                ready = slice(rows[0], i) if order.step > 0 else slice(i + 1, rows[0] + 1)
                x[..., i, :] -= (a[..., i, None, ready] @ x[..., ready, :])[..., 0, :]
            if not unit_diagonal:
                x[..., i, :] /= a[..., i, i, None]
            rows.append(i)
        return x if left_side else np.swapaxes(x, -1, -2)

    return solved


def _eigen(ins: Avals, outs: Avals, lower: bool, subset_by_index: object = None) -> Callable:
    if subset_by_index is not None:
        raise Unsupported("some of the eigenvalues")

    def both(x: np.ndarray):
        values, vectors = np.linalg.eigh(x, "L" if lower else "U")
        return vectors, values

    return _decomposed(both, ins, outs)


def _singular(ins: Avals, outs: Avals, full_matrices: bool, compute_uv: bool,
              subset_by_index: object = None) -> Callable:
    if subset_by_index is not None:
        raise Unsupported("some of the singular values")

    def parts(x: np.ndarray):
        if not compute_uv:
            return [np.linalg.svd(x, compute_uv=False)]
        left, values, right = np.linalg.svd(x, full_matrices)
        return values, left, right

    return _decomposed(parts, ins, outs)


def _orthogonal(ins: Avals, outs: Avals, full_matrices: bool, pivoting: bool) -> Callable:
    if pivoting:
        raise Unsupported("columns in another order")
    if full_matrices:
        return lambda x: list(np.linalg.qr(x, "complete"))
    return lambda x: list(np.linalg.qr(x))


def _factorisation(ins: Avals, outs: Avals, **_: object) -> float:
    size = ins[0].shape[-1]
    return 5 * SECONDS_PER_CALL * (size + 1) + ins[0].size * (
        SECONDS_PER_FACTORISED_ENTRY + SECONDS_PER_PRODUCT * size)


OPERATIONS: dict[str, Operation] = {
    "argmax": Operation(_placed(np.argmax), ("axes",)),
    "argmin": Operation(_placed(np.argmin), ("axes",)),
    "cholesky": Operation(lambda ins, outs: _decomposed(
        lambda x: [np.linalg.cholesky(x)], ins, outs), (), True, _factorisation),
    "cumlogsumexp": Operation(_running(np.logaddexp), ("axis", "reverse")),
    "cummax": Operation(_running(np.maximum), ("axis", "reverse")),
    "cummin": Operation(_running(np.minimum), ("axis", "reverse")),
    "cumprod": Operation(_running(np.multiply), ("axis", "reverse")),
    "cumsum": Operation(_running(np.add), ("axis", "reverse")),
    "dot_general": Operation(_contracted, ("dimension_numbers",), cost=_contraction),
    "eigh": Operation(_eigen, ("lower", "subset_by_index"), True, _factorisation),
    "qr": Operation(_orthogonal, ("full_matrices", "pivoting"), True, _factorisation),
    "reduce_and": Operation(_reduced(np.bitwise_and), ("axes",)),
    "reduce_max": Operation(_reduced(np.maximum), ("axes",)),
    "reduce_min": Operation(_reduced(np.minimum), ("axes",)),
    "reduce_or": Operation(_reduced(np.bitwise_or), ("axes",)),
    "reduce_prod": Operation(_reduced(np.multiply), ("axes",)),
    "reduce_sum": Operation(_reduced(np.add), ("axes",)),
    "sort": Operation(_ordered, ("dimension", "num_keys"), True, lambda ins, outs, **_: (
        10 * SECONDS_PER_CALL + SECONDS_PER_SORTED_ENTRY * sum(aval.size for aval in ins))),
    "svd": Operation(_singular, ("full_matrices", "compute_uv", "subset_by_index"), True,
                     _factorisation),
    "triangular_solve": Operation(
        _solved, ("left_side", "lower", "transpose_a", "unit_diagonal"), cost=_factorisation),
}
