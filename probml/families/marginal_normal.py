"""Unseen coordinates of a multivariate normal, integrated out exactly: marginal densities, and
fills given the seen coordinates.

With P the precision, h = P loc, u the unseen coordinates of a row and x zero there, ∫ p(x) dx_u is

    log p(x) + ½ rᵀ C r − ½ log|P_uu| + ½ |u| log 2π,    C = P_uu⁻¹,   r = (h − P x)_u,

whose gradient with respect to (P, h) is what an E-step needs: E[x xᵀ] and E[x] given the seen
coordinates, the conditional covariance C included (Little & Rubin 2002, section 11.2). Only a
matrix of the unseen coordinates is inverted.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import gammaln

# unseen coordinates a row, for which a program is made each
SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
UNROLLED = 6  # sizes up to this are written out
HELD = 2**15  # numbers of matrices that are swept together


class Unseen(NamedTuple):
    """Which coordinates of a vector are unseen, for rows of cells."""

    order: jax.Array  # (b, cells, m) their indices first; behind them, any others
    count: jax.Array  # (b, cells) how many they are
    # (b,) the most in the row's cells; None where all rows take the program of m
    most: jax.Array | None


def sizes(most: int, d: int) -> tuple[int, ...]:
    """The sizes up to the first that holds `most` of d coordinates."""
    below = tuple(size for size in SIZES if size < min(most, d))
    return (*below, next((size for size in SIZES if size >= most and size <= d), d))


def locate(seen: np.ndarray, switch: bool, every: bool = False) -> Unseen:
    """On the host: (b, cells, d) bool → Unseen.

    Args:
        switch: let every chunk of rows choose the program of its own size.
        every: of other rows, which are not here, any coordinate may be unseen.
    """
    count = (~seen).sum(-1, dtype=np.int32)
    m = sizes(seen.shape[-1] if every else int(count.max(initial=1)), seen.shape[-1])[-1]
    order = np.argsort(seen, -1, kind="stable")[..., :m].astype(np.int32)
    return Unseen(order, count, count.max(1) if switch else None)


def evidence(precision, linear, x, unseen: Unseen):
    """What integrating the unseen coordinates out adds to a log density in natural form, one cell.

    Args:
        precision: (p, d, d), linear: (p, d); x: (b, d), zero where unseen; unseen: of one cell, (b,
            m) and (b,).

    Returns:
        (b, p) nats; exactly 0 for a row that is seen whole.

    Cost: O(b p (d² + m³)), m the most unseen coordinates of a row of this chunk.
    """
    d = linear.shape[-1]
    return _evidence(jnp.transpose(precision, (1, 2, 0)).reshape(d * d, -1), linear.T, x, unseen)


@jax.custom_vjp
def _evidence(precision, linear, x, unseen):
    return _choose(_value, precision, linear, x, unseen)


def _forward(precision, linear, x, unseen):
    return _evidence(precision, linear, x, unseen), (precision, linear, x, unseen)


def _backward(kept, slope):
    precision, linear, x, unseen = kept
    return (*_choose(functools.partial(_slopes, slope), precision, linear, x, unseen), None, None)


_evidence.defvjp(_forward, _backward)


def _choose(function, precision, linear, x, unseen: Unseen):
    """function at the smallest size that holds the unseen coordinates of every row."""
    order, count, most = unseen
    if most is None:
        return function(precision, linear, x, order, count)
    each = (0, *sizes(order.shape[-1], linear.shape[0]))
    branches = [functools.partial(lambda s, p, h, x, o, c: function(p, h, x, o[:, :s], c), size)
                for size in each]
    return lax.switch(jnp.searchsorted(jnp.asarray(each), most.max()), branches, precision, linear,
                      x, order, count)


def _value(precision, linear, x, order, count):
    m, b = order.shape[-1], len(x)
    if m == 0:
        return jnp.zeros((b, linear.shape[-1]), x.dtype)
    if _long(m, b, linear.shape[-1]):
        found = lax.map(lambda part: _value(precision, linear, *part),
                        _pieces(m, linear.shape[-1], x, order, count))
        return found.reshape(-1, found.shape[-1])[:b]
    real, r = _residual(precision, linear, x, order, count)
    if m <= UNROLLED:
        pivots, _, y = _factored(_pairs(precision, order, real), r)
        value = sum(y**2 / pivot - jnp.log(pivot) for y, pivot in zip(y, pivots, strict=True))
    else:
        inverse, log = _swept(precision, order, real)
        value = jnp.einsum("ibp,ijbp,jbp->bp", r, inverse, r) - log
    return 0.5 * value + 0.5 * math.log(2 * math.pi) * count[:, None]


def _slopes(slope, precision, linear, x, order, count):
    """Σ over rows of slope × the gradient: −½ (e eᵀ + C) and −e xᵀ in the precision, e = C r in the
    linear part."""
    (d, p), (b, m) = linear.shape, order.shape
    if m == 0:
        return jnp.zeros_like(precision), jnp.zeros_like(linear)
    if _long(m, b, p):
        def add(total, part):
            return jax.tree.map(jnp.add, total, _slopes(part[0], precision, linear, *part[1:])), ()

        blank = jnp.zeros_like(precision), jnp.zeros_like(linear)
        return lax.scan(add, blank, _pieces(m, p, slope, x, order, count))[0]
    real, r = _residual(precision, linear, x, order, count)
    if m <= UNROLLED:
        c, e = _inverted(_pairs(precision, order, real), r)
        # one triangle, twice: the precision is symmetric
        places = [(i, j) for i in range(m) for j in range(i + 1)]
        second = jnp.stack([(1.0 + (i != j)) * (c[i, j] + e[i] * e[j]) for i, j in places])
        e = jnp.stack(e)
        there = jnp.stack([real[i] for i, _ in places])
        code = jnp.stack([order[:, i] * d + order[:, j] for i, j in places])
    else:
        c, _ = _swept(precision, order, real)
        e = jnp.einsum("ijbp,jbp->ibp", c, r)
        second = (c + e[:, None] * e[None]).reshape(m * m, b, p)
        there = (real[:, None] & real[None]).reshape(m * m, b, 1)
        code = (order.T[:, None] * d + order.T[None]).reshape(m * m, b)
    second, weighed = jnp.where(there, -0.5 * slope * second, 0.0), jnp.where(real, slope * e, 0.0)
    # made once, not again in what uses them
    second, weighed = lax.optimization_barrier((second, weighed))
    total = jnp.zeros_like(precision).at[code.reshape(-1)].add(second.reshape(-1, p))
    place = (d * jnp.arange(b) + order.T).reshape(-1)
    spread = jnp.zeros((b * d, p), x.dtype).at[place].add(weighed.reshape(-1, p))
    spread = lax.optimization_barrier(spread).reshape(b, d * p)
    return total - (x.T @ spread).reshape(d * d, p), spread.sum(0).reshape(d, p)


def _rows(m, p):
    """Rows whose matrices stay in cache while they are swept."""
    return max(HELD // (m * m * p), 1)


def _long(m, b, p):
    return m > UNROLLED and b > _rows(m, p)


def _pieces(m, p, *arrays):
    """Rows in pieces of so many, (pieces, rows, ...); the last is filled up with zeros: rows of
    which nothing is unseen."""
    size = _rows(m, p)
    return tuple(jnp.pad(a, ((0, -len(a) % size),) + ((0, 0),) * (a.ndim - 1)).reshape(
        -1, size, *a.shape[1:]) for a in arrays)


def _residual(precision, linear, x, order, count):
    """Which of a row's places hold an unseen coordinate, (m, b, 1), and r there, (m, b, p)."""
    (d, p), (b, m) = linear.shape, order.shape
    real = (jnp.arange(m)[:, None] < count)[..., None]
    left = (linear.reshape(1, d * p) - x @ precision.reshape(d, d * p)).reshape(b * d, p)
    return real, jnp.where(real, left[d * jnp.arange(b) + order.T], 0.0)


def _pairs(precision, order, real):
    """P_uu as arrays (b, p) by pairs i ≥ j; places without a coordinate are those of the unit
    matrix."""
    d, m = int(math.isqrt(len(precision))), order.shape[-1]
    pairs = [(i, j) for i in range(m) for j in range(i + 1)]
    return {(i, j): jnp.where(real[i], precision[order[:, i] * d + order[:, j]], float(i == j))
            for i, j in pairs}


def _factored(block, r):
    """P_uu = L D Lᵀ with unit lower triangular L, and L⁻¹ r, written out: fused loops over rows and
    components."""
    m = len(r)
    pivots, lower, y = [], {}, []
    for j in range(m):
        pivots.append(block[j, j] - sum(lower[j, t] ** 2 * pivots[t] for t in range(j)))
        inverse = 1 / pivots[j]
        for i in range(j + 1, m):
            lower[i, j] = (block[i, j] - sum(lower[i, t] * lower[j, t] * pivots[t]
                                             for t in range(j))) * inverse
        y.append(r[j] - sum(lower[j, t] * y[t] for t in range(j)))
    return pivots, lower, y


def _inverted(block, r):
    """C = L⁻ᵀ D⁻¹ L⁻¹ by pairs i ≥ j, and e = C r."""
    m = len(r)
    pivots, lower, y = lax.optimization_barrier(_factored(block, r))
    inverse, left = [1 / pivot for pivot in pivots], {(i, i): 1.0 for i in range(m)}  # left = L⁻¹
    for i in range(m):
        for j in range(i):
            left[i, j] = -sum(lower[i, t] * left[t, j] for t in range(j, i))
    left, inverse = lax.optimization_barrier((left, inverse))
    c = {(i, j): sum(left[s, i] * left[s, j] * inverse[s] for s in range(i, m)) for i in range(m)
         for j in range(i + 1)}
    return c, [sum(left[s, j] * y[s] * inverse[s] for s in range(j, m)) for j in range(m)]


def _swept(precision, order, real):
    """C (m, m, b, p) and log|P_uu| (b, p) by Gauss–Jordan sweeps in a loop: slower than written
    out, and as short for any size."""
    d, m = int(math.isqrt(len(precision))), order.shape[-1]
    index, both = order.T, real[:, None] & real[None]
    full = jnp.where(both, precision[index[:, None] * d + index[None]],
                     jnp.eye(m, dtype=precision.dtype)[..., None, None])

    def sweep(t, carry):
        full, log = carry
        row = lax.dynamic_index_in_dim(full, t, 0, keepdims=False)  # (m, b, p)
        pivot = lax.dynamic_index_in_dim(row, t, 0)
        scaled = row / pivot
        here = (jnp.arange(m) == t)[:, None, None]
        swept = jnp.where(here[None], scaled[:, None], jnp.where(
            here[:, None], scaled[None], full - row[:, None] * scaled[None]
        ))
        return jnp.where(here[None] & here[:, None], -1 / pivot, swept), log + jnp.log(pivot[0])

    full, log = lax.fori_loop(0, m, sweep, (full, jnp.zeros(full.shape[2:], full.dtype)))
    return -full, log


def _conditioned(covariance, seen):
    """Σ swept on the seen coordinates: Σ_us Σ_ss⁻¹ in its rows u and columns s, −Σ_ss⁻¹ in s and s;
    and log|Σ_ss|.

    Sweeps and not LAPACK: of a batch as large as the rows jaxlib (0.10) makes tasks for its own
    threads and waits for them on one, so that two such calls at once block each other for ever on
    two cores.
    """
    d = covariance.shape[-1]
    full = jnp.broadcast_to(covariance,
                            (*jnp.broadcast_shapes(covariance.shape[:-2], seen.shape[:-1]), d, d))
    seen = jnp.broadcast_to(seen, full.shape[:-1])

    def sweep(t, carry):
        full, log = carry
        chosen = lax.dynamic_index_in_dim(seen, t, -1)  # (..., 1)
        row = lax.dynamic_index_in_dim(full, t, -2, keepdims=False)  # (..., d)
        column = lax.dynamic_index_in_dim(full, t, -1, keepdims=False)
        pivot = jnp.where(chosen, lax.dynamic_index_in_dim(row, t, -1), 1.0)
        here = jnp.arange(d) == t
        swept = full - column[..., :, None] * (row / pivot)[..., None, :]
        swept = jnp.where(here, (column / pivot)[..., :, None], swept)
        swept = jnp.where(here[:, None], (row / pivot)[..., None, :], swept)
        swept = jnp.where(here & here[:, None], (-1 / pivot)[..., None], swept)
        return jnp.where(chosen[..., None], swept, full), log + jnp.where(chosen, jnp.log(pivot),
                                                                          0.0)[..., 0]

    return lax.fori_loop(0, d, sweep, (full, jnp.zeros(full.shape[:-2], full.dtype)))


def log_density(loc, covariance, x, seen, df=None):
    """log density of the seen coordinates under a multivariate normal, or Student t with df degrees
    of freedom; any batch axes.

    Args:
        loc, x, seen: (..., d); covariance: (..., d, d) (the t's scale matrix).
    """
    swept, log = _conditioned(covariance, seen)
    away = jnp.where(seen, x - loc, 0.0)
    square = -(away * (swept @ away[..., None])[..., 0]).sum(-1)
    size = seen.sum(-1)
    if df is None:
        return -0.5 * (square + log + size * math.log(2 * math.pi))
    normaliser = gammaln((df + size) / 2) - gammaln(df / 2) - 0.5 * size * jnp.log(df * math.pi)
    return normaliser - 0.5 * log - 0.5 * (df + size) * jnp.log1p(square / df)


def fill(value, covariance, x, seen):
    """x with its unseen coordinates moved along with the seen ones: value + Σ_us Σ_ss⁻¹ (x −
    value)_s.

    With value = loc it is the conditional mean; with a draw of the whole vector, a conditional draw
    (Matheron's rule; Hoffman & Ribak 1991). A row of which nothing is seen keeps `value`.
    """
    swept, _ = _conditioned(covariance, seen)
    away = jnp.where(seen, x - value, 0.0)
    return jnp.where(seen, x, value + (swept @ away[..., None])[..., 0])
