"""Effects of groups that are integrated by quadrature are answered about by the same nodes: means,
widths, densities, draws and predictions against a grid of each group's own density."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats as st
from numpyro import plate, sample

import probml

GROUPS, EACH = 12, 3

# name → the distribution of a row given its location and a covariate that is a whole number, draws
# of it, and its log density and mean by SciPy
ROWS = {
    "bernoulli": (lambda eta, n: dist.Bernoulli(logits=eta),
                  lambda y, eta, n: st.bernoulli.logpmf(y, 1 / (1 + np.exp(-eta))),
                  lambda eta, n: 1 / (1 + np.exp(-eta))),
    "probit": (lambda eta, n: dist.Bernoulli(0.5 * (1 + jnp.tanh(0.8 * eta))),
               lambda y, eta, n: st.bernoulli.logpmf(y, 0.5 * (1 + np.tanh(0.8 * eta))),
               lambda eta, n: 0.5 * (1 + np.tanh(0.8 * eta))),
    "poisson": (lambda eta, n: dist.Poisson(jnp.exp(eta)),
                lambda y, eta, n: st.poisson.logpmf(y, np.exp(eta)),
                lambda eta, n: np.exp(eta)),
    "binomial": (lambda eta, n: dist.Binomial(n, logits=eta),
                 lambda y, eta, n: st.binom.logpmf(y, n, 1 / (1 + np.exp(-eta))),
                 lambda eta, n: n / (1 + np.exp(-eta))),
    "negative binomial": (lambda eta, n: dist.NegativeBinomial2(jnp.exp(eta), 2.0),
                          lambda y, eta, n: st.nbinom.logpmf(y, 2, 2 / (2 + np.exp(eta))),
                          lambda eta, n: np.exp(eta)),
    "exponential": (lambda eta, n: dist.Exponential(jnp.exp(-eta)),
                    lambda y, eta, n: -eta - y * np.exp(-eta),
                    lambda eta, n: np.exp(eta)),
}


def effects(rows: str):
    @probml.model
    def grouped(g, n, groups: int):
        level = sample("level", dist.Normal(0.0, 2.0))
        tau = sample("tau", dist.HalfNormal(2.0))
        with plate("groups", groups):
            a = sample("a", dist.Normal(0.5, tau))
        with probml.rows():
            sample("y", ROWS[rows][0](level + a[g], n))

    return grouped(groups=GROUPS)


def data_of(rows: str) -> dict:
    rng = np.random.default_rng(7)
    g, n = np.repeat(np.arange(GROUPS), EACH), np.tile([3, 5, 8], GROUPS)
    eta = 0.4 + rng.normal(0, 1.5, GROUPS)[g]
    y = {"poisson": lambda: rng.poisson(np.exp(eta)),
         "negative binomial": lambda: rng.negative_binomial(2, 2 / (2 + np.exp(eta))),
         "exponential": lambda: rng.exponential(np.exp(eta)),
         "binomial": lambda: rng.binomial(n, 1 / (1 + np.exp(-eta)))}.get(
             rows, lambda: (rng.random(len(g)) < 1 / (1 + np.exp(-eta))) * 1)()
    return {"g": g, "n": n, "y": y}


def on_a_grid(rows: str, data: dict, level: float, tau: float):
    grid = 0.5 + np.linspace(-10, 10, 8001) * max(tau, 1e-3)
    _, log_density, mean = ROWS[rows]
    shares = []
    for j in range(GROUPS):
        at = data["g"] == j
        log = log_density(data["y"][at][:, None], level + grid, data["n"][at][:, None]).sum(0)
        share = np.exp(log + st.norm.logpdf(grid, 0.5, tau) - (
            log + st.norm.logpdf(grid, 0.5, tau)).max())
        shares.append(share / share.sum())
    return grid, np.array(shares), mean


@pytest.mark.parametrize("rows", [
    rows if rows in ("bernoulli", "binomial") else pytest.param(rows, marks=pytest.mark.slow)
    for rows in ROWS])
def test_answers_about_effects_are_those_of_each_groups_density(rows, tmp_path):
    data, model = data_of(rows), effects(rows)
    fit = model.fit(data, probml.MAP(progress=False))
    level, tau = float(fit.params["level"]), float(fit.params["tau"])
    grid, shares, mean = on_a_grid(rows, data, level, tau)
    middle = shares @ grid
    wide = np.sqrt(shares @ grid**2 - middle**2)
    found = fit.posterior("a")
    np.testing.assert_allclose(fit.params["a"], middle, atol=2e-3)
    np.testing.assert_allclose(found.mean, middle, atol=2e-3)
    np.testing.assert_allclose(np.sqrt(found.variance), wide, rtol=5e-3)
    at = middle + wide * np.array([-1.5, 0.0, 1.5])[:, None]
    right = [np.interp(at[:, j], grid, np.log(np.maximum(shares[j], 1e-300)))
             for j in range(GROUPS)]
    np.testing.assert_allclose(np.asarray(found.log_prob(at)).T,
                               np.array(right) - np.log(grid[1] - grid[0]), atol=0.02)
    assert np.isfinite(np.asarray(found.icdf(np.full(GROUPS, 0.025)))).all()
    draws = np.asarray(fit.draws(4000)["a"])
    np.testing.assert_allclose(draws.mean(0), middle, atol=0.08 * wide.max())
    np.testing.assert_allclose(draws.std(0), wide, rtol=0.06)
    new = {"g": np.arange(GROUPS), "n": np.full(GROUPS, 4)}
    finite = rows in ("bernoulli", "probit")
    answer = fit.predict_proba(new, "y")[:, 1] if finite else fit.predict(new, "y")
    right = (shares * mean(level + grid, np.full((GROUPS, 1), 4))).sum(1)
    np.testing.assert_allclose(answer, right, rtol=0.01, atol=2e-3)
    fit.save(tmp_path / "fit")
    again = probml.load(tmp_path / "fit", model)
    np.testing.assert_allclose(again.posterior("a").mean, found.mean, rtol=1e-6)
    np.testing.assert_allclose(again.draws(3)["a"], fit.draws(3)["a"], rtol=1e-5)


def test_a_member_without_rows_has_the_prior():
    data = {name: value[:-EACH] for name, value in data_of("bernoulli").items()}
    fit = effects("bernoulli").fit(data, probml.MAP(progress=False))
    found = fit.posterior("a")
    assert np.asarray(found.mean)[-1] == pytest.approx(0.5, abs=1e-3)
    assert np.sqrt(np.asarray(found.variance))[-1] == pytest.approx(float(fit.params["tau"]),
                                                                    rel=1e-3)


@pytest.mark.slow
def test_draws_of_effects_by_sampling_are_those_of_the_joint_posterior():
    data = data_of("bernoulli")
    fit = effects("bernoulli").fit(data, probml.NUTS(draws=1000, warmup=400, chains=2,
                                                     progress=False))
    drawn = {name: np.asarray(value) for name, value in fit.draws(400).items()}
    means = []
    for level, tau in zip(drawn["level"], drawn["tau"], strict=True):
        grid, shares, _ = on_a_grid("bernoulli", data, level, max(tau, 1e-2))
        means.append(shares @ grid)
    error = 4 * drawn["a"].std(0) / np.sqrt(400)
    assert (np.abs(drawn["a"].mean(0) - np.mean(means, 0)) < error + 0.02).all()
