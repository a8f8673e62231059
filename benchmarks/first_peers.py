"""The peers' first answers, in a process of their own: `python first_peers.py [--quick]`, one JSON
object a question and peer.

Every peer has its default arguments and, where it takes no empty cells or words, the pipeline of
its own documentation. A peer that is not installed, or that fails, is told with a word. ONLY as in
first_data.chosen.
"""

import json
import logging
import sys
import time
import warnings

import numpy as np
from scipy.stats import gaussian_kde

from first_data import chosen, classes, numbers, parts, seeds


def plain(table, spread=True):
    """The preprocessing of scikit-learn's guide for mixed tables: medians and scaling; the
    commonest word and one-hot."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    number = make_column_selector(dtype_include="number")
    word = make_column_selector(dtype_exclude="number")
    words = make_pipeline(
        SimpleImputer(strategy="most_frequent", missing_values=np.nan),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    )
    return make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), number), (words, word)
    )


def classifier(make, prepare=lambda X: X):
    def answer(train, test, seed, words):
        found = make(seed, words).fit(prepare(train["X"]), train["y"])
        X = prepare(test["X"])
        if hasattr(found, "predict_proba"):
            return classes(test["y"], found.predict_proba(X), found.classes_)
        return classes(test["y"], predicted=found.predict(X))

    return answer


def regressor(make):
    return lambda train, test, seed, words: numbers(
        test["y"], make(seed, words).fit(train["X"], train["y"]).predict(test["X"])
    )


def density(make):
    return lambda train, test, seed, words: {
        "log density": float(np.mean(make(seed, words).fit(train["X"]).score_samples(test["X"])))
    }


def mixture(train, test, seed, words):
    from sklearn.impute import SimpleImputer
    from sklearn.mixture import GaussianMixture

    X = SimpleImputer().fit_transform(train["X"])
    return {"log density": GaussianMixture(words["k"], random_state=seed).fit(X).score(test["X"])}


def per_class(train, test, seed, words):
    """A mixture of two normals for each class, by hand."""
    from sklearn.mixture import GaussianMixture

    labels, n = np.unique(train["y"], return_counts=True)
    fits = [GaussianMixture(2, random_state=seed).fit(train["X"][train["y"] == c]) for c in labels]
    logits = np.stack([f.score_samples(test["X"]) for f in fits], 1) + np.log(n / n.sum())
    p = np.exp(logits - np.logaddexp.reduce(logits, axis=1)[:, None])
    return classes(test["y"], p, labels)


def scipy_density(train, test, seed, words):
    return {"log density": float(gaussian_kde(train["X"].T).logpdf(test["X"].T).mean())}


def scipy_parzen(train, test, seed, words):
    labels, n = np.unique(train["y"], return_counts=True)
    logits = np.stack([gaussian_kde(train["X"][train["y"] == c].T).logpdf(test["X"].T)
                       for c in labels], 1) + np.log(n / n.sum())
    return classes(test["y"], np.exp(logits - np.logaddexp.reduce(logits, axis=1)[:, None]), labels)


def pomegranate(kind):
    def answer(train, test, seed, words):
        import torch
        from pomegranate import distributions
        from pomegranate.gmm import GeneralMixtureModel

        torch.manual_seed(seed)
        X, new = train["X"], test["X"]
        if kind == "Categorical":
            tables = [np.unique(np.concatenate([X[c], new[c]]), return_inverse=True)[1] for c in X]
            both = torch.tensor(np.stack(tables, 1))
            X, new = both[: len(X)], both[len(X) :]
        else:
            X, new = (torch.tensor(np.asarray(X), dtype=torch.float32),
                      torch.tensor(np.asarray(new), dtype=torch.float32))
        model = GeneralMixtureModel([getattr(distributions, kind)() for _ in range(words["k"])],
                                    random_state=seed).fit(X)
        return {"log density": float(model.log_probability(new).mean())}

    return answer


def counts(train, test, seed, words):
    from scipy.special import logsumexp
    from scipy.stats import poisson
    from sklearn.cluster import KMeans

    y = train["y"]
    z = KMeans(words["k"], random_state=seed).fit_predict(y[:, None])
    r = np.eye(words["k"])[z]
    for _ in range(200):
        weights, rates = r.mean(0), r.T @ y / r.sum(0)
        logits = poisson.logpmf(y[:, None], rates) + np.log(weights)
        r = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    return {"log density": float(
        logsumexp(poisson.logpmf(test["y"][:, None], rates) + np.log(weights), axis=1).mean()
    )}


def hmmlearn(train, test, seed, words):
    from hmmlearn import hmm

    make = {"normal": hmm.GaussianHMM, "poisson": hmm.PoissonHMM,
            "categorical": hmm.CategoricalHMM}[words["emission"]]
    X, new = train["X"].reshape(-1, 1), test["X"].reshape(-1, 1)
    return {"log density": float(make(words["k"], random_state=seed).fit(X).score(new) / len(new))}


def pgmpy(train, test, seed, words):
    """Hill climbing by its defaults; tables by its Bayesian estimator: its default, maximum
    likelihood, forbids what it has not seen."""
    from pgmpy.estimators import HillClimbSearch
    from pgmpy.models import DiscreteBayesianNetwork
    from pgmpy.parameter_estimator import DiscreteBayesianEstimator

    dag = HillClimbSearch(train["X"]).estimate(show_progress=False)
    states = {c: sorted({*train["X"][c], *test["X"][c]}) for c in train["X"]}
    model = DiscreteBayesianNetwork(dag.edges())
    model.add_nodes_from(train["X"].columns)
    model.fit(train["X"], DiscreteBayesianEstimator(state_names=states))
    total = 0.0
    for cpd in model.get_cpds():
        rows = [[cpd.name_to_no[v][x] for x in test["X"][v]] for v in cpd.variables]
        total = total + np.log(cpd.values[tuple(rows)])
    return {"log density": float(np.mean(total))}


def spline(train, test, seed, words):
    from scipy.interpolate import make_smoothing_spline

    x, where = np.unique(train["X"][:, 0], return_inverse=True)
    n = np.bincount(where)
    found = make_smoothing_spline(x, np.bincount(where, train["y"]) / n, w=n.astype(float))
    return numbers(test["y"], found(test["X"][:, 0]))


def statsmodels(family):
    def answer(train, test, seed, words):
        import statsmodels.api as sm

        kind = sm.families.Poisson() if family == "poisson" else sm.families.Gamma(
            sm.families.links.Log()
        )
        found = sm.GLM(train["y"], sm.add_constant(train["X"]), family=kind).fit()
        return numbers(test["y"], found.predict(sm.add_constant(test["X"], has_constant="add")))

    return answer


def text(table):
    """Words for a table of categories: an empty cell is a word of its own."""
    return table.astype(object).where(table.notna(), "?").astype(str)


def table_peers():
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import CategoricalNB, GaussianNB
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    def categorical(train, test, seed, words):
        import pandas as pd

        # no peer takes a word it has not seen
        encode = OrdinalEncoder().fit(text(pd.concat([train["X"], test["X"]])))
        X, new = encode.transform(text(train["X"])), encode.transform(text(test["X"]))
        found = CategoricalNB(min_categories=[len(c) for c in encode.categories_]).fit(X,
                                                                                       train["y"])
        return classes(test["y"], found.predict_proba(new), found.classes_)

    mixed = lambda s, w: make_pipeline(plain(None), GaussianNB())  # noqa: E731
    linear = lambda s, w: make_pipeline(plain(None), LogisticRegression())  # noqa: E731
    others = {"(LogisticRegression)": classifier(linear)}
    table = {"GaussianNB": classifier(mixed), **others}
    return {"NaiveBayes table": table, "NaiveBayes words": {
        "CategoricalNB": categorical, "(GaussianNB)": classifier(mixed), **others
    }}


def peers():
    """Estimator → name → (train, test, seed, words) → scores. Names in brackets are shown and not
    judged: another model than the estimator's."""
    from sklearn import linear_model as linear
    from sklearn import naive_bayes
    from sklearn.decomposition import PCA, FactorAnalysis
    from sklearn.discriminant_analysis import (
        LinearDiscriminantAnalysis,
        QuadraticDiscriminantAnalysis,
    )
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import RidgeCV
    from sklearn.neighbors import KernelDensity
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import SplineTransformer
    from sklearn.svm import SVC, SVR, LinearSVC

    shapes = {"own": QuadraticDiscriminantAnalysis, "shared": LinearDiscriminantAnalysis}
    line = regressor(lambda s, w: linear.LinearRegression())
    logistic = classifier(lambda s, w: linear.LogisticRegression())
    return {
        "GaussianMixture": {"GaussianMixture": mixture, "pomegranate": pomegranate("Normal")},
        "PoissonMixture": {"EM from k-means": counts},
        "LatentClass": {"pomegranate": pomegranate("Categorical")},
        "MixedMixture": {"GaussianMixture diag": density(lambda s, w: _diagonal(s, w))},
        "NaiveBayes": {"GaussianNB": classifier(
            lambda s, w: make_pipeline(SimpleImputer(), naive_bayes.GaussianNB())
        )},
        **table_peers(),
        "NaiveBayes counts": {
            "MultinomialNB": classifier(lambda s, w: naive_bayes.MultinomialNB())
        },
        "NaiveBayes bernoulli": {"BernoulliNB": classifier(lambda s, w: naive_bayes.BernoulliNB())},
        "GaussianDiscriminant": {"LDA, QDA": classifier(lambda s, w: shapes[w["shape"]]())},
        "FisherDiscriminant": {"LDA": classifier(lambda s, w: LinearDiscriminantAnalysis())},
        "MixtureDiscriminant": {"GaussianMixture by class": per_class},
        "LogisticRegression": {"LogisticRegression": logistic},
        "Perceptron": {"Perceptron": classifier(lambda s, w: linear.Perceptron(random_state=s))},
        "LinearSVM": {"LinearSVC": classifier(lambda s, w: LinearSVC(random_state=s))},
        "SupportVectorMachine": {"SVC": classifier(lambda s, w: SVC())},
        "SupportVectorRegression": {"SVR": regressor(lambda s, w: SVR())},
        "KernelDensity": {"KernelDensity": density(lambda s, w: KernelDensity()),
                          "gaussian_kde": scipy_density},
        "ParzenClassifier": {"gaussian_kde by class": scipy_parzen},
        "HiddenMarkov": {"hmmlearn": hmmlearn},
        "network": {"pgmpy": pgmpy},
        "BayesianLinearRegression": {
            "BayesianRidge": regressor(lambda s, w: linear.BayesianRidge()),
            "LinearRegression": line,
            "Ridge": regressor(lambda s, w: linear.Ridge()),
        },
        "ridge": {"Ridge": regressor(lambda s, w: linear.Ridge())},
        "lasso": {"Lasso": regressor(lambda s, w: linear.Lasso())},
        "GLM poisson": {"PoissonRegressor": regressor(lambda s, w: linear.PoissonRegressor()),
                        "statsmodels": statsmodels("poisson")},
        "GLM gamma": {"GammaRegressor": regressor(lambda s, w: linear.GammaRegressor()),
                      "statsmodels": statsmodels("gamma")},
        "RobustRegression": {"HuberRegressor": regressor(lambda s, w: linear.HuberRegressor())},
        "SmoothingSpline": {
            "make_smoothing_spline": spline,
            "SplineTransformer": regressor(
                lambda s, w: make_pipeline(SplineTransformer(20), RidgeCV())
            ),
        },
        "FactorAnalysis": {
            "FactorAnalysis": density(lambda s, w: FactorAnalysis(2, random_state=s))
        },
        "ProbabilisticPCA": {"PCA": density(lambda s, w: PCA(2, random_state=s))},
        "MixtureOfExperts": {"(LinearRegression)": line},
        "MixtureOfExpertsClassifier": {"(LogisticRegression)": logistic},
        "NeuralNetworkClassifier": {
            "MLPClassifier": classifier(lambda s, w: MLPClassifier(random_state=s))
        },
        "NeuralNetworkRegressor": {
            "MLPRegressor": regressor(lambda s, w: MLPRegressor(random_state=s))
        },
    }


def _diagonal(seed, words):
    from sklearn.mixture import GaussianMixture

    return GaussianMixture(words["k"], covariance_type="diag", random_state=seed)


def main():
    logging.disable(logging.CRITICAL)
    rivals = peers()
    for i, estimator, name, words in chosen():
        for rival, answer in rivals.get(estimator, {}).items():
            scores, times, said, failed = [], [], 0, ""
            for seed in seeds(estimator, name, "--quick" in sys.argv):
                train, test = parts(name, seed)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    began = time.perf_counter()
                    try:
                        scores.append(answer(train, test, seed, words))
                    except ImportError as error:
                        failed = f"not installed ({error.name})"
                        break
                    except Exception as error:
                        failed = f"{type(error).__name__}: {error}"[:200]
                        scores.append(None)
                    times.append(time.perf_counter() - began)
                said += bool(caught)
            record = dict(question=i, peer=rival, scores=scores,
                          time=float(np.median(times)) if times else None, said=said, failed=failed)
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
