"""What a Python loop computes step by step from what it has computed: one step under a scan, and
NumPyro's density."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from plain_numpyro import drawn, log_density
from probml.dataset.read import read
from probml.interface.functions.read_function import read_function
from probml.jaxpr.program import equations

RNG = np.random.default_rng(5)
Y = RNG.normal(size=14)


def volatility_by_sites(y):
    mu = sample("mu", dist.Normal(0.0, 1.0))
    a = sample("a", dist.Uniform(0.0, 1.0).expand([3]).to_event(1))
    s = 0.5
    for t in range(len(y)):
        if t:
            s = jnp.sqrt(a[0] + a[1] * (y[t - 1] - mu) ** 2 + a[2] * s**2)
            numpyro.deterministic(f"s_{t}", s)
        sample(f"y_{t}", dist.Normal(mu, s), obs=y[t])


def volatility_stacked(y):
    mu = sample("mu", dist.Normal(0.0, 1.0))
    a = sample("a", dist.Uniform(0.0, 1.0).expand([3]).to_event(1))
    s = [jnp.array(0.5)]
    for t in range(1, len(y)):
        s.append(jnp.sqrt(a[0] + a[1] * (y[t - 1] - mu) ** 2 + a[2] * s[-1] ** 2))
    sample("y", dist.Normal(mu, jnp.stack(s)), obs=y)


def standardised(y):
    """A walk of standardised steps, each a site."""
    phi, s = sample("phi", dist.Beta(5.0, 2.0)), sample("s", dist.HalfNormal(1.0))
    h = 0.0
    for t in range(len(y)):
        h = phi * h + s * sample(f"e_{t}", dist.Normal(0.0, 1.0))
        sample(f"y_{t}", dist.Normal(0.0, jnp.exp(h / 2)), obs=y[t])


def standardised_in_a_plate(y):
    """The same, all steps one site of a plate."""
    phi, s = sample("phi", dist.Beta(5.0, 2.0)), sample("s", dist.HalfNormal(1.0))
    with plate("time", len(y)):
        e = sample("e", dist.Normal(0.0, 1.0))
    h = [s * e[0]]
    for t in range(1, len(y)):
        h.append(phi * h[-1] + s * e[t])
    sample("y", dist.Normal(0.0, jnp.exp(jnp.stack(h) / 2)), obs=y)


def smoothing(y):
    """Holt and Winters's level, slope and season of four."""
    a = sample("a", dist.Beta(2.0, 2.0).expand([3]).to_event(1))
    season = list(sample("season", dist.Normal(0.0, 1.0).expand([4]).to_event(1)))
    at, slope = y[0], 0.0
    for t in range(len(y)):
        sample(f"y_{t}", dist.Normal(at + slope + season[t], 0.5), obs=y[t])
        new = a[0] * (y[t] - season[t]) + (1 - a[0]) * (at + slope)
        season.append(a[2] * (y[t] - at - slope) + (1 - a[2]) * season[t])
        at, slope = new, a[1] * (new - at) + (1 - a[1]) * slope


def averages(y):
    theta = sample("theta", dist.Normal(0.0, 0.5).expand([2]).to_event(1))
    errors = [0.0, 0.0]
    for t in range(len(y)):
        at = theta[0] * errors[-1] + theta[1] * errors[-2]
        sample(f"y_{t}", dist.Normal(at, 1.0), obs=y[t])
        errors.append(y[t] - at)


def counts(y):
    """A rate of counts that looks at counts."""
    a = sample("a", dist.Uniform(0.0, 0.5).expand([3]).to_event(1))
    rate = 1.0
    for t in range(len(y)):
        sample(f"n_{t}", dist.Poisson(rate), obs=jnp.floor(jnp.abs(3 * y[t])))
        rate = 0.1 + a[0] + a[1] * jnp.floor(jnp.abs(3 * y[t])) + a[2] * rate


def filled(y):
    """An array that is filled element by element."""
    a = sample("a", dist.Uniform(0.0, 1.0).expand([3]).to_event(1))
    mu = jnp.zeros(len(y)).at[0].set(a[2])
    for t in range(1, len(y)):
        mu = mu.at[t].set(a[0] * mu[t - 1] + a[1] * y[t - 1])
    sample("y", dist.Normal(mu, 0.5), obs=y)


FUNCTIONS = [volatility_by_sites, volatility_stacked, standardised, smoothing, filled]
OTHERS = [standardised_in_a_plate, averages, counts]


@pytest.mark.parametrize("function", [
    *FUNCTIONS, *(pytest.param(own, marks=pytest.mark.slow) for own in OTHERS)])
def test_a_recursion_has_numpyros_density(function):
    params = drawn(function, Y)
    want = log_density(function, (Y,), {}, params)
    got = probml.model(function)().log_density({"y": Y}, params)
    np.testing.assert_allclose(got, want, rtol=1e-9)


@pytest.mark.parametrize("function", [*FUNCTIONS[:-1], *OTHERS])
def test_the_program_of_a_recursion_does_not_grow_with_its_steps(function):
    def size(steps):
        met = read_function(probml.model(function)(), {"y": RNG.normal(size=steps)})
        structure = read(met.model, met.data).structure
        return sum(1 for name, (program, *_) in structure.programs.items()
                   for _ in equations(program) if name in structure.sites)

    assert size(20) == size(32)


@pytest.mark.slow
def test_what_a_recursion_computes_is_among_the_answers():
    fit = probml.model(volatility_by_sites)().fit({"y": Y}, probml.MAP())
    mu, a, s = fit.params["mu"], fit.params["a"], 0.5
    for t in range(1, 14):
        s = np.sqrt(a[0] + a[1] * (Y[t - 1] - mu) ** 2 + a[2] * s**2)
        np.testing.assert_allclose(fit.params[f"s_{t}"], s, rtol=1e-6)
