"""Fits of one density of everything side by side: their rows are the elements of what they
observe."""

import warnings

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from numpyro.contrib.control_flow import scan
from scipy import stats

import probml

arviz = pytest.importorskip("arviz")
T = 20
Y = 4 * np.sin(np.arange(T) / 3) + 0.3 * np.random.default_rng(2).normal(size=T)


def autoregression(y):
    a, s = sample("a", dist.Normal(0, 1)), sample("s", dist.HalfNormal(1))

    def step(before, now):
        now = sample("y", dist.Normal(a * before, s), obs=now)
        return now, None

    scan(step, y[0], y[1:])


def noise(y):
    m, s = sample("m", dist.Normal(0, 1)), sample("s", dist.HalfNormal(1))
    sample("y", dist.Normal(m, s), obs=y[1:])


def shorter(y):
    m = sample("m", dist.Normal(0, 1))
    sample("y", dist.Normal(m, 1.0), obs=y[2:])


@pytest.fixture(scope="module")
def fits():
    return {f.__name__: probml.model(f)().fit({"y": Y}, probml.Laplace())
            for f in (autoregression, noise)}


def test_elements_are_the_rows_of_the_criteria(fits):
    table = probml.compare(fits)
    assert table.attrs["rows"] == T - 1 and table.index[0] == "autoregression"
    p = fits["autoregression"].params
    want = stats.norm(p["a"] * Y[:-1], p["s"]).logpdf(Y[1:]).sum()
    row = table.loc["autoregression"]
    np.testing.assert_allclose(row["loglik"], want, rtol=1e-6)
    np.testing.assert_allclose(row["bic"], -2 * want + 2 * np.log(T - 1), rtol=1e-6)
    assert row["parameters"] == 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of bad k, which the table counts
        found = arviz.loo(fits["autoregression"].to_arviz())
    np.testing.assert_allclose(row["elpd_loo"], float(found.elpd_loo), rtol=1e-6)
    with pytest.warns(UserWarning, match="no held-out score.*rows()"):
        folded = probml.compare(fits, folds=3)
    assert "rows()" in folded.attrs["missing"]["noise"]["elpd_kfold"]


def test_densities_of_other_elements_are_not_compared(fits):
    other = probml.model(shorter)().fit({"y": Y}, probml.Laplace())
    with pytest.raises(probml.DataError, match="fitted to 19 rows and 'shorter' to 18"):
        probml.compare({"noise": fits["noise"], "shorter": other})


def test_states_of_a_chain_have_a_likelihood_but_no_elements():
    def states(y):
        m = sample("m", dist.Normal(jnp.array([-2.0, 2.0]), 1).to_event(1))

        def step(before, now):
            z = sample("z", dist.Bernoulli(0.2 + 0.6 * before))
            sample("y", dist.Normal(m[z], 1.0), obs=now)
            return z, None

        scan(step, 0, y)

    fit = probml.model(states)().fit({"y": Y}, probml.Laplace())
    row = probml.compare({"states": fit}).loc["states"]
    prior = stats.norm([-2, 2], 1).logpdf(fit.params["m"]).sum()
    np.testing.assert_allclose(row["loglik"], fit.log_joint({"y": Y}) - prior, rtol=1e-6)
    assert np.isnan(row["elpd_loo"]) and row["parameters"] == 2


def steps_of_states(y):
    m = sample("m", dist.Normal(jnp.array([-2.0, 2.0]), 1).to_event(1))

    def step(before, now):
        z = sample("z", dist.Categorical(jnp.array([[0.8, 0.2], [0.2, 0.8]])[before]))
        sample("y", dist.Normal(m[z], 1.0), obs=now)
        return z, None

    scan(step, 0, y)
    sample("total", dist.Normal(m.sum(), 1.0), obs=0.3)


def loop_of_states(y):
    m = sample("m", dist.Normal(jnp.array([-2.0, 2.0]), 1).to_event(1))
    z = 0
    for t in range(4):
        z = sample(f"z{t}", dist.Bernoulli(0.2 + 0.6 * z))
        sample(f"y{t}", dist.Normal(m[z], 1.0), obs=y[t])


def elements_of_states(y):
    m = sample("m", dist.Normal(jnp.array([-2.0, 2.0]), 1).to_event(1))
    with plate("n", len(y)):
        z = sample("z", dist.Bernoulli(0.4))
        sample("y", dist.Normal(m[z], 1.0), obs=y)
    sample("total", dist.Normal(m.sum(), 1.0), obs=y.mean())


@pytest.mark.parametrize("function", [
    steps_of_states, *(pytest.param(f, marks=pytest.mark.slow)
                       for f in (loop_of_states, elements_of_states, autoregression, noise))])
def test_elements_of_the_likelihood_sum_to_it_or_there_are_none(function):
    """States that are summed out had values of their own in the likelihoods of elements."""
    fit = probml.model(function)().fit({"y": Y}, probml.MAP())
    inputs = {"y (argument)": Y} if "y (argument)" in fit.model.generative.inputs else {"y": Y}
    found = fit.model.generative.element_logs(fit.model.bound, inputs, fit.params)
    likelihood = probml.compare({"it": fit}).loc["it", "loglik"]
    if found:
        logs = sum(float(log.sum()) for log in found.values())
        np.testing.assert_allclose(logs, likelihood, rtol=1e-5)
    assert bool(found) == (function in (autoregression, noise))
