"""Random settings and tables for every estimator, and what must hold of all of them: `python tests/testing/estimator_fuzz.py
--seconds 600 [parts of names] [--seed 7]`. Prints what does not hold.

A setting is one that its rule allows. Held are: rows are answered each by itself, in any order; a second fit is the
first; what was pickled or saved answers the same; a table is the array that it holds, in float32 or as whole numbers
too; classes may have any names; of estimators without starts of their own, weight 2 is the row twice, and neither rows nor
columns have an order.
"""

import argparse
import copy
import inspect
import pickle
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import calls
import jax
import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier

import probml
from probml.estimators.rules import rules

VERBS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples", "transform",
         "log_prob")
STEPPED = ("HiddenMarkov", "StructuralTimeSeries", "DynamicFactor")  # rows are steps
# what is drawn, or found from starts of its own, depends on the order of rows or columns
STARTED = ("GaussianMixture", "MixedMixture", "LatentClass", "PoissonMixture", "MixtureDiscriminant",
           "NeuralNetworkRegressor", "NeuralNetworkClassifier", "MixtureOfExperts", "MixtureOfExpertsClassifier",
           "TopicModel", "PoissonFactors", "SampledTree", "FuzzyCMeans", "KMedoids", "SparseCoding",
           "MultidimensionalScaling", "Perceptron", "FactorAnalysis", "ProbabilisticPCA", "GaussianProcess",
           "ItemResponse", "MixedModel")
POOL = (True, False, None, 1, 2, 3, 5, 0.5, 1.0, 2.0, 10.0, "auto", "balanced", "each")
LEFT = ("random_state", "engine", "n_init", "n_starts", "max_iter", "warmup", "thin", "chains", "steps", "verbose",
        "progress", "tol", "tolerance", "draws", "n_estimators")
CLOSE = 1e-5
ROUGH = ("SupportVectorMachine", "SupportVectorRegression", "LinearSVM")  # whose ends are as near as tol says


def settings(estimator, random):
    """Some other values of its parameters, which their rules allow."""
    out = {}
    for name, (words, valid) in rules(estimator).items():
        if name in LEFT or random.random() < 0.6:
            continue
        said = [word.strip(" '\"") for word in words.partition("one of ")[2].replace(" or ", ",").split(",")]
        can = [value for value in (*POOL, *said) if _allowed(valid, value)]
        if can:
            out[name] = can[random.integers(len(can))]
    return out


def _allowed(valid, value):
    try:
        return bool(valid(value))
    except Exception:
        return False


def table(X, y, random):
    """A table like the one that is good for an estimator: more rows, in other places, some of them twice."""
    rows = random.integers(0, len(X), 24)
    X = X.iloc[rows].reset_index(drop=True) if isinstance(X, pd.DataFrame) else np.asarray(X)[rows]
    if not isinstance(X, pd.DataFrame) and X.dtype.kind == "f" and not (X == np.round(X)).all():
        X = X + 0.3 * random.normal(size=X.shape)
    y = None if y is None else np.asarray(y)[rows]
    if y is not None and y.dtype.kind == "f":
        y = y + 0.1 * random.normal(size=len(y))
    return X, y


def answers(estimator, X):
    out = {}
    for verb in VERBS:
        if hasattr(estimator, verb) and (type(estimator).__name__, verb) != ("HiddenMarkov", "score_samples"):  # two answers
            takes = [p for p in inspect.signature(getattr(estimator, verb)).parameters.values()
                     if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
            if len(takes) == 1:
                out[verb] = np.asarray(getattr(estimator, verb)(X))
    return out


def part_of(X, rows):
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]


def same(found, right, what, faults, close=CLOSE):
    for verb, value in right.items():
        other = found[verb]
        if value.dtype.kind in "OUSb" or value.dtype.kind in "iu" and verb == "predict":
            wrong = other.shape != value.shape or float((other != value).mean()) > 0.05  # ties
        else:
            wrong = other.shape != value.shape or not np.allclose(
                np.asarray(other, float), np.asarray(value, float), rtol=close,
                atol=close * (1 + np.nanmax(np.abs(value), initial=0.0)), equal_nan=True)
        if wrong:
            gap = (np.nanmax(np.abs(np.asarray(other, float) - np.asarray(value, float)), initial=0.0)
                   if value.dtype.kind == "f" and other.shape == value.shape else f"{other.shape} {value.shape}")
            faults.append(f"{what}: {verb} off by {gap}")


def fitted(make, X, y, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = make()
        return estimator.fit(X, **more) if y is None else estimator.fit(X, y, **more)


def held(name, make, X, y, random):
    """The faults of an estimator."""
    faults, rows = [], random.permutation(len(X))
    estimator = fitted(make, X, y)
    right = answers(estimator, X)
    same(answers(fitted(make, X, y), X), right, "fitted again", faults, 1e-12)
    same(answers(pickle.loads(pickle.dumps(estimator)), X), right, "pickled", faults, 1e-12)
    same(answers(copy.deepcopy(estimator), X), right, "copied", faults, 1e-12)
    assert clone(estimator).get_params().keys() == estimator.get_params().keys()
    if hasattr(estimator, "save"):
        with tempfile.TemporaryDirectory() as folder:
            try:
                estimator.save(Path(folder) / "estimator")
            except probml.ModelError as error:
                if not any(words in str(error) for words in ("cannot import", "can contain only", "no Fit")):
                    raise
            else:
                same(answers(probml.load(Path(folder) / "estimator"), X), right, "saved", faults, 1e-12)
    if name in STEPPED:
        return faults
    some = rows[:7]
    same(answers(estimator, part_of(X, some)), {verb: value[some] for verb, value in right.items()},
         "some rows in another order", faults, 1e-7)
    if not isinstance(X, pd.DataFrame):
        frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
        same(answers(fitted(make, frame, y), frame), right, "a table", faults, 1e-6)
        if X.dtype.kind == "f" and name not in STARTED:
            same(answers(fitted(make, X.astype(np.float32), y), X.astype(np.float32)), right, "float32 cells",
                 faults, 1e-3)
    if y is not None and is_classifier(estimator):
        codes = np.unique(y, return_inverse=True)[1]
        names = np.array(["ant", "mole", "zebra"])  # whose order is that of the codes
        spelled = answers(fitted(make, X, names[codes]), X)
        expected = {verb: (names[np.searchsorted(np.unique(y), value)] if verb == "predict" else value)
                    for verb, value in right.items()}
        same(spelled, expected, "classes by name", faults, 1e-9)
    if name in STARTED:
        return faults
    close = 1e-2 if name in ROUGH else 1e-4
    same(answers(fitted(make, part_of(X, rows), None if y is None else y[rows]), X), right, "rows in another order",
         faults, close)
    ordered = getattr(estimator, "linear", None)  # columns by their place
    if not isinstance(X, pd.DataFrame) and X.shape[1] > 1 and not ordered:
        turned = X[:, ::-1]
        own = {verb: value for verb, value in answers(fitted(make, turned, y), turned).items() if verb != "transform"}
        same(own, {verb: right[verb] for verb in own}, "columns in another order", faults, close)
    if "sample_weight" in inspect.signature(estimator.fit).parameters:
        weight = random.integers(0, 3, len(X)).astype(float)
        if y is None or y.dtype.kind == "f" or set(y[weight > 0]) == set(y):
            twice = np.repeat(np.arange(len(X)), weight.astype(int))
            one = fitted(make, X, y, sample_weight=weight)
            other = fitted(make, part_of(X, twice), None if y is None else y[twice])
            same(answers(one, X), answers(other, X), "weight 2 is twice", faults, close)
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[""], help="of names")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print(f"seed {asked.seed}", flush=True)
    estimators = {name: one for name, one in calls.estimators().items() if any(part in name for part in asked.parts)}
    ends, number, tried, refused, faults = time.monotonic() + asked.seconds, asked.seed, 0, 0, 0
    while time.monotonic() < ends:
        random = np.random.default_rng(number)
        name = list(estimators)[random.integers(len(estimators))]
        make, X, y = estimators[name]
        own = settings(make(), random)
        X, y = table(X, y, random)
        try:
            found = held(name, lambda: make().set_params(**own), X, y, random)  # noqa: B023
            tried += 1
        except (probml.ModelError, probml.DataError, probml.Refusal, ValueError) as error:
            found, refused = [], refused + 1
            if isinstance(error, ValueError) and not isinstance(error, probml.ModelError | probml.DataError):
                found = [f"{type(error).__name__}: {str(error)[:300]}"]
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"[:300], traceback.format_exc()[-1500:]]
        if found:
            faults += 1
            print(f"seed {number}: {name}({own}): " + "; ".join(found), flush=True)
        number += 1
    print(f"# {tried} held, {refused} refused, {faults} with faults; seeds {asked.seed} … {number - 1}")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
