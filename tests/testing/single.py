"""The statistician of float32: `python tests/testing/single.py [part of a name] [--where part]`.

Every face and function of the zoo at its defaults, on tables that are hard for few digits: odd
units, offsets, collinear and constant columns, one row, nothing seen, counts of 10⁶, clusters far
apart, long chains. An answer in single is that of double, or says that it is not to be relied on:
by a refusal, a warning, or a note of its status. Prints what does neither.
"""

import argparse
import inspect
import re
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist

import probml
from probml import models
from probml.estimators.face import Face
from probml.interface.model import Generative

CLOSE = 1e-3  # of the spread of an answer, or of a nat
NO_ANSWER = ("there is no maximum",)  # that is said in any precision: what is told is no answer
DIGITS = np.finfo(np.float32).eps  # of its size, in which it may be rounded
nan = np.nan


class Table(NamedTuple):
    """What a face is given: X, y by kind of face."""

    x: np.ndarray
    classes: np.ndarray
    y: np.ndarray
    counts: np.ndarray
    codes: np.ndarray


def plain(rows: int = 40) -> Table:
    random = np.random.default_rng(3)
    classes = np.arange(rows) % 2
    x = random.normal(size=(rows, 3)) + [[3.0, 0.0, -2.0]] * classes[:, None]
    y = x @ [1.0, -2.0, 0.5] + 0.3 * random.normal(size=rows)
    counts = random.poisson(np.where(classes[:, None], [[2.0, 8.0, 4.0]], [[9.0, 1.0, 4.0]])) * 1.0
    codes = (random.random((rows, 4)) < np.where(classes, 0.8, 0.2)[:, None]) * 1.0
    return Table(x, classes, y, counts, codes)


def _x(table: Table, x: np.ndarray) -> Table:
    """Columns moved, and what is regressed on them with the first."""
    return table._replace(x=x)


def _unit(unit: float, offset: float = 0.0) -> Callable[[Table], Table]:
    return lambda t: t._replace(x=t.x * unit + offset, y=t.y * unit + offset)


def _collinear(table: Table) -> Table:
    return _x(table, np.column_stack([table.x[:, :2], table.x[:, 0] + table.x[:, 1]]))


def _constant(table: Table) -> Table:
    codes = table.codes.copy()
    codes[:, 0] = 0.0
    return _x(table, np.column_stack([table.x[:, :2], np.full(len(table.x), 5.0)]))._replace(
        codes=codes)


def _one(table: Table) -> Table:
    return Table(*(part[:1] for part in table))


def _unseen(table: Table) -> Table:
    return table._replace(x=np.full_like(table.x, nan), counts=np.full_like(table.counts, nan),
                          codes=np.full_like(table.codes, nan))


def _holes(table: Table) -> Table:
    hole = np.random.default_rng(5).random(table.x.shape) < 0.2
    x = np.where(hole, nan, table.x * 1e3 + 1e6)
    x[0] = nan
    return _x(table, x)


def _far(table: Table) -> Table:
    return _x(table, table.x + 1e6 * table.classes[:, None])


def _large(table: Table) -> Table:
    random = np.random.default_rng(4)
    return table._replace(counts=random.poisson(table.counts.mean(0) * 2e5 *
                                                (1 + 0.5 * table.classes[:, None])) * 1.0)


def _ten(table: Table) -> Table:
    codes = table.codes.copy()
    codes[:, 0] = np.arange(len(codes)) % 9
    codes[-1, 0] = 9.0  # once
    return table._replace(codes=codes)


WHERE: dict[str, Callable[[Table], Table]] = {
    "as they are": lambda t: t, "times a million": _unit(1e6), "times a millionth": _unit(1e-6),
    "about a million": _unit(1.0, 1e6), "seconds since 1970": _unit(3600.0, 1.7e9),
    "collinear": _collinear, "a constant column": _constant, "one row": _one,
    "nothing seen": _unseen, "holes, about a million": _holes, "clusters far apart": _far,
    "counts of a million": _large, "ten categories": _ten,
}  # fmt: skip


def _fitted(make: Callable[[], Any], of: Callable[[Table], tuple], asked: tuple[str, ...],
            table: Table) -> dict[str, Any]:
    """What a face answers: verbs of the rows it was fitted to."""
    given = of(table)
    face = make().fit(*given)
    out = {}
    for verb in asked:
        takes = given if verb in ("log_prob", "row_weights") else given[:1]
        out[verb] = getattr(face, verb)(*takes)
        if verb == "fit_transform":  # places are told up to a turn
            out[verb] = pdist(out[verb])
    return {"": getattr(face, "status", ""), **out}


KINDS: dict[str, tuple[Callable[[Table], tuple], tuple[str, ...]]] = {
    "numbers": (lambda t: (t.x,), ("score_samples",)),
    "classes": (lambda t: (t.x, t.classes), ("predict_proba",)),
    "sure": (lambda t: (t.x, t.classes), ("predict",)),
    "regression": (lambda t: (t.x, t.y), ("predict",)),
    "counts": (lambda t: (t.counts,), ("score_samples",)),
    "topics": (lambda t: (t.counts,), ("perplexity",)),
    "parts": (lambda t: (t.counts,), ("transform",)),
    "codes": (lambda t: (t.codes,), ("score_samples",)),
    "items": (lambda t: (np.where(np.isnan(t.codes), nan, np.minimum(t.codes, 1.0)),),
              ("transform",)),
    "groups": (lambda t: (pd.DataFrame({"g": t.classes, "a": t.x[:, 0]}), t.y), ("predict",)),
    "series": (lambda t: (np.cumsum(t.y),), ("forecast",)),
    "several series": (lambda t: (t.x.cumsum(0),), ("score",)),
    "steps": (lambda t: (t.x,), ("score",)),
    "shares": (lambda t: (t.x,), ("predict_proba",)),
    "groups of rows": (lambda t: (t.x,), ("predict",)),
    "atoms": (lambda t: (t.x,), ("transform",)),
    "places": (lambda t: (t.x,), ("fit_transform",)),
    "squares": (lambda t: (t.x,), ("score_samples", "transform")),
}


def _face(name: str, *given: Any, **settings: Any) -> Callable[[], Any]:
    return partial(getattr(models, name), *given, **settings)


FACES: dict[str, tuple[str, Callable[[], Any]]] = {
    "GaussianMixture": ("numbers", _face("GaussianMixture", 2)),
    "MixedMixture": ("numbers", _face("MixedMixture", 2)),
    "KernelDensity": ("numbers", _face("KernelDensity")),
    "ProbabilisticPCA": ("squares", _face("ProbabilisticPCA", 1)),
    "FactorAnalysis": ("squares", _face("FactorAnalysis", 1)),
    "FuzzyCMeans": ("shares", _face("FuzzyCMeans", 2)),
    "KMedoids": ("groups of rows", _face("KMedoids", 2)),
    "SparseCoding": ("atoms", _face("SparseCoding", 2)),
    "MultidimensionalScaling": ("places", _face("MultidimensionalScaling")),
    "LatentClass": ("codes", _face("LatentClass", 2)),
    "PoissonMixture": ("counts", _face("PoissonMixture", 2)),
    "TopicModel": ("topics", _face("TopicModel", 2)),
    "PoissonFactors": ("parts", _face("PoissonFactors", 2)),
    "ItemResponse": ("items", _face("ItemResponse")),
    "HiddenMarkov": ("steps", _face("HiddenMarkov", 2)),
    "StructuralTimeSeries": ("series", _face("StructuralTimeSeries")),
    "DynamicFactor": ("several series", _face("DynamicFactor")),
    "MixedModel": ("groups", _face("MixedModel", {"g": []})),
} | {name: ("classes", _face(name)) for name in (
    "NaiveBayes", "GaussianDiscriminant", "MixtureDiscriminant", "FisherDiscriminant",
    "LogisticRegression", "ParzenClassifier",
    "NeuralNetworkClassifier", "MixtureOfExpertsClassifier", "NearestNeighbours", "EvidenceTree",
    "SampledTree")
} | {name: ("sure", _face(name)) for name in (
    "LeastSquaresClassifier", "LinearSVM", "Perceptron", "SupportVectorMachine")
} | {name: ("regression", _face(name)) for name in (
    "GeneralizedLinearModel", "RobustRegression", "BayesianLinearRegression", "SmoothingSpline",
    "SupportVectorRegression", "NeuralNetworkRegressor", "MixtureOfExperts", "GaussianProcess",
    "Boosted")}  # fmt: skip


def _zoo(name: str, of: Callable[[Table], dict], engine: Any = None, **settings: Any) -> Callable:
    def answers(table: Table) -> dict[str, Any]:
        data = of(table)
        model = getattr(models, name)(**settings)
        fit = model.fit(data, engine)
        return {"": fit.status, "log_prob": fit.log_prob(data)}

    return answers


EM, MAP = probml.EM(), probml.MAP()
ZOO: dict[str, Callable[[Table], dict[str, Any]]] = {
    "gaussian_mixture": _zoo("gaussian_mixture", lambda t: {"x": t.x}, EM, k=2, d=3),
    "hidden_markov": _zoo("hidden_markov", lambda t: {"y": t.x[None]}, EM, k=2, d=3),
    "local_level": _zoo("local_level", lambda t: {"y": t.y[None]}, MAP),
    "local_trend": _zoo("local_trend", lambda t: {"y": t.y[None]}, MAP),
    "factor_analysis": _zoo("factor_analysis", lambda t: {"x": t.x}, EM, k=1, d=3),
    "probabilistic_pca": _zoo("probabilistic_pca", lambda t: {"x": t.x}, EM, k=1, d=3),
    "item_response": _zoo("item_response", lambda t: {"y": np.minimum(t.codes, 1.0)}, MAP, items=4),
    "linear_regression": _zoo("linear_regression", lambda t: {"x": t.x, "y": t.y}),
    "ridge": _zoo("ridge", lambda t: {"x": t.x, "y": t.y}),
    "lasso": _zoo("lasso", lambda t: {"x": t.x, "y": t.y}, MAP),
    "logistic_regression": _zoo("logistic_regression", lambda t: {"x": t.x, "y": t.classes}, MAP),
    "softmax_regression": _zoo("softmax_regression", lambda t: {"x": t.x, "y": t.classes}, MAP,
                               states=2),
    "robust_regression": _zoo("robust_regression", lambda t: {"x": t.x, "y": t.y}, MAP),
    "heteroscedastic_regression": _zoo("heteroscedastic_regression",
                                       lambda t: {"x": t.x, "y": t.y}, MAP),
    "mixture_of_experts": _zoo("mixture_of_experts", lambda t: {"x": t.x, "y": t.y}, EM, k=2),
    "naive_bayes": _zoo("naive_bayes", lambda t: {"a": t.x[:, 0], "c": t.classes}, None, classes=2,
                        features={"a": "normal"}, target="c"),
    "markov_chain": _zoo("markov_chain", lambda t: {"z": np.minimum(t.codes[None, :, 0], 1.0)},
                         k=2),
    "mixture_of_mixtures": _zoo("mixture_of_mixtures", lambda t: {"x": t.x, "class": t.classes},
                                EM, classes=2, k=1, d=3),
    "mixture_of_factor_analysers": _zoo("mixture_of_factor_analysers", lambda t: {"x": t.x}, EM,
                                        components=2, k=1, d=3),
    "hierarchical_mixture_of_experts": _zoo(
        "hierarchical_mixture_of_experts", lambda t: {"x": t.x, "y": t.y}, EM, branches=(2, 1)),
    "seasonal": _zoo("seasonal", lambda t: {"y": t.y[None]}, MAP, period=4),
    "generalized_linear": _zoo("generalized_linear", lambda t: {
        "x": t.codes, "y": t.counts[:, 0]}, MAP, offset=0.0, trials=1),
}
# functions that are fitted by a face above, or are stated at what a face found
BEHIND = {
    "dynamic_factor": "DynamicFactor", "gaussian_process": "GaussianProcess",
    "kernel_density": "KernelDensity", "latent_dirichlet": "TopicModel",
    "linear_support_vector_machine": "LinearSVM", "mixed_model": "MixedModel",
    "multidimensional_scaling": "MultidimensionalScaling",
    "neural_network": "NeuralNetworkRegressor", "parzen_classifier": "ParzenClassifier",
    "perceptron": "Perceptron", "smoothing": "SmoothingSpline",
    "structural_time_series": "StructuralTimeSeries",
    "support_vector_machine": "SupportVectorMachine",
    "support_vector_regression": "SupportVectorRegression",
}


def faces() -> list[str]:
    """The names of all faces."""
    return [name for name in models._LATE if inspect.isclass(face := getattr(models, name))
            and issubclass(face, Face)]


def functions() -> list[str]:
    """The names of all functions of the zoo that are models."""
    return [name for name in models.__all__ if isinstance(getattr(models, name), Generative)]


def _chain(steps: int, face: str, **settings: Any) -> Callable[[Table], dict[str, Any]]:
    def answers(_: Table) -> dict[str, Any]:
        random = np.random.default_rng(8)
        states = np.cumsum(random.random(steps) < 0.02) % 2
        y = np.cumsum(0.1 * random.normal(size=steps)) if face != "HiddenMarkov" else (
            states * 3.0 + random.normal(size=steps) + 1e3)
        found = getattr(models, face)(**settings).fit(y[:, None])
        return {"": found.status, "score a step": found.score(y[:, None]) / steps}

    return answers


def cases() -> dict[str, Callable[[Table], dict[str, Any]]]:
    """Name → answers of a table."""
    found = {}
    for name, (kind, make) in FACES.items():
        of, verbs = KINDS[kind]
        found[name] = partial(_fitted, make, of, verbs)
    return found | ZOO


LONG = {
    "HiddenMarkov": _chain(100_000, "HiddenMarkov", n_states=2, n_init=1),
    "StructuralTimeSeries": _chain(100_000, "StructuralTimeSeries", n_starts=1),
    "DynamicFactor": _chain(100_000, "DynamicFactor", n_factors=1),
}


def heard(answers: Callable[[Table], dict], table: Table,
          double: bool) -> tuple[dict[str, Any] | None, list[str]]:
    """(answers, what was said): None where they were refused, in words of ours."""
    with jax.enable_x64(double), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = answers(table)
        except (probml.ModelError, probml.DataError, probml.Refusal, ValueError) as error:
            return None, [f"refused: {type(error).__name__}: {error}"]
    # what was done in double is no excuse
    words = re.sub(r"; in double, since[^;]*", "", found.pop(""))
    return found, [str(one.message) for one in said] + [words]


def compared(answers: Callable[[Table], dict], table: Table) -> str:
    """What single answers otherwise than double, without a word; "": nothing."""
    right, spoken = heard(answers, table, True)
    found, said = heard(answers, table, False)
    if found is None:
        return "" if right is None else f"single alone refuses: {said[0][:300]}"
    if right is None:
        return f"double alone refuses: {spoken[0][:300]}"
    off = []
    for name, value in right.items():
        one, other = np.asarray(value, float), np.asarray(found[name], float)
        if one.shape != other.shape or (np.isnan(one) != np.isnan(other)).any():
            off.append(f"{name}: other cells are unknown")
            continue
        unit = CLOSE * (np.nanstd(one) if name in ("predict", "transform", "forecast")
                        and one.size > 1 else 1.0 + np.abs(one))
        apart = np.abs(one - other) / np.maximum(unit + DIGITS * np.abs(one), 1e-300)
        if np.nanmax(apart, initial=0.0) > 1:
            i = np.unravel_index(int(np.nanargmax(apart)), apart.shape)
            off.append(f"{name}: {other[i]:.7g}, in double {one[i]:.7g} ({apart[i]:.2g} times what "
                       f"is allowed)")
    if off and set(said) <= set(spoken) and not any(words in each for each in said
                                                    for words in NO_ANSWER):
        return "; ".join(off)
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", default="")
    parser.add_argument("--where", default="")
    parser.add_argument("--long", action="store_true", help="chains of 100,000 steps too")
    asked = parser.parse_args()
    defects, tried = 0, 0
    for name, answers in cases().items():
        if asked.part not in name:
            continue
        began = time.process_time()
        for where, moved in WHERE.items():
            if asked.where not in where:
                continue
            try:
                wrong = compared(answers, moved(plain()))
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"[:300]
            tried += 1
            if wrong:
                defects += 1
                print(f"{name}, {where}: {wrong}", flush=True)
        print(f"# {name}: {time.process_time() - began:.0f} s", flush=True)
        jax.clear_caches()
    for name, answers in (LONG if asked.long else {}).items():
        if asked.part in name and (wrong := compared(answers, plain())):
            defects += 1
            print(f"{name}, 100,000 steps: {wrong}", flush=True)
        tried += asked.part in name
    print(f"# {tried} tried, {defects} defects")
    return int(defects > 0)


if __name__ == "__main__":
    sys.exit(main())
