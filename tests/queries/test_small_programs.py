"""What is done without a program: keys and arrays on the device, draws for starts, sums of small
networks; and how many programs a first fit and its questions take."""

import functools
import itertools
from importlib import resources

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import numpyro.distributions as dist
import pytest

import oracles
from compilations import compiled, counted
from probml.elimination import elimination, host
from probml.elimination.orders import min_fill
from probml.engines.start.prior import SAMPLERS, Noise, Source, draw
from probml.errors import Refusal
from probml.models import (
    GaussianMixture,
    HiddenMarkov,
    LogisticRegression,
    NaiveBayes,
    bayesian_network,
    read_bif,
)
from probml.numerics.transfer import placed, random_key, rows_of
from probml.queries import small


@pytest.mark.parametrize("seed", [0, 1, -3, 2**31 + 7, 2**33 + 5, np.int64(7)])
@pytest.mark.parametrize("double", [True, False])
def test_a_key_made_on_the_host_is_jaxs(seed, double):
    with jax.enable_x64(double):
        ours, theirs = (jax.random.key_data(make(seed)) for make in (random_key, jax.random.key))
    assert np.array_equal(ours, theirs)


def test_an_array_is_placed_without_a_program():
    with counted() as found:
        array = placed(np.arange(7.0).reshape(1, 7, 1))
        single = placed(2.0)
        keys = rows_of(jax.random.wrap_key_data(np.arange(6, dtype=np.uint32).reshape(3, 2)))
    assert found == [] and array.shape == (1, 7, 1) and not single.weak_type and len(keys) == 3


def test_what_is_traced_stays_traced():
    assert jax.make_jaxpr(lambda x: placed(x) + 1)(1.0).eqns[0].primitive.name == "add"


PRIORS = {
    "Gamma": dist.Gamma(1.5, 2.0),
    "Gamma below 1": dist.Gamma(0.5, 1.0),
    "Chi2": dist.Chi2(5.0),
    "InverseGamma": dist.InverseGamma(6.0, 2.0),
    "Beta": dist.Beta(2.0, 5.0),
    "Dirichlet": dist.Dirichlet(jnp.array([1.0, 2.0, 6.0])),
    "Wishart": dist.Wishart(6.0, rate_matrix=jnp.array([[2.0, 0.5], [0.5, 1.0]])),
    "InverseWishart": dist.InverseWishart(9.0, scale_matrix=jnp.array([[2.0, 0.5], [0.5, 1.0]])),
    "Normal": dist.Normal(1.0, 2.0),
    "HalfNormal": dist.HalfNormal(2.0),
    "LogNormal": dist.LogNormal(0.5, 0.4),
    "StudentT": dist.StudentT(8.0, 1.0, 2.0),
    "MultivariateNormal": dist.MultivariateNormal(jnp.array([1.0, -1.0]), jnp.array([[2.0, 0.5],
                                                                                    [0.5, 1.0]])),
    "Exponential": dist.Exponential(2.0),
    "Uniform": dist.Uniform(-1.0, 3.0),
}
DRAWS = 20_000


@functools.cache
def noise_of(shape):
    return Noise.of([shape], DRAWS, 0)


@pytest.mark.parametrize("name", PRIORS)
def test_a_start_is_drawn_from_its_prior(name):
    """Mean and spread within a twentieth of the spread: a start needs no more."""
    prior = PRIORS[name]
    assert type(prior) in SAMPLERS
    noise = noise_of(prior.batch_shape + prior.event_shape)
    drawn = np.asarray(jax.jit(jax.vmap(lambda noise: draw(prior, Source(noise), ())))(noise))
    spread = np.sqrt(np.asarray(prior.variance))
    np.testing.assert_allclose((drawn.mean(0) - prior.mean) / spread, 0.0, atol=0.05)
    np.testing.assert_allclose(drawn.std(0) / spread, 1.0, atol=0.12)
    assert np.asarray(prior.support(drawn)).all() or name in ("Wishart", "InverseWishart",
                                                             "Dirichlet")


def graph(seed: int):
    random = np.random.default_rng(seed)
    names = "abcdef"
    states = {name: int(random.integers(2, 4)) for name in names}
    factors = []
    for i, name in enumerate(names):
        scope = (*random.permutation(list(names[:i]))[: random.integers(0, 3)], name)
        log = np.log(random.random((int(random.choice([1, 5])), *(states[n] for n in scope))))
        factors.append((np.where(random.random(log.shape) < 0.15, -np.inf, log), scope))
    return states, factors


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("keep", [(), ("b",), ("e", "a")])
def test_sums_on_the_host_are_those_of_enumeration(seed, keep):
    states, factors = graph(seed)
    joint = oracles.enumerate_factors(factors, states)
    order = min_fill([scope for _, scope in factors], states, list(states))
    found = host.remainder([host.Table(*f) for f in factors], order, keep, states)
    axes = [1 + list(states).index(n) for n in keep]
    other = tuple(i for i in range(1, joint.ndim) if i not in axes)
    expected = np.exp(joint).sum(other).transpose(0, *np.argsort(np.argsort(axes)) + 1)
    np.testing.assert_allclose(np.broadcast_to(np.exp(found), expected.shape), expected, atol=1e-12)
    log, q = host.posterior(found)
    jax_log = jax.jit(lambda logs: elimination.evidence(
        [elimination.Factor(log, s) for log, (_, s) in zip(logs, factors, strict=True)], order
    ))([a for a, _ in factors])
    np.testing.assert_allclose(np.broadcast_to(log, jax_log.shape), jax_log, rtol=1e-12)
    assert np.isfinite(q).all()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("held", [host.HELD, 20, 1])  # all tables at once; some variables cut
def test_all_marginals_on_the_host_are_those_of_enumeration(seed, held):
    states, factors = graph(seed)
    tables = [host.Table(*f) for f in factors]
    joint = np.exp(oracles.enumerate_factors(factors, states))
    total = joint.sum(tuple(range(1, joint.ndim)))
    log, found = host.marginals(tables, host.order_of(tables), list(states), held)
    np.testing.assert_allclose(np.broadcast_to(np.exp(log), total.shape), total, atol=1e-12)
    for i, name in enumerate(states):
        own = joint.sum(tuple(j for j in range(1, joint.ndim) if j != 1 + i))
        expected = own / np.where(total > 0, total, 1.0)[:, None]
        np.testing.assert_allclose(np.broadcast_to(found[name], expected.shape), expected,
                                   atol=1e-12)


@pytest.mark.parametrize("patterns", [100, 0])  # rows in groups; all rows as one
def test_what_is_observed_is_taken_out_of_the_tables_row_by_row(patterns):
    states, factors = graph(3)
    evidence = np.zeros((5, states["a"]))
    evidence[[0, 1, 3], 1 - np.array([0, 1, 1])] = -np.inf
    factors.append((np.where(np.arange(states["a"]) > 1, -np.inf, evidence), ("a",)))
    joint = np.exp(oracles.enumerate_factors(factors, states))
    total = joint.sum(tuple(range(1, joint.ndim)))
    groups = host.condition_on_known([host.Table(*f) for f in factors], 5, patterns)
    assert (len(groups) > 1) == bool(patterns)
    assert sorted(np.concatenate([group.indices for group in groups])) == list(range(5))
    for group in groups:
        assert all("a" not in factor.names for factor in group.factors) or not group.states
        log, found = host.marginals(group.factors, host.order_of(group.factors), ["f"])
        np.testing.assert_allclose(np.broadcast_to(np.exp(log), len(group.indices)),
                                   total[group.indices], atol=1e-12)
        expected = joint.sum((1, 2, 3, 4, 5)) / np.where(total > 0, total, 1.0)[:, None]
        np.testing.assert_allclose(np.broadcast_to(found["f"], expected[group.indices].shape),
                                   expected[group.indices], atol=1e-12)


def test_a_large_network_is_answered_as_by_a_program_and_compiles_nothing(monkeypatch):
    with resources.as_file(resources.files("probml.data") / "alarm.bif") as path:
        fit = read_bif(path)
    nodes = list(fit.model.graph)
    rows = {n: np.asarray(v, object) for n, v in fit.simulate(rows=6, seed=0).items()}
    for name in nodes:
        rows[name][np.random.default_rng(len(name)).random(6) < 0.8] = None
    pair = ("HR", "CATECHOL")
    program = fit.predict_proba(rows, nodes), fit.joint(rows, pair), fit.log_prob(rows)
    monkeypatch.setattr(small, "MIN_NAMES_FOR_LEVELS", 0)
    with compiled() as found:
        alone = fit.predict_proba(rows, nodes), fit.joint(rows, pair), fit.log_prob(rows)
    assert found == []
    for name in nodes:
        np.testing.assert_allclose(alone[0][name], program[0][name], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(alone[1], program[1], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(alone[2], program[2], rtol=1e-5)


def test_a_question_that_is_too_large_is_refused_before_any_sum(monkeypatch):
    with resources.as_file(resources.files("probml.data") / "alarm.bif") as path:
        fit = read_bif(path)
    for name, limit in (("MIN_NAMES_FOR_LEVELS", 0), ("MAX_ENTRIES_OF_LARGE_PROGRAMS", 10), ("MAX_ENTRIES", 100), ("BUDGET", 10)):
        monkeypatch.setattr(small, name, limit)
    with pytest.raises(Refusal, match=r"tables of [\d.e+]+ entries .*more than the limit of 100"):
        fit.predict_proba({"HR": [None]}, list(fit.model.graph))
    # what the question does not need costs nothing
    assert fit.predict_proba({"HR": [None]}, ["HYPOVOLEMIA"])["HYPOVOLEMIA"].shape == (1, 2)


# How many programs


IRIS = np.random.default_rng(0).normal(size=(60, 2)) + 5.0 * np.arange(60)[:, None] // 30


def test_a_first_mixture_is_one_program_and_its_questions_none():
    X = IRIS[:47, :2]
    with compiled() as fitting:
        fit = GaussianMixture(2).fit(X)
    with compiled() as asking:
        fit.predict(X), fit.predict_proba(X), fit.score_samples(X)
    assert len(fitting) <= 1 and asking == []


def test_counting_and_any_few_rows_with_any_holes_compile_nothing():
    y = np.repeat(["a", "b"], 30)
    with compiled() as first:
        fit = NaiveBayes().fit(IRIS, y)
        fit.predict_proba(IRIS[:1])
    assert first == []
    holes = IRIS[:12].copy()
    holes[np.arange(12), np.arange(12) % 2] = np.nan
    holes[:3] = IRIS[:3]
    with compiled() as found:
        several = [fit.predict_proba(IRIS[:n]) for n in (2, 3, 17, 50)]
        single = np.concatenate([fit.predict_proba(holes[i : i + 1]) for i in range(12)])
    assert found == []
    np.testing.assert_allclose(several[-1][:17], several[-2], rtol=1e-12)
    np.testing.assert_allclose(single, fit.predict_proba(holes), rtol=1e-12)


def test_a_logistic_regression_of_few_rows_compiles_nothing():
    with compiled() as found:
        LogisticRegression().fit(IRIS, np.repeat(["a", "b"], 30))
    assert found == []


def test_a_first_chain_is_one_program_its_path_two_and_shorter_ones_none():
    counts = np.random.default_rng(0).poisson(np.repeat([2, 9, 2], 20))
    with compiled() as fitting:
        estimator = HiddenMarkov(2, emission="poisson").fit(counts)
    with compiled() as asking:
        whole = estimator.predict(counts)
    assert len(fitting) <= 1 and len(asking) <= 2
    with compiled() as found:
        parts = [estimator.predict(counts[:n]) for n in (57, 41, 33)]
    assert found == [] and all(len(part) == n for part, n in zip(parts, (57, 41, 33), strict=True))
    assert (parts[0][:50] == whole[:50]).mean() > 0.9


def test_a_query_with_other_evidence_compiles_nothing():
    names, random = "abcde", np.random.default_rng(0)
    tables = {"a": random.dirichlet(np.ones(2)), **{n: random.dirichlet(np.ones(2), 2)
                                                    for n in names[1:]}}
    network = bayesian_network(nx.DiGraph(list(itertools.pairwise(names))),
                               states=dict.fromkeys(names, 2))
    fit = network.at({f"{name}.table": table for name, table in tables.items()})
    with compiled() as first:
        fit.predict_proba({"a": [0]}, "e")
    with compiled() as later:
        below, above = fit.predict_proba({"b": [1]}, "d"), fit.predict_proba({"c": [0]}, "a")
    assert first == [] and later == []
    np.testing.assert_allclose(below, (tables["c"] @ tables["d"])[1:], rtol=1e-12)
    joint = tables["a"] * (tables["b"] @ tables["c"])[:, 0]
    np.testing.assert_allclose(above[0], joint / joint.sum(), rtol=1e-12)
