"""No unit and no zero of measurement matters to a function with its default priors: of x and of
a + b x probabilities are the same, means are moved and scaled, standard deviations scaled.

To add a function, add a line to CASES: (model, data of the columns X, what must not change, what is
a location, what is a scale).
"""

import networkx as nx
import numpy as np
import pytest

from probml import EM, models

R = np.random.default_rng(0)
N = 120
CLASS = R.integers(0, 2, N)
X = 2.0 * CLASS[:, None] + R.normal(size=(N, 2))
SPLIT = R.integers(0, 2, N)  # components inside classes
DEEP = X + 4.0 * SPLIT[:, None]
UNITS = [(45_000.0, 1.0), (1.7e9, 86_400.0), (0.0, 1e-4), (-3.0, 1e-6), (1e3, 0.1)]


def at(X):
    return {"x": X, "z": CLASS}


def discriminant(X):
    fit = models.gaussian_mixture(k=2, d=2).fit(at(X))
    return (fit.predict_proba({"x": X}, "z"), fit.params["mean"],
            np.sqrt(1 / np.diagonal(fit.params["precision"], axis1=1, axis2=2)))


def clusters(X):
    fit = models.gaussian_mixture(k=2, d=2, covariance="diagonal").fit({"x": X}, EM(restarts=3))
    order = np.argsort(fit.params["mean"][:, 0])
    return (fit.predict_proba({"x": X}, "z")[:, order], fit.params["mean"][order],
            fit.params["precision"][order] ** -0.5)


def classes(X):
    fit = models.naive_bayes(classes=2, features={"a": "normal", "b": ("normal", 1)}).fit(
        {"a": X[:, 0], "b": X[:, 1:], "class": CLASS})
    return (fit.predict_proba({"a": X[:, 0], "b": X[:, 1:]}, "class"), fit.params["a_mean"],
            fit.params["a_precision"] ** -0.5)


def mixtures(X):
    fit = models.mixture_of_mixtures(classes=2, k=2, d=2, covariance="spherical").fit(
        {"x": X, "class": CLASS, "z": SPLIT})
    return (fit.predict_proba({"x": X}, "class"), fit.params["mean"],
            fit.params["precision"] ** -0.5)


def states(X):
    y, z = X[:, :1].reshape(6, 20, 1), CLASS.reshape(6, 20)
    fit = models.hidden_markov(k=2, emission="full").fit({"y": y, "z": z})
    return (fit.predict_proba({"y": y}, "z"), fit.params["mean"],
            fit.params["precision"] ** -0.5)


def network(X):
    graph = nx.DiGraph([("class", "a"), ("class", "b"), ("a", "b")])
    fit = models.bayesian_network(graph, states={"class": 2, "a": float, "b": float}).fit(
        {"class": CLASS, "a": X[:, 0], "b": X[:, 1]})
    middle = fit.params["b.intercept"] + fit.params["b.slope"][:, 0] * X[:, 0].mean()
    return (fit.predict_proba({"a": X[:, 0], "b": X[:, 1]}, "class"),
            np.array([fit.params["a.intercept"], middle]),
            np.array([fit.params["a.precision"], fit.params["b.precision"]]) ** -0.5)


CASES = {"gaussian_mixture, labels seen": (discriminant, X), "gaussian_mixture": (clusters, 2 * X),
         "naive_bayes": (classes, X), "mixture_of_mixtures": (mixtures, DEEP),
         "hidden_markov": (states, X), "bayesian_network": (network, X)}
QUICK = ("naive_bayes", "bayesian_network")


@pytest.mark.parametrize("case", [pytest.param(case, marks=() if case in QUICK else pytest.mark.slow)
                                  for case in CASES])
def test_no_unit_and_no_zero_of_measurement_matters(case):
    ask, rows = CASES[case]
    probabilities, location, scale = ask(rows)
    for zero, unit in UNITS if case not in QUICK else UNITS[1:4]:
        other = ask(zero + unit * rows)
        np.testing.assert_allclose(other[0], probabilities, atol=2e-3, err_msg=f"{zero}, {unit}")
        np.testing.assert_allclose((other[1] - zero) / unit / scale, location / scale, atol=2e-3,
                                   err_msg=f"{zero}, {unit}")
        np.testing.assert_allclose(other[2] / unit, scale, rtol=2e-3, err_msg=f"{zero}, {unit}")


def test_what_is_measured_is_a_stated_number_where_nothing_is_fitted():
    model = models.naive_bayes(classes=2, features={"a": "normal"})
    assert model.simulate(5)["a"].shape == (5,)
    data, point = {"a": X[:, 0], "class": CLASS}, {"weights": np.full(2, 0.5),
                                                   "a_mean": np.zeros(2), "a_precision": np.ones(2)}
    assert np.isfinite(model.log_density(data, point))


def test_waiting_times_have_no_unit():
    model = models.naive_bayes(classes=2, features={"a": "exponential"})
    waits = R.exponential(np.where(CLASS, 1.0, 3.0))
    first, other = (model.fit({"a": unit * waits, "class": CLASS}) for unit in (1.0, 1e-5))
    np.testing.assert_allclose(1e-5 * other.params["a_rate"], first.params["a_rate"], rtol=1e-3)
