"""Answers to one row after another are those of the whole table, and quick; a filter is the forward
pass, step by step."""

import time
from importlib.resources import files

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample

import probml
from probml.models import gaussian_mixture, hidden_markov, naive_bayes, read_bif

ASIA = read_bif(files("probml.data") / "asia.bif")
RANDOM = np.random.default_rng(0)
MEANS = np.array([[0.0, 0.0], [4.0, 1.0]])
MIXTURE = gaussian_mixture(k=2, d=2, covariance="diagonal").at(
    {"weights": [0.4, 0.6], "mean": MEANS, "precision": np.ones((2, 2))}, {"z": ("low", "high")})
CHAIN = hidden_markov(k=2, d=1).at({
    "initial": [0.7, 0.3], "transition": [[0.9, 0.1], [0.2, 0.8]], "mean": [[0.0], [3.0]],
    "scale": [[1.0], [0.5]]})


def test_rows_of_a_network_show_whatever_they_like():
    ask = ASIA.compiled("predict_proba", {"smoke": ["yes"]}, "lung")
    rows = {"smoke": ["yes", None, "no"], "dysp": [None, "yes", "no"], "xray": ["yes", "no", None]}
    whole = ASIA.predict_proba(rows, "lung")
    for i in range(3):
        one = ask({name: values[i] for name, values in rows.items()})
        np.testing.assert_allclose(one, whole[i], atol=1e-12)
    assert ASIA.compiled("predict", {"smoke": ["no"]}, "lung")({"smoke": "yes"}) == "no"
    with pytest.raises(probml.DataError, match="'smoke' is 'maybe', which is not one of the fitted categories"):
        ask({"smoke": "maybe"})
    with pytest.raises(probml.DataError, match="the row contains 'fever'"):
        ask({"fever": 1})


def test_rows_of_numbers_are_those_of_the_table():
    X = RANDOM.normal(size=(4, 2)) + 2
    ask, log = (MIXTURE.compiled(verb, {"x": X[:1]}) for verb in ("predict_proba", "log_prob"))
    whole, logs = MIXTURE.predict_proba({"x": X}), MIXTURE.log_prob({"x": X})
    for i, x in enumerate(X):
        np.testing.assert_allclose(ask({"x": x}), whole[i], atol=1e-12)
        np.testing.assert_allclose(log({"x": x}), logs[i], rtol=1e-12)
    assert MIXTURE.compiled("predict", {"x": X[:1]})({"x": [4.0, 1.0]}) == "high"
    for row in ([1.0, np.nan], [np.nan, 3.0]):  # other cells may be unseen in every row
        np.testing.assert_allclose(ask({"x": row}), MIXTURE.predict_proba({"x": [row]})[0],
                                   atol=1e-12)
    with pytest.raises(probml.DataError, match="3 values in this row, expected 2"):
        ask({"x": [1.0, 2.0, 3.0]})


@probml.model
def wards(x, ward, n: int):
    with plate("wards", n):
        level = sample("level", dist.Normal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(level[ward] + 2 * x, 1.0))


def test_inputs_and_their_labels_are_taken():
    fit = wards(n=2).fit({"x": np.zeros(4), "ward": ["A", "B", "A", "B"], "y": [1.0, 5, 1, 5]},
                         probml.MAP())
    ask = fit.compiled("predict", {"x": [0.0], "ward": ["A"]}, "y")
    expected = fit.predict({"x": [0.5, 0.0], "ward": ["B", "A"]}, "y")
    np.testing.assert_allclose([ask({"x": 0.5, "ward": "B"}), ask({"x": 0.0, "ward": "A"})],
                               expected, rtol=1e-12)
    with pytest.raises(probml.DataError, match="the input 'ward' is 'C', expected one of"):
        ask({"x": 0.0, "ward": "C"})
    with pytest.raises(probml.DataError, match="the input 'x' is missing"):
        ask({"ward": "A"})


def test_a_filter_is_the_forward_pass():
    y = np.array([0.1, 2.8, 3.1, np.nan, -0.5])[None, :, None]
    whole = CHAIN.predict_proba({"y": y}, "z", given="filtered")[0]
    ahead = CHAIN.predict_proba({"y": y}, "z", given="predicted")[0]
    found = CHAIN.filter({"y": np.zeros((1, 1, 1))})
    for t in range(5):
        np.testing.assert_allclose(found.predicted, ahead[t], atol=1e-10)
        seen = {} if np.isnan(y[0, t, 0]) else {"y": y[0, t]}
        np.testing.assert_allclose(found.step(seen), whole[t], atol=1e-10)
    np.testing.assert_allclose(found.log_prob, CHAIN.log_prob({"y": y})[0], rtol=1e-10)
    assert found.steps == 5 and found.restart().steps == 0
    np.testing.assert_allclose(found.probabilities, [0.7, 0.3])
    with pytest.raises(probml.Refusal, match="one MarkovChain"):
        MIXTURE.filter({"x": [[0.0, 0.0]]})
    with pytest.raises(probml.Refusal, match=r"filter\(\)"):
        CHAIN.compiled("log_prob", {"y": y})


@pytest.mark.slow  # of a machine's own time, the least of several: others may be at work
def test_a_warm_row_takes_less_than_a_millisecond():
    flowers = naive_bayes(classes=3, features={"x": ("normal", 4)}, target="z")
    table = pd.read_csv(files("probml.data") / "iris.csv")
    x = table.iloc[:, :4].to_numpy()
    iris = flowers.fit({"x": x, "z": pd.factorize(table["Species"])[0]})
    chain = CHAIN.filter({"y": np.zeros((1, 1, 1))})
    network = ASIA.compiled("predict_proba", {"smoke": ["yes"]}, "lung")
    petals = iris.compiled("predict_proba", {"x": x[:1]}, "z")
    for call in (lambda: network({"smoke": "yes", "dysp": "no"}), lambda: petals({"x": x[70]}),
                 lambda: chain.step({"y": [0.3]})):
        call()
        times = []
        for _ in range(5):
            begin = time.process_time()
            for _ in range(50):
                call()
            times.append((time.process_time() - begin) / 50)
        assert min(times) < 1e-3


def test_a_warm_answer_takes_less_than_a_table_does():
    ask, row = ASIA.compiled("predict_proba", {"smoke": ["yes"]}, "lung"), {"smoke": "yes"}

    def seconds(call, times=20):
        call()
        begin = time.process_time()
        for _ in range(times):
            call()
        return (time.process_time() - begin) / times

    assert seconds(lambda: ask(row)) < seconds(lambda: ASIA.predict_proba({"smoke": ["yes"]},
                                                                          "lung"))


def test_a_row_is_answered_in_the_precision_of_the_fit_whatever_the_callers_is():
    ask = MIXTURE.compiled("log_prob", {"x": MEANS[:1]})
    wanted = ask({"x": MEANS[0]})
    with jax.enable_x64(False):
        assert ask({"x": MEANS[0]}) == wanted
    for row in (None, "", [1.0], {"x": "text"}, {"x": {"y": 1}}):
        with pytest.raises(probml.DataError, match="expected a row as a mapping|expected a number or an array"):
            ask(row)
