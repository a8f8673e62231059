"""Structures from tables with unseen cells: structural EM (Friedman 1998).

With q a distribution of the unseen cells, N the counts expected under it and H(q) its entropy, what
is climbed is

    F(q, graph) = score(graph | E_q N) + H(q)

in turn over q and over graphs. Every discrete score is convex in the counts, so that its tangent
lies below it, and q(filling) ∝ exp(its derivative by the counts) raises F at a fixed graph; any
graph that scores the expected counts higher raises F at a fixed q. Therefore F never falls, and
where it comes to rest it is

    loglik, aic, bic  the log likelihood of the cells that are seen, at its maximum, less the
                      penalty: q is the posterior of the unseen cells, the steps are EM's
    bdeu, k2          the variational lower bound of the log evidence of the seen cells, at
                      q(tables) Dirichlet (Beal & Ghahramani 2003): the steps are variational EM's

With nothing unseen it is the score itself. Like EM it ends at a maximum nearby, and it begins with
columns that are independent: where half of the cells are unseen, many arcs are too weak in the
first counts to be found in time. (`probml.VB`
integrates unseen cells out that have no seen one below; its bound is higher by as much.)

q is held as it is, a number for every filling of every distinct row, where these are at most
`completions.MOST`; else the counts are those of draws (drawn.py).

Sources: Friedman (1998), "The Bayesian structural EM algorithm"; Friedman (1997), "Learning belief
networks in the presence of missing values and hidden variables", for the penalised likelihood; Beal
& Ghahramani (2003), "The variational Bayesian EM algorithm for incomplete data".
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from probml import DataError
from probml.models.bayesian_networks.scores import Scores
from probml.models.bayesian_networks.search import ROUNDING
from probml.models.bayesian_networks.unseen.completions import Completions, completions
from probml.models.bayesian_networks.unseen.drawn import Drawn
from probml.models.bayesian_networks.variables import Variables, named

STEPS = 2000  # of EM at one graph, at the most
TOLERANCE = 1e-9  # a gain below this share of the score ends them

Search = Callable[[Scores, list[int]], list[int]]


def refuse_unseen(variables: Variables) -> None:
    """Raises DataError where structural EM cannot take the unseen cells: beside continuous columns,
    or a column of nothing else."""
    for name, hidden in zip(variables.names, variables.unseen, strict=True):
        if hidden.all():
            raise DataError(f"column {name!r} is unseen in every row: nothing tells what it "
                            f"depends on; drop it")
    if not variables.continuous:
        return
    name, hidden = next((name, hidden) for name, hidden in
                        zip(variables.names, variables.unseen, strict=True) if hidden.any())
    raise DataError(
        f"column {name!r} has an unseen cell in row {int(np.argmax(hidden))} ({int(hidden.sum())} "
        f"in all), and {named(variables.names[j] for j in variables.continuous)} of the columns "
        f"are continuous: rows with unseen cells are taken where all columns are discrete. Cut "
        f"numbers into classes (pandas.cut), drop the rows: data.dropna(), or fit a graph to the "
        f"incomplete data by EM and fill the cells from it"
    )


def structural_em(variables: Variables, score: str, strength: float, start: list[int],
                  search: Search, seed: int = 0) -> tuple[list[int], list[float]]:
    """(parents, F at the start and after each round).

    Args:
        start: the parents of each column at first, bit masks.
        search: (scores of expected counts, parents) → parents that score no less.
        seed: of draws, where there are any.

    Cost: a search for each round, of which there are some five; O(d · fillings) a step of EM.
    """
    filled = completions(variables)
    settled = (Drawn(variables, score, strength, seed) if filled is None
               else Settled(variables, filled, score, strength))
    parents = list(start)
    scores, value = settled(parents)
    trace = [value]
    while True:
        found = search(scores, parents)
        if not scores.total(found) - scores.total(parents) > ROUNDING * (1 + abs(value)):
            return parents, trace
        scores, new = settled(found)
        if not new > value:  # counts of draws may err
            return parents, trace
        parents, value = found, new
        trace.append(value)


class Settled:
    """EM at one graph after the other, each from the counts that the last expected."""

    def __init__(self, variables: Variables, filled: Completions, score: str, strength: float):
        self.filled = filled
        weights, _ = self.filled.expected(np.zeros(self.filled.cells.shape[1]))
        complete = replace(variables, columns=tuple(self.filled.cells),
                           rows=self.filled.cells.shape[1])
        self.scores = Scores(complete, score, strength, weights)

    def __call__(self, parents: list[int]) -> tuple[Scores, float]:
        """(scores at the counts that a graph comes to expect, F there)."""
        value = -np.inf
        for _ in range(STEPS):
            weights, entropy = self.filled.expected(self.scores.slopes(parents))
            self.scores = self.scores.reweighted(weights)
            last, value = value, self.scores.total(parents) + entropy
            if value - last <= TOLERANCE * (1 + abs(value)):
                break
        return self.scores, value
