"""Vectors whose elements are columns of a table are read by the names of the columns, and answered
in the order in which the asker has them."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import polars
import pytest
from numpyro import plate, sample

import probml

NAMES = ["c", "a", "b"]
OTHER = ["a", "b", "c"]
RANDOM = np.random.default_rng(2)
SHARE = jnp.array([[0.1, 0.7], [0.5, 0.9], [0.3, 0.4]])


@probml.model
def clinic(u):
    slope = sample("slope", dist.Normal(0.0, 2.0).expand([3]).to_event(1))
    with probml.rows():
        ill = sample("ill", dist.Bernoulli(0.4))
        sample("x", dist.MultivariateNormal(
            jnp.array([0.0, 3.0, 6.0]) + (1.0 * ill + u @ slope)[..., None],
            jnp.array([[1.0, 0.5, 0.2], [0.5, 2.0, 0.3], [0.2, 0.3, 1.0]])))
        with plate("signs", 3):
            sample("s", dist.Bernoulli(SHARE[:, ill]))


def frame(values, names=NAMES):
    return pd.DataFrame(values, columns=names)


U = frame(RANDOM.normal(size=(9, 3)) * [1.0, 0.1, 0.5])
X = frame(RANDOM.normal(size=(9, 3)) + [0.0, 3.0, 6.0])
S = frame((RANDOM.random((9, 3)) < [0.3, 0.7, 0.4]).astype(float))
FIT = clinic().fit({"u": U, "x": X, "s": S, "ill": np.arange(9) % 2}, probml.MAP())
HOLES, SIGNS = X.copy(), S.copy()
HOLES.iloc[::2, 1], SIGNS.iloc[1::2, 0] = np.nan, np.nan
HERE = {"u": U, "x": HOLES, "s": SIGNS}
TABLES = {"another order": lambda table: table[OTHER],
          "another order and a further column": lambda table: table[OTHER].assign(z=1.0),
          "polars": lambda table: polars.from_pandas(table[OTHER])}
ASK = {
    "predict x": lambda data: FIT.predict(data, "x"),
    "an interval of x": lambda data: np.stack(FIT.predict(data, "x", interval=0.8)),
    "predict s": lambda data: FIT.predict(data, "s"),
    "predict_proba s": lambda data: FIT.predict_proba(data, "s"),
    "predict_proba of several": lambda data: FIT.predict_proba(data, ["s", "ill"])["s"],
    "impute x": lambda data: FIT.impute(data)["x"],
    "impute s": lambda data: FIT.impute(data)["s"],
    "decode s": lambda data: FIT.decode(data)["s"],
    "decide s": lambda data: FIT.decide(data, "s"),
    "simulate x": lambda data: FIT.simulate(given=data)["x"],
    "simulate s": lambda data: FIT.simulate(given=data)["s"],
}
WITHOUT = {"log_prob": lambda data: FIT.log_prob(data),
           "predict_proba ill": lambda data: FIT.predict_proba(data, "ill"),
           "predict ill": lambda data: FIT.predict(data, "ill"),
           "log_joint": lambda data: FIT.log_joint(data)}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("name", ASK)
def test_answers_about_elements_are_in_the_order_of_the_askers_columns(name, kind):
    data = {own: TABLES[kind](table) for own, table in HERE.items()}
    got, fitted = np.asarray(ASK[name](data)), np.asarray(ASK[name](HERE))
    axis = 2 if "interval" in name else 1
    want = np.take(fitted, [NAMES.index(column) for column in OTHER], axis)
    np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("name", WITHOUT)
def test_answers_about_rows_do_not_depend_on_the_order_of_columns(name, kind):
    data = {own: TABLES[kind](table) for own, table in HERE.items()}
    np.testing.assert_allclose(WITHOUT[name](data), WITHOUT[name](HERE), rtol=1e-5)


def test_a_distribution_is_in_the_fitted_order_or_refused():
    assert FIT.conditional(HERE, "x").event_shape == (3,)
    with pytest.raises(probml.DataError, match=r"another order.*x\[\['c', 'a', 'b'\]\]"):
        FIT.conditional(HERE | {"x": HOLES[OTHER]}, "x")


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(probml.DataError, match="lacks the column 'b'"):
        FIT.predict(HERE | {"x": HOLES.rename(columns={"b": "d"})}, "x")
