"""Probabilities of arcs equal the sum over every graph, each weighted by its number of orders."""

import functools
import itertools

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import probml
from probml.models import edge_probabilities, learn_structure
from probml.models.bayesian_networks.scores import Scores
from probml.models.bayesian_networks.variables import read


def small(rows=60, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(2, size=rows), rng.integers(3, size=rows)
    c = (a + (rng.random(rows) < 0.3)) % 2
    d = np.minimum(b + c + (rng.random(rows) < 0.5), 3)
    return pd.DataFrame({"a": a, "b": b, "c": c, "d": d})


@functools.cache
def graphs(size=4):
    """(arcs, parents as bit masks, permutations that agree) of every acyclic graph."""
    pairs, out = list(itertools.combinations(range(size), 2)), []
    for choice in itertools.product((None, 0, 1), repeat=len(pairs)):
        arcs = np.zeros((size, size), bool)
        for (i, j), turn in zip(pairs, choice, strict=True):
            if turn is not None:
                arcs[(j, i) if turn else (i, j)] = True
        orders = sum(not arcs[np.ix_(order, order)][np.tril_indices(size)].any()
                     for order in map(list, itertools.permutations(range(size))))
        if orders:
            masks = [sum(1 << int(j) for j in np.flatnonzero(column)) for column in arcs.T]
            out.append((arcs, masks, orders))
    return out


def enumerated(data, score, strength, holds):
    """Over all graphs of four nodes: exp(score), times the permutations that agree."""
    scores = Scores(read(data), score, strength)
    kept = [each for each in graphs() if holds(each[0])]
    logs = np.array([scores.total(masks) + np.log(orders) for _, masks, orders in kept])
    return np.tensordot(np.exp(logs - np.logaddexp.reduce(logs)),
                        np.array([arcs for arcs, _, _ in kept]), 1)


@pytest.mark.parametrize("score, strength", [("bdeu", 1.0), ("bdeu", 10.0), ("k2", 1.0),
                                             ("bic", 1.0)])
def test_probabilities_of_arcs_are_those_of_all_543_graphs(score, strength):
    assert len(graphs()) == 543
    data = small()
    found = edge_probabilities(data, score, strength=strength)
    np.testing.assert_allclose(found, enumerated(data, score, strength, lambda arcs: True),
                               atol=1e-10)
    assert found.loc["a", "c"] + found.loc["c", "a"] > 0.5 and (np.diag(found) == 0).all()


def test_lists_and_the_limit_of_parents_hold_of_every_graph_in_the_sum():
    data = small()
    for options, holds in (
        ({"max_parents": 1}, lambda arcs: arcs.sum(0).max() <= 1),
        ({"whitelist": [("d", "a")], "blacklist": [("b", "d")]},
         lambda arcs: arcs[3, 0] and not arcs[1, 3]),
    ):
        np.testing.assert_allclose(edge_probabilities(data, **options),
                                   enumerated(data, "bdeu", 1.0, holds), atol=1e-10)


def test_continuous_columns_have_no_arc_into_discrete_ones():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"k": rng.integers(2, size=200), "x": rng.normal(size=200)})
    data["y"] = data.x + 2.0 * data.k + rng.normal(size=200)
    found = edge_probabilities(data, "bic")
    assert (found["k"] == 0).all() and found.loc["k", "y"] > 0.99
    assert found.loc["x", "y"] + found.loc["y", "x"] > 0.99


def test_many_rows_leave_the_graph_that_is_learnt():
    rng = np.random.default_rng(1)
    data = {"x0": rng.integers(2, size=2000), "x1": rng.integers(2, size=2000)}
    for j in range(2, 8):
        data[f"x{j}"] = (data[f"x{j - 1}"] + data[f"x{j - 2}"] * (j % 2)
                         + (rng.random(2000) < 0.2)) % 2
    data = pd.DataFrame(data)
    found = edge_probabilities(data, max_parents=3)
    joined = (found + found.T).to_numpy() > 0.5
    dag = learn_structure(data, max_parents=3)
    arcs = nx.to_numpy_array(dag, nodelist=list(data.columns)).astype(bool)
    assert (joined == (arcs | arcs.T)).all()


def test_what_has_no_probabilities_is_refused():
    data = small()
    with pytest.raises(probml.ModelError, match="score='loglik'.*the log probability of the data"):
        edge_probabilities(data, "loglik")
    with pytest.raises(probml.ModelError, match="21 columns"):
        edge_probabilities(pd.DataFrame(np.zeros((4, 21), int)).add_prefix("x"))
    with pytest.raises(probml.ModelError, match="edge_probabilities: .*'q'"):
        edge_probabilities(data, whitelist=[("a", "q")])
    with pytest.raises(probml.ModelError, match="max_parents"):
        edge_probabilities(data, max_parents=-1)
    with pytest.raises(probml.DataError, match="does not support missing values"):
        edge_probabilities(data.astype(float).mask(data == 2).astype("Int64"))
