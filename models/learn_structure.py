"""Learning the arcs of a Bayesian network from complete data: hill climbing, the exact optimum, or the best tree.

    hill_climb  the best of adding, dropping or turning one arc, until none helps; then on through graphs not visited yet,
                which crosses the equivalence class, where turning arcs costs nothing; and again from the best graph shaken
                (Heckerman, Geiger & Chickering 1995; tabu search: Glover 1989)
    exact       dynamic programming over the subsets of columns: the best last node of each (Silander & Myllymäki 2006)
    chow_liu    the spanning tree of largest pairwise mutual information (Chow & Liu 1968)

The scores are those of `scores.py`; a graph's score is the sum of its families', so that a step rescores the columns whose
parents changed and no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import networkx as nx
import numpy as np

from probml import ModelError
from probml.models.scores import Scores, bits
from probml.models.variables import Variables, read, shown

METHODS = ("hill_climb", "exact", "chow_liu")
MOST = 20  # columns of the exact search
UNFIT = (
    "learn_structure: the whitelist asks for a regression in configurations of discrete parents that have too few rows: "
    "drop arcs into continuous columns from it, merge rare labels, or bring more rows"
)
ROUNDING = 1e-10  # a gain below this share of the score is none: what rounding makes of graphs that score the same


def learn_structure(
    data,
    score: str = "bdeu",
    method: str = "hill_climb",
    *,
    strength: float = 1.0,
    states: Mapping | None = None,
    kinds: Mapping | None = None,
    whitelist: Iterable[tuple[str, str]] = (),
    blacklist: Iterable[tuple[str, str]] = (),
    max_parents: int | None = None,
    restarts: int = 20,
    tabu: int = 10,
    root: str | None = None,
    seed: int = 0,
) -> nx.DiGraph:
    """The graph of largest score: which column depends on which.

    An arc is a statement about the score, not about causes: graphs that imply the same independences score the same under
    bdeu and (discrete) loglik, aic and bic, and of these one is returned. loglik alone never refuses an arc: give max_parents.

    Args:
        data: DataFrame, pyarrow Table or mapping name → column, without unseen cells. Strings, categoricals, booleans and whole
            numbers of at most ten values that repeat are discrete (probml.models.kinds); other numbers are continuous, each a linear
            regression on its continuous parents in every configuration of its discrete ones. A discrete column never gets a
            continuous parent.
        score: "bdeu", "k2", "loglik", "aic" or "bic"; continuous columns have the last three. See `scores.py`.
        method: "hill_climb"; "exact", up to 20 columns; "chow_liu", a tree, for columns all discrete or all continuous.
        strength: the equivalent sample size of bdeu: how many rows the prior is worth, spread over all cells.
        states: column → labels (or their number, for 0..r−1), where the data may not show them all.
        kinds: column → "categorical" or "normal", for those that are not as said of `data`; the states are read from the data.
        whitelist: arcs (parent, child) that must be there.
        blacklist: arcs (parent, child) that must not.
        max_parents: most parents of a node; None: no limit.
        restarts: further climbs of hill_climb, each from the best graph after 2 to d random changes.
        tabu: steps in a row without a better graph after which a climb ends; 0 is greedy climbing. No climb visits a graph twice.
        root: the root of the tree of chow_liu; None: the first column.
        seed: of the random changes; the same seed gives the same graph, and so does any order of rows.

    Returns:
        networkx.DiGraph with every column as a node, in column order, its attribute "states" what it was taken for: labels, or float;
        bayesian_network(dag) reads it. `dag.graph["score"]` is the score and `dag.graph["trace"]` the best score so far: from the graph
        of the whitelist alone (for chow_liu, the empty one) after every step of hill_climb, never decreasing; for the other methods the
        first and the last only. `dag.graph["status"]` says which whole numbers were taken for categories or numbers by guess.

    Raises:
        DataError: data that cannot be scored, with the column and row. ModelError: an unknown score, method or name, arcs
        that contradict each other, too many columns for "exact".

    Cost: hill_climb scores d families per changed node and step, O(rows) each; exact scores d 2^(d−1) families, of which it
    holds 12 bytes each; chow_liu O(d² rows).
    """
    if method not in METHODS:
        raise ModelError(f"learn_structure: the method {method!r} is unknown; {shown(METHODS, method)}")
    most = 0 if max_parents is None else max_parents
    for name, value in {"restarts": restarts, "tabu": tabu, "seed": seed, "max_parents": most}.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise ModelError(f"learn_structure: {name} must be a whole number >= 0, got {value!r}")
    variables = read(data, states, kinds)
    scores = Scores(variables, score, strength)
    white, black = (list(() if arcs is None else arcs) for arcs in (whitelist, blacklist))
    rules = _rules(variables, white, black, max_parents)
    if method == "chow_liu":
        parents, trace = _tree(variables, scores, rules, root)
    elif root is not None:
        raise ModelError(f"learn_structure: root={root!r} belongs to method='chow_liu', got {method!r}: drop it, or blacklist its arcs")
    elif method == "exact":
        parents, trace = _exact(variables, scores, rules)
    else:
        parents, trace = _hill_climb(scores, rules, restarts, tabu, seed)
    dag = nx.DiGraph(score=trace[-1], trace=trace, status=variables.status)
    dag.add_nodes_from((name, {"states": states}) for name, states in variables.states.items())
    dag.add_edges_from((variables.names[j], variables.names[child]) for child, mask in enumerate(parents) for j in bits(mask))
    return dag


def structure_score(
    data,
    dag: nx.DiGraph,
    score: str = "bdeu",
    *,
    strength: float = 1.0,
    states: Mapping | None = None,
    kinds: Mapping | None = None,
):
    """The score of a graph, node by node: a pandas Series in column order whose sum is the graph's score.

    The scores and their scale are those of the file's first lines; only scores of the same kind, on the same data, compare.
    BDeu and, for discrete columns, loglik, aic and bic are equal for graphs that imply the same independences; the Gaussian
    ones nearly so (up to Σ p²/4n, from dividing the variance by rows − p − 1).

    Args:
        data: complete data, as in `learn_structure`.
        dag: the graph; its nodes are the columns.
        score: "bdeu", "k2", "loglik", "aic" or "bic"; continuous columns have the last three.
        strength: s of bdeu, the equivalent sample size.
        states: column → labels, where the data may not show them all.
        kinds: column → "categorical" or "normal", as in learn_structure.

    Returns:
        pandas.Series; −inf where a continuous node has a configuration of discrete parents with too few rows to fit.

    Raises:
        DataError: data that cannot be scored. ModelError: a graph with other nodes, a cycle or a continuous parent of a
        discrete node; an unknown score.

    Cost: O(rows) per family.
    """
    import pandas as pd

    variables = read(data, states, kinds)
    scores = Scores(variables, score, strength)
    if not isinstance(dag, nx.DiGraph):
        raise ModelError(f"structure_score: dag must be a networkx.DiGraph, got {type(dag).__name__}: nx.DiGraph([('parent', 'child')])")
    known = set(variables.names)
    if strange := [node for node in dag if node not in known]:
        raise ModelError(f"structure_score: the graph's node {strange[0]!r} is not a column; {shown(variables.names, strange[0])}")
    if absent := [name for name in variables.names if name not in dag]:
        raise ModelError(
            f"structure_score: the column {absent[0]!r} is no node of the graph: dag.add_node({absent[0]!r}), or drop it: data[list(dag)]"
        )
    refuse_cycle(dag, "structure_score: the graph")
    place = {name: j for j, name in enumerate(variables.names)}
    for parent, child in dag.edges:
        if variables.labels[place[child]] is not None and variables.labels[place[parent]] is None:
            raise ModelError(
                f"structure_score: the discrete node {child!r} has the continuous parent {parent!r}, which no score here takes: "
                f"reverse the arc, or cut {parent!r} into classes (pandas.cut)"
            )
    parents = [sum(1 << place[parent] for parent in dag.predecessors(name)) for name in variables.names]
    return pd.Series(scores.families(range(len(parents)), parents), variables.names, name=score)


def refuse_cycle(graph: nx.DiGraph, what: str) -> None:
    """Raises ModelError naming a cycle of the graph, if it has one."""
    if not nx.is_directed_acyclic_graph(graph):
        cycle = [parent for parent, _ in nx.find_cycle(graph)]
        raise ModelError(f"{what} has the cycle {' → '.join(map(repr, [*cycle, cycle[0]]))}: remove or turn one of these arcs")


@dataclass(frozen=True, eq=False)
class _Rules:
    """Which arcs may be and which must be; [parent, child], both (d, d)."""

    allowed: np.ndarray
    forced: np.ndarray
    most: int  # parents of a node
    given: bool  # did the caller give a list?


def _rules(variables: Variables, whitelist, blacklist, most) -> _Rules:
    size, place = len(variables.names), {name: j for j, name in enumerate(variables.names)}
    allowed, forced = ~np.eye(size, dtype=bool), np.zeros((size, size), bool)
    continuous = np.array([labels is None for labels in variables.labels])
    allowed &= ~(continuous[:, None] & ~continuous[None, :])
    for what, arcs in (("blacklist", blacklist), ("whitelist", whitelist)):
        for arc in arcs:
            if isinstance(arc, str) or not hasattr(arc, "__len__") or len(arc) != 2:
                raise ModelError(f"learn_structure: {what} must hold pairs (parent, child), got {arc!r}: {what}=[('a', 'b')]")
            if strange := [name for name in arc if name not in place]:
                raise ModelError(f"learn_structure: {what} names {strange[0]!r}, which is no column; {shown(variables.names, strange[0])}")
            parent, child = (place[name] for name in arc)
            if parent == child:
                raise ModelError(f"learn_structure: {what} has the arc {arc[0]!r} → {arc[1]!r} from a node to itself: drop it")
            if what == "blacklist":
                allowed[parent, child] = False
            elif continuous[parent] and not continuous[child]:
                raise ModelError(
                    f"learn_structure: whitelist has {arc[0]!r} → {arc[1]!r}, but a discrete node has no continuous parent: "
                    f"turn the arc, or cut {arc[0]!r} into classes (pandas.cut)"
                )
            elif not allowed[parent, child]:
                raise ModelError(f"learn_structure: the arc {arc[0]!r} → {arc[1]!r} is in both whitelist and blacklist: drop it from one")
            else:
                forced[parent, child] = True
    names = variables.names
    refuse_cycle(nx.DiGraph([(names[i], names[j]) for i, j in np.argwhere(forced)]), "learn_structure: the whitelist")
    most = size if most is None else int(most)
    if (full := forced.sum(0) > most).any():
        child = int(np.argmax(full))
        raise ModelError(f"learn_structure: the whitelist gives {names[child]!r} {forced[:, child].sum()} parents, max_parents is {most}")
    return _Rules(allowed, forced, most, bool(whitelist or blacklist))


def _masks(arcs: np.ndarray) -> list[int]:
    """(d, d) [parent, child] → the parents of each child as a bit mask."""
    return [sum(1 << int(j) for j in np.flatnonzero(column)) for column in arcs.T]


class _Climber:
    """A graph on its way: arcs, their closure, the scores of its families and what every toggle of an arc would gain."""

    def __init__(self, scores: Scores, rules: _Rules):
        size = scores.size
        self.scores, self.rules = scores, rules
        # A graph's name is the XOR of its arcs' keys (Zobrist 1970), so that those of all neighbours are one array operation.
        self.keys = np.random.default_rng(0).integers(0, 2**63, (size, size), dtype=np.uint64)
        self.gains = np.full((size, size), -np.inf)
        self.nodes = np.zeros(size)
        self.arcs = rules.forced.copy()
        self._rescore(range(size))

    @property
    def total(self) -> float:
        return float(self.nodes.sum())

    @property
    def name(self) -> np.uint64:
        return np.bitwise_xor.reduce(self.keys[self.arcs], initial=np.uint64(0))

    def _rescore(self, children) -> None:
        """The scores of nodes whose parents changed, and of all their candidate families in one call."""
        masks, asked = _masks(self.arcs), []
        for child in map(int, children):
            room = self.arcs[:, child].sum() < self.rules.most
            toggles = self.arcs[:, child] | (self.rules.allowed[:, child] & room)
            asked += [(child, -1, masks[child])] + [(child, int(j), masks[child] ^ 1 << int(j)) for j in np.flatnonzero(toggles)]
            self.gains[:, child] = -np.inf
        values = self.scores.families([child for child, _, _ in asked], [mask for _, _, mask in asked])
        for (child, j, _), value in zip(asked, values, strict=True):
            if j < 0:
                self.nodes[child] = value
            else:
                self.gains[j, child] = value - self.nodes[child]

    def moves(self, visited) -> np.ndarray:
        """Gains (2, d, d) of toggling and of turning each arc; −inf where the rules, a cycle or a visited graph forbid it."""
        gains = np.where(_legal(self.arcs, self.rules), np.stack([self.gains, self.gains + self.gains.T]), -np.inf)
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
        masks = _masks(self.arcs)
        unfit = self.scores.families(range(len(masks)), masks) == -np.inf
        self.arcs[:, unfit] = self.rules.forced[:, unfit]
        self._rescore(np.flatnonzero((old != self.arcs).any(0)))


def _legal(arcs: np.ndarray, rules: _Rules) -> np.ndarray:
    """(2, d, d): may the arc be toggled, may it be turned?"""
    reach = (arcs | np.eye(len(arcs), dtype=bool)).astype(np.float32)
    for _ in range(len(arcs).bit_length()):  # paths of twice the length; one from a node to itself has length 0
        reach = np.minimum(reach @ reach, 1)
    room = arcs.sum(0) < rules.most
    toggle = np.where(arcs, ~rules.forced, rules.allowed & room & ~arcs.T & (reach.T == 0))
    only = arcs.astype(np.float32) @ reach < 1.5  # of an arc: no second path leads from its tail to its head
    return np.stack([toggle, arcs & ~rules.forced & rules.allowed.T & only & room[:, None]])


def _change(arcs: np.ndarray, kind: int, x: int, y: int) -> None:
    """Toggle (kind 0) or turn (kind 1) the arc x → y, in place."""
    arcs[x, y] ^= True
    if kind == 1:
        arcs[y, x] = True


def _hill_climb(scores: Scores, rules: _Rules, restarts: int, tabu: int, seed: int) -> tuple[list[int], list[float]]:
    rng = np.random.default_rng(seed)
    if np.isneginf(scores.families(range(scores.size), _masks(rules.forced))).any():
        raise ModelError(UNFIT)
    climber = _Climber(scores, rules)
    best, top, trace = climber.arcs.copy(), climber.total, [climber.total]
    small = ROUNDING * (1 + abs(top))
    for restart in range(restarts + 1):
        if restart:
            climber.shake(best, int(rng.integers(2, max(4, scores.size) + 1)), rng)
        visited, peak, idle = [climber.name], climber.total, 0
        while True:
            gains = climber.moves(visited)
            gain = gains.max()
            if gain == -np.inf or gain <= small and idle >= tabu:
                break
            near = np.argwhere(gains >= gain - small)  # which of equals is not left to rounding
            climber.move(*near[0 if gain > small else rng.integers(len(near))])
            visited.append(climber.name)
            idle = 0 if climber.total > peak + small else idle + 1
            peak = max(peak, climber.total)
            if climber.total > top + small:
                best, top = climber.arcs.copy(), climber.total
            trace.append(top)
    return _masks(best), trace


def _exact(variables: Variables, scores: Scores, rules: _Rules) -> tuple[list[int], list[float]]:
    size = scores.size
    if size > MOST:
        raise ModelError(
            f"learn_structure(method='exact'): {size} columns have 2^{size} = {2**size:,} subsets and {size * 2 ** (size - 1):,} families, "
            f"about {size * 2 ** (size - 1) * 12 / 2**30:,.1f} GiB; at most {MOST} columns: choose method='hill_climb', or fewer columns"
        )
    whole = np.arange(1 << size)
    others = np.arange(1 << size - 1)  # sets of the columns but one, its bit squeezed out
    count = np.bitwise_count(others)
    value, origin = np.empty((size, len(others))), np.empty((size, len(others)), np.int32)
    must, may = _masks(rules.forced), _masks(rules.allowed)
    for child in range(size):
        low = others & (1 << child) - 1
        masks = (others - low << 1) | low
        legal = (count <= rules.most) & (masks & ~may[child] == 0) & (masks & must[child] == must[child])
        best, source = np.full(len(others), -np.inf), others.astype(np.int32)
        best[legal] = scores.families([child] * int(legal.sum()), masks[legal].tolist())
        small = ROUNDING * (1 + abs(best.max())) if best.max() > -np.inf else 0.0
        for j in range(size - 1):  # the best of all subsets, bit by bit; of equals the smaller set
            b, s = best.reshape(-1, 2, 1 << j), source.reshape(-1, 2, 1 << j)
            better = b[:, 0] >= b[:, 1] - small
            b[:, 1] = np.where(better, b[:, 0], b[:, 1])
            s[:, 1] = np.where(better, s[:, 0], s[:, 1])
        value[child], origin[child] = best, source
    total, last = np.full(1 << size, -np.inf), np.zeros(1 << size, np.int8)
    total[0] = 0.0
    level = np.bitwise_count(whole)
    for k in range(1, size + 1):  # the best last node of every set of k columns
        sets = np.flatnonzero(level == k)
        for child in range(size):
            mine = sets[sets >> child & 1 == 1]
            low = mine & (1 << child) - 1
            found = total[mine ^ 1 << child] + value[child, (mine >> child + 1 << child) | low]
            better = found > total[mine]
            total[mine[better]], last[mine[better]] = found[better], child
    left = len(whole) - 1
    if total[left] == -np.inf:
        raise ModelError(UNFIT)
    parents = [0] * size
    while left:
        child = int(last[left])
        left ^= 1 << child
        low = left & (1 << child) - 1
        found = int(origin[child, (left >> child + 1 << child) | low])
        low = found & (1 << child) - 1
        parents[child] = (found - low << 1) | low
    empty = scores.families(range(size), must)
    return parents, [float(empty.sum()), float(scores.families(range(size), parents).sum())]


def _tree(variables: Variables, scores: Scores, rules: _Rules, root) -> tuple[list[int], list[float]]:
    names, size = variables.names, scores.size
    if root is not None and root not in names:
        raise ModelError(f"learn_structure: root={root!r} is no column; {shown(names, root)}")
    if rules.given or rules.most == 0:
        raise ModelError("learn_structure: chow_liu takes no whitelist, blacklist or max_parents=0: choose 'exact' or 'hill_climb'")
    if 0 < len(variables.continuous) < size:
        continuous, discrete = variables.continuous[0], next(j for j, labels in enumerate(variables.labels) if labels is not None)
        raise ModelError(
            f"learn_structure(method='chow_liu') needs columns of one kind, got the continuous {names[continuous]!r} and the discrete "
            f"{names[discrete]!r}: choose method='hill_climb' or 'exact', which know that a discrete node has no continuous parent"
        )
    likelihood = Scores(variables, "loglik")
    pairs = [(i, j) for i in range(size) for j in range(i + 1, size)]
    alone = likelihood.families(range(size), [0] * size)
    joint = likelihood.families([j for _, j in pairs], [1 << i for i, _ in pairs])
    graph = nx.Graph()
    graph.add_nodes_from(range(size))
    gains = joint - alone[[j for _, j in pairs]]
    # what an arc adds to the log likelihood is the mutual information, times the rows; ten digits, so that rounding decides no tie
    graph.add_weighted_edges_from((i, j, float(f"{gain:.10g}")) for (i, j), gain in zip(pairs, gains, strict=True))
    parents = [0] * size
    for parent, child in nx.bfs_edges(nx.maximum_spanning_tree(graph), 0 if root is None else names.index(root)):
        parents[child] = 1 << parent
    return parents, [float(scores.families(range(size), masks).sum()) for masks in ([0] * size, parents)]
