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
are seen. And since the counts that a graph expects speak for that graph, so that an
arc more may look worse than it is, what is one arc away is at last settled by itself and held to F
(`search_neighbours`), where that is affordable.

q is held as it is, a number for every filling of every distinct row, where these are at most
`MAX_COMPLETIONS`; else the counts are those of draws.

Sources: Friedman (1998), "The Bayesian structural EM algorithm"; Friedman (1997), "Learning belief
networks in the presence of missing values and hidden variables", for the penalised likelihood; Beal
& Ghahramani (2003), "The variational Bayesian EM algorithm for incomplete data".

Scores of families by the rows in which they are seen, for a first graph: no cell is filled.

A family is scored on the rows where the node and its parents are all seen, less what the node
without parents scores on the same rows: how much the parents tell, by as many rows as tell it. So
families of different rows compare, and none gains by having fewer; what half of the cells would
thin out, if they were filled before anything is known of them, is left as it is.

Right where cells go unseen whatever their values are; else a start is all that it is meant for.

Source: after Balov (2013), "Consistent model selection of discrete Bayesian networks from
incomplete data", whose scores are means over the same rows.

Rows with unseen cells, each filled in every way it can be, and how probable each way is.

Expected counts of a network by draws of the unseen cells, where they can be filled in too many
ways to go through.

At a graph the network is fitted to what is seen, by exact sums over the unseen cells: EM without a
prior for loglik, aic and bic, variational Bayes for bdeu and k2; that gives F of structural_em.py
exactly. `COPIES` joint draws of the unseen cells of every row, given the seen ones, then stand for
the counts (Monte Carlo EM: Wei & Tanner 1990): a graph that they favour is held to the exact F.

Source: Wei & Tanner (1990), "A Monte Carlo implementation of the EM algorithm and the poor man's
data augmentation algorithms".
"""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np

import probml
from probml import DataError
from probml.errors import counted, listed
from probml.models.bayesian_networks.bayesian_network import bayesian_network
from probml.models.bayesian_networks.folding import combine_codes
from probml.models.bayesian_networks.scores import Scores, bits
from probml.models.bayesian_networks.search import ROUNDING, Rules, as_masks, hill_climb, tree
from probml.models.bayesian_networks.variables import Variables

MAX_COMPLETIONS = 2**21  # fillings of all distinct rows that are held at once


@dataclass(frozen=True, eq=False)
class Completions:
    """u complete rows, and of each of r distinct rows with unseen cells which of them it may be.

    Attributes:
        cells: (d, u) int32, the complete rows in order, distinct.
        row_index: (m,) of each filling, which complete row it is; the fillings of a row are
            neighbours.
        source_row: (m,) whose filling it is, ascending.
        starts: (r,) where the fillings of a row begin.
        times: (r,) how often the row with unseen cells occurs.
    """

    cells: np.ndarray
    row_index: np.ndarray
    source_row: np.ndarray
    starts: np.ndarray
    times: np.ndarray

    def expected(self, logs: np.ndarray) -> tuple[np.ndarray, float]:
        """(expected counts (u,) of the complete rows, entropy of the fillings, nats) where a
        filling is as probable as exp(logs), (u,)."""
        ratio = logs[self.row_index]
        ratio = np.exp(ratio - np.maximum.reduceat(ratio, self.starts)[self.source_row])
        probs = ratio / np.add.reduceat(ratio, self.starts)[self.source_row]
        weight = self.times[self.source_row]
        surprise = -np.log(probs, where=probs > 0, out=np.zeros_like(probs))
        return (np.bincount(self.row_index, probs * weight, self.cells.shape[1]),
                float((weight * probs * surprise).sum()))


def completions(variables: Variables) -> Completions | None:
    """The fillings of a table of discrete columns; None where they are more than `MAX_COMPLETIONS`.

    Cost: memory of d + 4 numbers for each filling.
    """
    states = [len(labels or ()) for labels in variables.labels]
    rows = np.stack(variables.columns)
    code, _ = combine_codes([(values + 1, k + 1) for values, k in zip(rows, states, strict=True)],
                            variables.rows)
    _, distinct, times = np.unique(code, return_index=True, return_counts=True)
    rows = rows[:, distinct]
    n_ways = np.ones(len(distinct))
    for values, k in zip(rows, states, strict=True):
        n_ways *= np.where(values < 0, k, 1)
    if n_ways.sum() > MAX_COMPLETIONS:
        return None
    counts = n_ways.astype(int)
    owner = np.repeat(np.arange(len(counts)), counts)
    starts = np.cumsum(counts) - counts
    digits = np.arange(len(owner)) - starts[owner]  # the digits of this number are the unseen cells
    filled = rows[:, owner]
    for values, k in zip(filled, states, strict=True):
        is_missing = values < 0
        values[is_missing] = digits[is_missing] % k
        digits[is_missing] //= k
    code, _ = combine_codes(list(zip(filled, states, strict=True)), len(owner))
    _, index, which = np.unique(code, return_index=True, return_inverse=True)
    return Completions(filled[:, index], which, owner, starts, times)


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
                            f"learned. Drop the column")
    if not variables.continuous:
        return
    name, hidden = next((name, hidden) for name, hidden in
                        zip(variables.names, variables.unseen, strict=True) if hidden.any())
    raise DataError(
        f"column {name!r} is missing in row {int(np.argmax(hidden))} "
        f"({counted(int(hidden.sum()), 'row')} in all). Missing values are supported only if all "
        "columns are discrete. Continuous: "
        f"{listed(variables.names[j] for j in variables.continuous)}. Drop the rows with missing "
        "values, data.dropna(), or cut the continuous columns into classes (pandas.cut). If the "
        "graph is known, you can fit bayesian_network(dag, data=data), and fill in the values by "
        "fit.impute(data)"
    )


def first_graphs(variables: Variables, score: str, strength: float, rules: Rules,
                 method: str, seed: int) -> list[list[int]]:
    """Graphs to begin from, the parents of each column as bit masks; the arcs that must be come
    first."""
    forced = as_masks(rules.forced)
    available, graphs = Available(variables, score, strength), [forced]
    if method != "chow_liu":
        graphs.append(hill_climb(available, rules, 0, TABU, seed)[0])
    if not rules.is_restricted and rules.max_parents > 0:
        graphs.append(tree(variables, available, rules, None)[0])
    return [graph for i, graph in enumerate(graphs) if graph not in graphs[:i]]


def structural_em(variables: Variables, score: str, strength: float, starts: Sequence[list[int]],
                  search: Search, seed: int = 0,
                  nearby: Near | None = None) -> tuple[list[int], list[float]]:
    """(parents, F at the first start and, of the way to the highest end, at its start and after
    each round; where that is higher than all before).

    Args:
        starts: the parents of each column at first, bit masks; where counts are those of draws, the
            one of the highest F alone is gone on from.
        search: (scores of expected counts, parents) → parents that score no less.
        seed: of draws, where there are any.
        nearby: parents → graphs that are looked at by themselves in the end; None: none.

    Cost: a search for each round, of which there are some three a start; O(d · fillings) a step of
    EM, some ten of them a graph that is looked at.
    """
    settle = _settler(variables, score, strength, seed)
    initial = [(graph, *settle(graph)) for graph in starts]
    first = initial[0][2]
    if isinstance(settle, Drawn):
        initial = [max(initial, key=lambda state: state[2])]
    results = [_hill_climb(settle, search, *state) for state in initial]
    parents, scores, trace = max(results, key=lambda end: end[2][-1])
    if nearby is not None and isinstance(settle, Settled):
        parents, trace = search_neighbours(settle, search, nearby, parents, scores, trace)
    history = [first]
    history += [value for i, value in enumerate(trace) if value > max([first, *trace[:i]])]
    return parents, history


def _hill_climb(settle: "Drawn | Settled", search: Search, parents: list[int], scores: Scores,
                value: float) -> tuple[list[int], Scores, list[float]]:
    """(parents, scores there, F at first and after each round), from a graph at rest."""
    trace = [value]
    while True:
        proposal = search(scores, parents)
        if not scores.total(proposal) - scores.total(parents) > ROUNDING * (1 + abs(value)):
            return parents, scores, trace
        new_scores, new_value = settle(proposal, scores)
        if not new_value > value:  # counts of draws may err
            return parents, scores, trace
        parents, scores, value = proposal, new_scores, new_value
        trace.append(value)


def search_neighbours(settle: "Settled", search: Search, nearby: Near, parents: list[int],
                      scores: Scores,
                      trace: list[float]) -> tuple[list[int], list[float]]:
    """(parents, F of all rounds): from a graph to its neighbour of highest F, and on from there,
    until none is higher or `LOOKS` graphs were tried; those first that the counts favour."""
    budget = LOOKS // len(settle.filled.row_index)
    while True:
        graphs = sorted(nearby(parents), key=scores.total, reverse=True)[:budget]
        budget -= len(graphs)
        best = max(((graph, *settle(graph)) for graph in graphs), key=lambda state: state[2],
                   default=None)
        if best is None or not best[2] > trace[-1] + ROUNDING * (1 + abs(trace[-1])):
            return parents, trace
        parents, scores, further = _hill_climb(settle, search, *best)
        trace = [*trace, *further]


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
        self.uniform = Scores(complete, score, strength, weights)

    def __call__(self, parents: list[int], after: Scores | None = None) -> tuple[Scores, float]:
        """(scores at the counts that a graph comes to expect, F there)."""
        scores, value = self.uniform if after is None else after, -np.inf
        for _ in range(STEPS):
            weights, entropy = self.filled.expected(scores.slopes(parents))
            scores = scores.reweighted(weights)
            previous, value = value, scores.total(parents) + entropy
            if value - previous <= TOLERANCE * (1 + abs(value)):
                break
        return scores, value


SOME = 2**14  # distinct rows that tell enough of a first graph


class Available:
    """What families gain by their parents, on the rows in which they are seen; parents are bit
    masks, as for `Scores`. Discrete columns alone.

    Cost: O(u log u) a family, u distinct rows, of which `SOME` stand for more.
    """

    def __init__(self, variables: Variables, score: str, strength: float):
        rows = np.stack(variables.columns)
        states = [len(labels or ()) for labels in variables.labels]
        code, _ = combine_codes([(values + 1, k + 1)
                                 for values, k in zip(rows, states, strict=True)],
                                variables.rows)
        _, first, times = np.unique(code, return_index=True, return_counts=True)
        sample = np.linspace(0, len(first) - 1, min(len(first), SOME)).astype(int)
        rows = rows[:, first[sample]]
        self._observed, self._times = rows >= 0, times[sample].astype(float)
        # unseen cells count in no table: their rows weigh nothing there
        filled = replace(variables, columns=tuple(np.maximum(rows, 0)), rows=rows.shape[1])
        self._scores = Scores(filled, score, strength, self._times)
        self.size, self._known = self._scores.size, {}

    def families(self, children: Iterable[int], parents: Iterable[int]) -> np.ndarray:
        """What (child, parents) gain over the child without parents; 0 where no row shows all."""
        gains = []
        for child, mask in zip(children, parents, strict=True):
            if (child, mask) not in self._known:
                self._known[child, mask] = self._gain(int(child), int(mask)) if mask else 0.0
            gains.append(self._known[child, mask])
        return np.array(gains)

    def _gain(self, child: int, mask: int) -> float:
        family = mask | 1 << child
        in_family = np.array([bool(family >> j & 1) for j in range(self.size)])
        weights = np.where(self._observed[in_family].all(0), self._times, 0.0)
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
        clone = copy.copy(self)
        clone._scores, clone._known = self._scores.likelihood(), {}
        return clone


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
        is_bayes = self.score in ("bdeu", "k2")
        model = bayesian_network(dag, self.states,
                                 strength=self.strength if self.score == "bdeu" else None)
        data = {name: np.where(values < 0, np.nan, values)
                for name, values in zip(names, self.variables.columns, strict=True)}
        fit = model.fit(data, probml.VB(restarts=1) if is_bayes
                        else probml.EM(prior=False, restarts=1), seed=self.seed)
        copies = {name: np.tile(values, COPIES) for name, values in data.items()}
        filled = fit.simulate(given=copies, seed=self.seed, plug_in=True)
        cells, times = np.unique(np.stack([filled[name] for name in names]).astype(np.int32),
                                 axis=1, return_counts=True)
        complete = replace(self.variables, columns=tuple(cells), rows=cells.shape[1])
        scores = Scores(complete, self.score, self.strength, times / COPIES)
        n_params = sum(scores.cells(mask | 1 << child) - scores.cells(mask)
                       for child, mask in enumerate(parents))
        value = fit.bound if is_bayes else float(fit.history[-1]) - scores.penalty * n_params
        return scores, float(value)
