"""No random number is used twice: every key that JAX is shown is drawn from once and split never, or
is split, into children each of which is made once."""

import contextlib
import sys
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from numpyro import plate, sample

import probml
from probml.jaxpr.program import equations
from probml.numerics import compiling
from probml.numerics.transfer import derive_key, random_key

BITS = "its bits"
MADE = {"random_bits": jax.random.bits, "random_split": jax.random.split,
        "random_fold_in": lambda key: jax.random.fold_in(key, 3)}


@contextlib.contextmanager
def keys(monkeypatch):
    """(key, BITS or the number of a child) → how often it was drawn or made, while nothing is
    compiled."""
    found, own = Counter(), {}
    for name, function in MADE.items():
        primitive = next(eqn.primitive for eqn in equations(
            jax.make_jaxpr(function)(jax.random.key(0))) if eqn.primitive.name == name)
        own[primitive] = primitive.impl

    def noting(primitive, impl):
        def noted(key, *more, **settings):
            held = np.asarray(jax.random.key_data(key))
            numbers = np.asarray(more[0] if more else 0)  # one key, or several, and as many numbers
            shape = np.broadcast_shapes(held.shape[:-1], numbers.shape)
            held = np.broadcast_to(held, (*shape, held.shape[-1]))
            numbers = np.broadcast_to(numbers, shape).ravel()
            for one, number in zip(held.reshape(-1, held.shape[-1]), numbers, strict=True):
                size = int(np.prod(settings.get("shape", ())))
                children = {"random_bits": [BITS] * min(size, 1), "random_split": range(size),
                            "random_fold_in": [int(number)]}[primitive.name]
                found.update((one.tobytes(), child) for child in children if not _looked())
            return impl(key, *more, **settings)

        return noted

    # a function of many calls is run again where one without room for any has failed
    monkeypatch.setattr(compiling, "inline_calls", contextlib.nullcontext)
    for primitive, impl in own.items():
        primitive.impl = noting(primitive, impl)
    try:
        with jax.disable_jit():
            yield found
    finally:
        for primitive, impl in own.items():
            primitive.impl = impl


def _looked():
    """Whether one of NumPyro's guides only looks at which sites there are: what is drawn is not
    used."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != "_setup_prototype":
        frame = frame.f_back
    return frame is not None


def again(found):
    """What is used twice: a key from which bits are drawn, and which is split, too."""
    whole = {key for key, child in found if child == BITS}
    return [use for use, times in found.items() if times > 1] + [
        (key, child) for key, child in found if child != BITS and key in whole]


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


@probml.model
def places():
    mean = sample("mean", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with probml.rows():
        sample("x", dist.Normal(mean, 1.0).to_event(1))


@probml.model
def groups(g):
    spread = sample("spread", dist.HalfNormal(1.0))
    with plate("group", 3):
        effect = sample("effect", dist.Normal(0.0, spread))
    with probml.rows():
        sample("y", dist.Normal(effect[g], 1.0))


@probml.model
def steps():
    with plate("state", 2):
        rate = sample("rate", dist.Gamma(2.0, 1.0))
        moves = sample("moves", dist.Dirichlet(jnp.full(2, 2.0)))
    with probml.rows():
        z = sample("z", probml.MarkovChain(jnp.array([0.6, 0.4]), moves))
        sample("y", dist.Poisson(rate[z]).to_event(1))


@probml.model
def both():
    a = sample("a", dist.Normal(0.0, 1.0))
    with probml.rows():
        z = sample("z", dist.Bernoulli(0.3))
        u = sample("u", dist.Normal(0.0, 1.0))
        sample("n", dist.Poisson(jnp.exp(a + u + z)))


POINT = {"weights": [0.4, 0.6], "mean": [0.0, 3.0]}
X = np.array([0.1, 2.5, 3.2])
SEEN = {"y": [1, 0, 1]}
PLACES = {"x": np.random.default_rng(0).normal(size=(8, 2))}
MIXED = {"x": np.array([0.0, 1.0, 4.0, 5.0]), "y": np.ones((4, 3))}
GROUPS = {"g": np.arange(6) % 3, "y": np.arange(6.0)}
COUNTS = {"y": np.array([[1.0, 2.0, 7.0, 8.0], [0.0, 9.0, 1.0, 2.0]])}
FEW = {"n": np.array([1, 0, 3, 2, 9])}
NUTS = probml.NUTS(draws=4, warmup=3, chains=2)


def whole(model, data, engine, **rows):
    """A fit, and rows of its posterior, all by one seed."""
    return model.fit(data, engine, seed=1).simulate(seed=1, **(rows or {"rows": 5}))


ASKED = {
    "a model simulates": lambda: clusters().simulate(5, seed=1),
    "a fit simulates": lambda: clusters().at(POINT).simulate(5, seed=1),
    "rows are drawn given what is seen": lambda: clusters().at(POINT).simulate(
        3, seed=1, given={"x": X}),
    "steps given what is seen": lambda: steps().at(
        {"rate": [1.0, 6.0], "moves": np.full((2, 2), 0.5)}).simulate(given=COUNTS, seed=1),
    "states and numbers given what is seen": lambda: both().at({"a": 0.0}).simulate(
        given=FEW, seed=1),
    "draws of a closed form": lambda: rate().fit(SEEN, probml.Exact()).draws(5, seed=1),
    "rows of a posterior": lambda: rate().fit(SEEN, probml.Exact()).simulate(5, seed=1),
    "Exact": lambda: whole(places(), PLACES, probml.Exact()),
    "EM": lambda: whole(clusters(), MIXED, probml.EM(restarts=3, max_iterations=2)),
    "EM in batches": lambda: whole(clusters(), MIXED, probml.EM(
        restarts=2, max_iterations=3, batch_rows=2)),
    "EM of chains": lambda: whole(steps(), COUNTS, probml.EM(restarts=2, max_iterations=2),
                                  rows=2, steps=3),
    "VB": lambda: whole(clusters(), MIXED, probml.VB(restarts=2, max_iterations=2)),
    "MAP in batches": lambda: whole(places(), PLACES, probml.MAP(
        optimizer=optax.adam(0.1), steps=3, batch_rows=4)),
    "Laplace": lambda: whole(rate(), SEEN, probml.Laplace()),
    "Laplace of states and numbers": lambda: whole(both(), FEW, probml.Laplace()),
    "Laplace of groups": lambda: whole(groups(), GROUPS, probml.Laplace(draws=1024),  # no padding
                                       g=GROUPS["g"]),
    "NUTS": lambda: whole(rate(), SEEN, NUTS),
    "NUTS of a mixture": lambda: whole(clusters(), MIXED, NUTS),
    "NUTS of groups": lambda: whole(groups(), GROUPS, NUTS, g=GROUPS["g"]),
    "SVI": lambda: whole(rate(), SEEN, probml.SVI(steps=3)),
    "SVI in batches": lambda: whole(places(), PLACES, probml.SVI(steps=3, batch_rows=4)),
    "a certificate": lambda: rate().check(4, probml.Exact(), simulations=20),
}
QUICK = ("rows of a posterior",)  # nothing is compiled, and each operation runs by itself


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK))
                                  for name in ASKED])
def test_no_key_is_used_twice(name, monkeypatch):
    with keys(monkeypatch) as found:
        ASKED[name]()
    assert found, "no random number was drawn"
    assert again(found) == []


def test_a_key_that_is_used_twice_is_found(monkeypatch):
    key = random_key(3)
    for twice in (lambda: [jax.random.bits(key, (n,)) for n in (2, 3)],  # the first two are one
                  lambda: [jax.random.split(key, 3), jax.random.fold_in(key, 1)],
                  lambda: [jax.random.split(key), jax.random.bits(key)]):
        with keys(monkeypatch) as found:
            twice()
        assert again(found)


def test_a_key_for_another_use_is_none_of_those_that_it_is_split_into():
    key = random_key(3)
    made = [jax.random.split(key, 1000), *(derive_key(key, use)[None] for use in range(8))]
    every = np.concatenate([jax.random.key_data(one) for one in made])
    assert len(np.unique(every, axis=0)) == len(every)
