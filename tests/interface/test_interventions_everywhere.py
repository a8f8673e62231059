"""do() in every way that a model comes about: rows() with inputs of any shape, a function without rows(), several
tables; of parameters that are given, of a fit. What is set tells nothing of what is above it, and all of what is below."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy.stats import norm

import probml

X = np.random.default_rng(0).normal(size=(12, 3))
GROUP = np.arange(12) % 2
KIND = np.arange(12) // 3 % 2
Y = 3.0 * KIND + X[:, 0] + GROUP


def line(x, g, y=None):
    """As it would be pasted."""
    w = sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with plate("groups", 2):
        a = sample("a", dist.Normal(0.0, 1.0))
    with plate("data", len(g)):
        z = sample("z", dist.Bernoulli(logits=x @ w))
        sample("y", dist.Normal(a[g] + 3.0 * z, 1.0), obs=y)


@probml.model
def in_rows(x, g):
    w = sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    with plate("groups", 2):
        a = sample("a", dist.Normal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Bernoulli(logits=x @ w))
        sample("y", dist.Normal(a[g] + 3.0 * z, 1.0))


WAYS = {"rows": in_rows, "pasted": lambda: probml.model(line)()}
POINT = {"w": np.array([1.0, -1.0, 0.5]), "a": np.array([0.3, -0.7])}
DATA = {"x": X, "g": GROUP, "y": Y}


def acted_on(way: str, known: bool):
    """A fit after do(z = 1), and the parameters that it answers with."""
    if known:
        return WAYS[way]().at(POINT).do({"z": 1}), POINT
    fit = WAYS[way]().fit(DATA, probml.MAP())
    return fit.do({"z": 1}), fit.params


@pytest.mark.parametrize("known", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_set_has_no_probability_of_its_own(way, known):
    fit, params = acted_on(way, known)
    mean = np.asarray(params["a"])[GROUP] + 3.0
    np.testing.assert_allclose(fit.log_prob(DATA), norm.logpdf(Y, mean), rtol=1e-4, atol=1e-4)
    new = {"x": X[:2], "g": GROUP[:2]} | ({} if way == "rows" else {"y": np.full(2, np.nan)})
    np.testing.assert_allclose(fit.predict(new, "y"), mean[:2], atol=1e-4)


def test_twice_set_and_saved():
    fit = in_rows().at(POINT).do({"z": 0}).do({"z": 1})
    np.testing.assert_allclose(fit.predict({"x": X[:2], "g": [1, 0]}, "y"), [2.3, 3.3], atol=1e-5)
    with pytest.raises(probml.ModelError, match="was returned by do"):
        fit.save("nowhere")
    with pytest.raises(probml.ModelError, match="no such site"):
        in_rows().at(POINT).do({"zz": 0}).predict({"x": X[:2], "g": [1, 0]}, "y")


def test_of_several_tables():
    @probml.model
    def visits(patient):
        with probml.rows("patients"):
            frail = sample("frail", dist.Bernoulli(0.3))
            kind = sample("kind", dist.Categorical(jnp.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])[frail]))
        with probml.rows("visits", of="patients"):
            sample("pain", dist.Normal(2.0 * kind[patient], 1.0))

    data = {"patients": {"patient": ["a", "b"], "frail": [np.nan, 1.0]},
            "visits": {"patient": ["b", "a", "a"], "pain": [1.0, 4.2, np.nan]}}
    fit = visits().at({}).do({"kind": 2})
    np.testing.assert_allclose(fit.impute(data)["pain"], [1.0, 4.2, 4.0], atol=1e-5)
    np.testing.assert_allclose(fit.predict_proba(data, "frail")[0], [0.7, 0.3], atol=1e-5)
    np.testing.assert_allclose(fit.log_prob(data), [norm.logpdf(4.2, 4), np.log(0.3) + norm.logpdf(
        1.0, 4)], rtol=1e-4)


def test_of_a_function_without_rows_and_without_data():
    model = probml.model(line)()
    with pytest.raises(probml.ModelError, match=r"do\(\) of a model needs rows\(\).*Use do\(\) of a Fit, fit\(data\)"):
        model.do({"z": 1})
    np.testing.assert_allclose(model.at(POINT).do({"z": 1}).predict(
        {"x": X[:2], "g": GROUP[:2], "y": np.full(2, np.nan)}, "y"), [3.3, 2.3], atol=1e-4)
