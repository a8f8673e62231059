"""What is observed outside a scan and looks at what it returns: the scan is integrated out as the joint
normal has it."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from joint_normal import integral, joint_normal
from numpyro import handlers, plate, sample
from numpyro.contrib.control_flow import scan
from numpyro.infer.util import log_density
from scipy.special import logsumexp

import probml
from probml.dataset.read import read
from probml.interface.functions.read_function import read_function
from probml.jaxpr.program import equations

RNG = np.random.default_rng(6)
Y, X = RNG.normal(size=7).cumsum(), RNG.normal(size=7)


def walk(length, q, start=0.0, name="x", reverse=False):
    def step(x, _):
        x = sample(name, dist.Normal(0.9 * x, q))
        return x, x

    return scan(step, start, None, length=length, reverse=reverse)


def level(y):
    """The path in a plate, beside a regression."""
    q, b = sample("q", dist.HalfNormal(1.0)), sample("b", dist.Normal(0.0, 1.0))
    _, path = walk(len(y), q)
    numpyro.deterministic("path", path)
    with plate("time", len(y)):
        sample("y", dist.Normal(2.0 * path + b * X - 1.0, 0.5), obs=y)


def trend(y):
    """Two leaves, of which one looks back; the last of what is handed on; something inside."""
    q = sample("q", dist.HalfNormal(1.0))

    def step(carry, t):
        at, slope = carry
        new = sample("slope", dist.Normal(0.8 * slope, 0.2))
        now = sample("at", dist.Normal(at + new, q))
        sample("inside", dist.Normal(now, 2.0), obs=0.1 * t)
        return (now, new), (now, {"moved": at + 0.5 * slope})

    last, (path, more) = scan(step, (0.0, 0.1), jnp.arange(7.0))
    sample("y", dist.Normal(path + more["moved"], 0.5), obs=y)
    sample("end", dist.Normal(last[0] - last[1], 0.3), obs=1.0)


def irregular(y):
    """Several numbers of one step, none of another, from the last to the first."""
    q = sample("q", dist.HalfNormal(1.0))
    last, path = walk(5, q, start=2.0, reverse=True)
    sample("y", dist.Normal(path[jnp.array([0, 0, 3, 4, 4, 4, 1])], 0.5), obs=y)
    sample("begin", dist.Normal(last, 0.4), obs=0.5)


def herd(y):
    """Animals in a plate, vectors seen together, another scan beside."""
    q = sample("q", dist.HalfNormal(1.0))

    def step(x, _):
        with plate("animals", 2):
            x = sample("x", dist.Normal(x, q))
        return x, x

    _, path = scan(step, jnp.zeros(2), None, length=4)
    _, other = walk(3, 0.5, name="other")
    root = jnp.array([[1.0, 0.0], [0.4, 0.6]])
    with plate("time", 4):
        sample("y", dist.MultivariateNormal(path @ root, scale_tril=root), obs=y[:4])
    sample("z", dist.Normal(other, 0.3), obs=y[4:, 0])


CASES = [(level, {"q": 0.5, "b": 0.3}, Y), (trend, {"q": 0.4}, Y), (irregular, {"q": 0.6}, Y),
         (herd, {"q": 0.3}, RNG.normal(size=(7, 2)))]


@pytest.mark.parametrize(("function", "params", "y"), CASES)
def test_a_path_that_is_observed_outside_is_integrated_out_as_the_joint_normal_has_it(function,
                                                                                     params, y):
    met = read_function(probml.model(function)(), {"y": y})
    assert met.model.generative.integrated
    got = probml.model(function)().log_density({"y": y}, params)
    np.testing.assert_allclose(got, integral(function, params, y), rtol=1e-9)


def test_where_a_path_is_looked_at_may_be_an_argument():
    def picked(y, at):
        q = sample("q", dist.HalfNormal(1.0))
        _, path = walk(5, q)
        sample("y", dist.Normal(path[at], 0.5), obs=y)

    at = np.array([0, 2, 2, 3, 4, 4, 1])
    met = read_function(probml.model(picked)(), {"y": Y, "at": at})
    assert met.model.generative.integrated and "'at'" in met.reason
    got = probml.model(picked)().log_density({"y": Y, "at": at}, {"q": 0.5})
    np.testing.assert_allclose(got, integral(lambda y: picked(y, at), {"q": 0.5}, Y), rtol=1e-9)


def test_unseen_cells_of_what_is_observed_outside_drop_out():
    def without(y):
        q, b = sample("q", dist.HalfNormal(1.0)), sample("b", dist.Normal(0.0, 1.0))
        _, path = walk(len(y), q)
        at = np.array([0, 1, 2, 3, 5, 6])
        sample("y", dist.Normal((2.0 * path + b * X - 1.0)[at], 0.5), obs=y[at])

    p = {"q": 0.5, "b": 0.3}
    holes = np.where(np.arange(7) == 4, np.nan, Y)
    got = probml.model(level)().log_density({"y": holes}, p)
    np.testing.assert_allclose(got, integral(without, p, Y), rtol=1e-9)


def test_a_scan_is_integrated_out_beside_discrete_sites():
    """One change point of all, and a kind for each of what is seen beside."""
    def changing(y, w):
        q = sample("q", dist.HalfNormal(1.0))
        change = sample("change", dist.Categorical(jnp.full(7, 1 / 7)))
        _, path = walk(len(y), q)
        sample("y", dist.Normal(path + 1.5 * (jnp.arange(7) >= change), 0.5), obs=y)
        with plate("kinds", len(w)):
            kind = sample("kind", dist.Bernoulli(0.3))
            sample("w", dist.Normal(2.0 * kind, q), obs=w)

    p, w = {"q": 0.5}, RNG.normal(size=3)
    met = read_function(probml.model(changing)(), {"y": Y, "w": w})
    assert met.model.generative.integrated

    def one(y):
        with handlers.block(hide=["kind", "w"]), handlers.substitute(data={"kind": jnp.zeros(3, int)}):
            changing(y, w)

    normal = lambda mean: -0.5 * ((w - mean) / 0.5) ** 2 - np.log(0.5 * np.sqrt(2 * np.pi))  # noqa: E731
    want = logsumexp([integral(one, {**p, "change": change}, Y) for change in range(7)]) + np.logaddexp(
        np.log(0.7) + normal(0.0), np.log(0.3) + normal(2.0)).sum()
    got = probml.model(changing)().log_density({"y": Y, "w": w}, p)
    np.testing.assert_allclose(got, want, rtol=1e-9)


def test_the_program_does_not_grow_with_the_steps():
    def seen(y):
        q = sample("q", dist.HalfNormal(1.0))
        _, path = walk(len(y), q)
        sample("y", dist.Normal(path, 0.5), obs=y)

    def size(steps):
        met = read_function(probml.model(seen)(), {"y": np.ones(steps)})
        structure = read(met.model, met.data).structure
        assert set(structure.sites) == {"q", "y"}
        return sum(1 for name in structure.sites
                   for _ in equations(structure.programs[name][0]))

    assert size(10) == size(30)


def bent_link(y):
    _, path = walk(len(y), 0.5)
    sample("y", dist.Normal(jnp.exp(path), 0.7), obs=y)


def spread(y):
    _, path = walk(len(y), 0.5)
    sample("y", dist.Normal(0.0, jnp.exp(path)), obs=y)


def differences(y):
    _, path = walk(len(y), 0.5)
    sample("y", dist.Normal(path - path.mean(), 0.7), obs=y)


def looked_at_by_an_unseen_site(y):
    _, path = walk(len(y), 0.5)
    z = sample("z", dist.Normal(path, 0.7))
    sample("y", dist.Normal(z, 0.7), obs=y)


@pytest.mark.parametrize("function", [bent_link, spread, differences, looked_at_by_an_unseen_site])
def test_what_is_not_straight_outside_is_sampled(function):
    params = {"x": jnp.asarray(RNG.normal(size=7))}
    if function is looked_at_by_an_unseen_site:
        params["z"] = jnp.asarray(RNG.normal(size=7))
    assert not read_function(probml.model(function)(), {"y": Y}).model.generative.integrated
    got = probml.model(function)().log_density({"y": Y}, params)
    np.testing.assert_allclose(got, log_density(function, (Y,), {}, params)[0], rtol=1e-9)


@pytest.mark.slow
def test_paths_are_answered_for_given_what_was_seen_outside():
    fit = probml.model(level)().fit({"y": Y}, probml.MAP())
    _, h, k, back = joint_normal(level, {name: fit.point[name] for name in ("q", "b")}, Y)
    mean = np.asarray(back(jnp.linalg.solve(k, h))["x"])
    np.testing.assert_allclose(fit.params["x"], mean, atol=1e-8)
    np.testing.assert_allclose(fit.params["path"], mean, atol=1e-8)
    np.testing.assert_allclose(fit.posterior("x").variance**0.5,
                               np.sqrt(np.diag(np.linalg.inv(k))), rtol=1e-8)
    assert fit.simulate(seed=1)["y"].shape == (7,)
