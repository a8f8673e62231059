"""The data of first answers, and which question is asked of which: read by our side
(first_answers.py) and by the peers' (first_peers.py).

`load` gives {"X", "y"}: tables of mixed kinds are DataFrames, others arrays. `parts` parts the rows
by a seed, a third held out, classes in proportion, so that all seeds have the same shapes; series
are cut in time instead. `REFERENCES` names the folder of shared data.
"""

import os
from functools import cache
from pathlib import Path

import numpy as np

SHARED = Path(os.environ.get("REFERENCES", Path(__file__).resolve().parents[2] / "shared" / "data"))
SERIES = ("casino", "earthquakes", "geyser", "nile", "speed")


def _simulated(name):
    """Tables that newcomers bring: odd units, outliers, empty cells, few rows, columns of every
    kind."""
    import pandas as pd

    random = np.random.default_rng(list(name.encode()))
    # two of four classes overlap; a column in millionths, one of millions, one about 10⁵
    if name == "odd units":
        y = np.repeat(np.arange(4), 60)
        X = random.normal(size=(4, 4))[y] * 2 + random.normal(size=(240, 4))
        return dict(X=X * [1e-6, 1e6, 1.0, 30.0] + [0.0, 0.0, 1e5, 0.0], y=y)
    if name == "few rows":
        y = np.repeat([0, 1], 15)
        return dict(X=random.normal(size=(30, 8)) + 0.8 * y[:, None] * (np.arange(8) < 3), y=y)
    if name == "heavy tails":  # three clusters and one row in twenty from far away
        z = np.repeat(np.arange(3), 100)
        X = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])[z] + random.normal(size=(300, 2))
        X[::20] += random.normal(size=(15, 2)) * 15
        return dict(X=X)
    # one y in ten is off by far; `truth` is what held-out rows are scored by
    if name == "outliers":
        X = random.normal(size=(150, 3)) * [1.0, 10.0, 0.1] + [0.0, 50.0, 3.0]
        truth = X @ [2.0, 0.3, 10.0] + random.normal(size=150)
        return dict(X=X, y=truth + (np.arange(150) % 10 == 0) * random.normal(30.0, 10.0, 150),
                    truth=truth)
    if name == "waits":
        X = random.normal(size=(200, 2))
        return dict(X=X, y=random.gamma(2.0, np.exp(1.0 + X @ [0.5, -0.3]) / 2.0))
    y = random.integers(0, 2, 300)
    table = pd.DataFrame(
        {
            "town": np.array(["Ayr", "Bath", "Cork"])[
                np.minimum(random.integers(0, 3, 300) + y * (random.random(300) < 0.4), 2)
            ],
            "member": random.random(300) < 0.3 + 0.4 * y,
            "visits": random.poisson(3 + 9 * y),
            "height": random.normal(170 + 4 * y, 8),
            "income": random.lognormal(10 + 0.3 * y, 0.5),
        }
    )
    for column in ("visits", "height", "income"):
        table[column] = table[column].astype(float).mask(random.random(300) < 0.1)
    table["town"] = table["town"].astype(object).where(random.random(300) > 0.05, None)
    return dict(X=table, y=np.array(["no", "yes"], object)[y])


def _table(name, target=None, folder="classic", drop=()):
    import pandas as pd

    found = pd.read_csv(next((SHARED / folder).glob(f"{name}.csv*")))
    found = found.drop(columns=list(drop))
    return dict(X=found.drop(columns=target) if target else found,
                y=found[target].to_numpy() if target else None)


def _bundled(name):
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return dict(X=X, y=y)


def _array(found):
    return found | {"X": found["X"].to_numpy(float)}


@cache
def load(name):
    """The table, and `torn` is iris with a tenth of its cells empty (held-out rows are
    complete)."""
    if name in ("iris", "wine", "breast_cancer", "digits", "diabetes"):
        return _bundled(name)
    if name in ("odd units", "few rows", "heavy tails", "outliers", "waits", "mixed kinds"):
        return _simulated(name)
    if name == "torn":
        found = _bundled("iris")
        return found | {"torn": np.where(np.random.default_rng(0).random((150, 4)) < 0.1, np.nan,
                                         found["X"])}
    if name == "glass":
        return _array(_table("glass", "Type"))
    if name in ("sonar", "ionosphere"):
        found = _table(name, "Class")
        found["X"] = found["X"].loc[:, found["X"].nunique() > 1]
        return _array(found)
    if name == "vowel":
        return _array(_table("esl_vowel_train", "y"))
    if name in ("faithful", "galaxies", "holzinger"):
        return _array(_table(name))
    if name == "reaven":
        return _array(_table("diabetes_reaven_miller", "class"))
    if name in ("carcinoma", "values"):
        return _table(f"polca_{name}")
    if name == "votes":
        return _table("housevotes84_missing", "Class")
    if name == "mushrooms":  # its words are declared: many are in few rows
        found = _table(name, "edibility")
        found["X"] = found["X"].astype("category")
        few = np.random.default_rng(0).permutation(len(found["y"]))[:900]
        return dict(X=found["X"].iloc[few].reset_index(drop=True), y=found["y"][few])
    if name == "monks":
        return _table("monks1_train", "class")
    if name == "spect":
        return _table("spect_train", "overall_diagnosis")
    if name == "titanic":
        return _table("titanic_passengers_missing", "survived")
    if name == "penguins":
        return _table("penguins_missing", "species", drop=["year"])
    if name == "heart":
        found = _table("saheart", "chd")
        return found | {
            "X": found["X"].assign(famhist=found["X"]["famhist"] == "Present").to_numpy(float)
        }
    if name == "prostate":
        return _array(_table(name, "lpsa", drop=["train"]))
    if name == "swiss":
        return _array(_table(name, "Fertility"))
    if name == "longley":
        import pandas as pd

        found = pd.read_csv(SHARED / "classic" / "longley.csv")
        return dict(X=found.select_dtypes("number").drop(columns="Employed").to_numpy(float),
                    y=found["Employed"].to_numpy(float))
    if name in ("sprays", "quine", "epil"):
        import pandas as pd

        file, target = {"sprays": ("insectsprays", "count"), "quine": ("quine", "Days"),
                        "epil": ("epil", "y")}[name]
        found = _table(file, target, drop=["subject"] if name == "epil" else ())
        return found | {"X": pd.get_dummies(found["X"], drop_first=True).to_numpy(float),
                        "y": found["y"].astype(float)}
    if name in ("mcycle", "lidar", "npreg", "tonedata", "bone"):
        file, x, y = {
            "mcycle": ("mcycle", "times", "accel"),
            "lidar": ("lidar", "range", "logratio"),
            "npreg": ("npreg", "x", "yn"),
            "tonedata": ("tonedata", "stretchratio", "tuned"),
            "bone": ("bone_spnbmd", "age", "spnbmd"),
        }[name]
        found = _table(file)["X"]
        return dict(X=found[[x]].to_numpy(float), y=found[y].to_numpy(float))
    if name in ("asia", "learning.test", "lizards"):
        found = _table(name, folder="bn/samples")["X"].astype(str)
        return dict(X=found[:1500])
    if name == "clgaussian.test":
        return dict(X=_table(name, folder="bn/samples")["X"][:1000])
    file, column = {
        "casino": (None, "roll"),
        "earthquakes": ("earthquakes_m7", "count"),
        "geyser": ("geyser_long_binary", "long"),
        "nile": ("nile", "volume"),
        "speed": ("speed", "rt"),
    }[name]
    import pandas as pd

    path = (SHARED / "classic" / f"{file}.csv"
            if file else Path(__file__).resolve().parents[1] / "data" / "casino.csv")
    found = pd.read_csv(path)[column].to_numpy()
    return dict(X=found - 1 if name == "casino" else found)


def parts(name, seed):
    """Training and held-out data: {"X", "y"} each, y None where there is none."""
    found = load(name)
    n, y = len(found["X"]), found.get("y")
    if name in SERIES:
        cut = 2 * n // 3
        return dict(X=found["X"][:cut], y=None), dict(X=found["X"][cut:], y=None)
    random = np.random.default_rng(seed)
    order = random.permutation(n)
    held = np.zeros(n, bool)
    classes = (np.unique(y, return_inverse=True)[1] if y is not None and len(np.unique(y)) <= 12
               else np.zeros(n, int))
    for c in np.unique(classes):
        members = order[classes[order] == c]
        held[members[: len(members) // 3]] = True

    def take(table, rows):
        return table[rows] if isinstance(table, np.ndarray) else table[rows].reset_index(drop=True)

    train = dict(X=take(found.get("torn", found["X"]), ~held), y=None if y is None else y[~held])
    return train, dict(X=take(found["X"], held),
                       y=None if y is None else found.get("truth", y)[held])


# estimator, data, further words for both sides
QUESTIONS = [
    *[("GaussianMixture", d, dict(k=k))
      for d, k in dict(faithful=2, iris=3, reaven=3, wine=3, galaxies=4, torn=3).items()],
    *[("GaussianMixture", d, dict(k=k))
      for d, k in {"odd units": 4, "heavy tails": 3, "few rows": 2}.items()],
    ("PoissonMixture", "quine", dict(k=3)),
    ("PoissonMixture", "epil", dict(k=3)),
    *[("LatentClass", d, dict(k=k)) for d, k in dict(carcinoma=3, values=2, mushrooms=4).items()],
    ("MixedMixture", "wine", dict(k=3)),
    ("MixedMixture", "iris", dict(k=3)),
    *[("NaiveBayes", d, {}) for d in ("iris", "wine", "breast_cancer", "odd units", "few rows",
                                      "glass", "torn")],
    *[("NaiveBayes words", d, {}) for d in ("mushrooms", "monks", "votes")],
    *[("NaiveBayes table", d, {}) for d in ("titanic", "penguins", "mixed kinds")],
    ("NaiveBayes words", "spect", {}),
    ("NaiveBayes counts", "digits", {}),
    ("NaiveBayes bernoulli", "spect", {}),
    *[("GaussianDiscriminant", d, dict(shape="own"))
      for d in ("iris", "wine", "vowel", "few rows", "odd units", "breast_cancer")],
    *[("GaussianDiscriminant", d, dict(shape="shared"))
      for d in ("iris", "wine", "vowel", "few rows", "odd units", "digits")],
    *[("FisherDiscriminant", d, {}) for d in ("wine", "vowel")],
    *[("MixtureDiscriminant", d, {}) for d in ("iris", "vowel", "odd units")],
    *[("LogisticRegression", d, {}) for d in ("iris", "wine", "breast_cancer", "digits", "heart",
                                              "odd units", "few rows", "sonar")],
    *[("Perceptron", d, {}) for d in ("iris", "sonar", "ionosphere", "breast_cancer", "odd units")],
    *[("LinearSVM", d, {}) for d in ("iris", "sonar", "heart", "breast_cancer", "odd units")],
    *[("SupportVectorMachine", d, {}) for d in ("iris", "sonar", "breast_cancer", "digits",
                                                "odd units")],
    *[("SupportVectorRegression", d, {}) for d in ("diabetes", "mcycle", "prostate")],
    *[("KernelDensity", d, {}) for d in ("faithful", "galaxies", "iris", "odd units",
                                         "heavy tails")],
    *[("ParzenClassifier", d, {}) for d in ("iris", "wine", "vowel", "odd units")],
    ("HiddenMarkov", "nile", dict(k=2, emission="normal")),
    ("HiddenMarkov", "speed", dict(k=2, emission="normal")),
    ("HiddenMarkov", "casino", dict(k=2, emission="categorical")),
    ("HiddenMarkov", "earthquakes", dict(k=2, emission="poisson")),
    ("HiddenMarkov", "geyser", dict(k=2, emission="categorical")),
    *[("network", d, {}) for d in ("asia", "learning.test", "lizards")],
    *[("BayesianLinearRegression", d, {}) for d in ("diabetes", "prostate", "swiss", "longley",
                                                    "few rows")],
    *[("ridge", d, {}) for d in ("prostate", "swiss")],
    *[("lasso", d, {}) for d in ("prostate", "diabetes")],
    *[("GLM poisson", d, {}) for d in ("sprays", "epil", "quine")],
    ("GLM gamma", "waits", {}),
    *[("RobustRegression", d, {}) for d in ("outliers", "prostate")],
    *[("SmoothingSpline", d, {}) for d in ("mcycle", "lidar", "bone")],
    *[("FactorAnalysis", d, {}) for d in ("holzinger", "wine", "iris", "odd units")],
    *[("ProbabilisticPCA", d, {}) for d in ("holzinger", "wine", "iris")],
    *[("MixtureOfExperts", d, dict(k=k)) for d, k in dict(mcycle=3, npreg=2, tonedata=2).items()],
    *[("MixtureOfExpertsClassifier", d, {}) for d in ("iris", "heart")],
    *[("NeuralNetworkClassifier", d, {}) for d in ("iris", "wine", "breast_cancer", "few rows",
                                                   "digits")],
    *[("NeuralNetworkRegressor", d, {}) for d in ("diabetes", "prostate", "mcycle")],
]
SEEDS, FEW = 20, 5
SLOW = {"network", "NeuralNetworkClassifier", "NeuralNetworkRegressor", "MixtureOfExperts",
        "MixtureOfExpertsClassifier"}
SLOW |= {"SupportVectorMachine"}


def seeds(estimator, name, quick):
    return range(2 if quick else FEW if estimator in SLOW or name == "digits" else SEEDS)


def chosen():
    """(number, estimator, data, words) of the questions that ONLY names, as an estimator, as data or both; all
    without it."""
    only = os.environ.get("ONLY", "")
    return [(i, *q) for i, q in enumerate(QUESTIONS) if not only
            or any(w in f"{q[0]} | {q[1]}" for w in only.split(","))]


def classes(truth, probabilities=None, labels=None, predicted=None):
    """The log score of the true classes, no probability counted below 1e-15, and the share of
    hits."""
    out = {}
    if probabilities is not None:
        column = np.searchsorted(labels, truth)
        p = np.asarray(probabilities, float)[np.arange(len(truth)), column]
        out["log score"] = float(np.log(np.maximum(p, 1e-15)).mean())
        predicted = (np.asarray(labels)[np.argmax(probabilities, axis=1)] if predicted is None
                     else predicted)
    return out | {"hits": float(np.mean(np.asarray(predicted) == truth))}


def numbers(truth, predicted):
    return {"R²": float(1 - ((truth - np.asarray(predicted, float)) ** 2).mean() / truth.var())}
