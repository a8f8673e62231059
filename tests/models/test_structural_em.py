"""Structures from tables with unseen cells: the score is the seen cells' own, never falls, and the
graph is found."""

import itertools
import json

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import probml
from probml.models import (
    bayesian_network,
    learn_structure,
    pattern_of,
    read_bif,
    structure_score,
)
from probml.models.bayesian_networks.unseen import structural_em as filling
from probml.models.bayesian_networks.unseen.structural_em import (
    Available,
    completions,
    structural_em,
)
from probml.models.bayesian_networks.variables import read

CHAIN = [("a", "b"), ("b", "c"), ("a", "c")]


def small(rows=80, share=0.25, seed=0):
    """Three columns of 2, 3 and 2 states, some cells unseen."""
    rng = np.random.default_rng(seed)
    a = rng.integers(2, size=rows)
    b = np.where(rng.random(rows) < 0.7, a, 2)
    c = (a + (b == 2) + (rng.random(rows) < 0.15)) % 2
    data = pd.DataFrame({"a": a, "b": b, "c": c}).astype(str)
    return data.mask(rng.random(data.shape) < share)


def fixed(data, arcs, score, **options):
    """learn_structure where the lists leave one graph."""
    others = set(itertools.permutations(data.columns, 2)) - set(arcs)
    return learn_structure(data, score, whitelist=arcs, blacklist=others, **options).graph["score"]


def test_the_score_of_a_graph_is_the_largest_likelihood_of_what_is_seen():
    """EM by hand over all fillings of each row, no code of ours."""
    data = small()
    codes = np.stack([data[name].astype("category").cat.codes for name in "abc"], 1)
    every = np.array(list(itertools.product(range(2), range(3), range(2))))
    fits = ((codes[:, None] == every) | (codes[:, None] < 0)).all(2)  # (rows, fillings)
    joint = np.full(12, 1 / 12)
    for _ in range(3000):  # the complete graph's tables are the joint one
        share = fits * joint
        joint = (share / share.sum(1, keepdims=True)).mean(0)
    likelihood = np.log(fits @ joint).sum()
    np.testing.assert_allclose(fixed(data, CHAIN, "loglik"), likelihood, atol=1e-4)
    np.testing.assert_allclose(fixed(data, CHAIN, "bic"), likelihood - 11 * np.log(80) / 2,
                               atol=1e-4)


@pytest.mark.parametrize("name, expected", [("learning_test_mcar20", -3936.8325903070177),
                                            ("asia_mcar10", -4060.7033992600177)])
def test_the_score_of_the_true_graph_is_pyagrums_likelihood(shared_data, name, expected):
    folder = shared_data / "bn" / "missing"
    data = pd.read_csv(folder / f"{name}.csv", na_values="?", keep_default_na=False)
    said = json.loads((folder / f"{name}.reference.json").read_text())
    arcs = [(parent, node) for node, table in said["cpts"].items() for parent in table["axes"][:-1]]
    np.testing.assert_allclose(fixed(data, arcs, "loglik"), expected, atol=2e-4)


@pytest.mark.slow
def test_under_bdeu_the_score_is_the_bound_of_variational_bayes():
    """Where every unseen cell has a seen one below it; VB leaves out those that have none."""
    data, arcs = small(), [("a", "b"), ("a", "c")]
    model = bayesian_network(nx.DiGraph(arcs), data=data)
    roots = data.dropna(subset=["b", "c"])
    bound = model.fit(roots, probml.VB(tolerance=1e-10, restarts=1)).bound
    np.testing.assert_allclose(fixed(roots, arcs, "bdeu"), bound, atol=1e-4)


@pytest.mark.parametrize("score", ["bdeu", "k2"])
def test_the_score_is_below_the_log_evidence_of_what_is_seen(score):
    data = small(14, 0.1, seed=1)
    hidden = np.argwhere(data.isna().to_numpy())
    states = {"a": ["0", "1"], "b": ["0", "1", "2"], "c": ["0", "1"]}
    dag, totals = nx.DiGraph(CHAIN), []
    for values in itertools.product(*(states["abc"[j]] for _, j in hidden)):
        filled = data.to_numpy(object, copy=True)
        filled[tuple(hidden.T)] = values
        totals.append(structure_score(pd.DataFrame(filled, columns=list("abc")), dag, score,
                                      states=states).sum())
    evidence, bound = np.logaddexp.reduce(totals), fixed(data, CHAIN, score, states=states)
    assert len(totals) == 108 and evidence - 2 < bound < evidence


@pytest.mark.parametrize("score", ["bdeu", "k2", "aic", "bic"])
def test_with_nothing_unseen_the_score_is_the_complete_one(score):
    data = small(share=0.0)
    variables = read(data)
    parents, trace = structural_em(variables, score, 1.0, [[0, 1, 3]], lambda scores, start: start)
    assert parents == [0, 1, 3]
    np.testing.assert_allclose(trace, structure_score(data, nx.DiGraph(CHAIN), score).sum(),
                               rtol=1e-12)


@pytest.mark.parametrize("method", ["hill_climb", "exact", "chow_liu"])
@pytest.mark.parametrize("score", ["bdeu", "k2", "aic", "bic"])
def test_the_score_of_what_is_seen_never_falls(score, method):
    data = small(300, 0.3, seed=2)
    dag = learn_structure(data, score, method, **({"restarts": 2} if method == "hill_climb"
                                                  else {}))
    trace = dag.graph["trace"]
    assert len(trace) > 1 and (np.diff(trace) > 0).all() and trace[-1] == dag.graph["score"]
    np.testing.assert_allclose(fixed(data, list(dag.edges), score), trace[-1], atol=0.01)


def test_the_graph_is_found_with_a_fifth_of_the_cells_unseen(shared_data):
    data = pd.read_csv(shared_data / "bn" / "samples" / "learning.test.csv", keep_default_na=False)
    hidden = np.random.default_rng(0).random(data.shape) < 0.2
    truth = nx.DiGraph([("A", "B"), ("A", "D"), ("C", "D"), ("B", "E"), ("F", "E")])
    for score in ("bdeu", "bic"):
        dag = learn_structure(data.mask(hidden), score, restarts=3)
        assert set(pattern_of(dag).edges) == set(pattern_of(truth).edges)


@pytest.mark.parametrize("score", ["bdeu", "loglik"])
def test_the_score_of_a_graph_with_unseen_cells_is_what_the_search_climbs(score):
    data = small()
    found = structure_score(data, nx.DiGraph(CHAIN), score)
    assert list(found.index) == ["a", "b", "c", "(missing cells)"] and found.iloc[-1] > 0
    np.testing.assert_allclose(found.sum(), fixed(data, CHAIN, score), rtol=1e-9)
    whole = data.dropna().reset_index(drop=True)
    assert list(structure_score(whole, nx.DiGraph(CHAIN), score).index) == ["a", "b", "c"]


def test_a_first_graph_is_scored_on_the_rows_where_a_family_is_seen():
    data = small()
    rows = data.dropna(subset=["a", "c"])[["a", "c"]]
    joined, alone = (structure_score(rows, graph, "bdeu")["c"] for graph in
                     (nx.DiGraph([("a", "c")]), nx.empty_graph(["a", "c"], nx.DiGraph)))
    found = Available(read(data, complete=False), "bdeu", 1.0).families([2, 0, 2], [1, 0, 3])
    np.testing.assert_allclose(found[:2], [joined - alone, 0.0], rtol=1e-10)
    none = data.assign(a=data["a"].where(data["c"].isna()))  # no row has both
    assert Available(read(none, complete=False), "bdeu", 1.0).families([2], [1])[0] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["asia", "survey", "cancer"])
def test_with_half_of_the_cells_unseen_the_end_is_as_high_as_the_truth(shared_data, name):
    """Where cells filled evenly thin out what the seen ones tell: from independent columns alone
    asia's end was 22 nats below."""
    truth = read_bif(shared_data / "bn" / "networks" / f"{name}.bif")
    data = pd.DataFrame(truth.simulate(2000, seed=1))[list(truth.model.graph)].astype(str)
    data = data.mask(np.random.default_rng(0).random(data.shape) < 0.5)
    dag = learn_structure(data, restarts=3)
    assert dag.graph["score"] > structure_score(data, truth.model.graph).sum() - 1.0


@pytest.mark.slow
@pytest.mark.parametrize("score", ["bdeu", "bic"])
def test_where_fillings_are_too_many_draws_find_the_same_graph(score, monkeypatch):
    data = small(1000, 0.2)
    dag = learn_structure(data, score, restarts=2)
    monkeypatch.setattr(filling, "MAX_COMPLETIONS", 10)
    drawn = learn_structure(data, score, restarts=2)
    assert set(pattern_of(drawn).edges) == set(pattern_of(dag).edges)
    assert (np.diff(drawn.graph["trace"]) > 0).all()
    if score == "bic":
        np.testing.assert_allclose(drawn.graph["score"], dag.graph["score"], atol=0.01)
    else:  # VB leaves out unseen cells that have no seen one below: its bound is a little higher
        assert 0 <= drawn.graph["score"] - dag.graph["score"] < 2


def test_rows_are_taken_in_any_order_and_lists_are_obeyed():
    data = small(200)
    one, other = (learn_structure(table, restarts=2)
                  for table in (data, data.sample(frac=1, random_state=0)))
    assert list(one.edges) == list(other.edges)
    np.testing.assert_allclose(one.graph["score"], other.graph["score"], rtol=1e-9)
    assert learn_structure(data, max_parents=0, restarts=0).number_of_edges() == 0
    assert ("c", "a") in learn_structure(data, whitelist=[("c", "a")],
                                         restarts=0).edges


def test_fillings_are_all_of_them_and_add_up():
    found = completions(read({"a": ["x", None, "y", None], "b": ["u", None, None, None]},
                             {"b": ["u", "v", "w"]}, complete=False))
    assert found.cells.T.tolist() == [[i, j] for i in range(2) for j in range(3)]
    assert found.times.tolist() == [2, 1, 1]  # all unseen, ("x", "u"), ("y", unseen)
    weights, entropy = found.expected(np.zeros(6))
    np.testing.assert_allclose(weights, np.array([2 + 6, 2, 2, 4, 4, 4]) / 6)
    np.testing.assert_allclose(entropy, 2 * np.log(6) + np.log(3))


def test_unseen_cells_that_cannot_be_taken_are_refused_with_what_to_do():
    data = small()

    def refused(*words, data, **options):
        with pytest.raises(probml.DataError) as caught:
            learn_structure(data, "bic", **options)
        assert all(word in str(caught.value) for word in words), str(caught.value)

    row = int(np.argmax(data["a"].isna()))
    refused("'a'", f"row {row} ", "'x'", "pandas.cut", "dropna", "impute",
            data=data.assign(x=np.linspace(0, 1, 80)))
    refused("'c'", "every row", "Drop", data=data.assign(c=pd.Categorical([None] * 80, ["u", "v"])))
    with pytest.raises(probml.DataError, match="'a' is missing in row .*Continuous: 'x'"):
        structure_score(data.assign(x=np.linspace(0, 1, 80)), nx.DiGraph([*CHAIN, ("a", "x")]), "bic")
