"""Searching graphs: hill climbing, dynamic programming over all, trees."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import networkx as nx
import numpy as np

from probml import ModelError
from probml.models.bayesian_networks.scores import Scores
from probml.models.bayesian_networks.variables import Variables, use_one_of

MAX_EXACT_COLUMNS = 20  # columns of the exact search
UNFIT = (
    "learn_structure: the whitelist has arcs into a continuous column. It needs a regression for "
    "every combination of its discrete parents, and some combinations have too few rows. Drop arcs "
    "into continuous columns from the whitelist, merge rare labels, or give more rows"
)
# a gain below this share of the score is none: what rounding makes of graphs that score the same
ROUNDING = 1e-10


class FamilyScores(Protocol):
    """Scores of (child, parents as a bit mask), of `size` columns; `likelihood`: the same rows
    under loglik."""

    size: int

    def families(self, children: Iterable[int], parents: Iterable[int]) -> np.ndarray: ...

    def likelihood(self) -> "FamilyScores": ...


@dataclass(frozen=True, eq=False)
class Rules:
    """Which arcs may be and which must be; [parent, child], both (d, d)."""

    allowed: np.ndarray
    forced: np.ndarray
    max_parents: int  # parents of a node
    is_restricted: bool  # did the caller give a list?


def as_masks(arcs: np.ndarray) -> list[int]:
    """(d, d) [parent, child] → the parents of each child as a bit mask."""
    return [sum(1 << int(j) for j in np.flatnonzero(column)) for column in arcs.T]


def as_arcs(parents: list[int]) -> np.ndarray:
    """The parents of each child as a bit mask → (d, d) [parent, child]."""
    return np.array([[bool(mask >> j & 1) for mask in parents] for j in range(len(parents))])


class _Climber:
    """A graph on its way: arcs, their closure, the scores of its families and what every toggle of
    an arc would gain."""

    def __init__(self, scores: FamilyScores, rules: Rules, arcs: np.ndarray):
        size = scores.size
        self.scores, self.rules = scores, rules
        # A graph's name is the XOR of its arcs' keys (Zobrist 1970), so that those of all
        # neighbours are one array operation.
        self.keys = np.random.default_rng(0).integers(0, 2**63, (size, size), dtype=np.uint64)
        self.gains = np.full((size, size), -np.inf)
        self.nodes = np.zeros(size)
        self.arcs = arcs.copy()
        self._rescore(range(size))

    @property
    def total(self) -> float:
        return float(self.nodes.sum())

    @property
    def name(self) -> np.uint64:
        return np.bitwise_xor.reduce(self.keys[self.arcs], initial=np.uint64(0))

    def _rescore(self, children) -> None:
        """The scores of nodes whose parents changed, and of all their candidate families in one
        call."""
        masks, families = as_masks(self.arcs), []
        for child in map(int, children):
            has_room = self.arcs[:, child].sum() < self.rules.max_parents
            toggles = self.arcs[:, child] | (self.rules.allowed[:, child] & has_room)
            families += [(child, -1, masks[child])] + [(child, int(j), masks[child] ^ 1 << int(j))
                                                       for j in np.flatnonzero(toggles)]
            self.gains[:, child] = -np.inf
        values = self.scores.families([child for child, _, _ in families],
                                      [mask for _, _, mask in families])
        for (child, j, _), value in zip(families, values, strict=True):
            if j < 0:
                self.nodes[child] = value
            else:
                self.gains[j, child] = value - self.nodes[child]

    def moves(self, visited) -> np.ndarray:
        """Gains (2, d, d) of toggling and of turning each arc; −inf where the rules, a cycle or a
        visited graph forbid it."""
        gains = np.where(_legal(self.arcs, self.rules),
                         np.stack([self.gains, self.gains + self.gains.T]), -np.inf)
        names = self.name ^ np.stack([self.keys, self.keys ^ self.keys.T])
        gains[np.isin(names, np.array(visited, np.uint64))] = -np.inf
        return gains

    def move(self, kind: int, x: int, y: int) -> None:
        _change(self.arcs, kind, x, y)
        self._rescore([y, x][: kind + 1])

    def shake(self, arcs: np.ndarray, changes: int, rng) -> None:
        """Become `arcs` after some random changes that the rules allow."""
        old, self.arcs = self.arcs, arcs.copy()
        for _ in range(changes):
            if len(legal := np.argwhere(_legal(self.arcs, self.rules))):
                _change(self.arcs, *legal[rng.integers(len(legal))])
        masks = as_masks(self.arcs)
        unfit = self.scores.families(range(len(masks)), masks) == -np.inf
        self.arcs[:, unfit] = self.rules.forced[:, unfit]
        self._rescore(np.flatnonzero((old != self.arcs).any(0)))


def _legal(arcs: np.ndarray, rules: Rules) -> np.ndarray:
    """(2, d, d): may the arc be toggled, may it be turned?"""
    reach = (arcs | np.eye(len(arcs), dtype=bool)).astype(np.float32)
    # paths of twice the length; one from a node to itself has length 0
    for _ in range(len(arcs).bit_length()):
        reach = np.minimum(reach @ reach, 1)
    has_room = arcs.sum(0) < rules.max_parents
    toggle = np.where(arcs, ~rules.forced, rules.allowed & has_room & ~arcs.T & (reach.T == 0))
    # of an arc: no second path leads from its tail to its head
    unique = arcs.astype(np.float32) @ reach < 1.5
    return np.stack([toggle, arcs & ~rules.forced & rules.allowed.T & unique & has_room[:, None]])


def _change(arcs: np.ndarray, kind: int, x: int, y: int) -> None:
    """Toggle (kind 0) or turn (kind 1) the arc x → y, in place."""
    arcs[x, y] ^= True
    if kind == 1:
        arcs[y, x] = True


def neighbours(parents: list[int], rules: Rules) -> Iterator[list[int]]:
    """The graphs that one arc, there or not or turned, makes of one; as the rules allow."""
    arcs = as_arcs(parents)
    for kind, x, y in np.argwhere(_legal(arcs, rules)):
        changed = arcs.copy()
        _change(changed, int(kind), int(x), int(y))
        yield as_masks(changed)


def hill_climb(scores: FamilyScores, rules: Rules, restarts: int, tabu: int, seed: int,
               start: list[int] | None = None) -> tuple[list[int], list[float]]:
    """(parents, the best score after each step), from the arcs that must be, or from `start`."""
    rng = np.random.default_rng(seed)
    arcs = rules.forced if start is None else as_arcs(start)
    if np.isneginf(scores.families(range(scores.size), as_masks(rules.forced))).any():
        raise ModelError(UNFIT)
    climber = _Climber(scores, rules, arcs)
    best, best_score, trace = climber.arcs.copy(), climber.total, [climber.total]
    tol = ROUNDING * (1 + abs(best_score))
    for restart in range(restarts + 1):
        if restart:
            climber.shake(best, int(rng.integers(2, max(4, scores.size) + 1)), rng)
        visited, peak, n_stalled = [climber.name], climber.total, 0
        while True:
            gains = climber.moves(visited)
            gain = gains.max()
            if gain == -np.inf or gain <= tol and n_stalled >= tabu:
                break
            ties = np.argwhere(gains >= gain - tol)  # which of equals is not left to rounding
            climber.move(*ties[0 if gain > tol else rng.integers(len(ties))])
            visited.append(climber.name)
            n_stalled = 0 if climber.total > peak + tol else n_stalled + 1
            peak = max(peak, climber.total)
            if climber.total > best_score + tol:
                best, best_score = climber.arcs.copy(), climber.total
            trace.append(best_score)
    return as_masks(best), trace


def without(sets, column: int):
    """Sets numbered among the columns but one, as bit masks of all."""
    low = sets & (1 << column) - 1
    return (sets - low << 1) | low


def without_column(masks, column: int):
    """The numbers of sets among the columns but one: its bit is taken out."""
    return (masks >> column + 1 << column) | masks & (1 << column) - 1


def exact(variables: Variables, scores: Scores, rules: Rules) -> tuple[list[int], list[float]]:
    size = scores.size
    if size > MAX_EXACT_COLUMNS:
        raise ModelError(
            f"learn_structure(method='exact'): expected at most {MAX_EXACT_COLUMNS} columns, "
            f"got {size}. The scores of all {size * 2 ** (size - 1):,} sets of parents would need "
            f"{size * 2 ** (size - 1) * 12 / 2 ** 30:,.1f} GiB. Choose method='hill_climb', or "
            "fewer columns"
        )
    all_sets = np.arange(1 << size)
    subsets = np.arange(1 << size - 1)
    count = np.bitwise_count(subsets)
    value, origin = np.empty((size, len(subsets))), np.empty((size, len(subsets)), np.int32)
    must, may = as_masks(rules.forced), as_masks(rules.allowed)
    for child in range(size):
        masks = without(subsets, child)
        legal = (count <= rules.max_parents) & (masks & ~may[child] == 0) & (
            masks & must[child] == must[child]
        )
        best, source = np.full(len(subsets), -np.inf), subsets.astype(np.int32)
        best[legal] = scores.families([child] * int(legal.sum()), masks[legal].tolist())
        tol = ROUNDING * (1 + abs(best.max())) if best.max() > -np.inf else 0.0
        for j in range(size - 1):  # the best of all subsets, bit by bit; of equals the smaller set
            b, s = best.reshape(-1, 2, 1 << j), source.reshape(-1, 2, 1 << j)
            better = b[:, 0] >= b[:, 1] - tol
            b[:, 1] = np.where(better, b[:, 0], b[:, 1])
            s[:, 1] = np.where(better, s[:, 0], s[:, 1])
        value[child], origin[child] = best, source
    total, last = np.full(1 << size, -np.inf), np.zeros(1 << size, np.int8)
    total[0] = 0.0
    level = np.bitwise_count(all_sets)
    for k in range(1, size + 1):  # the best last node of every set of k columns
        sets = np.flatnonzero(level == k)
        for child in range(size):
            members = sets[sets >> child & 1 == 1]
            totals = total[members ^ 1 << child] + value[child, without_column(members, child)]
            better = totals > total[members]
            total[members[better]], last[members[better]] = totals[better], child
    remaining = len(all_sets) - 1
    if total[remaining] == -np.inf:
        raise ModelError(UNFIT)
    parents = [0] * size
    while remaining:
        child = int(last[remaining])
        remaining ^= 1 << child
        parents[child] = int(without(origin[child, without_column(remaining, child)], child))
    empty = scores.families(range(size), must)
    return parents, [float(empty.sum()), float(scores.families(range(size), parents).sum())]


def tree(variables: Variables, scores: FamilyScores, rules: Rules,
         root) -> tuple[list[int], list[float]]:
    names, size = variables.names, scores.size
    if root is not None and root not in names:
        raise ModelError(
            f"learn_structure: root={root!r} is not a column; {use_one_of(names, root)}")
    if rules.is_restricted or rules.max_parents == 0:
        raise ModelError("learn_structure(method='chow_liu'): whitelist, blacklist and "
                         "max_parents=0 are not supported. Omit them, or choose method='exact' or "
                         "'hill_climb'")
    if 0 < len(variables.continuous) < size:
        continuous, discrete = variables.continuous[0], next(
            j for j, labels in enumerate(variables.labels) if labels is not None
        )
        raise ModelError(
            f"learn_structure(method='chow_liu'): expected columns of one kind, got the continuous "
            f"{names[continuous]!r} and the discrete {names[discrete]!r}. Choose "
            f"method='hill_climb' or 'exact', which never give a discrete node a continuous parent"
        )
    likelihood = scores.likelihood()
    pairs = [(i, j) for i in range(size) for j in range(i + 1, size)]
    marginal = likelihood.families(range(size), [0] * size)
    joint = likelihood.families([j for _, j in pairs], [1 << i for i, _ in pairs])
    graph = nx.Graph()
    graph.add_nodes_from(range(size))
    gains = joint - marginal[[j for _, j in pairs]]
    # what an arc adds to the log likelihood is the mutual information, times the rows; ten digits,
    # so that rounding decides no tie
    graph.add_weighted_edges_from((i, j, float(f"{gain:.10g}"))
                                  for (i, j), gain in zip(pairs, gains, strict=True))
    parents = [0] * size
    for parent, child in nx.bfs_edges(nx.maximum_spanning_tree(graph),
                                      0 if root is None else names.index(root)):
        parents[child] = 1 << parent
    return parents, [float(scores.families(range(size), masks).sum())
                     for masks in ([0] * size, parents)]
