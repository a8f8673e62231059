"""Discrete sites of one density of everything, in plates and in scans: their marginals are what
brute force sums."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from numpyro.contrib.control_flow import scan
from scipy import stats

import probml
from probml.errors import ModelError, Refusal

RNG = np.random.default_rng(7)
DOCUMENTS = np.array([0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 6])  # more than rows may share
VALUES = RNG.normal(size=11)


def nested(values, documents):
    """A kind of each document, a topic of each of its words, and what all documents share."""
    t = sample("t", dist.Beta(2.0, 2.0).expand([2, 7]).to_event(2))
    m = sample("m", dist.Normal(0, 2).expand([2]).to_event(1))
    with plate("document", 7):
        b = sample("b", dist.Normal(0, 1))
        kind = sample("kind", dist.Bernoulli(0.3))
    with plate("word", len(values)):
        topic = sample("topic", dist.Bernoulli(t[kind[documents], documents]))
        sample("v", dist.Normal(m[topic] + b[documents], 1.0), obs=values)


POINT = {"t": RNG.uniform(0.1, 0.9, size=(2, 7)), "m": np.array([-1.0, 1.5]),
         "b": RNG.normal(size=7)}


def by_force(point=POINT):
    """Documents do not look at each other: all joint values of each."""
    kinds, topics = np.zeros((7, 2)), np.zeros((11, 2))
    says = stats.norm.pdf(VALUES[:, None], point["m"] + point["b"][DOCUMENTS][:, None], 1)
    for d in range(7):
        own = np.flatnonzero(d == DOCUMENTS)
        for kind in (0, 1):
            for topic in itertools.product((0, 1), repeat=len(own)):
                p = (0.7, 0.3)[kind]
                for z, word in zip(topic, own, strict=True):
                    share = point["t"][kind, d]
                    p *= (share if z else 1 - share) * says[word, z]
                kinds[d, kind] += p
                topics[own, topic] += p
    return tuple(each / each.sum(1, keepdims=True) for each in (kinds, topics))


DATA = {"values": VALUES, "documents": DOCUMENTS}


def test_plates_within_plates_have_the_marginals_of_brute_force():
    fit = probml.model(nested)().at(POINT)
    kinds, topics = by_force()
    np.testing.assert_allclose(fit.predict_proba(DATA, "kind"), kinds, atol=1e-10)
    np.testing.assert_allclose(fit.predict_proba(DATA, "topic"), topics, atol=1e-10)
    both = fit.predict_proba(DATA, ["kind", "topic"])
    np.testing.assert_allclose(both["topic"], topics, atol=1e-10)
    with pytest.raises(Refusal, match="kind.*topic"):
        fit.predict_proba(DATA)
    alone = fit.decode(DATA, ["kind"])  # topics summed out before
    np.testing.assert_array_equal(alone["kind"], kinds.argmax(1))
    joint = fit.decode(DATA)
    for d in range(7):
        own = np.flatnonzero(d == DOCUMENTS)
        logs = {}
        for kind in (0, 1):
            share = POINT["t"][kind, d]
            each = np.log([1 - share, share]) + stats.norm(
                POINT["m"] + POINT["b"][d], 1).logpdf(VALUES[own][:, None])
            logs[kind] = np.log((0.7, 0.3)[kind]) + each.max(1).sum(), each.argmax(1)
        kind = max(logs, key=lambda k: logs[k][0])
        assert joint["kind"][d] == kind
        np.testing.assert_array_equal(joint["topic"][own], logs[kind][1])


@pytest.mark.slow
def test_the_posterior_of_a_summed_site_is_averaged_over_draws():
    model = probml.model(nested)()
    fit = model.fit(DATA, probml.Laplace())
    draws = fit._draws(256, 0)
    some = [by_force({name: np.asarray(value[i]) for name, value in draws.items()})[0]
            for i in range(0, 256, 8)]
    found = fit.posterior("kind")
    assert found.probs.shape == (7, 2) and fit.model.is_joint
    np.testing.assert_allclose(found.probs, np.mean(some, 0), atol=0.1)
    with pytest.raises(ModelError, match="no site 'nobody'"):
        fit.posterior("nobody")


def chain(y):
    row = sample("row", dist.Dirichlet(jnp.ones((3, 3))).to_event(1))

    def step(before, now):
        with plate("animals", 2):
            z = sample("z", dist.Categorical(row[before]))
            w = sample("w", dist.DiscreteUniform(4, 5))
            sample("y", dist.Normal(z + 0.5 * w, 1.0), obs=now)
        return z, None

    scan(step, jnp.zeros(2, int), y)


@pytest.mark.parametrize("reverse", [pytest.param(False, marks=pytest.mark.slow), True])
def test_steps_of_a_scan_have_the_marginals_of_brute_force(reverse):
    def turned(y):
        row = sample("row", dist.Dirichlet(jnp.ones((3, 3))).to_event(1))

        def step(before, now):
            with plate("animals", 2):
                z = sample("z", dist.Categorical(row[before]))
                w = sample("w", dist.DiscreteUniform(4, 5))
                sample("y", dist.Normal(z + 0.5 * w, 1.0), obs=now)
            return z, None

        scan(step, jnp.zeros(2, int), y, reverse=reverse)

    y, row = RNG.normal(3.0, 1.0, size=(4, 2)), RNG.dirichlet(np.ones(3), 3)
    states, others = np.zeros((4, 2, 3)), np.zeros((4, 2, 2))
    best = np.zeros(2), np.zeros((2, 4), int), np.zeros((2, 4), int)
    says = stats.norm.pdf(y[..., None, None], np.add.outer(np.arange(3), 0.5 * np.array([4, 5])), 1)
    for animal in range(2):
        total = 0.0
        order = range(4)[::-1] if reverse else range(4)
        for path in itertools.product(range(3), repeat=4):
            for extra in itertools.product(range(2), repeat=4):
                p, before = 1.0, 0
                for t in order:
                    p *= row[before, path[t]] / 2 * says[t, animal, path[t], extra[t]]
                    before = path[t]
                total += p
                if p > best[0][animal]:
                    best[0][animal], best[1][animal], best[2][animal] = p, path, extra
                states[range(4), animal, path] += p
                others[range(4), animal, extra] += p
        states[:, animal] /= total
        others[:, animal] /= total
    fit = probml.model(turned)().at({"row": row})
    np.testing.assert_allclose(fit.predict_proba({"y": y}, "z"), states, atol=1e-10)
    np.testing.assert_allclose(fit.predict_proba({"y": y}, "w"), others, atol=1e-10)
    found = fit.decode({"y": y})
    np.testing.assert_array_equal(found["z"], best[1].T)
    np.testing.assert_array_equal(found["w"], best[2].T + 4)
    with pytest.raises(Refusal, match="'w' is in the same scan"):
        fit.decode({"y": y}, ["z"])


def test_a_change_point_outside_rows_is_decoded_from_its_joint_table():
    def disasters(y):
        early, late = sample("early", dist.Exponential(1.0)), sample("late", dist.Exponential(1.0))
        s = sample("s", dist.DiscreteUniform(2, len(y) - 1))
        sample("y", dist.Poisson(jnp.where(np.arange(len(y)) < s, early, late)), obs=y)

    y = np.array([4, 6, 5, 3, 7, 5, 6, 1, 0, 0, 1, 0, 1])
    logs = [stats.poisson(np.where(np.arange(13) < s, 5.0, 0.5)).logpmf(y).sum()
            for s in range(2, 13)]
    found = probml.model(disasters)().at({"early": 5.0, "late": 0.5}).decode({"y": y})
    assert found["s"] == np.argmax(logs) + 2


def test_the_values_of_a_summed_site_are_its_own():
    y = RNG.normal(3.0, 1.0, size=(4, 2))
    fit = probml.model(chain)().fit({"y": y}, probml.MAP())
    found = fit.posterior("w")
    assert found.probs.shape == (4, 2, 2) and isinstance(found, dist.Distribution)
    assert np.isfinite(found.log_prob(jnp.full((4, 2), 5))).all()


MEANS = np.array([-1.0, 2.0])
MANY = np.random.default_rng(11).normal(size=30)


def a_vector_beside_a_kind(x):
    kind = sample("kind", dist.Bernoulli(0.3))
    z = sample("z", dist.Bernoulli(jnp.where(kind == 1, 0.8, 0.25) * jnp.ones(30)).to_event(1))
    sample("x", dist.Normal(jnp.asarray(MEANS)[z] + kind, 1.0).to_event(1), obs=x)


def a_vector_beside_a_number(x):
    k = sample("k", dist.Normal(0.0, 1.0))
    z = sample("z", dist.Bernoulli(0.25 * jnp.ones(30)).to_event(1))
    sample("x", dist.Normal(jnp.asarray(MEANS)[z] + k, 1.0).to_event(1), obs=x)


def of_vector(p, shift, x=MANY):
    """log p of an element in each state, (elements, states)."""
    return np.log([1 - p, p]) + stats.norm(MEANS + shift, 1.0).logpdf(x[:, None])


def test_a_hidden_vector_of_truths_beside_others_is_summed_out_element_by_element():
    """2 × 30 terms, not 2^30."""
    kinds = [np.log(w) + np.logaddexp.reduce(of_vector(p, kind), axis=1).sum()
             for kind, (w, p) in enumerate([(0.7, 0.25), (0.3, 0.8)])]
    model = probml.model(a_vector_beside_a_kind)()
    np.testing.assert_allclose(model.log_density({"x": MANY}, {}), np.logaddexp(*kinds), rtol=1e-6)
    share = np.exp(kinds - np.logaddexp(*kinds))
    each = np.stack([of_vector(p, kind) for kind, p in enumerate((0.25, 0.8))])
    each = np.exp(each - np.logaddexp.reduce(each, axis=-1, keepdims=True))
    np.testing.assert_allclose(model.at({}).predict_proba({"x": MANY}, "z"),
                               np.einsum("k,kns->ns", share, each), atol=1e-5)
    want = np.logaddexp.reduce(of_vector(0.25, 0.4), axis=1).sum() + stats.norm().logpdf(0.4)
    got = probml.model(a_vector_beside_a_number)().log_density({"x": MANY}, {"k": 0.4})
    np.testing.assert_allclose(got, want, rtol=1e-6)


STEPS = np.random.default_rng(13).normal(size=(3, 2))
MOVES, ON = np.array([[0.8, 0.2], [0.3, 0.7]]), np.array([0.2, 0.7])


def switches_below_a_chain(y):
    """A state of each step, and a switch of each of its members."""
    s = sample("s", dist.HalfNormal(1.0))

    def step(before, now):
        x = sample("x", dist.Categorical(jnp.asarray(MOVES)[before]))
        with plate("member", 2):
            on = sample("on", dist.Bernoulli(jnp.asarray(ON)[x]))
            sample("y", dist.Normal(1.5 * on + x, s), obs=now)
        return x, None

    scan(step, 0, y)


def switches_below_chains(y):
    """The same of two chains, each with three switches."""
    s = sample("s", dist.HalfNormal(1.0))

    def step(before, now):
        with plate("chain", 2, dim=-2):
            x = sample("x", dist.Categorical(jnp.asarray(MOVES)[before]))
            with plate("member", 3, dim=-1):
                on = sample("on", dist.Bernoulli(jnp.asarray(ON)[x]))
                sample("y", dist.Normal(1.5 * on + x, s), obs=now)
        return x, None

    scan(step, jnp.zeros((2, 1), int), y)


def test_switches_in_a_plate_below_the_states_of_a_scan_are_summed_out_within_its_steps():
    paths = [(x, on) for x in itertools.product((0, 1), repeat=3)
             for on in itertools.product((0, 1), repeat=6)]
    logs = []
    for x, on in paths:
        x, on = np.array(x), np.array(on).reshape(3, 2)
        p = MOVES[np.r_[0, x[:-1]], x].prod() * np.where(on, ON[x][:, None],
                                                         1 - ON[x][:, None]).prod()
        logs.append(np.log(p) + stats.norm(1.5 * on + x[:, None], 0.8).logpdf(STEPS).sum())
    logs = np.array(logs)
    total = np.logaddexp.reduce(logs)
    model = probml.model(switches_below_a_chain)()
    prior = stats.halfnorm().logpdf(0.8)
    np.testing.assert_allclose(model.log_density({"y": STEPS}, {"s": 0.8}), total + prior,
                               rtol=1e-6)
    fit, share = model.at({"s": 0.8}), np.exp(logs - total)
    for place, name in enumerate(("x", "on")):
        values = np.array([path[place] for path in paths])
        want = (share[:, None] * values).sum(0)
        got = np.asarray(fit.predict_proba({"y": STEPS}, name))[..., 1]
        np.testing.assert_allclose(got.ravel(), want, atol=1e-5)
    found = fit.decode({"y": STEPS})
    for place, name in enumerate(("x", "on")):
        np.testing.assert_array_equal(np.ravel(found[name]), paths[logs.argmax()][place])


def test_chains_of_a_scan_have_switches_of_their_own():
    y = np.random.default_rng(17).normal(size=(3, 2, 3))
    each = np.logaddexp(np.log(1 - ON)[:, None] + stats.norm(np.arange(2)[:, None], 0.8).logpdf(
        y[..., None, :]), np.log(ON)[:, None] + stats.norm(1.5 + np.arange(2)[:, None], 0.8).logpdf(
            y[..., None, :])).sum(-1)  # (steps, chains, states)
    total = stats.halfnorm().logpdf(0.8)
    for chain in range(2):
        alpha = np.log(MOVES[0]) + each[0, chain]
        for t in (1, 2):
            alpha = np.logaddexp.reduce(alpha[:, None] + np.log(MOVES), axis=0) + each[t, chain]
        total += np.logaddexp.reduce(alpha)
    got = probml.model(switches_below_chains)().log_density({"y": y}, {"s": 0.8})
    np.testing.assert_allclose(got, total, rtol=1e-6)


def notes_of_annotators(notes):
    """Classes are as many as the highest note says, and each annotator has his errors."""
    classes = int(np.max(notes)) + 1
    errors = sample("errors", dist.Dirichlet(jnp.ones(classes)).expand([4, classes]).to_event(2))
    with plate("item", 5, dim=-2):
        kind = sample("kind", dist.Categorical(jnp.ones(classes) / classes))
        with plate("annotator", 4):
            sample("note", dist.Categorical(errors[jnp.arange(4), kind, :]), obs=notes)


@pytest.mark.parametrize("of_type", [int, float])
def test_observed_codes_may_be_floats_that_are_whole(of_type):
    notes = np.random.default_rng(3).integers(0, 3, (5, 4))
    errors = np.random.default_rng(4).dirichlet(np.ones(3), (4, 3))
    each = np.log(errors[np.arange(4)[:, None, None], np.arange(3), notes.T[:, :, None]]).sum(0)
    total = np.log(np.exp(each).mean(1)).sum() + 12 * np.log(2)  # a flat Dirichlet of 3 is 2
    got = probml.model(notes_of_annotators)().log_density({"notes": notes.astype(of_type)},
                                                          {"errors": errors})
    np.testing.assert_allclose(got, total, rtol=1e-6)
