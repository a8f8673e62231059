"""NumPyro's scan with linear Gaussian sites: integrated out, as the joint normal has it."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from joint_normal import integral, joint_normal
from numpyro import plate, sample
from numpyro.contrib.control_flow import scan
from stan_guide import stochastic_volatility_of_stan

import probml
from plain_numpyro import log_density
from probml.dataset.read import read
from probml.interface.functions.read_function import read_function
from probml.jaxpr.program import equations

RNG = np.random.default_rng(3)
Y = 2.0 + RNG.normal(size=9).cumsum()


def level(y):
    q = sample("q", dist.HalfNormal(1.0))

    def step(before, now):
        x = sample("x", dist.Normal(0.9 * before + 0.1, q))
        numpyro.deterministic("twice", 2 * x)
        sample("y", dist.Normal(2.0 * x - 1.0, 0.7), obs=now)
        return x, x

    scan(step, 3.0, y)


def trend(y):
    """Two sites a step that look at each other, and a season handed on that is no site."""
    q = sample("q", dist.HalfNormal(1.0))
    begin = sample("begin", dist.Normal(0.0, 2.0))

    def step(carry, now):
        at, slope, season, t = carry
        slope = sample("slope", dist.Normal(slope, 0.1))
        at = sample("at", dist.Normal(at + slope, q))
        sample("y", dist.Normal(at + season[0], 0.5), obs=now)
        fresh = -season.sum() + 0.1 * slope
        return (at, slope, jnp.stack([fresh, season[0]]), t + 1), None

    scan(step, (begin, 0.0, jnp.array([0.3, -0.2]), 0), y)


def lagged(y):
    """States of two lags, seen before they move, from the last to the first."""
    a = sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1))

    def step(carry, now):
        one, two = carry
        sample("y", dist.Normal(one - 0.5 * two, 0.3), obs=now)
        x = sample("x", dist.Normal(a[0] * one + a[1] * two, 0.4))
        return (x, one), None

    scan(step, (jnp.array(1.0), jnp.array(2.0)), y, reverse=True)


def herd(y):
    """Animals in a plate, steps of their own size, what was seen before, counts beside."""
    q = sample("q", dist.HalfNormal(1.0))

    def step(carry, now):
        x, before, t = carry
        with plate("animals", 2):
            x = sample("x", dist.Normal(x + 0.2 * before, q * (1.0 + t)))
            sample("y", dist.Normal(x, 1.0), obs=now)
        sample("n", dist.Poisson(jnp.exp(0.1 * t)), obs=2)
        return (x, now, t + 1), None

    scan(step, (jnp.zeros(2), jnp.zeros(2), 0), y)


def two_scans(y):
    q = sample("q", dist.HalfNormal(1.0))
    for part in ("a", "b"):
        def step(x, now, part=part):
            x = sample(f"x_{part}", dist.Normal(x, q))
            sample(f"y_{part}", dist.Normal(x, 0.5), obs=now)
            return x, None

        scan(step, 0.0, y)


def vectors(y):
    """Numbers that are drawn, and seen, together."""
    rho = sample("rho", dist.Uniform(-1.0, 1.0))
    root = jnp.array([[1.0, 0.0], [rho, 0.5]])

    def step(x, now):
        x = sample("x", dist.MultivariateNormal(0.5 * x, scale_tril=root))
        sample("y", dist.MultivariateNormal(x[::-1] + 1.0, covariance_matrix=root @ root.T), obs=now)
        return x, None

    scan(step, jnp.zeros(2), y)


CASES = [(vectors, {"rho": 0.3}, RNG.normal(size=(7, 2))), (level, {"q": 0.5}, Y), (trend, {"q": 0.4, "begin": 1.0}, Y),
         (lagged, {"a": np.array([0.6, 0.3])}, Y),
         pytest.param(herd, {"q": 0.3}, RNG.normal(size=(7, 2)), marks=pytest.mark.slow),
         pytest.param(two_scans, {"q": 0.3}, Y, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("function", "params", "y"), CASES)
def test_a_linear_gaussian_scan_is_integrated_out_as_the_joint_normal_has_it(function, params, y):
    met = read_function(probml.model(function)(), {"y": y})
    assert "integrated out exactly (Kalman filter)" in met.reason
    got = probml.model(function)().log_density({"y": y}, params)
    np.testing.assert_allclose(got, integral(function, params, y), rtol=1e-9)


def test_unseen_cells_of_a_scan_that_is_integrated_out_drop_out():
    def without(y):
        q, x = sample("q", dist.HalfNormal(1.0)), 3.0
        for t in range(len(y)):
            x = sample(f"x_{t}", dist.Normal(0.9 * x + 0.1, q))
            if t != 4:
                sample(f"y_{t}", dist.Normal(2.0 * x - 1.0, 0.7), obs=y[t])

    holes = np.where(np.arange(9) == 4, np.nan, Y)
    got = probml.model(level)().log_density({"y": holes}, {"q": 0.5})
    np.testing.assert_allclose(got, integral(without, {"q": 0.5}, Y), rtol=1e-9)


def test_the_program_of_a_scan_that_is_integrated_out_does_not_grow():
    def size(steps):
        met = read_function(probml.model(level)(), {"y": np.ones(steps)})
        structure = read(met.model, met.data).structure
        assert set(structure.sites) == {"q", "y"}
        return sum(1 for name in structure.sites
                   for _ in equations(structure.programs[name][0]))

    assert size(10) == size(30)


def bent_link(y):
    def step(x, now):
        x = sample("x", dist.Normal(x, 0.5))
        sample("y", dist.Normal(jnp.exp(x), 0.7), obs=now)
        return x, None

    scan(step, 0.0, y)


def bent_move(y):
    def step(x, now):
        x = sample("x", dist.Normal(jnp.sin(x), 0.5))
        sample("y", dist.Normal(x, 0.7), obs=now)
        return x, None

    scan(step, 0.0, y)


def spread(y):
    def step(x, now):
        x = sample("x", dist.Normal(x, 0.5))
        sample("y", dist.Normal(0.0, jnp.abs(x)), obs=now)
        return x, None

    scan(step, 0.0, y)


def not_normal(y):
    def step(x, now):
        x = sample("x", dist.StudentT(4.0, x, 0.5))
        sample("y", dist.Normal(x, 0.7), obs=now)
        return x, None

    scan(step, 0.0, y)


@pytest.mark.parametrize("function", [bent_link, bent_move, spread, not_normal])
def test_scans_that_are_not_linear_are_sampled(function):
    x = jnp.asarray(RNG.normal(size=9))
    assert not read_function(probml.model(function)(), {"y": Y}).model.generative.integrated
    got = probml.model(function)().log_density({"y": Y}, {"x": x})
    np.testing.assert_allclose(got, log_density(function, (Y,), {}, {"x": x}), rtol=1e-9)


def test_values_of_steps_that_are_told_are_not_integrated_out():
    own = {"q": 0.5, "x": jnp.asarray(RNG.normal(size=9))}
    got = probml.model(level)().log_density({"y": Y}, own)
    np.testing.assert_allclose(got, log_density(level, (Y,), {}, own), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:NUTS")  # few draws
def test_steps_of_a_scan_are_answered_for_given_what_was_seen():
    fit = probml.model(level)().fit({"y": Y}, probml.MAP())
    _, h, k, back = joint_normal(level, {"q": fit.point["q"]}, Y)
    mean = np.asarray(back(jnp.linalg.solve(k, h))["x"])
    np.testing.assert_allclose(fit.params["x"], mean, atol=1e-8)
    np.testing.assert_allclose(fit.posterior("x").variance**0.5,
                               np.sqrt(np.diag(np.linalg.inv(k))), rtol=1e-8)
    np.testing.assert_allclose(fit.params["twice"], 2 * mean, atol=1e-8)
    assert fit.simulate(seed=1)["y"].shape == (9,)
    fit = probml.model(level)().fit({"y": Y}, probml.NUTS(draws=300, warmup=200, chains=2))
    draws = fit.draws(400)
    np.testing.assert_allclose(draws["twice"], 2 * draws["x"], rtol=1e-6)
    exact = fit.posterior("x")
    np.testing.assert_allclose(draws["x"].mean(0), exact.mean, atol=0.2)
    assert "x[3]" in fit.summary().index and fit.to_arviz().posterior["x"].shape == (2, 300, 9)


def test_a_scan_whose_steps_have_an_unseen_scale_is_a_hierarchy():
    """Its joint mode has no scale at all: nothing but 'h' tells 'sigma'."""
    model, data = probml.model(stochastic_volatility_of_stan)(), {"y": np.array([0.3, -1.0, 0.2, 1.5, -0.4])}
    told = str(model.explain(data))
    assert "the scale of h" in told and "its scale is estimated" in told
