"""Sums over discrete variables of many cells, cell by cell: plates within plates, and cells that
are read through an index (tensor variable elimination, Obermeyer et al. 2019).

A part is a table over the states of some variables, for many elements at once, with the cell of
each variable on which an element depends. A variable is summed out where every one of its cells
shares factors with at most one cell of every other variable: products over the elements of a cell
are segment sums of logs, then one log-sum-exp over the states. So the cost is states × cells, not
states^cells. A variable whose cells form chains is summed along them once nothing else
depends on it.

Sums over a variable whose cells form chains: the forward algorithm, many chains at once.

    α_1(k) = f_1(k),  α_t(k') = f_t(k') Σ_k α_{t−1}(k) m_t(k, k'),  the sum = Π over chains Σ_k
    α_T(k)

in logs, f the factors of one cell and m those of two neighbours. Cost: cells × states²
(Rabiner 1989).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.elimination.factor import MAX, SUM, Semiring
from probml.errors import ModelError

NONE = -1  # no cell


class Move(NamedTuple):
    """Log factors of pairs of cells of one variable.

    Attributes:
        log: (states of one, states of the other, elements).
        first, second: the two cells of each element, (elements,).
    """

    name: str
    log: jax.Array
    first: np.ndarray
    second: np.ndarray


def find_chains(moves: Sequence[Move], count: int) -> np.ndarray | None:
    """The cells in chains in which each is paired with the next: (chains, most cells of a chain),
    padded with NONE; None where the pairs form no chains."""
    pairs = {(min(pair), max(pair)) for move in moves
             for pair in zip(move.first.tolist(), move.second.tolist(), strict=True)}
    neighbours: list[list[int]] = [[] for _ in range(count)]
    for low, high in sorted(pairs):
        neighbours[low].append(high)
        neighbours[high].append(low)
    if any(low == high for low, high in pairs) or max(map(len, neighbours)) > 2:
        return None
    rows, unvisited = [], set(range(count))
    for start in (cell for cell in range(count) if len(neighbours[cell]) < 2):
        row, cell = [], start if start in unvisited else None
        while cell is not None:
            row.append(cell)
            unvisited.discard(cell)
            cell = next((other for other in neighbours[cell] if other in unvisited), None)
        if row:
            rows.append(row)
    if unvisited:  # a ring
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
    positions = np.nonzero(order != NONE)
    row[order[positions]], rank[order[positions]] = positions
    log = jnp.zeros((rows * (steps - 1), states, states))
    for move in moves:
        is_reversed = rank[move.second] < rank[move.first]
        logs = jnp.moveaxis(move.log, -1, 0)
        if is_reversed.any():
            logs = jnp.where(is_reversed[:, None, None], jnp.swapaxes(logs, 1, 2), logs)
        first = np.where(is_reversed, move.second, move.first)
        index = row[first] * (steps - 1) + rank[first]
        log = log + jax.ops.segment_sum(logs, index, len(log))
    pair_logs = jnp.moveaxis(log.reshape(rows, steps - 1, states, states), 1, 0)
    cell_logs = jnp.moveaxis(jnp.concatenate([own, jnp.zeros((1, states), own.dtype)])[order], 1, 0)

    def onward(alpha: jax.Array, xs: tuple) -> tuple[jax.Array, None]:
        move, emission, exists = xs
        new = semiring.logs(alpha[:, :, None] + move, 1) + emission
        return jnp.where(exists[:, None], new, alpha), None

    exists = jnp.asarray(order.T[1:] != NONE)
    last, _ = jax.lax.scan(onward, cell_logs[0], (pair_logs, cell_logs[1:], exists))
    return semiring.logs(last, 1).sum()


class Part(NamedTuple):
    """Log factors of many elements.

    Attributes:
        log: (*states of the names, elements).
        cells: name → the cell on which each element depends, (elements,), or NONE.
    """

    log: jax.Array
    cells: dict[str, np.ndarray]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.cells)


class Tangled(ModelError):
    """No order eliminates the variables cell by cell."""

    def __init__(self, names: Sequence[str]):
        super().__init__(", ".join(names))
        self.names = tuple(names)


def split_by_dependence(part: Part) -> list[Part]:
    """A part split into parts whose elements all depend on all of their variables."""
    if not part.cells:
        return [part]
    depends = np.stack([cells != NONE for cells in part.cells.values()])
    out = []
    for pattern in np.unique(depends, axis=1).T:
        elements = np.flatnonzero((depends == pattern[:, None]).all(0))
        # an element that does not depend on a variable is the same in all of its states
        log = part.log[tuple(slice(None) if used else 0 for used in pattern)]
        log = log if len(elements) == depends.shape[1] else jnp.take(log, elements, axis=-1)
        out.append(Part(log, {name: cells[elements] for (name, cells), used
                              in zip(part.cells.items(), pattern, strict=True) if used}))
    return out


def sum_out(parts: Sequence[Part], sizes: Mapping[str, tuple[int, int]], max_entries: int,
            moves: Sequence[Move] = (), best: Collection[str] = ()) -> jax.Array:
    """log Σ over all variables of the product of the parts: one number.

    Args:
        sizes: name → (cells, states).
        max_entries: entries that a table may have.
        moves: factors of pairs of cells of one variable.
        best: variables that are maximised, once all others are summed out; the gradient of the
            result is then one-hot in their best values, of equal ones in the lowest.

    Raises:
        Tangled: each variable left has a cell that meets two cells of another, or the tables of all
            orders are larger than `max_entries`.

    Cost: Σ over variables of cells × the states of it and of those it meets.
    """
    remaining = [piece for part in parts for piece in split_by_dependence(part)]
    linked: dict[str, list[Move]] = {}
    for move in moves:
        linked.setdefault(move.name, []).append(move)
    order = {name: find_chains(pairs, sizes[name][0]) for name, pairs in linked.items()}
    total, names = jnp.zeros(()), list(sizes)
    while names:
        candidates = [name for name in names if name not in best] or names
        matching = {name: _matching_cells(remaining, name, sizes) for name in candidates}
        feasible = {name: partners for name, partners in matching.items() if partners is not None
                    and (name not in linked or not partners and order[name] is not None)}
        costs = {name: math.prod(sizes[n][1] for n in (name, *partners)) * sizes[name][0]
                 for name, partners in feasible.items()}
        if min(costs.values(), default=math.inf) > max_entries:
            raise Tangled(names)
        name = min(costs, key=costs.__getitem__)
        semiring = MAX if name in best else SUM
        touching = [part for part in remaining if name in part.cells]
        remaining = [part for part in remaining if name not in part.cells]
        joint = _joint(touching, name, tuple(feasible[name]), sizes)
        chains = order.get(name)
        if chains is not None:
            total += sum_along(linked[name], joint, chains, semiring)
        else:
            message = jnp.moveaxis(semiring.logs(joint, 1), 0, -1)  # states first, then cells
            remaining += split_by_dependence(Part(message, feasible[name]))
        names.remove(name)
    for part in remaining:
        total += part.log.sum()
    return total


def _matching_cells(parts: Sequence[Part], name: str,
                    sizes: Mapping[str, tuple[int, int]]) -> dict[str, np.ndarray] | None:
    """The cells of other variables that share a factor with each cell of a variable; None where a
    cell shares factors with several of one."""
    count, out = sizes[name][0], {}
    for part in (part for part in parts if name in part.cells):
        indices = part.cells[name]
        for other, cells in part.cells.items():
            if other == name:
                continue
            partner = out.setdefault(other, np.full(count, NONE))
            partner[indices] = np.where(partner[indices] == NONE, cells, partner[indices])
            if (partner[indices] != cells).any():
                return None
    return out


def _joint(touching: Sequence[Part], name: str, others: tuple[str, ...],
           sizes: Mapping[str, tuple[int, int]]) -> jax.Array:
    """The product of the parts that depend on a variable, for each of its cells: (cells, its
    states, *states of the others)."""
    count, total = sizes[name][0], jnp.zeros(())
    for part in touching:
        indices = part.cells[name]
        order = (name, *others)
        axes = [part.names.index(n) for n in order if n in part.names]
        log = jnp.transpose(part.log, (len(axes), *axes))
        if not np.array_equal(indices, np.arange(count)):
            log = jax.ops.segment_sum(log, indices, count)
        shape = [sizes[n][1] if n in part.names else 1 for n in order]
        total = total + log.reshape(count, *shape)
    return jnp.broadcast_to(total, (count, *(sizes[n][1] for n in (name, *others))))
