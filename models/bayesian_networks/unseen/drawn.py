"""Expected counts of a network by draws of the unseen cells, where they can be filled in too many
ways to go through.

At a graph the network is fitted to what is seen, by exact sums over the unseen cells: EM without a
prior for loglik, aic and bic, variational Bayes for bdeu and k2; that gives F of structural_em.py
exactly. `COPIES` joint draws of the unseen cells of every row, given the seen ones, then stand for
the counts (Monte Carlo EM: Wei & Tanner 1990): a graph that they favour is held to the exact F.

Source: Wei & Tanner (1990), "A Monte Carlo implementation of the EM algorithm and the poor man's
data augmentation algorithms".
"""

from dataclasses import replace

import networkx as nx
import numpy as np

import probml
from probml.models.bayesian_networks.bayesian_network import bayesian_network
from probml.models.bayesian_networks.scores import Scores, bits
from probml.models.bayesian_networks.variables import Variables

COPIES = 10  # draws of every row


class Drawn:
    """A fit and draws at one graph after the other."""

    def __init__(self, variables: Variables, score: str, strength: float, seed: int):
        self.variables, self.score, self.strength, self.seed = variables, score, strength, seed
        self.states = {name: len(labels or ())
                       for name, labels in zip(variables.names, variables.labels, strict=True)}

    def __call__(self, parents: list[int], after: Scores | None = None) -> tuple[Scores, float]:
        """(scores at the counts that a graph comes to expect, F there); `after` tells nothing
        here."""
        names = self.variables.names
        dag = nx.DiGraph()
        dag.add_nodes_from(names)
        dag.add_edges_from((names[j], name) for name, mask in zip(names, parents, strict=True)
                           for j in bits(mask))
        bayes = self.score in ("bdeu", "k2")
        model = bayesian_network(dag, self.states,
                                 strength=self.strength if self.score == "bdeu" else None)
        data = {name: np.where(values < 0, np.nan, values)
                for name, values in zip(names, self.variables.columns, strict=True)}
        fit = model.fit(data, probml.VB(restarts=1) if bayes
                        else probml.EM(prior=False, restarts=1), seed=self.seed)
        many = {name: np.tile(values, COPIES) for name, values in data.items()}
        filled = fit.simulate(given=many, seed=self.seed, plug_in=True)
        cells, times = np.unique(np.stack([filled[name] for name in names]).astype(np.int32),
                                 axis=1, return_counts=True)
        complete = replace(self.variables, columns=tuple(cells), rows=cells.shape[1])
        scores = Scores(complete, self.score, self.strength, times / COPIES)
        free = sum(scores.cells(mask | 1 << child) - scores.cells(mask)
                   for child, mask in enumerate(parents))
        value = fit.bound if bayes else float(fit.history[-1]) - scores.penalty * free
        return scores, float(value)
