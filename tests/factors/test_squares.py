"""Regressions of normal rows as one matrix: the density of all rows is that of the rows one by one,
at any parameters, with its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.dataset.read import read
from probml.device.load import load
from probml.engines.start.prior import compiled_prior_point
from probml.evidence import density
from probml.fits.places import summarised
from probml.plan.sufficient_statistics import squared

N, D = 300, 3
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(N, D)) + [0.0, 100.0, 0.0]
GROUP = RANDOM.integers(4, size=N)


@probml.model
def line(x):
    alpha = sample("alpha", dist.Normal(0, 100))
    beta = sample("beta", dist.Normal(0, 10).expand([x.shape[-1]]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(5))
    with probml.rows():
        sample("y", dist.Normal(alpha + x @ beta, sigma))


@probml.model
def several(x, group):
    spread = sample("spread", dist.HalfNormal(5).expand([2]).to_event(1))
    offset = sample("offset", dist.Normal(0, 10).expand([4]).to_event(1))
    weight = sample("weight", dist.Normal(0, 10).expand([x.shape[-1], 2]).to_event(2))
    with probml.rows():
        sample("y", dist.Normal(x @ weight + 1 - 0.5 * offset[group][..., None],
                                spread / 2).to_event(1))
        sample("n", dist.Poisson(3.0))


@probml.model
def growing(x):
    beta = sample("beta", dist.Normal(0, 10).expand([x.shape[-1]]).to_event(1))
    sigma = sample("sigma", dist.HalfNormal(5))
    with probml.rows():
        sample("y", dist.Normal(x @ beta, sigma * jnp.exp(0.01 * x[..., 0])))


@probml.model
def twisted(x):
    a, b = sample("a", dist.Normal(0, 1)), sample("b", dist.Normal(0, 1))
    with probml.rows():
        sample("y", dist.Normal(a * b * x, 1.0))


@probml.model
def known_scale(x):
    beta = sample("beta", dist.Normal(0, 10).expand([3]).to_event(1))
    with probml.rows():
        sample("y", dist.Normal(x @ beta, 2.0))


@probml.model
def groups(group):
    with plate("groups", 4):
        level = sample("level", dist.Normal(0, 10))
    with probml.rows():
        sample("y", dist.Normal(level[group], 1.5))


Y = X @ [1.0, -2.0, 0.3] + 5 + 2 * RANDOM.normal(size=N)
TWO = np.stack([Y, 100 - Y + RANDOM.normal(size=N)], 1)
TWO[RANDOM.random(TWO.shape) < 0.2] = np.nan
CASES = {"line": (line(), {"x": X, "y": Y}), "two outputs with holes": (
    several(), {"x": X, "group": GROUP, "y": TWO, "n": RANDOM.poisson(3.0, N)})}


def loaded(model, data, weights=None):
    held = read(model, data)
    plan = held.plan()
    return plan, *load(held, plan, weights)


@pytest.mark.parametrize("case", CASES)
def test_the_density_of_squares_is_that_of_the_rows(case):
    plan, rows, known = loaded(*CASES[case], RANDOM.integers(3, size=N).astype(float))
    summary = summarised(plan, known, rows)
    assert squared(plan) == ("y",) and summary.squares.keys() == {"y"}
    middle = jax.jit(density.to_unbounded, static_argnums=0)(plan, compiled_prior_point(plan, known), known)

    @jax.jit
    def at(u, of):
        return density.log_posterior(plan, known, of)(u)

    for scale in (0.0, 0.1, 1.0):
        u = middle + scale * RANDOM.normal(size=middle.shape)
        (value, slope), (wanted, full) = at(u, summary), at(u, rows)
        np.testing.assert_allclose(value, wanted, rtol=1e-10)
        np.testing.assert_allclose(slope, full, rtol=1e-9, atol=1e-10 * np.abs(full).max())


def test_scales_that_differ_from_row_to_row_and_products_of_parameters_keep_their_rows():
    assert squared(loaded(growing(), {"x": X, "y": Y})[0]) == ()
    assert squared(loaded(twisted(), {"x": X[:, 0], "y": Y})[0]) == ()


def test_map_and_laplace_find_from_squares_what_they_find_from_rows(monkeypatch):
    model, data = CASES["line"]
    engines = probml.MAP(), probml.Laplace()
    monkeypatch.setattr("probml.fits.fitting.MIN_ROWS_FOR_SQUARES", N + 1)
    rows = [model.fit(data, engine) for engine in engines]
    monkeypatch.setattr("probml.fits.fitting.MIN_ROWS_FOR_SQUARES", N)
    monkeypatch.setattr("probml.engines.optimization.maximization.SAMPLE_ROWS", 10)  # none of rows not held
    for engine, one in zip(engines, rows, strict=True):
        other = model.fit(data, engine)
        for name, value in one.params.items():
            np.testing.assert_allclose(other.params[name], value, rtol=1e-6)
        np.testing.assert_allclose(other.history[-1], one.history[-1], rtol=1e-10)
        with pytest.raises(probml.Refusal, match="has no sufficient statistics"):
            other.merge(one)


def test_nuts_draws_the_conjugate_posterior_from_squares(monkeypatch):
    monkeypatch.setattr("probml.fits.fitting.MIN_ROWS_FOR_SQUARES", N)
    precision = X.T @ X / 4 + np.eye(3) / 100
    root = np.linalg.cholesky(precision)
    parts = [{"x": X[some], "y": Y[some]} for some in (slice(0, 170), slice(170, N))]
    for data in {"x": X, "y": Y}, lambda: iter(parts):  # in memory, and read in parts
        fit = known_scale().fit(data, probml.NUTS(draws=300, warmup=200, chains=2))
        away = fit.params["beta"] - np.linalg.solve(precision, X.T @ Y / 4)
        assert away @ precision @ away < 0.3
        drawn = fit.draws(600)["beta"]
        np.testing.assert_allclose(root.T @ np.cov(drawn.T) @ root, np.eye(3), atol=0.35)


def test_columns_that_say_the_same_are_no_obstacle(monkeypatch):
    monkeypatch.setattr("probml.fits.fitting.MIN_ROWS_FOR_SQUARES", N)
    x = np.concatenate([X, X[:, :1]], 1)
    fit = line().fit({"x": x, "y": Y}, probml.MAP())
    np.testing.assert_allclose(fit.params["beta"][0], fit.params["beta"][3], rtol=1e-6)
    assert np.isfinite(fit.history).all()


def test_float32_has_the_gradient_of_double():
    y = (1e3 + X[:, 0] + 0.1 * RANDOM.normal(size=N)).astype(np.float32)
    model, data = line(), {"x": X.astype(np.float32), "y": y}
    point = {"alpha": 1e3, "beta": np.array([1.0, 0.0, 0.0]), "sigma": 0.1}

    def slope(kind):
        plan, rows, known = loaded(model, data)
        summary = summarised(plan, known, rows)
        u = jax.jit(density.to_unbounded, static_argnums=0)(plan, {name: kind(value) for name, value in point.items()}, known)
        return np.asarray(jax.jit(density.log_posterior(plan, known, summary))(u)[1])

    exact = slope(np.float64)
    with jax.enable_x64(False):
        found = slope(np.float32)
    np.testing.assert_allclose(found, exact, rtol=2e-3, atol=2e-3 * np.abs(exact).max())


def test_plates_of_coefficients_seen_by_index_are_affine():
    plan, rows, known = loaded(groups(), {"group": GROUP, "y": Y})
    found = summarised(plan, known, rows).squares["y"]
    np.testing.assert_allclose(np.diagonal(found.gram[0])[:4], np.bincount(GROUP), rtol=1e-12)
    np.testing.assert_allclose(found.about, [Y[GROUP == g].mean() for g in range(4)], rtol=1e-4)
