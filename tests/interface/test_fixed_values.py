"""A value that handlers.condition gives, or a number that the function observes, is part of the
model: it stays where rows are drawn, as in NumPyro's Predictive, the density has its factor, and
the function keeps its rows. Oracles: NumPyro's log_density, standard deviations and means by hand.
"""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers, plate, sample
from numpyro.contrib.control_flow import scan
from numpyro.infer.util import log_density

import probml

X, G = np.array([0.0, 1.0, 2.0, -1.0, 0.5]), np.array([0, 1, 2, 1, 0])
Y, U = X + 0.3, np.array([0.1, 0.2, 2.0])


def effects(x, g, y=None):
    a, s = sample("a", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0))
    with plate("groups", 3):
        u = sample("u", dist.Normal(a, s))
    with plate("n", len(x)):
        sample("y", dist.Normal(u[g] + x, s), obs=y)


def inside(x, g, y=None):
    with handlers.condition(data={"s": 0.01, "a": 0.5}):
        effects(x, g, y)


def literal(x, g, y=None):
    a, s = sample("a", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0), obs=0.01)
    with plate("groups", 3):
        u = sample("u", dist.Normal(a, s))
    with plate("n", len(x)):
        sample("y", dist.Normal(u[g] + x, s), obs=y)


@probml.model
def rows(x, g):
    a, s = sample("a", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0), obs=0.01)
    with plate("groups", 3):
        u = sample("u", dist.Normal(a, s))
    with probml.rows():
        sample("y", dist.Normal(u[g] + x, s))


def around(**given):
    return handlers.condition(effects, data=given)


# the function, and what of it is a parameter
CASES = {
    "a number": (around(s=0.01), {"a": 0.5, "u": U}),
    "an array of a plate": (around(u=jnp.asarray(U)), {"a": 0.5, "s": 0.01}),
    "several": (around(s=np.float32(0.01), u=U), {"a": 0.5}),
    "by a function": (handlers.condition(effects, condition_fn=lambda msg: {"s": 0.01}.get(
        msg["name"])), {"a": 0.5, "u": U}),
    "around another handler": (handlers.condition(handlers.do(effects, data={"a": 0.5}),
                                                  data={"s": 0.01}), {"a": 0.2, "u": U}),
    "inside": (inside, {"u": U}),
    "a literal": (literal, {"a": 0.5, "u": U}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_value_stays(name):
    function, params = CASES[name]
    model = probml.model(function)()
    right, _ = log_density(handlers.seed(function, 0), (X, G, Y), {}, params)
    np.testing.assert_allclose(model.log_density({"x": X, "g": G, "y": Y}, params), right,
                               rtol=2e-5)
    fit, new = model.at(params), {"x": X, "g": G}
    np.testing.assert_allclose(fit.predict(new, "y"), U[G] + X, rtol=1e-5, atol=1e-6)
    many = {own: np.repeat(value, 400) for own, value in new.items()}
    drawn = np.asarray(fit.simulate(**many)["y"]).reshape(5, 400)
    np.testing.assert_allclose(drawn.std(1), 0.01, rtol=0.2)
    np.testing.assert_allclose(drawn.mean(1), U[G] + X, atol=0.003)


def test_a_prior_keeps_it():
    drawn = probml.model(around(s=0.01, u=U))().simulate(x=X, g=G)
    np.testing.assert_allclose(drawn["y"], U[G] + X, atol=0.05)


def test_a_function_with_rows_has_it_too():
    params, right = {"a": 0.5, "u": U}, log_density(around(s=0.01), (X, G, Y), {},
                                                    {"a": 0.5, "u": U})[0]
    more = probml.model(handlers.condition(rows.function, data={"a": 0.5}))()
    for model, own in ((rows(), params), (more, {"u": U})):
        np.testing.assert_allclose(model.log_density({"x": X, "g": G, "y": Y}, own), right,
                                   rtol=2e-5)
        drawn = model.at(own).simulate(x=np.repeat(X, 400), g=np.repeat(G, 400))["y"]
        np.testing.assert_allclose(drawn.reshape(5, 400).std(1), 0.01, rtol=0.2)


def test_a_scan_keeps_it():
    def walk(x, y=None):
        s, a = sample("s", dist.HalfNormal(10.0)), sample("a", dist.Normal(0.0, 1.0))

        def step(z, given):
            u, own = given
            z = 0.5 * z + a * u
            sample("y", dist.Normal(z, s), obs=own)
            return z, z

        scan(step, 0.0, (x, y))

    fit = probml.model(handlers.condition(walk, data={"s": 0.001}))().at({"a": 1.0})
    drawn = fit.simulate(x=np.ones(40))["y"]
    np.testing.assert_allclose(drawn[20:], 2.0, atol=0.01)


def test_data_that_are_conditioned_on_stay_as_in_numpyros_predictive():
    function = handlers.condition(effects, data={"y": Y, "s": 0.01})
    drawn = probml.model(function)().at({"a": 0.5, "u": U}).simulate(x=X, g=G)
    np.testing.assert_allclose(drawn["y"], Y, rtol=1e-6)


def test_a_fit_has_the_posterior_of_the_fixed_value():
    def line(x, y=None):
        s, b = sample("s", dist.HalfNormal(1.0)), sample("b", dist.Normal(0.0, 1.0))
        with plate("n", len(x)):
            sample("y", dist.Normal(b * x, s), obs=y)

    fit = probml.model(handlers.condition(line, data={"s": 0.5}))().fit({"x": X, "y": Y})
    precision = 1 + X @ X / 0.25
    drawn = fit.draws(4000)["b"]
    np.testing.assert_allclose(drawn.mean(), X @ Y / 0.25 / precision, atol=0.02)
    np.testing.assert_allclose(drawn.std(), precision**-0.5, rtol=0.06)
    marginal = dist.MultivariateNormal(jnp.zeros(5), np.outer(X, X) + 0.25 * np.eye(5)).log_prob(Y)
    np.testing.assert_allclose(fit.log_evidence, marginal + dist.HalfNormal(1.0).log_prob(0.5),
                               atol=0.02 + 4 * (fit.evidence_error or 0.0))


def test_an_observation_inside_rows_is_still_refused():
    def bad(x):
        b = sample("b", dist.Normal(0.0, 1.0))
        with probml.rows():
            sample("y", dist.Normal(b * x, 1.0), obs=x)

    with pytest.raises(probml.ModelError, match="obs= is given inside the function"):
        probml.model(bad)().fit({"x": X})


def test_an_argument_that_is_none_in_the_data_is_not_given():
    model = probml.model(effects)()
    drawn = [model.at({"a": 0.5, "s": 0.1, "u": U}).predict({"x": X, "g": G, **more}, "y")
             for more in ({}, {"y": None})]
    np.testing.assert_array_equal(*drawn)
    with pytest.raises(probml.DataError, match="values of all sites are missing"):
        model.fit({"x": X, "g": G, "y": None})


SEEN = np.array([1.0, 2.0, 1.5])


def pilots(x, y=None):
    a, s = sample("a", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0))
    with plate("pilots", 3):
        sample("pilot", dist.Normal(a, 1.0), obs=SEEN)
    with plate("n", len(x)):
        sample("z", dist.Normal(a, 1.0))
        sample("y", dist.Normal(a * x, s), obs=y)


@pytest.mark.parametrize("z", [0.1 * np.arange(5), jnp.arange(5.0)])
def test_values_of_rows_that_are_fixed_are_data_of_the_rows(z):
    function, params = handlers.condition(pilots, data={"z": z}), {"a": 0.3, "s": 0.7}
    right, _ = log_density(handlers.seed(function, 0), (X, Y), {}, params)
    model = probml.model(function)()
    np.testing.assert_allclose(model.log_density({"x": X, "y": Y}, params), right, rtol=2e-5)
    fit = model.at(params)
    np.testing.assert_allclose(fit.predict({"x": X}, "y"), 0.3 * X, rtol=1e-5)
    assert "the rows of the data are the plate 'n'" in str(model.explain({"x": X, "y": Y}))
