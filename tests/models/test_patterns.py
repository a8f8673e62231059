"""Patterns are what all graphs of a class have in common, and PC finds them from independences."""

import itertools

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import probml
from probml.models import (
    bayesian_network,
    conditional_dependence,
    dependence,
    learn_pattern,
    member_of,
    pattern_of,
)
from probml.models.bayesian_networks import learn_pattern as learning


def dags(names):
    """All directed acyclic graphs over a few names."""
    pairs = list(itertools.combinations(names, 2))
    for choice in itertools.product((None, 0, 1), repeat=len(pairs)):
        dag = nx.DiGraph()
        dag.add_nodes_from(names)
        dag.add_edges_from(pair[::-1] if turn else pair
                           for pair, turn in zip(pairs, choice, strict=True) if turn is not None)
        if nx.is_directed_acyclic_graph(dag):
            yield dag


def independences(dag):
    """All d-separations of single nodes."""
    return frozenset(
        (x, y, given) for x, y in itertools.combinations(dag, 2)
        for size in range(len(dag) - 1)
        for given in itertools.combinations([z for z in dag if z not in (x, y)], size)
        if nx.is_d_separator(dag, {x}, {y}, set(given)))


def random_dag(seed, size=7, share=0.35):
    rng = np.random.default_rng(seed)
    arcs = np.triu(rng.random((size, size)) < share, 1)
    dag = nx.DiGraph()
    dag.add_nodes_from(f"x{j}" for j in range(size))
    order = rng.permutation(size)
    dag.add_edges_from((f"x{order[i]}", f"x{order[j]}") for i, j in np.argwhere(arcs))
    return dag


def linear(dag, rows, seed):
    """Normal columns, each the sum of its parents and noise."""
    rng, columns = np.random.default_rng(seed), {}
    for node in nx.topological_sort(dag):
        columns[node] = rng.normal(size=rows) + sum(columns[p] for p in dag.predecessors(node))
    return pd.DataFrame(columns)[list(dag)]


# patterns


def test_a_pattern_has_the_arcs_that_all_graphs_of_the_same_independences_share():
    classes = {}
    for dag in dags("abcd"):
        classes.setdefault(independences(dag), []).append(dag)
    assert len(classes) == 185
    for members in classes.values():
        union = {arc for dag in members for arc in dag.edges}
        for dag in members:
            found = pattern_of(dag)
            assert set(found.edges) == union
        assert set(member_of(found).edges) in [set(dag.edges) for dag in members]


@pytest.mark.parametrize("seed", range(5))
def test_a_member_of_a_pattern_has_that_pattern(seed):
    found = pattern_of(random_dag(seed, 12))
    member = member_of(found)
    assert set(pattern_of(member).edges) == set(found.edges)


def test_patterns_without_a_graph_and_graphs_with_cycles_are_refused():
    square = nx.DiGraph([(a, b) for a, b in zip("abcd", "bcda", strict=True)]
                        + [(b, a) for a, b in zip("abcd", "bcda", strict=True)])
    with pytest.raises(probml.ModelError, match="no graph without cycles"):
        member_of(square)
    for wrong in (nx.DiGraph([("a", "b"), ("b", "a")]), nx.Graph([("a", "b")])):
        with pytest.raises(probml.ModelError, match="pattern_of"):
            pattern_of(wrong)
    with pytest.raises(probml.ModelError, match="member_of"):
        member_of(nx.Graph([("a", "b")]))


# tests of independence


def three(rows=400, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(3, size=rows), rng.integers(2, size=rows)
    c = (a + b + (rng.random(rows) < 0.3)) % 3
    return pd.DataFrame({"a": a, "b": b, "c": c}).astype(str)


def test_tests_of_tables_are_scipys_stratum_by_stratum():
    data = three()
    found = conditional_dependence(data, "a", "c", ["b"])
    for test, power in (("chi-squared", 1), ("likelihood ratio", 0)):
        parts = [stats.chi2_contingency(pd.crosstab(part.a, part.c), correction=False,
                                        lambda_=power) for _, part in data.groupby("b")]
        statistic, degrees = (sum(part[i] for part in parts) for i in (0, 2))
        np.testing.assert_allclose(found.loc[test], [statistic, degrees,
                                                     stats.chi2.sf(statistic, degrees)], rtol=1e-9)
    alone = dependence(pd.crosstab(data.a, data.b)).loc[found.index, found.columns]
    np.testing.assert_allclose(conditional_dependence(data, "a", "b"), alone, rtol=1e-12)


def test_values_that_a_stratum_lacks_have_no_degrees_there():
    data = three()
    data = data[(data.b == "0") | (data.c != "2")]
    assert (conditional_dependence(data, "a", "c", "b").degrees == 4 + 2).all()
    assert conditional_dependence(data.assign(b=data.a), "a", "c", ["b"]).p_value.eq(1).all()


def test_a_partial_correlation_is_that_of_a_regression():
    data = linear(nx.DiGraph([("x", "y"), ("y", "z"), ("x", "z")]), 60, 0)
    found = conditional_dependence(data, "x", "z", ["y"]).loc["partial correlation"]
    design = np.column_stack([np.ones(60), data.x, data.y])  # the t of x in z ~ x + y
    beta, rss = np.linalg.lstsq(design, data.z)[:2]
    error = np.sqrt(rss[0] / 57 * np.linalg.inv(design.T @ design)[1, 1])
    np.testing.assert_allclose(found, [beta[1] / error, 57, 2 * stats.t.sf(abs(beta[1] / error),
                                                                         57)], rtol=1e-9)
    plain = stats.pearsonr(data.x, data.z)
    np.testing.assert_allclose(conditional_dependence(data, "x", "z").p_value, plain.pvalue,
                               rtol=1e-9)


def test_rows_without_a_cell_of_a_test_are_left_out_of_it():
    data = three()
    holes = data.mask(np.random.default_rng(1).random(data.shape) < 0.2)
    pd.testing.assert_frame_equal(conditional_dependence(holes, "a", "c", ["b"]),
                                  conditional_dependence(holes.dropna(), "a", "c", ["b"]))


def test_columns_that_cannot_be_tested_are_refused():
    data = three().assign(x=np.linspace(0, 1, 400))
    for arguments, error, words in (
        (("a", "x"), probml.DataError, ("'x'", "'a'", "pandas.cut")),
        (("a", "q"), probml.DataError, ("'q'", "not a column")),
        (("a", "b", ["a"]), probml.ModelError, ("'a'", "twice")),
    ):
        with pytest.raises(error) as caught:
            conditional_dependence(data, *arguments)
        assert all(word in str(caught.value) for word in words), str(caught.value)


# PC


@pytest.mark.parametrize("seed", range(6))
def test_from_the_independences_themselves_the_pattern_is_found(seed, monkeypatch):
    dag = random_dag(seed)
    names = list(dag)

    def oracle(variables, test, i, j, given):
        chosen = {names[i]}, {names[j]}, {names[c] for c in given}
        return 0.0, 1.0, float(nx.is_d_separator(dag, *chosen))

    monkeypatch.setattr(learning, "independence_test", oracle)
    found = learn_pattern(linear(dag, 20, seed))
    assert set(found.edges) == set(pattern_of(dag).edges) and not found.graph["conflicts"]
    for pair, given in found.graph["separators"].items():
        x, y = pair
        assert nx.is_d_separator(dag, {x}, {y}, set(given))


def test_the_order_of_columns_decides_nothing():
    data = linear(random_dag(3), 150, 3)
    found = [set(learn_pattern(data[list(order)], 0.05).edges)
             for order in (data.columns, data.columns[::-1], data.columns[[3, 1, 0, 6, 5, 2, 4]])]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("name, arcs", [
    ("learning.test", "AB AD CD BE FE"), ("gaussian.test", "AC BC BD AF DF EF GF"),
])
def test_bnlearns_networks_are_found(shared_data, name, arcs):
    path = shared_data / "bn" / "samples" / f"{name}.csv"
    data = pd.read_csv(path if path.exists() else f"{path}.gz", keep_default_na=False)
    truth = nx.DiGraph(tuple(arc) for arc in arcs.split())
    found = learn_pattern(data)
    assert set(found.edges) == set(pattern_of(truth).edges)
    assert found.graph["tests"] < 200 and list(found) == list(data.columns)
    hidden = np.random.default_rng(0).random(data.shape) < 0.1
    assert set(learn_pattern(data.mask(hidden)).edges) == set(found.edges)


@pytest.mark.parametrize("test", ["likelihood ratio", "chi-squared"])
def test_asia_with_a_node_that_others_determine_is_pgmpys_pattern(shared_data, test):
    data = pd.read_csv(shared_data / "bn" / "samples" / "asia.csv", keep_default_na=False)
    found = learn_pattern(data, 0.05, test)
    open_ = ["BS", "SB", "LS", "SL"]
    assert {"".join(arc) for arc in found.edges} == {"BD", "ED", "EX", "LE", "TE", *open_}


def test_columns_that_are_constant_or_determined_are_taken():
    data = three().assign(k="same")
    assert learn_pattern(data).degree("k") == 0
    numbers = linear(random_dag(3), 100, 0)
    found = learn_pattern(numbers.assign(twice=2 * numbers["x0"]))
    assert found.has_edge("twice", "x0")


def test_a_pattern_becomes_a_network_that_is_fitted():
    data = three(2000).astype(int)
    data["c"] = np.minimum(data.a + data.b, 2) * (np.random.default_rng(3).random(2000) < 0.9)
    pattern = learn_pattern(data, test="chi-squared")
    assert set(pattern.edges) == {("a", "c"), ("b", "c")}
    assert all(p <= 0.01 for _, _, p in pattern.edges.data("p_value"))
    assert pattern.graph["separators"] == {frozenset("ab"): ()}
    assert set(bayesian_network(member_of(pattern)).graph.edges) == set(pattern.edges)
    assert learn_pattern(data, blacklist=[("c", "a")]).number_of_edges() == 2  # b – c, open


def test_settings_of_pc_that_cannot_be_met_are_refused():
    data = three()
    for options, words in (
        ({"level": 0.0}, ("level", "0.0")), ({"level": True}, ("level",)),
        ({"most": -1}, ("most", "-1")), ({"test": "fisher"}, ("'fisher'", "'chi-squared'")),
        ({"test": "partial correlation"}, ("'likelihood ratio'",)),
        ({"blacklist": [("a", "q")]}, ("'q'", "not a column")), ({"blacklist": ["abc"]}, ("pairs",)),
    ):
        with pytest.raises(probml.ModelError) as caught:
            learn_pattern(data, **options)
        assert all(word in str(caught.value) for word in words), str(caught.value)
    with pytest.raises(probml.DataError, match="one kind"):
        learn_pattern(data.assign(x=np.linspace(0, 1, 400)))
