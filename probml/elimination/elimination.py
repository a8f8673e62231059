"""Variable elimination over named log-tensors: sums, maxima and joint draws over discrete axes;
knows tensors and names, never models.

A joint table is a product of factors; its names are removed one at a time (bucket elimination).
Messages live in linear space, normalised per row with the log scale carried beside them, so that a
step is an einsum and a zero needs no logarithm. Inside a bucket, a factor whose names are a subset
of another's joins it in log space first, unless that would blow a table that all rows share up to
one copy per row.

Range: factors that could not join in log space are each scaled to a maximum of 1 per row, so joint
states that lie further below the product of those maxima than the float reaches (73 nats in
float32, 694 in float64) count as impossible. `log_space=True` sums by log-sum-exp over broadcast
tables instead: no such limit, but every table is held per row (1.3 times slower on 37 nodes of 2-4
states).

Source: Dechter 1999 (bucket elimination); Darwiche 2003 (marginals by differentiation); Eisner 2016
    (the same for forward-backward).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from probml.elimination import levelwise

# names from which all buckets of a level are worked on at once (levelwise): less compiling,
# somewhat slower to run
MANY = 64


class Factor(NamedTuple):
    """A non-negative table in natural logs: -inf is impossible, +inf counts as a huge finite
    number."""

    log: jax.Array  # a rows axis of size 1 (shared by all rows) or n, then one axis per name
    names: tuple[str, ...]


def evidence(factors: Iterable[Factor], order: Sequence[str], *,
             log_space: bool = False) -> jax.Array:
    """log sum over all joint states of the product of the factors, per row.

    Its gradient with respect to a factor's log values is the factor's posterior marginal table: it
    sums to 1 in each possible row and is zero in an impossible one (evidence -inf); a factor with
    rows axis 1 receives the sum over rows.

    Args:
        factors: the factor graph.
        order: every name of the factors, first to be summed out first; see `best_order`.
        log_space: no limit of range, but slower; see the top of this file.

    Returns: log evidence in nats, shape (n,), or (1,) if every factor has rows axis 1.
    Raises: ValueError if the factors disagree about a size, or `order` is not exactly their names;
        so does every verb here.
    Cost: O(n x the sum of the cliques' entries); matrix products wherever a shared table meets a
        message.
    """
    return _product(_eliminate(_checked(factors, order, complete=True), order, log_space)).log


def sum_out(factors: Iterable[Factor], order: Sequence[str], *, log_space: bool = False) -> Factor:
    """Sums out every name of `order`; the product of all that is left, over the remaining names.
    Arguments as in `evidence`."""
    return _product(_eliminate(_checked(factors, order), order, log_space))


def remainder(factors: Iterable[Factor], order: Sequence[str], *,
              log_space: bool = False) -> list[Factor]:
    """As `sum_out`, but what is left stays a list of factors: many remaining names need no joint
    table."""
    return _eliminate(_checked(factors, order), order, log_space)


def maximise(factors: Iterable[Factor], order: Sequence[str]) -> tuple[jax.Array,
                                                                       dict[str, jax.Array]]:
    """The most probable joint state of each row: max-product, read back by backtracking.

    To sum some names out first, pass `remainder(factors, first)` or `[sum_out(factors, first)]`.
    Returns: the log of the maximum (n,) or (1,), and name -> state, int32 of that shape. Ties go to
    the lowest index, the last name of `order` chosen first; an impossible row has maximum -inf and
    all states 0.
    """
    factors = _checked(factors, order, complete=True)
    if _many(factors, order):
        left, pools, schedule = levelwise.sweep(*zip(*factors, strict=True), order, _peak, _capped)
        value = _product([Factor(*pair) for pair in left]).log
        return value, levelwise.backtrack(schedule, pools, value > -jnp.inf)
    (left, best), states = _max_out(factors, order), {}
    value = _product(left).log
    for name in reversed(order):
        others, arg = best[name]
        states[name] = _look_up(arg, tuple(states[u] for u in others))
    return value, {name: jnp.where(value > -jnp.inf, states[name], 0) for name in order}


def peak(factors: Iterable[Factor], order: Sequence[str]) -> Factor:
    """Maximises every name of `order` out; the product of all that is left, over the remaining
    names."""
    return _product(_max_out(_checked(factors, order), order)[0])


def maximise_value(factors: Iterable[Factor], order: Sequence[str]) -> jax.Array:
    """The log of the maximum alone, (n,) or (1,); its gradient is one-hot at the state that
    `maximise` returns (hard EM)."""
    factors = _checked(factors, order, complete=True)
    if _many(factors, order):
        return _product([Factor(*pair) for pair in levelwise.sweep(*zip(*factors, strict=True),
                                                                   order, _peak, _capped)[0]]).log
    return _product(_max_out(factors, order)[0]).log


def draw(
    factors: Iterable[Factor], order: Sequence[str], key: jax.Array, *, log_space: bool = False
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """One joint sample per row, proportional to the product of the factors: eliminate, then sample
    backwards (Gumbel-max).

    Returns: the log of the sum over all states, and name -> state, int32; each (n,), or (1,) if
    every factor has rows axis 1; an impossible row is all 0.
    """
    factors, seen, states = _checked(factors, order, complete=True), {}, {}
    if _many(factors, order):
        left, pools, schedule = levelwise.sweep(*zip(*factors, strict=True), order, _log_sum,
                                                _capped)
        total = _product([Factor(*pair) for pair in left]).log
        noise = jax.random.gumbel(key, (levelwise.choices(schedule), total.shape[0]), total.dtype)
        return total, levelwise.backtrack(schedule, pools, total > -jnp.inf, noise)
    total = _product(_eliminate(factors, order, log_space, seen)).log
    sizes = {u: k for f in factors for u, k in zip(f.names, f.log.shape[1:], strict=True)}
    # one call: 1,000 would compile for minutes
    noise = jax.random.gumbel(key, (total.shape[0], sum(sizes.values())), total.dtype)
    for name in reversed(order):
        others, tables = seen[name]
        mine, noise = noise[:, : sizes[name]], noise[:, sizes[name] :]
        states[name] = _pick(*tables, tuple(states[u] for u in others), mine)
    return total, {name: jnp.where(total > -jnp.inf, states[name], 0) for name in order}


def _checked(factors: Iterable[Factor], order: Sequence[str],
             complete: bool = False) -> list[Factor]:
    """The factors, or a ValueError that says what does not fit."""
    factors = [Factor(jnp.asarray(f.log), tuple(f.names)) for f in factors]
    sizes, rows = {}, 1
    for f in factors:
        if f.log.ndim != len(f.names) + 1 or len(set(f.names)) < len(f.names):
            raise ValueError(f"a factor over {f.names} needs a rows axis and one axis per distinct "
                             f"name; got shape {f.log.shape}.")
        if f.log.shape[0] not in (1, rows) and rows != 1:
            raise ValueError(f"a factor over {f.names} has {f.log.shape[0]} rows; expected 1 or "
                             f"{rows}.")
        rows = max(rows, f.log.shape[0])
        for name, size in zip(f.names, f.log.shape[1:], strict=True):
            if sizes.setdefault(name, size) != size:
                raise ValueError(f"a factor over {f.names} gives '{name}' {size} states; another "
                                 f"gives it {sizes[name]}.")
    unknown = [name for name in order if name not in sizes]
    left = sorted(set(sizes) - set(order)) if complete else []
    if unknown or left or len(set(order)) < len(order):
        raise ValueError(f"the order must name each variable once; not in any factor: {unknown}; "
                         f"missing from the order: {left}.")
    return factors


def _buckets(factors: list[Factor], order: Sequence[str], step: Callable) -> list[Factor]:
    """Calls step(name, other names, arrays, which are logs, scopes) -> (array, is log) for each
    bucket; returns the factors left.

    Scopes are in local numbers, the other names first and `name` last, so that equal steps share
    one jitted trace.
    """
    turn = {name: i for i, name in enumerate(order)}
    buckets: list[list] = [[] for _ in range(len(order) + 1)]  # the last one holds what is left

    def file(array: jax.Array, is_log: bool, names: tuple[str, ...]) -> None:
        buckets[min((turn[u] for u in names if u in turn), default=-1)].append(
            (array, is_log, names)
        )

    for f in factors:
        file(f.log, True, f.names)
    for name, bucket in zip(order, buckets, strict=False):
        arrays, logs, names = zip(*bucket, strict=True)
        others = tuple(dict.fromkeys(u for scope in names for u in scope if u != name))
        place = {u: i for i, u in enumerate((*others, name))}
        scopes = tuple(tuple(place[u] for u in scope) for scope in names)
        file(*step(name, others, arrays, logs, scopes), others)
    return [Factor(array if is_log else _log(array), names) for array, is_log, names in buckets[-1]]


def _eliminate(factors: list[Factor], order: Sequence[str], log_space: bool,
               seen: dict | None = None) -> list[Factor]:
    """Sums out `order`; the factors left, the log scale among them. `seen` collects each bucket for
    `draw`."""
    if _many(factors, order):
        return [Factor(*pair) for pair in levelwise.sweep(*zip(*factors, strict=True), order,
                                                          _log_sum, _capped)[0]]
    scales: dict[int, list[jax.Array]] = {}  # by rows, so that shared tables are scaled once

    def step(name: str, others: tuple, arrays: tuple, logs: tuple,
             scopes: tuple) -> tuple[jax.Array, bool]:
        if seen is not None:
            seen[name] = others, (arrays, logs, scopes)
        # nothing is left to multiply by: one logarithm instead of two
        if log_space or (not others and all(logs)):
            return _log_step(arrays, scopes), True
        message, scale = _sum_step(arrays, logs, scopes)
        scales.setdefault(scale.shape[0], []).append(scale)
        return message, False

    left = _buckets(factors, order, step)
    return left + [Factor(jnp.sum(jnp.stack(parts), 0), ()) for parts in scales.values()]


def _max_out(factors: list[Factor], order: Sequence[str]) -> tuple[list[Factor], dict]:
    """The factors left, and name -> (the names its best state depends on, that state)."""
    best = {}

    def step(name: str, others: tuple, arrays: tuple, logs: tuple,
             scopes: tuple) -> tuple[jax.Array, bool]:
        value, arg = _max_step(arrays, scopes)
        best[name] = others, arg
        return value, True

    return _buckets(factors, order, step), best


def _product(factors: list[Factor]) -> Factor:
    """The product of all factors; where it is impossible no gradient flows, also not to the factors
    that were possible there."""
    factors = factors or [Factor(jnp.zeros(1), ())]
    names = tuple(dict.fromkeys(u for f in factors for u in f.names))
    total = _add([f.log for f in factors], [f.names for f in factors], names)
    total = jnp.where(total > -jnp.inf, total, -jnp.inf)
    return Factor(_straight(total, jnp.where(total >= _huge(total) / 2, jnp.inf, total)), names)


@partial(jax.jit, static_argnums=(1, 2))
def _sum_step(arrays: tuple, logs: tuple, scopes: tuple) -> tuple[jax.Array, jax.Array]:
    """Sums the last name out of a bucket: the message (linear, maximum 1 per row) and its log scale
    (rows,)."""
    hosts: list[list[int]] = []
    for i in sorted(range(len(arrays)), key=lambda i: (len(scopes[i]), arrays[i].shape[0]),
                    reverse=True):
        host = next((g for g in hosts if set(scopes[i]) <= set(scopes[g[0]])
                     and arrays[i].shape[0] <= arrays[g[0]].shape[0]), None)
        hosts.append([i]) if host is None else host.append(i)
    scale, operands = jnp.zeros(1, arrays[0].dtype), []
    for group in hosts:
        value, scope = arrays[group[0]], scopes[group[0]]
        if len(group) > 1 or logs[group[0]]:
            total = _add([arrays[i] if logs[i] else _log(arrays[i]) for i in group],
                         [scopes[i] for i in group], scope)
            top = _finite_max(total, tuple(range(1, total.ndim)))
            value, scale = _exp(total - top), scale + top.reshape(-1)
        shared = value.shape[0] == 1
        operands += [value[0] if shared else value,
                     [u + 1 for u in scope] if shared else [0, *(u + 1 for u in scope)]]
    per_row = any(0 in scope for scope in operands[1::2])
    out = [0] * per_row + list(range(1, 1 + max(map(max, scopes))))
    message = jnp.einsum(*operands, out, precision=jax.lax.Precision.HIGHEST,
                         optimize="optimal" if len(hosts) < 5 else "greedy")
    message = message if per_row else message[None]
    top = jnp.max(stop_gradient(message), axis=tuple(range(1, message.ndim)), keepdims=True)
    top = jnp.where(top >= _floor(top), top, 1)
    return _shrink(message, top), scale + jnp.log(top).reshape(-1)


@partial(jax.jit, static_argnums=1)
def _log_step(arrays: tuple, scopes: tuple) -> jax.Array:
    """Sums the last name out of a bucket in log space."""
    total = _add(arrays, scopes, range(1 + max(map(max, scopes))))
    top = _finite_max(total, -1)
    return _log(jnp.sum(_exp(total - top), -1)) + top[..., 0]


@partial(jax.jit, static_argnums=1)
def _max_step(arrays: tuple, scopes: tuple) -> tuple[jax.Array, jax.Array]:
    """Maximises the last name out of a bucket; the gradient goes to the lowest maximising index
    alone."""
    total = _add(arrays, scopes, range(1 + max(map(max, scopes))))
    arg = jnp.argmax(stop_gradient(total), -1).astype(jnp.int32)
    chosen = jnp.arange(total.shape[-1], dtype=jnp.int32) == arg[..., None]
    return jnp.sum(jnp.where(chosen, total, 0), -1), arg


@partial(jax.jit, static_argnums=(1, 2))
def _pick(arrays: tuple, logs: tuple, scopes: tuple, states: tuple, noise: jax.Array) -> jax.Array:
    """Samples the last name of a bucket given the states of the others: argmax of log probability +
    Gumbel noise."""
    last = len(states)
    for array, is_log, scope in zip(arrays, logs, scopes, strict=True):
        log = jnp.moveaxis(jnp.minimum(array, _huge(array)) if is_log else _log(array),
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


def _add(arrays: Sequence[jax.Array], scopes: Sequence[tuple], target: Sequence) -> jax.Array:
    """The sum of log tables over the axes of `target`; +inf is capped, so that -inf wins over it
    and no NaN appears."""
    total = None
    # shared tables first
    for array, scope in sorted(zip(arrays, scopes, strict=True), key=lambda pair: pair[0].shape[0]):
        array = jnp.transpose(_straight(array, jnp.minimum(array, _huge(array))),
                              (0, *(1 + scope.index(u) for u in target if u in scope)))
        array = jnp.expand_dims(array, [1 + i for i, u in enumerate(target) if u not in scope])
        total = array if total is None else total + array
    return total


def _many(factors: list[Factor], order: Sequence[str]) -> bool:
    """Whether to work level by level: many names, and a tree with many buckets a level; a chain has
    one."""
    return len(order) > MANY and levelwise.groups(*zip(*factors, strict=True),
                                                  order) <= len(order) / 2


def _capped(log: jax.Array) -> jax.Array:
    """+inf counts as a huge number."""
    return _straight(log, jnp.minimum(log, _huge(log)))


def _log_sum(total: jax.Array) -> jax.Array:
    """log Σ exp over the middle axis."""
    top = _finite_max(total, 1)
    return _log(jnp.sum(_exp(total - top), 1)) + top[:, 0]


def _peak(total: jax.Array) -> jax.Array:
    """The maximum over the middle axis; its gradient goes to the lowest maximising index alone."""
    chosen = jnp.argmax(stop_gradient(total), 1, keepdims=True) == jnp.arange(total.shape[1])[:,
                                                                                              None]
    return jnp.sum(jnp.where(chosen, total, 0), 1)


def _exp(below: jax.Array) -> jax.Array:
    """exp of logs less their maximum: never above 1, also where XLA computes the two by different
    roundings (far from 0 in float32)."""
    return jnp.exp(jnp.where(below > 0, 0.0, below))


def _finite_max(log: jax.Array, axis: int | tuple[int, ...]) -> jax.Array:
    """The maximum, kept as axes of size 1; 0 where everything is impossible. Constant under
    differentiation."""
    top = jnp.max(stop_gradient(log), axis=axis, keepdims=True)
    return jnp.where(top > -jnp.inf, top, 0)


def _log(linear: jax.Array) -> jax.Array:
    """log with -inf and a zero gradient at 0 (double where)."""
    return jnp.where(linear > 0, jnp.log(jnp.where(linear > 0, linear, 1)), -jnp.inf)


def _floor(x: jax.Array) -> float:
    """Smallest number told from zero: 1/floor times a row's weight and a sum over states must not
    overflow in a gradient."""
    return float(jnp.finfo(x.dtype).tiny) * 2**20


def _huge(x: jax.Array) -> float:
    """What +inf counts as: a sum of many must not overflow."""
    return float(jnp.finfo(x.dtype).max) * 2.0**-20


@jax.custom_jvp
def _straight(x: jax.Array, shown: jax.Array) -> jax.Array:
    """Shows another value with the derivative of x."""
    return shown


_straight.defjvps(lambda slope, out, x, shown: slope, None)


@jax.custom_jvp
def _shrink(message: jax.Array, top: jax.Array) -> jax.Array:
    """message / top, with what lies below the floor set to exactly zero; `top` is a constant."""
    return jnp.where(message >= _floor(message), message / top, 0)


@_shrink.defjvp
def _shrink_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    # Two factors instead of 1 / top: backwards the first turns the cotangent into a probability, so
    # the second cannot overflow.
    small = _shrink(*primals)
    inverse = stop_gradient(jnp.where(small > 0, 1 / jnp.where(small > 0, primals[0], 1), 0))
    return small, tangents[0] * inverse * stop_gradient(small)
