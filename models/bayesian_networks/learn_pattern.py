"""Learning a network from tests of independence: PC (Spirtes & Glymour 1991).

All columns are joined at first. An arc goes where a test finds its ends independent given some set
of neighbours of either, sets of 0 columns first, then of 1, …, neighbours being those that were
left when the size began, so that the order of columns decides nothing (PC-stable: Colombo &
Maathuis 2014). A set that leaves nothing to test, since it determines one of the two, separates
nothing. Where x – z – y, x and y apart, and z is in fewer than half of the sets of that size that
separated them, z is a collider x → z ← y, the largest p-values first; one that would turn an arc
that is directed is left out and told. What is then compelled follows.

Right in the limit of many rows if no common cause is unseen and no independence is a coincidence of
numbers; with few rows the tests have little power, and a score (learn_structure) errs less.

Sources: Spirtes & Glymour (1991), "An algorithm for fast recovery of sparse causal graphs"; Colombo
& Maathuis (2014), "Order-independent constraint-based causal structure learning", section 4.2 for
the majority.

Patterns: what graphs that imply the same independences have in common (CPDAG, essential graph).

Two graphs imply the same independences if and only if they join the same nodes and have the same
colliders x → z ← y of nodes x, y that are not joined (Verma & Pearl 1990). A pattern is a DiGraph
that has an arc where all of them have it, and arcs both ways where they differ.

Sources: Verma & Pearl (1990), "Equivalence and synthesis of causal models"; Meek (1995), "Causal
inference and causal explanation with background knowledge", the rules; Dor & Tarsi (1992), "A
simple algorithm to construct a consistent extension of a partially oriented graph".
"""

import itertools
from collections.abc import Iterable, Mapping

import networkx as nx
import numpy as np

from probml import ModelError
from probml.errors import listed, type_of
from probml.models.bayesian_networks.arc_lists import pairs_of, refuse_counts, refuse_cycle
from probml.models.bayesian_networks.independence import independence_test, tests_of
from probml.models.bayesian_networks.variables import Variables, read


def learn_pattern(
    data,
    level: float = 0.01,
    test: str | None = None,
    *,
    states: Mapping | None = None,
    kinds: Mapping | None = None,
    blacklist: Iterable[tuple[str, str]] = (),
    most: int | None = None,
) -> nx.DiGraph:
    """The pattern (CPDAG) of a network, learnt from tests of independence by the PC algorithm: one
    arc where the direction is identified, arcs both ways where it is not.

    `member_of(pattern)` is one graph of it, which bayesian_network takes; `pattern_of(dag)` what
    learn_structure's is compared by.

    Args:
        data: DataFrame, pyarrow Table or mapping name → column, as learn_structure takes it, all
            columns discrete or all continuous. Cells may be missing; each test leaves out rows
            without one of its cells.
        level: a p-value above it counts as independence; smaller: fewer arcs.
        test: "likelihood ratio" (G², for discrete columns), "chi-squared" or "partial correlation"
            (for continuous ones); None: the first that fits. See `conditional_dependence`.
        states, kinds: as in learn_structure.
        blacklist: pairs of columns, either way round, that are not joined.
        most: columns that are given in a test, at the most; None: as many as there are neighbours.

    Returns:
        networkx.DiGraph with every column as a node, in column order, its attribute "states" what
        it was taken for; the arcs' attribute "p_value" is the largest that a test of them had.
        `graph["separators"]`: {frozenset of two: the columns that separate them, of several sets of
        a size that of the largest p-value};
        `graph["conflicts"]`: the colliders (x, z, y) left out; `graph["tests"]`: how many were
        made; `graph["status"]` as learn_structure has it.

    Raises:
        DataError: data that cannot be read, columns of two kinds. ModelError: an unknown test or
        name, a level that is none.

    Cost: a test, O(rows log rows), for every pair and set of neighbours: few where every column has
    few neighbours, exponential in the most that one has.
    """
    if isinstance(level, bool) or not isinstance(level, float | int) or not 0 < level < 1:
        raise ModelError(f"learn_pattern(level={level!r}): expected a number between 0 and 1, the "
                         f"p-value above which columns are treated as independent")
    refuse_counts("learn_pattern", {"most": most})
    variables = read(data, states, kinds, complete=False)
    tests = tests_of(variables, range(len(variables.names)))
    if test is not None and (not isinstance(test, str) or test not in tests):
        raise ModelError(f"learn_pattern(test={test!r}): this is not a test for "
                         f"{'continuous' if variables.continuous else 'discrete'} columns. Use "
                         f"test={' or test='.join(map(repr, tests))}")
    joined = ~np.eye(len(variables.names), dtype=bool)
    for i, j in pairs_of(variables, blacklist, "blacklist", "learn_pattern"):
        joined[i, j] = joined[j, i] = False
    strength, separators, n_tests = _skeleton(variables, test or tests[0], level, joined, most)
    compelled, conflicts = _colliders(joined, separators)
    names = variables.names
    empty = nx.DiGraph()
    empty.add_nodes_from((name, {"states": labels}) for name, labels in variables.states.items())
    pattern = as_graph(empty, list(names), apply_meek_rules(joined, compelled))
    nx.set_edge_attributes(pattern, {(a, b): float(strength[names.index(a), names.index(b)])
                                     for a, b in pattern.edges}, "p_value")
    pattern.graph.update(
        separators={frozenset((names[i], names[j])): tuple(names[c] for c in given)
                    for (i, j), (_, given, _) in separators.items()},
        conflicts=[tuple(names[c] for c in triple) for triple in conflicts],
        tests=n_tests, status=variables.status)
    return pattern


def _skeleton(variables: Variables, test: str, level: float, joined: np.ndarray,
              limit: int | None) -> tuple[np.ndarray, dict, int]:
    """(largest p-value of each pair (d, d), {pair: (p-value, separating columns, all such sets of
    that size)}, tests made); takes arcs from `joined` in place."""
    largest, separators, n_tests, size = np.zeros(joined.shape), {}, 0, -1
    while True:
        size += 1
        adjacent = joined.copy()
        if size > (np.inf if limit is None else limit) or adjacent.sum(0).max(initial=0) <= size:
            return largest, separators, n_tests
        for i, j in np.argwhere(np.triu(adjacent)):
            sets = {given for end, other in ((i, j), (j, i)) for given in itertools.combinations(
                np.flatnonzero(adjacent[end] & (np.arange(len(adjacent)) != other)).tolist(), size)}
            best: tuple[float, tuple[int, ...]] = (-1.0, ())
            separating: list[tuple[int, ...]] = []
            for given in sorted(sets):
                _, degrees, p = independence_test(variables, test, i, j, given)
                n_tests += 1
                # what is constant depends on nothing; what others determine is not known not to
                if degrees > 0 or not given:
                    best = max(best, (p, given), key=lambda pair: pair[0])
                    separating += [given] * (p > level)
            largest[i, j] = largest[j, i] = max(largest[i, j], best[0])
            if separating:
                joined[i, j] = joined[j, i] = False
                separators[int(i), int(j)] = (*best, separating)


def _colliders(joined: np.ndarray,
               separators: dict) -> tuple[np.ndarray, list[tuple[int, int, int]]]:
    """(arcs into colliders (d, d), those left out since another collider has the arc the other
    way)."""
    compelled, conflicts = np.zeros_like(joined), []
    for (x, y), (_, _, sets) in sorted(separators.items(), key=lambda item: -item[1][0]):
        for z in np.flatnonzero(joined[x] & joined[y]).tolist():
            if 2 * sum(z in given for given in sets) >= len(sets):
                continue
            if compelled[z, x] or compelled[z, y]:
                conflicts.append((x, z, y))
            else:
                compelled[[x, y], z] = True
    return compelled, conflicts


def pattern_of(dag: nx.DiGraph) -> nx.DiGraph:
    """The pattern (CPDAG) of a graph: its arcs, and both directions of those that have the opposite
    direction in a graph with the same independences.

    Args:
        dag: a directed acyclic graph, such as learn_structure's.

    Returns:
        DiGraph of the same nodes with their attributes.

    Raises:
        ModelError: a graph that is none, or has a cycle.

    Cost: O(d³) a rule that applies.
    """
    if not isinstance(dag, nx.DiGraph):
        raise ModelError("pattern_of: expected a networkx.DiGraph, such as "
                         f"networkx.DiGraph([('parent', 'child')]), got {type_of(dag)}")
    refuse_cycle(dag, "pattern_of: the graph")
    nodes = list(dag)
    arcs = nx.to_numpy_array(dag, nodelist=nodes, weight=None).astype(bool)
    joined = arcs | arcs.T
    compelled = np.zeros_like(arcs)
    for z in range(len(nodes)):
        for x, y in itertools.combinations(np.flatnonzero(arcs[:, z]), 2):
            if not joined[x, y]:
                compelled[[x, y], z] = True
    return as_graph(dag, nodes, apply_meek_rules(joined, compelled))


def member_of(pattern: nx.DiGraph) -> nx.DiGraph:
    """One directed acyclic graph of those that a pattern represents, for bayesian_network.

    Args:
        pattern: a DiGraph, arcs both ways where the direction is open.

    Returns:
        DiGraph without cycles, of the same nodes with their attributes, and no colliders but the
        pattern's.

    Raises:
        ModelError: there is none, as where tests that contradicted each other made the pattern.

    Cost: O(d⁴) at most.
    """
    if not isinstance(pattern, nx.DiGraph):
        raise ModelError("member_of: expected the result of learn_pattern or pattern_of, such as "
                         f"member_of(learn_pattern(data)), got {type_of(pattern)}")
    nodes = list(pattern)
    arcs = nx.to_numpy_array(pattern, nodelist=nodes, weight=None).astype(bool)
    remaining, open_ = arcs.copy(), set(range(len(nodes)))
    directed = arcs & ~arcs.T
    while open_:
        sink = next((x for x in sorted(open_, reverse=True) if _is_sink(remaining, x)), None)
        if sink is None:
            raise ModelError(
                "member_of: no graph without cycles has all arcs of the pattern between the nodes "
                f"{listed(sorted(map(str, (nodes[x] for x in open_))))}. The results of the "
                "independence tests contradict each other. Choose another level in "
                "learn_pattern(data, level=...), or use learn_structure(data)"
            )
        directed[remaining[:, sink] & remaining[sink], sink] = True
        remaining[sink], remaining[:, sink] = False, False
        open_.remove(sink)
    return as_graph(pattern, nodes, directed)


def _is_sink(arcs: np.ndarray, x: int) -> bool:
    """Can all open arcs of x point at it: it has none away, and its neighbours by open arcs are
    joined to all its others?"""
    if (arcs[x] & ~arcs[:, x]).any():
        return False
    adjacent = np.flatnonzero(arcs[:, x])
    return all((arcs | arcs.T)[y, np.setdiff1d(adjacent, y)].all() for y in adjacent if arcs[x, y])


def apply_meek_rules(joined: np.ndarray, compelled: np.ndarray) -> np.ndarray:
    """Arcs (d, d) of a pattern from what is joined and the arcs that are known, by the rules of
    Meek (1995), figure 1, R1 to R3: an open arc has the direction without which there were a new
    collider or a cycle."""
    arcs = joined & ~compelled.T
    changed = True
    while changed:
        changed = False
        for a, b in np.argwhere(arcs & arcs.T):
            into_b = arcs[:, b] & ~arcs[b]
            rule1 = (arcs[:, a] & ~arcs[a] & ~joined[b]).any()  # c → a – b, c and b not joined
            rule2 = (arcs[a] & ~arcs[:, a] & into_b).any()  # a → c → b
            middles = np.flatnonzero(arcs[a] & arcs[:, a] & into_b)  # a – c → b, a – d → b
            rule3 = any(not joined[c, d] for c, d in itertools.combinations(middles, 2))
            if rule1 or rule2 or rule3:
                arcs[b, a] = False
                changed = True
                break
    return arcs


def as_graph(template: nx.DiGraph, nodes: list, arcs: np.ndarray) -> nx.DiGraph:
    """Arcs as a DiGraph with the nodes, and their attributes, of another."""
    graph = nx.DiGraph()
    graph.add_nodes_from((node, dict(template.nodes[node])) for node in nodes)
    graph.add_edges_from((nodes[i], nodes[j]) for i, j in np.argwhere(arcs))
    return graph
