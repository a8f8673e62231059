"""Summaries by kind of model: their numbers beside the peers' own, and of every estimator a table
that has the user's names and no hole."""

import re
import sys
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import probml
from probml import models
from probml.interface.showing.estimates import Estimates
from probml.interface.showing.summaries import summarize

TESTING = Path(__file__).parent.parent / "testing"
if str(TESTING) not in sys.path:
    sys.path.insert(0, str(TESTING))
DATA = Path(__file__).parent.parent.parent.parent / "shared" / "data" / "classic"

# names of the inside that no summary may show
INSIDE = re.compile(r"\b(bias|intercept|beta|precision|noise|sd_\w+|corr_cholesky_\w+|\w+_probs|"
                    r"normal_mean)\b")


def table_of(name):
    if not (DATA / name).exists():
        pytest.skip(f"needs {name}")
    return pd.read_csv(DATA / name)


def estimators():
    import single

    return single.ESTIMATORS


def fitted(name):
    import single

    kind, make = single.ESTIMATORS[name]
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 3)) + 2 * (np.arange(40) % 2)[:, None]
    classes = np.where(np.arange(40) % 2 == 0, "lo", "hi")
    wide = pd.DataFrame(x, columns=["age", "weight", "height"])
    table = single.Table(x=wide.to_numpy(), y=x[:, 0] + random.normal(size=40), classes=classes,
                         counts=random.poisson(3.0, (40, 4)), codes=random.integers(0, 3, (40, 4)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make().fit(*single.KINDS[kind][0](table))


def test_a_mixed_model_prints_what_lme4_prints():
    sleep = table_of("sleepstudy.csv")
    found = models.MixedModel({"Subject": ["1", "Days"]}).fit(sleep[["Days", "Subject"]],
                                                              sleep["Reaction"]).summary()
    fixed, random = found["Fixed effects"], found["Random effects"]
    # lme4's published print of lmer(Reaction ~ Days + (Days | Subject))
    np.testing.assert_allclose(fixed["Estimate"], [251.405, 10.467], atol=1e-3)
    np.testing.assert_allclose(fixed["Std. Error"], [6.825, 1.546], atol=1e-3)
    assert list(fixed.index) == ["Intercept", "Days"]
    np.testing.assert_allclose(random["Std. Dev."], [24.741, 5.922, 25.592], atol=2e-3)
    assert [value for value in random["Corr"] if value] == ["0.07"]
    assert list(random.index) == [("Subject", "(Intercept)"), ("Subject", "Days"), ("Residual", "")]
    assert found.figures["REML log-likelihood"] == pytest.approx(-1743.628 / 2, abs=2e-3)
    assert "REML" in found.title and not INSIDE.search(str(found))


def test_a_logistic_regression_prints_what_is_published():
    heart = table_of("saheart.csv")
    x = heart[["sbp", "tobacco", "ldl", "famhist", "obesity", "alcohol", "age"]].assign(
        famhist=(heart["famhist"] == "Present").astype(float))
    ours = models.GeneralizedLinearModel("bernoulli").fit(x, heart["chd"]).summary()["Coefficients"]
    # Hastie, Tibshirani & Friedman, "The Elements of Statistical Learning", table 4.2
    published = {"Intercept": (-4.130, 0.964, -4.285), "sbp": (0.006, 0.006, 1.023),
                 "tobacco": (0.080, 0.026, 3.034), "ldl": (0.185, 0.057, 3.219),
                 "famhist": (0.939, 0.225, 4.178), "obesity": (-0.035, 0.029, -1.187),
                 "alcohol": (0.001, 0.004, 0.136), "age": (0.043, 0.010, 4.184)}
    assert list(ours.index) == list(published)
    np.testing.assert_allclose(ours[["Estimate", "Std. Error", "z"]],
                               np.array(list(published.values())), atol=4e-3)
    half = (ours["97.5%"] - ours["2.5%"]) / 2
    np.testing.assert_allclose(half, 1.96 * ours["Std. Error"], rtol=1e-3)


def test_a_mixture_shows_shares_means_deviations_and_correlations():
    random = np.random.default_rng(1)
    wide = pd.DataFrame(np.concatenate([random.normal([0, 5], [1, 2], (300, 2)),
                                        random.normal([80, 1], [2, 1], (100, 2))]),
                        columns=["length", "width"])
    estimator = models.GaussianMixture(2, prior=False, random_state=0).fit(wide)
    found = estimator.summary()
    assert list(found.keys()) == ["Mixing proportions", "Means", "Standard deviations",
                                  "Correlations"]
    np.testing.assert_allclose(found["Means"].to_numpy().T, estimator.means_, rtol=1e-5)
    sd = np.sqrt(np.diagonal(estimator.covariances_, axis1=1, axis2=2))
    np.testing.assert_allclose(found["Standard deviations"].to_numpy().T, sd, rtol=1e-5)
    cor = estimator.covariances_[:, 0, 1] / sd.prod(1)
    np.testing.assert_allclose(found["Correlations"].to_numpy()[0], cor, rtol=1e-4, atol=1e-6)
    errors = next(table.errors for table in found.tables if table.heading == "Standard deviations")
    counts = estimator.weights_ * 400
    # of components this far apart, those of a normal sample: σ / √(2n)
    np.testing.assert_allclose(errors.to_numpy().T, sd / np.sqrt(2 * counts)[:, None], rtol=0.05)
    assert not INSIDE.search(str(found))


@pytest.mark.slow
def test_errors_of_rotated_loadings_are_those_of_repeated_samples():
    random = np.random.default_rng(2)
    loadings = np.array([[0.9, 0], [0.8, 0.1], [0.7, -0.1], [0, 0.8], [0.1, 0.7], [-0.1, 0.6]])
    noise = 1 - (loadings**2).sum(1)
    made, errors = [], []
    for _ in range(120):
        rows = random.normal(size=(400, 2)) @ loadings.T + random.normal(size=(400, 6)) * noise**0.5
        found = models.FactorAnalysis(2, prior=False).fit(rows).summary(errors=len(errors) < 5)
        table = found.tables[0]
        made.append(table.values.to_numpy())
        if table.errors is not None:
            errors.append(table.errors.to_numpy())
    spread, told = np.std(made, 0), np.mean(errors, 0)
    assert np.isfinite(told).all()
    np.testing.assert_allclose(told, spread, rtol=0.35)
    assert np.median(told / spread) == pytest.approx(1.0, abs=0.1)


def test_a_function_of_parameters_has_the_delta_methods_error():
    random = np.random.default_rng(3)
    x = random.normal(size=(200, 1))
    y = 1.5 + 2.0 * x[:, 0] + random.normal(size=200)
    fit = models.GeneralizedLinearModel("normal").fit(x, y).fit_
    found = Estimates(fit).function(lambda beta, bias: beta[0] / bias, "beta", "intercept")
    own = fit._standard_errors_by_direction.root
    root = np.concatenate([own[name].reshape(len(own[name]), -1)
                           for name in ("intercept", "beta")], 1)
    covariance = root.T @ root
    bias, beta = (float(np.ravel(Estimates(fit).values[name])[0]) for name in ("intercept", "beta"))
    slope = np.array([-beta / bias**2, 1 / bias])
    assert float(found.error) == pytest.approx(float(np.sqrt(slope @ covariance @ slope)), rel=1e-6)
    assert float(found.value) == pytest.approx(beta / bias, rel=1e-9)


def test_a_posterior_has_means_sds_and_quantiles():
    random = np.random.default_rng(4)
    x = random.normal(size=(60, 2))
    fit = models.logistic_regression().fit(
        {"x": x, "y": (x[:, 0] > 0).astype(int) ^ (random.random(60) < 0.2)},
        probml.NUTS(chains=2, warmup=200, draws=200))
    found = summarize(fit)["Coefficients"]
    own = fit.summary()
    np.testing.assert_allclose(found["mean"], own["mean"].loc[["intercept", "beta[0]", "beta[1]"]],
                               rtol=1e-6)
    assert {"sd", "5%", "95%", "ess_bulk", "r_hat"} <= set(found)
    odds = Estimates(fit).function(lambda beta: jnp.exp(beta), "beta")
    assert odds.columns["mean"].shape == (2,) and (odds.columns["r_hat"] < 1.2).all()


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in (
    "NaiveBayes", "MixedModel", "FactorAnalysis", "KMedoids", "LatentClass") else pytest.mark.slow)
    for name in sorted(estimators())])
def test_every_estimator_has_a_summary_in_the_users_names(name):
    estimator = fitted(name)
    found = estimator.summary()
    text = str(found)
    assert name in found.title and not INSIDE.search(text.split("\n\n", 1)[-1]), text
    assert found.tables or found.figures, text
    for table in found.tables:
        numbers = table.values.select_dtypes("number").to_numpy(float)
        assert np.isfinite(numbers[~np.isnan(numbers)]).all()
        estimates = table.values.get("Estimate", table.values.get("mean"))
        if estimates is not None:
            assert np.isfinite(np.asarray(estimates, float)).all(), text
    assert found.to_dict()["tables"] == [] or found.to_dict()["tables"][0]["values"]
    assert found._repr_html_().count("<table") == min(len(found.tables), 20)


def test_a_fit_prints_the_tables_of_its_kind():
    random = np.random.default_rng(5)
    fit = models.gaussian_mixture(k=2, d=1).fit(
        {"x": random.normal(size=(50, 1))}, probml.EM(restarts=2))
    assert "Mixing proportions" in str(fit) and "precision" not in str(fit).split("\n\n", 1)[1]


def test_a_heading_that_is_not_there_is_named():
    random = np.random.default_rng(6)
    found = models.GaussianMixture(1).fit(random.normal(size=(30, 2))).summary(errors=False)
    with pytest.raises(KeyError, match="Means"):
        found["Coefficients"]


def test_a_loaded_fit_has_the_standard_errors_that_were_computed(tmp_path):
    random = np.random.default_rng(7)
    x = random.normal(size=(80, 2))
    estimator = models.LogisticRegression().fit(pd.DataFrame(x, columns=["a", "b"]),
                                                random.random(80) < 1 / (1 + np.exp(-x[:, 0])))
    before = estimator.summary()["Coefficients"]
    estimator.save(tmp_path / "estimator.npz")
    pd.testing.assert_frame_equal(probml.load(tmp_path / "estimator.npz").summary()["Coefficients"],
                                  before)
    fit = models.gaussian_mixture(k=1, d=2).fit({"x": x}, probml.MAP())
    before = fit.summary()
    fit.save(tmp_path / "fit.npz")
    pd.testing.assert_frame_equal(probml.load(tmp_path / "fit.npz").summary(), before)


def test_a_warning_calls_parameters_as_the_tables_do():
    """A class that never answers "no": a probability at 0."""
    random = np.random.default_rng(8)
    answers = random.random((60, 4)) < np.repeat([[1.0], [0.4]], 30, 0)
    estimator = models.LatentClass(2, prior=False, n_init=4).fit(
        pd.DataFrame(np.where(answers, "yes", "no"), columns=list("abcd")))
    found = estimator.summary()
    said = [str(each) for each in found.warnings if each.code.value == "boundary"]
    assert "'Probabilities of categories'" in said[0] and "_probs" not in str(found)
    assert found.figures["AIC"] == pytest.approx(
        2 * estimator.n_parameters_ - 2 * found.figures["log-likelihood"])
    assert found.figures["log-likelihood"] == pytest.approx(
        float(estimator.score_samples(pd.DataFrame(np.where(answers, "yes", "no"),
                                                   columns=list("abcd"))).sum()), rel=1e-5)


def test_a_hidden_markov_model_bears_the_name_of_its_series():
    random = np.random.default_rng(9)
    counts = pd.Series(random.poisson(np.repeat([2.0, 12.0], 30)), name="calls")
    estimator = models.HiddenMarkov(2, emission="poisson", n_init=2).fit(counts)
    found = estimator.summary()
    assert list(found["Poisson rates"].index) == ["calls"]
    assert found.figures["observations"] == 60
    assert found.figures["BIC"] == pytest.approx(estimator.bic(counts), rel=1e-5)


def test_probabilities_that_are_rounding_are_printed_as_0():
    from probml.interface.showing.summary import Table

    assert Table("", pd.DataFrame({"p": [1.0, 2e-16]})).printed()["p"].tolist() == ["1.000", "0"]
    units = pd.DataFrame({"Estimate": [5.0, 2e-16]})  # of a column in units of its own
    assert Table("", units).printed()["Estimate"].tolist() == ["5.000", "2e-16"]


def test_a_shape_that_no_data_have_checked_is_refused_by_the_summary():
    fit = models.gaussian_mixture(k=2, covariance="fulll").at({
        "weights": np.full(2, 0.5), "mean": np.zeros((2, 2)),
        "precision": np.stack([np.eye(2)] * 2)})
    with pytest.raises(probml.ModelError, match="covariance='fulll'"):
        repr(fit)
