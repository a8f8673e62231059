"""Python loops over continuous sites: their steps are one site, and their density is NumPyro's."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from numpyro.contrib.control_flow import scan

import probml
from plain_numpyro import drawn, log_density
from probml.dataset.read import read
from probml.interface.functions.read_function import read_function
from probml.jaxpr.program import equations

RNG = np.random.default_rng(7)
Y = RNG.normal(size=10)


def volatility(y):
    phi, s = sample("phi", dist.Beta(5.0, 2.0)), sample("s", dist.HalfNormal(1.0))
    h = 0.0
    for t in range(len(y)):
        h = sample(f"h_{t}", dist.Normal(phi * h, s))
        sample(f"y_{t}", dist.Normal(0.0, jnp.exp(h / 2)), obs=y[t])


def autoregression(y):
    a, s = sample("a", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0))
    for t in range(1, len(y)):
        sample(f"y_{t}", dist.Normal(a * y[t - 1], s), obs=y[t])


def predators(y):
    a = sample("a", dist.HalfNormal(0.1).expand([2]).to_event(1))
    u, v = sample("u_0", dist.LogNormal(0.0, 1.0)), sample("v_0", dist.LogNormal(0.0, 1.0))
    for t in range(1, len(y)):
        u, v = (sample(f"u_{t}", dist.LogNormal(jnp.log(u) + 0.1 - a[0] * v, 0.3)),
                sample(f"v_{t}", dist.LogNormal(jnp.log(v) - 0.1 + a[1] * u, 0.3)))
        sample(f"y_{t}", dist.Poisson(u + v), obs=jnp.floor(jnp.abs(y[t]) * 3))


def herd(y):
    s = sample("s", dist.HalfNormal(1.0))
    with plate("animals", 2):
        x = sample("begin", dist.Normal(0.0, 2.0))
        for t in range(8):
            x = sample(f"x{t}", dist.StudentT(4.0, 0.8 * x, s))
            numpyro.deterministic(f"twice{t}", 2 * x)
            sample(f"y{t}", dist.Normal(x, 1.0), obs=y[t])
    sample("end", dist.Normal(x.sum(), 1.0))


def vectors(y):
    s = sample("s", dist.HalfNormal(1.0))
    x = jnp.zeros(2)
    turn = jnp.array([[0.9, 0.2], [-0.1, 0.8]])
    for t in range(len(y)):
        x = sample(f"x[{t}]", dist.MultivariateNormal(turn @ x, s * jnp.eye(2)))
        sample(f"y[{t}]", dist.StudentT(4.0, x.sum(), 1.0), obs=y[t])


def odd(y):
    s, x = sample("s", dist.HalfNormal(1.0)), 0.0
    for t in range(len(y)):
        x = sample(f"x_{t}", dist.Cauchy(x, s) if t == 4 else dist.Normal(x, s))
        sample(f"y_{t}", dist.StudentT(4.0, x, 1.0) if t == 5 else dist.Laplace(x, 1.0), obs=y[t])


CASES = [(volatility, Y), (autoregression, Y), (herd, RNG.normal(size=(8, 2))), (odd, Y),
         *(pytest.param(*case, marks=pytest.mark.slow) for case in ((predators, Y), (vectors, Y)))]


@pytest.mark.parametrize(("function", "y"), CASES)
def test_the_density_of_a_loop_is_numpyros(function, y):
    params = drawn(function, y)
    want = log_density(function, (y,), {}, params)
    np.testing.assert_allclose(probml.model(function)().log_density({"y": y}, params), want,
                               rtol=1e-9)


def structure_of(function, y):
    met = read_function(probml.model(function)(), {"y": y})
    return met, read(met.model, met.data).structure


def test_what_is_compiled_does_not_grow_with_the_steps_and_is_told_of():
    def size(steps):
        _, structure = structure_of(volatility, RNG.normal(size=steps))
        assert set(structure.sites) == {"phi", "s", "h", "y_0"}
        return sum(1 for name in structure.sites
                   for _ in equations(structure.programs[name][0]))

    assert size(16) == size(32)
    assert "'h_0' … 'h_9' are read as the steps of one site, 'h'" in structure_of(volatility, Y)[0].why


def level(y):
    a, s = sample("a", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0))
    x = 0.0
    for t in range(len(y)):
        x = sample(f"x_{t}", dist.Normal(a * x + 0.1, s))
        sample(f"y_{t}", dist.Normal(2.0 * x - 1.0, 0.7), obs=y[t])


def test_missing_cells_of_a_loop_drop_out():
    def without(y):  # what the sixth step would say
        a, s = sample("a", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0))
        x = 0.0
        for t in range(len(y)):
            x = sample(f"x_{t}", dist.Normal(a * x + 0.1, s))
            if t != 5:
                sample(f"y_{t}", dist.Normal(2.0 * x - 1.0, 0.7), obs=y[t])

    y, p = np.where(np.arange(10) == 5, np.nan, Y), drawn(level, Y)
    got = probml.model(level)().log_density({"y": y}, p)
    np.testing.assert_allclose(got, log_density(without, (Y,), {}, p), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:NUTS")  # few draws
@pytest.mark.parametrize("way", ["loop", "scan"])
def test_steps_that_look_at_those_before_are_sampled(way):
    def loop(y):
        s, h = sample("s", dist.HalfNormal(1.0)), 0.0
        for t in range(len(y)):
            h = sample(f"h_{t}", dist.Normal(0.9 * h, s))
            sample(f"y_{t}", dist.StudentT(30.0, h, 0.5), obs=y[t])

    def by_scan(y):
        s = sample("s", dist.HalfNormal(1.0))

        def step(h, now):
            h = sample("h", dist.Normal(0.9 * h, s))
            sample("y", dist.StudentT(30.0, h, 0.5), obs=now)
            return h, None

        scan(step, 0.0, y)

    function = loop if way == "loop" else by_scan
    fit = probml.model(function)().fit({"y": Y}, probml.NUTS(draws=400, warmup=300, chains=2))
    mean = fit.params["h"]
    assert mean.shape == (10,) and np.corrcoef(mean, Y)[0, 1] > 0.5
    if way == "loop":
        np.testing.assert_allclose(fit.params["h_4"], mean[4])
