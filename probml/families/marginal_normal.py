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
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from probml.families import log_linear
from probml.families.recursions import at_once, inverted
from probml.numerics.logs import LOG_TWO_PI

# unseen coordinates a row, for which a program is made each
SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
UNROLLED = 6  # sizes up to this are written out
# these too, where so many tiles are worth a longer program
UNROLLED_FOR_MANY_TILES, MIN_TILES = 8, 2**8
HELD = 2**16  # numbers of matrices that are worked on together


@jax.tree_util.register_static
@dataclass(frozen=True)
class Tiles:
    """How rows stand whose vectors have the same unseen coordinates: behind one another, in tiles
    of so many rows.

    Attributes:
        rows: of a tile, where 0, 1, ... coordinates of it are unseen, up to the most that are:
            powers of 2, of which none is larger than the one before.
    """

    rows: tuple[int, ...]

    def of(self, size: int) -> int:
        """Rows of a tile of which at most so many coordinates are unseen."""
        return self.rows[min(size, len(self.rows) - 1)]


class Unseen(NamedTuple):
    """Which coordinates of a vector are unseen, for rows of cells."""

    order: jax.Array  # (b, cells, m) their indices first; behind them, any others
    count: jax.Array  # (b, cells) how many they are
    # (b,) the most in the row's cells; None where all rows take the program of m
    most: jax.Array | None
    tiles: Tiles | None = None  # None: rows stand as they come


def sizes(most: int, d: int) -> tuple[int, ...]:
    """The sizes up to the first that holds `most` of d coordinates."""
    smaller = tuple(size for size in SIZES if size < min(most, d))
    return (*smaller, next((size for size in SIZES if size >= most and size <= d), d))


def locate(mask: np.ndarray, switch: bool, every: bool = False) -> Unseen:
    """Where vectors are partially observed, computed on the host: (b, cells, d) bool → Unseen.

    Args:
        switch: let every chunk of rows choose the program of its own size.
        every: of other rows, which are not here, any coordinate may be unseen.
    """
    count = (~mask).sum(-1, dtype=np.int32)
    m = sizes(mask.shape[-1] if every else int(count.max(initial=1)), mask.shape[-1])[-1]
    order = np.argsort(mask, -1, kind="stable")[..., :m].astype(np.int32)
    return Unseen(order, count, count.max(1) if switch else None)


def evidence(precision: jax.Array, linear: jax.Array, x: jax.Array, unseen: Unseen):
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
def _evidence(precision: jax.Array, linear: jax.Array, x: jax.Array, unseen: Unseen):
    return _choose(_value, precision, linear, x, unseen)


def _backward(saved: tuple, slope: jax.Array):
    precision, linear, x, unseen = saved
    return (*_choose(functools.partial(_slopes, slope), precision, linear, x, unseen), None, None)


_evidence.defvjp(lambda *operands: (_evidence(*operands), operands), _backward)


def _choose(function: Callable, precision: jax.Array, linear: jax.Array, x: jax.Array,
            unseen: Unseen):
    """function at the smallest size that holds the unseen coordinates of every row, with rows in
    tiles, (tiles, rows of a tile, ...), each with the coordinates of its first row."""
    order, count, most, tiles = unseen

    def at(size: jax.Array, precision: jax.Array, linear: jax.Array, x: jax.Array,
           order: jax.Array, count: jax.Array):
        tile = tiles.of(size) if tiles else 1
        x = x.reshape(-1, tile, x.shape[-1])
        return function(precision, linear, x, order[::tile, :size], count[::tile])

    if most is None:
        return at(order.shape[-1], precision, linear, x, order, count)
    grid = (0, *sizes(order.shape[-1], linear.shape[0]))
    branches = [functools.partial(at, size) for size in grid]
    return lax.switch(jnp.searchsorted(jnp.asarray(grid), most.max()), branches, precision, linear,
                      x, order, count)


def _value(precision: jax.Array, linear: jax.Array, x: jax.Array, order: jax.Array,
           count: jax.Array):
    """(tiles, rows, d), (tiles, m), (tiles,) → (tiles · rows, p)."""
    written = _written_out(order.shape[-1], len(x))
    value = _values(written, precision, linear, x, order, count)
    return value.reshape(-1, value.shape[-1])


def _values(written: jax.Array, precision: jax.Array, linear: jax.Array, x: jax.Array,
            order: jax.Array, count: jax.Array):
    p, (t, m) = linear.shape[-1], order.shape
    if m == 0:
        return jnp.zeros((*x.shape[:2], p), x.dtype)
    if (x.shape[1] == 1 or not written) and t > _rows(m, p):
        parts = lax.map(lambda part: _values(written, precision, linear, *part),
                        _split_tiles(m, p, x, order, count))
        return parts.reshape(-1, *parts.shape[2:])[:t]
    is_unseen, r = _residual(precision, linear, x, order, count)
    if not written:
        inverse, log = _swept(precision, order, is_unseen)
        value = jnp.einsum("itbp,ijtp,jtbp->tbp", r, inverse, r) - log[:, None]
    else:
        c, log = _inverse(precision, order, is_unseen)
        value = sum(r[i] * (c[i, i] * r[i] + 2 * sum(c[i, j] * r[j] for j in range(i)))
                    for i in range(m)) - log
    return 0.5 * value + 0.5 * LOG_TWO_PI * count[:, None, None]


def _slopes(slope: jax.Array, precision: jax.Array, linear: jax.Array, x: jax.Array,
            order: jax.Array, count: jax.Array):
    """Σ over rows of slope × the gradient: −½ (e eᵀ + C) and −e xᵀ in the precision, e = C r in the
    linear part."""
    return _summed(_written_out(order.shape[-1], len(x)), slope.reshape(*x.shape[:2], -1),
                   precision, linear, x, order, count)


def _summed(written: jax.Array, slope: jax.Array, precision: jax.Array, linear: jax.Array,
            x: jax.Array, order: jax.Array, count: jax.Array):
    (d, p), (t, m) = linear.shape, order.shape
    if m == 0:
        return jnp.zeros_like(precision), jnp.zeros_like(linear)
    if (x.shape[1] == 1 or not written) and t > _rows(m, p):
        def add(total: jax.Array, part: jax.Array):
            piece = _summed(written, part[0], precision, linear, *part[1:])
            return jax.tree.map(jnp.add, total, piece), ()

        blank = jnp.zeros_like(precision), jnp.zeros_like(linear)
        return lax.scan(add, blank, _split_tiles(m, p, slope, x, order, count))[0]
    is_unseen, r = _residual(precision, linear, x, order, count)
    # one triangle, twice: the precision is symmetric
    code = _codes(order, is_unseen, d, (d * d, d * d))
    if not written:
        c, _ = _swept(precision, order, is_unseen)
        e = jnp.einsum("ijtp,jtbp->itbp", c, r)
        weighted_e = slope * e
        second = slope.sum(1) * c + jnp.einsum("itbp,jtbp->ijtp", weighted_e, e)
        second = [(-0.5 - 0.5 * (i != j)) * second[i, j] for i in range(m) for j in range(i + 1)]
    else:
        c, _ = _inverse(precision, order, is_unseen)
        e = [sum(c[max(i, j), min(i, j)] * r[j] for j in range(m)) for i in range(m)]
        weighted_e, weight = [slope * each for each in e], slope.sum(1)
        second = [(-0.5 - 0.5 * (i != j)) * (weight * c[i, j][:, 0] + (weighted_e[i] * e[j]).sum(1))
                  for i in range(m) for j in range(i + 1)]
        weighted_e = jnp.stack(weighted_e)
    # what no coordinate stands for goes to a place of its own
    total = jnp.zeros((d * d + 1, p), x.dtype).at[code.reshape(-1)].add(
        jnp.concatenate(second))[:-1]
    if x.shape[1] > 1:
        cross, first = _crossed(weighted_e, x, order)
        return total - cross, first
    flat_index = (d * jnp.arange(t) + order.T).reshape(-1)
    scattered = jnp.zeros((t * d, p), x.dtype).at[flat_index].add(weighted_e.reshape(-1, p))
    scattered = scattered.reshape(t, d * p)
    return total - (x[:, 0].T @ scattered).reshape(d * d, p), scattered.sum(0).reshape(d, p)


def _crossed(weighted_e: jax.Array, x: jax.Array, order: jax.Array):
    """Σ over rows of e xᵀ and of e at the coordinates that e is of, tile by tile: (m, tiles, rows,
    p) → (d · d, p), (d, p)."""
    (m, t, b, p), d = weighted_e.shape, x.shape[-1]
    columns = jnp.concatenate([x, jnp.ones((t, b, 1), x.dtype)], -1)
    by_tile = jnp.moveaxis(weighted_e, 0, 2).reshape(t, b, m * p)
    cross = jnp.einsum("tbq,tbd->tqd", by_tile, columns).reshape(t * m, p * (d + 1))
    total = jnp.zeros((d, p * (d + 1)), x.dtype).at[order.reshape(-1)].add(cross)
    total = total.reshape(d, p, d + 1)
    return jnp.swapaxes(total[..., :d], 1, 2).reshape(d * d, p), total[..., d]


def _rows(m: jax.Array, p: jax.Array):
    """Tiles whose matrices stay in cache while they are worked on: a power of 2."""
    return 1 << max(HELD // (m * m * p), 1).bit_length() - 1


def _written_out(m: jax.Array, t: jax.Array):
    return m <= UNROLLED or m <= UNROLLED_FOR_MANY_TILES and t >= MIN_TILES


def _split_tiles(m: jax.Array, p: jax.Array, *arrays: jax.Array):
    """Tiles in pieces of so many, (pieces, tiles, ...); the last is filled up with zeros: rows of
    which nothing is unseen."""
    size = _rows(m, p)
    return tuple(jnp.pad(a, ((0, -len(a) % size),) + ((0, 0),) * (a.ndim - 1)).reshape(
        -1, size, *a.shape[1:]) for a in arrays)


def _residual(precision: jax.Array, linear: jax.Array, x: jax.Array, order: jax.Array,
              count: jax.Array):
    """Which of a tile's places hold an unseen coordinate, (m, tiles, 1), and r there, (m, tiles,
    rows, p)."""
    (d, p), (t, m), b = linear.shape, order.shape, x.shape[1]
    is_unseen = (jnp.arange(m)[:, None] < count)[..., None]
    if b == 1:
        resid = (linear.reshape(1, d * p) - x[:, 0] @ precision.reshape(d, d * p)).reshape(t * d, p)
        resid = resid[d * jnp.arange(t) + order.T][:, :, None]
    else:
        # (P, h) by coordinates, then components: of each tile the rows that are asked for
        by_coord = jnp.swapaxes(precision.reshape(d, d, p), 1, 2)
        table = jnp.concatenate([-by_coord, linear[..., None]], -1).reshape(d, p * (d + 1))
        tables = table[order].reshape(t, m * p, d + 1)
        columns = jnp.concatenate([x, jnp.ones((t, b, 1), x.dtype)], -1)
        resid = jnp.einsum("tbd,tqd->tbq", columns, tables).reshape(t, b, m, p)
        resid = jnp.moveaxis(resid, 2, 0)
    return is_unseen, jnp.where(is_unseen[:, :, None], resid, 0.0)


def _codes(order: jax.Array, is_unseen: jax.Array, d: int, blank: jax.Array):
    """Where pairs i ≥ j of a tile's coordinates stand among d · d, (pairs, tiles); `blank` without
    a coordinate: for two different ones, and for one."""
    return jnp.stack([jnp.where(is_unseen[i, :, 0], order[:, i] * d + order[:, j], blank[i == j])
                      for i in range(order.shape[-1]) for j in range(i + 1)])


def _inverse(precision: jax.Array, order: jax.Array, is_unseen: jax.Array):
    """C by pairs i ≥ j and log|P_uu| of tiles, (tiles, 1, p) each. Places without a coordinate are
    those of an identity."""
    d, (p, m) = int(math.isqrt(len(precision))), (precision.shape[-1], order.shape[-1])
    table = jnp.concatenate([precision, jnp.zeros((1, p), precision.dtype),
                             jnp.ones((1, p), precision.dtype)])
    pairs = [table[code] for code in _codes(order, is_unseen, d, (d * d, d * d + 1))]
    entries = [each[:, None] for each in at_once(inverted, *pairs)]
    places = ((i, j) for i in range(m) for j in range(i + 1))
    return dict(zip(places, entries, strict=False)), sum(map(jnp.log, entries[len(pairs):]))


def _swept(precision: jax.Array, order: jax.Array, is_unseen: jax.Array):
    """C (m, m, b, p) and log|P_uu| (b, p) by Gauss–Jordan sweeps in a loop: slower than written
    out, and as short for any size."""
    d, m = int(math.isqrt(len(precision))), order.shape[-1]
    index, pair_mask = order.T, is_unseen[:, None] & is_unseen[None]
    full = jnp.where(pair_mask, precision[index[:, None] * d + index[None]],
                     jnp.eye(m, dtype=precision.dtype)[..., None, None])

    def sweep(t: jax.Array, carry: tuple):
        full, log = carry
        row = lax.dynamic_index_in_dim(full, t, 0, keepdims=False)  # (m, b, p)
        pivot = lax.dynamic_index_in_dim(row, t, 0)
        scaled = row / pivot
        at_t = (jnp.arange(m) == t)[:, None, None]
        swept = jnp.where(at_t[None], scaled[:, None], jnp.where(
            at_t[:, None], scaled[None], full - row[:, None] * scaled[None]
        ))
        return jnp.where(at_t[None] & at_t[:, None], -1 / pivot, swept), log + jnp.log(pivot[0])

    # coordinates stand first, and behind the last of any row there is nothing to sweep
    steps = is_unseen.sum(0).max()
    full, log = lax.fori_loop(0, steps, sweep, (full, jnp.zeros(full.shape[2:], full.dtype)))
    return -full, log


def _conditioned(covariance: jax.Array, mask: jax.Array):
    """Σ swept on the seen coordinates: Σ_us Σ_ss⁻¹ in its rows u and columns s, −Σ_ss⁻¹ in s and s;
    and log|Σ_ss|.

    Sweeps and not LAPACK: of a batch as large as the rows jaxlib (0.10) makes tasks for its own
    threads and waits for them on one, so that two such calls at once block each other for ever on
    two cores.
    """
    d = covariance.shape[-1]
    full = jnp.broadcast_to(covariance,
                            (*jnp.broadcast_shapes(covariance.shape[:-2], mask.shape[:-1]), d, d))
    mask = jnp.broadcast_to(mask, full.shape[:-1])

    def sweep(t: jax.Array, carry: tuple):
        full, log = carry
        chosen = lax.dynamic_index_in_dim(mask, t, -1)  # (..., 1)
        row = lax.dynamic_index_in_dim(full, t, -2, keepdims=False)  # (..., d)
        column = lax.dynamic_index_in_dim(full, t, -1, keepdims=False)
        pivot = jnp.where(chosen, lax.dynamic_index_in_dim(row, t, -1), 1.0)
        at_t = jnp.arange(d) == t
        swept = full - column[..., :, None] * (row / pivot)[..., None, :]
        swept = jnp.where(at_t, (column / pivot)[..., :, None], swept)
        swept = jnp.where(at_t[:, None], (row / pivot)[..., None, :], swept)
        swept = jnp.where(at_t & at_t[:, None], (-1 / pivot)[..., None], swept)
        return jnp.where(chosen[..., None], swept, full), log + jnp.where(chosen, jnp.log(pivot),
                                                                          0.0)[..., 0]

    return lax.fori_loop(0, d, sweep, (full, jnp.zeros(full.shape[:-2], full.dtype)))


def log_density(loc: jax.Array, covariance: jax.Array, x: jax.Array, mask: jax.Array,
                df: jax.Array | None = None):
    """log density of the seen coordinates under a multivariate normal, or Student t with df degrees
    of freedom; any batch axes.

    Args:
        loc, x, mask: (..., d); covariance: (..., d, d) (the t's scale matrix).
    """
    swept, log = _conditioned(covariance, mask)
    diff = jnp.where(mask, x - loc, 0.0)
    square = -(diff * (swept @ diff[..., None])[..., 0]).sum(-1)
    size = mask.sum(-1)
    if df is None:
        return -0.5 * (square + log + size * LOG_TWO_PI)
    normaliser = log_linear.rising(df / 2, size / 2) - 0.5 * size * jnp.log(df * math.pi)
    return normaliser - 0.5 * log - 0.5 * (df + size) * jnp.log1p(square / df)


def fill(value: jax.Array, covariance: jax.Array, x: jax.Array, mask: jax.Array):
    """x with its unseen coordinates moved along with the seen ones: value + Σ_us Σ_ss⁻¹ (x −
    value)_s.

    With value = loc it is the conditional mean; with a draw of the whole vector, a conditional draw
    (Matheron's rule; Hoffman & Ribak 1991). A row of which nothing is seen keeps `value`.
    """
    swept, _ = _conditioned(covariance, mask)
    diff = jnp.where(mask, x - value, 0.0)
    return jnp.where(mask, x, value + (swept @ diff[..., None])[..., 0])
