"""Variable elimination over named log-tensors: sums, maxima and joint draws over discrete axes;
knows tensors and names, never models.

A joint table is a product of factors; its names are removed one at a time (bucket elimination).
Messages live in linear space, normalised per row with the log scale carried beside them, so that a
step is an einsum and a zero needs no logarithm. Inside a bucket, a factor whose names are a subset
of another's joins it in log space first, unless that would blow a table that all rows share up to
one copy per row.

Range: factors that could not join in log space are each scaled to a maximum of 1 per row, so joint
states that lie further below the product of those maxima than the float reaches (73 nats in
float32, 694 in float64) count as impossible.

Source: Dechter 1999 (bucket elimination); Darwiche 2003 (marginals by differentiation); Eisner 2016
    (the same for forward-backward).

Bucket elimination (Dechter 1999), one name after the other: sums by matrix products or
log-sum-exp, maxima, and draws backwards.
"""

from collections.abc import Iterable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from probml.elimination import levelwise, orders, rows_last
from probml.elimination.factor import (
    MAX,
    SUM,
    Factor,
    Semiring,
    Swept,
    add,
    checked,
    grouped,
    product,
)
from probml.elimination.orders import Bucket
from probml.numerics.logs import exp_below, finite_max, huge, least, log_of, log_sum, maximum


def sweep(factors: Sequence[Factor], order: Sequence[str], semiring: Semiring) -> Swept:
    """Eliminate `order`."""
    records: dict[str, tuple] = {}  # name → the others of its bucket, and its tables or best state
    scales: dict[int, list[jax.Array]] = {}  # by rows, so that shared tables are scaled once

    def step(bucket: Bucket, arrays: tuple, logs: tuple) -> tuple[jax.Array, bool]:
        if not semiring.additive:
            value, arg = _max_step(arrays, bucket.axes)
            records[bucket.name] = bucket.message_names, arg
            return value, True
        records[bucket.name] = bucket.message_names, (arrays, logs, bucket.axes)
        # nothing is left to multiply by: one logarithm instead of two
        if not bucket.message_names and all(logs):
            return _log_step(arrays, bucket.axes), True
        message, scale = _sum_step(arrays, logs, bucket.axes)
        scales.setdefault(scale.shape[0], []).append(scale)
        return message, False

    def follow(possible: jax.Array, key: jax.Array | None) -> dict[str, jax.Array]:
        sizes = {u: k for f in factors for u, k in zip(f.names, f.log.shape[1:], strict=True)}
        # one call: 1,000 would compile for minutes
        noise = None if key is None else jax.random.gumbel(
            key, (len(possible), sum(sizes.values())), factors[0].log.dtype
        )
        states: dict[str, jax.Array] = {}
        for name in reversed(order):
            others, stored = records[name]
            neighbours = tuple(states[u] for u in others)
            if noise is None:
                states[name] = _look_up(stored, neighbours)
            else:
                own_noise, noise = noise[:, : sizes[name]], noise[:, sizes[name] :]
                states[name] = _pick(*stored, neighbours, own_noise)
        return {name: jnp.where(possible, states[name], 0) for name in order}

    buckets, remaining = orders.buckets([f.names for f in factors], order)
    tables = [(f.log, True) for f in factors]  # and whether they are logs
    for bucket in buckets:
        arrays, logs = zip(*(tables[i] for i in bucket.tables), strict=True)
        tables.append(step(bucket, arrays, logs))
    parts = [Factor(jnp.sum(jnp.stack(logs_of), 0), ()) for logs_of in scales.values()]
    return Swept([*(Factor(array if is_log else log_of(array), names) for (array, is_log), names
                    in ((tables[i], names) for i, names in remaining)), *parts], follow)


@partial(jax.jit, static_argnums=(1, 2))
def _sum_step(arrays: tuple, logs: tuple, scopes: tuple) -> tuple[jax.Array, jax.Array]:
    """Sums the last name out of a bucket: the message (linear, maximum 1 per row) and its log scale
    (rows,)."""
    hosts = grouped(scopes, [len(array) for array in arrays])
    scale, operands = jnp.zeros(1, arrays[0].dtype), []
    for group in hosts:
        value, scope = arrays[group[0]], scopes[group[0]]
        if len(group) > 1 or logs[group[0]]:
            total = add([arrays[i] if logs[i] else log_of(arrays[i]) for i in group],
                         [scopes[i] for i in group], scope)
            top = finite_max(total, tuple(range(1, total.ndim)))
            value, scale = exp_below(total - top), scale + top.reshape(-1)
        shared = value.shape[0] == 1
        operands += [value[0] if shared else value,
                     [u + 1 for u in scope] if shared else [0, *(u + 1 for u in scope)]]
    per_row = any(0 in scope for scope in operands[1::2])
    target = [0] * per_row + list(range(1, 1 + max(map(max, scopes))))
    message = jnp.einsum(*operands, target, precision=jax.lax.Precision.HIGHEST,
                         optimize="optimal" if len(hosts) < 5 else "greedy")
    message = message if per_row else message[None]
    top = jnp.max(stop_gradient(message), axis=tuple(range(1, message.ndim)), keepdims=True)
    top = jnp.where(top >= least(top), top, 1)
    return _shrink(message, top), scale + jnp.log(top).reshape(-1)


@partial(jax.jit, static_argnums=1)
def _log_step(arrays: tuple, scopes: tuple) -> jax.Array:
    """Sums the last name out of a bucket in log space."""
    return log_sum(add(arrays, scopes, range(1 + max(map(max, scopes)))), -1)


@partial(jax.jit, static_argnums=1)
def _max_step(arrays: tuple, scopes: tuple) -> tuple[jax.Array, jax.Array]:
    """Maximises the last name out of a bucket; the gradient goes to the lowest maximising index
    alone."""
    return maximum(add(arrays, scopes, range(1 + max(map(max, scopes)))), -1)


@partial(jax.jit, static_argnums=(1, 2))
def _pick(arrays: tuple, logs: tuple, scopes: tuple, states: tuple, noise: jax.Array) -> jax.Array:
    """Samples the last name of a bucket given the states of the others: argmax of log probability +
    Gumbel noise."""
    last = len(states)
    for array, is_log, scope in zip(arrays, logs, scopes, strict=True):
        log = jnp.moveaxis(jnp.minimum(array, huge(array)) if is_log else log_of(array),
                           1 + scope.index(last), -1)
        noise = noise + _look_up(log, tuple(states[u] for u in scope if u != last))
    return jnp.argmax(noise, -1).astype(jnp.int32)


@jax.jit
def _look_up(table: jax.Array, states: tuple) -> jax.Array:
    """table[row, *states[row]] for every row; a table with rows axis 1 serves all rows."""
    if not states:
        return table
    row = jnp.arange(states[0].shape[0], dtype=jnp.int32) if table.shape[0] > 1 else jnp.zeros_like(
        states[0]
    )
    return table.at[(row, *states)].get(mode="promise_in_bounds")


@jax.custom_jvp
def _shrink(message: jax.Array, top: jax.Array) -> jax.Array:
    """message / top, with what lies below the floor set to exactly zero; `top` is a constant."""
    return jnp.where(message >= least(message), message / top, 0)


@_shrink.defjvp
def _shrink_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    # Two factors instead of 1 / top: backwards the first turns the cotangent into a probability, so
    # the second cannot overflow.
    small = _shrink(*primals)
    inverse = stop_gradient(jnp.where(small > 0, 1 / jnp.where(small > 0, primals[0], 1), 0))
    return small, tangents[0] * inverse * stop_gradient(small)


# names from which all buckets of a level are worked on at once (levelwise): less compiling,
# somewhat slower to run
MIN_NAMES_FOR_LEVELS = 64


def evidence(factors: Iterable[Factor], order: Sequence[str]) -> jax.Array:
    """log sum over all joint states of the product of the factors, per row.

    Its gradient with respect to a factor's log values is the factor's posterior marginal table: it
    sums to 1 in each possible row and is zero in an impossible one (evidence -inf); a factor with
    rows axis 1 receives the sum over rows.

    Args:
        factors: the factor graph.
        order: every name of the factors, first to be summed out first; see `best_order`.

    Returns: log evidence in nats, shape (n,), or (1,) if every factor has rows axis 1.
    Raises: ValueError if the factors disagree about a size, or `order` is not exactly their names;
        so does every verb here.
    Cost: O(n x the sum of the cliques' entries); matrix products wherever a shared table meets a
        message.
    """
    return product(_left_after_sum(checked(factors, order, complete=True), order)).log


def sum_out(factors: Iterable[Factor], order: Sequence[str]) -> Factor:
    """Sums out every name of `order`; the product of all that is left, over the remaining names.
    Arguments as in `evidence`."""
    factors = checked(factors, order)
    if len(factors) == 1 and not order:  # nothing is added, so that +inf is itself
        ((log, names, _),) = factors
        return Factor(jnp.where(log > -jnp.inf, log, -jnp.inf), names)
    return product(_left_after_sum(factors, order))


def remainder(factors: Iterable[Factor], order: Sequence[str]) -> list[Factor]:
    """As `sum_out`, but what is left stays a list of factors: many remaining names need no joint
    table."""
    return _left_after_sum(checked(factors, order), order)


def maximise(factors: Iterable[Factor], order: Sequence[str]) -> tuple[jax.Array,
                                                                       dict[str, jax.Array]]:
    """The most probable joint state of each row: max-product, read back by backtracking.

    To sum some names out first, pass `remainder(factors, first)` or `[sum_out(factors, first)]`.
    Returns: the log of the maximum (n,) or (1,), and name -> state, int32 of that shape. Ties go to
    the lowest index, the last name of `order` chosen first; an impossible row has maximum -inf and
    all states 0.
    """
    swept = _forward_pass(checked(factors, order, complete=True), order, MAX)
    value = product(swept.remaining).log
    return value, swept.backtrack(value > -jnp.inf, None)


def peak(factors: Iterable[Factor], order: Sequence[str]) -> Factor:
    """Maximises every name of `order` out; the product of all that is left, over the remaining
    names."""
    return product(_forward_pass(checked(factors, order), order, MAX).remaining)


def maximise_value(factors: Iterable[Factor], order: Sequence[str]) -> jax.Array:
    """The log of the maximum alone, (n,) or (1,); its gradient is one-hot at the state that
    `maximise` returns (hard EM)."""
    return product(_forward_pass(checked(factors, order, complete=True), order, MAX).remaining).log


def draw(factors: Iterable[Factor], order: Sequence[str],
         key: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
    """One joint sample per row, proportional to the product of the factors: eliminate, then sample
    backwards (Gumbel-max).

    Returns: the log of the sum over all states, and name -> state, int32; each (n,), or (1,) if
    every factor has rows axis 1; an impossible row is all 0.
    """
    swept = _forward_pass(checked(factors, order, complete=True), order, SUM)
    total = product(swept.remaining).log
    return total, swept.backtrack(total > -jnp.inf, key)


def _forward_pass(factors: list[Factor], order: Sequence[str], semiring: Semiring) -> Swept:
    """The forward pass of an elimination, level by level where there are many variables, else one
    variable after the other."""
    if _is_levelwise(factors, order):
        return levelwise.sweep(factors, order, semiring)
    return sweep(factors, order, semiring)


def _left_after_sum(factors: list[Factor], order: Sequence[str]) -> list[Factor]:
    """What is left of a sum of which nothing is to be followed back."""
    if (len(order) >= rows_last.NAMES and not _is_levelwise(factors, order)
        and rows_last.fits(factors, order)):
        return rows_last.sum_out(factors, order)
    return _forward_pass(factors, order, SUM).remaining


def _is_levelwise(factors: list[Factor], order: Sequence[str]) -> bool:
    """Whether to work level by level: many names, and a tree with many buckets a level; a chain has
    one."""
    return len(order) > MIN_NAMES_FOR_LEVELS and levelwise.groups(factors, order) <= len(order) / 2
