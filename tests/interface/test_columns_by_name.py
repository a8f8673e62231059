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
    with pytest.raises(probml.DataError, match="has no column 'b'"):
        FIT.predict(HERE | {"x": HOLES.rename(columns={"b": "d"})}, "x")


# sequences that are tables, each with its own order of columns


@probml.model
def hidden():
    start = jnp.array([[-3.0, 5.0, 0.0], [3.0, 9.0, 1.0]])
    mean = sample("mean", dist.Normal(start, 1.0).to_event(2))
    with probml.rows():
        move = jnp.array([[0.8, 0.2], [0.3, 0.7]])
        z = sample("z", probml.MarkovChain(jnp.array([0.5, 0.5]), move))
        sample("x", dist.Normal(mean[z], 1.0).to_event(2))


@probml.model
def drifting():
    scale = sample("scale", dist.HalfNormal(1.0))
    with probml.rows():
        one = jnp.eye(3)
        level = sample("level", probml.GaussianChain(jnp.zeros(3), 9.0 * one, 0.9 * one,
                                                     0.25 * one))
        sample("x", dist.Normal(level, scale).to_event(2))


def sequences(lengths=(5, 7, 4)):
    return [frame(RANDOM.normal(size=(n, 3)) + [[-3.0, 5.0, 0.0], [3.0, 9.0, 1.0]][i % 2])
            for i, n in enumerate(lengths)]


ALIKE = sequences()
MIXED = [ALIKE[0], ALIKE[1][OTHER], ALIKE[2][["b", "a", "c"]]]
EQUAL = sequences((5, 5))
ORDERS = {"lengths that differ": (ALIKE, MIXED),
          "equal lengths": (EQUAL, [EQUAL[0], EQUAL[1][OTHER]]),
          "polars": (ALIKE, [polars.from_pandas(table) for table in MIXED]),
          "all in another order": (ALIKE, [table[OTHER] for table in ALIKE])}


@pytest.mark.parametrize("model", [hidden, drifting], ids=lambda m: m.__name__)
@pytest.mark.parametrize("name", ORDERS)
def test_sequences_are_matched_by_the_names_of_their_columns(name, model):
    alike, mixed = ORDERS[name]
    fit = model().fit({"x": alike}, probml.EM() if model is hidden else probml.MAP())
    np.testing.assert_allclose(fit.log_prob({"x": mixed}), fit.log_prob({"x": alike}), rtol=1e-4)
    if name != "all in another order":
        again = model().fit({"x": mixed}, probml.EM() if model is hidden else probml.MAP())
        np.testing.assert_allclose(again.log_joint({"x": alike}), fit.log_joint({"x": alike}),
                                   rtol=1e-3)
    got, want = fit.impute({"x": mixed})["x"], fit.impute({"x": alike})["x"]
    ahead, right = fit.forecast({"x": mixed}, 2)["x"], fit.forecast({"x": alike}, 2)["x"]
    low, lower = (fit.forecast({"x": data}, 2, interval=0.8)["x"].lower for data in (mixed, alike))
    for i, table in enumerate(mixed):
        at = [NAMES.index(column) for column in table.columns]
        np.testing.assert_allclose(got[i][: len(table)], np.asarray(want[i])[: len(table), at],
                                   rtol=1e-4)
        assert list(ahead[i].columns) == list(table.columns)
        for one, other in ((ahead, right), (low, lower)):
            np.testing.assert_allclose(one[i].to_numpy(), other[i].to_numpy()[:, at], rtol=1e-3,
                                       atol=1e-3)


def test_a_sequence_that_lacks_a_column_is_refused():
    short = [ALIKE[0], ALIKE[1].rename(columns={"a": "d"})]
    with pytest.raises(probml.DataError, match="has no column 'a'.*sequence 0"):
        hidden().fit({"x": short}, probml.EM())


# several data sets of one model


@probml.model
def centre():
    mean = sample("mean", dist.Normal(0.0, 10.0).expand([3]).to_event(1))
    with probml.rows():
        sample("x", dist.Normal(mean, 1.0).to_event(1))


@probml.model
def slopes(u):
    b = sample("b", dist.Normal(0.0, 10.0).expand([3]).to_event(1))
    with probml.rows():
        sample("y", dist.Normal(u @ b, 1.0))


Y = RANDOM.normal(size=9)
TWO = {"site": (centre, "mean", lambda rows, order: {"x": X[rows][order]}),
       "input": (slopes, "b", lambda rows, order: {"u": U[rows][order], "y": Y[rows]})}


@pytest.mark.parametrize("name", TWO)
def test_further_rows_are_added_by_the_names_of_their_columns(name):
    model, parameter, rows = TWO[name]
    fit = model().fit(rows(slice(None), NAMES), probml.MAP())
    first, moved = rows(slice(5), NAMES), rows(slice(5, None), OTHER)
    with pytest.raises(probml.DataError, match=r"'c', 'a', 'b' in some batches.*in others"):
        model().fit(lambda: iter([first, moved]), probml.MAP())
    streamed = model().fit(lambda: iter([first, rows(slice(5, None), NAMES)]), probml.MAP())
    for asked in (fit, streamed):
        np.testing.assert_allclose(asked.log_joint(rows(slice(None), OTHER)),
                                   fit.log_joint(rows(slice(None), NAMES)), rtol=1e-3)
    if name == "site":  # which has sufficient statistics
        part = model().fit(first, probml.EM())
        whole = model().fit(rows(slice(None), NAMES), probml.EM())
        np.testing.assert_allclose(part.update(moved).params[parameter], whole.params[parameter],
                                   rtol=1e-3, atol=1e-3)
        with pytest.raises(probml.DataError, match=r"merge: .*'c', 'a', 'b' in one fit.*in the other"):
            part.merge(model().fit(moved, probml.EM()))


# weights that are a Series


def test_weights_are_matched_to_rows_or_refused():
    table = pd.DataFrame({"y": [0.0, 10.0, 20.0]}, index=["a", "b", "c"])
    turned = pd.Series([1.0, 1.0, 100.0], index=["c", "b", "a"])
    model = line()
    fit = model.fit(table, probml.MAP(), weights=turned[table.index])
    asks = (lambda: model.fit(table, weights=turned),
            lambda: model.fit({"y": table["y"]}, weights=turned),
            lambda: fit.summary(table, weights=turned),
            lambda: fit.update(table, weights=turned),
            lambda: probml.compare({"a": fit}, table, weights=turned))
    for ask in asks:
        with pytest.raises(probml.DataError, match="the index of 'weights' has the same labels"):
            ask()
    model.fit(table, weights=turned.to_numpy())
    model.fit(table, weights=turned.reset_index(drop=True))


@probml.model
def line():
    mean = sample("mean", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("y", dist.Normal(mean, 1.0))
