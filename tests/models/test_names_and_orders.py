"""Names and orders change nothing: of groupings, columns, nodes, classes and rows.

A case is a function of names and of an order, whose answer, by the first names, must be the same for
all of both. To add one, add a line to CASES, or to ESTIMATORS.
"""

import itertools

import networkx as nx
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample

import probml
from probml import models

R = np.random.default_rng(0)
N = 160
G, H = R.integers(0, 6, N), R.integers(0, 9, N)
X, W = R.normal(size=(2, N))
Y = 1 + X - W + R.normal(0, 2, 6)[G] + R.normal(0, 0.5, 9)[H] + 0.5 * R.normal(size=N)
CLASS = R.integers(0, 2, N)
NORMAL, STATE, COUNT = CLASS + R.normal(size=N), R.integers(0, 3, N), R.poisson(2 + CLASS)


def in_order(names, order, values):
    """name → value, in an order of the values."""
    return {names[i]: values[i] for i in order}


def groupings(names, order, effects=(["1"], ["1"])):
    table = pd.DataFrame({"x": X, "w": W, names[0]: G.astype(str), names[1]: H.astype(str)})
    estimator = models.MixedModel(in_order(names, order, effects)).fit(table, Y)
    return [estimator.loglik_, *estimator.coef_,
            *(float(np.sum(estimator.spreads_[name].sort_index())) for name in names),
            *(float(np.abs(estimator.effects_[name]).to_numpy().sum()) for name in names)]


def slopes(names, order):
    return groupings(names, order, (["1", "x"], ["1"]))


def features(names, order):
    kinds, columns = ("normal", 3, "poisson"), (NORMAL, STATE, COUNT)
    model = models.naive_bayes(classes=2, features=in_order(names, order, kinds), target="label")
    fit = model.fit({**in_order(names, order, columns), "label": CLASS})
    return [fit.log_evidence, *fit.predict_proba(in_order(names, order, columns), "label")[:5, 0]]


def nodes(names, order):
    graph = nx.DiGraph()
    graph.add_nodes_from(names[i] for i in order)
    graph.add_edges_from([(names[1], names[0]), (names[2], names[0])])
    states = in_order(names, order, (float, 3, ["no", "yes"]))
    columns = (NORMAL, STATE, np.where(CLASS, "yes", "no"))
    fit = models.bayesian_network(graph, states=states).fit(in_order(names, order, columns))
    asked = in_order(names, order, columns)
    asked.pop(names[2])
    return [fit.log_evidence, *fit.predict_proba(asked, names[2])[:5, 1]]


@probml.model
def counting_on_the_order(codes, sizes):
    """A function of a user's that counts on the order of a mapping, as Python lets it."""
    level = 0.0
    for k, (name, members) in enumerate(sizes.items()):
        with plate(f"{name}_members", members):
            level = level + sample(name, dist.Normal(0.0, 1.0))[codes[..., k]]
    with probml.rows():
        sample("y", dist.Normal(level, 1.0))


def settings(names, order):
    codes = np.stack([(G, H)[i] for i in order], 1)
    model = counting_on_the_order(sizes=in_order(names, order, (6, 9)))
    fit = model.fit({"codes": codes, "y": Y}, probml.Exact())
    return [fit.log_evidence, *(fit.params[name].sum() for name in names)]


# case → names that must not matter, and its function
CASES = {
    "names of groupings": ([("g", "h"), ("y", "noise")], groupings),
    "groupings of a mixed model": ([("g", "h"), ("h", "g"), ("z", "member"), ("noise", "bias"),
                                    ("sigma", "intercept"), ("a", "a_spread"), ("a", "sd_a"),
                                    ("_y", "y")], groupings),
    "groupings with slopes": ([("g", "h"), ("h", "g"), ("z", "beta")], slopes),
    "features of naive Bayes": ([("a", "b", "c"), ("c", "a", "b"), ("rows", "x", "_")], features),
    "nodes of a network": ([("a", "b", "c"), ("c", "b", "a"), ("rows of it", "a", "table")], nodes),
    "a mapping of a user's function": ([("a", "b"), ("b", "a")], settings),
}


QUICK = ("names of groupings", "nodes of a network", "a mapping of a user's function")


@pytest.mark.parametrize("case", [pytest.param(case, marks=() if case in QUICK else pytest.mark.slow)
                                  for case in CASES])
def test_neither_names_nor_their_order_change_an_answer(case):
    every, answer = CASES[case]
    first = answer(every[0], range(len(every[0])))
    others = [(every[0], order) for order in list(itertools.permutations(range(len(every[0]))))[1::2]]
    for names, order in [*others, *((names, range(len(names))) for names in every[1:])]:
        np.testing.assert_allclose(answer(names, order), first, rtol=2e-3, err_msg=f"{names} {order}")


def of_rows(verb):
    return lambda estimator, X: getattr(estimator, verb)(X)


PROBABILITIES, DENSITY, PREDICTION = map(of_rows, ("predict_proba", "score_samples", "predict"))
ESTIMATORS = {
    "GaussianDiscriminant": (models.GaussianDiscriminant, PROBABILITIES),
    "FisherDiscriminant": (models.FisherDiscriminant, PREDICTION),
    "NaiveBayes": (models.NaiveBayes, PROBABILITIES),
    "LogisticRegression": (models.LogisticRegression, PROBABILITIES),
    "GeneralizedLinearModel": (models.GeneralizedLinearModel, PREDICTION),
    "BayesianLinearRegression": (models.BayesianLinearRegression, PREDICTION),
    "FactorAnalysis": (lambda: models.FactorAnalysis(1), DENSITY),
    "ProbabilisticPCA": (lambda: models.ProbabilisticPCA(1), DENSITY),
    "KernelDensity": (models.KernelDensity, DENSITY),
    "GaussianMixture": (lambda: models.GaussianMixture(2, n_init=5), DENSITY),
    "MixtureDiscriminant": (lambda: models.MixtureDiscriminant(1), PROBABILITIES),
    "GaussianProcess": (models.GaussianProcess, PREDICTION),
}
FAST = ("GaussianDiscriminant", "FisherDiscriminant")
TABLE = pd.DataFrame({"a": 2.0 * CLASS + R.normal(size=N), "b": W + CLASS, "c": 0.5 * X + 0.3 * W})


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow)
                                  for name in ESTIMATORS])
# a column that says nothing of Y has a length without end in a Gaussian process, which is warned of
@pytest.mark.filterwarnings("ignore:.*\\[limit\\]:sklearn.exceptions.ConvergenceWarning")
def test_neither_columns_nor_rows_nor_names_of_classes_change_an_estimator(name):
    make, ask = ESTIMATORS[name]
    rows = R.permutation(N)
    target = CLASS if hasattr(make(), "predict_proba") or "Discriminant" in name else Y
    first = np.asarray(ask(make().fit(TABLE, target), TABLE))
    for columns in (["c", "a", "b"], ["b", "c", "a"]):
        other = ask(make().fit(TABLE[columns], target), TABLE[columns])
        np.testing.assert_allclose(other, first, rtol=5e-3, atol=5e-3)
    renamed = TABLE.rename(columns={"a": "x", "b": "a", "c": "z"})
    np.testing.assert_allclose(ask(make().fit(renamed, target), renamed), first, rtol=5e-3, atol=5e-3)
    mixed = ask(make().fit(TABLE.iloc[rows], np.asarray(target)[rows]), TABLE)
    np.testing.assert_allclose(mixed, first, rtol=5e-3, atol=5e-3)
    if target is CLASS and ask is PROBABILITIES:
        other = make().fit(TABLE, np.where(CLASS, "a", "b"))
        np.testing.assert_allclose(ask(other, TABLE)[:, ::-1], first, rtol=5e-3, atol=5e-3)
