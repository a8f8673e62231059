"""Every reference in float32 has the answers of double: parameters to a thousandth, what EM climbs
to a thousandth of a nat.

Likelihoods without the prior, which is not at its maximum there, move with the parameters to the
first order: by as little as these tell, a hundred thousandth of their size.

The data of the references, fitted by the estimators' defaults; that these are right in double is asked
elsewhere (test_references*.py).
"""

import json
import warnings

import jax
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
from probml.models import (
    BayesianLinearRegression,
    GaussianDiscriminant,
    GaussianMixture,
    GeneralizedLinearModel,
    HiddenMarkov,
    LatentClass,
    LogisticRegression,
    MixtureOfExperts,
    NaiveBayes,
    PoissonMixture,
    SmoothingSpline,
)

SLOW = pytest.mark.slow
CLOSE = 1e-3
SHAPES = {"VVV": "full", "EEE": "tied", "VVI": "diag", "VII": "spherical", "EEI": "tied diag",
          "EII": "tied spherical"}


def columns(folder, path, *names, **options):
    table = pd.read_csv(folder / "classic" / path, **options)
    return table[list(names)] if names else table


def hidden(estimator, X):
    """A fit in which something is hidden: its parameters, objective and likelihood."""
    params = estimator.fit(X).fit_.params
    order = np.argsort(params["weights"])  # which state is which is not told by the data
    shared = {"precision"} if getattr(estimator, "covariance_type", "").startswith("tied") else set()
    led = {name: v if name in shared or np.shape(v)[:1] != order.shape else np.asarray(v)[order]
           for name, v in params.items()}
    return {**climbed(estimator), "log-likelihood": estimator.score_samples(X).sum(), **led}


def climbed(estimator):
    return {"objective": np.max(estimator.fit_.history)}


def mixture(name, shape, k):
    def fit(folder):
        meta = json.loads((folder / "fits" / f"mclust_{name}.json").read_text())
        X = columns(folder, f"{name}.csv", *np.atleast_1d(meta["columns"])) * 1.0
        return hidden(GaussianMixture(k, covariance_type=SHAPES[shape]), X)

    return fit


def classes(name, k):
    return lambda folder: hidden(
        LatentClass(k), columns(folder, f"{name}.csv").drop(columns="Class", errors="ignore")
    )


def counts(k):
    return lambda folder: hidden(PoissonMixture(k), columns(folder, "earthquakes_m7.csv", "count"))


def chain(name, k, *names, **settings):
    def fit(folder):
        X = columns(folder, f"{name}.csv", *names)
        estimator = HiddenMarkov(k, **settings).fit(X)
        return {**climbed(estimator), "log-likelihood": estimator.score(X), **estimator.fit_.params}

    return fit


def labelled(estimator, name, target, *names):
    """Of a classifier: its parameters and the logarithms of its posteriors."""

    def fit(folder):
        table = columns(folder, f"{name}.csv", dtype=str if "soybean" in name else None)
        X, y = table[list(names)] if names else table.drop(columns=target), table[target]
        found = estimator().fit(X, y)
        return {"posterior": found.predict_proba(X), **found.fit_.params}

    return fit


def hearts(folder):
    x = columns(folder, "saheart.csv", "sbp", "tobacco", "ldl", "famhist", "obesity", "alcohol",
                "age")
    return x.assign(famhist=(x.famhist == "Present") * 1.0), columns(folder, "saheart.csv").chd


def logistic(folder):
    estimator = GeneralizedLinearModel("bernoulli").fit(*hearts(folder))
    return {"coefficients": estimator.coef_, "intercept": estimator.intercept_,
            "errors": estimator.standard_errors_, "deviance": estimator.deviance_}


def penalised(folder):
    estimator = LogisticRegression().fit(*hearts(folder))
    return {"coefficients": estimator.coef_, "intercept": estimator.intercept_}


def menarche(link):
    def fit(folder):
        table = columns(folder, "menarche.csv")
        estimator = GeneralizedLinearModel("binomial", link=link).fit(table[["Age"]], table.Menarche,
                                                                      trials=table.Total)
        return {"coefficients": estimator.coef_, "intercept": estimator.intercept_,
                "errors": estimator.standard_errors_, "deviance": estimator.deviance_}

    return fit


def sprays(folder):
    table = columns(folder, "insectsprays.csv")
    estimator = GeneralizedLinearModel("poisson").fit(
        np.stack([(table.spray == kind) * 1.0 for kind in "BCDEF"], 1), table["count"]
    )
    return {"coefficients": estimator.coef_, "intercept": estimator.intercept_,
            "errors": estimator.standard_errors_, "deviance": estimator.deviance_}


def linear(name, target):
    def fit(folder):
        table = columns(folder, f"{name}.csv").select_dtypes("number")
        estimator = BayesianLinearRegression(1e9).fit(table.drop(columns=target), table[target])
        errors = np.sqrt(np.diag(estimator.sigma_))
        return {"coefficients": estimator.coef_, "intercept": estimator.intercept_,
                "noise": estimator.alpha_**-0.5, "errors": errors}

    return fit


def smooth(name, x, y):
    def fit(folder):
        table = columns(folder, f"{name}.csv")
        estimator = SmoothingSpline(20).fit(table[[x]], table[y])
        mean, std = estimator.predict(table[[x]], return_std=True)
        return {"mean": mean, "error": std, "noise": estimator.noise_, "degrees of freedom": estimator.edf_}

    return fit


def experts(name, x, y, gate):
    def fit(folder):
        table = columns(folder, f"{name}.csv")
        estimator = MixtureOfExperts(2, gate=gate).fit(table[[x]], table[y])
        return {"log-likelihood": estimator.log_prob(table[[x]], table[y]).sum(),
                "mean": estimator.predict(table[[x]])}

    return fit


QUICK = {
    # gains less an iteration than the rounding of its objective, long before its end
    "nile VVI 2": mixture("nile", "VVI", 2),
    "naive Bayes of iris": labelled(lambda: NaiveBayes(), "iris", "Species"),
    "logistic regression of hearts": logistic,
    "longley": linear("longley", "Employed"),
    "earthquakes 3": counts(3),
}
CASES = QUICK | {
    f"{name} {shape} {k}": mixture(name, shape, k)
    for name, shapes in (("diabetes_reaven_miller", SHAPES), ("faithful", SHAPES), ("iris", SHAPES),
                         ("galaxies", ("VVI", "EEI")))
    for shape in shapes
    for k in (2, 3)
}
CASES |= {f"{name} {k}": classes(name, k)
          for name in ("polca_carcinoma", "polca_values", "housevotes84_missing") for k in (2, 3)}
CASES |= {f"earthquakes {k}": counts(k) for k in (2, 4)}
CASES |= {
    "chain of earthquakes": chain("earthquakes_m7", 3, "count", emission="poisson"),
    "stationary chain of earthquakes": chain("earthquakes_m7", 2, "count", emission="poisson",
                                             initial="stationary"),
    "chain of the nile": chain("nile", 2, "volume"),
    "naive Bayes of votes": labelled(lambda: NaiveBayes(), "housevotes84_missing", "Class"),
    "naive Bayes of soybeans": labelled(lambda: NaiveBayes(), "soybean_missing", "Class"),
    "naive Bayes of penguins": labelled(lambda: NaiveBayes(), "penguins_missing", "species",
                                        "bill_length_mm", "island"),
    "discriminant of iris": labelled(lambda: GaussianDiscriminant(), "iris", "Species"),
    "shared discriminant of iris": labelled(lambda: GaussianDiscriminant("shared"), "iris",
                                            "Species"),
    "discriminant of vowels": labelled(lambda: GaussianDiscriminant(), "esl_vowel_train", "y"),
    "penalised logistic regression of hearts": penalised,
    "menarche by logits": menarche("logit"),
    "menarche by probits": menarche("probit"),
    "insect sprays": sprays,
    "swiss": linear("swiss", "Fertility"),
    "prostate": linear("prostate", "lpsa"),
    "smooth lidar": smooth("lidar", "range", "logratio"),
    "smooth mcycle": smooth("mcycle", "times", "accel"),
    "smooth nile": smooth("nile", "year", "volume"),
    "experts of tones": experts("tonedata", "stretchratio", "tuned", False),
    "experts of mcycle": experts("mcycle", "times", "accel", True),
}


def differences(one, other):
    """By how much each answer differs: in nats, and per ten thousand (a likelihood: hundred) of
    them; or relative to the largest of its kind."""
    out, shares = {}, {"objective": 1e-4, "log-likelihood": 1e-2}
    for name, right in one.items():
        right, found = np.asarray(right, float), np.asarray(other[name], float)
        size = max(1.0, shares[name] * abs(right)) if name in shares else max(
            np.abs(right).max(initial=0.0), 1e-30
        )
        out[name] = float(np.abs(found - right).max(initial=0.0) / size)
    return out


def marked(name):
    return pytest.param(name, marks=() if name in QUICK else SLOW)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", [marked(name) for name in CASES])
def test_float32_has_the_answers_of_double(shared_data, name):
    found = []
    for double in (True, False):
        with jax.enable_x64(double), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(CASES[name](shared_data))
    assert not {answer: off for answer, off in differences(*found).items() if not off <= CLOSE}
