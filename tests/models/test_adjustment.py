"""Adjustment sets held to Pearl's figures, to every subset of small graphs, and to do() of known
tables."""

import itertools

import networkx as nx
import numpy as np
import pytest

from probml import ModelError
from probml.models import adjustment_sets, backdoor, bayesian_network

# Pearl (1995), figure 2: X1 … X6 about X_i and X_j
PEARL = nx.DiGraph([("x1", "x3"), ("x1", "x4"), ("x2", "x4"), ("x2", "x5"), ("x3", "i"),
                    ("x4", "i"), ("x4", "j"), ("x5", "j"), ("i", "x6"), ("x6", "j")])


def test_the_sets_of_pearls_figure_are_found():
    """{x3, x4} and {x4, x5} satisfy the criterion, {x4} does not, {x6} neither."""
    found = adjustment_sets(PEARL, "i", "j")
    assert {frozenset({"x3", "x4"}), frozenset({"x4", "x5"})} <= set(found)
    assert all("x6" not in given for given in found)
    assert not backdoor(PEARL, "i", "j", {"x4"}) and not backdoor(PEARL, "i", "j", {"x6"})
    assert adjustment_sets(PEARL, "i", "j", unseen=["x4"]) == []
    assert adjustment_sets(nx.DiGraph([("a", "b")]), "a", "b") == [frozenset()]


@pytest.mark.parametrize("seed", range(6))
def test_every_smallest_set_of_a_small_graph_is_found(seed):
    random = np.random.default_rng(seed)
    order = random.permutation(6)
    dag = nx.DiGraph([(int(order[i]), int(order[j])) for i in range(6) for j in range(i + 1, 6)
                      if random.random() < 0.45])
    dag.add_nodes_from(range(6))
    cause, effect = int(order[2]), int(order[5])
    free = [node for node in dag if node not in nx.descendants(dag, cause) | {cause, effect}]
    paths = [path for path in nx.all_simple_paths(dag.to_undirected(), cause, effect)
             if dag.has_edge(path[1], path[0])]
    good = [frozenset(given) for size in range(len(free) + 1)
            for given in itertools.combinations(free, size)
            if all(open_not(dag, path, set(given)) for path in paths)]
    smallest = [given for given in good if not any(other < given for other in good)]
    assert set(adjustment_sets(dag, cause, effect)) == set(smallest)


def open_not(dag, path, given):
    """Whether a set blocks a path: at a chain or a fork in it, or at a collider out of it with all
    its descendants."""
    for a, node, b in zip(path, path[1:], path[2:], strict=False):
        if dag.has_edge(a, node) and dag.has_edge(b, node):
            if not (nx.descendants(dag, node) | {node}) & given:
                return True
        elif node in given:
            return True
    return False


def test_adjusting_gives_what_do_gives():
    dag = nx.DiGraph([("z", "x"), ("z", "y"), ("x", "y")])
    states = dict.fromkeys(dag, ["no", "yes"])
    truth = bayesian_network(dag, states=states).at({
        "z.table": [0.3, 0.7], "x.table": [[0.9, 0.1], [0.2, 0.8]],
        "y.table": [[[0.9, 0.1], [0.6, 0.4]], [[0.5, 0.5], [0.1, 0.9]]]})
    (given,) = adjustment_sets(truth.model.graph, "x", "y")
    assert given == {"z"}
    done = truth.do({"x": "yes"}).predict_proba({"z": [None]}, "y")[0, 1]
    adjusted = sum(truth.predict_proba({"x": ["yes"], "z": [z]}, "y")[0, 1] * p
                   for z, p in zip(["no", "yes"], [0.3, 0.7], strict=True))
    seen = truth.predict_proba({"x": ["yes"]}, "y")[0, 1]
    assert done == pytest.approx(adjusted, rel=1e-6) and abs(done - seen) > 0.01


def test_what_is_no_question_is_refused():
    with pytest.raises(ModelError, match="'q' is not a node of the graph"):
        adjustment_sets(PEARL, "i", "q")
    with pytest.raises(ModelError, match="two different nodes"):
        adjustment_sets(PEARL, "i", "i")
    with pytest.raises(ModelError, match="has the cycle"):
        adjustment_sets(nx.DiGraph([("a", "b"), ("b", "a")]), "a", "b")
