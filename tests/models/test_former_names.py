"""Names that parameters had before: they work with a warning that names the new one."""

import pickle

import jax
import numpy as np
import pytest

import probml
from probml.models import linear_regression, logistic_regression, mixed_model

OLD = pytest.warns(DeprecationWarning, match="the parameter 'bias' is now named 'intercept'")


def _rows(n=30):
    own = np.random.default_rng(0)
    x = own.normal(size=(n, 1))
    return {"x": x, "y": 1 + 2 * x[:, 0] + 0.3 * own.normal(size=n)}


@pytest.fixture(scope="module")
def fit():
    return linear_regression().fit(_rows(), probml.Exact())


def test_params_are_found_by_the_old_name(fit):
    assert {*fit.params} == {"beta", "intercept", "variance"}
    with OLD:
        assert fit.params["bias"] == fit.params["intercept"]
    with OLD:
        assert fit.params.get("bias") == fit.params["intercept"]
    assert "bias" in fit.params and "noise" not in fit.params
    with pytest.raises(KeyError):
        fit.params["slope"]
    with OLD:
        assert pickle.loads(pickle.dumps(fit)).params["bias"] == fit.params["intercept"]
    doubled = jax.tree.map(lambda own: 2 * own, fit.params)
    assert doubled["intercept"] == 2 * fit.params["intercept"]


def test_posterior_and_draws_are_found_by_the_old_name(fit):
    with OLD:
        old = fit.posterior("bias")
    assert float(old.mean) == float(fit.posterior("intercept").mean)
    drawn = fit.draws(5)
    with OLD:
        np.testing.assert_array_equal(drawn["bias"], drawn["intercept"])
    made = linear_regression().simulate(x=_rows()["x"], parameters=True)
    with OLD:
        assert made["bias"] == made["intercept"]


def test_values_may_be_given_by_the_old_name(fit):
    model, rows = linear_regression(), _rows()
    with OLD:
        old = model.at({"beta": [2.0], "bias": 1.0, "variance": 0.1})
    new = model.at({"beta": [2.0], "intercept": 1.0, "variance": 0.1})
    np.testing.assert_array_equal(old.log_prob(rows), new.log_prob(rows))
    with OLD:
        old = model.fit({**rows, "bias": 0.0}, probml.Exact())
    new = model.fit({**rows, "intercept": 0.0}, probml.Exact())
    np.testing.assert_array_equal(old.params["beta"], new.params["beta"])
    with pytest.raises(probml.ModelError, match="both are given. Drop 'bias'"):
        model.fit({**rows, "bias": 0.0, "intercept": 0.0})
    classes = {"x": rows["x"], "y": (rows["y"] > 1).astype(int)}
    with OLD:
        old = logistic_regression().fit(classes, probml.MAP(), start={"beta": [1.0], "bias": 0.0})
    new = logistic_regression().fit(classes, probml.MAP(), start={"beta": [1.0], "intercept": 0.0})
    np.testing.assert_array_equal(old.params["beta"], new.params["beta"])


def test_a_mixed_model_derives_the_names_from_its_groupings():
    model = mixed_model(effects={"bias": (3, 2), "site_spread": (3, 1)}, offset=0.0, trials=1)
    assert model.renamed == {
        "noise": "sigma", "bias_spread": "sd_bias", "bias_turn": "corr_cholesky_bias",
        "site_spread_spread": "sd_site_spread", "site_spread_turn": "corr_cholesky_site_spread"}


def test_rows_of_a_summary_are_found_by_the_old_name(fit):
    table = fit.summary()
    with OLD:
        assert table.loc["bias", "sd"] == table.loc["intercept", "sd"]
    with OLD:
        some = table["sd"][["bias", "beta[0]"]]
    np.testing.assert_array_equal(some, table["sd"][["intercept", "beta[0]"]])
    assert [*table.index] == ["beta[0]", "intercept", "variance"]
    with pytest.raises(KeyError):
        table.loc["slope"]
    again = pickle.loads(pickle.dumps(table))
    assert again.equals(table) and type(again) is type(table)
