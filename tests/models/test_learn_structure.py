"""Learning structure: scores equal bnlearn's and the formulas written out, searches reach the
optimum, every refusal names its cause."""

import itertools
import json
import time

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy.special import gammaln

import probml
from compilations import counted
from probml.models.bayesian_networks import scores as scoring
from probml.models.bayesian_networks.learn_structure import learn_structure, structure_score
from probml.models.bayesian_networks.scores import Scores
from probml.models.bayesian_networks.variables import read

DISCRETE = ["asia", "learning.test", "lizards", "alarm", "hailfinder"]
GAUSSIAN = ["gaussian.test", "clgaussian.test"]
WET = nx.DiGraph([("cloudy", "sprinkler"), ("cloudy", "rain"), ("sprinkler", "wet"),
                  ("rain", "wet")])


def reference(folder, name):
    """(data, what bnlearn found) of a data set."""
    path = folder / "bn" / "samples" / f"{name}.csv"
    data = pd.read_csv(path if path.exists() else f"{path}.gz", keep_default_na=False)
    return data, json.loads((folder / "bn" / "fits" / f"{name}.bnlearn.json").read_text())


def graph(text):
    """bnlearn's model string, "[a][b|a]", as a graph."""
    dag = nx.DiGraph()
    for part in text.strip("[]").split("]["):
        node, _, parents = part.partition("|")
        dag.add_node(node)
        dag.add_edges_from((parent, node) for parent in parents.split(":") if parent)
    return dag


def skeleton(dag):
    return {frozenset(arc) for arc in dag.edges}


def sprinkler(seed, rows=5000):
    """Pearl's wet grass, simulated row by row."""
    u = np.random.default_rng(seed).random((4, rows))
    cloudy = u[0] < 0.5
    on, rain = u[1] < np.where(cloudy, 0.1, 0.5), u[2] < np.where(cloudy, 0.8, 0.2)
    wet = u[3] < np.where(on & rain, 0.99, np.where(on | rain, 0.9, 0.0))
    columns = {"cloudy": cloudy, "sprinkler": on, "rain": rain, "wet": wet}
    return pd.DataFrame({name: np.where(values, "yes", "no") for name, values in columns.items()})


def small(seed=0, rows=60):
    """Four discrete columns of 2, 3, 2 and 4 states, some configurations of which never occur."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(2, size=rows), rng.integers(3, size=rows)
    c = (a + (rng.random(rows) < 0.2)) % 2
    d = np.minimum(b + c, 3)
    return pd.DataFrame({"a": a, "b": b, "c": c, "d": np.where(rng.random(rows) < 0.1, 0, d)})


def mixed(seed=0, rows=300):
    """Two discrete columns and three continuous ones that hang on them."""
    rng = np.random.default_rng(seed)
    k, m = rng.integers(3, size=rows), rng.integers(2, size=rows)
    x = rng.normal(size=rows) * 2 + 5
    y = np.array([1.0, -2.0, 0.5])[k] * x + k + rng.normal(size=rows)
    z = y * 0.3 + m + rng.normal(size=rows) * np.array([0.5, 2.0])[m]
    return pd.DataFrame({"k": np.array(list("uvw"))[k], "m": m == 1, "x": x, "y": y, "z": z})


def dags(names, allowed=lambda parent, child: True):
    """All directed acyclic graphs over a few names."""
    pairs = list(itertools.combinations(names, 2))
    for choice in itertools.product((None, 0, 1), repeat=len(pairs)):
        arcs = [pair[::-1] if turn else pair for pair, turn in zip(pairs, choice, strict=True)
                if turn is not None]
        dag = nx.DiGraph(arcs)
        dag.add_nodes_from(names)
        if all(allowed(*arc) for arc in arcs) and nx.is_directed_acyclic_graph(dag):
            yield dag


def masks(dag):
    """The parents of a, b, c and d as bit masks."""
    return [sum(1 << "abcd".index(parent) for parent in dag.predecessors(node)) for node in "abcd"]


# scores


@pytest.mark.parametrize("name", DISCRETE + GAUSSIAN)
def test_scores_of_the_reference_graphs_are_bnlearns_node_by_node(shared_data, name):
    data, ref = reference(shared_data, name)
    seen = 0
    for key, expected in ref["scores"].items():
        score, strength = key.removesuffix("-g").removesuffix("-cg"), 1.0
        if key.startswith("bde_iss"):
            score, strength = "bdeu", float(key[len("bde_iss") :])
        if score not in scoring.SCORES:
            continue
        got = structure_score(data, graph(ref["structure"]), score, strength=strength)
        assert list(got.index) == list(data.columns)
        np.testing.assert_allclose(got.sum(), expected["total"], rtol=1e-11)
        for node, value in expected["by_node"].items():
            np.testing.assert_allclose(got[node], value, rtol=1e-9, atol=1e-8,
                                       err_msg=f"{key} {node}")
        seen += 1
    assert seen == (3 if name in GAUSSIAN else 7)


@pytest.mark.parametrize("name", DISCRETE[:4])
def test_scores_of_the_empty_graph_are_bnlearns(shared_data, name):
    data, ref = reference(shared_data, name)
    empty = nx.empty_graph(data.columns, nx.DiGraph)
    for score, value in ref["empty_graph_scores"].items():
        np.testing.assert_allclose(structure_score(data, empty, score).sum(), value, rtol=1e-11)


def direct(data, states, node, parents, score, strength):
    """The score of a family from its definition, cell by cell."""
    r, q = states[node], int(np.prod([states[parent] for parent in parents]))
    total, weight = 0.0, {"aic": 1.0, "bic": 0.5 * np.log(len(data))}.get(score, 0.0)
    for values in itertools.product(*(range(states[parent]) for parent in parents)):
        part = data
        for parent, value in zip(parents, values, strict=True):
            part = part[part[parent] == value]
        counts = np.array([(part[node] == k).sum() for k in range(r)])
        if score in ("bdeu", "k2"):
            cell = strength / (r * q) if score == "bdeu" else 1.0
            total += gammaln(r * cell) - gammaln(r * cell + len(part)) + (
                gammaln(cell + counts) - gammaln(cell)
            ).sum()
        else:
            total += sum(n * np.log(n / len(part)) for n in counts if n)
    return total - weight * (r - 1) * q


@pytest.mark.parametrize("score", scoring.SCORES)
def test_discrete_scores_equal_the_formulas_cell_by_cell_with_states_that_never_occur(score):
    data = small()
    states = {"a": 2, "b": 5, "c": 2, "d": 4}
    for dag in itertools.islice(dags("abcd"), 0, None, 60):
        got = structure_score(data, dag, score, strength=3.0, states={"b": 5})
        expected = [direct(data, states, node, list(dag.predecessors(node)), score, 3.0)
                    for node in "abcd"]
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-10)


def test_gaussian_scores_equal_least_squares_in_every_configuration():
    data = mixed()
    dag = nx.DiGraph([("k", "y"), ("x", "y"), ("m", "z"), ("k", "z"), ("y", "z"), ("x", "z"),
                      ("k", "m")])
    got = structure_score(data, dag, "bic")
    assert structure_score(dag, data, "bic").equals(got)
    for node, discrete, continuous in (("x", [], []), ("y", ["k"], ["x"]),
                                       ("z", ["k", "m"], ["x", "y"])):
        expected = 0.0
        for _, part in data.groupby(discrete) if discrete else [((), data)]:
            design = np.column_stack([np.ones(len(part)), part[continuous]])
            residual = part[node] - design @ np.linalg.lstsq(design, part[node])[0]
            variance = (residual**2).sum() / (len(part) - design.shape[1])
            expected -= 0.5 * (
                len(part) * np.log(2 * np.pi * variance) + (residual**2).sum() / variance
            )
        q = int(np.prod([data[name].nunique() for name in discrete]))
        np.testing.assert_allclose(
            got[node], expected - 0.5 * np.log(len(data)) * (len(continuous) + 2) * q, rtol=1e-10
        )


def test_gaussian_scores_survive_units_far_from_one():
    data = mixed()
    dag = nx.DiGraph([("x", "y"), ("y", "z"), ("k", "y")])
    dag.add_node("m")
    plain = structure_score(data, dag, "loglik")
    for factor, shift in ((1e-150, 0.0), (1e150, 0.0), (1.0, 1e6)):
        moved = structure_score(data.assign(y=data.y * factor + shift), dag, "loglik")
        np.testing.assert_allclose(moved["y"], plain["y"] - len(data) * np.log(factor), rtol=1e-7)
        np.testing.assert_allclose(moved["z"], plain["z"], rtol=1e-7)


@pytest.mark.parametrize("score, strength", [("bdeu", 1.0), ("bdeu", 7.0), ("bic", 1.0),
                                             ("aic", 1.0), ("loglik", 1.0)])
def test_equivalent_graphs_score_the_same(score, strength):
    data = small()
    classes = {}
    for dag in dags("abcd"):
        colliders = frozenset(
            (frozenset(pair), child)
            for child in dag
            for pair in itertools.combinations(dag.predecessors(child), 2)
            if not dag.has_edge(*pair) and not dag.has_edge(*pair[::-1])
        )
        # Verma & Pearl 1990
        classes.setdefault((frozenset(skeleton(dag)), colliders), []).append(dag)
    assert len(classes) == 185
    scores = Scores(read(data), score, strength)
    for members in classes.values():
        totals = [scores.families(range(4), masks(dag)).sum() for dag in members]
        np.testing.assert_allclose(totals, totals[0], rtol=1e-12)


def test_a_family_is_counted_once_and_none_compiles_anew():
    scores = Scores(read(sprinkler(0)), "bdeu")
    first = scores.families([0, 1, 2], [0b10, 0b1, 0b11])
    assert scores.counted == 4  # {0, 1}, {0}, {1} and {0, 1, 2}
    with counted() as programs:
        np.testing.assert_array_equal(scores.families([0, 1, 2, 0], [0b10, 0b1, 0b11, 0b0])[:3],
                                      first)
        assert scores.counted == 5  # the empty set
        scores.families([3, 3, 2], [0b111, 0b100, 0b1001])
        learn_structure(sprinkler(1), "k2")
        learn_structure(sprinkler(2, 3000), "bic", "exact")
    assert not programs


@pytest.mark.parametrize("score", ["bdeu", "k2", "bic"])
def test_tables_larger_than_the_rows_are_counted_the_same(score, monkeypatch):
    data = pd.DataFrame(np.random.default_rng(0).integers(0, 3, (500, 6)), columns=list("abcdef"))
    dag = nx.DiGraph([(parent, child) for i, child in enumerate("abcdef")
                      for parent in "abcdef"[:i]])
    dense = structure_score(data, dag, score)
    monkeypatch.setattr(scoring, "MAX_CELLS", 10)
    np.testing.assert_allclose(structure_score(data, dag, score), dense, rtol=1e-12)


def test_very_many_cells_are_scored_without_a_table_of_them():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({f"x{j}": rng.integers(0, 1000, 400) for j in range(10)})
    dag = nx.DiGraph([(f"x{j}", "x9") for j in range(9)])
    kinds = dict.fromkeys(data, "categorical")
    assert np.isfinite(structure_score(data, dag, "bdeu", kinds=kinds)).all()
    assert structure_score(data, dag, "loglik", kinds=kinds)["x9"] == 0.0
    assert learn_structure(data, "bic", restarts=1, kinds=kinds).number_of_edges() == 0


# searches


@pytest.mark.parametrize("name", [*DISCRETE[:3], *GAUSSIAN])
def test_both_searches_reach_at_least_bnlearns_score(shared_data, name):
    data, ref = reference(shared_data, name)
    climbed, exact = (learn_structure(data, "bic", method) for method in ("hill_climb", "exact"))
    assert climbed.graph["score"] >= ref["hc_bic"]["bic"] - 1e-6
    np.testing.assert_allclose(climbed.graph["score"], exact.graph["score"], rtol=1e-9)
    if name in GAUSSIAN:
        assert skeleton(climbed) == skeleton(graph(ref["structure"]))


def test_alarm_is_learnt_beyond_bnlearns_score_and_the_truths_in_seconds(shared_data):
    data, ref = reference(shared_data, "alarm")
    start = time.perf_counter()
    dag = learn_structure(data, "bic")
    assert time.perf_counter() - start < 20
    assert dag.graph["score"] >= ref["hc_bic"]["bic"]
    assert dag.graph["score"] >= ref["scores"]["bic"]["total"]
    np.testing.assert_allclose(structure_score(data, dag, "bic").sum(), dag.graph["score"],
                               rtol=1e-12)


def found_sprinklers(seeds, **options):
    return sum(skeleton(learn_structure(sprinkler(seed), **options)) == skeleton(WET)
               for seed in seeds)


def test_the_sprinkler_is_found_in_all_of_20_samples_where_greedy_climbing_often_fails():
    assert found_sprinklers(range(20), restarts=2) == 20
    assert found_sprinklers(range(20), restarts=0, tabu=0) < 12


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"restarts": 0}, {"method": "exact"}, {"score": "bic"},
                                     {"score": "k2"}])
def test_the_sprinkler_is_found_in_all_of_60_samples(options):
    assert found_sprinklers(range(60), **options) == 60


@pytest.mark.parametrize("score", ["bdeu", "k2", "bic"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_exact_search_finds_the_best_of_all_543_graphs(score, seed):
    data = small(seed)
    every = list(dags("abcd"))
    assert len(every) == 543
    totals = np.array([structure_score(data, dag, score).sum() for dag in every[::30]])
    scores = Scores(read(data), score)
    all_totals = np.array([scores.families(range(4), masks(dag)).sum() for dag in every])
    np.testing.assert_allclose(all_totals[::30], totals, rtol=1e-12)
    rules = {
        "none": ({}, lambda dag: True),
        "arcs": ({"whitelist": [("d", "a")], "blacklist": [["d", "b"]]},
                 lambda dag: dag.has_edge("d", "a") and not dag.has_edge("d", "b")),
        "parents": ({"max_parents": 1}, lambda dag: max(dict(dag.in_degree).values()) <= 1),
    }
    for options, holds in rules.values():
        best = max(total for dag, total in zip(every, all_totals, strict=True) if holds(dag))
        for method in ("exact", "hill_climb"):
            dag = learn_structure(data, score, method, **options)
            assert holds(dag)
            np.testing.assert_allclose(dag.graph["score"], best, rtol=1e-10,
                                       err_msg=f"{method} {options}")
        assert len(learn_structure(data, score, "exact", **options).graph["trace"]) == 2


def test_the_exact_search_finds_the_best_graph_of_discrete_and_continuous_columns():
    data = mixed()[["k", "x", "y", "z"]]
    every = list(dags(data.columns, lambda parent, child: child != "k"))
    best = max(structure_score(data, dag, "bic").sum() for dag in every)
    for method in ("exact", "hill_climb"):
        dag = learn_structure(data, "bic", method)
        assert not list(dag.predecessors("k"))
        np.testing.assert_allclose(dag.graph["score"], best, rtol=1e-12)


@pytest.mark.slow
def test_fifteen_columns_are_solved_exactly_within_a_minute(shared_data):
    data, _ = reference(shared_data, "alarm")
    data = data.iloc[:, :15]
    start = time.perf_counter()
    exact = learn_structure(data, "bdeu", "exact")
    assert time.perf_counter() - start < 60
    np.testing.assert_allclose(learn_structure(data, "bdeu").graph["score"], exact.graph["score"],
                               rtol=1e-9)


@pytest.mark.parametrize("name", DISCRETE)
def test_the_best_tree_is_bnlearns(shared_data, name):
    data, ref = reference(shared_data, name)
    expected = {frozenset(edge.split(" -- ")) for edge in ref["chow_liu_edges"]}
    tree = learn_structure(data, "loglik", "chow_liu")
    assert nx.is_arborescence(tree) and tree.in_degree(data.columns[0]) == 0
    # columns that determine each other: several trees are best, and all have the same weight
    if name == "hailfinder":
        likelihoods = []
        for edges in (expected, skeleton(tree)):
            turned = nx.bfs_tree(nx.Graph(map(tuple, edges)), data.columns[0])
            likelihoods.append(structure_score(data, turned, "loglik").sum())
        np.testing.assert_allclose(*likelihoods, rtol=1e-12)
    else:
        assert skeleton(tree) == expected
    root = data.columns[-1]
    turned = learn_structure(data, "loglik", "chow_liu", root=root)
    assert (turned.in_degree(root) == 0 and nx.is_arborescence(turned)
            and skeleton(turned) == skeleton(tree))
    np.testing.assert_allclose(turned.graph["score"], tree.graph["score"], rtol=1e-10)


def test_the_best_tree_of_continuous_columns_follows_their_correlations(shared_data):
    data, _ = reference(shared_data, "gaussian.test")
    weights = nx.Graph()
    correlations = data.corr()
    weights.add_weighted_edges_from((a, b, -np.log(1 - correlations.loc[a, b] ** 2))
                                    for a, b in itertools.combinations(data.columns, 2))
    expected = {frozenset(edge) for edge in nx.maximum_spanning_tree(weights).edges}
    assert skeleton(learn_structure(data, "bic", "chow_liu")) == expected


@pytest.mark.parametrize("method", ["hill_climb", "exact"])
def test_lists_and_the_limit_of_parents_are_obeyed(method):
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.integers(0, 2, (300, 6)), columns=list("abcdef"))
    data["f"] = (data.a + data.b + data.c > 1).astype(int)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        arcs = [tuple(rng.permutation(list("abcdef"))[:2].tolist()) for _ in range(12)]
        white = [(a, b) for a, b in arcs[:3] if a < b]
        black = [arc for arc in arcs[3:] if arc not in white]
        dag = learn_structure(data, "aic", method, whitelist=white, blacklist=black, max_parents=3,
                              restarts=2, seed=seed)
        assert set(white) <= set(dag.edges) and not set(black) & set(dag.edges)
        assert max(dict(dag.in_degree).values()) <= 3 and nx.is_directed_acyclic_graph(dag)
    assert learn_structure(data, "bdeu", method, max_parents=0).number_of_edges() == 0


def test_the_result_says_how_it_came_about():
    data = sprinkler(3)
    dag = learn_structure(data, "bic")
    trace = dag.graph["trace"]
    assert (list(dag) == list(data.columns) and np.all(np.diff(trace) >= 0)
            and trace[-1] == dag.graph["score"])
    np.testing.assert_allclose(trace[
        0
    ], structure_score(data, nx.empty_graph(data.columns, nx.DiGraph), "bic").sum(), rtol=1e-12)
    np.testing.assert_allclose(trace[-1], structure_score(data, dag, "bic").sum(), rtol=1e-12)
    again = learn_structure(data, "bic")
    assert list(again.edges) == list(dag.edges) and again.graph == dag.graph


@pytest.mark.parametrize("method", ["hill_climb", "exact", "chow_liu"])
def test_the_order_of_rows_does_not_matter(method):
    data = small(rows=200)
    shuffled = data.sample(frac=1.0, random_state=1)
    one, other = (learn_structure(table, "bdeu", method) for table in (data, shuffled))
    assert list(one.edges) == list(other.edges) and one.graph == other.graph


def test_labels_may_be_of_any_kind_and_data_of_any_container():
    data = small(rows=200)
    plain = learn_structure(data)
    text = data.astype(str)
    tables = {
        "text": text,
        "categorical": text.astype("category"),
        "bool": data.assign(a=data.a == 1, c=data.c == 1),
        "objects": data.astype(object),
        "mapping": {name: data[name].tolist() for name in data},
        "arrays": {name: data[name].to_numpy() for name in data},
        "series": {name: column.sample(frac=1, random_state=0).sort_index()
                   for name, column in data.items()},
        "index": data.set_index(np.arange(200) % 7),
    }
    for kind, table in tables.items():
        dag = learn_structure(table)
        assert list(dag.edges) == list(plain.edges) and dag.graph["trace"] == plain.graph[
            "trace"
        ], kind


def test_arrow_tables_are_read():
    pyarrow = pytest.importorskip("pyarrow")
    data = mixed()
    table = pyarrow.Table.from_pandas(data.assign(k=data.k.astype("category")))
    dag, plain = learn_structure(table, "bic"), learn_structure(data, "bic")
    assert list(dag.edges) == list(plain.edges) and dag.graph == plain.graph


def test_codes_follow_the_declared_or_sorted_order():
    def labels(column, **options):
        return read({"a": column}, **options).labels[0]

    assert labels(["b", "a", "b"]) == ("a", "b") and labels(pd.Categorical(["b"], ["c", "b"])) == (
        "c", "b"
    )
    assert labels([True, False]) == (False, True) and labels([3, "x", 1, "10"]) == (1, 3, "10", "x")
    assert labels([10, 9], kinds={"a": "categorical"}) == labels([10, 9] * 5) == (9, 10) and labels(
        [10, 9]
    ) is None
    assert labels([1.0, 2.0]) is None and labels(np.array([1.0, 2], object)) is None
    assert labels([1.0, 2.0], states={"a": [2.0, 1.0]}) == (2.0, 1.0)
    assert read({"a": ["b", "c"]}, {"a": ["c", "b", "d"]}).columns[0].tolist() == [1, 0]
    assert labels([0, 1], states={"a": 3}) == (0, 1, 2)


# borders


@pytest.mark.parametrize("method", ["hill_climb", "exact", "chow_liu"])
def test_one_row_one_column_and_constant_columns_give_no_arcs(method):
    one = learn_structure(small().head(1), method=method,
                          **({} if method == "chow_liu" else {"score": "bic"}))
    assert list(one) == list("abcd")
    if method != "chow_liu":  # a tree always spans all columns
        assert one.number_of_edges() == 0
        constant = learn_structure(small(rows=200).assign(e="same", f=1), method=method)
        assert not any(node in arc for arc in constant.edges for node in "ef")
    alone = learn_structure(small()[["b"]], method=method)
    assert list(alone) == ["b"] and alone.number_of_edges() == 0


@pytest.mark.parametrize("method", ["hill_climb", "exact"])
def test_collinear_columns_are_joined_and_no_score_is_nan(method):
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=(3, 400))
    data = pd.DataFrame({"x": x, "y": y, "sum": x + y, "twice": 2 * x, "w": w})
    dag = learn_structure(data, "bic", method)
    assert np.isfinite(dag.graph["trace"]).all() and dag.degree("w") == 0
    assert nx.has_path(dag.to_undirected(), "x", "twice") and nx.has_path(dag.to_undirected(), "y",
                                                                          "sum")
    both = nx.DiGraph([("x", "w"), ("twice", "w"), ("sum", "w"), ("y", "w")])
    assert np.isfinite(structure_score(data, both, "loglik")).all()
    assert structure_score(data, both, "bic")["w"] < structure_score(
        data, nx.empty_graph(data.columns, nx.DiGraph), "bic"
    )["w"]


@pytest.mark.parametrize("method", ["hill_climb", "exact"])
def test_configurations_with_too_few_rows_are_never_proposed(method):
    data = mixed(rows=40)
    data["rare"] = ["odd"] + ["usual"] * 39
    data["many"] = [str(i % 20) for i in range(40)]
    dag = learn_structure(data, "aic", method, restarts=5)
    assert np.isfinite(dag.graph["trace"]).all()
    assert not any(parent in ("rare", "many") and child in "xyz" for parent, child in dag.edges)
    lone = nx.DiGraph([("rare", "x")])
    lone.add_nodes_from(data.columns)
    assert structure_score(data, lone, "bic")["x"] == -np.inf
    with pytest.raises(probml.ModelError, match="too few rows"):
        learn_structure(data, "bic", method, whitelist=[("rare", "x")])


# refusals


def refused(words, *arguments, error=probml.DataError, **options):
    with pytest.raises(error) as caught:
        learn_structure(*arguments, **options)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_data_that_cannot_be_scored_is_refused_by_column_and_row():
    data = small()
    refused(["'x'", "row 1"], {"x": [1.0, np.nan, 2.5]}, "bic")
    refused(["'x'", "row 1", "inf"], {"x": [1.0, np.inf, 2.0]}, "bic")
    refused(["empty"], data.head(0))
    refused(["empty"], pd.DataFrame())
    refused(["empty"], {})
    refused(["'a'", "Rename"], pd.concat([data, data[["a"]]], axis=1))
    refused(["strings", "3"], data.rename(columns={"a": 3}))
    refused(["'b'", "2 rows", "3"], {"a": [1, 2, 3], "b": [1, 2]})
    refused(["DataFrame", "an array"], data.to_numpy())
    refused(["'a'", "one value per row"], {"a": np.zeros((3, 2))})
    refused(["'a'", "sorted"], {"a": [{1: 2}, {3: 4}]})
    refused(["'x'", "constant", "Drop"], {"x": [1.0, 1.0]}, "bic")
    refused(["'x'", "constant"], {"x": [1.0]}, "bic")
    refused(["'x'", "missing in every row", "Drop"], {"x": [np.nan, np.nan]}, "bic")
    refused(["'x'", "continuous", "'bic'"], mixed(), "bdeu")
    refused(["'x'", "k2"], mixed(), "k2")
    refused(["'b'", "row 0", "use one of", "states"], {"a": ["u"], "b": ["x"]}, states={"b": ["y"]})
    refused(["'e'", "no", "'a'"], data, states={"e": 2})
    refused(["each once"], data, states={"a": [0, 1, 1]})


def test_settings_that_cannot_be_met_are_refused_with_what_is_known():
    data, error = small(), probml.ModelError
    refused(["'bdeux'", "'bdeu'", "'k2'"], data, "bdeux", error=error)
    refused(["'climb'", "'hill_climb'", "'exact'", "'chow_liu'"], data, method="climb", error=error)
    for strength in (0, -1.0, np.inf, "1"):
        refused(["strength"], data, strength=strength, error=error)
    for name in ("restarts", "tabu", "seed", "max_parents"):
        refused([name, "-1"], data, error=error, **{name: -1})
        refused([name, "1.5"], data, error=error, **{name: 1.5})
    for name in ("whitelist", "blacklist"):
        refused([name, "'z'", "'a', 'b'"], data, error=error, **{name: [("a", "z")]})
        refused([name, "'a'", "itself"], data, error=error, **{name: [("a", "a")]})
        refused([name, "pairs"], data, error=error, **{name: "ab"})
        refused([name, "pairs"], data, error=error, **{name: [("a", "b", "c")]})
    refused(["whitelist", "cycle", "'a' → 'b' → 'c' → 'a'"], data, error=error,
            whitelist=[("a", "b"), ("b", "c"), ("c", "a")])
    refused(["'a' → 'b'", "both"], data, error=error, whitelist=[("a", "b")],
            blacklist=[("a", "b")])
    refused(["'c'", "2 parents", "1"], data, error=error, whitelist=[("a", "c"), ("b", "c")],
            max_parents=1)
    refused(["'x' → 'k'", "continuous"], mixed(), "bic", error=error, whitelist=[("x", "k")])
    refused(["chow_liu", "whitelist"], data, method="chow_liu", error=error, whitelist=[("a", "b")])
    refused(["'z'", "'a'"], data, method="chow_liu", error=error, root="z")
    refused(["root", "chow_liu"], data, error=error, root="a")
    refused(["'x'", "'k'", "one kind"], mixed(), "bic", "chow_liu", error=error)
    wide = pd.DataFrame(np.zeros((3, 25), int)).add_prefix("x")
    refused(["got 25", "419,430,400 sets", "4.7 GiB", "hill_climb"], wide, method="exact",
            error=error)


def test_graphs_that_do_not_fit_the_data_are_refused():
    def refuses(dag, *words, data=None, **options):
        with pytest.raises(probml.ModelError) as caught:
            structure_score(small() if data is None else data, dag, **options)
        assert all(word in str(caught.value) for word in words), str(caught.value)

    complete = nx.empty_graph("abcd", nx.DiGraph)
    refuses(nx.DiGraph([("a", "b")]), "'c'", "add_node")
    refuses(nx.compose(complete, nx.DiGraph([("a", "z")])), "'z'", "'a', 'b'")
    refuses(nx.compose(complete, nx.DiGraph([("a", "b"), ("b", "a")])), "cycle", "'a' → 'b' → 'a'")
    refuses(complete.to_undirected(), "DiGraph")
    refuses(complete, "'bge'", "'bdeu'", score="bge")
    refuses(nx.compose(nx.empty_graph(list("kmxyz"), nx.DiGraph), nx.DiGraph([("x", "k")])), "'x'",
            "'k'", data=mixed(), score="bic")
