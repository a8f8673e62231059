"""Sums over many small tables with the rows last: every operation goes through all rows of a chunk
side by side, whatever the states are.

Bucket elimination (Dechter 1999) forwards; backwards the posterior of each bucket is made once, and
what a factor's gradient asks for are its margins (Jensen, Lauritzen & Olesen 1990, whose separators
divide what came back by what went forward):

    m(o) = Σ_x Φ(o, x),     B(o, x) = Φ(o, x) · M(o) / m(o),     ∂ log Z / ∂ log f = Σ B

Φ is the product of a bucket's factors, m its message over the others' states o, which goes on as
m / max m, and M the margin that the bucket that took the message finds for it. So nothing is
divided but what all margins of a bucket share, and a zero stays one.

A product of matrices serves tables of many states better, where rows come first (elimination.py).
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from probml.elimination import orders
from probml.elimination.factor import Factor, grouped
from probml.jaxpr.memo import memo
from probml.numerics.logs import finite, huge, least, log_of

ROWS = 64  # from which the fixed cost of an operation is negligible
NAMES = 4  # with fewer, matrix products are as fast
PRECISE = jax.lax.Precision.HIGHEST
ENTRIES = 2**10  # of the largest table, at the most


class _Bucket(NamedTuple):
    """The tables that meet where a name goes: their numbers, and the axes of each among (*others,
    name); in groups that are one table each."""

    tables: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    groups: tuple[tuple[int, ...], ...]  # of these, by place: those over names of their first
    sizes: tuple[int, ...]  # of others, then of the name
    message: int  # its own number


class _Schedule(NamedTuple):
    """The buckets of an elimination order; tables are numbered, the factors first and then the
    messages.

    Attributes:
        remaining: the tables that stay, with their names.
        indicators: the factors that are 1 or 0.
    """

    buckets: tuple[_Bucket, ...]
    remaining: tuple[tuple[int, tuple[str, ...]], ...]
    indicators: tuple[int, ...]


@memo(128)
def _schedule(scopes: tuple, shapes: tuple, order: tuple, indicators: tuple,
              single: bool) -> _Schedule:
    chain = itertools.chain.from_iterable
    size = dict(zip(chain(scopes), chain(shape[1:] for shape in shapes), strict=True))
    rows = [shape[0] for shape in shapes]
    bucket_list, remaining = orders.buckets(scopes, order)
    buckets: list[_Bucket] = []
    for name, members, axes, others in bucket_list:
        def joins(j: int, first: int, members: tuple[int, ...] = members) -> bool:
            # messages in double precision reach far enough as they are
            return single or members[first] < len(scopes) and (members[j] < len(scopes)
                                                               or rows[members[j]] == 1)

        groups = grouped(axes, [rows[i] for i in members], joins)
        buckets.append(_Bucket(members, axes, tuple(map(tuple, groups)),
                               tuple(size[u] for u in (*others, name)), len(rows)))
        rows.append(max(rows[i] for i in members))
    return _Schedule(tuple(buckets), tuple(remaining), indicators)


def fits(factors: Sequence[Factor], order: Sequence[str]) -> bool:
    """Whether a sum over NAMES or more has many rows, and tables of few entries."""
    rows = max((f.log.shape[0] for f in factors), default=1)
    if rows < ROWS:
        return False
    schedule = _cached_schedule(factors, order)
    return all(math.prod(bucket.sizes) <= ENTRIES for bucket in schedule.buckets)


def _cached_schedule(factors: Sequence[Factor], order: Sequence[str]) -> _Schedule:
    return _schedule(tuple(f.names for f in factors), tuple(f.log.shape for f in factors),
                     tuple(order), tuple(i for i, f in enumerate(factors) if f.indicator),
                     factors[0].log.dtype == jnp.float32)


def sum_out(factors: Sequence[Factor], order: Sequence[str]) -> list[Factor]:
    """The factors that are left when `order` is summed out; what was scaled out among them.

    Cost: O(rows × the sum of the cliques' entries × factors in a bucket).
    """
    schedule = _cached_schedule(factors, order)
    *logs, scale = _remaining_logs(schedule, [f.log for f in factors])
    return [*(Factor(log, names) for log, (_, names) in zip(logs, schedule.remaining, strict=True)),
            Factor(scale, ())]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _remaining_logs(schedule: _Schedule, logs: list[jax.Array]) -> list[jax.Array]:
    """The logs of the remaining tables, and of the scales that were divided out."""
    return _forward(schedule, logs)[0]


def _forward(schedule: _Schedule, logs: list[jax.Array]) -> tuple[list[jax.Array], tuple]:
    inputs = [jnp.moveaxis(jnp.minimum(log, huge(log)), 0, -1) for log in logs]
    messages: dict[int, jax.Array] = {}
    products, raw, scale = [], {}, jnp.zeros(1, logs[0].dtype)
    # On a CPU XLA fuses an array into each of its readers and so computes it once for each, unless
    # the last operation is a quotient or a root: so messages end in a division by a 1 that is no
    # constant to XLA, indicators in a root, and ratios in a division.
    first = inputs[0].ravel()[0]
    one = jnp.where(first > huge(first), 2.0, 1.0).astype(first.dtype)
    for bucket in schedule.buckets:
        tables = []
        for group in bucket.groups:
            table, top = _scaled_product(schedule, bucket, group, inputs, messages)
            tables.append(table)
            scale = scale if top is None else scale + top
        message = _along(_product(bucket, tables), [len(bucket.sizes) - 1], operator.add)
        message = jnp.where(message >= least(message), message, 0) / one
        top = _along(message, range(message.ndim - 1), jnp.maximum)
        top = jnp.where(top > 0, top, 1)
        products.append(tables)
        raw[bucket.message] = message
        messages[bucket.message] = message * (1 / top)
        scale = scale + jnp.log(top)
    remaining = [jnp.moveaxis(log_of(messages[i]), -1, 0) if i in messages else logs[i]
                 for i, _ in schedule.remaining]
    return [*remaining, scale], (products, raw, _Static(log.shape for log in logs))


def _scaled_product(schedule: _Schedule, bucket: _Bucket, group: tuple[int, ...],
                    inputs: list[jax.Array],
                    messages: dict[int, jax.Array]) -> tuple[jax.Array, jax.Array | None]:
    """The product of a group's tables on the axes of the bucket, of weights of at most 1, and the
    logs of their scales, (rows,); of a message or an indicator by itself it is that. It is made in
    logs, where no distance between two tables is too far."""
    count, first = len(bucket.sizes), bucket.tables[group[0]]
    if len(group) == 1 and first in messages:
        return _spread(messages[first], bucket.axes[group[0]], count), None
    if len(group) == 1 and first in schedule.indicators:
        log = inputs[first]
        table = jnp.sqrt((log > -jnp.inf).astype(log.dtype))  # 1 and 0 as they are; see `_forward`
        return _spread(table, bucket.axes[group[0]], count), None
    total: jax.Array = None
    for j in reversed(group):
        i = bucket.tables[j]
        log = _spread(log_of(messages[i]) if i in messages else inputs[i], bucket.axes[j], count)
        total = log if total is None else total + log
    top = finite(_along(total, range(count), jnp.maximum))
    return jnp.exp(jnp.minimum(total - top, 0.0)), top


@jax.tree_util.register_static
class _Static(tuple):
    """Shapes that travel beside arrays."""


def _product(bucket: _Bucket, tables: list[jax.Array]) -> jax.Array:
    """Φ, (*others, name, rows)."""
    # what all rows share first, then small tables
    ordered = sorted(tables, key=lambda table: (table.shape[-1], table.size))
    total = functools.reduce(operator.mul, ordered)
    return jnp.broadcast_to(total, (*bucket.sizes, total.shape[-1]))


def _spread(table: jax.Array, axes: tuple[int, ...], count: int) -> jax.Array:
    """A table over some axes on those of a bucket."""
    table = jnp.transpose(table, (*(axes.index(a) for a in sorted(axes)), len(axes)))
    return jnp.expand_dims(table, [a for a in range(count) if a not in axes])


def _margins(schedule: _Schedule, saved: tuple, slopes: list[jax.Array]) -> tuple:
    """The gradients with respect to all logs."""
    products, messages, shapes = saved
    *table_slopes, scale_slope = slopes
    margins: dict[int, jax.Array] = {}
    for (i, names), slope in zip(schedule.remaining, table_slopes, strict=True):
        # a sum over all states is scaled to 1: its own slope is that of its scale
        margins[i] = jnp.moveaxis(slope, 0, -1) if names or i < len(shapes) else scale_slope
    for bucket, tables in reversed([*zip(schedule.buckets, products, strict=True)]):
        message = messages[bucket.message]
        margin = _sum_to_shape(margins.pop(bucket.message), message.shape)
        ratio = jnp.where(message > 0, margin, 0) / jnp.where(message > 0, message, 1)
        posterior = _product(bucket, tables) * ratio[..., None, :]
        for i, axes in zip(bucket.tables, bucket.axes, strict=True):
            rows = messages[i].shape[-1] if i in messages else shapes[i][0]
            margins[i] = _margin(posterior, axes, rows)
    return ([jnp.moveaxis(margins[i], -1, 0) for i in range(len(shapes))],)


def _margin(posterior: jax.Array, axes: tuple[int, ...], rows: int) -> jax.Array:
    """What `_spread` made a table's axes of, back."""
    count = posterior.ndim - 1
    margin = _along(posterior, [a for a in range(count) if a not in axes], operator.add)
    ranks = sorted(axes)
    margin = jnp.transpose(margin, (*(ranks.index(a) for a in axes), len(axes)))
    return _sum_to_shape(margin, (*margin.shape[:-1], rows))


def _along(array: jax.Array, axes: Sequence[int], combine: Callable) -> jax.Array:
    """A reduction by `combine` along some axes, unrolled: XLA (jaxlib 0.10) vectorises that, and no
    reduction."""
    for axis in sorted(axes, reverse=True):
        array = functools.reduce(combine, [jax.lax.index_in_dim(array, i, axis, False)
                                           for i in range(array.shape[axis])])
    return array


def _sum_to_shape(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Summed over rows, where all rows share a table."""
    if array.shape[-1] == shape[-1]:
        return array
    if shape[-1] > 1:
        return jnp.broadcast_to(array, shape)
    # a product, into which XLA fuses nothing: a reduction into which something is fused is scalar
    flat = array.reshape(-1, array.shape[-1])
    return jnp.matmul(flat, jnp.ones(flat.shape[1], flat.dtype), precision=PRECISE).reshape(shape)


_remaining_logs.defvjp(_forward, _margins)
