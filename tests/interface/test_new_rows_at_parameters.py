"""Given parameters, a function with obs= answers about rows of which nothing is observed, as NumPyro's
Predictive does: the data need not name what is absent. Oracles: means by hand."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers, plate, sample
from numpyro.contrib.control_flow import scan

import probml

X, G = np.array([0.0, 1.0, -2.0]), np.array([0, 2, 1])
U, W, M = np.array([0.5, -1.0, 2.0]), np.array([0.3, 0.7]), np.array([-1.0, 4.0])
B = np.array([[1.0, -0.5], [0.2, 0.4]])


def effects(x, g, y=None):
    s = sample("s", dist.HalfNormal(1.0))
    with plate("groups", 3):
        u = sample("u", dist.Normal(0.0, 1.0))
    with plate("n", len(x)):
        sample("height", dist.Normal(x + u[g], s), obs=y)


def counts(x, g, y=None):
    u = sample("u", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with plate("n", len(x)), handlers.mask(mask=x > -1):
        sample("y", dist.Poisson(jnp.exp(x + u[g])), obs=y)


def vectors(x, y=None):
    b = sample("b", dist.Normal(0.0, 1.0).expand([2, 2]).to_event(2))
    with plate("n", x.shape[0]):
        sample("y", dist.MultivariateNormal(b[0] + b[1] * x[:, None], jnp.eye(2)), obs=y)


def outcomes(x, first=None, second=None):
    a = sample("a", dist.Normal(0.0, 1.0))
    with plate("n", len(x)):
        sample("one", dist.Gamma(2.0, 2.0 / jnp.exp(a * x)), obs=first)
        sample("two", dist.Normal(a - x, 1.0), obs=second)


def kinds(x, y=None):
    w = sample("w", dist.Dirichlet(jnp.ones(2)))
    m = sample("m", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    with plate("n", len(x)):
        z = sample("z", dist.Categorical(w))
        sample("y", dist.Normal(m[z] + x, 0.5), obs=y)


def answers(x, y=None):
    a = sample("a", dist.Normal(0.0, 1.0))
    with plate("n", len(x)):
        sample("y", dist.Bernoulli(logits=a * x), obs=y)


# function, parameters, inputs, what is observed: argument → site, a site's mean
CASES = {
    "effects": (effects, {"s": 0.3, "u": U}, {"x": X, "g": G}, {"y": "height"}, X + U[G]),
    "counts": (counts, {"u": U}, {"x": X, "g": G}, {"y": "y"}, np.exp(X + U[G])),
    "vectors": (vectors, {"b": B}, {"x": X}, {"y": "y"}, B[0] + B[1] * X[:, None]),
    "outcomes": (outcomes, {"a": 0.7}, {"x": X}, {"second": "two", "first": "one"}, 0.7 - X),
    "kinds": (kinds, {"w": W, "m": M}, {"x": X}, {"y": "y"}, W @ M + X),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_absent_is_missing(name):
    function, params, new, observed, mean = CASES[name]
    fit, site = probml.model(function)().at(params), next(iter(observed.values()))
    gone = {own: np.full(mean.shape, np.nan) for own in observed}
    np.testing.assert_allclose(fit.predict(new, site), mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fit.predict({**new, **gone}, site), mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fit.log_prob(new), 0.0, atol=1e-6)
    np.testing.assert_allclose(fit.impute(new)[site], mean, rtol=1e-5, atol=1e-6)
    many = {own: np.repeat(value, 2000, 0) for own, value in new.items()}
    drawn = np.asarray(fit.simulate(**many)[site], float).reshape(len(X), 2000, *mean.shape[1:])
    error = drawn.std(1) / np.sqrt(2000)
    assert (np.abs(drawn.mean(1) - mean) < 5 * error).all()


def test_some_outcomes_are_absent_and_others_are_there():
    fit = probml.model(outcomes)().at({"a": 0.7})
    given = fit.log_prob({"x": X, "second": 0.7 - X})
    np.testing.assert_allclose(given, dist.Normal(0.0, 1.0).log_prob(0.0), rtol=1e-5)
    np.testing.assert_allclose(fit.predict({"x": X, "second": 0.7 - X}, "one"), np.exp(0.7 * X),
                               rtol=1e-5)


def test_probabilities_and_interventions_need_no_observation():
    fit = probml.model(answers)().at({"a": 1.5})
    right = 1 / (1 + np.exp(-1.5 * X))
    np.testing.assert_allclose(fit.predict_proba({"x": X}, "y")[:, 1], right, rtol=1e-5)
    acted = probml.model(kinds)().at({"w": W, "m": M}).do({"z": 1})
    np.testing.assert_allclose(acted.predict({"x": X}, "y"), 4.0 + X, rtol=1e-5)


def test_a_scan_is_simulated_at_parameters():
    def walk(x, y=None):
        phi = sample("phi", dist.Uniform(-1.0, 1.0))

        def step(z, given):
            u, own = given
            z = phi * z + u
            sample("y", dist.Normal(z, 1e-3), obs=own)
            return z, None

        scan(step, 0.0, (x, y))

    x = np.arange(6.0)
    fit, z, path = probml.model(walk)().at({"phi": 0.5}), 0.0, []
    for u in x:
        z = 0.5 * z + u
        path.append(z)
    np.testing.assert_allclose(fit.simulate(x=x)["y"], path, atol=0.01)
    with pytest.raises(probml.Refusal, match="no plate of independent rows"):
        fit.simulate(6, x=x)


def test_a_fitted_scan_is_simulated_along_new_inputs_of_another_length():
    def walk(x, y=None):
        a = sample("a", dist.Normal(0.0, 1.0))

        def step(z, given):
            u, own = given
            z = a * z + u
            sample("y", dist.Normal(z, 0.01), obs=own)
            return z, None

        scan(step, 0.0, (x, y))

    x, path, z = np.sin(np.arange(30.0)), [], 0.0
    for u in x:
        z = 0.5 * z + u
        path.append(z)
    fit = probml.model(walk)().fit({"x": x, "y": np.array(path)}, probml.MAP())
    for size in (30, 7):
        np.testing.assert_allclose(fit.simulate(x=x[:size])["y"], path[:size], atol=0.1)


def test_a_fit_of_nothing_is_still_refused():
    with pytest.raises(probml.DataError, match="nothing can be estimated"):
        probml.model(effects)().fit({"x": X, "g": G})
