"""Arcs that must be and that must not, as the caller lists them."""

from collections.abc import Iterable, Mapping

import networkx as nx
import numpy as np

from probml import ModelError
from probml.errors import counted
from probml.models.bayesian_networks.search import Rules
from probml.models.bayesian_networks.variables import Variables, use_one_of


def refuse_cycle(graph: nx.DiGraph, what: str) -> None:
    """Raises ModelError naming a cycle of the graph, if it has one."""
    if not nx.is_directed_acyclic_graph(graph):
        cycle = [parent for parent, *_ in nx.find_cycle(graph)]
        raise ModelError(f"{what} has the cycle {' → '.join(map(repr, [*cycle, cycle[0]]))}, but "
                         f"the graph must not have cycles. Remove or reverse one of these arcs")


def refuse_counts(where: str, counts: Mapping[str, int | None]) -> None:
    """Raises ModelError for what is neither None nor a whole number of at least 0."""
    for name, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer)
                                  or value < 0):
            raise ModelError(f"{where}({name}={value!r}): expected an integer of at least 0")


def pairs_of(variables: Variables, arcs: Iterable | None, what: str,
             where: str) -> list[tuple[int, int]]:
    """Pairs of columns, by name, as their places.

    Raises:
        ModelError: pairs that are none, unknown names; `what` names the argument of the call
        `where`.
    """
    if arcs is None:
        return []
    try:
        pairs = [arc if isinstance(arc, str) else tuple(arc) for arc in arcs]
    except TypeError:
        raise ModelError(f"{where}({what}={arcs!r:.200}): expected a list of pairs (parent, "
                         f"child), such as {what}=[('a', 'b')]") from None
    names, indices = variables.names, []
    for arc in pairs:
        if isinstance(arc, str) or len(arc) != 2:
            raise ModelError(f"{where}({what}=...): expected a list of pairs (parent, child), such "
                             f"as {what}=[('a', 'b')], got the element {arc!r:.200}")
        if unknown := [name for name in arc if not isinstance(name, str) or name not in names]:
            raise ModelError(f"{where}: {what} contains {unknown[0]!r}, which is not a column; "
                             f"{use_one_of(names, unknown[0])}")
        indices.append((names.index(arc[0]), names.index(arc[1])))
    return indices


def rules_of(variables: Variables, whitelist: Iterable[tuple[str, str]] | None,
             blacklist: Iterable[tuple[str, str]] | None, limit: int | None, where: str) -> Rules:
    """Which arcs may be and which must be.

    Raises:
        ModelError: pairs that are none, unknown names, arcs that contradict each other or the kinds
        of the columns; `where` names the call.
    """
    names, size = variables.names, len(variables.names)
    lists = [(what, pairs_of(variables, arcs, what, where))
             for what, arcs in (("blacklist", blacklist), ("whitelist", whitelist))]
    allowed, forced = ~np.eye(size, dtype=bool), np.zeros((size, size), bool)
    continuous = np.array([labels is None for labels in variables.labels])
    allowed &= ~(continuous[:, None] & ~continuous[None, :])
    for what, arcs in lists:
        for parent, child in arcs:
            arc = names[parent], names[child]
            if parent == child:
                raise ModelError(f"{where}: {what} contains the arc {arc[0]!r} → {arc[1]!r}, from "
                                 f"a node to itself. Drop this arc")
            if what == "blacklist":
                allowed[parent, child] = False
            elif continuous[parent] and not continuous[child]:
                raise ModelError(
                    f"{where}: the whitelist contains the arc {arc[0]!r} → {arc[1]!r}, but a "
                    f"discrete node must not have a continuous parent. Reverse the arc, or cut "
                    f"{arc[0]!r} into classes (pandas.cut)"
                )
            elif not allowed[parent, child]:
                raise ModelError(f"{where}: the arc {arc[0]!r} → {arc[1]!r} is in both whitelist "
                                 f"and blacklist. Drop the arc from one of the two")
            else:
                forced[parent, child] = True
    refuse_cycle(nx.DiGraph([(names[i], names[j]) for i, j in np.argwhere(forced)]),
                 f"{where}: the whitelist")
    limit = size if limit is None else int(limit)
    if (too_many := forced.sum(0) > limit).any():
        child = int(np.argmax(too_many))
        raise ModelError(f"{where}: the whitelist gives {names[child]!r} "
                         f"{counted(forced[:, child].sum(), 'parent')}, more than "
                         f"max_parents={limit}. Raise max_parents, or drop arcs from the whitelist")
    return Rules(allowed, forced, limit, any(arcs for _, arcs in lists))
