"""A plate that holds only factors, as NumPyro's users write likelihoods of their own, is the rows."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import factor, plate, sample

import probml

RANDOM = np.random.default_rng(3)
X, TIME, DIED = RANDOM.normal(size=30), RANDOM.exponential(size=30), RANDOM.random(30) < 0.7
GROUP = np.array(list("abc"))[np.arange(30) % 3]


def one(x, time, died):
    b = sample("b", dist.Normal(0.0, 1.0))
    with plate("n", len(x)):
        factor("risk", jnp.where(died, b * x, 0.0) - jnp.exp(b * x) * time)


def several(x, time, died):
    b = sample("b", dist.Normal(0.0, 1.0))
    with plate("n", len(x)):
        factor("event", jnp.where(died, b * x, 0.0))
        factor("exposure", -jnp.exp(b * x) * time)


def effects(group, x, time, died):
    b = sample("b", dist.Normal(0.0, 1.0))
    with plate("groups", 3):
        w = sample("w", dist.Gamma(3.0, 3.0))
    with plate("n", len(x)):
        rate = jnp.exp(b * x) * w[group]
        factor("risk", jnp.where(died, jnp.log(rate), 0.0) - rate * time)


def cured(x, time, died):
    b, p = sample("b", dist.Normal(0.0, 1.0)), sample("p", dist.Beta(5.0, 5.0))
    with plate("n", len(x)):
        z = sample("z", dist.Bernoulli(p))
        risk = jnp.where(died, b * x, 0.0) - jnp.exp(b * x) * time
        factor("risk", jnp.where(z == 1, risk, jnp.where(died, -jnp.inf, 0.0)))


def by_hand(at, rows):
    b, w = at["b"], at.get("w", np.ones(3))[rows % 3]
    rate = np.exp(b * X[rows]) * w
    log = np.where(DIED[rows], np.log(rate), 0.0) - rate * TIME[rows]
    return log if "p" not in at else np.log(
        at["p"] * np.exp(log) + (1 - at["p"]) * ~DIED[rows])


@pytest.mark.parametrize("function, at", [
    (one, {"b": 0.3}), (several, {"b": 0.3}), (cured, {"b": 0.3, "p": 0.6}),
    (effects, {"b": 0.3, "w": np.array([0.5, 1.0, 2.0])})])
def test_a_plate_of_factors_alone_has_rows(function, at):
    data = {"x": X, "time": TIME, "died": DIED} | ({"group": GROUP} if function is effects else {})
    fit = probml.model(function)().fit(data, probml.MAP())
    rows = np.array([4, 1, 9])
    new = {name: value[rows] for name, value in data.items()}
    known = fit.model.at(at, labels={"group": ["a", "b", "c"]} if function is effects else None)
    np.testing.assert_allclose(known.log_prob(new), by_hand(at, rows), rtol=1e-5)
    assert fit.log_prob(new).shape == (3,)


def test_a_factor_that_goes_over_all_rows_has_no_rows_and_a_question_says_so():
    def risk_sets(x, died):
        b = sample("b", dist.Normal(0.0, 1.0))
        with plate("n", len(x)):
            factor("risk", jnp.where(died, b * x - jnp.log(jnp.cumsum(jnp.exp(b * x))), 0.0))

    fit = probml.model(risk_sets)().fit({"x": X, "died": DIED}, probml.MAP())
    for rows in (3, 30):
        with pytest.raises(probml.Refusal, match="no plate of independent rows"):
            fit.log_prob({"x": X[:rows], "died": DIED[:rows]})
