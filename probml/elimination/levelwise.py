"""Variable elimination of hundreds of names: all buckets of one level of the elimination tree are
one gather and one reduction.

elimination.py unrolls an einsum for each name: the fastest to run, but a program that grows with
the names (441 names: a minute of compiling). Here the buckets of one level, none of which depends
on another, are concatenated: an entry of a message is a sum of entries of flat pools, found by
tables of indices, reduced over the states of the eliminated name. The program grows with the
levels (a few dozen), and with the buckets that are too wide for such tables. Messages are logs, so
that there is no limit of range; rows are the last axis, so that a gather copies whole rows.

Every factor and every message is read once, by one bucket; a pool holds those that one level reads.
"""

import functools
import math
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.elimination import orders
from probml.elimination.factor import Factor, Semiring, Swept
from probml.jaxpr.memo import memo
from probml.numerics.logs import capped

# entries from which a bucket is reduced by itself, as tensors: faster to run than indices, but
# slower to compile
MIN_TENSOR_ENTRIES = 2**16


class _Read(NamedTuple):
    """How the b buckets of a group read one pool: f sources each, a axes of the message."""

    pool: int
    offset: np.ndarray  # (b, f)
    steps: np.ndarray  # (b, f, a) strides of the message's names
    stride: np.ndarray  # (b, f) stride of the name that goes


class _Group(NamedTuple):
    """Buckets of one level whose name has the same number of states; or one wide bucket."""

    states: int
    rows: bool  # a message for each row; else one for all
    is_wide: bool
    start: np.ndarray  # (b + 1,) where each bucket's message begins
    divide: np.ndarray  # (b, a) entry // divide % size is the state of the message's a-th name
    size: np.ndarray  # (b, a)
    names: np.ndarray  # (b, a) which names these are, by number
    eliminated: np.ndarray  # (b,) the name that goes, by number
    reads: tuple[_Read, ...]
    parts: tuple[tuple[int, int], ...]  # (pool, entries) of consecutive parts of the messages


class _Schedule(NamedTuple):
    """Pools are numbered: 2 level + (0 shared, 1 by row), then one for each source of a wide
    bucket."""

    base: tuple[tuple[int, ...], ...]  # pool → the factors it begins with
    levels: tuple[tuple[_Group, ...], ...]
    # messages over names that stay: (pool, entries, names by number)
    remaining: tuple[tuple[int, int, tuple[int, ...]], ...]
    names: tuple  # by number


class _Tree(NamedTuple):
    """The buckets of names in the order of elimination, and what is left; factors and messages by
    number, as `orders.buckets` has them."""

    buckets: list[orders.Bucket]
    remaining: list[int]
    factors: int  # how many: messages are numbered behind them
    size: dict  # name → states
    scopes: tuple[tuple, ...]
    level: list[int]  # of a factor −1
    rows: list[bool]  # whether it differs from row to row
    is_wide: list[bool]  # of buckets

    @property
    def depth(self) -> int:
        return 1 + max(self.level, default=-1)

    def entries(self, scope: tuple) -> int:
        return math.prod(self.size[u] for u in scope)


class _Layout(NamedTuple):
    """Where factors and messages lie, by number: a pool, filled by factors first, then by messages
    as the groups of buckets make them."""

    pool: dict[int, int]
    start: dict[int, int]  # first entry in the pool
    groups: list[list[list[int]]]  # level → buckets that are worked on together
    base: list[list[int]]  # pool → its factors


@memo(128)
def _schedule(scopes: tuple, shapes: tuple, shared: tuple[bool, ...], order: tuple) -> _Schedule:
    """Lay out the elimination of `order`; on the host, once for each factor graph."""
    names = tuple(dict.fromkeys((*order, *(u for scope in scopes for u in scope))))
    number = {u: i for i, u in enumerate(names)}
    tree = _tree(scopes, shapes, shared, order)
    layout = _layout(tree)
    levels = tuple(tuple(_group(tree, layout, number, members) for members in groups)
                   for groups in layout.groups)
    msgs = (len(scopes) + i for groups in layout.groups for members in groups for i in members)
    remaining = tuple((layout.pool[i], tree.entries(tree.scopes[i]),
                       tuple(number[u] for u in tree.scopes[i])) for i in msgs
                      if i in tree.remaining)
    return _Schedule(tuple(map(tuple, layout.base)), levels, remaining, names)


def _tree(scopes: tuple, shapes: tuple, shared: tuple[bool, ...], order: tuple) -> _Tree:
    size = {u: k for scope, shape in zip(scopes, shapes, strict=True)
            for u, k in zip(scope, shape, strict=True)}
    buckets, remaining = orders.buckets(scopes, order)
    tree = _Tree(buckets, [i for i, _ in remaining], len(scopes), size,
                 (*scopes, *(bucket.message_names for bucket in buckets)), [-1] * len(scopes),
                 [not same for same in shared], [])
    for bucket in buckets:
        tree.level.append(1 + max(tree.level[i] for i in bucket.tables))
        tree.rows.append(any(tree.rows[i] for i in bucket.tables))
        tree.is_wide.append(size[bucket.name]
                            * tree.entries(bucket.message_names) >= MIN_TENSOR_ENTRIES)
    return tree


def _layout(tree: _Tree) -> _Layout:
    common = 2 * (tree.depth + 1)  # pools; each source of a wide bucket has one of its own behind
    pool, count, first = dict[int, int](), common, tree.factors
    for bucket, level, wide in zip(tree.buckets, tree.level[first:], tree.is_wide, strict=True):
        for i in bucket.tables:
            pool[i] = count if wide else 2 * level + tree.rows[i]
            count += wide
    sources = sorted(i for i in pool if i < first)
    pool |= {i: 2 * tree.depth + tree.rows[i] for i in tree.remaining}
    by_kind: list[dict] = [{} for _ in range(tree.depth)]
    for i, bucket in enumerate(tree.buckets):
        # buckets with many sources apart: the others need no padding
        bits = max(len(bucket.tables) - 1, 1).bit_length()
        by_kind[tree.level[first + i]].setdefault(
            (tree.size[bucket.name], tree.rows[first + i], tree.is_wide[i] and i, bits),
            []).append(i)
    groups = [[sorted(members, key=lambda i: pool[first + i]) for members in kind.values()]
              for kind in by_kind]
    # a common pool's entry 0 is a neutral 0, for padding
    height, start = [int(p < common) for p in range(count)], {}
    base: list[list[int]] = [[] for _ in range(count)]
    for i in sources:
        base[pool[i]].append(i)
    for i in (*sources, *(first + i for level in groups for members in level for i in members)):
        start[i] = height[pool[i]]
        height[pool[i]] += tree.entries(tree.scopes[i])
    return _Layout(pool, start, groups, base)


def _group(tree: _Tree, layout: _Layout, number: Mapping, members: Sequence[int]) -> _Group:
    """The tables of indices of buckets that are worked on together."""
    axes = max(len(tree.buckets[i].message_names) for i in members)
    divide, sizes, numbers = (np.ones((len(members), axes), np.int32) for _ in range(3))
    sources: dict[int, list[list]] = {}
    for b, i in enumerate(members):
        name, tables, _, neighbours = tree.buckets[i]
        divide[b, : len(neighbours)] = list(_strides(tree, neighbours).values())
        sizes[b, : len(neighbours)] = [tree.size[u] for u in neighbours]
        numbers[b] = 0
        numbers[b, : len(neighbours)] = [number[u] for u in neighbours]
        for table in tables:
            stride = _strides(tree, tree.scopes[table])
            steps = [stride.get(u, 0) for u in neighbours] + [0] * (axes - len(neighbours))
            sources.setdefault(layout.pool[table], [[] for _ in members])[b].append(
                (layout.start[table], steps, stride[name]))
    length, parts = [tree.entries(tree.buckets[i].message_names) for i in members], Counter()
    for i, entries in zip(members, length, strict=True):
        parts[layout.pool[tree.factors + i]] += entries
    one = members[0]
    return _Group(tree.size[tree.buckets[one].name], tree.rows[tree.factors + one],
                  tree.is_wide[one],
                  np.cumsum([0, *length]).astype(np.int32), divide, sizes, numbers,
                  np.array(members, np.int32),
                  tuple(_read(pool, lists, axes) for pool, lists in sorted(sources.items())),
                  tuple(parts.items()))


def _strides(tree: _Tree, scope: tuple) -> dict:
    """Name → how many entries of a table over a scope lie between two of its states."""
    steps = np.cumprod([1, *(tree.size[u] for u in scope[:0:-1])])[::-1]
    return dict(zip(scope, steps.tolist(), strict=True)) if scope else {}


def _read(pool: int, lists: Sequence[list], axes: int) -> _Read:
    """The sources (place, steps, own step) of each bucket, padded by the pool's neutral entry."""
    n_sources = max(map(len, lists))
    padded = [row + [(0, [0] * axes, 0)] * (n_sources - len(row)) for row in lists]
    starts, steps, own_steps = (np.array([[source[c] for source in row] for row in padded],
                                         np.int32)
                                for c in range(3))
    return _Read(pool, starts, steps.reshape(len(lists), n_sources, axes), own_steps)


def _indices(group: _Group, read: _Read) -> np.ndarray:
    """(entries, states, sources) into a pool."""
    bucket = np.repeat(np.arange(len(read.offset)), np.diff(group.start))
    local = np.arange(group.start[-1], dtype=np.int32) - group.start[bucket]
    digit = (local[:, None] // group.divide[bucket]) % group.size[bucket]
    index = read.offset[bucket] + (read.steps[bucket] * digit[:, None, :]).sum(-1, dtype=np.int32)
    return (index[:, None, :] + read.stride[bucket][:, None, :]
            * np.arange(group.states, dtype=np.int32)[:, None])


def _tensor(group: _Group, read: _Read, values: jax.Array) -> jax.Array:
    """The one source of a wide bucket over (names of the message, name that goes, rows), size 1
    where it lacks one."""
    sizes = [*group.size[0].tolist(), group.states]
    steps = [*read.steps[0, 0].tolist(), int(read.stride[0, 0])]
    axes = sorted((axis for axis, step in enumerate(steps) if step), key=lambda axis: -steps[axis])
    values = values.reshape(*(sizes[axis] for axis in axes), -1)
    values = jnp.transpose(values, (*np.argsort(axes).tolist(), len(axes)))
    return jnp.expand_dims(values, [axis for axis, step in enumerate(steps) if not step])


def _totals(group: _Group, pools: Mapping[int, jax.Array]) -> jax.Array:
    """The log of the product of a bucket's factors, (entries, states, rows)."""
    parts: list[jax.Array] = []
    # what all rows share first
    for read in sorted(group.reads, key=lambda read: pools[read.pool].shape[1]):
        values = pools[read.pool]
        parts.append(_tensor(group, read, values) if group.is_wide else
                     values.at[_indices(group, read)].get(mode="promise_in_bounds").sum(2))
    total = functools.reduce(operator.add, parts)
    return total.reshape(-1, group.states, total.shape[-1])


def _upwards(schedule: _Schedule, logs: Sequence[jax.Array],
             semiring: Semiring) -> dict[int, jax.Array]:
    """Every pool, (entries, 1) or (entries, rows)."""
    n_rows, levels = max(log.shape[0] for log in logs), 2 * (len(schedule.levels) + 1)
    pending: list[list] = []
    for number, factors in enumerate(schedule.base):
        pool_rows = n_rows if (number % 2 if number < levels
                               else any(logs[i].shape[0] > 1 for i in factors)) else 1
        flat = [jnp.zeros((pool_rows, 1), logs[0].dtype)] * (number < levels) + [
            logs[i].reshape(pool_rows, -1) for i in factors
        ]
        pending.append([capped(jnp.concatenate(flat, 1).T)] if flat else [])
    pools: dict[int, jax.Array] = {}

    def fill(number: int):
        pools[number] = jnp.concatenate(pending[number]) if len(pending[number]) > 1 else pending[
            number
        ][0]

    for level, groups in enumerate((*schedule.levels, ())):
        fill(2 * level)
        fill(2 * level + 1)
        for group in groups:
            for read in group.reads if group.is_wide else ():
                fill(read.pool)
            message = semiring.logs(_totals(group, pools), 1)
            cuts = np.cumsum([n for _, n in group.parts])[:-1].tolist()
            for (pool, _), part in zip(group.parts, jnp.split(message, cuts) if cuts else [message],
                                       strict=True):
                pending[pool].append(part)
    return pools


def groups(factors: Sequence[Factor], order: Sequence) -> int:
    """The number of steps that eliminating `order` takes."""
    return sum(map(len, _plan(factors, order).levels))


def _plan(factors: Sequence[Factor], order: Sequence) -> _Schedule:
    return _schedule(tuple(f.names for f in factors), tuple(f.log.shape[1:] for f in factors),
                     tuple(f.log.shape[0] == 1 for f in factors), tuple(order))


def sweep(factors: Sequence[Factor], order: Sequence, semiring: Semiring) -> Swept:
    """Eliminate `order`.

    Cost: O(rows × the sum of the cliques' entries × factors in a bucket).
    """
    sizes = {u: k for f in factors for u, k in zip(f.names, f.log.shape[1:], strict=True)}
    schedule, eliminated = _plan(factors, order), set(order)
    remaining = [f for f in factors if eliminated.isdisjoint(f.names)]
    pools = _upwards(schedule, [f.log for f in factors], semiring)
    for number in sorted({number for number, _, _ in schedule.remaining}):
        entries = [(n, names) for pool, n, names in schedule.remaining if pool == number]
        parts = jnp.split(pools[number][1:], np.cumsum([n for n, _ in entries])[:-1].tolist())
        scalars = [part for part, (_, names) in zip(parts, entries, strict=True) if not names]
        if scalars:
            remaining.append(Factor(jnp.concatenate(scalars).sum(0), ()))
        for part, (_, numbers) in zip(parts, entries, strict=True):
            names = tuple(schedule.names[i] for i in numbers)
            if names:
                remaining.append(Factor(part.T.reshape(-1, *(sizes[u] for u in names)), names))

    def follow(possible: jax.Array, key: jax.Array | None) -> dict[str, jax.Array]:
        noise = None if key is None else jax.random.gumbel(
            key, (_choices(schedule), len(possible)), factors[0].log.dtype
        )
        return _backtrack(schedule, pools, possible, noise)

    return Swept(remaining, follow)


def _choices(schedule: _Schedule) -> int:
    """The number of states over all eliminated names: what is drawn takes so many numbers a row."""
    return sum(len(group.eliminated) * group.states for groups in schedule.levels
               for group in groups)


def _backtrack(
    schedule: _Schedule, pools: Mapping[int, jax.Array], possible: jax.Array,
    noise: jax.Array | None = None
) -> dict[str, jax.Array]:
    """A state of every eliminated name, last ones first: the best given those already chosen, or a
    draw where there is noise.

    Args:
        pools: of a sweep by maxima, or by sums for draws.
        possible: (rows,) bool; the others' states are all 0.
        noise: Gumbel noise, (_choices(schedule), rows).

    Returns: name → (rows,) int32; ties go to the lowest index.
    """
    rows = len(possible)
    states = jnp.zeros((len(schedule.names), rows), jnp.int32)
    row, n_used = jnp.arange(rows, dtype=jnp.int32), 0
    for groups in schedule.levels[::-1]:
        for group in groups:
            digit, total = states[group.names], 0.0  # (b, a, rows)
            for read in group.reads:
                values = pools[read.pool]
                index = read.offset[..., None] + jnp.einsum("bfa,bar->bfr", read.steps, digit)
                index = index[:, None] + (
                    read.stride[:, None] * np.arange(group.states, dtype=np.int32)[:, None]
                )[..., None]
                columns = row if values.shape[1] > 1 else jnp.zeros_like(row)
                # (b, states, rows)
                total += values.at[index, columns].get(mode="promise_in_bounds").sum(2)
            if noise is not None:
                count = len(group.eliminated) * group.states
                total, n_used = total + noise[
                    n_used : n_used + count
                ].reshape(len(group.eliminated), group.states, -1), n_used + count
            states = states.at[group.eliminated].set(jnp.argmax(total, 1).astype(jnp.int32))
    # those of `order` are the first names
    count = sum(len(group.eliminated) for groups in schedule.levels for group in groups)
    parts = jax.lax.split(jnp.where(possible, states, 0),
                          [1] * count + [len(states) - count] * (len(states) > count))
    return {name: part.reshape(rows)
            for name, part in zip(schedule.names, parts[:count], strict=False)}
