"""Factors, which are named log tables: checks, products, and the result of an elimination.

How elimination reduces the states of a variable: to their sum, or to their maximum.

Every schedule (buckets, levels, cells) multiplies factors and then reduces states; the pair of the
two operations is a commutative semiring (Aji & McEliece 2000). With sums elimination computes the
evidence, with maxima the most probable states.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from probml.errors import counted, listed
from probml.numerics.logs import capped, huge, log_sum, maximum, straight_through


class Semiring(NamedTuple):
    """A way to reduce the states along an axis.

    Args:
        logs: (log weights, axis) → their log sum or maximum over the axis.
        additive: whether it is a sum, which matrix products compute.
    """

    logs: Callable[[jax.Array, int], jax.Array]
    additive: bool


def _highest(log: jax.Array, axis: int) -> jax.Array:
    return maximum(log, axis)[0]


SUM = Semiring(log_sum, True)
MAX = Semiring(_highest, False)


class Factor(NamedTuple):
    """A non-negative table in natural logs: -inf is impossible, +inf counts as a huge finite
    number."""

    log: jax.Array  # a rows axis of size 1 (shared by all rows) or n, then one axis per name
    names: tuple[str, ...]
    indicator: bool = False  # whether all logs are 0 (possible) or −∞ (impossible)


def indicator(allowed: jax.Array, name: str) -> Factor:
    """The factor that is 1 where a state is allowed, (rows, states) bool, and else 0."""
    return Factor(jnp.where(allowed, 0.0, -jnp.inf), (name,), True)


class Swept(NamedTuple):
    """The result of an elimination.

    Args:
        remaining: the factors over the names that stay, and the scales that were divided out.
        backtrack: (possible (rows,) bool, key or None) → name → states (rows,) int32 of every
            eliminated name, chosen from the last to the first given those already chosen: the best
            after maxima; with a key, a draw after sums. Ties go to the lowest index; impossible
            rows have states 0.
    """

    remaining: list[Factor]
    backtrack: Callable[[jax.Array, jax.Array | None], dict[str, jax.Array]]


def checked(factors: Iterable[Factor], order: Sequence[str],
             complete: bool = False) -> list[Factor]:
    """The factors, with a ValueError where they do not agree with each other or the order."""
    factors = [Factor(jnp.asarray(f.log), tuple(f.names), f.indicator) for f in factors]
    sizes, rows = {}, 1
    for f in factors:
        if f.log.ndim != len(f.names) + 1 or len(set(f.names)) < len(f.names):
            raise ValueError(f"the table of log probabilities (factor) over {listed(f.names)}: the "
                             f"array has the shape {f.log.shape}. Give it one axis for the rows of "
                             "the data, and one for each distinct name.")
        if f.log.shape[0] not in (1, rows) and rows != 1:
            raise ValueError(f"the table of log probabilities (factor) over {listed(f.names)} has "
                             f"{counted(f.log.shape[0], 'row')}, but another table has {rows}. "
                             f"Give each table {counted(rows, 'row')}, or 1 row that applies to "
                             "all.")
        rows = max(rows, f.log.shape[0])
        for name, size in zip(f.names, f.log.shape[1:], strict=True):
            if sizes.setdefault(name, size) != size:
                raise ValueError(f"the table of log probabilities (factor) over {listed(f.names)} "
                                 f"has {counted(size, 'state')} of '{name}', but another table has "
                                 f"{sizes[name]}. Give '{name}' the same states in all tables.")
    unknown = [name for name in order if name not in sizes]
    missing = sorted(set(sizes) - set(order)) if complete else []
    if unknown or missing or len(set(order)) < len(order):
        raise ValueError(f"elimination order: expected {'all' * complete or 'some'} variables of "
                         f"the factors, {listed(sizes)}, each once, got {listed(order)}. Correct "
                         f"the order.")
    return factors


def grouped(scopes: Sequence[tuple], rows: Sequence[int],
            joins: Callable[[int, int], bool] = lambda i, host: True) -> list[list[int]]:
    """Numbers of tables in groups that are multiplied out into one table, that of the first: the
    others are over some of its names. A table that all rows share joins none that differs by row.

    Args:
        joins: (a table, the first of a group) → whether it may join it.
    """
    groups: list[list[int]] = []
    for i in sorted(range(len(scopes)), key=lambda i: (len(scopes[i]), rows[i]), reverse=True):
        host = next((g for g in groups if set(scopes[i]) <= set(scopes[g[0]])
                     and rows[i] <= rows[g[0]] and joins(i, g[0])), None)
        groups.append([i]) if host is None else host.append(i)
    return groups


def product(factors: list[Factor]) -> Factor:
    """The product of all factors; where it is impossible no gradient flows, also not to the factors
    that were possible there."""
    factors = factors or [Factor(jnp.zeros(1), ())]
    names = tuple(dict.fromkeys(u for f in factors for u in f.names))
    total = add([f.log for f in factors], [f.names for f in factors], names)
    total = jnp.where(total > -jnp.inf, total, -jnp.inf)
    return Factor(straight_through(total, jnp.where(total >= huge(total) / 2, jnp.inf, total)),
                  names)


def add(arrays: Sequence[jax.Array], scopes: Sequence[tuple], target: Sequence) -> jax.Array:
    """The sum of log tables over the axes of `target`; +inf is capped, so that -inf wins over it
    and no NaN appears."""
    total = None
    # shared tables first
    for array, scope in sorted(zip(arrays, scopes, strict=True), key=lambda pair: pair[0].shape[0]):
        array = jnp.transpose(capped(array),
                              (0, *(1 + scope.index(u) for u in target if u in scope)))
        array = jnp.expand_dims(array, [1 + i for i, u in enumerate(target) if u not in scope])
        total = array if total is None else total + array
    return total
