"""Variable elimination on the host, for questions that are too small to be worth a program.

The same sums as elimination.py, of NumPy arrays in log space, one variable of one question at a
time: nothing is traced or compiled, so that the first question to a network costs what the sums do.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Table(NamedTuple):
    """A non-negative table in natural logs: (1 or rows, one axis per name)."""

    log: np.ndarray
    names: tuple[str, ...]


def entries(scopes: Sequence[tuple[str, ...]], order: Sequence[str], keep: Sequence[str],
            states: Mapping[str, int]) -> int:
    """How many entries all tables together have that `remainder` makes of factors of these
    scopes, for one row."""
    pool, total = [set(scope) for scope in scopes], 0
    for name in (n for n in order if n not in keep):
        bucket = set().union(*(scope for scope in pool if name in scope))
        total += math.prod(states[n] for n in bucket)
        pool = [scope for scope in pool if name not in scope]
        pool.append(bucket - {name})
    return total + math.prod(states[n] for n in set().union(*pool))


def remainder(factors: Sequence[Table], order: Sequence[str], keep: tuple[str, ...],
              states: Mapping[str, int]) -> np.ndarray:
    """log Σ of the product of the factors over all joint states of the others: (1 or rows, *states
    of `keep`), −inf where it is impossible.

    Args:
        order: all names, in the order in which they are summed out; those of `keep` stay.

    Cost: rows × `entries` exponentials.
    """
    pool = list(factors)
    for name in (n for n in order if n not in keep):
        bucket = [factor for factor in pool if name in factor.names]
        if not bucket:
            continue
        scope = tuple(dict.fromkeys(n for factor in bucket for n in factor.names if n != name))
        total = _product(bucket, (*scope, name))
        top = total.max(-1, keepdims=True)
        top = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            log = np.log(np.exp(total - top).sum(-1)) + top[..., 0]
        pool = [factor for factor in pool if name not in factor.names] + [Table(log, scope)]
    log = _product(pool, keep)
    return np.broadcast_to(log, (len(log), *(states[n] for n in keep)))


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


def _product(factors: Sequence[Table], scope: tuple[str, ...]) -> np.ndarray:
    """The sum of logs over a scope, broadcast."""
    total = np.zeros((1,) * (1 + len(scope)))
    for log, names in factors:
        order = sorted(range(len(names)), key=lambda i: scope.index(names[i]))
        shape = [1] * len(scope)
        for i in order:
            shape[scope.index(names[i])] = log.shape[1 + i]
        total = total + log.transpose(0, *(1 + i for i in order)).reshape(len(log), *shape)
    return total
