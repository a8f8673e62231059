"""The functions of the zoo whose settings and arguments are misused. Settings that have a default
are found by themselves; what has none stands here, by name."""

import inspect
from functools import cache, partial

import networkx as nx
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import single
from numpyro import sample

import probml
from probml import models

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(6, 2)) + np.repeat([[0.0], [4.0]], 3, 0)
CLASSES = np.repeat([0, 1], 3)
Y = X @ [1.0, -2.0] + 0.1 * RANDOM.normal(size=6)
COUNTS = RANDOM.poisson([[8.0, 1.0, 3.0]] * 3 + [[1.0, 9.0, 3.0]] * 3) * 1.0
SERIES = np.cumsum(RANDOM.normal(size=20)) + 0.3 * RANDOM.normal(size=20)
BASKETS = pd.DataFrame(RANDOM.random((12, 3)) < 0.6, columns=["bread", "milk", "tea"])
GRAPH = nx.DiGraph([("c", "a"), ("c", "b"), ("a", "b")])
# c → a → b, of two states each
TABLE = {name: np.array(values) for name, values in (
    ("c", [0, 0, 1, 1, 0, 1, 0, 1, 1, 0]), ("a", [0, 0, 1, 1, 0, 1, 1, 1, 0, 0]),
    ("b", [0, 0, 1, 1, 1, 1, 1, 1, 0, 0]))}  # fmt: skip
FRAME = pd.DataFrame({"y": Y, "x": X[:, 0], "g": np.tile(["u", "v"], 3)})
DISTANCES = np.abs(Y[:, None] - Y)

# inputs of functions, by name, and of those that mean something else by it
INPUTS = {"x": X, "h": X, "offset": np.zeros(6), "trials": np.ones(6),
          "document": np.arange(6) % 2, "kernel": X @ X.T}
OWN_INPUTS = {
    "multidimensional_scaling": {"first": np.array([0, 0, 1]), "second": np.array([1, 2, 2])},
    "meta_analysis": {"x": X, "standard_error": np.full(6, 0.5)},
    "mixed_model": {"x": X, "z": np.ones((6, 1)), "member": CLASSES[:, None]},
    "survival_regression": {"x": X, "kind": np.zeros(6, int), "upper": np.zeros(6)},
    "structural_time_series": {"x": np.ones((3, 4, 1))},
}
# settings without a default
NEEDED = {
    "dynamic_factor": {"k": 1, "d": 3}, "factor_analysis": {"k": 1, "d": 3},
    "gaussian_mixture": {"k": 2, "d": 2}, "hidden_markov": {"k": 2},
    "item_response": {"items": 3}, "kernel_density": {"n": 3, "d": 2},
    "latent_dirichlet": {"documents": 2, "words": 3, "k": 2}, "markov_chain": {"k": 2},
    "mixed_model": {"effects": {"g": (2, 1)}}, "mixture_of_experts": {"k": 2},
    "mixture_of_factor_analysers": {"components": 2, "k": 1, "d": 3},
    "mixture_of_mixtures": {"classes": 2, "k": 2, "d": 2},
    "multidimensional_scaling": {"points": 3}, "ordinal_regression": {"categories": 3}, "naive_bayes": {"classes": 2, "features": {
        "a": "normal"}}, "parzen_classifier": {"n": 3, "d": 2, "classes": 2},
    "probabilistic_pca": {"k": 1, "d": 3}, "seasonal": {"period": 4},
    "softmax_regression": {"states": 3},
}  # fmt: skip
STEPPED = ("dynamic_factor", "hidden_markov", "local_level", "local_trend", "markov_chain",
           "seasonal", "structural_time_series")


def simulated():
    """Name → (a call that binds settings and draws from the prior, good settings)."""
    out = {}
    for name in single.functions():
        made = getattr(models, name)
        held = {own: made.signature.parameters[own].default for own in made.defaults
                if own != "y"}
        needed = NEEDED.get(name, {})
        inputs = {own: OWN_INPUTS.get(name, {}).get(own, INPUTS.get(own))
                  for own in made.arguments if own not in (*made.defaults, *needed)}
        lacking = [own for own, value in inputs.items() if value is None]
        if lacking:
            raise LookupError(f"{name}: say a good {lacking[0]!r} in INPUTS, or in NEEDED if it is "
                              f"a setting")
        rows = {"rows": 3} if not inputs else {}
        rows |= {"steps": 4} if name in STEPPED and "x" not in inputs else {}
        out[name] = partial(_drawn, made, {**inputs, **rows}), {**needed, **held}
    return out


def _drawn(made, inputs, **settings):
    return made(**settings).simulate(**inputs)


def functions():
    """Name → (call, good arguments) of the functions of the zoo that are no models."""
    columns = {"states": None, "kinds": None}
    return {
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
        "bayesian_network": (lambda **said: models.bayesian_network(**said).simulate(2), {
            "dag": GRAPH, "states": {"a": 2, "b": 2, "c": 2}, "strength": 1.0,
            "mean_scale": 1000.0, "scale": 0.1, "data": None, "kinds": None}),
        "bspline_basis": (models.bspline_basis, {"z": Y, "knots": 1, "boundary": None}),
        "classical_scaling": (models.classical_scaling, {"distances": DISTANCES, "k": 1}),
        "conditional_dependence": (models.conditional_dependence, {
            "data": TABLE, "first": "a", "second": "b", "given": ("c",), **columns}),
        "edge_probabilities": (models.edge_probabilities, {
            "data": TABLE, "score": "bdeu", "strength": 1.0, **columns, "whitelist": (),
            "blacklist": (), "max_parents": None}),
        "likelihood_ratio_test": (models.likelihood_ratio_test, {
            "small": _poisson(1), "large": _poisson(2)}),
        "learn_pattern": (models.learn_pattern, {
            "data": TABLE, "level": 0.05, "test": None, **columns, "blacklist": (),
            "most": None}),
        "learn_structure": (models.learn_structure, {
            "data": TABLE, "score": "bdeu", "method": "hill_climb", "strength": 1.0, **columns,
            "whitelist": (), "blacklist": (), "max_parents": None, "restarts": 1, "tabu": 2,
            "root": None, "seed": 0}),
        # of a table with a hole: structural EM
        "learn_structure of holes": (models.learn_structure, {
            "data": TABLE | {"c": np.where(np.arange(10) == 2, np.nan, TABLE["c"])},
            "score": "bic", "strength": 1.0, **columns, "restarts": 1, "max_parents": 1}),
        "structure_score": (models.structure_score, {
            "data": TABLE, "dag": GRAPH, "score": "bdeu", "strength": 1.0, **columns}),
        "member_of": (models.member_of, {"pattern": GRAPH}),
        "pattern_of": (models.pattern_of, {"dag": GRAPH}),
        "formula": (models.formula, {"text": "y ~ x + (1 | g)", "table": FRAME}),
        "dishonest_casino": (models.dishonest_casino, {}),
        "level_part": _part("level_part", name="level", scale=1.0, centre=0.0, first=None,
                            still=False),
        "trend_part": _part("trend_part", name="trend", scale=1.0, centre=0.0, first=None,
                            smooth=False),
        "seasonal_part": _part("seasonal_part", period=3, name="season", scale=1.0, first=None),
        "cycle_part": _part("cycle_part", shortest=3.0, longest=9.0, name="cycle", scale=1.0),
        "autoregressive_part": _part("autoregressive_part", order=1, name="ar", scale=1.0),
        "polynomial": (lambda degree: models.polynomial(degree)(X), {"degree": 2}),
        "read_bif": (models.read_bif, {"path": "/nowhere/network.bif"}),
        "write_bif": (lambda path: models.write_bif(models.dishonest_casino(), path), {
            "path": "/nowhere/network.bif"}),
    }  # fmt: skip


@cache
def _poisson(columns):
    return models.GeneralizedLinearModel("poisson").fit(X[:, :columns], COUNTS[:, 0])


def _part(kind, /, **arguments):
    """A part of a structural series, drawn from its prior."""
    def call(**said):
        def series():
            path = getattr(models, kind)(**said)
            with probml.rows():
                sample("y", dist.Normal(path(), 1.0).to_event(1))

        return probml.model(series)().simulate(2, steps=4)

    return call, arguments


def short() -> dict[str, set[str]]:
    """Functions of which an argument is not misused, by name: none, or the table above is short of
    what was added to them."""
    found = {}
    for name, (_, arguments) in functions().items():
        made = getattr(models, name.split()[0])
        left = set(inspect.signature(made).parameters) - set(arguments)
        if left and " " not in name and name not in ("write_bif", "formula"):
            found[name] = left
    return found
