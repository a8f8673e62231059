"""Plates of hidden cells in rows, and vectors of hidden states: log p of rows is that of brute force,
whatever is seen of a cell, above it, below it and beside it. A line of the table is a model, its
data, and the right answer."""

import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import deterministic, factor, plate, sample
from scipy.special import expit, logsumexp, softmax
from scipy.stats import multivariate_normal, norm, poisson

import probml
from probml.dataset.read import read

RNG = np.random.default_rng(0)
N, T, TAU = 4, 9, 0.8
PI, MU = np.array([0.3, 0.7]), np.array([-1.0, 2.0])
MU2 = np.array([[-3.0, 0.0], [3.0, 0.5]])
KIND = np.array([0.4, 0.6])  # of a row
GIVEN = np.array([[0.3, 0.7], [0.8, 0.2]])  # states of cells given a kind, or another state
BOTH = np.array([[-1.0, 2.0], [0.0, 3.0]])  # means given two states
COV = np.array([[1.0, 0.5], [0.5, 2.0]])
THREE = np.array([0.2, 0.5, 0.3])
X, XV = RNG.normal(size=(N, T)) + 1, RNG.normal(size=(N, T, 2))
DEEP = RNG.normal(size=(N, 7, 3))
COUNTS, BITS = RNG.poisson(2.0, (N, T)), RNG.integers(0, 2, (N, T))
HOLES = np.where(RNG.random(X.shape) < 0.3, np.nan, X)
SOME = np.where(RNG.random(X.shape) < 0.3, RNG.integers(0, 2, X.shape), np.nan)
AGE, HARD = RNG.normal(size=N), np.linspace(-1, 1, T)
SLIP = np.linspace(0.05, 0.3, T)
SKILLS = RNG.integers(0, 2, (6, 8))  # which skills each item takes
ITEMS = RNG.integers(0, 2, (N, 6))




@probml.model
def numbers_in_a_plate():
    with probml.rows(), plate("t", T):
        z = sample("z", dist.Categorical(jnp.asarray(PI)))
        sample("x", dist.Normal(jnp.asarray(MU)[z], 1.0))


@probml.model
def vectors_in_a_plate(cells: int = T):
    with probml.rows(), plate("t", cells):
        z = sample("z", dist.Categorical(jnp.asarray(PI)))
        sample("x", dist.Normal(jnp.asarray(MU2)[z], 1.0).to_event(1))


@probml.model
def correlated_vectors():
    with probml.rows(), plate("t", T):
        z = sample("z", dist.Categorical(jnp.asarray(PI)))
        sample("x", dist.MultivariateNormal(jnp.asarray(MU2)[z], jnp.asarray(COV)))


@probml.model
def one_vector():
    with probml.rows():
        z = sample("z", dist.Bernoulli(PI[1] * jnp.ones(T)).to_event(1))
        sample("x", dist.Normal(jnp.asarray(MU)[z], 1.0).to_event(1))


@probml.model
def three_states():
    with probml.rows(), plate("t", T):
        z = sample("z", dist.Categorical(jnp.asarray(THREE)))
        sample("x", dist.Normal(z - 1.0, 1.0))


@probml.model
def hidden_counts():
    with probml.rows(), plate("t", T):
        z = sample("z", dist.Binomial(2, 0.5))
        sample("x", dist.Poisson(1.0 + z))


@probml.model
def kinds_of_rows():
    with probml.rows():
        c = sample("c", dist.Categorical(jnp.asarray(KIND)))
        with plate("t", T):
            z = sample("z", dist.Categorical(jnp.asarray(GIVEN)[c]))
            sample("x", dist.Normal(jnp.asarray(MU)[z], 1.0))


@probml.model
def kinds_that_are_seen_below():
    with probml.rows():
        c = sample("c", dist.Categorical(jnp.asarray(KIND)))
        with plate("t", T):
            z = sample("z", dist.Categorical(jnp.asarray(PI)))
            sample("x", dist.Normal(jnp.asarray(MU)[z] + c, 1.0))


@probml.model
def seen_in_two_ways():
    with probml.rows(), plate("t", T):
        z = sample("z", dist.Categorical(jnp.asarray(PI)))
        sample("x", dist.Normal(jnp.asarray(MU)[z], 1.0))
        sample("y", dist.Bernoulli(jnp.asarray(GIVEN)[z, 1]))


@probml.model
def plate_below():
    with probml.rows(), plate("t", 7):
        z = sample("z", dist.Categorical(jnp.asarray(PI)))
        with plate("j", 3):
            sample("x", dist.Normal(jnp.asarray(MU)[z], 1.0))


@probml.model
def plates_in_plates():
    with probml.rows(), plate("t", 7):
        z = sample("z", dist.Categorical(jnp.asarray(PI)))
        with plate("j", 3):
            v = sample("v", dist.Categorical(jnp.asarray(GIVEN)[z]))
            sample("x", dist.Normal(jnp.asarray(BOTH)[z, v], 1.0))


@probml.model
def two_states_of_a_cell():
    with probml.rows(), plate("t", T):
        z = sample("z", dist.Categorical(jnp.asarray(PI)))
        v = sample("v", dist.Categorical(jnp.asarray(GIVEN)[z]))
        sample("x", dist.Normal(jnp.asarray(BOTH)[z, v], 1.0))


@probml.model
def parameters_of_cells():
    slip = sample("slip", dist.Uniform(0, 0.5).expand([T]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Bernoulli(PI[1] * jnp.ones(T)).to_event(1))
        sample("y", dist.Bernoulli(jnp.where(z == 1, 1 - slip, slip)).to_event(1))


@probml.model
def with_an_input(age):
    slope = sample("slope", dist.Normal(0, 1))
    with probml.rows(), plate("t", T):
        z = sample("z", dist.Categorical(jnp.asarray(PI)))
        sample("x", dist.Normal(jnp.asarray(MU)[z] + slope * age, 1.0))


@probml.model
def skills_taken_together():
    """Cells that are not independent given the rest: their joint states, as few as they are."""
    with probml.rows():
        z = sample("z", dist.Bernoulli(0.5 * jnp.ones(8)).to_event(1))
        able = (z[..., None, :] >= jnp.asarray(SKILLS)).all(-1)
        sample("y", dist.Bernoulli(jnp.where(able, 0.9, 0.2)).to_event(1))


@probml.model
def beside_a_number():
    with probml.rows():
        u = sample("u", dist.Normal(0, TAU))
        z = sample("z", dist.Bernoulli(PI[1] * jnp.ones(T)).to_event(1))
        sample("x", dist.Normal(jnp.asarray(MU)[z] + u[..., None], 1.0).to_event(1))


@probml.model
def below_a_number():
    with probml.rows():
        u = sample("u", dist.Normal(0, TAU))
        z = sample("z", dist.Bernoulli(logits=u[..., None] - jnp.asarray(HARD)).to_event(1))
        sample("y", dist.Bernoulli(jnp.asarray(GIVEN)[z, 1]).to_event(1))


@probml.model
def counts_beside_a_number():
    with probml.rows():
        u = sample("u", dist.Normal(0, TAU))
        with plate("t", T):
            z = sample("z", dist.Categorical(jnp.asarray(PI)))
            sample("x", dist.Poisson(jnp.exp(z + u)))


@probml.model
def beside_a_number_and_a_kind():
    with probml.rows():
        c = sample("c", dist.Categorical(jnp.asarray(KIND)))
        u = sample("u", dist.Normal(0, TAU))
        with plate("t", T):
            z = sample("z", dist.Categorical(jnp.asarray(GIVEN)[c]))
            sample("x", dist.Normal(jnp.asarray(MU)[z] + u, 1.0))


@probml.model
def beside_two_numbers():
    with probml.rows():
        u, v = sample("u", dist.Normal(0, TAU)), sample("v", dist.Normal(0, 0.5))
        with plate("t", T):
            z = sample("z", dist.Categorical(jnp.asarray(PI)))
            sample("x", dist.Normal(jnp.asarray(MU)[z] + u + v * jnp.asarray(HARD)[:, None], 1.0))


NODES, SHARES = np.polynomial.hermite_e.hermegauss(120)
SHARES /= SHARES.sum()


def near(x, loc=MU):
    """p(x | state) of every cell."""
    seen = norm.pdf(x[..., None], loc)
    return np.where(np.isnan(seen), 1.0, seen)


def cells(likelihood, prior=PI):
    """log p of rows whose cells are independent: (n, cells, states) → (n,)."""
    with np.errstate(divide="ignore"):  # a count that no state can give
        return np.log((prior * likelihood).sum(-1)).sum(-1)


def mixed(*logs):
    return logsumexp([np.log(KIND[c]) + log for c, log in enumerate(logs)], 0)


def integrated(log):
    return logsumexp([log(TAU * u) for u in NODES], 0, SHARES[:, None])


def vectors(x):
    return norm.pdf(x[..., None, :], MU2).prod(-1)


def nested(x):
    inner = (GIVEN * norm.pdf(x[..., None, None], BOTH)).sum(-1)
    return cells(inner.prod(2) if x.ndim == 3 else inner)


def together(y):
    total = 0.0
    for z in itertools.product(range(2), repeat=8):
        p = np.where((np.array(z) >= SKILLS).all(1), 0.9, 0.2)
        total = total + 0.5**8 * np.where(y == 1, p, 1 - p).prod(1)
    return np.log(total)


def bits(y, p):
    return np.where(y[..., None] == 1, p, 1 - p)


class Case(NamedTuple):
    model: Any
    data: dict[str, np.ndarray]
    right: Callable[..., np.ndarray]  # of the data
    params: dict[str, Any] = {}


TABLE = [
    Case(numbers_in_a_plate, {"x": X}, lambda x: cells(near(x))),
    Case(numbers_in_a_plate, {"x": HOLES}, lambda x: cells(near(x))),
    Case(numbers_in_a_plate, {"x": X, "z": SOME}, lambda x, z: cells(
        near(x) * (np.isnan(z)[..., None] | (z[..., None] == [0, 1])))),
    Case(vectors_in_a_plate, {"x": XV}, lambda x: cells(vectors(x))),
    Case(correlated_vectors, {"x": XV}, lambda x: cells(np.stack(
        [multivariate_normal.pdf(x, m, COV) for m in MU2], -1))),
    Case(one_vector, {"x": X}, lambda x: cells(near(x))),
    Case(three_states, {"x": X}, lambda x: cells(near(x, np.arange(3) - 1.0), THREE)),
    Case(hidden_counts, {"x": COUNTS}, lambda x: cells(
        poisson.pmf(x[..., None], 1.0 + np.arange(3)), np.array([0.25, 0.5, 0.25]))),
    Case(kinds_of_rows, {"x": X}, lambda x: mixed(*(cells(near(x), p) for p in GIVEN))),
    Case(kinds_that_are_seen_below, {"x": X}, lambda x: mixed(cells(near(x)), cells(near(x - 1)))),
    Case(seen_in_two_ways, {"x": X, "y": BITS}, lambda x, y: cells(
        near(x) * bits(y, GIVEN[:, 1]))),
    Case(plate_below, {"x": DEEP}, lambda x: cells(near(x).prod(2))),
    Case(plates_in_plates, {"x": DEEP}, nested),
    Case(two_states_of_a_cell, {"x": X}, nested),
    Case(parameters_of_cells, {"y": BITS}, lambda y: cells(
        bits(y, np.stack([SLIP, 1 - SLIP], -1))), {"slip": SLIP}),
    Case(with_an_input, {"x": X, "age": AGE}, lambda x, age: cells(near(x - 0.5 * age[:, None])),
         {"slope": 0.5}),
    Case(skills_taken_together, {"y": ITEMS}, together),
    Case(beside_a_number, {"x": X}, lambda x: integrated(lambda u: cells(near(x - u)))),
]
SLOW = [
    Case(below_a_number, {"y": BITS}, lambda y: integrated(lambda u: cells(
        bits(y, GIVEN[:, 1]), np.stack([expit(HARD - u), expit(u - HARD)], -1)))),
    Case(counts_beside_a_number, {"x": COUNTS}, lambda x: integrated(lambda u: cells(
        poisson.pmf(x[..., None], np.exp(np.arange(2) + u))))),
    Case(beside_a_number_and_a_kind, {"x": X}, lambda x: mixed(*(integrated(
        lambda u, p=p: cells(near(x - u), p)) for p in GIVEN))),
    Case(beside_two_numbers, {"x": X}, lambda x: logsumexp([integrated(
        lambda u, v=v: cells(near(x - u - 0.5 * v * HARD))) for v in NODES], 0, SHARES[:, None])),
]


@pytest.mark.parametrize("case", [*TABLE, *(pytest.param(case, marks=pytest.mark.slow)
                                            for case in SLOW)],
                         ids=lambda case: case.model.__name__)
def test_rows_with_hidden_cells_have_the_density_of_brute_force(case):
    got = case.model().at(case.params).log_prob(case.data)
    np.testing.assert_allclose(got, case.right(**case.data), atol=2e-4)


def test_hidden_cells_cost_their_states_times_their_number():
    model = vectors_in_a_plate(cells=400)
    x = RNG.normal(size=(50, 400, 2))
    fit = model.at({})
    plan = read(model, {"x": x}).plan()
    assert plan.cellwise == ("z",) and not plan.variables
    fit.log_prob({"x": x})
    begun = time.perf_counter()
    got = fit.log_prob({"x": x})
    assert time.perf_counter() - begun < 1.0
    np.testing.assert_allclose(got, cells(vectors(x)), rtol=1e-5)


def test_cells_and_kinds_of_rows_are_answered_for_as_by_brute_force():
    fit, likelihood = kinds_of_rows().at({}), near(HOLES)
    logs = np.stack([np.log(KIND[c]) + cells(likelihood, GIVEN[c]) for c in range(2)], -1)
    share = softmax(logs, -1)
    each = [p * likelihood / (p * likelihood).sum(-1, keepdims=True) for p in GIVEN]
    right = sum(share[:, c, None, None] * each[c] for c in range(2))
    data = {"x": HOLES}
    np.testing.assert_allclose(fit.predict_proba(data, "z"), right, atol=1e-5)
    np.testing.assert_allclose(fit.predict_proba(data, "c"), share, atol=1e-5)
    filled = fit.impute(data)
    np.testing.assert_allclose(filled["x"], np.where(np.isnan(HOLES), right @ MU, HOLES), atol=1e-5)
    np.testing.assert_array_equal(filled["z"], right.argmax(-1))
    best = np.argmax([np.log(KIND[c]) + np.log((GIVEN[c] * likelihood).max(-1)).sum(-1)
                      for c in range(2)], 0)
    found = fit.decode(data)
    np.testing.assert_array_equal(found["c"], best)
    np.testing.assert_array_equal(found["z"], (GIVEN[best][:, None] * likelihood).argmax(-1))
    with pytest.raises(probml.Refusal, match="Decode both"):
        fit.decode(data, sites=["z"])
    many = np.repeat(HOLES[:1], 4000, 0)
    drawn = fit.simulate(given={"x": many}, seed=0)
    np.testing.assert_allclose(drawn["z"].mean(0), right[0, :, 1], atol=0.04)
    np.testing.assert_allclose(drawn["c"].mean(), share[0, 1], atol=0.04)


@pytest.mark.slow
def test_cells_within_cells_are_decoded_and_drawn_together():
    fit = plates_in_plates().at({})
    inner = GIVEN * norm.pdf(DEEP[..., None, None], BOTH)
    outer = (PI * inner.max(-1).prod(2)).argmax(-1)
    found = fit.decode({"x": DEEP})
    np.testing.assert_array_equal(found["z"], outer)
    np.testing.assert_array_equal(found["v"], np.take_along_axis(
        inner.argmax(-1), outer[:, :, None, None], -1)[..., 0])
    top = PI * inner.sum(-1).prod(2)
    top /= top.sum(-1, keepdims=True)
    right = np.einsum("ntk,ntjkv->ntjv", top, inner / inner.sum(-1, keepdims=True))
    np.testing.assert_allclose(fit.predict_proba({"x": DEEP}, "v"), right, atol=1e-5)
    drawn = fit.simulate(given={"x": np.repeat(DEEP[:1], 4000, 0)}, seed=1)
    np.testing.assert_allclose(drawn["v"].mean(0), right[0, ..., 1], atol=0.04)


@pytest.mark.slow
def test_cells_beside_a_number_are_answered_for_as_by_brute_force():
    fit, data = beside_a_number().at({}), {"x": HOLES}
    joint = np.stack([PI * near(HOLES - TAU * u) for u in NODES])
    share = softmax(np.log(SHARES)[:, None] + np.log(joint.sum(-1)).sum(-1), 0)
    given = joint / joint.sum(-1, keepdims=True)
    right = np.einsum("gn,gntk->ntk", share, given)
    np.testing.assert_allclose(fit.predict_proba(data, "z"), right, atol=1e-4)
    np.testing.assert_allclose(fit.conditional(data, "u").mean, TAU * NODES @ share, atol=1e-3)
    mean = np.einsum("gn,gnt->nt", share, given @ MU + TAU * NODES[:, None, None])
    np.testing.assert_allclose(fit.impute(data)["x"], np.where(np.isnan(HOLES), mean, HOLES),
                               atol=1e-3)
    with pytest.raises(probml.Refusal, match="predict_proba"):
        fit.decode(data)
    drawn = fit.simulate(given={"x": np.repeat(HOLES[:1], 4000, 0)}, seed=1)
    np.testing.assert_allclose(drawn["z"].mean(0), right[0, :, 1], atol=0.04)


@probml.model
def bits_of_a_kind():
    with probml.rows():
        c = sample("c", dist.Categorical(jnp.asarray(KIND)))
        rate = jnp.asarray(GIVEN)[c, 1]
        sample("y", dist.Bernoulli(rate[..., None] * jnp.ones(24)).to_event(1))


def test_a_vector_that_is_seen_in_part_is_filled_cell_by_cell():
    y = np.where(RNG.random((N, 24)) < 0.3, np.nan, RNG.integers(0, 2, (N, 24)))
    logs = np.stack([np.log(KIND[c]) + np.nansum(np.log(np.where(y == 1, p, 1 - p)) + 0 * y, 1)
                     for c, p in enumerate(GIVEN[:, 1])], -1)
    right = np.where(np.isnan(y), (softmax(logs, -1) @ GIVEN[:, 1])[:, None], y)
    fit = bits_of_a_kind().at({})
    np.testing.assert_allclose(fit.predict_proba({"y": y}, "y")[..., 1], right, atol=1e-5)
    np.testing.assert_array_equal(fit.impute({"y": y})["y"], right > 0.5)


@probml.model
def a_state_given_a_number():
    with probml.rows():
        c = sample("c", dist.Categorical(jnp.asarray(KIND)))
        u = sample("u", dist.Normal(0, TAU))
        z = sample("z", dist.Bernoulli(logits=u - c))
        v = sample("v", dist.Categorical(jnp.asarray(GIVEN)[z]))
        sample("x", dist.Normal(jnp.asarray(BOTH)[z, v] + 0.5 * u, 1.0))


@pytest.mark.slow
def test_states_that_depend_on_a_number_are_summed_out_at_each_of_its_nodes():
    x, total = X[:, 0], np.zeros((N, 2))
    for c, z, v in itertools.product(range(2), repeat=3):
        p = expit(TAU * NODES - c) if z else expit(c - TAU * NODES)
        each = SHARES * p * norm.pdf(x[:, None], BOTH[z, v] + 0.5 * TAU * NODES)
        total[:, z] += KIND[c] * GIVEN[z, v] * each.sum(1)
    fit = a_state_given_a_number().at({})
    np.testing.assert_allclose(fit.log_prob({"x": x}), np.log(total.sum(1)), atol=2e-4)
    np.testing.assert_allclose(fit.predict_proba({"x": x}, "z"),
                               total / total.sum(1, keepdims=True), atol=1e-4)
    np.testing.assert_array_equal(fit.decode({"x": x}, sites=["z"])["z"], total.argmax(1))


@probml.model
def learnt():
    pi = sample("pi", dist.Dirichlet(jnp.ones(2)))
    with plate("component", 2):
        mu = sample("mu", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    with probml.rows(), plate("t", 40):
        z = sample("z", dist.Categorical(pi))
        sample("x", dist.Normal(mu[z], 1.0).to_event(1))


@pytest.mark.parametrize("engine", [
    None, pytest.param(probml.MAP(), marks=pytest.mark.slow),
    pytest.param(probml.EM(restarts=1), marks=pytest.mark.slow)], ids=["default", "MAP", "EM"])
def test_what_cells_share_is_learnt_as_from_cells_that_are_rows(engine):
    z = RNG.integers(0, 2, (10, 40))
    x = RNG.normal(MU2[z])
    fit = learnt().fit({"x": x}, engine)
    means = fit.params["mu"][fit.params["mu"][:, 0].argsort()]
    right = np.stack([25 * x[z == k].sum(0) / (1 + 25 * (z == k).sum()) for k in range(2)])
    np.testing.assert_allclose(means, right, atol=0.05)
    hit = (fit.predict({"x": x}, "z") == z).mean()
    assert max(hit, 1 - hit) > 0.99


@probml.model
def computed():
    with probml.rows():
        with plate("t", T):
            z = sample("z", dist.Categorical(jnp.asarray(PI)))
            sample("x", dist.Normal(jnp.asarray(MU)[z], 1.0))
        deterministic("how many", z.sum(-1) if z.ndim == 1 else z.sum(0))


def test_what_is_computed_from_several_cells_is_refused_in_words():
    with pytest.raises(probml.Refusal, match="several missing values of 'z'.*simulate"):
        computed().at({}).predict({"x": X}, "how many")


@probml.model
def weighed():
    with probml.rows():
        z = sample("z", dist.Bernoulli(0.5 * jnp.ones(40)).to_event(1))
        factor("few", -z.sum(-1))
        sample("x", dist.Normal(jnp.asarray(MU)[z], 1.0).to_event(1))


@probml.model
def mixing():
    with probml.rows():
        z = sample("z", dist.Bernoulli(0.5 * jnp.ones(40)).to_event(1))
        sample("x", dist.Normal(z + jnp.roll(z, 1, -1), 1.0).to_event(1))


@pytest.mark.parametrize("model, words", [(weighed, "Replace the factor 'few' and the site"),
                                          (mixing, "depends on several")],
                         ids=["factor", "neighbours"])
def test_cells_that_are_not_independent_are_refused_with_the_reason(model, words):
    with pytest.raises(probml.Refusal, match=words):
        model().at({}).predict_proba({"x": np.random.default_rng(1).normal(size=(3, 40))}, "z")
