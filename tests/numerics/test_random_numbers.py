"""No random number is used twice: of every key that bits are drawn from, as JAX sees it, there is
one use."""

import contextlib
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.jaxpr.walk import equations


@contextlib.contextmanager
def keys():
    """Key → how often bits were drawn from it, while nothing is compiled."""
    found, primitive = Counter(), next(
        eqn.primitive for eqn in equations(jax.make_jaxpr(jax.random.bits)(jax.random.key(0)))
        if eqn.primitive.name == "random_bits")
    bits = primitive.impl

    def noted(key, **settings):
        held = np.asarray(jax.random.key_data(key))
        for one in held.reshape(-1, held.shape[-1]):
            found[one.tobytes(), settings["shape"]] += 1
        return bits(key, **settings)

    primitive.impl = noted
    try:
        with jax.disable_jit():
            yield found
    finally:
        primitive.impl = bits


@probml.model
def clusters():
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    with plate("component", 2):
        mean = sample("mean", dist.Normal(0.0, 5.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], 1.0))
        with plate("cells", 3):
            sample("y", dist.Gamma(2.0, 1.0))


@probml.model
def rate():
    p = sample("p", dist.Beta(2.0, 3.0))
    with probml.rows():
        sample("y", dist.Bernoulli(p))


POINT = {"weights": [0.4, 0.6], "mean": [0.0, 3.0]}
X = np.array([0.1, 2.5, 3.2])
SEEN = {"y": [1, 0, 1]}
ASKED = {
    "a model simulates": lambda: clusters().simulate(5, seed=1),
    "a fit simulates": lambda: clusters().at(POINT).simulate(5, seed=1),
    "rows are drawn given what is seen": lambda: clusters().at(POINT).simulate(
        3, seed=1, given={"x": X}),
    "draws of a closed form": lambda: rate().fit(SEEN, probml.Exact()).draws(5, seed=1),
    "rows of a posterior": lambda: rate().fit(SEEN, probml.Exact()).simulate(5, seed=1),
    "Laplace": lambda: rate().fit(SEEN, probml.Laplace()).draws(5),
    "NUTS": lambda: rate().fit(SEEN, probml.NUTS(draws=4, warmup=4, chains=2)).draws(5),
    "SVI": lambda: rate().fit(SEEN, probml.SVI(steps=3)).draws(5),
}
QUICK = ("rows of a posterior",)  # nothing is compiled, and each operation runs by itself


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK))
                                  for name in ASKED])
def test_no_key_is_used_twice(name):
    with keys() as found:
        ASKED[name]()
    assert found, "no random number was drawn"
    assert max(found.values()) == 1, f"{name}: {found.most_common(3)}"
