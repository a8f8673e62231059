"""Variable elimination on the host, for questions whose sums take less than a program takes to
compile.

The same sums as elimination.py, of NumPy arrays in log space: nothing is traced or compiled. The
tables are first restricted to the observed states, so that only the sums of this question are made.
Where all tables together would be too large, a variable is fixed at each of its states in turn
(`marginals`): the same sums in less memory.

Source: Dechter 1999 (bucket elimination, backwards for all marginals); Pearl 1986 (cutset
    conditioning).
"""

import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from probml.elimination import orders

HELD = 2**26  # entries of all tables in memory


class Table(NamedTuple):
    """A non-negative table in natural logs: (1 or rows, one axis per name)."""

    log: np.ndarray
    names: tuple[str, ...]


class Rows(NamedTuple):
    """Rows in which the same names are observed.

    Args:
        indices: of these among all.
        states: observed name → its states (rows,).
        factors: over the other names.
    """

    indices: np.ndarray
    states: dict[str, np.ndarray]
    factors: list[Table]


def condition_on_known(factors: Sequence[Table], count: int, max_tables: int) -> list[Rows]:
    """The factors without the names that have one possible state in a row, in groups of rows; as
    one group with all names, where those of all groups would be more than `max_tables`."""
    possible: dict[str, np.ndarray] = {}
    for log, names in factors:
        if len(names) == 1:
            possible[names[0]] = possible.get(names[0], True) & (log > -np.inf)
    known = {name: np.broadcast_to(mask.sum(-1) == 1, (count,)) for name, mask in possible.items()}
    single_group = [Rows(np.arange(count), {}, list(factors))]
    if not known:
        return single_group
    groups, member = np.unique(np.stack(list(known.values()), 1), axis=0, return_inverse=True)
    distinct = {name for factor in factors for name in factor.names}
    if len(groups) * len(distinct) > max_tables:
        return single_group
    by_group = []
    for i, pattern in enumerate(groups):
        index = np.flatnonzero(member.reshape(-1) == i)
        states = {name: np.broadcast_to(possible[name].argmax(-1), (count,))[index]
                  for name, is_known in zip(known, pattern, strict=True) if is_known}
        by_group.append(Rows(index, states,
                             [_at_states(factor, states, index) for factor in factors]))
    return by_group


def order_of(factors: Iterable[Table], last: Sequence[str] = ()) -> tuple[str, ...]:
    """An order of all names in which the tables stay small; those of `last` stay to the end."""
    sizes = {n: k for f in factors for n, k in zip(f.names, f.log.shape[1:], strict=True)}
    scopes = tuple(sorted({tuple(sorted(f.names)) for f in factors} | {tuple(sorted(last))}))
    return _best_order(scopes, tuple(sorted(sizes.items())), tuple(last))


@functools.lru_cache(256)
def _best_order(scopes: tuple, sizes: tuple, last: tuple) -> tuple[str, ...]:
    first = [name for name, _ in sizes if name not in last]
    return (*orders.best_order(scopes, dict(sizes), first), *last)


def entries(factors: Sequence[Table], order: Sequence[str]) -> int:
    """How many entries all tables together have that sums of these factors make, for all rows."""
    sizes = {n: k for f in factors for n, k in zip(f.names, f.log.shape[1:], strict=True)}
    rows = max((len(f.log) for f in factors), default=1)
    return rows * orders.work([f.names for f in factors], sizes, order)


def remainder(factors: Sequence[Table], order: Sequence[str], keep: tuple[str, ...],
              states: Mapping[str, int]) -> np.ndarray:
    """log Σ of the product of the factors over all joint states of the others: (1 or rows, *states
    of `keep`), −inf where it is impossible.

    Args:
        order: all names, in the order in which they are summed out; those of `keep` stay.

    Cost: `entries` exponentials.
    """
    buckets, final = orders.buckets([f.names for f in factors], [n for n in order if n not in keep])
    tables = dict(enumerate(factors))
    for number, (name, members, _, others) in enumerate(buckets, len(factors)):
        log, _ = _log_sum(_product([tables.pop(i) for i in members], (*others, name)))
        tables[number] = Table(log, others)
    log = _product([tables[i] for i, _ in final], keep)
    return np.broadcast_to(log, (len(log), *(states[n] for n in keep)))


def marginals(factors: Sequence[Table], order: Sequence[str], wanted: Collection[str],
              cap: int = HELD) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """(log Σ of the product of the factors over all joint states (1 or rows,), the probabilities of
    each name that is wanted (1 or rows, states)): 0 in rows that are impossible.

    Args:
        order: all names, in the order in which they are summed out.
        cap: entries that all tables together may have; else a variable of the largest table is put
            at each of its states in turn.

    Cost: three times `entries` exponentials; times what the variables put at their states cost,
        which is little where they are in most of the large tables.
    """
    if entries(factors, order) <= cap:
        return _marginals(factors, order, wanted)
    name, states = _cheapest_cut(factors, order)
    others = [other for other in order if other != name]
    rows = np.arange(max(len(f.log) for f in factors))
    logs, tables = [], []
    for state in range(states):
        log, post = marginals([_at_states(f, {name: np.full(len(rows), state)}, rows)
                               for f in factors],
                              others, [w for w in wanted if w != name], cap)
        logs.append(log)
        tables.append(post)
    log, share = posterior(np.stack(np.broadcast_arrays(*logs), -1))
    out = {target: sum(share[:, i, None] * table[target] for i, table in enumerate(tables))
           for target in wanted if target != name}
    return log, out | ({name: share} if name in wanted else {})


def posterior(log: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What `remainder` found as (log evidence (rows,), probabilities that sum to one): 0 in rows
    that are impossible."""
    axes = tuple(range(1, log.ndim))
    top = log.max(axes, keepdims=True) if axes else log
    top = np.where(np.isfinite(top), top, 0.0)
    mass = np.exp(log - top)
    total = mass.sum(axes, keepdims=True)
    with np.errstate(divide="ignore"):
        evidence = (np.log(total) + top).reshape(len(log))
    return evidence, mass / np.where(total > 0, total, 1.0)


def _marginals(factors: Sequence[Table], order: Sequence[str],
               wanted: Collection[str]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """As `marginals`, of tables that are all held: sums forwards, then the posterior of each table
    backwards, from that of the table to which its sum went."""
    rank = {name: i for i, name in enumerate(order)}
    buckets, final = orders.buckets([f.names for f in factors], order)
    scopes = {bucket.name: bucket.message_names for bucket in buckets}
    tables = dict(enumerate(factors))
    needed, stack = set(), list(wanted)
    while stack:
        name = stack.pop()
        if name not in needed:
            needed.add(name)
            stack += [min(scopes[name], key=rank.__getitem__)] if scopes[name] else []
    post: dict[str, np.ndarray] = {}
    for number, (name, members, _, others) in enumerate(buckets, len(factors)):
        table = _product([tables.pop(i) for i in members], (*others, name))
        log, mass = _log_sum(table)
        if name in needed:
            table /= np.where(mass > 0, mass, 1.0)[..., None]
            post[name] = table
        tables[number] = Table(log, others)
    for name in (n for n in reversed(order) if n in needed):
        others = scopes[name]
        if others:
            parent = min(others, key=rank.__getitem__)
            scope = (*scopes[parent], parent)
            margin = post[parent].sum(tuple(1 + i for i, n in enumerate(scope) if n not in others))
            names = [n for n in scope if n in others]
            margin = margin.transpose(0, *(1 + names.index(n) for n in others))[..., None]
            if len(margin) <= len(post[name]):
                post[name] *= margin
            else:
                post[name] = post[name] * margin
    evidence = _product([tables[i] for i, _ in final], ())
    return evidence, {name: post[name].sum(tuple(range(1, post[name].ndim - 1)))
                      for name in wanted}


def _cheapest_cut(factors: Sequence[Table], order: Sequence[str]) -> tuple[str, int]:
    """The name of the largest table to be put at each of its states, at the least cost, and the
    number of these."""
    sizes = {n: k for f in factors for n, k in zip(f.names, f.log.shape[1:], strict=True)}
    scopes = [f.names for f in factors]

    def cost(name: str) -> int:
        return sizes[name] * orders.work([[n for n in scope if n != name] for scope in scopes],
                                         sizes, [n for n in order if n != name])

    clique = [n for n in orders.widest(scopes, sizes, order)[0] if sizes[n] > 1]
    best = min(clique, key=cost)
    return best, sizes[best]


def _at_states(factor: Table, states: Mapping[str, np.ndarray], index: np.ndarray) -> Table:
    """A factor in the rows of `index`, with some names at their states there (rows,)."""
    log = factor.log if len(factor.log) == 1 else factor.log[index]
    names = list(factor.names)
    for name in [n for n in names if n in states]:
        codes = states[name]
        table = np.moveaxis(log, 1 + names.index(name), 1)
        names.remove(name)
        if len(log) > 1:
            log = table[np.arange(len(log)), codes]
        elif (codes == codes[0]).all():
            log = table[:, codes[0]]
        else:
            log = table[0, codes]
    return Table(log, tuple(names))


def _log_sum(total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log Σ over the last axis, and what is left in place of `total`, its exponentials over the
    largest of each sum, added up."""
    top = total.max(-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    total -= top
    mass = np.exp(total, out=total).sum(-1)
    with np.errstate(divide="ignore"):
        return np.log(mass) + top[..., 0], mass


def _product(factors: Sequence[Table], scope: tuple[str, ...]) -> np.ndarray:
    """The sum of logs over a scope, broadcast; small tables are added to one another first."""
    total = np.zeros((1,) * (1 + len(scope)))
    for log, names in sorted(factors, key=lambda factor: math.prod(factor.log.shape)):
        order = sorted(range(len(names)), key=lambda i: scope.index(names[i]))
        shape = [1] * len(scope)
        for i in order:
            shape[scope.index(names[i])] = log.shape[1 + i]
        log = log.transpose(0, *(1 + i for i in order)).reshape(len(log), *shape)
        if np.broadcast_shapes(total.shape, log.shape) == total.shape:
            total += log
        else:
            total = total + log
    return total
