"""Replicates of what a scan or a loop observes: each step follows from the steps that were drawn before it."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers, sample
from numpyro.contrib.control_flow import scan

import probml

STEPS = 60
RANDOM = np.random.default_rng(5)
NOISE = RANDOM.normal(size=STEPS)
Y = np.array([sum(0.95 ** (t - s) * NOISE[s] for s in range(t + 1)) for t in range(STEPS)])


def observed(y):
    a, s = sample("a", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0))

    def step(last, now):
        return sample("y", dist.Normal(a * last, s), obs=now), None

    scan(step, 0.0, y)


def conditioned(steps, y=None):
    a, s = sample("a", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0))

    def step(last, _):
        return sample("y", dist.Normal(a * last, s)), None

    with handlers.condition(data={} if y is None else {"y": y}):
        scan(step, 0.0, jnp.arange(steps))


def looped(y):
    a, s = sample("a", dist.Normal(0.0, 1.0)), sample("s", dist.HalfNormal(1.0))
    last = 0.0
    for t in range(len(y)):
        last = sample("y" if t == len(y) - 1 else f"y_{t}", dist.Normal(a * last, s), obs=y[t])


@pytest.mark.parametrize("function, settings", [
    (observed, {}), (conditioned, {"steps": STEPS}), (looped, {})])
def test_an_autoregression_is_replicated_from_its_own_past(function, settings):
    fit = probml.model(function)(**settings).fit({"y": Y}, probml.MAP())
    a, s = float(fit.params["a"]), float(fit.params["s"])
    last = [np.ravel(fit.simulate(seed=seed)["y"])[-1] for seed in range(80)]
    wanted = s * np.sqrt((1 - a ** (2 * STEPS)) / (1 - a**2))
    assert wanted > 2 * s and abs(np.std(last) / wanted - 1) < 0.3


def test_elements_of_an_argument_are_drawn_again_and_constants_stay():
    def parts(y):
        a = sample("a", dist.Normal(0.0, 1.0))
        sample("first", dist.Normal(a, 1.0), obs=y[0])
        for i, value in enumerate(y[1:3]):
            sample(f"y_{i}", dist.Normal(a, 1.0), obs=value)
        sample("known", dist.Normal(a, 1.0), obs=0.5)

    fit = probml.model(parts)().fit({"y": Y}, probml.MAP())
    one, other = (fit.simulate(seed=seed) for seed in (0, 1))
    assert one["known"] == other["known"] == 0.5
    assert all(one[name] != other[name] for name in ("first", "y_0", "y_1"))


LAWS = {
    "student": lambda m: dist.StudentT(5.0, m, 1.0),
    "counts": lambda m: dist.NegativeBinomial2(jnp.exp(m), 3.0),
    "shares": lambda m: dist.BetaBinomial(jnp.exp(m), 2.0, 10),
    "zeros": lambda m: dist.ZeroInflatedDistribution(dist.NegativeBinomial2(jnp.exp(m), 3.0), gate=0.3),
    "two laws": lambda m: dist.MixtureGeneral(dist.Categorical(jnp.array([0.3, 0.7])), [
        dist.Normal(m, 1.0), dist.StudentT(4.0, m, 1.0)]),
    "mixture": lambda m: dist.MixtureSameFamily(dist.Categorical(jnp.array([0.3, 0.7])), dist.Normal(
        jnp.stack([m, m + 2.0], -1), 1.0)),
    "vector": lambda m: dist.StudentT(5.0, jnp.stack([m, m], -1), 1.0).to_event(1),
}


@pytest.mark.parametrize("law", LAWS)
def test_laws_with_components_are_drawn_within_a_scan(law):
    x = np.linspace(-1, 1, 40)
    y = np.ones((40, *LAWS[law](jnp.zeros(())).event_shape), int)

    def walk(x, y):
        a = sample("a", dist.Normal(0.0, 1.0))

        def step(carry, now):
            sample("y", LAWS[law](a + now[0]), obs=now[1])
            return carry, None

        scan(step, 0.0, (x, y))

    made = probml.model(walk)().fit({"x": x, "y": y}, probml.MAP()).simulate(seed=1)["y"]
    assert made.shape == y.shape and len(np.unique(made)) > 3
