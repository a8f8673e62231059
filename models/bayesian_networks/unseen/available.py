"""Scores of families by the rows in which they are seen, for a first graph: no cell is filled.

A family is scored on the rows where the node and its parents are all seen, less what the node
without parents scores on the same rows: how much the parents tell, by as many rows as tell it. So
families of different rows compare, and none gains by having fewer; what half of the cells would
thin out, if they were filled before anything is known of them, is left as it is.

Right where cells go unseen whatever their values are; else a start is all that it is meant for.

Source: after Balov (2013), "Consistent model selection of discrete Bayesian networks from
incomplete data", whose scores are means over the same rows.
"""

import copy
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from probml.models.bayesian_networks.folding import folded
from probml.models.bayesian_networks.scores import Scores
from probml.models.bayesian_networks.variables import Variables

SOME = 2**14  # distinct rows that tell enough of a first graph


class Available:
    """What families gain by their parents, on the rows in which they are seen; parents are bit
    masks, as for `Scores`. Discrete columns alone.

    Cost: O(u log u) a family, u distinct rows, of which `SOME` stand for more.
    """

    def __init__(self, variables: Variables, score: str, strength: float):
        rows = np.stack(variables.columns)
        states = [len(labels or ()) for labels in variables.labels]
        code, _ = folded([(values + 1, k + 1) for values, k in zip(rows, states, strict=True)],
                         variables.rows)
        _, first, times = np.unique(code, return_index=True, return_counts=True)
        kept = np.linspace(0, len(first) - 1, min(len(first), SOME)).astype(int)
        rows = rows[:, first[kept]]
        self._seen, self._times = rows >= 0, times[kept].astype(float)
        # unseen cells count in no table: their rows weigh nothing there
        filled = replace(variables, columns=tuple(np.maximum(rows, 0)), rows=rows.shape[1])
        self._scores = Scores(filled, score, strength, self._times)
        self.size, self._known = self._scores.size, {}

    def families(self, children: Iterable[int], parents: Iterable[int]) -> np.ndarray:
        """What (child, parents) gain over the child without parents; 0 where no row shows all."""
        out = []
        for child, mask in zip(children, parents, strict=True):
            if (child, mask) not in self._known:
                self._known[child, mask] = self._gain(int(child), int(mask)) if mask else 0.0
            out.append(self._known[child, mask])
        return np.array(out)

    def _gain(self, child: int, mask: int) -> float:
        whole = mask | 1 << child
        inside = np.array([bool(whole >> j & 1) for j in range(self.size)])
        weights = np.where(self._seen[inside].all(0), self._times, 0.0)
        if not weights.any():
            return 0.0
        with_, without = self._scores.reweighted(weights).families([child, child], [mask, 0])
        return float(with_ - without)

    def total(self, parents: Iterable[int]) -> float:
        """The gain of a graph over the empty one."""
        masks = list(parents)
        return float(self.families(range(self.size), masks).sum())

    def likelihood(self) -> "Available":
        """The same rows under loglik."""
        out = copy.copy(self)
        out._scores, out._known = self._scores.likelihood(), {}
        return out
