"""What issue 19 promises of functions without rows(): rows that are found are those that are written,
bit for bit; one density of everything is compiled once for the shapes of its data; words cost memory
in proportion; what must be bound is named."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from compilations import compiled
from probml.device import load
from probml.evidence import density

RNG = np.random.default_rng(0)
N = 30
X, Y, B, G = (RNG.normal(size=(N, 2)), RNG.normal(size=N), RNG.integers(2, size=N),
              RNG.integers(4, size=N))


def logistic(x, y=None):
    w = sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with plate("data", len(x)):
        sample("obs", dist.Bernoulli(logits=x @ w), obs=y)


def logistic_of_rows(x):
    w = sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with probml.rows():
        sample("obs", dist.Bernoulli(logits=x @ w))


def effects(group, groups, y=None):
    mu, tau = sample("mu", dist.Normal(0, 1)), sample("tau", dist.HalfNormal(1))
    with plate("groups", groups):
        a = sample("a", dist.Normal(mu, tau))
    with plate("data", len(group)):
        sample("obs", dist.Normal(a[group], 1.0), obs=y)


def effects_of_rows(group, groups):
    mu, tau = sample("mu", dist.Normal(0, 1)), sample("tau", dist.HalfNormal(1))
    with plate("groups", groups):
        a = sample("a", dist.Normal(mu, tau))
    with probml.rows():
        sample("obs", dist.Normal(a[group], 1.0))


def classes(y):
    w = sample("w", dist.Dirichlet(jnp.ones(2)))
    p = sample("p", dist.Beta(1, 1).expand([2, 2]).to_event(2))
    with plate("people", len(y)):
        z = sample("z", dist.Categorical(w))
        sample("obs", dist.Normal(p[z], 1.0).to_event(1), obs=y)


def classes_of_rows():
    w = sample("w", dist.Dirichlet(jnp.ones(2)))
    p = sample("p", dist.Beta(1, 1).expand([2, 2]).to_event(2))
    with probml.rows():
        z = sample("z", dist.Categorical(w))
        sample("obs", dist.Normal(p[z], 1.0).to_event(1))


CASES = [
    (logistic, logistic_of_rows, {}, {"x": X}, B, {"w": np.array([0.3, -1.0])}),
    (effects, effects_of_rows, {"groups": 4}, {"group": G}, Y,
     {"mu": 0.2, "tau": 0.7, "a": np.array([-1.0, 0.0, 0.5, 1.0])}),
    (classes, classes_of_rows, {}, {}, X,
     {"w": np.array([0.4, 0.6]), "p": np.array([[0.2, 0.5], [0.9, 0.1]])}),
]


@pytest.mark.parametrize("case", [
    pytest.param(case, id=case[0].__name__,
                 marks=[pytest.mark.slow] if case[0] is effects else []) for case in CASES])
def test_rows_that_are_found_are_bit_for_bit_those_that_are_written(case):
    function, written, settings, inputs, y, params = case
    found, want = probml.model(function)(**settings), probml.model(written)(**settings)
    shown, told = {**inputs, "y": y}, {**inputs, "obs": y}
    assert found.log_density(shown, params) == want.log_density(told, params)
    fits = [model.fit(data, probml.MAP(), start=params) for model, data in ((found, shown),
                                                                           (want, told))]
    for name, value in fits[1].params.items():
        np.testing.assert_array_equal(fits[0].params[name], value)
    np.testing.assert_array_equal(fits[0].log_prob(shown), fits[1].log_prob(told))


def schools(J, sigma, y=None):
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", dist.HalfCauchy(5))
    with plate("J", J):
        theta = sample("theta", dist.Normal(mu, tau))
        sample("obs", dist.Normal(theta, sigma), obs=y)


def loop(y):
    s, h = sample("s", dist.HalfNormal(1.0)), 0.0
    for t in range(len(y)):
        h = sample(f"h_{t}", dist.Normal(0.9 * h, s))
        sample(f"y_{t}", dist.Normal(h, 0.5), obs=y[t])


@pytest.mark.parametrize(("function", "settings", "data", "params"), [
    (schools, {"J": 3}, {"sigma": np.ones(3), "y": Y[:3]},
     {"mu": 1.0, "tau": 2.0, "theta": np.arange(3.0)}),
    (loop, {}, {"y": Y[:9]}, {"s": 0.7}),
], ids=["schools", "loop"])
def test_a_density_of_other_numbers_of_the_same_shapes_compiles_nothing(function, settings, data,
                                                                        params):
    model = probml.model(function)(**settings)
    first = model.log_density(data, params)
    with compiled() as made:
        again = probml.model(function)(**settings).log_density(
            {name: value + 0.5 for name, value in data.items()}, params)
    assert not made and again != first


@pytest.mark.slow
def test_words_of_documents_take_memory_in_proportion():
    def topics(words, documents, count):
        with plate("topic", 3):
            phi = sample("phi", dist.Dirichlet(jnp.ones(50)))
        with plate("document", count):
            theta = sample("theta", dist.Dirichlet(jnp.ones(3)))
        with plate("word", len(words)):
            z = sample("z", dist.Categorical(theta[documents]))
            sample("w", dist.Categorical(phi[z]), obs=words)

    def memory(documents):
        count = documents * 400
        point = {"phi": np.full((3, 50), 0.02), "theta": np.full((documents, 3), 1 / 3)}
        model = probml.model(topics)(count=documents)
        held = model.at(point)._read({"words": RNG.integers(50, size=count),
                                      "documents": np.arange(count) // 400}).trimmed()
        plan = held.plan()
        rows, known = load.load(held, plan, params=point)
        call = jax.jit(lambda u, known, rows: density.log_posterior(plan, known, rows)(u))
        program = call.lower(density.to_unbounded(plan, point, known), known, rows).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert memory(80) < 2.5 * memory(40)


def sized(n, y=None):
    m = sample("m", dist.Normal(0, 1))
    with plate("cells", n):
        sample("y", dist.Normal(m, 1.0), obs=y)


@pytest.mark.parametrize(("data", "words"), [
    ({"y": np.ones(8)}, ("have no 'n'", "n=")),
    ({"y": np.ones(8), "n": np.array([8, 8])}, ("'n'", "sized(n=8)")),
    ({"y": np.ones(7), "n": 8}, ("'y'", "(7,)", "'cells' 8")),
])
def test_an_argument_that_must_be_bound_is_named(data, words):
    with pytest.raises((probml.ModelError, probml.DataError)) as error:
        probml.model(sized)().log_density(data, {"m": 0.0})
    assert all(word in str(error.value) for word in words), str(error.value)


def test_what_all_rows_share_is_given_to_every_question_alike():
    def weighted(by, group, y=None):
        b = sample("b", dist.Normal(0, 5).expand([2]).to_event(1))
        with plate("data", len(group)):
            sample("obs", dist.Normal((by @ b)[group], 1.0), obs=y)

    by = np.array([[1.0, 0], [0, 1], [1, 1]])
    fit = probml.model(weighted)().fit({"by": by, "group": G % 3, "y": Y})
    new = {"by": by, "group": np.array([0, 1])}
    at = probml.model(weighted)().at({"b": np.array([1.0, 2.0])})
    for known in (fit, at):
        assert len(known.predict(new, "obs")) == len(known.simulate(**new)["obs"]) == 2
    assert len(at.do({"obs": 1.0}).simulate(**new)["obs"]) == 2
    np.testing.assert_array_equal(fit.simulate(**new)["obs"], fit.simulate(group=[0, 1])["obs"])
    for question in (lambda **own: fit.predict(own, "obs"), fit.simulate):
        with pytest.raises(probml.DataError, match="'by' has one value for all rows"):
            question(by=2 * by, group=[0, 1])
