"""Sums over many small tables with the rows last: every operation goes through all rows of a chunk
side by side, whatever the states are.

Bucket elimination (Dechter 1999) forwards; backwards the posterior of each bucket is made once, and
what a factor's gradient asks for are its margins (Jensen, Lauritzen & Olesen 1990, whose separators
divide what came back by what went forward):

    m(o) = Σ_x Φ(o, x) / top,     B(o, x) = Φ(o, x) · M(o) / (m(o) top),     ∂ log Z / ∂ log f = Σ B

Φ is the product of a bucket's factors, m its message over the others' states o, and M the margin
that the bucket that took the message finds for it. So nothing is divided but what all margins of a
bucket share, and a zero stays one.

A product of matrices serves tables of many states better, where rows come first (buckets.py).
"""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from probml.elimination.factor import Factor
from probml.numerics.logs import finite, huge, least, log_of

ROWS = 64  # from which what all operations cost by themselves is little
NAMES = 4  # of fewer, products of matrices are as quick
PRECISE = jax.lax.Precision.HIGHEST
ENTRIES = 2**10  # of a table that is met, at the most


class _Bucket(NamedTuple):
    """The tables that meet where a name goes: their numbers, the axes of each among (*others,
    name), and which of them lead with rows... all static."""

    tables: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]  # of others, then of the name
    message: int  # its own number


class _Schedule(NamedTuple):
    """How an order goes; tables are numbered, those given first and then messages.

    Attributes:
        left: the tables that stay, with their names.
    """

    buckets: tuple[_Bucket, ...]
    left: tuple[tuple[int, tuple[Any, ...]], ...]


@functools.lru_cache(maxsize=128)
def _schedule(scopes: tuple, shapes: tuple, order: tuple) -> _Schedule:
    size = {u: k for scope, shape in zip(scopes, shapes, strict=True)
            for u, k in zip(scope, shape, strict=True)}
    held = dict(enumerate(scopes))
    buckets: list[_Bucket] = []
    for name in order:
        near = tuple(i for i, scope in held.items() if name in scope)
        others = tuple(dict.fromkeys(u for i in near for u in held[i] if u != name))
        place = {u: i for i, u in enumerate((*others, name))}
        number = len(scopes) + len(buckets)
        buckets.append(_Bucket(near, tuple(tuple(place[u] for u in held[i]) for i in near),
                               tuple(size[u] for u in (*others, name)), number))
        held = {i: scope for i, scope in held.items() if i not in near} | {number: others}
    return _Schedule(tuple(buckets), tuple(held.items()))


def fits(factors: Sequence[Factor], order: Sequence[Any]) -> bool:
    """Whether a sum over `order` is such work: many rows and names, and tables of few entries."""
    rows = max((f.log.shape[0] for f in factors), default=1)
    if rows < ROWS or len(order) < NAMES:
        return False
    found = _planned(factors, order)
    return all(math.prod(bucket.sizes) <= ENTRIES for bucket in found.buckets)


def _planned(factors: Sequence[Factor], order: Sequence[Any]) -> _Schedule:
    return _schedule(tuple(f.names for f in factors), tuple(f.log.shape[1:] for f in factors),
                     tuple(order))


def sum_out(factors: Sequence[Factor], order: Sequence[Any]) -> list[Factor]:
    """The factors that are left when `order` is summed out; what was scaled out among them.

    Cost: O(rows × the sum of the cliques' entries × factors in a bucket).
    """
    found = _planned(factors, order)
    *logs, scale = _left(found, [f.log for f in factors])
    return [*(Factor(log, names) for log, (_, names) in zip(logs, found.left, strict=True)),
            Factor(scale, ())]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _left(schedule: _Schedule, logs: list[jax.Array]) -> list[jax.Array]:
    """The logs of what stays, and of what was scaled out."""
    return _forward(schedule, logs)[0]


def _forward(schedule: _Schedule, logs: list[jax.Array]) -> tuple[list[jax.Array], tuple]:
    tables, inverses, scale = {}, [], jnp.zeros(1, logs[0].dtype)
    met = {i for bucket in schedule.buckets for i in bucket.tables}
    for i in range(len(logs)):
        if i in met:
            tables[i], top = _linear(logs[i])
            scale = scale + top
    for bucket in schedule.buckets:
        message = _along(_product(bucket, tables), [len(bucket.sizes) - 1], operator.add)
        top = _along(message, range(message.ndim - 1), jnp.maximum)
        top = jnp.where(top >= least(top), top, 1)
        inverses.append(1 / top)
        tables[bucket.message] = jnp.where(message >= least(message), message * inverses[-1], 0)
        scale = scale + jnp.log(top)
    left = [jnp.moveaxis(log_of(tables[i]), -1, 0) if i >= len(logs) else logs[i]
            for i, _ in schedule.left]
    return [*left, scale], (tables, inverses, _Static(log.shape for log in logs))


@jax.tree_util.register_static
class _Static(tuple):
    """Shapes that travel beside arrays."""


def _linear(log: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A log table, (rows, *states), as weights of at most 1, rows last, and the logs of their
    scales, (rows,)."""
    log = jnp.moveaxis(jnp.minimum(log, huge(log)), 0, -1)
    top = finite(_along(log, range(log.ndim - 1), jnp.maximum))
    return jnp.exp(jnp.minimum(log - top, 0.0)), top


def _product(bucket: _Bucket, tables: dict[int, jax.Array]) -> jax.Array:
    """Φ, (*others, name, rows)."""
    total = None
    # what all rows share first, then small tables
    for axes, table in sorted(((axes, tables[i]) for i, axes in
                               zip(bucket.tables, bucket.axes, strict=True)),
                              key=lambda each: (each[1].shape[-1], each[1].size)):
        table = _spread(table, axes, len(bucket.sizes))
        total = table if total is None else total * table
    return jnp.broadcast_to(total, (*bucket.sizes, total.shape[-1]))


def _spread(table: jax.Array, axes: tuple[int, ...], count: int) -> jax.Array:
    """A table over some axes on those of a bucket."""
    table = jnp.transpose(table, (*(axes.index(a) for a in sorted(axes)), len(axes)))
    return jnp.expand_dims(table, [a for a in range(count) if a not in axes])


def _margins(schedule: _Schedule, kept: tuple, slopes: list[jax.Array]) -> tuple:
    """The gradients with respect to all logs."""
    tables, inverses, shapes = kept
    *of_left, of_scale = slopes
    margins = {}
    for (i, names), slope in zip(schedule.left, of_left, strict=True):
        # a sum over all states is scaled to 1: its own slope is that of its scale
        margins[i] = (jnp.moveaxis(slope, 0, -1) if names or i < len(shapes) else of_scale)
    for bucket, inverse in zip(schedule.buckets[::-1], inverses[::-1], strict=True):
        message = tables[bucket.message]
        margin = _reduced(margins.pop(bucket.message), message.shape)
        ratio = jnp.where(message > 0, margin / jnp.where(message > 0, message, 1), 0)
        belief = _product(bucket, tables) * inverse * ratio[..., None, :]
        for i, axes in zip(bucket.tables, bucket.axes, strict=True):
            margins[i] = _margin(belief, axes, tables[i].shape)
    return ([jnp.moveaxis(margins[i], -1, 0).reshape(shape) if i in margins else jnp.zeros(shape)
             for i, shape in enumerate(shapes)],)


def _margin(belief: jax.Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> jax.Array:
    """What `_spread` made a table's axes of, back."""
    count = belief.ndim - 1
    found = _along(belief, [a for a in range(count) if a not in axes], operator.add)
    ranks = sorted(axes)
    return _reduced(jnp.transpose(found, (*(ranks.index(a) for a in axes), len(axes))), shape)


def _along(array: jax.Array, axes: Sequence[int], both: Callable) -> jax.Array:
    """`both` of all along some axes, written out: XLA (jaxlib 0.10) makes vectors of that, and
    none of a reduction."""
    for axis in sorted(axes, reverse=True):
        array = functools.reduce(both, [jax.lax.index_in_dim(array, i, axis, False)
                                        for i in range(array.shape[axis])])
    return array


def _reduced(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Summed over rows, where a table is all rows'."""
    if array.shape[-1] == shape[-1]:
        return array
    if shape[-1] > 1:
        return jnp.broadcast_to(array, shape)
    # a product, into which XLA fuses nothing: a reduction of what is fused into it makes no vectors
    flat = array.reshape(-1, array.shape[-1])
    return jnp.matmul(flat, jnp.ones(flat.shape[1], flat.dtype), precision=PRECISE).reshape(shape)


_left.defvjp(_forward, _margins)
