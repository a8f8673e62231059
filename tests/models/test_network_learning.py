"""Tables and regressions are learnt as counts, sums of squares and enumeration say: complete, in
part, or not seen at all."""

import itertools

import networkx as nx
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy.special import gammaln
from scipy.stats import norm, poisson
from test_networks import Net, words

import oracles
import probml
from probml.models import bayesian_network

ML = probml.EM(prior=False, max_iterations=5000, tolerance=1e-13)
SMALL = {"a": 2, "b": 3, "c": 2}
V = [("a", "c"), ("b", "c")]


def counts(codes, sizes, family, weights=None):
    """How often each state of a family (*parents, node) occurs."""
    table = np.zeros([sizes[node] for node in family])
    np.add.at(table, tuple(codes[node] for node in family), 1.0 if weights is None else weights)
    return table


def shares(table):
    return table / table.sum(-1, keepdims=True)


def holed(codes, labels, share, seed):
    """Labels, of which a share is unseen."""
    rng = np.random.default_rng([seed, 3])
    return {node: np.where(rng.random(len(c)) < share, None, np.array(labels[node], object)[c])
            for node, c in codes.items()}


# Complete data


@pytest.mark.parametrize("strength", [pytest.param(7.5, marks=pytest.mark.slow), None])
def test_complete_data_give_the_dirichlet_means_and_the_bdeu_score(strength):
    truth = Net({"a": 2, "b": 3, "c": 4, "d": 2}, [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")],
                seed=1, zeros=0.4)
    codes = truth.sample(40, seed=2)  # some configurations never occur
    model = bayesian_network(truth.dag, states=truth.labels, strength=strength)
    fit = model.fit({node: np.array(truth.labels[node])[c] for node, c in codes.items()})
    assert fit.engine.startswith("Exact") and fit.converged
    score = 0.0
    for node, parents in truth.parents.items():
        n = counts(codes, truth.sizes, (*parents, node))
        a = 1.0 if strength is None else strength / n.size
        np.testing.assert_allclose(fit.table(node).to_numpy(),
                                   shares(n + a).reshape(-1, n.shape[-1]), atol=1e-12)
        np.testing.assert_allclose(fit.params[f"{node}.table"], shares(n + a), atol=1e-12)
        score += (gammaln(a + n) - gammaln(a)).sum() + (
            gammaln(a * n.shape[-1]) - gammaln((a + n).sum(-1))
        ).sum()
    np.testing.assert_allclose(fit.log_evidence, score, rtol=1e-12)
    n = counts(codes, truth.sizes, ("a", "b"))
    posterior = fit.posterior("b.table")
    posterior = getattr(posterior, "base_dist", posterior)
    np.testing.assert_allclose(posterior.concentration,
                               n + (1.0 if strength is None else strength / 6), atol=1e-10)


@pytest.mark.slow
def test_equivalent_graphs_have_the_same_evidence_under_an_equivalent_sample_size():
    truth = Net({"a": 2, "b": 3, "c": 2}, [("a", "b"), ("b", "c")], seed=3)
    data = truth.fit.simulate(rows=200, seed=1)
    chains = [[("a", "b"), ("b", "c")], [("c", "b"), ("b", "a")]]
    found = [bayesian_network(nx.DiGraph(arcs), states=truth.labels,
                              strength=3.0).fit(data).log_evidence for arcs in chains]
    np.testing.assert_allclose(found, found[0], rtol=1e-12)


def test_weights_count_rows():
    truth = Net(SMALL, V, seed=4)
    data = pd.DataFrame(holed(truth.sample(100, seed=1), truth.labels, 0.0, 1))
    weights = np.repeat([0, 1, 2], [30, 40, 30])  # 100 rows again
    weighted, repeated = (truth.model.fit(data, weights=weights),
                          truth.model.fit(data.loc[data.index.repeat(weights)]))
    np.testing.assert_allclose(weighted.log_evidence, repeated.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(weighted.table("c"), repeated.table("c"), atol=1e-12)


def test_an_exact_fit_answers_by_its_mean_tables():
    truth = Net(SMALL, V, seed=5)
    fit = truth.model.fit(holed(truth.sample(100, seed=1), truth.labels, 0.0, 1))
    at, (data, _) = truth.model.at(fit.params), truth.evidence(seed=2)
    np.testing.assert_allclose(fit.log_prob(data), at.log_prob(data), atol=1e-10)
    np.testing.assert_allclose(fit.predict_proba(data, "b"), at.predict_proba(data, "b"),
                               atol=1e-10)


@pytest.mark.parametrize("strength", [pytest.param(2.0, marks=pytest.mark.slow), 60.0])
def test_em_with_the_prior_maximises_it_in_the_coordinate_where_there_is_a_maximum(strength):
    truth = Net(SMALL, V, seed=6, zeros=0, flat=5.0)
    codes = truth.sample(100, seed=1)
    model = bayesian_network(truth.dag, states=truth.labels, strength=strength)
    fit = model.fit({node: np.array(truth.labels[node])[c] for node, c in codes.items()},
                    probml.EM())
    for node, parents in truth.parents.items():
        n = counts(codes, SMALL, (*parents, node))
        a = strength / n.size
        # below 1 no corner is a maximum
        np.testing.assert_allclose(fit.params[f"{node}.table"], shares(n + a - (a >= 1)), atol=1e-8)


@pytest.mark.parametrize(
    "engine", [ML, pytest.param(probml.MAP(prior=False), marks=pytest.mark.slow)], ids=["EM", "MAP"]
)
def test_without_a_prior_tables_are_the_shares(engine):
    truth = Net(SMALL, V, seed=7, zeros=0, flat=5.0)
    codes = truth.sample(100, seed=1)
    fit = truth.model.fit({node: np.array(truth.labels[node])[c] for node, c in codes.items()},
                          engine)
    for node, parents in truth.parents.items():
        expected = shares(counts(codes, SMALL, (*parents, node)))
        np.testing.assert_allclose(fit.params[f"{node}.table"], expected,
                                   atol=1e-12 if engine is ML else 1e-3)


# Cells unseen


def brute_em(truth, evidence, tables, iterations):
    """EM by enumeration: the tables after so many M-steps, and the log likelihood before each and
    after the last.

    An unseen cell without children counts nowhere: it is not part of what is completed, and the
    likelihood is the same.
    """
    history, weights = [], {}
    for node in truth.sizes:
        unseen = (evidence[node] == 1).all(1)
        weights[node] = np.where(unseen, float(bool(truth.dag.out_degree(node))), 1.0)
    for step in range(iterations + 1):
        truth.tables = tables
        joint = truth.joint(evidence)
        history.append(oracles.evidence(joint).sum())
        if step < iterations:
            q = {node: oracles.posterior(joint, truth.sizes, (*parents, node))
                 for node, parents in truth.parents.items()}
            tables = {node: shares(np.tensordot(weights[node], q[node], 1)) for node in truth.sizes}
    return tables, history


def unseen_cells(seed, rows=100):
    """(network, data, node → evidence, start) where 30% of the cells are unseen."""
    truth = Net(SMALL, V, seed=seed, zeros=0, flat=5.0)
    codes = truth.sample(rows, seed)
    data = holed(codes, truth.labels, 0.3, seed)
    evidence = {}
    for node, column in data.items():
        seen = np.array([value is not None for value in column])
        evidence[node] = np.where(seen[:, None], np.eye(SMALL[node])[codes[node]], 1.0)
    start = Net(SMALL, V, seed=seed + 100, zeros=0, flat=5.0).tables
    return truth, data, evidence, start


def test_em_makes_the_steps_of_enumeration():
    truth, data, evidence, start = unseen_cells(seed=10)
    tables, history = brute_em(truth, evidence, start, 7)
    with pytest.warns(RuntimeWarning, match="7 iterations|max_iterations|did not converge"):
        fit = truth.model.fit(
            data,
            probml.EM(prior=False, accelerate=False, max_iterations=7, tolerance=0.0),
            start={f"{node}.table": table for node, table in start.items()},
        )
    np.testing.assert_allclose(fit.history, history, rtol=1e-12)
    for node, table in tables.items():
        np.testing.assert_allclose(fit.params[f"{node}.table"], table, atol=1e-10)


@pytest.mark.parametrize("seed", [11, 12])
def test_em_never_falls_and_ends_where_enumeration_ends(seed):
    truth, data, evidence, start = unseen_cells(seed)
    fit = truth.model.fit(data, ML, start={f"{node}.table": table for node, table in start.items()})
    assert fit.converged and (np.diff(fit.history) >= -1e-9).all()
    np.testing.assert_allclose(fit.history[-1], brute_em(truth, evidence, start, 1000)[1][-1],
                               atol=1e-6)
    np.testing.assert_allclose(fit.log_prob(data).sum(), fit.history[-1], rtol=1e-10)
    # a step more stays there
    again, _ = brute_em(truth, evidence, {node: fit.params[f"{node}.table"] for node in SMALL}, 1)
    for node, table in again.items():
        np.testing.assert_allclose(fit.params[f"{node}.table"], table, atol=1e-6)


def test_rows_in_which_nothing_is_seen_change_nothing():
    truth, data, _, _ = unseen_cells(seed=13)
    more = {node: np.append(column[:-2], [None, None]) for node, column in data.items()}
    weights = np.repeat([1.0, 0.0], [98, 2])  # without the last two rows, in the same program
    one, other = truth.model.fit(data, ML, weights=weights), truth.model.fit(more, ML)
    np.testing.assert_allclose(one.history[-1], other.history[-1], atol=1e-8)
    np.testing.assert_allclose(one.table("c"), other.table("c"), atol=1e-5)


# Russell & Norvig, "Artificial Intelligence: a modern approach": 1000 candies from two bags
CANDY = {
    ("cherry", "red", 1): 273, ("cherry", "red", 0): 93, ("cherry", "green", 1): 104,
    ("cherry", "green", 0): 90,
    ("lime", "red", 1): 79, ("lime", "red", 0): 100, ("lime", "green", 1): 94,
    ("lime", "green", 0): 167,
}  # fmt: skip


def test_one_step_on_a_thousand_candies_gives_the_printed_numbers():
    dag = nx.DiGraph([("bag", "flavour"), ("bag", "wrapper"), ("bag", "hole")])
    model = bayesian_network(dag, {"bag": [1, 2], "flavour": ["cherry", "lime"],
                                   "wrapper": ["red", "green"], "hole": [1, 0]})
    data = dict(zip(("flavour", "wrapper", "hole"), map(list, zip(*CANDY, strict=True)),
                    strict=True))
    start = {"bag.table": [0.6, 0.4],
             **{f"{node}.table": [[0.6, 0.4], [0.4, 0.6]] for node in data}}
    with pytest.warns(RuntimeWarning):  # one step is not convergence
        fit = model.fit(data, probml.EM(prior=False, max_iterations=1, accelerate=False),
                        weights=list(CANDY.values()), start=start)
    firsts = {"flavour": "cherry", "wrapper": "red", "hole": 1}
    found = [fit.table("bag").loc[0, 1]] + [fit.table(node).loc[bag, first] for bag in (1, 2)
                                            for node, first in firsts.items()]
    np.testing.assert_allclose(found, [0.6124, 0.6684, 0.6483, 0.6558, 0.3887, 0.3817, 0.3827],
                               atol=5e-5)
    np.testing.assert_allclose(fit.history[0], -2044, atol=0.5)  # the book's figure of the start
    assert fit.history[1] > -2022  # and of the first step: about −2021


def naive(seed=20, rows=1500):
    """A hidden node of two states above five that tell it well, and rows of it."""
    leaves = [f"x{i}" for i in range(5)]
    truth = Net({"z": 2, **dict.fromkeys(leaves, 2)}, [("z", leaf) for leaf in leaves], seed=seed)
    table = np.array([[0.85, 0.15], [0.2, 0.8]])
    truth.tables = {"z": np.array([0.35, 0.65]), **dict.fromkeys(leaves, table)}
    truth.fit = truth.model.at({f"{node}.table": t for node, t in truth.tables.items()})
    return truth, truth.fit.simulate(rows=rows, seed=1)


def test_a_node_never_seen_is_found_by_restarts():
    truth, rows = naive()
    z = np.array([truth.labels["z"].index(value) for value in rows.pop("z").tolist()])
    fit = truth.model.fit(rows, probml.EM(prior=False, restarts=5, tolerance=1e-10))
    assert fit.converged and (np.diff(fit.history) >= -1e-8).all()
    assert fit.history[-1] >= truth.fit.log_prob(rows).sum()  # the maximum is above the truth
    np.testing.assert_allclose(np.sort(fit.params["z.table"]), [0.35, 0.65], atol=0.06)
    found = fit.predict_proba(rows, "z").argmax(1)
    assert max((found == z).mean(), (found != z).mean()) > 0.9


def test_a_few_labels_name_the_states_of_a_node():
    truth, rows = naive()
    z = rows["z"]
    labelled = {**rows, "z": np.where(np.arange(len(z)) % 30 == 0, z.astype(object), None)}
    fit = truth.model.fit(labelled, ML)
    assert (fit.predict({name: column for name, column in rows.items() if name != "z"},
                        "z") == z).mean() > 0.9
    np.testing.assert_allclose(fit.params["x0.table"], truth.tables["x0"], atol=0.08)


def divergence(truth, fit):
    """KL of the joint distribution learnt from the true one."""
    joint = truth.joint()[0]
    other = Net(truth.sizes, truth.dag.edges)
    other.tables = {node: fit.params[f"{node}.table"] for node in truth.sizes}
    possible = np.isfinite(joint)
    return (np.exp(joint[possible]) * (joint[possible] - other.joint()[0][possible])).sum()


def test_the_divergence_from_the_truth_shrinks_with_the_rows_also_where_cells_are_unseen():
    truth = Net({"a": 2, "b": 3, "c": 2, "d": 2}, [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")],
                seed=30, zeros=0, flat=5.0)
    free = sum(table.size - table.size // table.shape[-1] for table in truth.tables.values())
    codes, sizes = truth.sample(10_000, seed=1), (100, 1_000, 10_000)
    complete, holes = (holed(codes, truth.labels, share, 2) for share in (0.0, 0.2))
    gaps = []
    for rows in sizes:
        weights = np.arange(10_000) < rows  # the first rows only, in the same program
        fits = (truth.model.fit(complete, weights=weights),
                truth.model.fit(holes, probml.EM(tolerance=1e-9), weights=weights))
        gaps.append([divergence(truth, fit) for fit in fits])
        # complete: free / 2n on average
        assert 0 < gaps[-1][0] < 3 * free / (2 * rows) and 0 < gaps[-1][1] < 6 * free / (2 * rows)
    assert gaps[0][1] > 3 * gaps[1][1] > 9 * gaps[2][1]


# Continuous nodes


def least_squares(y, columns, weights=None):
    """Coefficients (intercept first) and the mean square of what is left."""
    w = np.ones(len(y)) if weights is None else weights
    design = np.stack([np.ones(len(y)), *columns], -1)
    beta = np.linalg.solve(design.T @ (w[:, None] * design), design.T @ (w * y))
    return beta, (w * (y - design @ beta) ** 2).sum() / w.sum()


# y given a, b discrete, x, w continuous
MIXED = nx.DiGraph([("a", "y"), ("x", "y"), ("b", "y"), ("w", "y"), ("a", "x"), ("y", "v")])
MIXED_STATES = {"a": ["no", "yes"], "b": 3, "x": float, "w": float, "y": float, "v": float}


def mixed(rows=400, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(2, size=rows), rng.integers(3, size=rows)
    x, w = rng.normal(2.0 * a, 1.0 + a), rng.normal(30.0, 2.0, rows)
    y = rng.normal(a - 2.0 * b + (1.0 + a) * x + (b - 1.0) * w, 0.5 + a)
    return {"a": np.array(["no", "yes"])[a], "b": b, "x": x, "w": w, "y": y,
            "v": rng.normal(3.0 - y, 2.0)}, a


def test_a_gaussian_node_is_least_squares_in_every_configuration():
    data, a = mixed()
    fit = bayesian_network(MIXED, MIXED_STATES).fit(data, ML)
    p = fit.params
    assert (p["y.intercept"].shape == (2, 3) and p["y.slope"].shape == (2, 3, 2)
            and p["v.intercept"].shape == ())
    for i, j in itertools.product(range(2), range(3)):
        here = (a == i) & (data["b"] == j)
        beta, square = least_squares(data["y"][here], [data["x"][here], data["w"][here]])
        np.testing.assert_allclose([p["y.intercept"][i, j], *p["y.slope"][i, j]], beta, rtol=1e-6,
                                   atol=1e-6)
        np.testing.assert_allclose(1 / p["y.precision"][i, j], square, rtol=1e-6)
    beta, square = least_squares(data["v"], [data["y"]])
    np.testing.assert_allclose([p["v.intercept"], *p["v.slope"], 1 / p["v.precision"]],
                               [*beta, square], rtol=1e-6)
    for i in range(2):
        here = data["x"][a == i]
        np.testing.assert_allclose([p["x.intercept"][i], 1 / p["x.precision"][i]],
                                   [here.mean(), here.var()], rtol=1e-6)
    np.testing.assert_allclose([p["w.intercept"], 1 / p["w.precision"]],
                               [data["w"].mean(), data["w"].var()], rtol=1e-6)


def clg():
    """The network of `mixed` at the parameters it was drawn from, and its log joint of a row at
    each (a, b)."""
    a, b = np.arange(2.0)[:, None] + np.zeros((2, 3)), np.arange(3.0) + np.zeros((2, 3))
    params = {
        "a.table": [0.5, 0.5], "b.table": [1 / 3] * 3,
        "x.intercept": [0.0, 2.0], "x.precision": [1.0, 0.25],
        "w.intercept": 30.0, "w.precision": 0.25,
        "y.intercept": a - 2 * b, "y.slope": np.stack([1 + a, b - 1], -1),
        "y.precision": (0.5 + a) ** -2,
        "v.intercept": 3.0, "v.slope": [-1.0], "v.precision": 0.25,
    }  # fmt: skip

    def log_joint(x, w, y):
        log = np.log(1 / 6) + norm.logpdf(x, 2 * a, 1 + a) + norm.logpdf(w, 30, 2)
        return log if y is None else log + norm.logpdf(y, a - 2 * b + (1 + a) * x + (b - 1) * w,
                                                       0.5 + a)

    return bayesian_network(MIXED, MIXED_STATES).at(params), log_joint


def test_discrete_nodes_are_inferred_from_continuous_ones_below():
    fit, log_joint = clg()
    data, _ = mixed(rows=20, seed=1)
    rows = {name: data[name] for name in ("x", "w", "y")}
    logs = np.stack([log_joint(*row) for row in zip(*rows.values(), strict=True)])
    total = oracles.log_sum(logs, (1, 2))
    np.testing.assert_allclose(fit.log_prob(rows), total, atol=1e-9)
    q = np.exp(logs - total[:, None, None])
    found = fit.predict_proba(rows, ["a", "b"])
    np.testing.assert_allclose(found["a"], q.sum(2), atol=1e-10)
    np.testing.assert_allclose(found["b"], q.sum(1), atol=1e-10)
    np.testing.assert_allclose(fit.joint(rows, ["b", "a"]), np.swapaxes(q, 1, 2), atol=1e-10)


def test_a_continuous_node_is_predicted_by_its_mean_whatever_is_unseen_above():
    fit, log_joint = clg()
    data, _ = mixed(rows=20, seed=2)
    x, w = data["x"], data["w"]
    logs = np.stack([log_joint(*row, None) for row in zip(x, w, strict=True)])
    q = np.exp(logs - oracles.log_sum(logs, (1, 2))[:, None, None])
    means = np.array([[[i - 2 * j + (1 + i) * x_ + (j - 1) * w_ for j in range(3)]
                       for i in range(2)] for x_, w_ in zip(x, w, strict=True)])
    np.testing.assert_allclose(fit.predict({"x": x, "w": w}, "y"), (q * means).sum((1, 2)),
                               rtol=1e-9)
    one = fit.predict({"x": x[:3], "w": w[:3], "a": ["yes"] * 3, "b": [0, 1, 2]}, "y")
    np.testing.assert_allclose(one, [means[i, 1, i] for i in range(3)], rtol=1e-9)
    np.testing.assert_allclose(fit.predict({"y": data["y"], "x": x, "w": w}, "v"), 3.0 - data["y"],
                               rtol=1e-9)


def test_a_continuous_node_unseen_above_what_is_seen_is_integrated_out_and_one_below_is_no_matter():
    fit, log_joint = clg()
    data, _ = mixed(rows=5, seed=3)
    grid = np.linspace(-20.0, 20.0, 4001)

    def over_x(w, y):
        logs = np.stack([log_joint(x, w, y) for x in grid])
        return oracles.log_sum(logs, (0,)) + np.log(grid[1] - grid[0])

    logs = np.stack([over_x(*row) for row in zip(data["w"], data["y"], strict=True)])
    q = np.exp(logs - oracles.log_sum(logs, (1, 2))[:, None, None])
    seen = {"y": data["y"], "w": data["w"]}
    np.testing.assert_allclose(fit.log_prob(seen), oracles.log_sum(logs, (1, 2)), atol=1e-8)
    np.testing.assert_allclose(fit.predict_proba(seen, "a"), q.sum(2), atol=1e-8)
    some = {**seen, "x": np.where(np.arange(5) == 2, np.nan, data["x"])}
    np.testing.assert_allclose(fit.predict_proba(some, "b")[2], q[2].sum(0), atol=1e-8)
    rows = {"x": data["x"], "w": data["w"]}  # y and v are unseen, and nothing seen depends on them
    logs = np.stack([log_joint(*row, None) for row in zip(*rows.values(), strict=True)])
    np.testing.assert_allclose(fit.log_prob(rows), oracles.log_sum(logs, (1, 2)), atol=1e-9)
    ends = {**data, "v": np.full(5, np.nan)}
    np.testing.assert_allclose(fit.log_prob(ends),
                               fit.log_prob({name: data[name] for name in "abxwy"}), atol=1e-10)


def test_an_intervention_on_a_continuous_node_cuts_what_is_above_it():
    fit, _ = clg()
    done = fit.do({"x": 1.5})
    np.testing.assert_allclose(done.predict_proba({"w": [30.0]}, "a"), [[0.5, 0.5]], atol=1e-12)
    np.testing.assert_allclose(done.predict({"w": [31.0], "a": ["yes"], "b": [2]}, "y"),
                               [1 - 4 + 2 * 1.5 + 31.0], rtol=1e-9)


def test_conditional_gaussians_are_learnt_where_the_discrete_parent_is_seen_in_some_rows():
    dag = nx.DiGraph([("a", "y"), ("x", "y")])
    rng = np.random.default_rng(40)
    a, x = rng.integers(2, size=500), rng.normal(size=500)
    y = np.where(a == 1, 4.0 - x, 2.0 * x - 1.0) + rng.normal(size=500) * np.where(a == 1, 0.5, 1.0)
    seen = rng.random(500) < 0.4
    fit = bayesian_network(dag, {"a": ["no", "yes"], "x": float, "y": float}).fit(
        {"a": np.where(seen, np.array(["no", "yes"], object)[a], None), "x": x, "y": y}, ML
    )
    assert fit.converged and (np.diff(fit.history) >= -1e-8).all()
    p = fit.params
    np.testing.assert_allclose(p["y.intercept"], [-1.0, 4.0], atol=0.3)
    mean = p["y.intercept"] + p["y.slope"][:, 0] * x[:, None]
    log = np.log(p["a.table"]) + norm.logpdf(y[:, None], mean, p["y.precision"] ** -0.5)
    q = np.exp(log - oracles.log_sum(log, 1)[:, None])
    q = np.where(seen[:, None], np.eye(2)[a], q)
    # one more step of EM by hand stays where it is
    np.testing.assert_allclose(p["a.table"], q.mean(0), atol=1e-5)
    for i in range(2):
        beta, square = least_squares(y, [x], q[:, i])
        np.testing.assert_allclose([p["y.intercept"][i], p["y.slope"][i, 0],
                                    1 / p["y.precision"][i]], [*beta, square], atol=1e-4)


# A distribution of one's own


def rates():
    return numpyro.sample("rate", dist.Gamma(2.0, 0.1).expand([2]).to_event(1))


def calls(parents, rate):
    return dist.Poisson(rate[parents["busy"]])


def always(parents):
    return dist.Normal(10.0 * parents["busy"], 1.0)


def desk(**node):
    dag = nx.DiGraph()
    dag.add_node("busy", states=["no", "yes"])
    dag.add_node("calls", **node)
    dag.add_edge("busy", "calls")
    return dag


def test_a_node_with_a_distribution_of_its_own_is_learnt_and_asked_like_any_other():
    model = bayesian_network(desk(distribution=calls, parameters=rates))
    rng = np.random.default_rng(50)
    busy = rng.integers(2, size=300)
    n = rng.poisson(np.where(busy, 9.0, 2.0))
    labels = np.array(["no", "yes"], object)[busy]
    fit = model.fit({"busy": labels, "calls": n}, ML)
    np.testing.assert_allclose(fit.params["rate"], [n[busy == 0].mean(), n[busy == 1].mean()],
                               rtol=1e-8)
    weights = fit.params["busy.table"] * poisson.pmf(np.array([[3], [7]]), fit.params["rate"])
    np.testing.assert_allclose(fit.predict_proba({"calls": [3, 7]}, "busy"), shares(weights),
                               atol=1e-10)
    np.testing.assert_allclose(fit.log_prob({"calls": [3, 7]}), np.log(weights.sum(1)), atol=1e-10)
    part = model.fit({"busy": np.where(np.arange(300) % 3 == 0, labels, None), "calls": n}, ML)
    np.testing.assert_allclose(part.params["rate"], fit.params["rate"], rtol=0.1)
    exact = model.fit({"busy": labels, "calls": n})
    expected = [(2.0 + n[busy == i].sum()) / (0.1 + (busy == i).sum()) for i in range(2)]
    np.testing.assert_allclose(exact.params["rate"], expected, rtol=1e-8)


def test_a_distribution_of_its_own_may_have_no_parameters():
    fit = bayesian_network(desk(distribution=always)).at({"busy.table": [0.25, 0.75]})
    weights = [0.25, 0.75] * norm.pdf(np.array([[4.8], [5.1]]), [0.0, 10.0])
    np.testing.assert_allclose(fit.predict_proba({"calls": [4.8, 5.1]}, "busy"), shares(weights),
                               atol=1e-10)


# Data that cannot be learnt from


def test_rows_with_a_label_that_is_none_are_refused_by_node_row_and_labels():
    truth = Net(SMALL, V, seed=60)
    data = pd.DataFrame(truth.fit.simulate(rows=20, seed=1)).astype(object)
    for column, row, value, parts in (("b", 3, "b7", ["'b'", "'b7'", "row 3", "'b0'", "'b2'"]),
                                      ("a", 0, 5, ["'a'", "5", "row 0"])):
        bad = data.copy()
        bad.loc[row, column] = value
        with pytest.raises(probml.DataError, match=words(*parts)):
            truth.model.fit(bad)
    fits = [truth.model.fit(table) for table in (data, data.assign(snow="yes"))]
    np.testing.assert_equal(fits[0].params, fits[1].params)  # other columns are left alone
    with pytest.raises(probml.DataError, match="empty"):
        truth.model.fit(data.iloc[:0])


def test_a_start_that_is_no_table_is_refused_by_name():
    truth, data, _, start = unseen_cells(seed=61)
    with pytest.raises(probml.ModelError, match="'c.table'"):
        truth.model.fit(data, ML, start={"c.table": start["c"] * 1.1})
    with pytest.raises(probml.ModelError, match=words("'c.table'", "(2, 3, 2)")):
        truth.model.fit(data, ML, start={"c.table": start["b"]})
