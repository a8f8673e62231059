"""Bayesian networks answer as enumeration does: any evidence, any question, in one program; every
refusal names its cause."""

import functools
import itertools
import pickle
import re

import jax.numpy as jnp
import networkx as nx
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy import stats

import oracles
import probml
from compilations import counted
from probml.models import bayesian_network

ROWS = 12


def words(*parts):
    """A pattern that finds all of the parts, in any order."""
    return "(?s)" + "".join(f"(?=.*{re.escape(part)})" for part in parts)


# Networks with their tables, and the same by enumeration


class Net:
    """A network at random tables, beside what enumeration needs of it.

    Args:
        sizes: node → number of states.
        edges: (parent, child); a node's parents in the order given.
        named: states have labels, `"<node>0"`, …; else they are codes.
        zeros: the share of impossible cells in the tables of nodes that have parents.
        flat: concentration of the Dirichlet distribution of a row.
    """

    def __init__(self, sizes, edges=(), seed=0, named=True, zeros=0.2, flat=1.0):
        rng = np.random.default_rng(seed)
        self.sizes, self.named, self.dag = sizes, named, nx.DiGraph()
        self.dag.add_nodes_from(sizes)
        self.dag.add_edges_from(edges)
        self.parents = {node: list(self.dag.predecessors(node)) for node in sizes}
        self.labels = {node: [f"{node}{i}" for i in range(k)] if named else list(range(k))
                       for node, k in sizes.items()}
        self.tables = {node: self._table(rng, node, zeros, flat) for node in sizes}
        self.model = bayesian_network(self.dag, states=self.labels if named else sizes)
        self.fit = self.model.at({f"{node}.table": table for node, table in self.tables.items()})

    def _table(self, rng, node, zeros, flat):
        k, zeros = self.sizes[node], zeros * bool(self.parents[node])
        table = rng.dirichlet(np.full(k, flat), [self.sizes[p] for p in self.parents[node]])
        table = np.where((
            rng.random(table.shape) < zeros
        ) & (np.arange(k) != rng.integers(k, size=(*table.shape[:-1], 1))), 0.0, table)
        return table / table.sum(-1, keepdims=True)

    def sample(self, rows, seed):
        """Codes of complete rows, drawn node by node."""
        rng, codes = np.random.default_rng([seed, 2]), {}
        for node in nx.topological_sort(self.dag):
            p = np.broadcast_to(self.tables[node][tuple(codes[q] for q in self.parents[node])],
                                (rows, self.sizes[node]))
            codes[node] = (p.cumsum(-1) < rng.random((rows, 1)) * p.sum(-1, keepdims=True)).sum(-1)
        return codes

    def values(self, codes, seen, node):
        """A column of labels, or codes, None where unseen."""
        labels = self.labels[node]
        return np.array([labels[c] if s else None for c, s in zip(codes, seen, strict=True)],
                        object)

    def joint(self, evidence=None, done=()):
        """The joint log table; evidence: node → weights (n, states); the tables of what is done
        left out."""
        with np.errstate(divide="ignore"):
            factors = [(np.log(self.tables[x])[None], (*self.parents[x], x)) for x in self.sizes
                       if x not in done]
            factors += [(np.log(weights), (x,)) for x, weights in (evidence or {}).items()]
        return oracles.enumerate_factors(factors, self.sizes)

    def evidence(self, seed, soft=(), rows=ROWS):
        """(data, node → weights (rows, states)): possible, another pattern in each row, nothing
        seen in the first, all in the last.

        `soft` nodes get weights of their states in place of a value.
        """
        rng, codes = np.random.default_rng([seed, 1]), self.sample(rows, seed)
        data, weights = {}, {}
        for node, k in self.sizes.items():
            hot = np.eye(k)[codes[node]]
            if node in soft:
                weights[node] = np.maximum(
                    hot, (rng.random((rows, k)) < 0.7) * rng.random((rows, k))
                ) * rng.uniform(0.1, 3.0, (rows, 1))
                data[node] = weights[node]
                continue
            seen = rng.random(rows) < rng.choice([0.2, 0.5, 0.8])
            seen[0], seen[-1] = False, True
            data[node], weights[node] = (self.values(codes[node], seen, node),
                                         np.where(seen[:, None], hot, 1.0))
        return data, weights


def diamond(**options):
    return Net({"a": 2, "b": 3, "c": 2, "d": 4}, [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")],
               **options)


NETS = {
    "diamond": diamond,
    "states given by number": functools.partial(diamond, named=False, seed=5),
    # c's parents as declared: d before a, though the graph lists a first
    "parents out of order": lambda: Net({"a": 3, "b": 2, "c": 2, "d": 2, "e": 3},
                                        [("d", "c"), ("a", "c"), ("b", "e"), ("c", "e")], seed=1),
    "single states, isolated nodes": lambda: Net(
        {"a": 2, "one": 1, "b": 3, "alone": 3, "lone": 1, "c": 2},
        [("a", "b"), ("one", "b"), ("one", "c"), ("b", "c"), ("a", "c")], seed=2
    ),
    "collider": lambda: Net({"x": 4, "y": 3, "z": 2, "w": 2}, [("x", "w"), ("y", "w"), ("z", "w")],
                            seed=3),
    "one node": lambda: Net({"x": 3}, seed=4),
}
net = functools.cache(lambda name: NETS[name]())


# Questions


SLOW = pytest.mark.slow
SOFT = ["parents out of order", "single states, isolated nodes", "one node"]


@pytest.mark.parametrize(
    "name, soft", [pytest.param(name, False, marks=SLOW if name == "collider" else ())
                   for name in NETS] + [(name, True) for name in SOFT]
)
def test_marginals_and_evidence_equal_enumeration_whatever_is_seen_in_each_row(name, soft):
    truth = net(name)
    nodes = list(truth.sizes)
    data, weights = truth.evidence(seed=10, soft=nodes[1::2] or nodes if soft else ())
    joint = truth.joint(weights)
    np.testing.assert_allclose(truth.fit.log_prob(data), oracles.evidence(joint), atol=1e-10)
    found = truth.fit.predict_proba(data, nodes)
    assert list(found) == nodes
    for node in nodes:
        assert found[node].shape == (ROWS, truth.sizes[node])
        np.testing.assert_allclose(found[node], oracles.posterior(joint, truth.sizes, (node,)),
                                   atol=1e-10, err_msg=node)


@pytest.mark.parametrize("name", ["parents out of order", "single states, isolated nodes"])
def test_the_most_probable_explanation_is_that_of_enumeration(name):
    truth = net(name)
    data, weights = truth.evidence(seed=11, soft=list(truth.sizes)[:1])
    joint = truth.joint(weights)
    best, _ = oracles.most_probable(joint, truth.sizes)
    found = truth.fit.decode(data)
    codes = {node: [truth.labels[node].index(value) for value in found[node]]
             for node in truth.sizes}
    np.testing.assert_allclose(oracles.at(joint, truth.sizes, codes), best, atol=1e-10)


PAIRS = [("parents out of order", ("e", "a", "d")),
         ("single states, isolated nodes", ("alone", "one", "c"))]


@pytest.mark.parametrize("name, nodes", PAIRS)
def test_a_joint_of_a_few_nodes_equals_enumeration_in_the_order_asked(name, nodes):
    truth = net(name)
    data, weights = truth.evidence(seed=12, soft=["a"])
    found = truth.fit.joint(data, nodes)
    assert found.shape == (ROWS, *(truth.sizes[node] for node in nodes))
    np.testing.assert_allclose(found, oracles.posterior(truth.joint(weights), truth.sizes, nodes),
                               atol=1e-10)


def test_the_most_probable_values_of_some_nodes_have_the_others_summed_out():
    truth = net("diamond")
    data, weights = truth.evidence(seed=13)
    found = truth.fit.decode(data, ["a", "d"])
    table = oracles.posterior(truth.joint(weights), truth.sizes, ("a", "d"))
    codes = [[truth.labels[node].index(value) for value in found[node]] for node in ("a", "d")]
    np.testing.assert_allclose(table[(np.arange(ROWS), *codes)], table.max((1, 2)), atol=1e-10)


def test_predict_and_impute_answer_in_labels():
    truth = net("diamond")
    data, weights = truth.evidence(seed=14)
    marginal = oracles.posterior(truth.joint(weights), truth.sizes, ("d",))
    expected = np.array(truth.labels["d"])[marginal.argmax(1)]
    assert truth.fit.predict(data, "d").tolist() == expected.tolist()
    filled = truth.fit.impute(data)
    assert filled["d"].tolist() == expected.tolist()
    seen = [i for i, value in enumerate(data["b"]) if value is not None]
    assert [filled["b"][i] for i in seen] == [data["b"][i] for i in seen]


def test_evidence_comes_in_any_order_of_columns_and_in_any_container():
    truth = net("diamond")
    data, weights = truth.evidence(seed=15)
    expected = oracles.posterior(truth.joint(weights), truth.sizes, ("b",))
    frame = pd.DataFrame(data, dtype=object)
    # the categories in an order of their own, one that never occurs left out, of two nodes only
    categorical = frame.copy()
    categorical["d"] = pd.Categorical(frame["d"], categories=truth.labels["d"][::-1])
    categorical["a"] = pd.Categorical(frame["a"], categories=truth.labels["a"])
    for table in (frame, frame[["d", "a", "c", "b"]], categorical, dict(reversed(data.items())),
                  frame.convert_dtypes()):
        np.testing.assert_allclose(truth.fit.predict_proba(table, "b"), expected, atol=1e-10)


def test_states_given_by_number_are_codes_in_and_out():
    truth = net("states given by number")
    data, weights = truth.evidence(seed=16)
    numbers = {node: np.array([np.nan if v is None else v for v in column], float)
               for node, column in data.items()}
    expected = oracles.posterior(truth.joint(weights), truth.sizes, ("d",))
    np.testing.assert_allclose(truth.fit.predict_proba(numbers, "d"), expected, atol=1e-10)
    np.testing.assert_allclose(truth.fit.predict_proba(pd.DataFrame(numbers).astype("Int64"), "d"),
                               expected, atol=1e-10)
    assert (truth.fit.labels("d") == (0, 1, 2, 3)
            and truth.fit.predict(numbers, "d").tolist() == expected.argmax(1).tolist())


def test_nothing_seen_gives_the_prior_and_one_row_is_enough():
    truth = net("diamond")
    prior = oracles.posterior(truth.joint(), truth.sizes, ("d",))
    np.testing.assert_allclose(truth.fit.predict_proba({"d": [None]}, "d"), prior, atol=1e-10)
    np.testing.assert_allclose(truth.fit.predict_proba({"a": [None, None]}, "d"),
                               np.repeat(prior, 2, 0), atol=1e-10)
    np.testing.assert_allclose(truth.fit.log_prob({"a": [None], "c": [None]}), 0.0, atol=1e-12)
    seen = truth.joint({"a": np.eye(2)[[1]]})
    one = truth.fit.predict_proba(pd.DataFrame({"a": ["a1"]}), ["b", "d"])
    for node, found in one.items():
        np.testing.assert_allclose(found, oracles.posterior(seen, truth.sizes, (node,)), atol=1e-10)


def test_many_rows_are_answered_as_few_are():
    truth = diamond(zeros=0)
    data, weights = truth.evidence(seed=17, soft=["b"])
    # seen in every row
    data["c"], weights["c"] = np.full(ROWS, "c0"), np.tile([1.0, 0.0], (ROWS, 1))
    del data["a"], weights["a"]  # and seen in none
    # 18,000 rows: a program of this pattern alone, in chunks
    joint, times = truth.joint(weights), 1500
    many = {node: np.concatenate([column] * times) for node, column in data.items()}
    found = truth.fit.predict_proba(many, ["a", "b", "c", "d"])
    for node, proba in found.items():
        expected = oracles.posterior(joint, truth.sizes, (node,))
        np.testing.assert_allclose(proba, np.tile(expected, (times, 1)), atol=1e-10, err_msg=node)
    np.testing.assert_allclose(truth.fit.log_prob(many), np.tile(oracles.evidence(joint), times),
                               atol=1e-10)


def test_labels_may_be_numbers_and_truth_values():
    dag = nx.DiGraph([("dose", "ill")])
    fit = bayesian_network(dag, states={"dose": [10, 20, 40], "ill": [False, True]}).at(
        {"dose.table": [0.2, 0.3, 0.5], "ill.table": [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]}
    )
    np.testing.assert_allclose(fit.predict_proba({"dose": [20, 40]}, "ill"),
                               [[0.6, 0.4], [0.2, 0.8]], atol=1e-12)
    assert fit.predict({"ill": [True, False]}, "dose").tolist() == [40, 10]
    assert fit.table("ill").loc[20, True] == 0.4


def test_a_long_chain_of_evidence_does_not_underflow():
    n = 60  # a product of 60 numbers of 1e-6
    dag = nx.DiGraph([("z", f"x{i}") for i in range(n)])
    fit = bayesian_network(dag, states=dict.fromkeys(dag, 2)).at(
        {"z.table": [0.5, 0.5],
         **{f"x{i}.table": [[1 - 1e-6, 1e-6], [1 - 2e-6, 2e-6]] for i in range(n)}}
    )
    row = {f"x{i}": [1] for i in range(n)}
    np.testing.assert_allclose(
        fit.log_prob(row), np.logaddexp(n * np.log(1e-6), n * np.log(2e-6)) - np.log(2), rtol=1e-12
    )
    np.testing.assert_allclose(fit.predict_proba(row, "z"), [[0.5**n, 1.0]], atol=1e-12)


def test_the_worked_examples_of_the_textbooks_come_out():
    lab = bayesian_network(nx.DiGraph([("ill", "test")]),
                           {"ill": ["no", "yes"], "test": ["negative", "positive"]}).at(
        {"ill.table": [0.99, 0.01], "test.table": [[0.995, 0.005], [0.01, 0.99]]}
    )
    np.testing.assert_allclose(lab.predict_proba({"test": ["positive"]}, "ill"), [[1 / 3, 2 / 3]],
                               atol=1e-12)
    cherry = np.array([1.0, 0.75, 0.5, 0.25, 0.0])  # Russell & Norvig: five kinds of bags of candy
    rates = np.stack([cherry, 1 - cherry], -1)
    tastes = dict.fromkeys(("first", "second"), ["cherry", "lime"])
    bags = bayesian_network(nx.DiGraph([("bag", "first"), ("bag", "second")]),
                            {"bag": 5, **tastes}).at(
        {"bag.table": [0.1, 0.2, 0.4, 0.2, 0.1], "first.table": rates, "second.table": rates}
    )
    found = bags.predict_proba({"first": ["cherry"]}, ["bag", "second"])
    np.testing.assert_allclose(found["bag"], [[0.2, 0.3, 0.4, 0.1, 0.0]], atol=1e-12)
    np.testing.assert_allclose(found["second"], [[0.65, 0.35]], atol=1e-12)


# Tables


def test_a_table_has_the_parents_in_the_declared_order_and_their_labels():
    truth = net("parents out of order")
    table = truth.fit.table("c")
    assert table.index.names == truth.parents["c"] == ["d", "a"] and table.columns.name == "c"
    assert table.index.tolist() == list(itertools.product(truth.labels["d"], truth.labels["a"]))
    assert list(table.columns) == truth.labels["c"]
    np.testing.assert_allclose(table.to_numpy(), truth.tables["c"].reshape(-1, 2), atol=1e-12)
    np.testing.assert_allclose(table.loc[("d1", "a2")], truth.tables["c"][1, 2], atol=1e-12)
    assert (truth.fit.table("a").shape == (1, 3)
            and truth.fit.table("e").loc[("b0", "c1"), "e2"] == truth.tables["e"][0, 1, 2])


def test_the_graph_of_the_model_is_the_dag():
    truth = net("parents out of order")
    assert set(truth.model.graph.edges) == set(truth.dag.edges) and set(truth.model.graph) == set(
        truth.dag
    )


def test_a_network_built_twice_is_equal_and_one_with_another_order_of_parents_is_not():
    assert diamond().model == diamond().model and hash(diamond().model) == hash(diamond().model)
    sizes = {"a": 2, "b": 2, "c": 2}
    assert Net(sizes, [("a", "c"), ("b", "c")]).model != Net(sizes, [("b", "c"), ("a", "c")]).model


def test_a_network_kept_in_a_file_answers_the_same(tmp_path):
    truth = net("parents out of order")
    data, _ = truth.evidence(seed=18)
    truth.fit.save(tmp_path / "net.probml")
    back = probml.load(tmp_path / "net.probml", truth.model)
    assert ((back.predict_proba(data, "e") == truth.fit.predict_proba(data, "e")).all()
            and back.labels("e") == truth.fit.labels("e"))
    assert pickle.loads(pickle.dumps(truth.model)) == truth.model


# Samples


def agree(samples, expected, names, labels):
    """A chi-square test of samples against probabilities (*states), cells below 5 pooled; what is
    impossible never occurs."""
    codes = [[labels[node].index(value) for value in samples[node].tolist()] for node in names]
    counts = np.zeros(expected.shape)
    np.add.at(counts, tuple(codes), 1)
    assert not counts[expected == 0].any()
    counts, expected = counts[expected > 0], counts.sum() * expected[expected > 0]
    rare = expected < 5
    if rare.any():
        counts, expected = (np.append(counts[~rare], counts[rare].sum()),
                            np.append(expected[~rare], expected[rare].sum()))
    assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-3


@pytest.mark.parametrize("name",
                         ["diamond", pytest.param("single states, isolated nodes", marks=SLOW)])
def test_simulated_rows_have_the_joint_distribution(name):
    truth = net(name)
    samples = truth.fit.simulate(rows=20_000, seed=1)
    assert set(samples) == set(truth.sizes)
    agree(samples, np.exp(truth.joint()[0]), list(truth.sizes), truth.labels)


@pytest.mark.parametrize("name",
                         ["diamond", pytest.param("single states, isolated nodes", marks=SLOW)])
def test_samples_given_evidence_have_the_joint_posterior(name):
    truth = net(name)
    last, weights = list(truth.sizes)[-1], np.random.default_rng(0).random(2)
    codes = truth.sample(1, 3)[last]
    data = {last: np.repeat(np.array(truth.labels[last])[codes], 10_000),
            "a": np.repeat(weights[None], 10_000, 0)}
    samples = truth.fit.simulate(seed=2, given=data)
    assert samples[last].tolist() == data[last].tolist()
    joint = truth.joint({last: np.eye(truth.sizes[last])[codes], "a": weights[None]})
    agree(samples, oracles.posterior(joint, truth.sizes, tuple(truth.sizes))[0], list(truth.sizes),
          truth.labels)


def test_samples_differ_with_the_seed_and_only_with_it():
    truth = net("diamond")
    one, again, other = (truth.fit.simulate(rows=20_000, seed=seed) for seed in (1, 1, 2))
    assert all((one[node] == again[node]).all() for node in one) and any(
        (one[node] != other[node]).any() for node in one
    )


# Interventions


@pytest.mark.parametrize("done", [{"a": 1}, {"b": 2, "c": 0}, {"d": 3}], ids=str)
def test_an_intervention_is_the_truncated_factorisation(done):
    truth = net("diamond")
    data, weights = truth.evidence(seed=20)
    data = {node: column for node, column in data.items() if node not in done}
    # no row may be impossible: what is seen of the descendants may not agree with what was done
    data |= {node: np.full(ROWS, None)
             for node in nx.descendants(truth.dag, next(iter(done))) & set(data)}
    weights = {node: weights[node] for node in data if any(v is not None for v in data[node])}
    hard = {node: np.tile(np.eye(truth.sizes[node])[code], (ROWS, 1))
            for node, code in done.items()}
    joint = truth.joint({**weights, **hard}, done)
    fit = truth.fit.do({node: truth.labels[node][code] for node, code in done.items()})
    np.testing.assert_allclose(fit.log_prob(data), oracles.evidence(joint), atol=1e-10)
    for node in data:
        found = fit.predict_proba(data, node)
        np.testing.assert_allclose(found, oracles.posterior(joint, truth.sizes, (node,)),
                                   atol=1e-10, err_msg=node)


def test_an_intervention_on_a_root_is_conditioning_and_on_another_node_is_not():
    truth = Net({"a": 2, "b": 2, "c": 2}, [("a", "b"), ("a", "c"), ("b", "c")], seed=6, zeros=0)
    seen, nothing = {"a": ["a1"], "b": [None], "c": [None]}, {"c": [None]}
    done = truth.fit.do({"a": "a1"})
    for node in ("b", "c"):
        np.testing.assert_allclose(done.predict_proba(nothing, node),
                                   truth.fit.predict_proba(seen, node), atol=1e-12)
    did, saw = (truth.fit.do({"b": "b1"}).predict_proba(nothing, "a"),
                truth.fit.predict_proba({"b": ["b1"]}, "a"))
    np.testing.assert_allclose(did, truth.tables["a"][None], atol=1e-12)
    assert np.abs(did - saw).max() > 1e-2


def test_an_intervention_shows_in_the_graph_and_in_samples():
    truth = net("diamond")
    fit = truth.fit.do({"b": "b2"})
    assert not [edge for edge in fit.model.graph.edges if edge[1] == "b"]
    samples = fit.simulate(rows=5000, seed=3)
    assert set(samples["b"].tolist()) == {"b2"} and set(samples) == set(truth.sizes)
    kept = truth.joint({"b": np.eye(3)[[2]]}, ["b"])
    agree(samples, np.exp(kept[0]), list(truth.sizes), truth.labels)
    again = fit.do({"c": "c0"}).simulate(rows=10, seed=3)  # one after the other
    assert set(again["b"].tolist()) == {"b2"} and set(again["c"].tolist()) == {"c0"}


def test_an_intervention_that_cannot_be_is_refused_by_name():
    truth = net("diamond")
    with pytest.raises(probml.DataError, match="do.. sets 'b'"):
        truth.fit.do({"b": "b1"}).predict_proba({"b": ["b0"]}, "d")
    with pytest.raises(probml.ModelError, match=words("'b'", "'b9'", "'b0'", "'b1'", "'b2'")):
        truth.fit.do({"b": "b9"})
    with pytest.raises(probml.ModelError, match=words("'snow'", "'a'")):
        truth.fit.do({"snow": "yes"})
    with pytest.raises(probml.ModelError, match="b"):
        net("states given by number").fit.do({"b": 7})


# Independence


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=SLOW)])
def test_d_separation_is_independence(seed):
    rng = np.random.default_rng(seed)
    nodes = list("vwxyz")
    edges = [(a, b) for a, b in itertools.combinations(rng.permutation(nodes).tolist(), 2)
             if rng.random() < 0.45]
    truth = Net(dict.fromkeys(nodes, 2), edges, seed=seed, zeros=0)
    whole = truth.fit.joint({"v": [None]}, nodes)[0]
    np.testing.assert_allclose(whole.sum(), 1.0, atol=1e-12)
    for a, b in itertools.combinations(range(5), 2):
        others = [i for i in range(5) if i not in (a, b)]
        for given in itertools.chain.from_iterable(itertools.combinations(others, r)
                                                   for r in range(4)):
            rest = tuple(i for i in others if i not in given)
            table = np.moveaxis(np.expand_dims(whole.sum(rest), rest), (a, b), (-2, -1))
            table = table / table.sum((-2, -1), keepdims=True)
            gap = np.abs(table - table.sum(-1, keepdims=True) * table.sum(-2, keepdims=True)).max()
            apart = nx.is_d_separator(truth.model.graph, {nodes[a]}, {nodes[b]},
                                      {nodes[i] for i in given})
            assert apart == (gap < 1e-9), (nodes[a], nodes[b], given, gap)


# Impossible evidence


def sprinkler():
    dag = nx.DiGraph([("sprinkler", "wet"), ("rain", "wet")])
    tables = {"sprinkler.table": [0.7, 0.3], "rain.table": [0.8, 0.2],
              "wet.table": [[[1.0, 0.0], [0.1, 0.9]], [[0.1, 0.9], [0.01, 0.99]]]}
    return bayesian_network(dag, states=dict.fromkeys(dag, ["no", "yes"])).at(tables)


def test_impossible_evidence_is_minus_infinity_without_nan_and_the_rows_are_named():
    fit = sprinkler()
    rows = {"sprinkler": ["no", "yes", "no", None], "rain": ["no", None, "no", "yes"],
            "wet": ["yes", "yes", "yes", None]}
    log = fit.log_prob(rows)
    assert np.isneginf(log[[0, 2]]).all() and np.isfinite(log[[1, 3]]).all()
    good = {name: [column[1], column[3]] * 2 for name, column in rows.items()}
    asks = {
        "predict_proba": lambda data: fit.predict_proba(data, "rain"),
        "joint": lambda data: fit.joint(data, ["rain", "sprinkler"]),
        "decode": lambda data: np.stack(list(fit.decode(data).values()), -1),
        "impute": lambda data: np.stack(list(fit.impute(data).values()), -1),
    }
    for name, ask in asks.items():
        with pytest.warns(RuntimeWarning, match=words("2 of 4 rows have probability 0", "rows 0, 2")):
            found = ask(rows)
        if found.dtype.kind == "f":
            assert np.isfinite(found).all(), name
            np.testing.assert_allclose(found[[1, 3]], ask(good)[:2], atol=1e-12)
        else:
            assert (found[[1, 3]] == ask(good)[:2]).all(), name
    with pytest.warns(RuntimeWarning, match="rows 0, 2"):
        samples = fit.simulate(given=rows, seed=0)
    assert samples["rain"][3] == "yes" and set(samples["sprinkler"]) <= {"no", "yes"}


def test_seen_cells_stay_as_they_are_in_impossible_rows_too():
    initial, moves = jnp.array([0.5, 0.5]), jnp.array([[1.0, 0.0], [0.0, 1.0]])

    @probml.model
    def copies():
        with probml.rows():
            a = numpyro.sample("a", dist.Categorical(initial))
            numpyro.sample("b", dist.Categorical(moves[a]))

    fit, data = copies().at({}), {"a": [1, 1, None], "b": [0, 1, 1]}
    for answer in (fit.impute, fit.decode, lambda data: fit.simulate(given=data)):
        with pytest.warns(RuntimeWarning, match="1 of 3 rows have probability 0"):
            found = answer(data)
        np.testing.assert_array_equal(found["a"], [1, 1, 1])
        np.testing.assert_array_equal(found.get("b", data["b"]), data["b"])


def test_likelihoods_that_contradict_the_rest_are_impossible_too():
    fit = sprinkler()
    soft = {"wet": np.array([[0.0, 2.0], [1.0, 1.0]]), "sprinkler": ["no", "no"],
            "rain": np.array([[1.0, 0.0], [0.5, 0.0]])}
    np.testing.assert_allclose(fit.log_prob(soft), [-np.inf, np.log(0.7 * 0.8 * 0.5)], atol=1e-12)
    with pytest.warns(RuntimeWarning, match="rows 0"):
        found = fit.predict_proba(soft, "wet")
    np.testing.assert_allclose(found, [[0.0, 0.0], [1.0, 0.0]], atol=1e-12)


# One program


def test_another_pattern_of_evidence_and_another_question_compile_nothing():
    truth = net("parents out of order")
    first, _ = truth.evidence(seed=30)
    second, weights = truth.evidence(seed=31)
    del second["a"], weights["a"]
    # seen in every row
    second["b"], weights["b"] = np.full(ROWS, "b1"), np.tile([0.0, 1.0], (ROWS, 1))
    asks = (
        lambda data, node: truth.fit.predict_proba(data, node),
        lambda data, node: truth.fit.log_prob(data),
        lambda data, node: truth.fit.decode(data),
        lambda data, node: truth.fit.simulate(given=data),
    )
    for ask in asks:
        ask(first, "e")
    with counted() as found:
        answers = [ask(second, "a") for ask in asks]
        truth.fit.predict_proba(second, ["c", "d"])
        truth.fit.predict_proba({"e": ["e0"] * ROWS}, "d")
    assert found == []
    np.testing.assert_allclose(
        answers[0], oracles.posterior(truth.joint(weights), truth.sizes, ("a",)), atol=1e-10
    )


def test_other_tables_of_the_same_network_compile_nothing():
    truth, other = net("diamond"), diamond(seed=40)
    data, weights = other.evidence(seed=41)
    truth.fit.predict_proba(truth.evidence(seed=42)[0], "a")
    with counted() as found:
        proba = other.fit.predict_proba(data, "a")
    assert found == []
    np.testing.assert_allclose(proba, oracles.posterior(other.joint(weights), other.sizes, ("a",)),
                               atol=1e-10)


# Refusals

AB = nx.DiGraph([("a", "b")])


def carrying(**attributes):
    dag = nx.DiGraph()
    dag.add_node("n", **attributes)
    return dag


REFUSED = {
    "a cycle": (
        lambda: bayesian_network(nx.DiGraph([("a", "b"), ("b", "c"), ("c", "a"), ("a", "d")]),
                                 dict.fromkeys("abcd", 2)),
        ["cycle", "a → b → c → a"],
    ),
    "a loop": (lambda: bayesian_network(nx.DiGraph([("a", "a")]), {"a": 2}), ["cycle", "a → a"]),
    "no states": (lambda: bayesian_network(AB, {"a": 2}), ["'b'", "no states", "float"]),
    "states of a stranger": (lambda: bayesian_network(AB, {"a": 2, "b": 2, "snow": 2}),
                             ["'snow'", "'a', 'b'"]),
    "states that are a word": (lambda: bayesian_network(AB, {"a": "abc", "b": 2}),
                               ["'a'", "'abc'", "list of labels"]),
    "states that are half": (lambda: bayesian_network(AB, {"a": 2.5, "b": 2}), ["'a'", "2.5"]),
    "an empty list of states": (lambda: bayesian_network(AB, {"a": [], "b": 2}),
                                ["'a'", "at least one"]),
    "no states at all": (lambda: bayesian_network(AB, {"a": 0, "b": 2}), ["'a'", "at least one"]),
    "a label twice": (lambda: bayesian_network(AB, {"a": ["no", "yes", "no"], "b": 2}),
                      ["'a'", "'no'", "twice"]),
    "names that are numbers": (lambda: bayesian_network(nx.DiGraph([(1, 2)]), {1: 2, 2: 2}),
                               ["got 1", "strings", "relabel_nodes"]),
    "a name that is taken": (
        lambda: bayesian_network(nx.DiGraph([("rows", "b")]), {"rows": 2, "b": 2}), ["'rows'"]
    ),
    "no graph": (lambda: bayesian_network([("a", "b")], {"a": 2, "b": 2}), ["DiGraph", "list"]),
    "no direction": (lambda: bayesian_network(nx.Graph([("a", "b")]), {"a": 2, "b": 2}),
                     ["DiGraph", "Graph"]),
    "no nodes": (lambda: bayesian_network(nx.DiGraph(), {}), ["at least one node"]),
    "a strength of 0": (lambda: bayesian_network(AB, {"a": 2, "b": 2}, strength=0.0),
                        ["strength=0.0", "above 0"]),
    "a discrete node below a continuous one": (lambda: bayesian_network(AB, {"a": float, "b": 2}),
                                               ["'b'", "'a'", "discrete"]),
    "a distribution and states": (lambda: bayesian_network(carrying(distribution=dist.Poisson),
                                                           {"n": 2}), ["'n'", "both states"]),
    "parameters without a distribution": (
        lambda: bayesian_network(carrying(parameters=lambda: 1.0)), ["'n'", "function"]
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_graph_that_is_no_network_is_refused_by_name(case):
    build, parts = REFUSED[case]
    with pytest.raises(probml.ModelError, match=words(*parts)):
        build()


WRONG = {
    "an unknown node": (lambda fit: fit.predict_proba({"snow": ["yes"]}, "a"),
                        ["'snow'", "'a'", "'b'", "'c'", "'d'"]),
    "an unknown label": (lambda fit: fit.predict_proba({"a": ["a0", "maybe"]}, "d"),
                         ["'a'", "'maybe'", "row 1", "a0", "a1"]),
    "an unknown question": (lambda fit: fit.predict_proba({"a": ["a0"]}, "snow"),
                            ["'snow'", "'d'"]),
    "one unknown of several": (lambda fit: fit.predict_proba({"a": ["a0"]}, ["d", "snow"]),
                               ["'snow'", "'d'"]),
    "an unknown node in a joint": (lambda fit: fit.joint({"a": ["a0"]}, ["d", "snow"]),
                                   ["'snow'", "'d'"]),
    "a code in place of a label": (lambda fit: fit.predict_proba({"a": [0]}, "d"),
                                   ["'a'", "a0", "not a code"]),
    "likelihoods of too few states": (lambda fit: fit.predict_proba({"d": np.ones((2, 3))}, "a"),
                                      ["'d'", "(n, 4)", "(2, 3)"]),
    "a likelihood below 0": (lambda fit: fit.predict_proba(
        {"a": np.array([[1.0, 1.0], [0.5, -0.5]])}, "d"
    ), ["'a'", "row 1"]),
    "rows that do not agree": (lambda fit: fit.predict_proba({"a": ["a0"], "b": ["b0", "b1"]}, "d"),
                               ["'b'", "rows"]),
    "no rows": (lambda fit: fit.predict_proba({"a": []}, "d"), ["empty"]),
    "which of many": (lambda fit: fit.predict_proba({"a": ["a0"]}), ["Name the one that is to be predicted, site=", "'b'"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_question_that_cannot_be_asked_is_refused_by_name(case):
    ask, parts = WRONG[case]
    with pytest.raises(ValueError, match=words(*parts)):
        ask(net("diamond").fit)


def test_a_code_out_of_range_is_refused_with_the_number_of_states():
    with pytest.raises(probml.DataError, match=words("'d'", "4", "row 1")):
        net("states given by number").fit.predict_proba({"d": [3, 4]}, "a")


def test_tables_that_are_none_are_refused_by_node():
    model, tables = net("diamond").model, {f"{node}.table": table
                                           for node, table in net("diamond").tables.items()}
    off = tables["d.table"].copy()
    off[2, 1, 0] += 0.25
    with pytest.raises(probml.ModelError, match="'d.table'"):
        model.at({**tables, "d.table": off})
    with pytest.raises(probml.ModelError, match="'d.table'"):
        model.at({**tables, "d.table": np.where(off > 0.5, np.nan, off)})
    with pytest.raises(probml.ModelError, match=words("'b.table'", "(3, 2)", "(2, 3)")):
        model.at({**tables, "b.table": tables["b.table"].T})
    with pytest.raises(probml.ModelError, match=words("'c.table' has no value")):
        model.at({name: table for name, table in tables.items() if name != "c.table"})
    with pytest.raises(probml.ModelError, match=words("'e.table'")):
        model.at({**tables, "e.table": tables["a.table"]})


def test_a_number_of_labels_that_is_not_that_of_the_states_is_refused():
    dag, tables = nx.DiGraph([("a", "b")]), {"a.table": [0.5, 0.5],
                                             "b.table": [[0.5, 0.5], [0.1, 0.9]]}
    fit = bayesian_network(dag, states={"a": 2, "b": 2}).at(tables, labels={"a": ("no", "yes")})
    np.testing.assert_allclose(fit.predict_proba({"a": ["yes"]}, "b"), [[0.1, 0.9]], atol=1e-12)
    with pytest.raises(ValueError, match=words("'a'", "2")):
        bayesian_network(dag, states={"a": 2, "b": 2}).at(tables,
                                                          labels={"a": ("no", "perhaps", "yes")})


def test_a_network_too_wide_for_memory_is_refused_with_its_clique_its_bytes_and_what_to_try():
    steps = [((i, j), (i + down, j + 1 - down)) for i in range(10) for j in range(10)
             for down in (0, 1)]
    grid = nx.DiGraph([(f"x{a}.{b}", f"x{c}.{d}") for (a, b), (c, d) in steps if max(c, d) < 10])
    model = bayesian_network(grid, states=dict.fromkeys(grid, 8))
    rng = np.random.default_rng(0)
    fit = model.at({f"{node}.table": rng.dirichlet(np.ones(8), (8,) * grid.in_degree(node))
                    for node in grid})
    with pytest.raises(probml.Refusal, match=r"joint table of 'x\d+\.\d+', .*entries .*bytes.*more "
                       r"than the limit of .*Give some of these"):
        fit.predict_proba({"x9.9": [0]}, "x0.0")
    # the answer is there where what is seen cuts the grid: the row below the first is known
    seen = {f"x1.{j}": [j % 8] for j in range(10)}
    proba = fit.predict_proba(seen, "x0.0")
    assert proba.shape == (1, 8) and np.isfinite(proba).all()
