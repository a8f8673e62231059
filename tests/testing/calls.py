"""The public calls whose arguments are misused, with good arguments for each."""

import contextlib
import copy
import dataclasses
import inspect
import io
import warnings
from functools import cache, partial

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import zoo_calls
from numpyro import plate, sample
from zoo_calls import CLASSES, COUNTS, SERIES, X, Y

import probml
from probml import models

nan = np.nan
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


@cache
def served():
    return fitted().compiled("predict_proba", {"x": X[:1]}, "z")


@cache
def filtered():
    return followed().filter({"y": np.ones((1, 1))})


def _fit(model, **said):
    with warnings.catch_warnings():
        return model.fit(said.pop("data"), said.pop("engine"), **said)


def _in_data(ask, table, **cells):
    return ask({**table, **cells})


def calls():
    """Name → (call, good arguments)."""
    one, two, three = fitted(), regressed(), followed()
    plain = {"data": DATA, "engine": QUICK, "weights": None, "seed": 0, "start": None,
             "checkpoint": None, "where": None, "seconds": None}
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
        "model.simulate": (clusters().simulate, {"rows": 3, "steps": None, "seed": 0,
                                                 "parameters": False}),
        "inputs of simulate": (groups().simulate, {"rows": 6, "x": TABLE["x"], "g": TABLE["g"]}),
        "model.do": (lambda values: clusters().do(values).simulate(2), {"values": {"z": 1}}),
        "a value of do": (lambda z: one.do({"z": z}).simulate(2), {"z": 1}),
        "log_density": (clusters().log_density, {"data": DATA, "params": POINT, "labels": None}),
        "model.explain": (clusters().explain, {"data": DATA, "engines": ()}),
        "model.check": (groups().check, {"data": TABLE, "engine": None, "simulations": 20,
                                         "seed": 0, "rows": None, "steps": None,
                                         "simulator": None, "progress": False}),
        "log_prob": (two.log_prob, {"data": TABLE, "plug_in": False, "unknown": "refuse"}),
        "predict_proba": (one.predict_proba, {"data": DATA, "site": "z", "plug_in": False,
                                              "given": "all", "unknown": "refuse"}),
        "predict": (two.predict, {"data": TABLE, "site": "y", "interval": None, "plug_in": False,
                                  "given": "all", "unknown": "refuse"}),
        "decode": (one.decode, {"data": DATA, "sites": ["z"], "plug_in": False}),
        "joint": (one.joint, {"data": DATA, "sites": ["z"], "plug_in": False}),
        "pairs": (three.pairs, {"data": STEPS, "site": "z", "plug_in": False}),
        "forecast": (three.forecast, {"data": STEPS, "steps": 1, "interval": None,
                                      "plug_in": False}),
        "impute": (one.impute, {"data": DATA, "plug_in": False, "unknown": "refuse"}),
        "conditional": (one.conditional, {"data": {"x": np.where(X > 4, nan, X)}, "site": "x",
                                          "plug_in": False}),
        "fit.simulate": (one.simulate, {"rows": 3, "seed": 0, "given": None, "steps": None,
                                        "plug_in": False, "unknown": "refuse"}),
        "fit.decide": (one.decide, {"data": DATA, "site": "z", "loss": None, "reject": None,
                                    "plug_in": False}),
        "fit.calibration": (one.calibration, {"data": {"x": X, "z": CLASSES}, "site": "z",
                                              "bins": 10, "strategy": "uniform",
                                              "plug_in": False}),
        "posterior": (two.posterior, {"site": "slope"}),
        "draws": (two.draws, {"n": 3, "seed": 0}),
        "score": (two.score, {"data": TABLE, "plug_in": False, "unknown": "refuse"}),
        "fit.do": (lambda values: one.do(values).simulate(2), {"values": {"z": 1}}),
        "compiled": (one.compiled, {"ask": "predict_proba", "example": DATA, "site": "z",
                                    "plug_in": False}),
        "a served row": (served(), {"row": {"x": X[0]}}),
        "a cell of a served row": (lambda x: served()({"x": x}), {"x": X[0]}),
        "fit.filter": (three.filter, {"example": {"y": np.ones((1, 1))}}),
        "filter.step": (lambda seen: filtered().restart().step(seen), {"seen": {"y": 2.0}}),
        "a cell of filter.step": (lambda y: filtered().restart().step({"y": y}), {"y": 2.0}),
        "to_arviz": (two.to_arviz, {"data": None, "prior": None}),
        "model.draw": (groups().draw, {"data": None, "ax": None}),
        "table": (one.table, {"site": "z"}),
        "labels": (one.labels, {"site": "z"}),
        "merge": (two.merge, {"other": two}),
        "update": (two.update, {"data": TABLE, "weights": None}),
        "running": (one.running, {"data": DATA, "weights": None}),
        "log_joint": (one.log_joint, {"data": DATA}),
        "load": (probml.load, {"path": "/nowhere/fit", "model": clusters()}),
        "save": (one.save, {"path": "/nowhere/fit"}),
        "report": (one.report, {"path": "/nowhere/fit.html", "data": DATA, "y": None,
                               "name": None}),
        "answer": (one.answer, {"data": DATA, "ask": ("log_prob",), "site": None, "to": None}),
        "Checkpoint": (probml.Checkpoint, {"path": "/tmp/fit", "seconds": 1.0}),
        "decide": (probml.decide, {"probabilities": P, "loss": None, "reject": None,
                                   "labels": None}),
        "calibration": (probml.calibration, {"truth": [0, 1, 1], "probabilities": P,
                                             "labels": [0, 1], "bins": 10, "strategy": "uniform"}),
        "stationary": (probml.stationary, {"transition": [[0.9, 0.1], [0.2, 0.8]]}),
        "MarkovChain": (probml.MarkovChain, {"initial": [0.5, 0.5], "transition": np.eye(2),
                                             "steps": 3, "inhomogeneous": False,
                                             "validate_args": None}),
        "GaussianChain": (probml.GaussianChain, {
            "initial_mean": np.zeros(1), "initial_covariance": np.eye(1), "transition": np.eye(1),
            "covariance": np.eye(1), "steps": 3, "offset": None, "validate_args": None}),
        "probml.model": (probml.model, {"function": clusters.function}),
        "StickBreaking": (lambda **said: probml.StickBreaking(**said).mean, {
            "concentration1": [1.0, 2.0], "concentration0": [1.0, 1.0], "validate_args": None}),
        "dirichlet_process": (lambda **said: probml.dirichlet_process(**said).mean, {
            "concentration": 1.0, "k": 3}),
        "cite": (_quiet(probml.cite), {"model": one, "engine": None, "show": True}),
        "show_versions": (_quiet(probml.show_versions), {"show": True}),
        "watch": (_watched, {"callback": len, "seconds": 1.0}),
        "compare": (probml.compare, {"fits": {"a": one, "b": one}, "data": DATA, "target": None,
                                     "engines": None, "folds": None, "seed": 0,
                                     "weights": None}),
    }  # fmt: skip
    for engine in (probml.EM(), probml.MAP(), probml.NUTS(), probml.SVI(), probml.Laplace(),
                   probml.VB(), probml.Exact(), probml.EmpiricalBayes(choose=("scale",))):
        kind = type(engine)
        out[kind.__name__] = kind, {each.name: getattr(engine, each.name)
                                    for each in dataclasses.fields(kind) if each.init}
    return out | zoo_calls.simulated() | zoo_calls.functions()


def short():
    """Arguments of public functions, and of what fits and models are asked, that are not misused,
    by name."""
    found, told = {}, calls()
    for kind, prefix in ((probml.Model, "model."), (probml.Fit, "fit."), (probml, "")):
        for verb, made in inspect.getmembers(kind, callable):
            calling = next((told[name][1] for name in (prefix + verb, verb) if name in told), None)
            if calling is None or verb.startswith("_"):
                continue
            takes = inspect.signature(made).parameters.values()
            left = {each.name for each in takes if each.kind is not each.VAR_KEYWORD}
            if left := left - {"self"} - set(calling):
                found[prefix + verb] = left
    return found


def _watched(**said):
    with probml.watch(**said):
        pass


def _quiet(call):
    def silent(**said):
        with contextlib.redirect_stdout(io.StringIO()):
            return call(**said)

    return silent


def estimators():
    """Name → (a maker of the estimator, X, y), all of them."""
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
        "OrdinalRegression": (models.OrdinalRegression, X, np.array([0, 1, 2, 1, 0, 2])),
        "SurvivalRegression": (models.SurvivalRegression, X, np.exp(Y / 4)),
        "MetaAnalysis": (models.MetaAnalysis, {"y": Y, "standard_error": np.full(6, 0.5)}, None),
    }  # fmt: skip
    out |= {name: (getattr(models, name), X, CLASSES) for name in (
        "GaussianDiscriminant", "LogisticRegression", "LeastSquaresClassifier", "Perceptron",
        "FisherDiscriminant", "LinearSVM", "GeneralizedLinearModel", "ParzenClassifier",
        "SupportVectorMachine")}
    return out | {name: (getattr(models, name), X, Y) for name in (
        "RobustRegression", "BayesianLinearRegression", "SupportVectorRegression")}


# what verbs of estimators take beside X, y and what has a default
BESIDE = {"times": [1.0, 2.0], "amounts": np.ones((6, 2)), "codes": np.ones((6, 2)), "a": 0, "b": 1, "Z": np.zeros((6, 1)), "column": 0, "ability": np.zeros(3), "classes": [0, 1]}
# of every object, of files, or of other estimators
LEFT = ("get_params", "set_params", "get_metadata_routing", "save", "report", "merge")


def estimator_calls():
    """Name → (call, good arguments) of estimators: what they are given, each parameter, each verb."""
    out = {}
    for name, (make, table, y) in estimators().items():
        given = table if isinstance(table, dict) else {"X": table} | ({} if y is None else {"y": y})
        held = make().get_params()
        fit = inspect.signature(make().fit).parameters
        whole = {own: None for own in fit if own not in ("X", "y")} | given
        out[f"{name}.fit"] = (lambda make=make, **g: make().fit(**g)), whole
        out[name] = (lambda make=make, given=given, **p: make().set_params(**p).fit(**given)), held
        estimator = cache(lambda make=make, given=given: _learnt(make, given))
        for verb, asked in verbs(make(), given.get("X"), given.get("y")).items():
            out[f"{name}.{verb}"] = partial(_asked, estimator, verb), asked
    return out


def _learnt(make, given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make().fit(**given)


def _asked(estimator, verb, **said):
    return getattr(copy.deepcopy(estimator()), verb)(**said)  # partial_fit changes it


def verbs(estimator, table, y):
    """Verb → good arguments, of an estimator."""
    out = {}
    for verb, found in inspect.getmembers(type(estimator), inspect.isfunction):
        if verb.startswith(("_", "set_")) or verb in ("fit", *LEFT):
            continue
        own = {"X": table, "y": CLASSES if y is None else y, **BESIDE}
        takes = [each for each in inspect.signature(found).parameters.values()
                 if each.name != "self" and each.kind is not each.VAR_KEYWORD]
        out[verb] = {each.name: own[each.name] if each.name in own else each.default
                     for each in takes}
    return out
