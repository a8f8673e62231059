"""numpyro's scan over hidden states, whatever its carry starts at: None, a number, a sampled value, a
tuple or a mapping; of plates in its steps and of chains of higher order: the density of brute
force. A line of the table is a function, its data, and p(x_1), p(x_2 | x_1), … of its chain."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers, plate, sample
from numpyro.contrib.control_flow import scan
from numpyro.distributions.transforms import SigmoidTransform
from scipy.stats import norm
from scipy.stats import t as student

import probml
from probml.errors import ModelError

FIRST, MOVE = np.array([0.6, 0.4]), np.array([[0.8, 0.2], [0.1, 0.9]])
PAIR = np.random.default_rng(1).dirichlet(np.ones(2), (2, 2))
TRIPLE = np.random.default_rng(5).dirichlet(np.ones(2), (2, 2, 2))
F, M, P, Q = map(jnp.asarray, (FIRST, MOVE, PAIR, TRIPLE))
MEANS = np.array([-1.0, 1.0])
Y = np.array([0.2, -1.0, 1.3, 0.7])
PLATES = np.random.default_rng(0).normal(size=(4, 3))
VECTORS = np.random.default_rng(3).normal(size=(4, 3, 2))


def begun(x):
    """The first states', or those after x."""
    return F if x is None else M[x]


def seen(x, now, loc=0.0):
    return sample("y", dist.Normal(jnp.asarray(MEANS)[x] + loc, 1.0), obs=now)


def from_none(data):
    def step(x, now):
        x = sample("x", dist.Categorical(begun(x)))
        seen(x, now)
        return x, None

    scan(step, None, data)


def from_none_backwards(data):
    def step(x, now):
        x = sample("x", dist.Categorical(begun(x)))
        seen(x, now)
        return x, None

    scan(step, None, data, reverse=True)


def from_none_in_a_tuple(data):
    def step(carry, now):
        x = sample("x", dist.Categorical(begun(carry[0])))
        seen(x, now)
        return (x,), None

    scan(step, (None,), data)


def from_none_in_a_mapping(data):
    def step(carry, now):
        x = sample("x", dist.Categorical(begun(carry["x"])))
        seen(x, now)
        return {"x": x, "t": carry["t"] + 1}, None

    scan(step, {"x": None, "t": 0}, data)


def from_none_to_a_tuple(data):
    def step(carry, now):
        x, before = (None, 0.0) if carry is None else carry
        x = sample("x", dist.Categorical(begun(x)))
        seen(x, now, 0.3 * before)
        return (x, now), None

    scan(step, None, data)


def from_none_by_probabilities_and_logits(data):
    def step(x, now):
        x = sample("x", dist.Categorical(F) if x is None
                   else dist.Categorical(logits=jnp.log(M)[x]))
        seen(x, now)
        return x, None

    scan(step, None, data)


def of_no_input(data):
    def step(carry, _):
        x, t = carry
        x = sample("x", dist.Categorical(begun(x)))
        seen(x, data[t])
        return (x, t + 1), None

    scan(step, (None, 0), None, length=len(data))


def from_a_number(data):
    def step(x, now):
        x = sample("x", dist.Categorical(M[x]))
        seen(x, now)
        return x, None

    scan(step, 0, data)


def from_a_sampled_state(data):
    def step(x, now):
        x = sample("x", dist.Categorical(M[x]))
        seen(x, now)
        return x, None

    scan(step, sample("x0", dist.Categorical(F)), data)


def of_nothing_handed_on(data):
    def step(carry, now):
        seen(sample("x", dist.Categorical(F)), now)
        return carry, None

    scan(step, None, data)


def bernoulli_under_a_mask(data):
    def step(x, now):
        x = sample("x", dist.Bernoulli(begun(x)[..., 1]))
        with handlers.mask(mask=True):
            seen(x, now)
        return x, None

    scan(step, None, data)


def plate_from_none(data):
    def step(x, now):
        with plate("n", 3):
            x = sample("x", dist.Categorical(begun(x)))
            seen(x, now)
        return x, None

    scan(step, None, data)


def plate_from_one_number(data):
    def step(x, now):
        with plate("n", 3):
            x = sample("x", dist.Categorical(M[x]))
            seen(x, now)
        return x, None

    scan(step, 0, data)


def plate_of_vectors(data):
    def step(x, now):
        with plate("n", 3):
            x = sample("x", dist.Categorical(begun(x)))
            loc = jnp.asarray(MEANS)[x][..., None]
            sample("y", dist.Normal(loc, jnp.ones(2)).to_event(1), obs=now)
        return x, None

    scan(step, None, data)


def plates_in_plates(data):
    def step(x, now):
        with plate("n", 3, dim=-2), plate("m", 2, dim=-1):
            x = sample("x", dist.Categorical(begun(x)))
            seen(x, now)
        return x, None

    scan(step, None, data)


def plate_below_a_chain(data):
    def step(x, now):
        x = sample("x", dist.Categorical(begun(x)))
        with plate("n", 3):
            seen(x, now)
        return x, None

    scan(step, None, data)


def second_order(data):
    def step(carry, now):
        x = sample("x", dist.Categorical(P[carry]))
        seen(x, now)
        return (carry[1], x), None

    scan(step, (0, 0), data, history=2)


def second_order_from_none(data):
    def step(carry, now):
        a, b = carry
        x = sample("x", dist.Categorical(begun(b) if a is None else P[a, b]))
        seen(x, now)
        return (b, x), None

    scan(step, (None, None), data, history=2)


def second_order_in_a_plate(data):
    def step(carry, now):
        with plate("n", 3):
            x = sample("x", dist.Categorical(P[carry]))
            seen(x, now)
        return (carry[1], x), None

    scan(step, (jnp.zeros(3, int), jnp.zeros(3, int)), data)


def third_order(data):
    def step(carry, now):
        x = sample("x", dist.Categorical(Q[carry["a"], carry["b"], carry["c"]]))
        seen(x, now)
        return {"a": carry["b"], "b": carry["c"], "c": x}, None

    scan(step, dict.fromkeys("abc", 0), data)


def chain(y: np.ndarray, first: np.ndarray = FIRST, *later: np.ndarray) -> float:
    """log p of what is seen of one chain: (steps,) or (steps, elements), NaN where it is unseen.

    Args:
        later: p(x_t | the states before), for t = 2, 3, …; the last for all that follow.
    """
    later = later or (MOVE,)
    logs = norm.logpdf(y.reshape(len(y), 1, -1), MEANS[:, None])
    weights = np.exp(np.where(np.isnan(logs), 0.0, logs).sum(-1))
    total = 0.0
    for states in itertools.product(range(2), repeat=len(y)):
        p = first[states[0]] * weights[0, states[0]]
        for t in range(1, len(y)):
            move = later[min(t, len(later)) - 1]
            p *= move[states[t + 1 - move.ndim : t + 1]] * weights[t, states[t]]
        total += p
    return np.log(total)


class Case(NamedTuple):
    function: Callable
    data: np.ndarray
    right: Callable[[np.ndarray], float]


def each(right: Callable[[np.ndarray], float]) -> Callable[[np.ndarray], float]:
    """Members of a plate, by themselves."""
    return lambda y: sum(right(y[:, n]) for n in range(y.shape[1]))


def second(y):
    return chain(y, PAIR[0, 0], PAIR[0], PAIR)


TABLE = [
    Case(from_none, Y, chain),
    Case(from_none, Y[:1], chain),
    Case(from_none, np.where(Y < 0, np.nan, Y), chain),
    Case(from_none_backwards, Y, lambda y: chain(y[::-1])),
    Case(from_none_in_a_tuple, Y, chain),
    Case(from_none_in_a_mapping, Y, chain),
    Case(from_none_to_a_tuple, Y, lambda y: chain(y - 0.3 * np.r_[0.0, y[:-1]])),
    Case(from_none_by_probabilities_and_logits, Y, chain),
    Case(of_no_input, Y, chain),
    Case(from_a_number, Y, lambda y: chain(y, MOVE[0])),
    Case(from_a_sampled_state, Y, lambda y: chain(y, FIRST @ MOVE)),
    Case(of_nothing_handed_on, Y, lambda y: sum(chain(y[[t]]) for t in range(len(y)))),
    Case(bernoulli_under_a_mask, Y, chain),
    Case(plate_from_none, PLATES, each(chain)),
    Case(plate_from_one_number, PLATES, each(lambda y: chain(y, MOVE[0]))),
    Case(plate_of_vectors, VECTORS, each(chain)),
    Case(plates_in_plates, VECTORS, each(each(chain))),
    Case(plate_below_a_chain, PLATES, chain),
    Case(second_order, Y, second),
    Case(second_order, Y[:1], second),
    Case(second_order_from_none, Y, lambda y: chain(y, FIRST, MOVE, PAIR)),
    Case(second_order_in_a_plate, PLATES, each(second)),
    Case(third_order, Y, lambda y: chain(y, TRIPLE[0, 0, 0], TRIPLE[0, 0], TRIPLE[0], TRIPLE)),
]


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.function.__name__)
def test_hidden_states_of_a_scan_are_summed_out_from_any_start(case):
    got = probml.model(case.function)().log_density({"data": case.data}, {})
    assert got == pytest.approx(case.right(case.data), abs=2e-4)


def accumulating(data):
    def step(x, now):
        x = x + sample("c", dist.Bernoulli(0.3))
        seen(x, now)
        return x, None

    scan(step, 0, data)


def of_two_kinds(data):
    def step(x, now):
        x = sample("x", dist.Bernoulli(0.4) if x is None else dist.Categorical(M[x]))
        seen(x, now)
        return x, None

    scan(step, None, data)


def growing(data):
    def step(carry, now):
        x = sample("x", dist.Categorical(F))
        seen(x, now)
        return (carry, x), None

    scan(step, None, data)


def moved(data):
    """NumPyro takes the noise of all steps for one number."""
    def step(x, now):
        x = x + sample("noise", dist.TransformedDistribution(
            dist.Normal(0.0, 1.0), SigmoidTransform()))
        sample("data", dist.Normal(x, 1.0), obs=now)
        return x, None

    scan(step, 0.0, data)


@pytest.mark.parametrize("function, words", [
    (moved, "'noise' is latent, is in a scan and has a distribution, TransformedDistribution"),
    (accumulating, "depends on the discrete states of all earlier steps"),
    (of_two_kinds, "BernoulliProbs in the first step and CategoricalProbs in the others"),
    (growing, "still changes its shape or type after 4 steps"),
], ids=lambda value: getattr(value, "__name__", None))
def test_what_cannot_be_summed_out_along_a_scan_is_refused_in_words(function, words):
    with pytest.raises(ModelError, match=words):
        probml.model(function)().log_density({"data": Y}, {})


def test_states_of_a_scan_from_none_have_the_marginals_and_the_path_of_brute_force():
    weights = np.exp(norm.logpdf(Y[:, None], MEANS))
    paths = np.array(list(itertools.product(range(2), repeat=len(Y))))
    p = FIRST[paths[:, 0]] * MOVE[paths[:, :-1], paths[:, 1:]].prod(1)
    p *= weights[np.arange(len(Y)), paths].prod(1)
    share = np.stack([[p[paths[:, t] == k].sum() for k in range(2)] for t in range(len(Y))])
    fit = probml.model(from_none)().at({})
    np.testing.assert_allclose(fit.predict_proba({"data": Y}, "x"), share / p.sum(), atol=1e-5)
    np.testing.assert_array_equal(fit.decode({"data": Y})["x"], paths[p.argmax()])


def numbers_from_none(data):
    def step(x, now):
        x = sample("x", dist.Normal(0.0, 1.0) if x is None else dist.Normal(0.8 * x, 0.5))
        sample("y", dist.StudentT(3.0, x, 1.0), obs=now)
        return x, None

    scan(step, None, data)


def test_numbers_of_a_scan_from_none_have_their_joint_density():
    x = np.array([0.1, -0.4, 0.8, 0.3])
    got = probml.model(numbers_from_none)().log_density({"data": Y}, {"x": x})
    right = norm.logpdf(x[0]) + norm.logpdf(x[1:], 0.8 * x[:-1], 0.5).sum() + student.logpdf(
        Y, 3.0, x).sum()
    assert got == pytest.approx(right, abs=1e-4)


@pytest.mark.parametrize("prior, link", [
    (lambda x: dist.Normal(jnp.tanh(x), 1.0), lambda x: dist.Normal(x, 1.0)),
    (lambda x: dist.LogNormal(0.3 * x, 1.0), lambda x: dist.Normal(x, 1.0)),
    (lambda x: dist.Gamma(2.0, 1 / (jnp.abs(x) + 0.1)), lambda x: dist.Normal(x, 1.0)),
    (lambda x: dist.Normal(0.5 * x, 1.0), lambda x: dist.Poisson(jnp.exp(x))),
    (lambda x: dist.Exponential(1 / (jnp.abs(x) + 0.1)), lambda x: dist.Normal(x, 1.0)),
], ids=["tanh", "lognormal", "gamma", "counts", "exponential"])
def test_numbers_of_a_scan_from_a_constant_are_fitted(prior, link):
    walk = walk_of(prior, link)
    fit = walk.fit({"data": np.array([0.0, 1.0, 1.0, 2.0])}, probml.MAP(steps=20))
    assert np.isfinite(fit.params["x"]).all()


def walk_of(prior, link):
    def walk(data):
        def step(x, now):
            x = numpyro.sample("x", prior(x))
            numpyro.sample("y", link(x), obs=now)
            return x, None

        scan(step, 1.0, data)

    return probml.model(walk)()


def test_a_support_that_depends_on_the_step_before_is_refused():
    walk = walk_of(lambda x: dist.Uniform(x - 1, x + 1), lambda x: dist.Normal(x, 1.0))
    with pytest.raises(probml.Refusal, match="in the step before"):
        walk.fit({"data": Y})
