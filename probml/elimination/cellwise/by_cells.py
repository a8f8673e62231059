"""Sums over discrete variables of many cells, cell by cell: plates within plates, and cells that
are read through an index (tensor variable elimination, Obermeyer et al. 2019).

A part is a table over the states of some variables, for many elements at once, with the cell of
each variable on which an element depends. A variable is summed out where every one of its cells
shares factors with at most one cell of every other variable: products over the elements of a cell
are segment sums of logs, then one log-sum-exp over the states. So the cost is states × cells, not
states^cells.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.elimination.factor import MAX, SUM
from probml.errors import ModelError

NONE = -1  # no cell


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
        own = np.flatnonzero((depends == pattern[:, None]).all(0))
        # an element that does not depend on a variable is the same in all of its states
        log = part.log[tuple(slice(None) if used else 0 for used in pattern)]
        log = log if len(own) == depends.shape[1] else jnp.take(log, own, axis=-1)
        out.append(Part(log, {name: cells[own] for (name, cells), used
                              in zip(part.cells.items(), pattern, strict=True) if used}))
    return out


def sum_out(parts: Sequence[Part], sizes: Mapping[str, tuple[int, int]], most: int,
            best: Collection[str] = ()) -> jax.Array:
    """log Σ over all variables of the product of the parts: one number.

    Args:
        sizes: name → (cells, states).
        most: entries that a table may have.
        best: variables that are maximised, once all others are summed out; the gradient of the
            result is then one-hot in their best values, of equal ones in the lowest.

    Raises:
        Tangled: each variable left has a cell that meets two cells of another, or the tables of all
            orders are larger than `most`.

    Cost: Σ over variables of cells × the states of it and of those it meets.
    """
    left = [piece for part in parts for piece in split_by_dependence(part)]
    total, names = jnp.zeros(()), list(sizes)
    while names:
        now = [name for name in names if name not in best] or names
        found = {name: _matching_cells(left, name, sizes) for name in now}
        ways = {name: met for name, met in found.items() if met is not None}
        costs = {name: math.prod(sizes[n][1] for n in (name, *met)) * sizes[name][0]
                 for name, met in ways.items()}
        if min(costs.values(), default=math.inf) > most:
            raise Tangled(names)
        name = min(costs, key=costs.__getitem__)
        semiring = MAX if name in best else SUM
        near = [part for part in left if name in part.cells]
        left = [part for part in left if name not in part.cells]
        joint = _joint(near, name, tuple(ways[name]), sizes)
        message = jnp.moveaxis(semiring.logs(joint, 1), 0, -1)  # states first, then cells
        left += split_by_dependence(Part(message, ways[name]))
        names.remove(name)
    for part in left:
        total += part.log.sum()
    return total


def _matching_cells(parts: Sequence[Part], name: str,
                    sizes: Mapping[str, tuple[int, int]]) -> dict[str, np.ndarray] | None:
    """The cells of other variables that share a factor with each cell of a variable; None where a
    cell shares factors with several of one."""
    count, out = sizes[name][0], {}
    for part in (part for part in parts if name in part.cells):
        own = part.cells[name]
        for other, cells in part.cells.items():
            if other == name:
                continue
            found = out.setdefault(other, np.full(count, NONE))
            found[own] = np.where(found[own] == NONE, cells, found[own])
            if (found[own] != cells).any():
                return None
    return out


def _joint(near: Sequence[Part], name: str, others: tuple[str, ...],
           sizes: Mapping[str, tuple[int, int]]) -> jax.Array:
    """The product of the parts that depend on a variable, for each of its cells: (cells, its
    states, *states of the others)."""
    count, total = sizes[name][0], jnp.zeros(())
    for part in near:
        own = part.cells[name]
        order = (name, *others)
        axes = [part.names.index(n) for n in order if n in part.names]
        log = jnp.transpose(part.log, (len(axes), *axes))
        if not np.array_equal(own, np.arange(count)):
            log = jax.ops.segment_sum(log, own, count)
        shape = [sizes[n][1] if n in part.names else 1 for n in order]
        total = total + log.reshape(count, *shape)
    return jnp.broadcast_to(total, (count, *(sizes[n][1] for n in (name, *others))))
