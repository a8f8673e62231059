"""Bad input: each case has its own message, that names what is wrong and what to do, before any
compile."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample

import cases
import probml
from cases import nan
from compilations import counted

X = cases.blobs(60)[0]
MIXTURE = cases.diagonal_mixture(k=3, d=2)


def with_cell(value, where=7):
    x = X.copy()
    x[where, 1] = value
    return x


@probml.model
def shares(k: int):
    """Vectors that add up to 1: no coordinate of one can be unseen alone."""
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("component", k):
        concentration = sample("concentration", dist.LogNormal(0.0, 1.0).expand([3]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Dirichlet(concentration[z]))


def with_share(value, where=7):
    x = np.random.default_rng(0).dirichlet(np.ones(3), 60)
    x[where, 1] = value
    return x


CODES, EXACT = np.arange(60) % 3, probml.Exact()
DATA = {
    "unknown name": (lambda: MIXTURE.fit({"y": X}), "'y'", "x"),
    "a typing slip": (lambda: MIXTURE.fit({"xs": X}), "'xs'", "Did you mean 'x'"),
    "infinity": (lambda: MIXTURE.fit({"x": with_cell(np.inf)}), "'x'", "inf", "row 7"),
    "minus infinity": (lambda: MIXTURE.fit({"x": with_cell(-np.inf)}), "'x'", "inf", "row 7"),
    "too few columns": (lambda: MIXTURE.fit({"x": X[:, :1]}), "'x'", "(n, 2)", "(60, 1)"),
    "transposed": (lambda: MIXTURE.fit({"x": X.T}), "'x'", "x.T"),
    "no rows": (lambda: MIXTURE.fit({"x": X[:0]}), "'x'", "empty"),
    "no data": (lambda: MIXTURE.fit({}), "empty"),
    "None": (lambda: MIXTURE.fit(None), "empty"),
    "an array alone": (lambda: MIXTURE.fit(X), "mapping", "ndarray"),
    "a code above the states": (lambda: MIXTURE.fit({"x": X, "z": np.full(60, 7)}), "'z'", "7",
                                "from 0 to 2"),
    "a negative code": (lambda: MIXTURE.fit({"x": X, "z": np.full(60, -1)}), "'z'", "-1"),
    "half a code": (lambda: MIXTURE.fit({"x": X, "z": np.full(60, 0.5)}), "'z'", "0.5", "integer"),
    "too many labels": (lambda: MIXTURE.fit({"x": X, "z": list("abcd") * 15}), "'z'", "4 labels",
                        "3 states"),
    "other rows": (lambda: MIXTURE.fit({"x": X, "z": np.zeros(59)}), "'z'", "59", "60"),
    "text for numbers": (lambda: MIXTURE.fit({"x": [["a", "b"]] * 60}), "'x'", "number"),
    "nothing seen": (lambda: MIXTURE.fit({"x": np.full((60, 2), nan)}), "missing"),
    "a table for a vector": (lambda: MIXTURE.fit(pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})), "'a'",
                             "mapping"),
    "more components than distinct rows": (lambda: MIXTURE.fit({"x": np.repeat(X[:2], 30, 0)}),
                                           "'z'", "only 2 distinct rows", "3"),
    "more components than rows": (lambda: MIXTURE.fit({"x": X[:1]}), "'z'", "1 distinct row. Use at most 1 component"),
    "a negative count": (lambda: cases.poisson_mixture(k=2).fit({"x": [1, 2, -3]}), "'x'", "-3",
                         "of at least 0"),
    "half a count": (lambda: cases.poisson_mixture(k=2).fit({"x": [1, 2, 3.5]}), "'x'", "3.5",
                     "integer"),
    "negative weights": (lambda: MIXTURE.fit({"x": X}, weights=np.full(60, -1.0)), "weights",
                         "must be at least 0, got -1"),
    "too few weights": (lambda: MIXTURE.fit({"x": X}, weights=np.ones(59)), "weights", "(60,)"),
    "weights of zero": (lambda: MIXTURE.fit({"x": X}, weights=np.zeros(60)), "weights", "zero"),
    "unseen weights": (lambda: MIXTURE.fit({"x": X}, weights=np.full(60, nan)), "weights",
                       "missing"),
    "half a vector of shares": (lambda: shares(2).fit({"x": with_share(nan)}), "'x'", "row 7",
                                "to_event(1)"),
    "half a vector, exactly": (lambda: cases.full_mixture(
        3, 2
    ).fit({"x": with_cell(nan), "z": CODES}, EXACT), "'x'", "partially", "EM()"),
    "likelihoods that are all zero": (lambda: MIXTURE.fit({"x": X, "z": np.zeros((60, 3))}), "'z'",
                                      "above 0"),
    "negative likelihoods": (lambda: MIXTURE.fit({"x": X, "z": np.full((60, 3), -0.5)}), "'z'",
                             "at least 0"),
    "unseen input": (lambda: cases.regression_mixture(
        k=2, d=2
    ).fit({"x": with_cell(nan), "y": X[:, 0]}), "input 'x'", "row 7"),
    "an input with one value": (lambda: cases.regression_mixture(
        k=2, d=2
    ).fit({"x": 3.0, "y": X[:, 0]}), "input 'x'", "give it as an argument of the model"),
    "a missing input": (lambda: cases.regression_mixture(k=2, d=2).fit({"y": X[:, 0]}),
                        "have no 'x'"),
    "a missing setting": (lambda: cases.diagonal_mixture(k=3).fit({"x": X}), "'d'"),
    "Exact with a hidden class": (lambda: MIXTURE.fit({"x": X}, probml.Exact()), "'z'", "EM()"),
    "hard EM of what lies outside rows": (
        lambda: cases.candy_bags().fit({"cherry": [1]}, probml.EM(hard=True)), "'bag'"
    ),
    "a start that is no parameter": (lambda: MIXTURE.fit({"x": X}, start={"z": np.zeros(60)}),
                                     "'z'", "'mean'"),
    "a start of another shape": (lambda: MIXTURE.fit({"x": X}, start={"mean": np.zeros(2)}),
                                 "'mean'", "(3, 2)", "(2,)"),
    "an infinite start": (lambda: MIXTURE.fit({"x": X}, start={"mean": np.full((3, 2), np.inf)}),
                          "'mean'", "finite"),
    "a start outside its support": (
        lambda: MIXTURE.fit({"x": X}, start={"scale": np.full((3, 2), -1.0)}), "'scale'"
    ),
    "a start off the simplex": (
        lambda: MIXTURE.fit({"x": X}, start={"weights": np.array([0.5, 0.5, 0.5])}), "'weights'"
    ),
    "an engine that is none": (lambda: MIXTURE.fit({"x": X}, "EM"), "engine"),
    "parameters that are missing": (lambda: MIXTURE.at({}).log_prob({"x": X}), "'weights'"),
    "parameters of another shape": (lambda: MIXTURE.log_density(
        {"x": X}, {"weights": np.ones(2) / 2, "mean": 0, "scale": 1}
    ), "'weights'"),
}


@pytest.mark.parametrize("case", DATA)
def test_bad_input_is_refused_by_name_before_any_compile(case):
    call, *words = DATA[case]
    with counted() as found, pytest.raises((probml.DataError, probml.ModelError)) as error:
        call()
    text = str(error.value)
    for word in words:
        assert word in text, f"{word!r} not in: {text}"
    assert len(text) > 30, text
    assert found == []


def test_every_message_is_its_own():
    messages = {}
    for case, (call, *_) in DATA.items():
        with pytest.raises((probml.DataError, probml.ModelError)) as error:
            call()
        messages.setdefault(str(error.value), []).append(case)
    alike = [names for names in messages.values() if len(names) > 1
             and set(names) != {"no data", "None"}]
    assert not alike, alike
