"""Batched Cholesky factors and triangular solves, also of singular covariances.

jaxlib (0.10) splits a batched LAPACK call from 200,000 multiplications on into tasks for XLA's
thread pool and waits for them on one of its threads: two such calls at once on two cores deadlock.
Inside `guarded`, and only on machines with few cores, such batches are therefore lowered as a loop
over matrices. That needs JAX's table of lowerings, which is private; only this file uses it. If
the table is not found nothing is changed, a warning names the risk, and
tests/numerics/test_lapack.py fails.

Matrices of up to MAX_UNROLLED rows are factorised and solved by unrolled code, vectorised over the
batch; LAPACK processes one matrix after another.

A state with a copied coordinate, as for seasons and lags, has a noise covariance with zeros. Where
a pivot is 0 up to rounding, its column of the factor is 0; this is exact, since the rest of that
column of a semi-definite matrix is 0 too. Gradients are those of the other pivots.
"""

import contextlib
import contextvars
import functools
import math
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.scipy.linalg import solve_triangular

from probml.jaxpr import compat
from probml.jaxpr.compat import OFF
from probml.numerics.process.shared_changes import SharedChange, assigned

PIVOT_ROUNDINGS = 32  # a pivot below this · size · rounding, relative to its diagonal entry, is 0


def root(matrix: jax.Array) -> jax.Array:
    """Returns the lower triangular L with L Lᵀ = matrix, for semi-definite matrices (..., d, d).

    Cost: O(d³), unrolled: meant for d up to some dozens.
    """
    d, schur, columns = matrix.shape[-1], matrix, []
    least = PIVOT_ROUNDINGS * d * float(jnp.finfo(matrix.dtype).eps)
    diagonal = jnp.diagonal(matrix, axis1=-2, axis2=-1)
    for j in range(d):
        pivot = schur[..., j, j]
        positive = pivot > least * diagonal[..., j]
        scale = jnp.where(positive, pivot, 1.0) ** -0.5
        below = np.arange(d) >= j
        column = jnp.where(positive[..., None] & below, schur[..., :, j] * scale[..., None], 0.0)
        schur = schur - column[..., :, None] * column[..., None, :]
        columns.append(column)
    return jnp.stack(columns, -1)


def standardised(lower: jax.Array, x: jax.Array) -> jax.Array:
    """Returns w with lower w = x, (..., d, k), for x in the range of a root; w is 0 at zero
    pivots."""
    out: list[jax.Array] = []
    for j in range(lower.shape[-1]):
        remainder = x[..., j, :]
        for i, w in enumerate(out):
            remainder = remainder - lower[..., j, i, None] * w
        pivot = lower[..., j, j, None]
        out.append(jnp.where(pivot > 0, remainder / jnp.where(pivot > 0, pivot, 1.0), 0.0))
    return jnp.stack(out, -2)


def log_det(lower: jax.Array) -> jax.Array:
    """Returns half the log pseudo-determinant, the sum of the logs of nonzero pivots, (...,)."""
    pivots = jnp.diagonal(lower, axis1=-2, axis2=-1)
    return jnp.where(pivots > 0, jnp.log(jnp.where(pivots > 0, pivots, 1.0)), 0.0).sum(-1)


def rank(lower: jax.Array) -> jax.Array:
    """Returns the number of nonzero pivots of a root, (...,)."""
    return (jnp.diagonal(lower, axis1=-2, axis2=-1) > 0).sum(-1)


MAX_UNROLLED = 3  # rows


def diagonal(matrix: jax.Array) -> jax.Array:
    """Returns the diagonals (..., d) of matrices (..., d, d), by a slice instead of the gather of
    jnp.diagonal."""
    d, lead = matrix.shape[-1], matrix.shape[:-2]
    flat = lax.reshape(matrix, (*lead, d * d))
    return lax.slice_in_dim(flat, 0, d * d, d + 1, axis=len(lead))


def cholesky(matrix: jax.Array, many: bool = False) -> jax.Array:
    """Returns the lower Cholesky factors of matrices (..., d, d).

    Args:
        many: whether a single matrix is inside a function that is vmapped over many.
    """
    d = matrix.shape[-1]
    if d > MAX_UNROLLED or matrix.ndim < 3 and not many:
        return jnp.linalg.cholesky(matrix)
    rows: list[list[jax.Array]] = []
    for i in range(d):
        row: list[jax.Array] = []
        for j in range(i + 1):
            remainder = matrix[..., i, j]
            for k in range(j):
                remainder = remainder - row[k] * (row[k] if i == j else rows[j][k])
            row.append(jnp.sqrt(remainder) if i == j else remainder / rows[j][j])
        rows.append(row)
    zero = jnp.zeros_like(matrix[..., 0, 0])
    return jnp.stack([jnp.stack([*row, *[zero] * (d - len(row))], -1) for row in rows], -2)


def solve(lower: jax.Array, right: jax.Array, transposed: bool = False,
          many: bool = False) -> jax.Array:
    """Returns lower⁻¹ right, or lower⁻ᵀ right, (..., d, n).

    Args:
        lower: (..., d, d). right: (..., d, n). many: as in `cholesky`.
    """
    d = lower.shape[-1]
    if d > MAX_UNROLLED or lower.ndim < 3 and not many:
        return solve_triangular(lower, right, lower=True, trans=int(transposed))
    solution: dict[int, jax.Array] = {}
    for i in reversed(range(d)) if transposed else range(d):
        remainder = right[..., i, :]
        for k, known in solution.items():
            remainder = remainder - lower[..., max(i, k), min(i, k), None] * known
        solution[i] = remainder / lower[..., i, i, None]
    return jnp.stack([solution[i] for i in range(d)], -2)


UNSPLIT = 512  # rows up to which an inverse is made at once: smaller parts compile for longer


def inverse_product(lower: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns L⁻¹ and P⁻¹ = L⁻ᵀ L⁻¹ of a lower triangular L, (..., d, d).

    Large ones by halves, of L = [[A, 0], [B, C]] with E = −C⁻¹ B A⁻¹,

        L⁻¹ = [[A⁻¹, 0], [E, C⁻¹]],    L⁻ᵀ L⁻¹ = [[A⁻ᵀ A⁻¹ + Eᵀ E, Eᵀ C⁻¹], [C⁻ᵀ E, C⁻ᵀ C⁻¹]],

    which are products of matrices: a fifth of the arithmetic of two whole triangular systems of d
    right-hand sides is left out, and products are quicker than systems.

    Source: Higham (2002), "Accuracy and Stability of Numerical Algorithms", section 14.2.
    """
    d = lower.shape[-1]
    if d <= UNSPLIT:
        unit = jnp.broadcast_to(jnp.eye(d, dtype=lower.dtype), lower.shape)
        inverse = solve_triangular(lower, unit, lower=True)
        return inverse, jnp.swapaxes(inverse, -1, -2) @ inverse
    m = d // 2
    (a, gram_a), (c, gram_c) = (inverse_product(lower[..., s, s])
                                for s in (slice(m), slice(m, None)))
    # folded into a product, a transposition makes it twice as slow
    below = -(c @ (lower[..., m:, :m] @ a))
    above = lax.optimization_barrier(jnp.swapaxes(below, -1, -2))
    corner = lax.optimization_barrier(jnp.swapaxes(c, -1, -2)) @ below
    return (_by_blocks(a, jnp.zeros_like(above), below, c),
            _by_blocks(gram_a + above @ below, jnp.swapaxes(corner, -1, -2), corner, gram_c))


def _by_blocks(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> jax.Array:
    return jnp.concatenate([jnp.concatenate([a, b], -1), jnp.concatenate([c, d], -1)], -2)


CORES = 8  # with more threads than calls that can meet, none blocks
WORK = 150_000  # multiplications of a batch from which it is taken apart

_GUARDED: contextvars.ContextVar[bool] = contextvars.ContextVar("guarded", default=False)


@functools.cache
def entries() -> tuple[dict, dict]:
    """JAX's table of lowerings for the CPU, and primitive → the entry that takes batches apart;
    none where nothing is to be taken apart."""
    if "lapack" in OFF or jax.default_backend() != "cpu" or (os.cpu_count() or 1) > CORES:
        return {}, {}
    try:
        table, lower, primitives = compat.cpu_lowerings()
        return table, {p: type(table[p])(rule=_looped(p, table[p].rule, lower),
                                         inline=table[p].inline) for p in primitives}
    except (ImportError, AttributeError, KeyError, TypeError) as error:
        warnings.warn(
            f"probml does not know the LAPACK (linear algebra) calls of JAX {jax.__version__} "
            f"({error}). Models with many large matrices may hang on machines with few cores. "
            "Install an older version, pip install 'jax<0.12'",
            stacklevel=2,
        )
        return {}, {}


def _install() -> Callable[[], object]:
    table, ours = entries()
    originals = {primitive: table[primitive] for primitive in ours}
    table.update(ours)
    return lambda: table.update(originals)


_INSTALLED = SharedChange(_install)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Programs that are lowered inside take large batches apart; all others keep what they have."""
    with assigned(_GUARDED, True), _INSTALLED():
        yield


def _looped(primitive: Primitive, rule: Callable, lower_function: Callable) -> Callable:
    """The lowering of a factorisation: its own rule for one matrix, a loop over a large batch."""

    def lower(context: Any, *operands: jax.Array, **parameters: object):
        shape = context.avals_in[-1].shape
        batch = math.prod(shape[:-2])
        small = batch <= 1 or batch * shape[-2] ** 2 * max(shape[-2:]) < WORK
        if not _GUARDED.get() or small:
            return rule(context, *operands, **parameters)

        def loop(*arrays: jax.Array):
            flat = tuple(a.reshape(-1, *a.shape[-2:]) for a in arrays)
            out = jax.lax.map(lambda each: primitive.bind(*each, **parameters), flat)
            return jax.tree.map(lambda leaf: leaf.reshape(*shape[:-2], *leaf.shape[1:]), out)

        return lower_function(loop, multiple_results=primitive.multiple_results)(
            context, *operands)

    return lower
