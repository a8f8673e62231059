"""Python loops over continuous sites: their steps are one site, and their density is NumPyro's."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from joint_normal import integral, joint_normal
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
    assert "'h_0' … 'h_9' are read as the steps of one site, 'h'" in structure_of(volatility, Y)[0].reason


# Loops that are linear and Gaussian: integrated out


def level(y):
    a, s = sample("a", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0))
    x = 0.0
    for t in range(len(y)):
        x = sample(f"x_{t}", dist.Normal(a * x + 0.1, s))
        sample(f"y_{t}", dist.Normal(2.0 * x - 1.0, 0.7), obs=y[t])


def trend(y):
    s = sample("s", dist.HalfNormal(1.0))
    begin = sample("begin", dist.Normal(0.0, 2.0))
    at, slope = begin, 0.0
    for t in range(len(y)):
        slope = sample(f"slope_{t}", dist.Normal(slope, 0.1))
        at = sample(f"at_{t}", dist.Normal(at + slope, s))
        sample(f"seen_{t}", dist.Normal(at, 0.5), obs=y[t])
    sample("beside", dist.Normal(begin, 1.0), obs=0.3)


def turning(y):
    s = sample("s", dist.HalfNormal(1.0).expand([2]).to_event(1))
    x, turn = jnp.zeros(2), jnp.array([[0.9, 0.2], [-0.1, 0.8]])
    for t in range(len(y)):
        x = sample(f"x{t}", dist.Normal(turn @ x, s).to_event(1))
        sample(f"y{t}", dist.Normal(x.sum() + jnp.arange(2.0), 0.4).to_event(1), obs=y[t])


def lagged(y):
    """Two steps back, also what is seen."""
    a, s = sample("a", dist.Normal(0.0, 1.0).expand([2]).to_event(1)), sample("s", dist.HalfNormal(1))
    one = two = 5.0
    for t in range(len(y)):
        now = sample(f"x_{t}", dist.Normal(a[0] * one + a[1] * two, s))
        sample(f"y_{t}", dist.Normal(now - 0.5 * two, 0.3), obs=y[t])
        one, two = now, one


def many(y):
    """More numbers a step than a few."""
    s, x = sample("s", dist.HalfNormal(1.0)), jnp.zeros(10)
    for t in range(len(y)):
        x = sample(f"x_{t}", dist.Normal(0.5 * x + 0.4 * jnp.roll(x, 1), s).to_event(1))
        sample(f"y_{t}", dist.Normal(x, 1.0).to_event(1), obs=y[t])


def seen_at_once(y):
    """All states are seen by one site, some twice, and beside it."""
    q, b = sample("q", dist.HalfNormal(1.0)), sample("b", dist.Normal(0.0, 1.0))
    states, slope = [], 0.3
    for t in range(20):
        slope = sample(f"slope_{t}", dist.Normal(0.9 * slope, 0.2))
        before = states[-1] if states else 0.0
        states.append(sample(f"x_{t}", dist.Normal(before + slope, q)))
    path = numpyro.deterministic("path", jnp.stack(states))
    sample("y", dist.Normal(2.0 * path[jnp.arange(10)] + b, 0.5), obs=y)
    sample("again", dist.Normal(path[15:18], 0.3), obs=y[:3])
    sample("z", dist.Normal(states[3] - states[2], 0.4), obs=1.0)


def filled(y):
    """The same in an array."""
    q, x = sample("q", dist.HalfNormal(1.0)), jnp.zeros(20)
    for t in range(1, 20):
        x = x.at[t].set(sample(f"x_{t}", dist.Normal(0.8 * x[t - 1], q)))
    sample("y", dist.Normal(x[::2], 0.5), obs=y)


def differences(y):
    """Each number of one site depends on two steps of its own, the last on none."""
    q, x, states = sample("q", dist.HalfNormal(1.0)), 0.0, []
    for t in range(10):
        x = sample(f"x_{t}", dist.Normal(0.9 * x, q))
        states.append(x)
    loc = jnp.concatenate([jnp.diff(jnp.stack(states)), jnp.array([0.4])])
    sample("y", dist.Normal(loc, 0.5), obs=y)


LINEAR = [(differences, {"q": 0.5}, Y), (seen_at_once, {"q": 0.5, "b": 0.3}, Y), (filled, {"q": 0.5}, Y), (lagged, {"a": np.array([0.6, 0.3]), "s": 0.5}, Y),
          pytest.param(many, {"s": 0.5}, RNG.normal(size=(8, 10)), marks=pytest.mark.slow),
          (level, {"a": 0.8, "s": 0.5}, Y), (trend, {"s": 0.4, "begin": 1.0}, Y),
          pytest.param(turning, {"s": np.array([0.5, 0.3])}, RNG.normal(size=(9, 2)),
                       marks=pytest.mark.slow)]


@pytest.mark.parametrize(("function", "params", "y"), LINEAR)
def test_a_linear_gaussian_loop_is_integrated_out_as_the_joint_normal_has_it(function, params, y):
    want = integral(function, params, y)
    met = read_function(probml.model(function)(), {"y": y})
    assert met.model.generative.integrated
    np.testing.assert_allclose(probml.model(function)().log_density({"y": y}, params), want,
                               rtol=1e-9)


def test_unseen_cells_of_a_loop_that_is_integrated_out_drop_out():
    def without(y):  # what the sixth step would say
        a, s = sample("a", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0))
        x = 0.0
        for t in range(len(y)):
            x = sample(f"x_{t}", dist.Normal(a * x + 0.1, s))
            if t != 5:
                sample(f"y_{t}", dist.Normal(2.0 * x - 1.0, 0.7), obs=y[t])

    y, p = np.where(np.arange(10) == 5, np.nan, Y), {"a": 0.8, "s": 0.5}
    got = probml.model(level)().log_density({"y": y}, p)
    np.testing.assert_allclose(got, probml.model(without)().log_density({"y": Y}, p), rtol=1e-10)


@pytest.mark.slow
def test_steps_that_are_integrated_out_are_answered_for_by_their_names():
    y = 4 * Y  # far more than noise
    fit = probml.model(level)().fit({"y": y}, probml.MAP(), start={"a": 0.5, "x_3": 0.0})
    _, h, k, back = joint_normal(level, {n: fit.point[n] for n in ("a", "s")}, y)
    mean = back(jnp.linalg.solve(k, h))
    for t in (0, 4):
        np.testing.assert_allclose(fit.params[f"x_{t}"], mean[f"x_{t}"], atol=1e-8)
    np.testing.assert_allclose(fit.params["x"][4], mean["x_4"], atol=1e-8)
    spread = np.sqrt(np.diag(np.linalg.inv(k)))  # x_0 … x_9 in the order of their names
    np.testing.assert_allclose(fit.posterior("x_9").variance ** 0.5, spread[-1], rtol=1e-8)
    again = fit.simulate(seed=1)  # from steps as they are given what was seen
    assert np.corrcoef([again[f"y_{t}"] for t in range(10)], y)[0, 1] > 0.8
    assert "integrated out" in str(probml.model(level)().explain({"y": y}))
    at = {**fit.params, "x_3": 9.0}  # values that are told are not integrated out
    own = {name: at[name] for name in ("a", "s", *(f"x_{t}" for t in range(10)))}
    want = log_density(level, (y,), {}, own)
    np.testing.assert_allclose(probml.model(level)().log_density({"y": y}, own), want, rtol=1e-9)


@pytest.mark.slow
def test_what_is_computed_from_steps_that_are_integrated_out_is_in_params():
    def grown(y):
        s, x = sample("s", dist.HalfNormal(1.0)), 0.0
        for t in range(len(y)):
            x = sample(f"x_{t}", dist.Normal(x, 0.5))
            sample(f"y_{t}", dist.Normal(x, s), obs=y[t])
        numpyro.deterministic("last", 1.0 - 2.0 * x)
        numpyro.deterministic("factor", jnp.exp(x))

    fit = probml.model(grown)().fit({"y": Y}, probml.MAP())
    mean, variance = (float(np.asarray(own)) for own in (
        fit.posterior("x_9").mean, fit.posterior("x_9").variance))
    np.testing.assert_allclose(fit.params["last"], 1.0 - 2.0 * mean, rtol=1e-10)
    np.testing.assert_allclose(fit.params["factor"], np.exp(mean + variance / 2), rtol=0.1)
    again = probml.model(grown)().fit({"y": Y}, probml.MAP(), start=fit.params)
    np.testing.assert_allclose(again.params["last"], fit.params["last"], rtol=1e-5)


@pytest.mark.parametrize("link", [jnp.exp, lambda x: jnp.sqrt(x**2), jnp.abs, lambda x: 1.0 / x])
def test_links_that_are_not_straight_are_not_integrated_out(link):
    def bent(y):
        s, x = sample("s", dist.HalfNormal(1.0)), 0.0
        for t in range(len(y)):
            x = sample(f"x_{t}", dist.Normal(x, s))
            sample(f"y_{t}", dist.Normal(link(x), 0.7), obs=y[t])

    reading = read_function(probml.model(bent)(), {"y": Y}).model.generative
    assert not reading.integrated and set(reading.loops) == {"x"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:NUTS")  # few draws
def test_draws_of_steps_that_are_integrated_out_are_told_step_by_step():
    fit = probml.model(level)().fit({"y": Y}, probml.NUTS(draws=300, warmup=200, chains=2))
    draws = fit.draws(400)
    np.testing.assert_array_equal(draws["x"][:, 3], draws["x_3"])
    table, told = fit.summary(), fit.to_arviz()
    assert "x_3" in table.index and "x[3]" not in table.index
    assert set(told.log_likelihood.data_vars) == {f"y_{t}" for t in range(10)}
    exact = fit.posterior("x_3")  # averaged over draws of the parameters
    for mean, spread in ((draws["x_3"].mean(), draws["x_3"].std()),
                         (table.loc["x_3", "mean"], table.loc["x_3", "sd"]),
                         (float(told.posterior["x_3"].mean()), float(told.posterior["x_3"].std()))):
        np.testing.assert_allclose(mean, exact.mean, atol=0.2 * exact.variance**0.5)
        np.testing.assert_allclose(spread, exact.variance**0.5, rtol=0.2)


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


def test_an_optimum_at_zero_is_found_where_the_bounds_are_arrays():
    """A loop that is integrated out, the bounds of its scales computed by the function."""
    def levels(scales):
        def model(y):
            s, x = scales(), 0.0
            for t in range(len(y)):
                x = sample(f"x_{t}", dist.Normal(0.9 * x, s[0]))
                sample(f"y_{t}", dist.Normal(x, s[1]), obs=y[t])
        return probml.model(model)().fit({"y": np.tile([2.0, -2.0], 5)}, probml.MAP())

    one = levels(lambda: (sample("step", dist.Uniform(0, 5)), sample("noise", dist.Uniform(0, 5))))
    other = levels(lambda: sample("s", dist.Uniform(jnp.zeros(2), jnp.full(2, 5.0)).to_event(1)))
    for fit, name in ((one, "step"), (other, "s")):
        assert [(found.code.value, found.parameter) for found in fit.warnings] == [("boundary", name)]
    np.testing.assert_allclose(other.params["s"], [one.params["step"], one.params["noise"]], atol=2e-3)
