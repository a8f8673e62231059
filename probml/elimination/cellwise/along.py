"""Sums over a variable whose cells form chains: the forward algorithm, many chains at once.

    α_1(k) = f_1(k),  α_t(k') = f_t(k') Σ_k α_{t−1}(k) m_t(k, k'),  the sum = Π over chains Σ_k
    α_T(k)

in logs, f the factors of one cell and m those of two neighbours. Cost: cells × states²
(Rabiner 1989).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.elimination.semiring import Semiring

NONE = -1  # no cell


class Move(NamedTuple):
    """Log factors of pairs of cells of one variable.

    Attributes:
        log: (states of one, states of the other, elements).
        one, other: the two cells of each element, (elements,).
    """

    name: str
    log: jax.Array
    one: np.ndarray
    other: np.ndarray


def find_chains(moves: Sequence[Move], count: int) -> np.ndarray | None:
    """The cells in chains in which each is paired with the next: (chains, most cells of a chain),
    padded with NONE; None where the pairs form no chains."""
    pairs = {(min(pair), max(pair)) for move in moves
             for pair in zip(move.one.tolist(), move.other.tolist(), strict=True)}
    near: list[list[int]] = [[] for _ in range(count)]
    for low, high in sorted(pairs):
        near[low].append(high)
        near[high].append(low)
    if any(low == high for low, high in pairs) or max(map(len, near)) > 2:
        return None
    rows, left = [], set(range(count))
    for start in (cell for cell in range(count) if len(near[cell]) < 2):
        row, cell = [], start if start in left else None
        while cell is not None:
            row.append(cell)
            left.discard(cell)
            cell = next((other for other in near[cell] if other in left), None)
        if row:
            rows.append(row)
    if left:  # a ring
        return None
    longest = max(map(len, rows))
    return np.array([row + [NONE] * (longest - len(row)) for row in rows])


def sum_along(moves: Sequence[Move], own: jax.Array, order: np.ndarray,
              semiring: Semiring) -> jax.Array:
    """log of the sum over all cells' states: one number.

    Args:
        own: the log factors of single cells, (cells, states).
        order: the chains of cells, as `find_chains` returns them.
    """
    (rows, steps), states = order.shape, own.shape[1]
    row, rank = np.zeros(len(own), int), np.zeros(len(own), int)
    at = np.nonzero(order != NONE)
    row[order[at]], rank[order[at]] = at
    log = jnp.zeros((rows * (steps - 1), states, states))
    for move in moves:
        back = rank[move.other] < rank[move.one]
        each = jnp.moveaxis(move.log, -1, 0)
        if back.any():
            each = jnp.where(back[:, None, None], jnp.swapaxes(each, 1, 2), each)
        first = np.where(back, move.other, move.one)
        place = row[first] * (steps - 1) + rank[first]
        log = log + jax.ops.segment_sum(each, place, len(log))
    moved = jnp.moveaxis(log.reshape(rows, steps - 1, states, states), 1, 0)
    here = jnp.moveaxis(jnp.concatenate([own, jnp.zeros((1, states), own.dtype)])[order], 1, 0)

    def onward(held: jax.Array, now: tuple) -> tuple[jax.Array, None]:
        move, seen, there = now
        new = semiring.logs(held[:, :, None] + move, 1) + seen
        return jnp.where(there[:, None], new, held), None

    there = jnp.asarray(order.T[1:] != NONE)
    last, _ = jax.lax.scan(onward, here[0], (moved, here[1:], there))
    return semiring.logs(last, 1).sum()
