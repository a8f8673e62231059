"""Learning the arcs of a Bayesian network from data: hill climbing, the exact optimum, or the best
tree; from rows with unseen cells by structural EM around any of them.

    hill_climb  the best of adding, dropping or turning one arc, until none helps; then on through
                graphs not visited yet,
                which crosses the equivalence class, where turning arcs costs nothing; and again
                from the best graph shaken (Heckerman, Geiger & Chickering 1995; tabu search: Glover
                1989)
    exact       dynamic programming over the subsets of columns: the best last node of each
                (Silander & Myllymäki 2006)
    chow_liu    the spanning tree of largest pairwise mutual information (Chow & Liu 1968)

The scores are those of `scores.py`; a graph's score is the sum of its families', so that a step
rescores the columns whose parents changed and no others. Unseen cells: see `unseen`.
"""

from collections.abc import Iterable, Mapping

import networkx as nx

from probml import ModelError
from probml.errors import type_of
from probml.estimators.rules import hold, integer
from probml.models.bayesian_networks.arc_lists import refuse_counts, refuse_cycle, rules_of
from probml.models.bayesian_networks.scores import Scores, bits, score_for
from probml.models.bayesian_networks.search import exact, hill_climb, neighbours, tree
from probml.models.bayesian_networks.unseen.structural_em import (
    first_graphs,
    refuse_unseen,
    settled_score,
    structural_em,
)
from probml.models.bayesian_networks.variables import read, use_one_of
from probml.numerics.process.libraries import pd

METHODS = ("hill_climb", "exact", "chow_liu")
UNSEEN = "(missing cells)"  # what they add to the scores of the nodes


def learn_structure(
    data,
    score: str | None = None,
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
    """Learn the graph of a Bayesian network from a table: the directed acyclic graph with the
    highest score.

    An arc is a statement about the score, not about causes: graphs that imply the same
    independences score the same under bdeu and (discrete) loglik, aic and bic, and of these one is
    returned. loglik alone never refuses an arc: give max_parents.

    Args:
        data: DataFrame, pyarrow Table or mapping name → column. Strings, categoricals, booleans and
            whole numbers of at most ten values that repeat are discrete (probml.models.kinds);
            other numbers are continuous, each a linear regression on its continuous parents in
            every configuration of its discrete ones. A discrete column never gets a continuous
            parent. Cells may be missing (NaN, None), at random given the observed cells, where all
            columns are discrete: the method then searches at expected counts, round after round,
            until no graph is better (structural EM, Friedman 1998), from the empty graph and from
            those that the rows without the missing cells suggest; and on from the best end by
            single arcs.
        score: "bdeu", "k2", "loglik", "aic" or "bic"; continuous columns have the last three. See
            `scores.py`. None: "bdeu" where all columns are discrete, else "bic".
        method: "hill_climb"; "exact", up to 20 columns; "chow_liu", a tree, for columns all
            discrete or all continuous.
        strength: the equivalent sample size of bdeu: how many rows the prior is worth, standard
            deviation over all cells.
        states: column → labels (or their number, for 0..r−1), where the data may not show them all.
        kinds: column → "categorical" or "normal", for those that are not as said of `data`; the
            states are read from the data.
        whitelist: arcs (parent, child) that must be there.
        blacklist: arcs (parent, child) that must not.
        max_parents: most parents of a node; None: no limit.
        restarts: further runs of hill_climb, each from the best graph after 2 to d random
            changes.
        tabu: steps in a row without a better graph after which a run ends; 0 is the greedy search.
            No run visits a graph twice.
        root: the root of the tree of chow_liu; None: the first column.
        seed: of the random changes; the same seed gives the same graph, and so does any order of
            rows.

    Returns:
        networkx.DiGraph with every column as a node, in column order, its attribute "states" what
        it was taken for: labels, or float; bayesian_network(dag) reads it. `dag.graph["score"]` is
        the score and `dag.graph["trace"]` the best score so far: from the graph of the whitelist
        alone (for chow_liu, the empty one) after every step of hill_climb, never decreasing; for
        the other methods the first and the last only. With missing cells they are the score of the
        observed cells, at the start and after every round: for loglik, aic and bic the largest log
        likelihood of the observed cells less the penalty, for bdeu and k2 a lower bound of their
        log evidence. `dag.graph["status"]` says which whole numbers were taken for categories or
        numbers by guess.

    Raises:
        DataError: data that cannot be scored, with the column and row; missing cells together
        with continuous columns. ModelError: an unknown score, method or name, arcs that
        contradict each other, too many columns for "exact".

    Cost: hill_climb scores d families per changed node and step, O(rows) each; exact scores d
    2^(d−1) families, of which it holds 12 bytes each; chow_liu O(d² rows). With missing cells some
    ten such searches, and EM at some hundred graphs of one arc more or less; where these cells can
    be filled in more than two million ways, some five searches, at counts of ten draws a row from
    the network fitted so far, which every round compiles.
    """
    if not isinstance(method, str) or method not in METHODS:
        raise ModelError(f"learn_structure(method={method!r}): {use_one_of(METHODS, method)}")
    hold("learn_structure", restarts=(restarts, integer(0, 1_000_000)), tabu=(tabu, integer(0)))
    refuse_counts("learn_structure", {"restarts": restarts, "tabu": tabu, "seed": seed,
                                      "max_parents": max_parents})
    variables = read(data, states, kinds, complete=False)
    score = score_for(variables, score)
    unseen = any(hidden.any() for hidden in variables.unseen)
    if unseen:
        refuse_unseen(variables)
    rules = rules_of(variables, whitelist, blacklist, max_parents, "learn_structure")
    if root is not None and method != "chow_liu":
        raise ModelError(f"learn_structure: root={root!r} is only for method='chow_liu', got "
                         f"method={method!r}. Omit root=, or put the arcs into {root!r} on the "
                         f"blacklist")

    def search(scores: Scores, start: list[int] | None = None) -> tuple[list[int], list[float]]:
        if method == "chow_liu":
            return tree(variables, scores, rules, root)
        if method == "exact":
            return exact(variables, scores, rules)
        return hill_climb(scores, rules, restarts, tabu, seed, start)

    if unseen:
        graphs = first_graphs(variables, score, strength, rules, method, seed)
        parents, trace = structural_em(
            variables, score, strength, graphs, lambda scores, start: search(scores, start)[0],
            seed, None if method == "chow_liu" else lambda parents: neighbours(parents, rules))
    else:
        parents, trace = search(Scores(variables, score, strength))
    dag = nx.DiGraph(score=trace[-1], trace=trace, status=variables.status)
    dag.add_nodes_from((name, {"states": states}) for name, states in variables.states.items())
    dag.add_edges_from((variables.names[j], variables.names[child])
                       for child, mask in enumerate(parents) for j in bits(mask))
    return dag


def structure_score(
    data,
    dag: nx.DiGraph,
    score: str | None = None,
    *,
    strength: float = 1.0,
    states: Mapping | None = None,
    kinds: Mapping | None = None,
):
    """The score of a graph for each node: a pandas Series in column order, whose sum is the score
    of the graph.

    The scores and their scale are those of the file's first lines; only scores of the same kind, on
    the same data, compare. BDeu and, for discrete columns, loglik, aic and bic are equal for graphs
    that imply the same independences; the Gaussian ones nearly so (up to Σ p²/4n, from dividing the
    variance by rows − p − 1).

    With missing cells the nodes' scores are those at the counts that the graph comes to expect (EM,
    or variational EM, at this graph: see `unseen`), and a last entry, "(missing cells)", is the
    entropy of what the cells may be; the sum is what `learn_structure` maximises: for loglik,
    aic and bic the largest log likelihood of the observed cells less the penalty, for bdeu and k2 a
    lower bound of its log evidence.

    Args:
        data: as in `learn_structure`; cells may be missing where all columns are discrete.
        dag: the graph; its nodes are the columns. The two may be given in either order.
        score: "bdeu", "k2", "loglik", "aic" or "bic"; continuous columns have the last three.
            None: as in `learn_structure`.
        strength: s of bdeu, the equivalent sample size.
        states: column → labels, where the data may not show them all.
        kinds: column → "categorical" or "normal", as in learn_structure.

    Returns:
        pandas.Series; −inf where a continuous node has a configuration of discrete parents with too
        few rows to fit.

    Raises:
        DataError: data that cannot be scored; missing cells together with continuous columns.
        ModelError: a graph with other nodes, a cycle or a continuous parent of a discrete node; an
        unknown score.

    Cost: O(rows) per family; with missing cells, a step of EM O(d · fillings), of some tens.
    """
    if isinstance(data, nx.DiGraph):
        data, dag = dag, data
    variables = read(data, states, kinds, complete=False)
    score = score_for(variables, score)
    unseen = any(hidden.any() for hidden in variables.unseen)
    if unseen:
        refuse_unseen(variables)
    scores = None if unseen else Scores(variables, score, strength)
    if not isinstance(dag, nx.DiGraph):
        raise ModelError(f"structure_score: expected a networkx.DiGraph, such as "
                         f"networkx.DiGraph([('parent', 'child')]), got {type_of(dag)}")
    known = set(variables.names)
    if unknown := [node for node in dag if node not in known]:
        raise ModelError(f"structure_score: node {unknown[0]!r} of the graph is not a column; "
                         f"{use_one_of(variables.names, unknown[0])}")
    if missing := [name for name in variables.names if name not in dag]:
        raise ModelError(
            f"structure_score: the column {missing[0]!r} is not a node of the graph. Add the node, "
            f"dag.add_node({missing[0]!r}), or drop the column, data[list(dag)]"
        )
    refuse_cycle(dag, "structure_score: the graph")
    index = {name: j for j, name in enumerate(variables.names)}
    for parent, child in dag.edges:
        if variables.labels[index[child]] is not None and variables.labels[index[parent]] is None:
            raise ModelError(
                f"structure_score: the discrete node {child!r} has the continuous parent "
                f"{parent!r}, which is not supported. Reverse the arc, or cut {parent!r} into "
                f"classes (pandas.cut)"
            )
    parents = [sum(1 << index[parent] for parent in dag.predecessors(name))
               for name in variables.names]
    if scores is None:
        families, entropy = settled_score(variables, score, strength, parents)
        return pd.Series([*families, entropy], [*variables.names, UNSEEN], name=score)
    return pd.Series(scores.families(range(len(parents)), parents), variables.names, name=score)
