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

With nothing unseen it is the score itself. (`probml.VB` integrates unseen cells out that have no
seen one below; its bound is higher by as much.)

Like EM it ends at a maximum nearby. From columns that are independent it fills unseen cells as if
nothing told them, which thins out what the seen ones tell: of half-seen columns few arcs are found.
So it begins from several graphs (`first_graphs`), and the end of the highest F is kept: the empty
one, and those that the search finds, and the best tree is, on the rows where the cells in question
are seen (available.py). And since the counts that a graph expects speak for that graph, so that an
arc more may look worse than it is, what is one arc away is at last settled by itself and held to F
(`search_neighbours`), where that is affordable.

q is held as it is, a number for every filling of every distinct row, where these are at most
`completions.MAX_COMPLETIONS`; else the counts are those of draws (drawn.py).

Sources: Friedman (1998), "The Bayesian structural EM algorithm"; Friedman (1997), "Learning belief
networks in the presence of missing values and hidden variables", for the penalised likelihood; Beal
& Ghahramani (2003), "The variational Bayesian EM algorithm for incomplete data".
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from probml import DataError
from probml.models.bayesian_networks.scores import Scores
from probml.models.bayesian_networks.search import ROUNDING, Rules, as_masks, hill_climb, tree
from probml.models.bayesian_networks.unseen.available import Available
from probml.models.bayesian_networks.unseen.completions import Completions, completions
from probml.models.bayesian_networks.unseen.drawn import Drawn
from probml.models.bayesian_networks.variables import Variables, named

STEPS = 2000  # of EM at one graph, at the most
TOLERANCE = 1e-9  # a gain below this share of the score ends them
LOOKS = 2**24  # fillings of the graphs that are looked at by themselves, together
TABU = 10  # steps without a better graph, of the search for a first one

Search = Callable[[Scores, list[int]], list[int]]
Near = Callable[[list[int]], Iterable[list[int]]]


def refuse_unseen(variables: Variables) -> None:
    """Raises DataError where structural EM cannot take the unseen cells: beside continuous columns,
    or a column of nothing else."""
    for name, hidden in zip(variables.names, variables.unseen, strict=True):
        if hidden.all():
            raise DataError(f"column {name!r} is missing in every row, so its parents cannot be "
                            f"learnt: drop the column")
    if not variables.continuous:
        return
    name, hidden = next((name, hidden) for name, hidden in
                        zip(variables.names, variables.unseen, strict=True) if hidden.any())
    raise DataError(
        f"column {name!r} has a missing cell in row {int(np.argmax(hidden))} ({int(hidden.sum())} "
        f"in all), and {named(variables.names[j] for j in variables.continuous)} of the columns "
        f"are continuous: rows with missing cells are supported only if all columns are discrete. "
        f"Cut numbers into classes (pandas.cut), drop the rows with missing cells, data.dropna(), "
        f"or fit a bayesian_network of a known graph to the incomplete data by EM and fill the "
        f"cells by fit.impute(data)"
    )


def first_graphs(variables: Variables, score: str, strength: float, rules: Rules,
                 method: str, seed: int) -> list[list[int]]:
    """Graphs to begin from, the parents of each column as bit masks; the arcs that must be come
    first."""
    forced = as_masks(rules.forced)
    available, out = Available(variables, score, strength), [forced]
    if method != "chow_liu":
        out.append(hill_climb(available, rules, 0, TABU, seed)[0])
    if not rules.given and rules.most > 0:
        out.append(tree(variables, available, rules, None)[0])
    return [graph for i, graph in enumerate(out) if graph not in out[:i]]


def structural_em(variables: Variables, score: str, strength: float, starts: Sequence[list[int]],
                  search: Search, seed: int = 0,
                  near: Near | None = None) -> tuple[list[int], list[float]]:
    """(parents, F at the first start and, of the way to the highest end, at its start and after
    each round; where that is higher than all before).

    Args:
        starts: the parents of each column at first, bit masks; where counts are those of draws, the
            one of the highest F alone is gone on from.
        search: (scores of expected counts, parents) → parents that score no less.
        seed: of draws, where there are any.
        near: parents → graphs that are looked at by themselves in the end; None: none.

    Cost: a search for each round, of which there are some three a start; O(d · fillings) a step of
    EM, some ten of them a graph that is looked at.
    """
    settle = _settler(variables, score, strength, seed)
    begun = [(graph, *settle(graph)) for graph in starts]
    first = begun[0][2]
    if isinstance(settle, Drawn):
        begun = [max(begun, key=lambda one: one[2])]
    ends = [_hill_climb(settle, search, *one) for one in begun]
    parents, scores, trace = max(ends, key=lambda end: end[2][-1])
    if near is not None and isinstance(settle, Settled):
        parents, trace = search_neighbours(settle, search, near, parents, scores, trace)
    told = [first]
    told += [value for i, value in enumerate(trace) if value > max([first, *trace[:i]])]
    return parents, told


def _hill_climb(settle: "Drawn | Settled", search: Search, parents: list[int], scores: Scores,
                value: float) -> tuple[list[int], Scores, list[float]]:
    """(parents, scores there, F at first and after each round), from a graph at rest."""
    trace = [value]
    while True:
        found = search(scores, parents)
        if not scores.total(found) - scores.total(parents) > ROUNDING * (1 + abs(value)):
            return parents, scores, trace
        after, new = settle(found, scores)
        if not new > value:  # counts of draws may err
            return parents, scores, trace
        parents, scores, value = found, after, new
        trace.append(value)


def search_neighbours(settle: "Settled", search: Search, near: Near, parents: list[int],
                      scores: Scores,
                      trace: list[float]) -> tuple[list[int], list[float]]:
    """(parents, F of all rounds): from a graph to its neighbour of highest F, and on from there,
    until none is higher or `LOOKS` graphs were tried; those first that the counts favour."""
    left = LOOKS // len(settle.filled.which)
    while True:
        graphs = sorted(near(parents), key=scores.total, reverse=True)[:left]
        left -= len(graphs)
        found = max(((graph, *settle(graph)) for graph in graphs), key=lambda one: one[2],
                    default=None)
        if found is None or not found[2] > trace[-1] + ROUNDING * (1 + abs(trace[-1])):
            return parents, trace
        parents, scores, more = _hill_climb(settle, search, *found)
        trace = [*trace, *more]


def settled_score(variables: Variables, score: str, strength: float, parents: list[int],
                  seed: int = 0) -> tuple[np.ndarray, float]:
    """(the families' scores at the counts that a graph comes to expect, the rest of F)."""
    scores, value = _settler(variables, score, strength, seed)(parents)
    families = scores.families(range(len(parents)), parents)
    return families, value - float(families.sum())


def _settler(variables: Variables, score: str, strength: float, seed: int) -> "Drawn | Settled":
    filled = completions(variables)
    return (Drawn(variables, score, strength, seed) if filled is None
            else Settled(variables, filled, score, strength))


class Settled:
    """EM at a graph, from the counts that another expected, or from cells filled evenly."""

    def __init__(self, variables: Variables, filled: Completions, score: str, strength: float):
        self.filled = filled
        weights, _ = self.filled.expected(np.zeros(self.filled.cells.shape[1]))
        complete = replace(variables, columns=tuple(self.filled.cells),
                           rows=self.filled.cells.shape[1])
        self.even = Scores(complete, score, strength, weights)

    def __call__(self, parents: list[int], after: Scores | None = None) -> tuple[Scores, float]:
        """(scores at the counts that a graph comes to expect, F there)."""
        scores, value = self.even if after is None else after, -np.inf
        for _ in range(STEPS):
            weights, entropy = self.filled.expected(scores.slopes(parents))
            scores = scores.reweighted(weights)
            last, value = value, scores.total(parents) + entropy
            if value - last <= TOLERANCE * (1 + abs(value)):
                break
        return scores, value
