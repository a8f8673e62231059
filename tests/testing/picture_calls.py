"""The pictures whose arguments are misused, with good arguments for each."""

import inspect
import warnings
from functools import cache

import calls
import numpy as np
import pandas as pd
from zoo_calls import CLASSES, GRAPH, X

import probml
from probml import models
from probml.models import pictures


@cache
def _mixture():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return models.GaussianMixture(2, n_init=1).fit(X)


@cache
def _curve():
    return models.BayesianLinearRegression().fit(calls.TABLE["x"][:, None], calls.TABLE["y"])


@cache
def _checked():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return calls.groups().check(calls.TABLE, simulations=20)


def drawn() -> dict[str, tuple]:
    """Name → (call, good arguments)."""
    fit, chain, line = _mixture(), calls.followed(), calls.regressed()
    network = models.bayesian_network(GRAPH, dict.fromkeys("abc", 2)).at({
        "a.table": np.full((2, 2), 0.5), "b.table": np.full((2, 2, 2), 0.5),
        "c.table": np.array([0.4, 0.6])})
    sizes = pd.DataFrame({"n_components": [1, 2], "bic": [3.0, 1.0], "score": [0.1, 0.2]})
    several = probml.compare({"a": line, "b": line}, calls.TABLE)
    part = pd.DataFrame({"value": [1.0, 2.0], "lower": [0.0, 1.0], "upper": [2.0, 3.0]})
    known = probml.calibration([0, 1, 1], calls.P)
    arguments = {
        "density": {"fitted": fit, "X": X, "column": 0, "bins": None},
        "ellipses": {"fitted": fit, "X": X, "columns": (0, 1), "sd": (1, 2)},
        "responsibilities": {"fitted": fit, "X": X},
        "profile": {"fitted": fit}, "picture": {"fitted": fit, "X": X, "y": None},
        "forest": {"fitted": part, "data": None, "names": None, "level": 0.95, "summary": (),
                   "reference": 0.0, "xlabel": "estimate"},
        "effects_of": {"fitted": _curve(), "column": 0, "X": calls.TABLE["x"][:, None], "level": 0.95},
        "residuals": {"fitted": _curve(), "X": calls.TABLE["x"][:, None], "y": calls.TABLE["y"]},
        "qq": {"fitted": _curve(), "X": calls.TABLE["x"][:, None], "y": calls.TABLE["y"]},
        "biplot": {"fitted": X, "X": np.eye(2), "names": ["a", "b"], "groups": CLASSES},
        "components": {"fitted": {"level": part}, "X": [1.0, 2.0], "ahead": part},
        "effects": {"fitted": line, "name": "effect", "labels": ["a", "b", "c"], "coordinate": 0},
        "draw_network": {"fitted": network, "evidence": {"a": 1}, "nodes": ["a", "b"]},
        "calibration": {"report": _checked(), "quantities": ["slope"], "columns": 3},
        "reliability": {"report": known, "label": 1},
        "choosing": {"fitted": sizes, "X": None}, "comparison": {"table": several, "criterion": "aic"},
        "confusion": {"truth": [0, 1, 1], "predicted": [0, 1, 0], "labels": [0, 1]},
        "bands": {"fitted": line, "X": calls.TABLE, "along": "x", "site": "y", "interval": 0.9},
        "intervals": {"fitted": line, "names": ["slope"]}, "learning": {"fitted": calls.fitted(), "X": None},
        "timeline": {"fitted": chain, "X": calls.STEPS, "row": 0, "column": 0},
    }  # fmt: skip
    out = {}
    for name, good in arguments.items():
        made = getattr(pictures, name)
        axes = {"ax": None} if "ax" in inspect.signature(made).parameters else {}
        out[f"pictures.{name}"] = made, {**good, **axes}
    return out


def short() -> dict[str, set[str]]:
    """Pictures, and arguments of theirs, that are not misused."""
    found, told = {}, drawn()
    for name, made in inspect.getmembers(pictures, inspect.isfunction):
        left = set(inspect.signature(made).parameters) - set(
            told.get(f"pictures.{name}", ((), {}))[1])
        if left:
            found[name] = left
    return found
