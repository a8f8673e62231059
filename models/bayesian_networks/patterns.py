"""Patterns: what graphs that imply the same independences have in common (CPDAG, essential graph).

Two graphs imply the same independences if and only if they join the same nodes and have the same
colliders x → z ← y of nodes x, y that are not joined (Verma & Pearl 1990). A pattern is a DiGraph
that has an arc where all of them have it, and arcs both ways where they differ.

Sources: Verma & Pearl (1990), "Equivalence and synthesis of causal models"; Meek (1995), "Causal
inference and causal explanation with background knowledge", the rules; Dor & Tarsi (1992), "A
simple algorithm to construct a consistent extension of a partially oriented graph".
"""

import itertools

import networkx as nx
import numpy as np

from probml import ModelError


def pattern_of(dag: nx.DiGraph) -> nx.DiGraph:
    """The pattern of a graph: its arcs, and both ways those that a graph of the same independences
    has the other way.

    Args:
        dag: a directed acyclic graph, such as learn_structure's.

    Returns:
        DiGraph of the same nodes with their attributes.

    Raises:
        ModelError: a graph that is none, or has a cycle.

    Cost: O(d³) a rule that applies.
    """
    if not isinstance(dag, nx.DiGraph) or not nx.is_directed_acyclic_graph(dag):
        raise ModelError(f"pattern_of: expected a directed acyclic graph (networkx.DiGraph), got "
                         f"{dag!r}")
    nodes = list(dag)
    arcs = nx.to_numpy_array(dag, nodelist=nodes, weight=None).astype(bool)
    joined = arcs | arcs.T
    compelled = np.zeros_like(arcs)
    for z in range(len(nodes)):
        for x, y in itertools.combinations(np.flatnonzero(arcs[:, z]), 2):
            if not joined[x, y]:
                compelled[[x, y], z] = True
    return as_graph(dag, nodes, closed(joined, compelled))


def member_of(pattern: nx.DiGraph) -> nx.DiGraph:
    """One graph of those that a pattern represents, which bayesian_network takes.

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
        raise ModelError(f"member_of: expected a pattern (networkx.DiGraph), got {pattern!r}")
    nodes = list(pattern)
    arcs = nx.to_numpy_array(pattern, nodelist=nodes, weight=None).astype(bool)
    left, open_ = arcs.copy(), set(range(len(nodes)))
    out = arcs & ~arcs.T
    while open_:
        sink = next((x for x in sorted(open_, reverse=True) if _may_end(left, x)), None)
        if sink is None:
            raise ModelError(
                f"member_of: no acyclic graph has the arcs and colliders of the pattern among "
                f"{sorted(map(str, (nodes[x] for x in open_)))[:12]}, because the results of the "
                f"tests contradict each other: use learn_pattern with another level, or "
                f"learn_structure"
            )
        out[left[:, sink] & left[sink], sink] = True
        left[sink], left[:, sink] = False, False
        open_.remove(sink)
    return as_graph(pattern, nodes, out)


def _may_end(arcs: np.ndarray, x: int) -> bool:
    """Can all open arcs of x point at it: it has none away, and its neighbours by open arcs are
    joined to all its others?"""
    if (arcs[x] & ~arcs[:, x]).any():
        return False
    near = np.flatnonzero(arcs[:, x])
    return all((arcs | arcs.T)[y, np.setdiff1d(near, y)].all() for y in near if arcs[x, y])


def closed(joined: np.ndarray, compelled: np.ndarray) -> np.ndarray:
    """Arcs (d, d) of a pattern from what is joined and the arcs that are known, by the rules of
    Meek (1995), figure 1, R1 to R3: an open arc has the direction without which there were a new
    collider or a cycle."""
    arcs = joined & ~compelled.T
    moved = True
    while moved:
        moved = False
        for a, b in np.argwhere(arcs & arcs.T):
            into = arcs[:, b] & ~arcs[b]
            first = (arcs[:, a] & ~arcs[a] & ~joined[b]).any()  # c → a – b, c and b not joined
            second = (arcs[a] & ~arcs[:, a] & into).any()  # a → c → b
            both = np.flatnonzero(arcs[a] & arcs[:, a] & into)  # a – c → b, a – d → b
            third = any(not joined[c, d] for c, d in itertools.combinations(both, 2))
            if first or second or third:
                arcs[b, a] = False
                moved = True
                break
    return arcs


def as_graph(like: nx.DiGraph, nodes: list, arcs: np.ndarray) -> nx.DiGraph:
    """Arcs as a DiGraph with the nodes, and their attributes, of another."""
    out = nx.DiGraph()
    out.add_nodes_from((node, dict(like.nodes[node])) for node in nodes)
    out.add_edges_from((nodes[i], nodes[j]) for i, j in np.argwhere(arcs))
    return out
