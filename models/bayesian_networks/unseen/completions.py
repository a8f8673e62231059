"""Rows with unseen cells, each filled in every way it can be, and how probable each way is."""

from dataclasses import dataclass

import numpy as np

from probml.models.bayesian_networks.folding import folded
from probml.models.bayesian_networks.variables import Variables

MAX_COMPLETIONS = 2**21  # fillings of all distinct rows that are held at once


@dataclass(frozen=True, eq=False)
class Completions:
    """u complete rows, and of each of r distinct rows with unseen cells which of them it may be.

    Attributes:
        cells: (d, u) int32, the complete rows in order, distinct.
        which: (m,) of each filling, which complete row it is; the fillings of a row are neighbours.
        owner: (m,) whose filling it is, ascending.
        starts: (r,) where the fillings of a row begin.
        times: (r,) how often the row with unseen cells occurs.
    """

    cells: np.ndarray
    which: np.ndarray
    owner: np.ndarray
    starts: np.ndarray
    times: np.ndarray

    def expected(self, logs: np.ndarray) -> tuple[np.ndarray, float]:
        """(expected counts (u,) of the complete rows, entropy of the fillings, nats) where a
        filling is as probable as exp(logs), (u,)."""
        each = logs[self.which]
        each = np.exp(each - np.maximum.reduceat(each, self.starts)[self.owner])
        share = each / np.add.reduceat(each, self.starts)[self.owner]
        weight = self.times[self.owner]
        surprise = -np.log(share, where=share > 0, out=np.zeros_like(share))
        return (np.bincount(self.which, share * weight, self.cells.shape[1]),
                float((weight * share * surprise).sum()))


def completions(variables: Variables) -> Completions | None:
    """The fillings of a table of discrete columns; None where they are more than `MAX_COMPLETIONS`.

    Cost: memory of d + 4 numbers for each filling.
    """
    states = [len(labels or ()) for labels in variables.labels]
    rows = np.stack(variables.columns)
    code, _ = folded([(values + 1, k + 1) for values, k in zip(rows, states, strict=True)],
                     variables.rows)
    _, first, times = np.unique(code, return_index=True, return_counts=True)
    rows = rows[:, first]
    ways = np.ones(len(first))
    for values, k in zip(rows, states, strict=True):
        ways *= np.where(values < 0, k, 1)
    if ways.sum() > MAX_COMPLETIONS:
        return None
    ways = ways.astype(int)
    owner = np.repeat(np.arange(len(ways)), ways)
    starts = np.cumsum(ways) - ways
    rest = np.arange(len(owner)) - starts[owner]  # the digits of this number are the unseen cells
    filled = rows[:, owner]
    for values, k in zip(filled, states, strict=True):
        hidden = values < 0
        values[hidden] = rest[hidden] % k
        rest[hidden] //= k
    code, _ = folded(list(zip(filled, states, strict=True)), len(owner))
    _, one, which = np.unique(code, return_index=True, return_inverse=True)
    return Completions(filled[:, one], which, owner, starts, times)
