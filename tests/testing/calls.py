"""The public calls whose arguments are misused, with good arguments for each."""

import copy
import inspect
import warnings
from functools import cache, partial

import jax.numpy as jnp
import networkx as nx
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from numpyro import plate, sample

import probml
from probml import models

nan = np.nan
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(6, 2)) + np.repeat([[0.0], [4.0]], 3, 0)
CLASSES = np.repeat([0, 1], 3)
Y = X @ [1.0, -2.0] + 0.1 * RANDOM.normal(size=6)
COUNTS = RANDOM.poisson([[8.0, 1.0, 3.0]] * 3 + [[1.0, 9.0, 3.0]] * 3) * 1.0
SERIES = np.cumsum(RANDOM.normal(size=20)) + 0.3 * RANDOM.normal(size=20)
BASKETS = pd.DataFrame(RANDOM.random((12, 3)) < 0.6, columns=["bread", "milk", "tea"])
GRAPH = nx.DiGraph([("c", "a"), ("c", "b"), ("a", "b")])
P = np.array([[0.2, 0.8], [0.6, 0.4], [0.5, 0.5]])


@probml.model
def clusters(k: int = 2, d: int = 2):
    weights = sample("weights", dist.Dirichlet(jnp.full(k, 2.0)))
    with plate("component", k):
        mean = sample("mean", dist.Normal(0.0, 5.0).expand([d]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], 1.0).to_event(1))


@probml.model
def groups(x, g, k: int = 3):
    with plate("group", k):
        effect = sample("effect", dist.Normal(0.0, 1.0))
    slope = sample("slope", dist.Normal(0.0, 2.0))
    with probml.rows():
        sample("y", dist.Normal(effect[g] + slope * x, 1.0))
        sample("n", dist.Poisson(2.0))


@probml.model
def states():
    rate = sample("rate", dist.Gamma(2.0, 1.0).expand([2]).to_event(1))
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]),
                                           jnp.array([[0.9, 0.1], [0.2, 0.8]])))
        sample("y", dist.Poisson(rate[z]).to_event(1))


DATA = {"x": X}
TABLE = {"x": X[:, 0], "g": np.array([0, 1, 2, 0, 1, 2]), "y": Y, "n": np.arange(6)}
STEPS = {"y": np.array([[1.0, 2, nan, 7], [8, 9, 1, 0]])}
POINT = {"weights": np.array([0.5, 0.5]), "mean": np.array([[0.0, 0.0], [4.0, 4.0]])}
QUICK = probml.EM(max_iterations=3, restarts=1)


@cache
def fitted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clusters().fit(DATA, QUICK)


@cache
def regressed():
    return groups().fit(TABLE)


@cache
def followed():
    return states().at({"rate": [1.0, 8.0]})


def _fit(model, **said):
    with warnings.catch_warnings():
        return model.fit(said.pop("data"), said.pop("engine"), **said)


def _in_data(ask, table, **cells):
    return ask({**table, **cells})


def calls():
    """Name → (call, good arguments)."""
    one, two, three = fitted(), regressed(), followed()
    plain = {"data": DATA, "engine": QUICK, "weights": None, "seed": 0, "start": None}
    out = {
        "model.fit": (partial(_fit, clusters()), plain),
        "data of fit": (partial(_in_data, lambda d: groups().fit(d), TABLE),
                        {n: TABLE[n] for n in TABLE}),
        "data of a chain": (partial(_in_data, three.log_prob, {}), STEPS),
        "start of fit": (lambda weights, mean: clusters().fit(
            DATA, QUICK, start={"weights": weights, "mean": mean}), POINT),
        "at": (lambda params, labels: clusters().at(params, labels),
               {"params": POINT, "labels": {"z": ("a", "b")}}),
        "a value of at": (lambda weights, mean: clusters().at({"weights": weights, "mean": mean}),
                          POINT),
        "settings": (lambda k, d: clusters(k, d).simulate(2), {"k": 2, "d": 2}),
        "model.simulate": (clusters().simulate, {"rows": 3, "steps": None, "seed": 0}),
        "inputs of simulate": (groups().simulate, {"rows": 6, "x": TABLE["x"], "g": TABLE["g"]}),
        "model.do": (lambda values: clusters().do(values).simulate(2), {"values": {"z": 1}}),
        "a value of do": (lambda z: one.do({"z": z}).simulate(2), {"z": 1}),
        "log_density": (clusters().log_density, {"data": DATA, "params": POINT}),
        "model.explain": (clusters().explain, {"data": DATA, "engines": ()}),
        "model.check": (groups().check, {"data": TABLE, "engine": None, "simulations": 20,
                                         "seed": 0, "rows": None, "steps": None}),
        "log_prob": (two.log_prob, {"data": TABLE, "plug_in": False, "unknown": "refuse"}),
        "predict_proba": (one.predict_proba, {"data": DATA, "site": "z", "plug_in": False,
                                              "given": "all"}),
        "predict": (two.predict, {"data": TABLE, "site": "y", "interval": None}),
        "decode": (one.decode, {"data": DATA, "sites": ["z"]}),
        "joint": (one.joint, {"data": DATA, "sites": ["z"]}),
        "pairs": (three.pairs, {"data": STEPS, "site": "z"}),
        "forecast": (three.forecast, {"data": STEPS, "steps": 1, "interval": None}),
        "impute": (one.impute, {"data": DATA}),
        "conditional": (one.conditional, {"data": {"x": np.where(X > 4, nan, X)}, "site": "x"}),
        "fit.simulate": (one.simulate, {"rows": 3, "seed": 0, "given": None, "steps": None}),
        "fit.decide": (one.decide, {"data": DATA, "site": "z", "loss": None, "reject": None}),
        "fit.calibration": (one.calibration, {"data": {"x": X, "z": CLASSES}, "site": "z",
                                              "bins": 10, "strategy": "uniform"}),
        "posterior": (two.posterior, {"site": "slope"}),
        "draws": (two.draws, {"n": 3, "seed": 0}),
        "table": (one.table, {"site": "z"}),
        "labels": (one.labels, {"site": "z"}),
        "merge": (two.merge, {"other": two}),
        "update": (two.update, {"data": TABLE, "weights": None}),
        "log_joint": (one.log_joint, {"data": DATA}),
        "load": (probml.load, {"path": "/nowhere/fit", "model": clusters()}),
        "save": (one.save, {"path": "/nowhere/fit"}),
        "report": (one.report, {"path": "/nowhere/fit.html", "data": DATA}),
        "answer": (one.answer, {"data": DATA, "ask": ("log_prob",), "site": None, "to": None}),
        "Checkpoint": (probml.Checkpoint, {"path": "/tmp/fit", "seconds": 1.0}),
        "read_bif": (models.read_bif, {"path": "/nowhere/network.bif"}),
        "write_bif": (partial(models.write_bif, one), {"path": "/nowhere/network.bif"}),
        "decide": (probml.decide, {"probabilities": P, "loss": None, "reject": None}),
        "calibration": (probml.calibration, {"truth": [0, 1, 1], "probabilities": P}),
        "stationary": (probml.stationary, {"transition": [[0.9, 0.1], [0.2, 0.8]]}),
        "MarkovChain": (probml.MarkovChain, {"initial": [0.5, 0.5], "transition": np.eye(2),
                                             "steps": 3}),
        "GaussianChain": (probml.GaussianChain, {
            "initial_mean": np.zeros(1), "initial_covariance": np.eye(1), "transition": np.eye(1),
            "covariance": np.eye(1), "steps": 3, "offset": None}),
        "probml.model": (probml.model, {"function": clusters.function}),
        "two_samples": (models.two_samples, {"x": Y, "y": X[:, 0], "paired": False, "width": 0.7,
                                             "permutations": 50, "seed": 0}),
        "dependence": (models.dependence, {"table": COUNTS, "sampling": "joint", "seed": 0,
                                           "concentration": 1.0, "permutations": 50}),
        "screen": (models.screen, {"X": X, "y": CLASSES, "names": ["a", "b"]}),
        "association_rules": (models.association_rules, {
            "baskets": BASKETS, "itemsets": [("bread", "milk")], "concentration": 1.0,
            "level": 0.9, "least_lift": None, "seed": 0}),
        "how_many": (models.how_many, {"X": X, "sizes": (1, 2), "covariance_type": "full",
                                       "references": 2, "scale": True, "seed": 0}),
        "adjustment_sets": (models.adjustment_sets, {"dag": GRAPH, "cause": "a", "effect": "b",
                                                     "unseen": (), "most": None}),
        "backdoor": (models.backdoor, {"dag": GRAPH, "cause": "a", "effect": "b",
                                       "given": ("c",)}),
        "compare": (probml.compare, {"fits": {"a": one, "b": one}, "data": DATA}),
    }  # fmt: skip
    for engine in (probml.EM(), probml.MAP(), probml.NUTS(), probml.SVI(), probml.Laplace(),
                   probml.EmpiricalBayes(choose=("scale",))):
        kind = type(engine)
        out[kind.__name__] = kind, {n: getattr(engine, n) for n in kind.__dataclass_fields__}
    return out | zoo()


def zoo():
    """The functions of the zoo, simulated."""
    def simulated(name, inputs, **settings):
        return getattr(models, name)(**settings).simulate(**({"rows": 3} | inputs))

    x, h = {"x": X}, {"h": X}
    listed = {
        "gaussian_mixture": ({}, {"k": 2, "d": 2, "covariance": "full", "concentration": 1.0}),
        "hidden_markov": ({"steps": 3}, {"k": 2, "d": 2}),
        "markov_chain": ({"steps": 3}, {"k": 2, "concentration": 1.0, "sticky": 0.0}),
        "local_level": ({"steps": 3}, {"scale": 1.0, "centre": 0.0}),
        "seasonal": ({"steps": 3}, {"period": 4, "scale": 1.0, "trend": True}),
        "factor_analysis": ({}, {"k": 1, "d": 3, "scale": 0.1}),
        "item_response": ({}, {"items": 3, "kind": "2pl", "spread": 1.0}),
        "linear_regression": (x, {}), "ridge": (x, {"penalty": 1.0}),
        "logistic_regression": (x, {"weight_scale": 1.0}),
        "softmax_regression": (x, {"states": 3, "weight_scale": 1.0}),
        "robust_regression": (x, {"df": 4.0}), "smoothing": (h, {"lines": 1, "wide": 1e6}),
        "mixture_of_experts": (x, {"k": 2}),
        "naive_bayes": ({}, {"classes": 2, "features": {"a": "normal"}, "target": "c"}),
    }
    return {name: (partial(_zoo, name, inputs), settings)
            for name, (inputs, settings) in listed.items() if settings}


def _zoo(name, inputs, **settings):
    rows = {} if any(n in inputs for n in ("x", "h")) else {"rows": 3}
    return getattr(models, name)(**settings).simulate(**rows, **inputs)


def faces():
    """Name → (a maker of the face, X, y), all of them."""
    binary, grouped = (X > 2).astype(int), np.column_stack([np.repeat([0, 1, 2], 2), X[:, 0]])
    one = {"n_init": 1}
    out = {
        "GaussianMixture": (partial(models.GaussianMixture, 2, **one), X, None),
        "MixedMixture": (partial(models.MixedMixture, 2, **one), X, None),
        "LatentClass": (partial(models.LatentClass, 2, **one), binary, None),
        "PoissonMixture": (partial(models.PoissonMixture, 2, **one), binary, None),
        "ItemResponse": (models.ItemResponse, binary[:, [0, 1, 0]], None),
        "NaiveBayes": (models.NaiveBayes, X, CLASSES),
        "MixtureDiscriminant": (partial(models.MixtureDiscriminant, 1, **one), X, CLASSES),
        "NeuralNetworkRegressor": (partial(models.NeuralNetworkRegressor, 2, weight_scale=1.0,
                                           steps=20), X, Y),
        "NeuralNetworkClassifier": (partial(models.NeuralNetworkClassifier, 2, weight_scale=1.0,
                                            steps=20), X, CLASSES),
        "MixtureOfExperts": (partial(models.MixtureOfExperts, 1, **one), X, Y),
        "MixtureOfExpertsClassifier": (partial(models.MixtureOfExpertsClassifier, 1, **one), X,
                                       CLASSES),
        "MixedModel": (partial(models.MixedModel, {"0": ["1"]}),
                       pd.DataFrame(grouped, columns=["0", "1"]), Y),
        "GaussianProcess": (partial(models.GaussianProcess, n_starts=1), X, Y),
        "SmoothingSpline": (partial(models.SmoothingSpline, 2), X, Y),
        "HiddenMarkov": (partial(models.HiddenMarkov, 2, **one), X, None),
        "ProbabilisticPCA": (partial(models.ProbabilisticPCA, 1), X, None),
        "FactorAnalysis": (partial(models.FactorAnalysis, 1), X, None),
        "KernelDensity": (models.KernelDensity, X, None),
        "StructuralTimeSeries": (partial(models.StructuralTimeSeries, n_starts=1), SERIES, None),
        "DynamicFactor": (models.DynamicFactor, np.stack([SERIES, SERIES[::-1]], 1), None),
        "TopicModel": (partial(models.TopicModel, 2, **one), COUNTS, None),
        "PoissonFactors": (partial(models.PoissonFactors, 2, **one), COUNTS, None),
        "SampledTree": (partial(models.SampledTree, 2, warmup=1, thin=1, chains=1), X, CLASSES),
        "FuzzyCMeans": (partial(models.FuzzyCMeans, 2, **one), X, None),
        "KMedoids": (partial(models.KMedoids, 2, **one), X, None),
        "SparseCoding": (partial(models.SparseCoding, 2, **one), X, None),
        "MultidimensionalScaling": (partial(models.MultidimensionalScaling, 1, **one), X, None),
        "NearestNeighbours": (partial(models.NearestNeighbours, (1, 2)), X, CLASSES),
        "EvidenceTree": (models.EvidenceTree, X, CLASSES),
        "Boosted": (partial(models.Boosted, n_estimators=5), X, Y),
    }  # fmt: skip
    out |= {name: (getattr(models, name), X, CLASSES) for name in (
        "GaussianDiscriminant", "LogisticRegression", "LeastSquaresClassifier", "Perceptron",
        "FisherDiscriminant", "LinearSVM", "GeneralizedLinearModel", "ParzenClassifier",
        "SupportVectorMachine")}
    return out | {name: (getattr(models, name), X, Y) for name in (
        "RobustRegression", "BayesianLinearRegression", "SupportVectorRegression")}


# what verbs of faces take beside X, y and what has a default
BESIDE = {"amounts": np.ones((6, 2)), "codes": np.ones((6, 2)), "a": 0, "b": 1, "Z": np.zeros((6, 1)), "ability": np.zeros(3), "classes": [0, 1]}
# of every object, of files, or of other faces
LEFT = ("get_params", "set_params", "get_metadata_routing", "save", "report", "merge")


def face_calls():
    """Name → (call, good arguments) of faces: what they are given, each parameter, each verb."""
    out = {}
    for name, (make, table, y) in faces().items():
        given = {"X": table} if y is None else {"X": table, "y": y}
        held = make().get_params()
        fit = inspect.signature(make().fit).parameters
        whole = given | {own: None for own in fit if own not in ("X", "y")}
        out[f"{name}.fit"] = (lambda make=make, **g: make().fit(**g)), whole
        out[name] = (lambda make=make, given=given, **p: make().set_params(**p).fit(**given)), held
        face = cache(lambda make=make, given=given: _learnt(make, given))
        for verb, asked in verbs(make(), table, y).items():
            out[f"{name}.{verb}"] = partial(_asked, face, verb), asked
    return out


def _learnt(make, given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make().fit(**given)


def _asked(face, verb, **said):
    return getattr(copy.deepcopy(face()), verb)(**said)  # partial_fit changes it


def verbs(face, table, y):
    """Verb → good arguments, of a face."""
    out = {}
    for verb, found in inspect.getmembers(type(face), inspect.isfunction):
        if verb.startswith(("_", "set_")) or verb in ("fit", *LEFT):
            continue
        own = {"X": table, "y": CLASSES if y is None else y, **BESIDE}
        takes = [each for each in inspect.signature(found).parameters.values()
                 if each.name != "self" and each.kind is not each.VAR_KEYWORD]
        out[verb] = {each.name: own[each.name] if each.name in own else each.default
                     for each in takes}
    return out
