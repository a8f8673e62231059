"""Functions as they are, by every engine: an answer near that of brute force, or a refusal in words;
and NumPyro's own tools on the bound model."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from numpyro.contrib.control_flow import scan
from numpyro.infer import MCMC, NUTS, Predictive
from numpyro.infer.util import log_density

import probml
from coded import about

RNG = np.random.default_rng(3)
Y = np.concatenate([RNG.normal(-2, 1, 12), RNG.normal(2, 1, 18)])


def line(x, y=None):
    """Rows are found."""
    a, b = sample("a", dist.Normal(0.0, 3.0)), sample("b", dist.Normal(0.0, 3.0))
    with plate("data", len(x)):
        sample("obs", dist.Normal(a + b * x, 1.0), obs=y)


def schools(groups, y=None):
    """One density: effects and what they explain."""
    mu = sample("mu", dist.Normal(0.0, 3.0))
    with plate("groups", groups, dim=-2):
        a = sample("a", dist.Normal(mu, 1.0))
        with plate("members", 10):
            sample("obs", dist.Normal(a, 1.0), obs=y)


def mixture(y):
    """Discrete sites of rows that are found."""
    w = sample("w", dist.Dirichlet(2.0 * jnp.ones(2)))
    with plate("components", 2):
        m = sample("m", dist.Normal(jnp.array([-1.0, 1.0]), 2.0))
    with plate("data", len(y)):
        z = sample("z", dist.Categorical(w))
        sample("obs", dist.Normal(m[z], 1.0), obs=y)


def states(y):
    """Discrete sites along a scan."""
    p = sample("p", dist.Beta(2.0, 2.0))
    with plate("components", 2):
        m = sample("m", dist.Normal(jnp.array([-1.0, 1.0]), 2.0))

    def step(z, now):
        z = sample("z", dist.Bernoulli(jnp.where(z == 1, 1 - p, p)))
        sample("obs", dist.Normal(m[z], 1.0), obs=now)
        return z, None

    scan(step, 0, y)


def level(y):
    """Numbers along a scan, seen outside."""
    q = sample("q", dist.HalfNormal(1.0))

    def step(x, _):
        x = sample("x", dist.Normal(x, q))
        return x, x

    _, path = scan(step, 0.0, None, length=len(y))
    sample("obs", dist.Normal(path, 1.0), obs=y)


def weights(x, y):
    """A network's weights are no sites."""
    w = numpyro.param("w", jnp.array([0.1, 0.2]))
    with plate("data", len(x)):
        sample("obs", dist.Normal(w[0] + w[1] * x, 1.0), obs=y)


X = RNG.normal(size=30)
FUNCTIONS = [(line, {}, {"x": X, "y": 1.0 + 2.0 * X}, "b", 2.0, 0.2),
             (schools, {"groups": 3}, {"y": Y.reshape(3, 10)}, "mu", 0.3, 1.0),
             (mixture, {}, {"y": Y}, "m", np.array([-2.0, 2.0]), 0.6),
             (states, {}, {"y": Y}, "m", np.array([-2.0, 2.0]), 0.6),
             (level, {}, {"y": Y}, "q", 0.6, 0.5),
             (weights, {}, {"x": X, "y": 1.0 + 2.0 * X}, "w", np.array([1.0, 2.0]), 0.1)]
ENGINES = {"Exact": probml.Exact(), "EM": probml.EM(), "MAP": probml.MAP(),
           "NUTS": probml.NUTS(draws=300, warmup=300, chains=2), "SVI": probml.SVI(steps=4000),
           "Laplace": probml.Laplace()}
# the first state is 0, so that the modes differ: chains in both of them have no common mean
SEVERAL = {("states", "NUTS")}
REFUSED = {(name, "Exact") for name in ("schools", "mixture", "states", "level", "weights")}


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # few draws
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", FUNCTIONS, ids=lambda case: case[0].__name__)
def test_every_engine_answers_or_refuses_in_words(case, engine):
    function, settings, data, name, want, atol = case
    model = probml.model(function)(**settings)
    try:
        fit = model.fit(data, ENGINES[engine])
    except probml.Refusal as refusal:
        assert (function.__name__, engine) in REFUSED, str(refusal)
        assert function.__name__ in str(refusal) and "se another engine, such as " in str(refusal), str(refusal)
        return
    assert (function.__name__, engine) not in REFUSED
    if (function.__name__, engine) in SEVERAL:
        assert about(fit, "r-hat") == [name]
        for chain in fit.belief.values[name].mean(1):
            np.testing.assert_allclose(np.sort(chain), want, atol=atol)
        return
    np.testing.assert_allclose(fit.params[name], want, atol=atol)
    again = fit.simulate(seed=1) if fit.model.is_joint else fit.simulate(len(data["y"]), seed=1, **{
        key: value for key, value in data.items() if key == "x"})
    assert np.isfinite(again["obs"]).all()


def test_numpyros_tools_take_a_bound_model():
    model = probml.model(schools)(groups=3)
    data, p = {"y": jnp.asarray(Y.reshape(3, 10))}, {"mu": 0.3, "a": jnp.ones((3, 1))}
    want = log_density(schools, (), {"groups": 3, **data}, p)[0]
    np.testing.assert_allclose(log_density(model, (), data, p)[0], want, rtol=1e-10)
    drawn = Predictive(model, num_samples=2)(jax.random.key(0))
    assert drawn["obs"].shape == (2, 3, 10)


@pytest.mark.slow
def test_numpyros_sampler_takes_a_bound_model():
    run = MCMC(NUTS(probml.model(schools)(groups=3)), num_warmup=200, num_samples=200,
               progress_bar=False)
    run.run(jax.random.key(0), y=jnp.asarray(Y.reshape(3, 10)))
    assert abs(run.get_samples()["mu"].mean() - 0.3) < 1.0
