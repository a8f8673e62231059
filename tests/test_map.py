"""MAP: the log posterior climbed by L-BFGS or an optax optimiser, in each parameter's own coordinate."""

import functools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from numpyro import plate, sample
from scipy import optimize, special, stats

import cases
import probml
from cases import fitted, mixture, nan


def close(got, expected, tolerance=1e-6):
    """L-BFGS stops where the objective has no digits left: half of sixteen, less a condition number."""
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


# The coordinate of the maximum


def test_map_has_no_jacobian_of_a_transform():
    x = np.array([0.5, -1.0, 2.0, 0.3])
    total = ((x - 1.0) ** 2).sum()
    fit = noise("variance").fit({"x": x}, probml.MAP())
    close(fit.params["variance"], (1.5 + total / 2) / (2.0 + 1.0 + 2.0))  # mode in the variance: (b + S/2) / (a + 1 + n/2)
    fit = noise("precision").fit({"x": x}, probml.MAP())
    close(fit.params["precision"], (2.0 - 1.0 + 2.0) / (1.5 + total / 2))  # mode in the precision, not one over the former


@probml.model
def noise(scale_is: str):
    if scale_is == "variance":
        scale = jnp.sqrt(sample("variance", dist.InverseGamma(2.0, 1.5)))
    else:
        scale = sample("precision", dist.Gamma(2.0, 1.5)) ** -0.5
    with probml.rows():
        sample("x", dist.Normal(1.0, scale))


def test_a_concentration_below_one_is_maximised_in_the_softmax_or_logit_coordinate():
    fit = cases.dice(a=(0.5, 0.5, 0.25)).fit({"face": [0, 0, 0, 1]}, probml.MAP())
    close(fit.params["theta"], np.array([3.5, 1.5, 0.25]) / 5.25, 1e-5)
    close(cases.coin(a=0.5, b=0.5).fit({"toss": [1, 1, 1]}, probml.MAP()).params["heads"], 3.5 / 4.0, 1e-5)


def test_em_and_map_agree_where_a_count_is_zero():
    model, data = cases.dice(a=(2.0, 3.0, 4.0)), {"face": [0, 0, 1, 0]}
    close(model.fit(data, probml.MAP()).params["theta"], model.fit(data, probml.EM()).params["theta"], 1e-5)
    ml = fitted(model, data, probml.MAP(prior=False))
    np.testing.assert_allclose(ml.params["theta"], [0.75, 0.25, 0.0], atol=1e-4)  # the maximum lies at infinity of the softmax


# The objective


def test_the_history_of_lbfgs_rises_from_the_start_to_the_log_posterior_of_the_end():
    model, data, start, _ = mixture("mixed")
    fit = model.fit(data, probml.MAP(), start=start)
    assert (np.diff(fit.history) >= 0).all() and fit.converged
    close(fit.history[0], cases.log_posterior("mixed", start)[0], 1e-11)
    close(fit.history[-1], cases.log_posterior("mixed", fit.params)[0], 1e-11)


def test_missing_cells_and_a_discrete_site_outside_rows_are_summed_out():
    toss = np.array([1, 1, nan, 1, 0, 1, 0])
    fit = which_coin().fit({"toss": toss}, probml.MAP(), start={"p": np.array([0.5, 0.6])})
    p = fit.params["p"]
    mass = np.array([0.7, 0.3]) * p**4 * (1 - p) ** 2
    q = mass / mass.sum()
    close(p, (2 + 4 * q) / (3 + 6 * q), 1e-5)
    close(fit.history[-1], np.log(mass.sum()) + np.asarray(dist.Beta(3.0, 2.0).log_prob(p)).sum(), 1e-9)


@probml.model
def which_coin():
    kind = sample("kind", dist.Categorical(jnp.array([0.7, 0.3])))
    with plate("coin", 2):
        p = sample("p", dist.Beta(3.0, 2.0))
    with probml.rows():
        sample("toss", dist.Bernoulli(p[kind]))


def test_weights_are_repetitions():
    weighted = cases.coin(a=2.0, b=3.0).fit({"toss": [1, 0]}, probml.MAP(), weights=[3.0, 1.0])
    close(weighted.params["heads"], 4 / 7)


def test_map_says_when_it_stopped_early():
    model, data, start, _ = mixture("mixed")
    with pytest.warns(RuntimeWarning, match="iteration limit"):
        fit = model.fit(data, probml.MAP(steps=2), start=start)
    assert not fit.converged and fit.iterations == 2 and len(fit.history) == 3


# Discriminative models


@probml.model
def logistic(d: int, x):
    beta = sample("beta", dist.Normal(0.0, 1.0).expand([d]).to_event(1))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=x @ beta))


@functools.lru_cache
def votes():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 2))
    y = (rng.random(200) < special.expit(x @ [1.0, -2.0])).astype(int)
    return {"x": x, "y": y}


@functools.lru_cache
def penalised():
    x, y = votes()["x"], votes()["y"]
    loss = lambda b: 0.5 * b @ b + np.logaddexp(0, -(2 * y - 1) * (x @ b)).sum()  # noqa: E731
    return optimize.minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-9}).x


@pytest.mark.filterwarnings("ignore:Desired error not necessarily achieved")
def test_map_of_logistic_regression_equals_scipy():
    fit = logistic(d=2).fit(votes())
    assert "MAP" in fit.engine and fit.converged
    close(fit.params["beta"], penalised(), 1e-5)
    close(fit.predict_proba({"x": votes()["x"]}, "y")[:, 1], special.expit(votes()["x"] @ penalised()), 1e-5)
    assert (np.diff(fit.history) >= -1e-9).all()


@pytest.mark.filterwarnings("ignore:Desired error not necessarily achieved")
def test_mini_batches_of_an_optax_optimiser_find_the_same():
    engine = probml.MAP(optimizer=optax.adam(optax.exponential_decay(0.1, 300, 0.5)), steps=2000, batch_rows=50)
    fit = fitted(logistic(d=2), votes(), engine, seed=1)
    np.testing.assert_allclose(fit.params["beta"], penalised(), atol=0.05)  # the noise of batches, a small fraction of the posterior sd 0.2
    again = fitted(logistic(d=2), votes(), engine, seed=1)
    np.testing.assert_array_equal(fit.params["beta"], again.params["beta"])


@pytest.mark.filterwarnings("ignore:Desired error not necessarily achieved")
def test_an_optax_optimiser_on_all_rows_finds_the_same():
    fit = fitted(logistic(d=2), votes(), probml.MAP(optimizer=optax.adam(0.05), steps=1500))
    close(fit.params["beta"], penalised(), 1e-4)


@probml.model
def counts(x):
    b = sample("b", dist.Normal(0.0, 2.0))
    slope = sample("slope", dist.Normal(0.0, 2.0))
    with probml.rows():
        sample("n", dist.Poisson(jnp.exp(b + slope * x)))


def test_map_of_a_poisson_regression_equals_scipy():
    rng = np.random.default_rng(4)
    x = rng.normal(size=60)
    n = rng.poisson(np.exp(0.5 + 0.8 * x))
    fit = counts().fit({"x": x, "n": n})
    loss = lambda b: b @ b / 8 - stats.poisson(np.exp(b[0] + b[1] * x)).logpmf(n).sum()  # noqa: E731
    found = optimize.minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 5000}).x
    close([fit.params["b"], fit.params["slope"]], found, 1e-5)
