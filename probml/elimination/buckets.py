"""Bucket elimination (Dechter 1999), one name after the other: sums by matrix products or
log-sum-exp, maxima, and draws backwards."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from probml.elimination import orders
from probml.elimination.factor import Factor, Swept, add, grouped
from probml.elimination.orders import Bucket
from probml.elimination.semiring import Semiring
from probml.numerics.logs import exp_below, finite_max, huge, least, log_of, log_sum, maximum


def sweep(factors: Sequence[Factor], order: Sequence[str], semiring: Semiring,
          log_space: bool = False) -> Swept:
    """Eliminate `order`; see elimination.py for `log_space`."""
    seen: dict[str, tuple] = {}  # name → the others of its bucket, and its tables or best state
    scales: dict[int, list[jax.Array]] = {}  # by rows, so that shared tables are scaled once

    def step(bucket: Bucket, arrays: tuple, logs: tuple) -> tuple[jax.Array, bool]:
        if not semiring.additive:
            value, arg = _max_step(arrays, bucket.axes)
            seen[bucket.name] = bucket.others, arg
            return value, True
        seen[bucket.name] = bucket.others, (arrays, logs, bucket.axes)
        # nothing is left to multiply by: one logarithm instead of two
        if log_space or (not bucket.others and all(logs)):
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
            others, found = seen[name]
            around = tuple(states[u] for u in others)
            if noise is None:
                states[name] = _look_up(found, around)
            else:
                mine, noise = noise[:, : sizes[name]], noise[:, sizes[name] :]
                states[name] = _pick(*found, around, mine)
        return {name: jnp.where(possible, states[name], 0) for name in order}

    found, left = orders.buckets([f.names for f in factors], order)
    tables = [(f.log, True) for f in factors]  # and whether they are logs
    for bucket in found:
        arrays, logs = zip(*(tables[i] for i in bucket.tables), strict=True)
        tables.append(step(bucket, arrays, logs))
    parts = [Factor(jnp.sum(jnp.stack(each), 0), ()) for each in scales.values()]
    return Swept([*(Factor(array if is_log else log_of(array), names) for (array, is_log), names
                    in ((tables[i], names) for i, names in left)), *parts], follow)


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
    out = [0] * per_row + list(range(1, 1 + max(map(max, scopes))))
    message = jnp.einsum(*operands, out, precision=jax.lax.Precision.HIGHEST,
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
