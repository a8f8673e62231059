"""Published networks answer as pyAgrum, gRain and toulbar2 do; fits equal bnlearn's; EM with unseen
cells reaches pyAgrum's maximum.

The network files and all figures come from ../shared/data/bn; SOURCES.md there says which engine
gave which. Nothing is tuned to
them: closed forms agree to the digits printed, a likelihood that EM climbs is reached or beaten.
"""

import functools
import gzip
import json

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import probml
from probml.models import bayesian_network, read_bif

SLOW = pytest.mark.slow
ML = probml.EM(prior=False, max_iterations=2000, tolerance=1e-10)
QUICK = ["asia", "survey"]


def some(quick, slow):
    """Names as parameters of a test, some of them marked slow."""
    return [*quick, *(pytest.param(name, marks=SLOW) for name in slow)]


def opened(folder, stem):
    """The text of a file that may be packed."""
    path = folder / stem
    return path.read_text() if path.exists() else gzip.open(f"{path}.gz", "rt").read()


@functools.cache
def network(folder, name):
    """(Fit of the network file, its reference)."""
    file = next((folder / "bn" / "networks").glob(f"{name}.bif*"))
    return read_bif(file), json.loads(opened(folder / "bn" / "reference", f"{name}.json"))


def table(cases, nodes):
    """Labels of these nodes in the rows of `cases`, dicts; None where one lacks a node."""
    return pd.DataFrame({node: [case.get(node) for case in cases] for node in nodes}, dtype=object)


def evidence(fit, queries):
    """The evidence of all queries, a row each: weights of the states, (n, states), of a node that
    has them somewhere, else labels."""
    soft = {node for query in queries for node in query.get("likelihood_evidence", {})}
    rows = dict(table([query.get("evidence", {}) for query in queries],
                      {node for query in queries for node in query.get("evidence", {})}))
    for node in soft:
        labels = fit.labels(node)
        rows[node] = np.ones((len(queries), len(labels)))
        for row, query in zip(rows[node], queries, strict=True):
            if node in query.get("evidence", {}):
                row[:] = np.eye(len(labels))[labels.index(query["evidence"][node])]
            row *= query.get("likelihood_evidence", {}).get(node, 1.0)
    return rows or {next(iter(fit.model.graph)): [None] * len(queries)}


NETWORKS = some(
    QUICK, ["cancer", "child", "insurance", "alarm", "hailfinder", "pigs", "mildew", "barley",
            "diabetes", "link", "munin2", "munin"]
)


@pytest.mark.parametrize("name", NETWORKS)
def test_marginals_and_evidence_are_those_of_the_reference(shared_data, name):
    fit, reference = network(shared_data, name)
    queries = reference["queries"]
    rows, nodes = evidence(fit, queries), list(queries[0]["marginals"])
    assert len(nodes) == reference["n_nodes"] and (
        name == "link" or any("likelihood_evidence" in query for query in queries)
    )
    found = fit.predict_proba(rows, nodes)
    for i, query in enumerate(queries):
        for node, expected in query["marginals"].items():
            np.testing.assert_allclose(found[node][i], expected, atol=1e-9,
                                       err_msg=f"{node}, query {i}")
    np.testing.assert_allclose(fit.log_prob(rows),
                               [query["log_prob_evidence"] for query in queries], atol=1e-8)


PAIRED = some(QUICK,
              ["cancer", "child", "insurance", "alarm", "hailfinder", "pigs", "mildew", "barley"])


@pytest.mark.parametrize("name", PAIRED)
def test_joints_of_pairs_are_those_of_the_reference(shared_data, name):
    fit, reference = network(shared_data, name)
    for case in reference["joint_pairs"]:
        found = fit.joint(table([case["evidence"]], case["evidence"]), case["pair"])
        np.testing.assert_allclose(found[0], case["table_rows_first"], atol=1e-9)


@pytest.mark.parametrize("name", some(["asia", "survey", "child", "alarm"],
                                      ["pigs", "mildew", "barley", "diabetes", "munin2", "munin"]))
def test_d_separation_is_that_of_the_reference(shared_data, name):
    reference = json.loads(opened(shared_data / "bn" / "reference", f"{name}.json"))
    if name in QUICK:
        graph = network(shared_data, name)[0].model.graph
    else:  # the graph alone: it stands in the file, as in a fit
        from probml.models.bayesian_networks.bif_reader import parse

        found = parse(opened(shared_data / "bn" / "networks", f"{name}.bif"))
        graph = nx.DiGraph((parent, node) for node, parents in found.parents.items()
                           for parent in parents)
        graph.add_nodes_from(found.states)
    assert (len(graph), graph.number_of_edges()) == (reference["n_nodes"], reference["n_arcs"])
    for case in reference["d_separation"]:
        assert nx.is_d_separator(graph, {case["x"]}, {case["y"]},
                                 set(case["given"])) == case["d_separated"], case


EXPLAINED = some(QUICK, ["cancer", "child", "insurance", "alarm", "hailfinder", "pigs", "mildew",
                         "barley", "link"])


@pytest.mark.parametrize("name", EXPLAINED)
def test_the_most_probable_explanation_is_as_probable_as_that_of_the_reference(shared_data, name):
    fit, reference = network(shared_data, name)
    cases, nodes = reference["mpe"], list(reference["full_assignment_sampled"])
    seen = table([case["evidence"] for case in cases], nodes)
    found = pd.DataFrame(fit.decode(seen), dtype=object)[nodes]
    assert ((found == seen) | seen.isna()).all(axis=None)
    whole = pd.concat([found, table(
        [case["assignment"] for case in cases] + [reference["full_assignment_sampled"]], nodes
    )])
    log = fit.log_prob(whole)
    expected = [case["log_joint"] for case in cases]
    np.testing.assert_allclose(
        log, [*expected, *expected, reference["log_joint_of_full_assignment"]], atol=1e-8
    )


@SLOW
def test_the_dialect_of_hugin_is_read_and_its_marginals_sum_to_1(shared_data):
    fit = read_bif(shared_data / "bn" / "dialects" / "Water_hugin_export.bif.gz")
    nodes = list(fit.model.graph)
    assert len(nodes) == 32 and fit.model.graph.number_of_edges() == 66
    for node in nodes:
        np.testing.assert_allclose(fit.params[f"{node}.table"].sum(-1), 1.0, atol=1e-12)
    found = fit.predict_proba({nodes[0]: [None, fit.labels(nodes[0])[0]]}, nodes)
    for node in nodes:
        assert (found[node] >= 0).all()
        np.testing.assert_allclose(found[node].sum(-1), 1.0, atol=1e-9)


# Fits of bnlearn


def listed(value):
    """R writes a list of one as its element."""
    return [value] if isinstance(value, str) else value


@functools.cache
def fitted(folder, name):
    """(data, bnlearn's reference, DAG, states)."""
    reference = json.loads((folder / "bn" / "fits" / f"{name}.bnlearn.json").read_text())
    path = folder / "bn" / "samples" / f"{name}.csv"
    data = pd.read_csv(path if path.exists() else f"{path}.gz", keep_default_na=False, dtype=str)
    dag, states = nx.DiGraph(), {}
    for node, part in reference["fit_mle"].items():
        dag.add_node(node)
        states[node] = listed(part["levels"][0]) if part["type"] == "table" else float
    # the order of the parents is that of the reference
    for node, part in reference["fit_mle"].items():
        dag.add_edges_from((parent, node) for parent in listed(part["parents"]))
    for node in states:
        data[node] = data[node].astype(float) if states[node] is float else data[node]
    return data, reference, dag, states


def probabilities(part):
    """(*parents, states) of a table of R: the node first, the first axis fastest; NaN where a
    configuration never occurs."""
    values = np.array(
        [np.nan if value in ("NA", None) else value for value in part["prob_column_major"]], float
    )
    return np.moveaxis(values.reshape([len(listed(levels)) for levels in part["levels"]],
                                      order="F"), 0, -1)


DISCRETE = some(["learning.test", "lizards"], ["asia", "alarm", "hailfinder"])


@pytest.mark.parametrize("name", DISCRETE)
def test_maximum_likelihood_tables_are_bnlearns(shared_data, name):
    data, reference, dag, states = fitted(shared_data, name)
    fit = bayesian_network(dag, states).fit(data, probml.EM(prior=False))
    for node, part in reference["fit_mle"].items():
        expected, found = probabilities(part), fit.params[f"{node}.table"]
        assert found.shape == expected.shape
        # also where bnlearn has no number
        np.testing.assert_allclose(found.sum(-1), 1.0, atol=1e-12)
        occurs = ~np.isnan(expected)
        np.testing.assert_allclose(found[occurs], expected[occurs], atol=1e-10, err_msg=node)
    np.testing.assert_allclose(fit.history[-1], reference["scores"]["loglik"]["total"], rtol=1e-10)


BAYES = [(name, score) for name in ("asia", "learning.test", "lizards", "alarm", "hailfinder")
         for score in ("iss1", "iss10", "k2")]
RECKONED = {("learning.test", "iss10"), ("lizards", "iss1"), ("lizards", "k2")}


@pytest.mark.parametrize("name, score", [pytest.param(*pair, marks=() if pair in RECKONED else SLOW)
                                         for pair in BAYES])
def test_the_log_evidence_is_bnlearns_score_and_bayesian_tables_are_its_tables(shared_data, name,
                                                                               score):
    data, reference, dag, states = fitted(shared_data, name)
    fit = bayesian_network(dag, states, strength=None if score == "k2" else float(score[3:])).fit(
        data
    )
    total = reference["scores"][score if score == "k2" else f"bde_{score}"]["total"]
    np.testing.assert_allclose(fit.log_evidence, total, rtol=1e-11)
    for node, part in reference.get(f"fit_bayes_{score}", {}).items():
        np.testing.assert_allclose(fit.params[f"{node}.table"], probabilities(part), atol=1e-10,
                                   err_msg=node)


@pytest.mark.parametrize("name", some(["clgaussian.test"], ["gaussian.test"]))
def test_regressions_are_bnlearns_and_so_is_the_likelihood_at_its_variances(shared_data, name):
    data, reference, dag, states = fitted(shared_data, name)
    fit = bayesian_network(dag, states).fit(data, ML)
    params = dict(fit.params)
    for node, part in reference["fit_mle"].items():
        if part["type"] == "table":
            np.testing.assert_allclose(params[f"{node}.table"], probabilities(part), atol=1e-10)
            continue
        above = [parent for parent in listed(part["parents"]) if states[parent] is not float]
        sizes = [len(states[parent]) for parent in above]
        if part["type"] == "gaussian":
            beta, sd = (np.array(list(part["coefficients"].values()))[:, None],
                        np.array([part["sd"]]))
        else:
            beta, sd = np.array(part["coefficients_by_config"]), np.array(part["sd_by_config"])
        # R numbers the configurations with the first parent fastest
        beta, sd = (np.moveaxis(np.reshape(part, (-1, *sizes), order="F"), 0, -1)
                    for part in (beta, sd))
        np.testing.assert_allclose(params[f"{node}.intercept"], beta[..., 0], rtol=1e-6, atol=1e-7,
                                   err_msg=node)
        if beta.shape[-1] > 1:
            np.testing.assert_allclose(params[f"{node}.slope"], beta[..., 1:], rtol=1e-6, atol=1e-7,
                                       err_msg=node)
        # bnlearn divides the squares by rows − coefficients, maximum likelihood by rows
        rows = np.zeros(sizes)
        np.add.at(rows, tuple(data[parent].map(states[parent].index).to_numpy()
                              for parent in above), 1 if above else len(data))
        free = (rows - beta.shape[-1]) / rows
        np.testing.assert_allclose(1 / params[f"{node}.precision"], sd[..., 0] ** 2 * free,
                                   rtol=1e-6, err_msg=node)
        params[f"{node}.precision"] = params[f"{node}.precision"] * free
    total = next(score["total"] for kind, score in reference["scores"].items()
                 if kind.startswith("loglik"))
    np.testing.assert_allclose(
        fit.model.at(
            params, {n: fit.labels(n) for n in states if states[n] is not float}
        ).log_prob(data).sum(), total, rtol=1e-9
    )
    assert fit.history[-1] >= total


# Cells unseen


@pytest.mark.parametrize("name", some(["learning_test_mcar20"], ["asia_mcar10"]))
def test_em_with_unseen_cells_reaches_the_maximum_of_the_reference_and_its_tables(shared_data,
                                                                                  name):
    reference = json.loads((shared_data / "bn" / "missing" / f"{name}.reference.json").read_text())
    rows = pd.read_csv(shared_data / "bn" / "missing" / reference["data"], dtype=str).replace("?",
                                                                                              None)
    assert rows.isna().to_numpy().sum() == reference["missing_cells"]
    dag = nx.DiGraph()
    dag.add_nodes_from(reference["cpts"])
    for node, part in reference["cpts"].items():
        dag.add_edges_from((parent, node) for parent in part["axes"][:-1])
    model = bayesian_network(dag, states=reference["states"])
    fit = model.fit(rows, ML)
    assert fit.converged and (np.diff(fit.history) >= -1e-8).all()
    assert fit.log_prob(rows).sum() > reference["loglik_observed_at_reference"] - 1e-3
    for node, part in reference["cpts"].items():
        found, expected = fit.params[f"{node}.table"], np.array(part["table"])
        # rows of a table that hardly ever occur are told by little: weigh them by how often they do
        parents = part["axes"][:-1]
        weight = np.zeros(expected.shape[:-1])
        met = rows[parents].dropna()
        np.add.at(weight, tuple(met[p].map(reference["states"][p].index).to_numpy()
                                for p in parents), 1 / len(met))
        weight = weight[..., None]
        np.testing.assert_allclose(weight * found, weight * expected, atol=1e-4, err_msg=node)


@SLOW
def test_alarm_is_learnt_from_rows_with_a_fifth_unseen_the_better_the_more_there_are(shared_data):
    truth, _ = network(shared_data, "alarm")
    test, gap = pd.DataFrame(truth.simulate(rows=10_000, seed=99)), {}
    for rows in (1_000, 10_000):
        data = pd.DataFrame(truth.simulate(rows=rows, seed=1)).astype(object)
        holes = data.mask(np.random.default_rng(2).random(data.shape) < 0.2, None)
        fit = truth.model.fit(holes, probml.EM(tolerance=1e-7))
        assert fit.converged and (np.diff(fit.history) >= -1e-6).all()
        # the divergence from the truth, by the mean over new rows
        gap[rows] = (truth.score(test) - fit.score(test),
                     truth.score(test) - truth.model.fit(data).score(test))
    assert 0 < gap[10_000][0] < gap[1_000][0] / 4 and gap[10_000][0] < 3 * gap[10_000][1]
