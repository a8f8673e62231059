"""The peers of the table of many rows, each written as its user would write it; many_sides.py says
what a side is. Nothing of the project is needed here."""

import numpy as np

from clocks import Timed, now


def begun(x, k):
    """Where mixtures begin."""
    d = x.shape[1]
    return {"weights": np.full(k, 1 / k), "mean": x[:k].astype(float),
            "covariance": np.tile(np.eye(d), (k, 1, 1))}


def sklearn_mixtures(work, data, size, variant=""):
    from sklearn.mixture import GaussianMixture

    x, k = data["x"], size["k"]
    if work == "sizes":
        return lambda: [GaussianMixture(each, n_init=10, tol=1e-3, reg_covar=0,
                                        random_state=0).fit(x) for each in range(1, k + 1)]
    start = begun(x, k)
    # the start is given; k-means would only cost
    settings = dict(n_components=k, reg_covar=0, tol=0, max_iter=size["iterations"],
                    init_params="random")
    first = dict(weights_init=start["weights"], means_init=start["mean"],
                 precisions_init=start["covariance"])
    first = {name: value.astype(x.dtype) for name, value in first.items()}
    if variant != "torch":
        return lambda: GaussianMixture(**settings, **first).fit(x)
    import sklearn
    import torch

    tensor = torch.asarray(x)
    first = {name: torch.asarray(value) for name, value in first.items()}

    def call():
        with sklearn.config_context(array_api_dispatch=True):
            return GaussianMixture(**settings, **first).fit(tensor)

    return call


def sklearn_bayes(work, data, size):
    from sklearn.naive_bayes import CategoricalNB, GaussianNB

    peer = (GaussianNB(var_smoothing=0) if work.startswith("gaussian")
            else CategoricalNB(alpha=1, min_categories=size["states"]))
    return lambda: peer.fit(data["x"], data["y"]).predict_proba(data["x"])


def sklearn_logistic(work, data, size, variant=""):
    from sklearn.linear_model import LogisticRegression

    more = {"tol": 1e-5} if variant == "newton-cg" else {}
    return lambda: LogisticRegression(solver=variant, max_iter=10_000, **more).fit(data["x"],
                                                                                   data["y"])


def sklearn_squares(work, data, size):
    from sklearn.linear_model import LinearRegression

    return lambda: LinearRegression().fit(data["x"], data["y"])


def sklearn_machine(work, data, size):
    from sklearn.svm import SVC

    return lambda: SVC(cache_size=2000).fit(data["x"], data["y"])


SKLEARN = {"mixture": sklearn_mixtures, "bayes": sklearn_bayes, "logistic": sklearn_logistic,
           "squares": sklearn_squares, "machine": sklearn_machine}


def pyagrum_networks(work, data, size):
    """Few rows, for it answers one at a time; its seconds are those of all by the row."""
    import csv

    import pyagrum

    net, some = pyagrum.loadBN(data["network"]), size["few"]
    if work == "marginals":
        with open(data["table"]) as file:
            rows = [{k: v for k, v in row.items() if v} for row in csv.DictReader(file)]

        def ask():
            began, most = now(), 0.0
            for evidence in rows[:some]:
                engine = pyagrum.LazyPropagation(net)
                engine.setEvidence(evidence)
                engine.makeInference()
                most += sum(max(engine.posterior(node).tolist()) for node in net.names())
            return Timed(most / some / net.size(), *(now() - began) * len(rows) / some)

        return ask

    def learn():
        learner = pyagrum.BNLearner(data["marked"], net, ["?"])
        learner.useEM(1e-9)
        learner.EMsetMaxIter(5)
        began = now()
        learner.fitParameters(net)
        return Timed(None, *(now() - began) / max(learner.EMnbrIterations(), 1)
                     * size["n"] / some)

    return learn


# package -> group of works -> side
PEERS = {"sklearn": SKLEARN, "pyagrum": {"network": pyagrum_networks}}
