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

from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp

from probml.elimination import buckets, levelwise, rows_last
from probml.elimination.factor import Factor, Swept, checked, product
from probml.elimination.semiring import MAX, SUM, Semiring

# names from which all buckets of a level are worked on at once (levelwise): less compiling,
# somewhat slower to run
MANY = 64


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
    return product(_summed(checked(factors, order, complete=True), order, log_space)).log


def sum_out(factors: Iterable[Factor], order: Sequence[str], *, log_space: bool = False) -> Factor:
    """Sums out every name of `order`; the product of all that is left, over the remaining names.
    Arguments as in `evidence`."""
    return product(remainder(factors, order, log_space=log_space))


def remainder(factors: Iterable[Factor], order: Sequence[str], *,
              log_space: bool = False) -> list[Factor]:
    """As `sum_out`, but what is left stays a list of factors: many remaining names need no joint
    table."""
    return _summed(checked(factors, order), order, log_space)


def maximise(factors: Iterable[Factor], order: Sequence[str]) -> tuple[jax.Array,
                                                                       dict[str, jax.Array]]:
    """The most probable joint state of each row: max-product, read back by backtracking.

    To sum some names out first, pass `remainder(factors, first)` or `[sum_out(factors, first)]`.
    Returns: the log of the maximum (n,) or (1,), and name -> state, int32 of that shape. Ties go to
    the lowest index, the last name of `order` chosen first; an impossible row has maximum -inf and
    all states 0.
    """
    swept = _swept(checked(factors, order, complete=True), order, MAX)
    value = product(swept.left).log
    return value, swept.follow(value > -jnp.inf, None)


def peak(factors: Iterable[Factor], order: Sequence[str]) -> Factor:
    """Maximises every name of `order` out; the product of all that is left, over the remaining
    names."""
    return product(_swept(checked(factors, order), order, MAX).left)


def maximise_value(factors: Iterable[Factor], order: Sequence[str]) -> jax.Array:
    """The log of the maximum alone, (n,) or (1,); its gradient is one-hot at the state that
    `maximise` returns (hard EM)."""
    return product(_swept(checked(factors, order, complete=True), order, MAX).left).log


def draw(
    factors: Iterable[Factor], order: Sequence[str], key: jax.Array, *, log_space: bool = False
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """One joint sample per row, proportional to the product of the factors: eliminate, then sample
    backwards (Gumbel-max).

    Returns: the log of the sum over all states, and name -> state, int32; each (n,), or (1,) if
    every factor has rows axis 1; an impossible row is all 0.
    """
    swept = _swept(checked(factors, order, complete=True), order, SUM, log_space)
    total = product(swept.left).log
    return total, swept.follow(total > -jnp.inf, key)


def _swept(factors: list[Factor], order: Sequence[str], semiring: Semiring,
           log_space: bool = False) -> Swept:
    """By one schedule or another."""
    if _many(factors, order):
        return levelwise.sweep(factors, order, semiring)
    return buckets.sweep(factors, order, semiring, log_space)


def _summed(factors: list[Factor], order: Sequence[str], log_space: bool) -> list[Factor]:
    """What is left of a sum of which nothing is to be followed back."""
    if not log_space and not _many(factors, order) and rows_last.fits(factors, order):
        return rows_last.sum_out(factors, order)
    return _swept(factors, order, SUM, log_space).left


def _many(factors: list[Factor], order: Sequence[str]) -> bool:
    """Whether to work level by level: many names, and a tree with many buckets a level; a chain has
    one."""
    return len(order) > MANY and levelwise.groups(factors, order) <= len(order) / 2
