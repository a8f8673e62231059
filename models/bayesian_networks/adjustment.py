"""What to adjust for: sets of columns given which a cause and its effect are compared as in an
experiment, read off a graph.

A set Z satisfies the back-door criterion for X and Y if no node of Z descends from X, and Z blocks
every path from X to Y that begins with an arrow into X: d-separates them where the arrows out of X
are taken away. Then

    p(y | do(x)) = Σ_z p(y | x, z) p(z)

so that the effect is identified from the columns of X, Y and Z alone; where all of the graph is
seen, `Fit.do` finds the same without it.

Sources: Pearl (1995), "Causal diagrams for empirical research", section 3.1; van der Zander,
Liśkiewicz & Textor (2014), "Constructing separators and adjustment sets in ancestral graphs", for
the smallest.
"""

import itertools
from collections.abc import Collection, Hashable, Iterator

import networkx as nx

from probml import ModelError
from probml.errors import listed, type_of
from probml.estimators.rules import hold, integer, optional, several
from probml.models.bayesian_networks.arc_lists import refuse_cycle


def adjustment_sets(dag: nx.DiGraph, cause: Hashable, effect: Hashable, *,
                    unseen: Collection[Hashable] = (),
                    most: int | None = None) -> list[frozenset]:
    """The minimal sets of columns that satisfy the back-door criterion: no node can be removed from
    any of them.

    Args:
        dag: the graph, such as learn_structure's, or `model.graph`.
        cause, effect: nodes of it.
        unseen: latent nodes, which were not measured and so cannot be adjusted for.
        most: nodes of a set at the most; None: no limit.

    Returns:
        sets, the smallest first, [frozenset()] where nothing confounds; [] where no set of columns
        that are observed (of so many) will do: an experiment, or another criterion, must help.

    Raises:
        ModelError: an unknown node, or a graph with cycles.

    Cost: a d-separation for every subset of the ancestors of both, up to `most` of them.
    """
    hold("adjustment_sets", unseen=(unseen, several("nodes")), most=(most, optional(integer(0))))
    _check(dag, cause, effect, unseen)
    return list(_smallest(dag, cause, effect, set(unseen), most))


def backdoor(dag: nx.DiGraph, cause: Hashable, effect: Hashable,
             given: Collection[Hashable]) -> bool:
    """Whether a set of nodes satisfies the back-door criterion for a cause and an effect.

    Raises:
        ModelError: an unknown node, or a graph with cycles.
    """
    hold("backdoor", given=(given, several("nodes")))
    _check(dag, cause, effect, given)
    given = set(given)
    if given & ({cause, effect} | nx.descendants(dag, cause)):
        return False
    return nx.is_d_separator(_without_arrows_from(dag, cause), {cause}, {effect}, given)


def _smallest(dag: nx.DiGraph, cause, effect, unseen: set,
              max_size: int | None) -> Iterator[frozenset]:
    descendants = nx.descendants(dag, cause)
    # of a smallest set every node is an ancestor of the cause or the effect
    ancestors = nx.ancestors(dag, cause) | nx.ancestors(dag, effect)
    allowed = [node for node in dag if node in ancestors - descendants - unseen - {cause, effect}]
    pruned, sets = _without_arrows_from(dag, cause), []
    for size in range(min(len(allowed), len(allowed) if max_size is None else max_size) + 1):
        for chosen in itertools.combinations(allowed, size):
            given = frozenset(chosen)
            if any(smaller <= given for smaller in sets):
                continue
            if nx.is_d_separator(pruned, {cause}, {effect}, given):
                sets.append(given)
                yield given


def _without_arrows_from(dag: nx.DiGraph, node) -> nx.DiGraph:
    graph = nx.DiGraph(dag.edges)
    graph.add_nodes_from(dag)
    graph.remove_edges_from(list(dag.out_edges(node)))
    return graph


def _check(dag: nx.DiGraph, cause, effect, others: Collection) -> None:
    if not isinstance(dag, nx.DiGraph):
        raise ModelError("adjustment_sets: expected a networkx.DiGraph, such as "
                         f"networkx.DiGraph([('treatment', 'outcome')]), got {type_of(dag)}")
    refuse_cycle(dag, "adjustment_sets: the graph")
    for node in (cause, effect, *others):
        if not isinstance(node, Hashable) or node not in dag:
            raise ModelError(f"adjustment_sets: {node!r} is not a node of the graph. Use one of "
                             f"its nodes, {listed(dag)}")
    if cause == effect:
        raise ModelError(f"adjustment_sets: the cause and the effect are both {cause!r}. Give two "
                         f"different nodes")
