"""Fits travel: by pickle, joblib, copy, and as files that know their model."""

import copy
import inspect
import os
import pickle
import stat
import subprocess
import sys

import joblib
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml
from probml.fits.saving import packed, unpacked
from probml.models import (
    BayesianLinearRegression,
    GaussianMixture,
    HiddenMarkov,
    LogisticRegression,
    NaiveBayes,
    gaussian_mixture,
)

RANDOM = np.random.default_rng(0)
X = np.concatenate([RANDOM.normal(-3, 1, (20, 2)), RANDOM.normal(3, 1, (20, 2))])
LABELS = np.repeat(["low", "high"], 20)


@probml.model
def line(x):
    slope = sample("slope", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("y", dist.Normal(slope * x, 1.0))


DATA = {"x": X[:, 0], "y": 2 * X[:, 0] + RANDOM.normal(size=40)}
ENGINES = {"laplace": probml.Laplace(), "map": probml.MAP(), "svi": probml.SVI(steps=20),
           "nuts": probml.NUTS(draws=10, warmup=10, chains=1, progress=False)}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ENGINES)
def test_a_fit_of_every_engine_pickles_and_copies(name, tmp_path):
    fit = line().fit(DATA, ENGINES[name])
    expected, told = fit.log_prob(DATA), fit.summary()  # of a point its rows stay behind
    joblib.dump(fit, tmp_path / "fit.joblib")
    for again in (pickle.loads(pickle.dumps(fit)), copy.copy(fit), copy.deepcopy(fit),
                  joblib.load(tmp_path / "fit.joblib")):
        np.testing.assert_array_equal(again.log_prob(DATA), expected)
        assert again.summary().equals(told) and again.seed == 0


def _same(estimator, again, X):
    assert type(again) is type(estimator)
    assert {k: repr(v) for k, v in again.get_params().items()} == {
        k: repr(v) for k, v in estimator.get_params().items()}
    np.testing.assert_array_equal(again.predict(X), estimator.predict(X))


ESTIMATORS = {
    "bayes": lambda: NaiveBayes().fit(X, LABELS),
    "mixture": lambda: GaussianMixture(range(1, 3), n_init=1, random_state=0).fit(X),
    "logistic": lambda: LogisticRegression().fit(X, LABELS),
    "regression": lambda: BayesianLinearRegression().fit(X, X @ [1.0, 2.0]),
    "hmm": lambda: HiddenMarkov(2, n_init=1).fit(X),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # two components, the most that were tried
@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_comes_back_from_its_file(name, tmp_path):
    estimator = ESTIMATORS[name]()
    estimator.save(tmp_path / "estimator.probml")
    _same(estimator, probml.load(tmp_path / "estimator.probml"), X)
    _same(estimator, pickle.loads(pickle.dumps(estimator)), X)


def test_the_zoo_is_loaded_without_its_model(tmp_path):
    model = gaussian_mixture(k=2, d=2, concentration=np.array([1.0, 2.0]))
    fit = model.fit({"x": X}, probml.EM(restarts=1))
    fit.save(tmp_path / "fit")
    again = probml.load(tmp_path / "fit")
    assert again.model == model and again.seed == 0
    np.testing.assert_array_equal(again.log_prob({"x": X}), fit.log_prob({"x": X}))


def test_a_model_of_ones_own_is_asked_for(tmp_path):
    line().fit(DATA, probml.MAP()).save(tmp_path / "fit")
    with pytest.raises(probml.ModelError, match=r"your own model.*load\(path, model\)"):
        probml.load(tmp_path / "fit")
    assert probml.load(tmp_path / "fit", line()).params["slope"].shape == ()


def test_a_network_knows_its_graph(tmp_path):
    import networkx as nx

    from probml.models import bayesian_network

    dag = nx.DiGraph([("rain", "wet"), ("rain", "cloud")])
    states = {"rain": ["no", "yes"], "wet": ["no", "yes"], "cloud": 2}
    known = {"rain": ["no", "yes"], "wet": ["yes", "yes"], "cloud": [0, 1]}
    fit = bayesian_network(dag, states=states).fit(known)
    fit.save(tmp_path / "fit")
    again = probml.load(tmp_path / "fit")
    assert again.model == fit.model and again.table("wet").equals(fit.table("wet"))


def test_the_mode_of_a_file_is_the_umasks(tmp_path):
    fit, old = line().fit(DATA, probml.MAP()), os.umask(0o027)
    try:
        fit.save(tmp_path / "fit")
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(tmp_path / "fit").st_mode) == 0o640
    assert os.listdir(tmp_path) == ["fit"]


def test_what_a_file_cannot_hold_is_refused_by_name():
    with pytest.raises(probml.ModelError, match="'engine' is a builtins.function"):
        packed(lambda: 0, {}, "'engine'")
    with pytest.raises(probml.ModelError, match="not part of probml"):
        unpacked({"kind": "record", "module": "os", "name": "system", "value": {}}, {})


def test_a_record_that_is_of_elsewhere_is_not_made():
    """A module of ours leads to all that it imports."""
    said = {"kind": "record", "module": "probml.fits.saving",
            "name": "dataclasses.inspect.FrameInfo",
            "value": dict.fromkeys(inspect.FrameInfo._fields)}
    with pytest.raises(probml.ModelError, match="not one of the classes that probml saves"):
        unpacked(said, {})


def test_a_range_has_no_more_values_than_its_file():
    with pytest.raises(probml.ModelError, match="integer labels should be equally spaced"):
        unpacked({"kind": "range", "value": [0, 1, 2**40]}, {})


def test_values_come_back_as_they_were():
    import networkx as nx

    arrays, graph = {}, nx.DiGraph([("a", "b")])
    values = {"t": (1, 2.5, None), "s": {"x"}, 3: [True, "é"], "r": range(1, 9, 3), "f": float,
              "down": range(5, 0, -2), "none": range(3, 3), "same": range(4, 5),
              "a": np.arange(4.0).reshape(2, 2), "o": np.array(["x", None], object),
              "n": np.float32(1.5), "g": graph, "e": probml.EM(restarts=3)}
    again = unpacked(packed(values, arrays, "values"), arrays)
    assert again.keys() == values.keys() and all(
        type(again[k]) is type(values[k]) for k in values)
    for name in ("t", "s", 3, "r", "f", "n", "e", "down", "none", "same"):
        assert again[name] == values[name]
    np.testing.assert_array_equal(again["a"], values["a"])
    assert again["o"].tolist() == ["x", None] and list(again["g"].edges) == [("a", "b")]


def slope_of(prior, noise=1.0, family=dist.Normal):
    @probml.model
    def line(x):
        slope = sample("slope", prior)
        with probml.rows():
            sample("y", family(slope * x, noise))

    return line()


OTHERS = {
    "another prior": (slope_of(dist.Normal(0.0, 3.0)), "an argument of the distribution of 'slope' was 10 and is now 3"),
    "another family of the prior": (slope_of(dist.Laplace(0.0, 10.0)),
                                    "the distribution of 'slope' was Normal and is now Laplace"),
    "another noise": (slope_of(dist.Normal(0.0, 10.0), 2.0), "an argument of the distribution of 'y' was 1 and is now 2"),
    "another likelihood": (slope_of(dist.Normal(0.0, 10.0), 1.0, dist.Cauchy),
                           "the distribution of 'y' was Normal and is now Cauchy"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_of_another_model_of_the_same_name_is_refused(name, tmp_path):
    other, words = OTHERS[name]
    line().fit(DATA).save(tmp_path / "fit")
    with pytest.raises(probml.ModelError, match="another model named 'line': .*" + words):
        probml.load(tmp_path / "fit", other)


def test_a_function_that_is_written_otherwise_and_does_the_same_is_the_same_model(tmp_path):
    fit = line().fit(DATA)
    fit.save(tmp_path / "fit")
    same = slope_of(dist.Normal(0.0, 10.0 * (1 + 1e-7)))
    assert probml.load(tmp_path / "fit", same).params["slope"] == fit.params["slope"]


def test_parameters_that_were_given_come_back_for_data_of_any_shape(tmp_path):
    fit = line().at({"slope": 2.0})
    fit.save(tmp_path / "fit")
    again = probml.load(tmp_path / "fit", line())
    np.testing.assert_array_equal(again.log_prob(DATA), fit.log_prob(DATA))


SAVED = """
import sys, numpyro.distributions as dist, numpyro, probml
@probml.model
def mine(x):
    slope = numpyro.sample("slope", dist.Normal(0.0, 10.0))
    rest = numpyro.sample("rest", dist.TruncatedNormal(0.0, 2.0, low=0.0))
    with probml.rows():
        numpyro.sample("y", dist.AsymmetricLaplace(slope * x, rest, 0.5))
if sys.argv[1] == "save":
    mine().fit({"x": [1.0, 2.0, 3.0], "y": [2.0, 4.1, 5.9]}, probml.MAP(steps=3)).save(sys.argv[2])
else:
    probml.load(sys.argv[2], mine())
"""


@pytest.mark.slow
def test_another_process_knows_the_model_again(tmp_path):
    for word, seed in (("save", "1"), ("load", "2")):
        subprocess.run([sys.executable, "-c", SAVED, word, str(tmp_path / "fit")], check=True,
                       env=os.environ | {"PYTHONHASHSEED": seed})
