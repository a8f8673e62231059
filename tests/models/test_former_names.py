"""Names that parameters had before: they work with a warning that names the new one, and files that
hold them load."""

import pickle
from pathlib import Path

import jax
import numpy as np
import pytest

import probml
from probml.models import linear_regression, logistic_regression, mixed_model

FILES = Path(__file__).parent / "former"  # saved by the version before the names changed
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


def test_a_file_of_before_loads_with_its_posterior():
    fit = probml.load(FILES / "linear_exact.npz")
    assert {*fit.params} == {"beta", "intercept", "variance"}
    np.testing.assert_allclose([fit.params["intercept"], *fit.params["beta"]],
                               [1.4827062, 2.3076825], rtol=1e-6)
    np.testing.assert_allclose(float(fit.posterior("intercept").mean), 1.4827062, rtol=1e-5)


def test_coordinates_of_a_file_of_before_are_put_in_the_order_of_the_new_names():
    # beta, bias, df, noise of before are beta, intercept, df, sigma
    fit = probml.load(FILES / "student_svi.npz")
    drawn = fit.draws(4000, seed=1)
    for name in ("beta", "intercept", "df", "sigma"):
        own = drawn[name].reshape(4000, -1)
        np.testing.assert_allclose(own.mean(0), np.ravel(fit.params[name]),
                                   atol=5 * own.std() / 4000**0.5)


def test_a_saved_estimator_of_before_prints_what_it_printed():
    model = probml.load(FILES / "mixed_estimator.npz")
    text = str(model.summary())
    for line in ("restricted maximum likelihood (REML)", "REML log-likelihood: -34.6534",
                 "Subject  (Intercept)     1.198     0.3261",
                 "x              0.3437     0.1349  0.43",
                 "Residual                0.3450    0.04910",
                 "Intercept    1.407     0.4277  3.290   0.001  0.5689  2.246",
                 "x            2.353     0.1498  15.71  <0.001   2.059  2.646"):
        assert line in text, text
    with pytest.warns(DeprecationWarning, match="'Subject_spread' is now named 'sd_Subject'"):
        old = model.fit_.params["Subject_spread"]
    np.testing.assert_array_equal(old, model.fit_.params["sd_Subject"])


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
