"""The statistician of float32: `python tests/testing/single.py [parts of names] [--where part]`.

Every estimator and function of the zoo at its defaults, functions also by every engine, on tables that
are hard for few digits or odd in what their cells are (hard_tables.py), and long chains. An answer in
single is that of double, or says that it is not to be relied on:
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
from typing import Any

import jax
import numpy as np
import pandas as pd
from hard_tables import WHERE, Table, plain
from scipy.spatial.distance import pdist

import probml
from probml import models
from probml.estimators.estimator import Estimator
from probml.interface.model import Generative

CLOSE = 1e-3  # of the spread of an answer, or of a nat
NO_ANSWER = ("there is no maximum",)  # that is said in any precision: what is told is no answer
DIGITS = np.finfo(np.float32).eps  # of its size, in which it may be rounded
nan = np.nan


def numeric(part: Any) -> Any:
    """Cells as numbers, where they are some: what is computed of a table before it is given."""
    return np.asarray(pd.DataFrame(part).apply(pd.to_numeric), float).reshape(np.shape(part)) if (
        np.asarray(part).dtype.kind in "Ob") else part


def _fitted(make: Callable[[], Any], of: Callable[[Table], tuple], asked: tuple[str, ...],
            table: Table) -> dict[str, Any]:
    """What an estimator answers: verbs of the rows it was fitted to."""
    given = of(table)
    estimator = make().fit(*given)
    given = given if table.asked is None else of(table.asked)
    out = {}
    for verb in asked:
        rows = 0 if type(estimator) is models.MetaAnalysis else 1  # which answers of a new study
        takes = given if verb in ("log_prob", "row_weights") else given[:rows]
        out[verb] = getattr(estimator, verb)(*takes)
        if verb == "fit_transform":  # places are told up to a turn
            out[verb] = pdist(out[verb])
    return {"": getattr(estimator, "status", ""), **out}


KINDS: dict[str, tuple[Callable[[Table], tuple], tuple[str, ...]]] = {
    "numbers": (lambda t: (t.x,), ("score_samples",)),
    "classes": (lambda t: (t.x, t.classes), ("predict_proba",)),
    "sure": (lambda t: (t.x, t.classes), ("predict",)),
    "regression": (lambda t: (t.x, t.y), ("predict",)),
    "counts": (lambda t: (t.counts,), ("score_samples",)),
    "topics": (lambda t: (t.counts,), ("perplexity",)),
    "parts": (lambda t: (t.counts,), ("transform",)),
    "codes": (lambda t: (t.codes,), ("score_samples",)),
    "items": (lambda t: (np.minimum(numeric(t.codes), 1),),
              ("transform",)),
    "groups": (lambda t: (pd.DataFrame({"g": t.classes, "a": t.x[:, 0]}), t.y), ("predict",)),
    "series": (lambda t: (np.cumsum(numeric(t.y)),), ("forecast",)),
    "several series": (lambda t: (t.x if t.x.dtype.kind == "M" else numeric(t.x).cumsum(0),), ("score",)),
    "steps": (lambda t: (t.x,), ("score",)),
    "shares": (lambda t: (t.x,), ("predict_proba",)),
    "times": (lambda t: (t.x, np.abs(numeric(t.y)) + 1e-6 * np.ptp(numeric(t.y))), ("predict",)),
    "studies": (lambda t: (t.y, np.full(len(t.y), np.std(numeric(t.y)))), ("predict",)),
    "groups of rows": (lambda t: (t.x,), ("predict",)),
    "atoms": (lambda t: (t.x,), ("transform",)),
    "places": (lambda t: (t.x,), ("fit_transform",)),
    "squares": (lambda t: (t.x,), ("score_samples", "transform")),
}


def _estimator(name: str, *given: Any, **settings: Any) -> Callable[[], Any]:
    return partial(getattr(models, name), *given, **settings)


ESTIMATORS: dict[str, tuple[str, Callable[[], Any]]] = {
    "GaussianMixture": ("numbers", _estimator("GaussianMixture", 2)),
    "MixedMixture": ("numbers", _estimator("MixedMixture", 2)),
    "KernelDensity": ("numbers", _estimator("KernelDensity")),
    "ProbabilisticPCA": ("squares", _estimator("ProbabilisticPCA", 1)),
    "FactorAnalysis": ("squares", _estimator("FactorAnalysis", 1)),
    "FuzzyCMeans": ("shares", _estimator("FuzzyCMeans", 2)),
    "KMedoids": ("groups of rows", _estimator("KMedoids", 2)),
    "SparseCoding": ("atoms", _estimator("SparseCoding", 2)),
    "MultidimensionalScaling": ("places", _estimator("MultidimensionalScaling")),
    "LatentClass": ("codes", _estimator("LatentClass", 2)),
    "PoissonMixture": ("counts", _estimator("PoissonMixture", 2)),
    "TopicModel": ("topics", _estimator("TopicModel", 2)),
    "PoissonFactors": ("parts", _estimator("PoissonFactors", 2)),
    "ItemResponse": ("items", _estimator("ItemResponse")),
    "HiddenMarkov": ("steps", _estimator("HiddenMarkov", 2)),
    "StructuralTimeSeries": ("series", _estimator("StructuralTimeSeries")),
    "DynamicFactor": ("several series", _estimator("DynamicFactor")),
    "MixedModel": ("groups", _estimator("MixedModel", {"g": ["1"]})),
    "SurvivalRegression": ("times", _estimator("SurvivalRegression")),
    "MetaAnalysis": ("studies", _estimator("MetaAnalysis")),
} | {name: ("classes", _estimator(name)) for name in (
    "NaiveBayes", "GaussianDiscriminant", "MixtureDiscriminant", "FisherDiscriminant",
    "LogisticRegression", "OrdinalRegression", "ParzenClassifier",
    "NeuralNetworkClassifier", "MixtureOfExpertsClassifier", "NearestNeighbours", "EvidenceTree",
    "SampledTree")
} | {name: ("sure", _estimator(name)) for name in (
    "LeastSquaresClassifier", "LinearSVM", "Perceptron", "SupportVectorMachine")
} | {name: ("regression", _estimator(name)) for name in (
    "GeneralizedLinearModel", "RobustRegression", "BayesianLinearRegression", "SmoothingSpline",
    "SupportVectorRegression", "NeuralNetworkRegressor", "MixtureOfExperts", "GaussianProcess",
    "Boosted")}  # fmt: skip


def _zoo(name: str, of: Callable[[Table], dict], engine: Any = None, **settings: Any) -> Callable:
    return partial(_by, lambda: getattr(models, name)(**settings), of, engine)


def _by(made: Callable[[], Any], of: Callable[[Table], dict], engine: Any,
        table: Table) -> dict[str, Any]:
    """What a function of the zoo answers, fitted by an engine."""
    data = of(table)
    fit = made().fit(data, engine)
    data = data if table.asked is None else of(table.asked)
    # what is averaged over draws differs by them
    return {"": fit.status, "log_prob": fit.log_prob(data, plug_in=isinstance(engine, probml.Laplace))}


EM, MAP = probml.EM(), probml.MAP()
ENGINES = (EM, MAP, probml.Exact(), probml.Laplace(), probml.VB(max_iterations=200),
           probml.EmpiricalBayes(choose=("scale",)))
ZOO: dict[str, Callable[[Table], dict[str, Any]]] = {
    "gaussian_mixture": _zoo("gaussian_mixture", lambda t: {"x": t.x}, EM, k=2, d=3),
    "hidden_markov": _zoo("hidden_markov", lambda t: {"y": t.x[None]}, EM, k=2, d=3),
    "local_level": _zoo("local_level", lambda t: {"y": t.y[None]}, MAP),
    "local_trend": _zoo("local_trend", lambda t: {"y": t.y[None]}, MAP),
    "factor_analysis": _zoo("factor_analysis", lambda t: {"x": t.x}, EM, k=1, d=3),
    "probabilistic_pca": _zoo("probabilistic_pca", lambda t: {"x": t.x}, EM, k=1, d=3),
    "item_response": _zoo("item_response", lambda t: {"y": np.minimum(numeric(t.codes), 1)}, MAP, items=4),
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
    "markov_chain": _zoo("markov_chain", lambda t: {"z": np.minimum(numeric(t.codes)[None, :, 0], 1)},
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
# functions that are fitted by an estimator above, or are stated at what an estimator found
BEHIND = {
    "dynamic_factor": "DynamicFactor", "gaussian_process": "GaussianProcess",
    "kernel_density": "KernelDensity", "latent_dirichlet": "TopicModel",
    "linear_support_vector_machine": "LinearSVM", "mixed_model": "MixedModel",
    "meta_analysis": "MetaAnalysis", "multidimensional_scaling": "MultidimensionalScaling",
    "neural_network": "NeuralNetworkRegressor", "ordinal_regression": "OrdinalRegression",
    "parzen_classifier": "ParzenClassifier",
    "perceptron": "Perceptron", "smoothing": "SmoothingSpline",
    "structural_time_series": "StructuralTimeSeries",
    "support_vector_machine": "SupportVectorMachine",
    "support_vector_regression": "SupportVectorRegression",
    "survival_regression": "SurvivalRegression",
}


# new, and in no sweep of this folder yet: they need inputs and settings of their own here
def estimators() -> list[str]:
    """The names of all estimators."""
    return [name for name in models._LATE if inspect.isclass(estimator := getattr(models, name))
            and issubclass(estimator, Estimator)]


def functions() -> list[str]:
    """The names of all functions of the zoo that are models."""
    return [name for name in models.__all__ if isinstance(getattr(models, name), Generative)]


def _chain(steps: int, estimator: str, **settings: Any) -> Callable[[Table], dict[str, Any]]:
    def answers(_: Table) -> dict[str, Any]:
        random = np.random.default_rng(8)
        states = np.cumsum(random.random(steps) < 0.02) % 2
        y = np.cumsum(0.1 * random.normal(size=steps)) if estimator != "HiddenMarkov" else (
            states * 3.0 + random.normal(size=steps) + 1e3)
        found = getattr(models, estimator)(**settings).fit(y[:, None])
        return {"": found.status, "score a step": found.score(y[:, None]) / steps}

    return answers


def cases() -> dict[str, Callable[[Table], dict[str, Any]]]:
    """Name → answers of a table."""
    found = {}
    for name, (kind, make) in ESTIMATORS.items():
        of, verbs = KINDS[kind]
        found[name] = partial(_fitted, make, of, verbs)
    return found | ZOO


def by_engines() -> dict[str, Callable[[Table], dict[str, Any]]]:
    """Functions of the zoo by every engine that draws no numbers, but the one above."""
    return {f"{name} by {type(engine).__name__}": partial(_by, *one.args[:2], engine)
            for name, one in ZOO.items() for engine in ENGINES if engine is not one.args[2]}


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
    # what was done in double is no excuse, nor that other numbers stand in the same words
    words = re.sub(r"; in double, since[^;]*", "", found.pop(""))
    spoken = [str(one.message) for one in said]
    inside = next((each for each in spoken if "Explicitly requested dtype" in each), None)
    assert inside is None, inside  # our own mixing of precisions, which no user can mend
    return found, [re.sub(r"[-+\d.,e]*\d", "#", each) for each in (*spoken, *words.split("; "))]


def compared(answers: Callable[[Table], dict], table: Table, sound: bool = False) -> str:
    """What single answers otherwise than double, without a word; "": nothing.

    Args:
        sound: of which nobody may refuse the rows: else nothing is compared.
    """
    right, spoken = heard(answers, table, True)
    found, said = heard(answers, table, False)
    if found is None:
        both = right is None and not sound
        return "" if both else f"single refuses, and double {right and 'answers'}: {said[0][:300]}"
    if right is None:
        return f"double alone refuses: {spoken[0][:300]}"
    off = []
    for name, value in right.items():
        one, other = np.asarray(value, float), np.asarray(found[name], float)
        if one.shape != other.shape or (np.isnan(one) != np.isnan(other)).any():
            off.append(f"{name}: other cells are unknown")
            continue
        size, spread = np.abs(one), np.nanstd(one)
        if name not in ("predict", "transform", "forecast") or one.size < 2:
            size, spread = 1.0 + size, 0.0
        unit = CLOSE * (spread if spread > DIGITS * np.nanmax(size, initial=0.0) else size)
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
    parser.add_argument("parts", nargs="*", default=[""], help="of names")
    parser.add_argument("--where", default="")
    parser.add_argument("--long", action="store_true", help="chains of 100,000 steps too")
    parser.add_argument("--engines", action="store_true", help="functions by every engine")
    asked = parser.parse_args()
    defects, tried = 0, 0
    for name, answers in (by_engines() if asked.engines else cases()).items():
        if not any(part in name for part in asked.parts):
            continue
        began = time.process_time()
        for where, moved in WHERE.items():
            if asked.where not in where:
                continue
            sound = where == "as they are"
            if asked.engines and sound and heard(answers, plain(), False)[0] is None:
                print(f"# {name}: refused", flush=True)  # for what the function is, and not its rows
                break
            try:
                wrong = compared(answers, moved(plain()), sound)
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"[:300]
            tried += 1
            if wrong:
                defects += 1
                print(f"{name}, {where}: {wrong}", flush=True)
        print(f"# {name}: {time.process_time() - began:.0f} s", flush=True)
        jax.clear_caches()
    for name, answers in (LONG if asked.long else {}).items():
        if not any(part in name for part in asked.parts):
            continue
        if wrong := compared(answers, plain()):
            defects += 1
            print(f"{name}, 100,000 steps: {wrong}", flush=True)
        tried += 1
    print(f"# {tried} tried, {defects} defects")
    return int(defects > 0)


if __name__ == "__main__":
    sys.exit(main())
