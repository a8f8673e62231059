"""Models with inputs: linear regression, known and unknown noise, inputs as indices, smoothing."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy import stats

import probml
from cases import fitted, nan

TIGHT = 1e-8  # one linear solve in float64 with conditions of about a hundred


def close(got, expected, tolerance=TIGHT):
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@probml.model
def known_noise(d: int, x):
    beta = sample("beta", dist.Normal(0.0, 2.0).expand([d]).to_event(1))
    b = sample("b", dist.Normal(1.0, 3.0))
    with probml.rows():
        sample("y", dist.Normal(x @ beta + b, 0.5))


@probml.model
def unknown_noise(d: int, x):
    variance = sample("variance", dist.InverseGamma(3.0, 2.0))
    beta = sample("beta", dist.Normal(0.0, jnp.sqrt(variance / 0.25)).expand([d]).to_event(1))
    with probml.rows():
        sample("y", dist.Normal(x @ beta, jnp.sqrt(variance)))


@functools.lru_cache
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 2))
    return {"x": x, "y": x @ [1.5, -1.0] + 0.7 + 0.5 * rng.normal(size=20)}


def ridge():
    """Posterior of (beta, b) in known_noise."""
    x, y = table()["x"], table()["y"]
    h, prior = np.column_stack([x, np.ones(20)]), np.diag([1 / 4, 1 / 4, 1 / 9])
    covariance = np.linalg.inv(h.T @ h / 0.25 + prior)
    return h, covariance @ (h.T @ y / 0.25 + prior @ [0.0, 0.0, 1.0]), covariance


def test_regression_with_known_noise_has_the_ridge_posterior_and_evidence():
    h, loc, covariance = ridge()
    fit = known_noise(d=2).fit(table())
    assert "Exact" in fit.engine
    close([*fit.params["beta"], fit.params["b"]], loc)
    close(fit.posterior("beta").covariance_matrix, covariance[:2, :2])
    close(fit.posterior("b").scale ** 2, covariance[2, 2])
    whole = stats.multivariate_normal(h @ [0.0, 0.0, 1.0],
                                      h @ np.diag([4.0, 4.0, 9.0]) @ h.T + 0.25 * np.eye(20))
    close(fit.log_evidence, whole.logpdf(table()["y"]))


def test_draws_of_regression_weights_have_the_posterior_covariance():
    _, loc, covariance = ridge()
    draws = known_noise(d=2).fit(table()).draws(4000, seed=0)
    joint = np.column_stack([draws["beta"], draws["b"]])
    np.testing.assert_allclose(joint.mean(0), loc, atol=5 * np.sqrt(covariance.max() / 4000))
    np.testing.assert_allclose(np.cov(joint.T), covariance,
                               atol=5 * np.sqrt(2 / 4000) * covariance.max())


def test_the_predictive_of_a_regression_widens_by_the_posterior_of_its_weights():
    h, loc, covariance = ridge()
    fit = known_noise(d=2).fit(table())
    spread = np.sqrt(0.25 + np.einsum("ni,ij,nj->n", h, covariance, h))
    close(fit.predict({"x": table()["x"]}, "y"), h @ loc)
    close(fit.log_prob(table()), stats.norm(h @ loc, spread).logpdf(table()["y"]))


def test_regression_with_unknown_noise_is_normal_inverse_gamma():
    x, y = table()["x"], table()["y"]
    fit = unknown_noise(d=2).fit(table(), probml.Exact())
    precision = x.T @ x + 0.25 * np.eye(2)
    loc = np.linalg.solve(precision, x.T @ y)
    a, b = 3.0 + 20 / 2, 2.0 + 0.5 * (y @ y - loc @ precision @ loc)
    close([fit.posterior("variance").concentration, fit.posterior("variance").rate], [a, b])
    beta = fit.posterior("beta")
    close([beta.df, *beta.loc], [2 * a, *loc])
    close(beta.scale_tril @ beta.scale_tril.T, np.linalg.inv(precision) * b / a)
    whole = stats.multivariate_t(np.zeros(20), 2.0 / 3.0 * (np.eye(20) + x @ x.T / 0.25), 6.0)
    close(fit.log_evidence, whole.logpdf(y))


def test_the_predictive_of_a_regression_with_unknown_noise_is_student_t():
    x, y = table()["x"], table()["y"]
    fit = unknown_noise(d=2).fit(table(), probml.Exact())
    precision = x.T @ x + 0.25 * np.eye(2)
    loc = np.linalg.solve(precision, x.T @ y)
    a, b = 13.0, 2.0 + 0.5 * (y @ y - loc @ precision @ loc)
    spread = np.sqrt(b / a * (1 + np.einsum("ni,ij,nj->n", x, np.linalg.inv(precision), x)))
    close(fit.log_prob(table()), stats.t(2 * a, x @ loc, spread).logpdf(y))


@probml.model
def smoothing(covariance, tau: float, noise: float, h):
    beta = sample("beta", dist.MultivariateNormal(jnp.zeros(len(covariance)),
                                                  tau * jnp.asarray(covariance)))
    with probml.rows():
        sample("z", dist.Normal(h @ beta, noise))


def test_bayesian_smoothing_with_a_cubic_b_spline():
    """Hastie, Tibshirani & Friedman, The Elements of Statistical Learning, (8.28)."""
    from scipy.interpolate import BSpline

    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 3, 50))
    z = np.sin(2 * x) + 0.3 * rng.normal(size=50)
    knots = np.concatenate([[x[0]] * 4, np.quantile(x, [0.25, 0.5, 0.75]), [x[-1]] * 4])
    h = BSpline.design_matrix(x, knots, 3).toarray()
    assert h.shape == (50, 7)
    sigma, tau, noise = np.eye(7) + 0.3, 10.0, 0.3
    fit = smoothing(sigma, tau, noise).fit({"h": h, "z": z})
    expected = h @ np.linalg.solve(h.T @ h + noise**2 / tau * np.linalg.inv(sigma), h.T @ z)
    close(fit.predict({"h": h}, "z"), expected)


# Maximum likelihood and MAP


@probml.model
def free_noise(d: int, x):
    beta = sample("beta", dist.Normal(0.0, 10.0).expand([d]).to_event(1))
    b = sample("b", dist.Normal(0.0, 10.0))
    scale = sample("scale", dist.LogNormal(0.0, 1.0))
    with probml.rows():
        sample("y", dist.Normal(x @ beta + b, scale))


@pytest.mark.parametrize("engine", [probml.EM(prior=False, tolerance=0.0), probml.MAP(prior=False)],
                         ids=["EM", "MAP"])
def test_maximum_likelihood_regression_is_least_squares(engine):
    x, y = table()["x"], table()["y"]
    h = np.column_stack([x, np.ones(20)])
    weights = np.linspace(0.5, 2.0, 20)
    root = np.sqrt(weights)
    loc = np.linalg.lstsq(h * root[:, None], y * root, rcond=None)[0]
    fit = fitted(free_noise(d=2), table(), engine, weights=weights)
    close([*fit.params["beta"], fit.params["b"]], loc, 1e-5)  # L-BFGS
    close(fit.params["scale"], np.sqrt((weights * (y - h @ loc) ** 2).sum() / weights.sum()), 1e-5)


def test_em_and_map_agree_with_priors():
    em, climbed = (free_noise(d=2).fit(table(), probml.EM(tolerance=0.0)),
                   free_noise(d=2).fit(table(), probml.MAP()))
    for name in em.params:
        close(em.params[name], climbed.params[name], 1e-5)


@probml.model
def lines(k: int, x):
    """A line for every class; with z seen, k regressions."""
    with plate("class", k):
        beta = sample("beta", dist.Normal(0.0, 100.0))
        b = sample("b", dist.Normal(0.0, 100.0))
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.full(k, 1.0 / k)))
        sample("y", dist.Normal(beta[z] * x + b[z], 1.0))


def test_with_the_class_seen_every_class_has_its_own_line():
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=40), rng.integers(2, size=40)
    y = np.array([2.0, -1.0])[z] * x + np.array([0.0, 3.0])[z] + rng.normal(size=40)
    fit = lines(k=2).fit({"x": x, "z": z, "y": y}, probml.EM(prior=False, tolerance=0.0))
    for k in range(2):
        slope, shift = np.polyfit(x[z == k], y[z == k], 1)
        close([fit.params["beta"][k], fit.params["b"][k]], [slope, shift], 1e-6)


@probml.model
def shops(k: int, shop, price):
    """An integer input is an index."""
    with plate("shops", k):
        level = sample("level", dist.Normal(0.0, 5.0))
    slope = sample("slope", dist.Normal(0.0, 5.0))
    with probml.rows():
        sample("sales", dist.Normal(level[shop] + slope * price, 1.0))


def test_an_integer_input_is_an_index():
    rng = np.random.default_rng(2)
    shop, price = rng.integers(3, size=30), rng.normal(size=30)
    sales = np.array([1.0, 4.0, -2.0])[shop] - 2.0 * price + rng.normal(size=30)
    fit = shops(k=3).fit({"shop": shop, "price": price, "sales": sales})
    h = np.column_stack([shop == 0, shop == 1, shop == 2, price]).astype(float)
    loc = np.linalg.solve(h.T @ h + np.eye(4) / 25, h.T @ sales)
    close([*fit.params["level"], fit.params["slope"]], loc)
    new = {"shop": np.array([2, 0]), "price": np.array([0.0, 1.0])}
    close(fit.predict(new, "sales"), [loc[2], loc[0] + loc[3]])
    assert shops(k=3).simulate(shop=new["shop"], price=new["price"])["sales"].shape == (2,)


def test_unseen_outcomes_change_nothing():
    data = {**table(), "y": np.where(np.arange(20) < 15, table()["y"], nan)}
    short = {name: value[:15] for name, value in table().items()}
    one, other = known_noise(d=2).fit(data), known_noise(d=2).fit(short)
    close(one.params["beta"], other.params["beta"])
    close(one.log_evidence, other.log_evidence)


@probml.model
def two_stages(k: int):
    """A seen continuous site is the parent of another, in every class."""
    with plate("class", k):
        slope = sample("slope", dist.Normal(0.0, 5.0))
        shift = sample("shift", dist.Normal(0.0, 5.0))
        centre = sample("centre", dist.Normal(0.0, 5.0))
    with probml.rows():
        z = sample("z", dist.Categorical(jnp.full(k, 1.0 / k)))
        x = sample("x", dist.Normal(centre[z], 1.0))
        sample("y", dist.Normal(slope[z] * x + shift[z], 0.5))


@functools.lru_cache
def staged():
    rng = np.random.default_rng(5)
    z = rng.integers(2, size=12)
    x = np.array([-1.0, 2.0])[z] + rng.normal(size=12)
    return z, x, np.array([1.0, -2.0])[z] * x + 0.5 * rng.normal(size=12)


def test_a_seen_continuous_site_may_be_the_parent_of_another():
    z, x, y = staged()
    fit = two_stages(k=2).fit({"x": x, "y": y, "z": z}, probml.Exact())
    evidence = 12 * np.log(0.5)
    for k in range(2):
        xs, n = x[z == k], (z == k).sum()
        h = np.column_stack([xs, np.ones(n)])
        evidence += stats.multivariate_normal(np.zeros(n), np.eye(n) + 25).logpdf(xs)
        evidence += stats.multivariate_normal(np.zeros(n),
                                              0.25 * np.eye(n) + 25 * h @ h.T).logpdf(y[z == k])
        precision = h.T @ h / 0.25 + np.eye(2) / 25
        close([fit.params["slope"][k], fit.params["shift"][k]],
              np.linalg.solve(precision, h.T @ y[z == k] / 0.25))
    close(fit.log_evidence, evidence)


def test_a_row_whose_parent_and_child_are_unseen_says_nothing():
    z, x, y = staged()
    hole = np.arange(12) == 3
    data = {"x": np.where(hole, nan, x), "y": np.where(hole, nan, y), "z": z}
    one = two_stages(k=2).fit(data, probml.Exact())
    other = two_stages(k=2).fit({"x": x[~hole], "y": y[~hole], "z": z[~hole]}, probml.Exact())
    for name in one.params:
        close(one.params[name], other.params[name])
    with pytest.raises(probml.Refusal, match="'x'.*is inside .*continuous"):
        two_stages(k=2).fit({**data, "y": y}, probml.Exact())
