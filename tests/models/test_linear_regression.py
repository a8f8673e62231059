"""Linear regression: brute force, quadrature, NIST's certified digits, scales by evidence against
scikit-learn, its estimator."""

import functools
import json
import pickle
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import sample
from scipy import stats
from scipy.optimize import minimize

pytest.importorskip("sklearn")
from sklearn.datasets import load_diabetes
from sklearn.linear_model import ARDRegression, BayesianRidge, Lasso, Ridge

import probml
from coded import codes
from contract import contract
from probml.models import (
    BayesianLinearRegression,
    gaussian_mixture,
    heteroscedastic_regression,
    lasso,
    linear_regression,
    polynomial,
    ridge,
)
from probml.models.regression import evidence
from probml.models.regression.moments import few_rows, merged, moments

nan = np.nan
TIGHT = 1e-9


def close(got, expected, tolerance=TIGHT):
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@functools.lru_cache
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 3))
    return x, x @ [1.0, -2.0, 0.5] + 0.3 + 0.4 * rng.normal(size=30)


@functools.lru_cache
def outputs():
    x, y = table()
    return np.column_stack([y, 2 * y + np.random.default_rng(1).normal(size=30)])


def design(x):
    return np.column_stack([x, np.ones(len(x))])


# The function, by Exact


def test_with_known_noise_the_evidence_is_a_normals():
    x, y = table()
    fit = linear_regression(weight_scale=[1.0, 2.0, 3.0], bias_scale=5.0,
                            noise=0.4).fit({"x": x, "y": y})
    h = design(x)
    whole = stats.multivariate_normal(np.zeros(30),
                                      h @ np.diag([1.0, 4.0, 9.0, 25.0]) @ h.T + 0.16 * np.eye(30))
    close(fit.log_evidence, whole.logpdf(y))
    assert fit.engine == "Exact()"


def test_with_unknown_noise_the_evidence_is_a_student_ts():
    x, y = table()
    fit = linear_regression(weight_scale=2.0, bias_scale=5.0, shape=3.0,
                            rate=2.0).fit({"x": x, "y": y})
    h = design(x)
    whole = stats.multivariate_t(
        np.zeros(30), 2 / 3 * (np.eye(30) + h @ np.diag([4.0, 4.0, 4.0, 25.0]) @ h.T), 6.0
    )
    close(fit.log_evidence, whole.logpdf(y))


def test_the_product_of_one_step_predictives_is_the_evidence():
    x, y = (value[:16] for value in table())  # 9 to 16 rows are one padded shape, compiled once
    model = linear_regression(weight_scale=2.0, bias_scale=5.0, shape=3.0, rate=2.0)
    steps = [model.fit({"x": x[:9], "y": y[:9]}).log_evidence]
    for i in range(9, 16):
        before = model.fit({"x": x[:i], "y": y[:i]})
        steps.append(before.log_prob({"x": x[i : i + 1], "y": y[i : i + 1]})[0])
    close(sum(steps), model.fit({"x": x, "y": y}).log_evidence, 1e-8)


def test_the_evidence_is_the_integral_over_weight_and_noise():
    x, y = table()[0][:6, :1], table()[1][:6]
    fit = linear_regression(weight_scale=2.0, bias_scale=0, shape=3.0,
                            rate=2.0).fit({"x": x, "y": y})

    log_variance, beta = np.linspace(-4, 8, 401), np.linspace(-40, 40, 4001)
    sd = np.exp(0.5 * log_variance)[:, None]
    log = stats.norm.logpdf(beta, 0,
                            2 * sd) + stats.invgamma.logpdf(sd**2, 3.0, scale=2.0) + 2 * np.log(sd)
    for row in range(6):
        log += stats.norm.logpdf(y[row], x[row] * beta, sd)
    whole = np.exp(log).sum() * (beta[1] - beta[0]) * (log_variance[1] - log_variance[0])
    close(fit.log_evidence, np.log(whole), 1e-6)


@pytest.mark.slow
def test_outputs_with_noises_of_their_own_are_regressions_of_their_own():
    x, y = table()[0], outputs()
    model, alone = linear_regression(outputs=2), linear_regression()
    fit, parts = model.fit({"x": x, "y": y}), [alone.fit({"x": x, "y": y[:, i]}) for i in range(2)]
    close(fit.log_evidence, sum(part.log_evidence for part in parts))
    close(fit.log_prob({"x": x, "y": y}),
          sum(part.log_prob({"x": x, "y": y[:, i]}) for i, part in enumerate(parts)))
    torn = np.where([[False, True]], nan, y)
    close(fit.log_prob({"x": x, "y": torn}), parts[0].log_prob({"x": x, "y": y[:, 0]}))


@probml.model
def two_views(x):
    """Two outputs that share weights and noise: their predictive is one vector's."""
    variance = sample("variance", dist.InverseGamma(2.0, 1.0))
    beta = sample("beta", dist.Normal(0.0, 2 * jnp.sqrt(variance)).expand([2]).to_event(1))
    with probml.rows():
        loc = jnp.stack([x[:, :2] @ beta, x[:, 0] * beta[1]], -1)
        sample("y", dist.Normal(loc, jnp.sqrt(variance)).to_event(1))


def test_outputs_that_share_weights_are_predicted_together():
    x, y = table()[0], outputs()
    fit = two_views().fit({"x": x, "y": y}, probml.Exact())
    h, both = (np.concatenate([x[:, :2], np.column_stack([0 * x[:, 0], x[:, 0]])]),
               np.concatenate([y[:, 0], y[:, 1]]))
    precision = h.T @ h + np.eye(2) / 4
    mean, a = np.linalg.solve(precision, h.T @ both), 2 + 30
    b = 1 + 0.5 * (both @ both - mean @ precision @ mean)
    row = np.array([x[3, :2], [0.0, x[3, 0]]])
    spread = np.eye(2) + row @ np.linalg.solve(precision, row.T)
    close(fit.log_prob({"x": x, "y": y})[3],
          stats.multivariate_t(row @ mean, b / a * spread, 2 * a).logpdf(y[3]))


@probml.model
def correlated(x):
    precision = sample("precision", dist.Wishart(5.0, rate_matrix=jnp.eye(2)))
    beta = sample("beta", dist.MultivariateNormal(
        jnp.zeros(2), precision_matrix=precision / 4
    ).expand([3]).to_event(1))
    with probml.rows():
        sample("y", dist.MultivariateNormal(x @ beta, precision_matrix=precision))


def test_outputs_of_unknown_covariance_are_refused_by_name():
    with pytest.raises(probml.Refusal, match=r"'precision', the covariance of the data.*"
                       r"'beta'.*Normal\(mean, scale\)\.to_event\(1\).*such as EM"):
        correlated().fit({"x": table()[0], "y": outputs()}, probml.Exact())


@pytest.mark.slow
def test_outputs_of_unknown_covariance_have_the_ridge_weights_by_em():
    x, y = table()[0], outputs()
    fit = correlated().fit({"x": x, "y": y}, probml.EM(tolerance=1e-12))
    np.testing.assert_allclose(fit.params["beta"],
                               np.linalg.solve(x.T @ x + np.eye(3) / 4, x.T @ y), atol=1e-5)


def test_a_polynomial_is_a_regression_on_powers_and_a_value():
    x, y = table()[0][:, :1], table()[1]
    fit = linear_regression(basis=polynomial(3)).fit({"x": x, "y": y})
    close(fit.log_evidence,
          linear_regression().fit({"x": np.column_stack([x, x**2, x**3]), "y": y}).log_evidence)
    assert pickle.loads(
        pickle.dumps(fit.model)
    ) == linear_regression(basis=polynomial(3)) != linear_regression(basis=polynomial(2))
    with pytest.raises(ValueError, match="degree=0.*at least 1"):
        polynomial(0)


def test_ridge_is_scikit_learns_by_map_and_by_the_mean():
    x, y = table()
    peer = Ridge(alpha=5.0).fit(x, y)
    for engine in (probml.MAP(), probml.Exact()):
        fit = ridge(penalty=5.0).fit({"x": x, "y": y}, engine)
        close([*fit.params["beta"], fit.params["intercept"]], [*peer.coef_, peer.intercept_], 1e-7)


def test_the_lasso_is_scikit_learns_zeros_included():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 20))
    y = x[:, :4] @ [3.0, -2.0, 1.0, 0.5] + 1 + rng.normal(size=100)
    peer = Lasso(alpha=0.1, tol=1e-12).fit(x, y)
    fit = lasso(penalty=10.0).fit({"x": x, "y": y}, probml.MAP())
    beta = fit.params["beta"]
    np.testing.assert_array_equal(beta, fit.params["left"] * fit.params["right"])
    assert fit.converged
    np.testing.assert_allclose(beta, peer.coef_, atol=1e-5)
    assert ((np.abs(beta) < 1e-6) == (peer.coef_ == 0)).all()


def test_the_signs_of_a_lassos_factors_are_no_maxima_of_their_own():
    x, y = table()
    fit = lasso(penalty=2.0).fit({"x": x, "y": y}, probml.MAP())
    assert fit.converged and "several-optima" not in codes(fit)
    peer = Lasso(alpha=2.0 / 30, tol=1e-12).fit(x, y)
    np.testing.assert_allclose(fit.params["beta"], peer.coef_, atol=1e-5)


def test_noise_that_varies_with_the_covariates_has_its_mode_found():
    x, _ = table()
    y = x @ [1.0, -2.0, 0.5] + np.exp(0.8 * x[:, 0] - 1) * np.random.default_rng(3).normal(size=30)
    fit = heteroscedastic_regression().fit({"x": x, "y": y}, probml.MAP())

    def loss(theta):
        beta, bias, gamma, level = theta[:3], theta[3], theta[4:7], theta[7]
        prior = stats.norm.logpdf(beta, 0, 10).sum() + stats.norm.logpdf(bias, 0, 1000)
        prior += stats.norm.logpdf(gamma).sum() + stats.norm.logpdf(level, 0, 10)
        return -prior - stats.norm.logpdf(y, x @ beta + bias, np.exp(x @ gamma + level)).sum()

    found = np.concatenate([fit.params["beta"], [fit.params["intercept"]], fit.params["gamma"],
                            [fit.params["level"]]])
    best = minimize(loss, found + 0.01, method="BFGS", options={"gtol": 1e-7})
    np.testing.assert_allclose(found, best.x, atol=1e-4)
    assert fit.params["gamma"][0] > 0.4


def test_unknown_words_and_unseen_covariates_are_refused_by_name():
    x, y = table()
    with pytest.raises(ValueError, match="weight_scale='both'.*'shared' or 'each'"):
        linear_regression(weight_scale="both").fit({"x": x, "y": y})
    with pytest.raises(ValueError, match="prior='cauchy'.*'laplace'"):
        linear_regression(prior="cauchy").fit({"x": x, "y": y})
    with pytest.raises(ValueError, match="'x'"):
        linear_regression().fit({"x": np.where(x > 2, nan, x), "y": y})


def test_a_direction_that_nothing_holds_is_refused_by_name():
    x, y = table()
    flat = linear_regression(weight_scale=1e9, bias_scale=1e9, noise=0.4)
    with pytest.raises(probml.Refusal,
                       match=r"'beta\[0\]', 'beta\[1\]', 'beta\[2\]' separately.*collinear"):
        flat.fit({"x": np.column_stack([x[:, :2], x[:, 0] + x[:, 1]]), "y": y}, probml.Exact())
    with pytest.raises(probml.Refusal,
                       match=r"'beta\[2\]', 'intercept' separately.*a constant column together with an intercept"):
        flat.fit({"x": np.column_stack([x[:, :2], np.ones(30)]), "y": y}, probml.Exact())


@pytest.mark.slow
def test_with_a_model_of_the_covariates_their_unseen_cells_are_integrated_out():
    """y | x of a joint normal is a regression; a row without x₂ is predicted by the regression on
    x₁ that the joint implies."""
    x, y = table()
    joint = np.column_stack([x[:, :2], y])
    fit = gaussian_mixture(k=1, d=3).fit(
        {"x": np.where(np.arange(90).reshape(30, 3) % 11 == 0, nan, joint)}, probml.EM(prior=False)
    )
    mean, covariance = fit.params["mean"][0], np.linalg.inv(fit.params["precision"][0])
    slope = covariance[2, 0] / covariance[0, 0]
    close(fit.impute({"x": [[1.0, nan, nan]]})["x"][0, 2], mean[2] + slope * (1.0 - mean[0]), 1e-8)


# NIST: least squares as the limit of a wide prior

SETS = {
    "norris": (12, 14),
    "pontius": (11, 13),
    "noint1": (14, 14),
    "longley": (10, 7),  # of a design of condition 5e9, 4e4 when its columns have one length
    "wampler1": (9, None),  # exact polynomials of degree 5: no residual
    "wampler2": (12, None),
    "wampler3": (9, 9),
}


def certified(shared_data, name):
    reference = json.loads((shared_data / "nist" / "nist_linear.json").read_text())["sets"][name]
    found = pd.read_csv(shared_data / "nist" / f"{name}.csv").to_numpy(float)
    y, x = found[:, 0], found[:, 1:]
    if "polynomial" in reference["model"]:
        x = x[:, :1] ** np.arange(1, len(reference["terms"]))
    return x if name == "noint1" else np.column_stack([np.ones(len(y)), x]), y, reference


def digits(got, expected):
    """The fewest certified digits that agree."""
    expected = np.asarray(expected)
    return -np.log10(
        np.max(np.abs(got - expected) / np.where(expected == 0, 1, np.abs(expected))) + 1e-16
    )


@pytest.mark.parametrize("name", SETS)
def test_moments_have_nists_digits(shared_data, name):
    x, y, reference = certified(shared_data, name)
    d, (weights, errors) = x.shape[1], SETS[name]
    found = moments(x, y, centred=False)
    posterior = evidence.posterior(found, d, np.zeros(0), reference["residual_sd"] ** 2)
    rest = evidence.problem(found, d, 0, centred=False)
    assert digits(posterior.mean, reference["coefficients"]) > weights - 1
    if errors:
        assert digits(np.sqrt((posterior.spread**2).sum(1)), reference["std_errors"]) > 12
        assert digits(np.sqrt(rest.residual_ss / rest.rows), reference["residual_sd"]) > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_exact_has_nists_digits_by_refinement(shared_data, name):
    x, y, reference = certified(shared_data, name)
    weights, errors = SETS[name]
    noise = reference["residual_sd"] or 1.0
    model = linear_regression(weight_scale=1e12 * noise / np.abs(x).max(0), bias_scale=0,
                              noise=noise)
    fit = model.fit({"x": x, "y": y}, probml.Exact())
    assert digits(fit.params["beta"], reference["coefficients"]) > weights
    if errors:
        spread = np.sqrt(np.diag(fit.posterior("beta").covariance_matrix))
        assert digits(spread, reference["std_errors"]) > errors


@pytest.mark.parametrize("name", ["longley", "swiss", "prostate"])
def test_a_flat_prior_is_least_squares_with_its_standard_errors(shared_data, name):
    """R's lm: noise and all; the noise by evidence is then the residual sum of squares over n − d −
    1."""
    reference = json.loads((shared_data / "fits" / f"lm_{name}.json").read_text())
    data = pd.read_csv(shared_data / "classic" / f"{name}.csv")
    if name == "prostate":
        z = (data.iloc[:, :8] - data.iloc[:, :8].mean()) / data.iloc[:, :8].std()
        data = z.assign(lpsa=data["lpsa"])[data["train"].astype(str).str.upper() == "TRUE"]
    target = {"longley": "Employed", "swiss": "Fertility", "prostate": "lpsa"}[name]
    x = data.drop(columns=target)
    estimator = BayesianLinearRegression(1e9).fit(x, data[target])
    expected = [reference["coefficients"][column] for column in x]
    np.testing.assert_allclose(estimator.coef_, expected, rtol=1e-8)
    np.testing.assert_allclose(estimator.intercept_, reference["coefficients"]["(Intercept)"], rtol=1e-8)
    np.testing.assert_allclose(estimator.alpha_**-0.5, reference["residual_sd"], rtol=1e-6)
    np.testing.assert_allclose(np.sqrt(np.diag(estimator.sigma_)),
                               [reference["std_errors"][column] for column in x], rtol=1e-6)
    for penalised in reference.get("ridge", []):
        scale = penalised["lambda"] ** -0.5
        # ESL's ridge penalises columns about their means in the training rows
        found = BayesianLinearRegression(scale, noise=1.0).fit(x, data[target])
        np.testing.assert_allclose(found.coef_, penalised["coefficients"], rtol=1e-6, atol=1e-8)


# Scales by evidence


def brute(x, y, ratio, variance, centred):
    """log N(y; 0, σ²(I + X diag ρ Xᵀ)), restricted to what is at right angles to 1 if centred."""
    covariance = variance * (np.eye(len(y)) + (x * ratio) @ x.T)
    if not centred:
        return stats.multivariate_normal(np.zeros(len(y)), covariance).logpdf(y)
    one = np.ones(len(y))
    inside = one @ np.linalg.solve(covariance, one)
    centre = one @ np.linalg.solve(covariance, y) / inside
    return stats.multivariate_normal(centre * one,
                                     covariance).logpdf(y) + 0.5 * np.log(2 * np.pi / inside)


@pytest.mark.parametrize("centred", [True, False])
def test_the_evidence_from_moments_is_that_of_the_rows(centred):
    x, y = table()
    found = moments(x, y, centred=centred)
    given, ratio = evidence.problem(found, 0, 3, centred=centred), np.array([0.3, 5.0, 40.0])
    scales = evidence.evaluate(given, ratio, [[0], [1, 2]], variance=0.2)
    close(scales.log_evidence, brute(x, y, ratio, 0.2, centred))
    h = x - x.mean(0) if centred else x
    shares = 1 - np.diag(np.linalg.inv(h.T @ h + np.diag(1 / ratio))) / ratio
    close(scales.effective, [shares[0], shares[1:].sum()])


@pytest.mark.parametrize("groups", [[[0, 1, 2]], [[0], [1], [2]], [[0, 1], [2]]],
                         ids=["one", "each", "some"])
@pytest.mark.parametrize("variance", [None, 0.5])
def test_the_chosen_scales_have_the_highest_evidence(groups, variance):
    x, y = table()
    given = evidence.problem(moments(x, y), 0, 3)
    found = evidence.choose(given, groups, variance=variance)
    of = np.concatenate([np.full(len(members), g) for g, members in enumerate(groups)])

    def loss(logs):
        return -evidence.evaluate(given, np.exp(logs)[of], groups, variance=variance).log_evidence

    best = minimize(loss, np.zeros(len(groups)), method="Nelder-Mead",
                    options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 5000})
    close(found.log_evidence, -best.fun, 1e-9)
    np.testing.assert_allclose(np.log(found.ratio), best.x[of], atol=1e-4)


def test_one_prior_scale_for_columns_of_unlike_units_is_told_where_it_holds_a_weight_back():
    random = np.random.default_rng(0)
    x = random.normal(size=(50, 3))
    y = x @ [1.0, -2.0, 0.5] + 0.3 * random.normal(size=50)
    with pytest.warns(RuntimeWarning, match="coefficient of column 2 is .* Standardise the columns"):
        unlike = BayesianLinearRegression().fit(x * [1e6, 1.0, 1e-6], y)
    assert abs(unlike.coef_[2] * 1e-6) < 0.01 and unlike.notes_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BayesianLinearRegression().fit(x * [1e3, 1e3, 1.0], y)  # differs, and matters little
        each = BayesianLinearRegression("each").fit(x * [1e6, 1.0, 1e-6], y)
    np.testing.assert_allclose(each.coef_ * [1e6, 1.0, 1e-6], [1.0, -2.0, 0.5], atol=0.2)


def test_a_column_that_does_not_help_is_left_out():
    x, y = table()
    noise = np.random.default_rng(4).normal(size=(30, 4))
    estimator = BayesianLinearRegression("each").fit(np.column_stack([x, noise]), y)
    assert (estimator.coef_[:3] != 0).all() and (estimator.coef_[3:] == 0).sum() >= 2
    assert np.isinf(estimator.lambda_[estimator.coef_ == 0]).all()


def test_one_scale_is_mackays_and_scikit_learns():
    x, y = table()
    tiny = dict.fromkeys(("alpha_1", "alpha_2", "lambda_1", "lambda_2"), 1e-14)
    peer = BayesianRidge(fit_intercept=False, tol=1e-12, max_iter=10000, compute_score=True,
                         **tiny).fit(x, y)
    ours = BayesianLinearRegression(fit_intercept=False).fit(x, y)
    close([ours.alpha_, ours.lambda_], [peer.alpha_, peer.lambda_], 1e-6)
    close(ours.coef_, peer.coef_, 1e-7)
    close(ours.sigma_, peer.sigma_, 1e-6)
    for got, expected in zip(ours.predict(x, return_std=True), peer.predict(x, return_std=True),
                             strict=True):
        close(got, expected, 1e-6)


def test_the_evidence_of_diabetes_is_not_below_scikit_learns(shared_data):
    reference = json.loads((shared_data / "fits" / "bayesridge_diabetes.json").read_text())
    x, y = load_diabetes(return_X_y=True)
    x, y = (x - x.mean(0)) / x.std(0), y - y.mean()
    estimator, peer = (BayesianLinearRegression(fit_intercept=False).fit(x, y),
                       reference["bayesian_ridge"])
    assert estimator.log_evidence_ >= peer["score_last"] - 1e-6
    np.testing.assert_allclose([estimator.alpha_, estimator.lambda_], [peer["alpha"], peer["lam"]], rtol=1e-4)
    np.testing.assert_allclose(estimator.coef_, peer["coef"], atol=1e-4)
    np.testing.assert_allclose(np.sqrt(np.diag(estimator.sigma_)), peer["coef_sd"], rtol=1e-5)
    given = evidence.problem(estimator.moments_, 0, 10, centred=False)
    for fixed in reference["log_evidence_fixed"]:
        noise = fixed["noise_precision"]
        found = evidence.evaluate(given, np.full(10, noise / fixed["weight_precision"]),
                                  [np.arange(10)], variance=1 / noise)
        np.testing.assert_allclose(found.log_evidence, fixed["log_evidence"], rtol=1e-9)


def test_a_scale_for_each_weight_has_no_lower_evidence_than_scikit_learns():
    x, y = load_diabetes(return_X_y=True)
    x, y = (x - x.mean(0)) / x.std(0), y - y.mean()
    tiny = dict.fromkeys(("alpha_1", "alpha_2", "lambda_1", "lambda_2"), 1e-12)
    peer = ARDRegression(fit_intercept=False, tol=1e-10, max_iter=5000, threshold_lambda=1e12,
                         **tiny).fit(x, y)
    ours = BayesianLinearRegression("each", fit_intercept=False).fit(x, y)
    given = evidence.problem(ours.moments_, 0, 10, centred=False)
    theirs = evidence.evaluate(given, peer.alpha_ / peer.lambda_, [np.arange(10)],
                               variance=1 / peer.alpha_)
    assert ours.log_evidence_ >= theirs.log_evidence
    np.testing.assert_allclose(ours.coef_, peer.coef_, atol=1e-2)


# Moments


def test_parts_and_few_rows_have_the_moments_of_all(monkeypatch):
    rng = np.random.default_rng(5)
    rows, weights = (1e6 + rng.normal(size=(500, 4)) @ rng.normal(size=(4, 4)),
                     rng.integers(0, 3, 500).astype(float))
    whole = moments(np.repeat(rows, weights.astype(int), axis=0))
    monkeypatch.setattr("probml.models.regression.moments.CELLS", 100)  # many pieces
    few, counts = few_rows(whole)
    for found in (
        moments(rows, None, weights),
        merged(moments(rows[:200], None, weights[:200]),
                          moments(rows[200:], None, weights[200:])),
        moments(few, None, counts),
    ):
        close(found.rows, whole.rows, 1e-12)
        close(found.mean, whole.mean, 1e-14)
        np.testing.assert_allclose(found.root.T @ found.root, whole.root.T @ whole.root, rtol=1e-7)


# The estimator


def test_the_fit_answers_as_the_estimator():
    x, y = table()
    estimator = BayesianLinearRegression("each").fit(x, y)
    fit, (mean, std) = estimator.fit_, estimator.predict(x, return_std=True)
    close(fit.params["beta"], estimator.coef_)
    close(fit.posterior("beta").covariance_matrix, estimator.sigma_)
    close(fit.log_prob(estimator.as_data(x, y)), stats.norm(mean, std).logpdf(y))
    close(fit.predict(estimator.as_data(x), "y") + y.mean(), mean)
    draws = fit.draws(4000, seed=0)["beta"]
    np.testing.assert_allclose(draws.std(0), np.sqrt(np.diag(estimator.sigma_)), rtol=0.1)
    again = pickle.loads(pickle.dumps(estimator))
    close(again.fit_.params["beta"], estimator.coef_)


@pytest.mark.slow
def test_several_outputs_are_estimators_of_their_own():
    x, y = table()[0], outputs()
    estimator = BayesianLinearRegression().fit(x, y)
    alone = [BayesianLinearRegression().fit(x, y[:, i]) for i in range(2)]
    mean, std = estimator.predict(x, return_std=True)
    for i, one in enumerate(alone):
        close(estimator.coef_[i], one.coef_)
        close(mean[:, i], one.predict(x))
        close(std[:, i], one.predict(x, return_std=True)[1])
        close([estimator.alpha_[i], estimator.lambda_[i], estimator.intercept_[i]],
              [one.alpha_, one.lambda_, one.intercept_])
    close(estimator.fit_.log_prob(estimator.as_data(x, y)), stats.norm(mean, std).logpdf(y).sum(1))


def test_units_and_offsets_do_not_matter_where_every_weight_has_its_scale():
    x, y = table()
    one = BayesianLinearRegression("each").fit(x, y)
    other = BayesianLinearRegression("each").fit(1e6 + x * [1e-3, 1.0, 1e4], 1e6 + 10 * y)
    np.testing.assert_allclose(other.predict(1e6 + x * [1e-3, 1.0, 1e4]), 1e6 + 10 * one.predict(x),
                               rtol=1e-10)


def test_collinear_and_constant_columns_and_few_rows_have_a_posterior():
    x, y = table()
    wide = np.column_stack([x, x[:, 0] + x[:, 1], np.full(30, 7.0)])
    estimator = BayesianLinearRegression().fit(wide, y)
    assert np.isfinite(estimator.coef_).all() and abs(estimator.coef_[4]) < 1e-12
    short = BayesianLinearRegression().fit(np.random.default_rng(2).normal(size=(5, 12)), y[:5])
    assert np.isfinite(short.coef_).all() and np.isfinite(
        short.predict(np.zeros((1, 12)), return_std=True)[1]
    ).all()
    exact = BayesianLinearRegression().fit(x, x @ [1.0, 2.0, 3.0])  # no noise at all
    np.testing.assert_allclose(exact.coef_, [1, 2, 3], rtol=1e-9)


@pytest.mark.slow
def test_float32_agrees_with_float64_at_a_large_offset():
    """A process of its own computes in JAX's default, float32."""
    program = (
        "import numpy as np, jax\n"
        "from probml.models import BayesianLinearRegression\n"
        "assert not jax.config.jax_enable_x64\n"
        "rng = np.random.default_rng(0); x = 1e6 + rng.normal(size=(30, 3)); y = x @ [1.0, -2.0, "
        "0.5] + 0.4 * rng.normal(size=30)\n"
        "estimator = BayesianLinearRegression().fit(x, y)\n"
        "assert 0.3 < estimator.alpha_ ** -0.5 < 0.5\n"
        "found = estimator.fit_.params['beta'], estimator.coef_, "
        "np.asarray(estimator.fit_.posterior('beta').covariance_matrix), estimator.sigma_\n"
        "np.testing.assert_allclose(found[0], found[1], rtol=1e-3)\n"
        "np.testing.assert_allclose(found[2], found[3], rtol=1e-3, atol=1e-3 * found[3].max())\n"
        "print('agrees')"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "agrees" in found.stdout, found.stderr


@pytest.mark.parametrize(
    ("estimator", "change", "words"),
    [
        (BayesianLinearRegression("both"), {},
         "weight_scale='both'.*'shared', 'each' or numbers above 0"),
        (BayesianLinearRegression(-1.0), {}, "weight_scale=-1.0.*above 0"),
        (BayesianLinearRegression([1.0, 2.0]), {}, "weight_scale.*one number for each column .3., got 2"),
        (BayesianLinearRegression(noise=0.0), {}, "noise=0.0.*above 0"),
        (BayesianLinearRegression(), {"x": [4, 1, nan]},
         "NaN: column 1 is missing in row 4.*gaussian_mixture"),
        (BayesianLinearRegression(), {"x": [4, 1, np.inf]}, "inf"),
        (BayesianLinearRegression(), {"y": [3, nan]}, "y contains NaN"),
        (BayesianLinearRegression(), {"rows": 1}, "n_samples=1.*noise"),
    ],
)
def test_what_cannot_be_fitted_is_refused_by_name(estimator, change, words):
    x, y = (value.copy() for value in table())
    if "x" in change:
        row, column, value = change["x"]
        x[row, column] = value
    if "y" in change:
        y[change["y"][0]] = change["y"][1]
    rows = change.get("rows", 30)
    with pytest.raises(ValueError, match=words):
        estimator.fit(x[:rows], y[:rows])


# some of these checks have fewer rows than columns
@pytest.mark.filterwarnings("ignore:BayesianLinearRegression. the noise")
@contract(BayesianLinearRegression())
def test_bayesian_linear_regression_keeps_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


def test_weight_scales_may_be_an_array():
    random = np.random.default_rng(0)
    x = random.normal(size=(30, 3))
    y = x @ [1.0, 2.0, 3.0] + 0.1 * random.normal(size=30)
    listed, array = (BayesianLinearRegression(weight_scale=scale).fit(x, y)
                     for scale in ([1.0, 2.0, 1e-6], np.array([1.0, 2.0, 1e-6])))
    np.testing.assert_array_equal(array.coef_, listed.coef_)
    assert abs(array.coef_[2]) < 1e-3 and array.lambda_.shape == (3,)


def test_a_predictive_keeps_its_width_where_float32_cannot_hold_a_step_of_its_coefficients():
    """Columns of a million beside a noise of 1: coefficients are known to 1e-7 of themselves."""
    x, y = (1e6 * part for part in table())
    wide, sure = design(x), np.diag([1.0, 1.0, 1.0, 1e-12])
    covariance = np.linalg.inv(wide.T @ wide + sure)
    spread = np.sqrt(1 + np.einsum("ij,jk,ik->i", wide, covariance, wide))
    right = stats.norm(wide @ covariance @ (wide.T @ y), spread).logpdf(y)
    with jax.enable_x64(False):
        found = ridge().fit({"x": x, "y": y}).log_prob({"x": x, "y": y})
    np.testing.assert_allclose(found, right, rtol=1e-3)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("double", [True, False])
def test_a_noise_that_one_row_lets_vanish_is_told(double):
    """What the log of a scale is computed of carries it to 0, where rounding alone ends a climb."""
    with jax.enable_x64(double):
        fit = heteroscedastic_regression().fit({"x": [[1.0, -2.0, 0.5]], "y": [3.0]},
                                               probml.MAP())
    assert not fit.converged and "scale-to-zero" in codes(fit)
