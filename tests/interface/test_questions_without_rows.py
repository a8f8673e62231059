"""Functions without rows that have missing cells: each question is answered rightly, or refused in
words that say what to ask instead."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers, sample
from numpyro.contrib.control_flow import scan

import probml

STEPS, MISSING = 14, [4, 5, 9]
NOISE = np.random.default_rng(3).normal(size=(STEPS, 2))
LEVEL = np.cumsum(0.5 * NOISE[:, 0]) + 0.3 * NOISE[:, 1]


def without(values, cells=MISSING):
    values = np.array(values, float)
    values[cells] = np.nan
    return values


def random_walk(length, y=None):
    def step(level, _):
        level = sample("level", dist.Normal(level, 0.5))
        return level, level

    _, levels = scan(step, 0.0, None, length)
    sample("y", dist.Normal(levels, 0.3), obs=y)


def local_level(y=None):
    sd = sample("sd", dist.LogNormal(-1.0, 0.3))

    def step(level, seen):
        level = sample("level", dist.Normal(level, sd))
        sample("y", dist.Normal(level, 0.3), obs=seen)
        return level, None

    scan(step, 0.0, y, STEPS)


def autoregression(y=None):
    weights = sample("weights", dist.Normal(0.0, 0.5).expand([2]).to_event(1))

    def step(before, seen):
        value = sample("y", dist.Normal(weights[0] * before[0] + weights[1] * before[1], 1.0),
                       obs=seen)
        return (value, before[0]), None

    scan(step, (0.0, 0.0), y, STEPS)


def vector_autoregression(y=None):
    weights = sample("weights", dist.Normal(0.0, 0.5).expand([2, 2]).to_event(2))

    def step(before, seen):
        value = sample("y", dist.Normal(weights @ before, 1.0).to_event(1), obs=seen)
        return value, None

    scan(step, jnp.zeros(2), y, STEPS)


def volatility(y=None):
    sd = sample("sd", dist.LogNormal(-1.0, 0.3))

    def step(log_variance, seen):
        log_variance = sample("h", dist.Normal(0.9 * log_variance, sd))
        sample("y", dist.Normal(0.0, jnp.exp(log_variance / 2)), obs=seen)
        return log_variance, None

    scan(step, 0.0, y, STEPS)


def hidden_markov(y=None):
    means = sample("means", dist.Normal(jnp.array([-1.0, 1.0]), 0.3).to_event(1))

    def step(state, seen):
        state = sample("state", dist.Categorical(jnp.array([[0.8, 0.2], [0.3, 0.7]])[state]),
                       infer={"enumerate": "parallel"})
        sample("y", dist.Normal(means[state], 0.5), obs=seen)
        return state, None

    scan(step, 0, y, STEPS)


def epidemic(y=None):
    rate = sample("rate", dist.LogNormal(-0.5, 0.3))

    def step(groups, seen):
        new = rate * groups[0] * groups[1] / 100
        sample("y", dist.Poisson(new + 0.1), obs=seen)
        return (groups[0] - new, groups[1] + new - 0.2 * groups[1]), None

    scan(step, (95.0, 5.0), y, STEPS)


def seasonal(y=None):
    effects = sample("effects", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    t = jnp.arange(STEPS)
    sample("y", dist.Normal(effects[0] * jnp.sin(t) + effects[1] * jnp.cos(t), 0.5), obs=y)


def changepoint(y=None):
    change = sample("change", dist.DiscreteUniform(0, STEPS - 1))
    means = sample("means", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    sample("y", dist.Normal(jnp.where(jnp.arange(STEPS) < change, means[0], means[1]), 1.0), obs=y)


COUNTS = np.array([4, 5, 7, 9, 8, 12, 11, 13, 9, 8, 6, 5, 4, 2])
FUNCTIONS = {  # function, its observations, whether its missing cells can be filled
    "local level": (local_level, LEVEL, True), "volatility": (volatility, LEVEL, True),
    "hidden Markov": (hidden_markov, LEVEL, False), "epidemic": (epidemic, COUNTS, True),
    "seasonal": (seasonal, LEVEL, True), "changepoint": (changepoint, LEVEL, True),
}


def test_missing_cells_of_a_random_walk_have_the_means_of_the_smoother():
    data = {"length": STEPS, "y": without(LEVEL)}
    fit = probml.model(random_walk)().fit(data)
    times = np.arange(1, STEPS + 1)
    walk = 0.25 * np.minimum.outer(times, times)
    seen = np.isfinite(data["y"])
    gain = walk[:, seen] @ np.linalg.inv(walk[np.ix_(seen, seen)] + 0.09 * np.eye(seen.sum()))
    variance = np.diag(walk - gain @ walk[seen]) + 0.09
    imputed = fit.impute(data)["y"]
    np.testing.assert_array_equal(imputed[seen], LEVEL[seen].astype(imputed.dtype))
    np.testing.assert_allclose(imputed[~seen], (gain @ data["y"][seen])[~seen], atol=0.08)
    drawn = np.array([fit.simulate(given=data, seed=k)["y"] for k in range(40)])
    assert (drawn[:, seen] == imputed[seen]).all()
    again = np.array([fit.simulate(seed=k)["y"] for k in range(40)])  # of observed cells, too
    for found, cells in ((drawn, ~seen), (again, seen)):
        z = (found - gain @ data["y"][seen])[:, cells] / np.sqrt(variance[cells])
        np.testing.assert_allclose((z**2).mean(), 1.0, atol=0.45)
    np.testing.assert_allclose(fit.params["level"], gain @ data["y"][seen], atol=1e-4)


def test_missing_cells_of_a_regression_have_the_means_of_its_posterior():
    data = {"y": without(LEVEL)}
    seen, t = np.isfinite(data["y"]), np.arange(STEPS)
    design = np.stack([np.sin(t), np.cos(t)], 1)
    rows = design[seen]
    effects = np.linalg.solve(rows.T @ rows / 0.25 + np.eye(2), rows.T @ LEVEL[seen] / 0.25)
    imputed = probml.model(seasonal)().fit(data).impute(data)["y"]
    np.testing.assert_allclose(imputed[~seen], design[~seen] @ effects, atol=0.05)


def test_other_values_beside_missing_cells_are_not_those_of_the_fit():
    def regression(x, y=None):
        sample("y", dist.Normal(sample("b", dist.Normal(0.0, 1.0)) * x, 1.0).to_event(1), obs=y)

    data = {"x": np.arange(3.0), "y": np.array([1.0, np.nan, 2.0])}
    fit = probml.model(regression)().fit(data)
    assert np.isfinite(fit.impute(data)["y"]).all()
    with pytest.raises(probml.Refusal, match="latent variables are those of the fitted data"):
        fit.impute(data | {"x": np.arange(3.0) + 1})


@pytest.mark.parametrize("as_they_are", [True, False])
def test_cells_that_the_function_masks_itself_are_filled_or_refused(as_they_are):
    def masked(y):
        mean = sample("mean", dist.Normal(3.0, 1.0))
        with handlers.mask(mask=~jnp.isnan(y)):
            sample("y", dist.Normal(mean, 1.0).expand([4]),
                   obs=y if as_they_are else jnp.nan_to_num(y))

    data = {"y": np.array([2.0, np.nan, 3.5, 3.0])}
    fit = probml.model(masked)().fit(data, probml.Laplace())
    if as_they_are:
        np.testing.assert_allclose(fit.impute(data)["y"], [2, 11.5 / 4, 3.5, 3], atol=0.1)
        return
    with pytest.raises(probml.Refusal, match="replaces missing values itself"):
        fit.impute(data)


def test_missing_states_are_filled_by_the_most_probable_one():
    def answers(x, y=None):
        slope = sample("slope", dist.Normal(2.0, 0.5))
        sample("y", dist.Bernoulli(logits=slope * x).to_event(1), obs=y)

    data = {"x": np.array([-2.0, -1.0, 1.0, 2.0]), "y": np.array([0.0, np.nan, 1.0, np.nan])}
    fit = probml.model(answers)().fit(data)
    np.testing.assert_array_equal(fit.impute(data)["y"], [0, 0, 1, 1])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_question_is_answered_or_refused_in_words(name):
    function, values, fills = FUNCTIONS[name]
    data = {"y": without(values)}
    fit = probml.model(function)().fit(data, probml.Laplace(draws=100))
    seen = np.isfinite(data["y"])
    for ask in (lambda: fit.impute(data), lambda: fit.simulate(given=data)):
        if fills:
            filled = ask()["y"]
            assert np.isfinite(filled).all()
            np.testing.assert_allclose(filled[seen], data["y"][seen], rtol=1e-6)
        else:
            with pytest.raises(probml.Refusal, match=r"summed out.*predict_proba\(data, site\)"):
                ask()
    with pytest.raises(probml.DataError, match="the fit does not describe these data"):
        fit.impute({"y": np.where(seen, data["y"] + 1, np.nan)})
    for refused in (lambda: fit.predict(data), lambda: fit.log_prob(data),
                    lambda: fit.do({"y": 1.0}), lambda: fit.simulate(rows=3)):
        with pytest.raises(probml.Refusal, match="no plate of independent rows"):
            refused()
    for refused in (lambda: fit.conditional(data, "y"), lambda: fit.table("y")):
        with pytest.raises(probml.ModelError):
            refused()
    assert fit.simulate()["y"].shape == values.shape and len(fit.summary())
    if name == "hidden Markov":
        assert fit.predict_proba(data).shape == (STEPS, 2)
        assert fit.decode(data)["state"].shape == (STEPS,)


@pytest.mark.parametrize("function", [autoregression, vector_autoregression])
def test_missing_cells_that_later_steps_depend_on_are_filled_in(function):
    data = {"y": without(LEVEL if function is autoregression else NOISE)}
    fit, holes = probml.model(function)().fit(data), np.isnan(data["y"])
    filled, draws = fit.impute(data)["y"], fit.draws(1000, seed=1)["y (missing)"]
    np.testing.assert_array_equal(filled[~holes], data["y"][~holes])
    np.testing.assert_allclose(filled[holes], draws.mean(0), atol=5 * draws.std() / 1000**0.5)
    replicate = fit.simulate(given=data, seed=2)["y"]
    assert (np.abs(replicate[holes] - draws.mean(0)) < 6 * draws.std(0)).all()
