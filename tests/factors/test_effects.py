"""Effects of groups integrated out, against the joint normal of all rows written down in NumPy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy import stats

import probml
from probml.dataset import read
from probml.device import load
from probml.evidence import density, e_step, random_effect_gradients, random_effects
from probml.factors.random_effects import information, integration
from probml.plan import random_effects as plan_effects
from probml.plan.random_effects import effects as integrable

N = 24


@probml.model
def everything(group, item, x, groups: int, items: int):
    """A vector and a number a group, written without a centre, a number an item, a ridge that all
    rows read."""
    level, tau = sample("level", dist.Normal(0.0, 10.0)), sample("tau", dist.HalfNormal(2.0))
    wide = sample("wide", dist.HalfNormal(2.0).expand([2]).to_event(1))
    spread, flat = sample("spread", dist.HalfNormal(2.0)), sample("flat", dist.HalfNormal(2.0))
    noise = sample("noise", dist.HalfNormal(1.0).expand([2]).to_event(1))
    with plate("group", groups):
        turn = jnp.array([[1.0, 0.0], [0.4, 0.8]])
        line = sample("line", dist.MultivariateNormal(level * jnp.array([1.0, 0.2]),
                                                      scale_tril=wide[:, None] * turn))
        z = sample("z", dist.Normal(0.0, 1.0))
    with plate("item", items):
        hard = sample("hard", dist.Normal(0.3, spread))
    weight = sample("weight", dist.Normal(0.0, flat).expand([3]).to_event(1))
    with probml.rows():
        own = line[group]
        middle = own[..., 0] + own[..., 1] * x[..., 0] + tau * z[group]
        both = jnp.stack([middle - hard[item], x @ weight + 0.5 * middle], -1)
        sample("y", dist.Normal(both, noise).to_event(1))


POINT = {"level": 0.7, "tau": 0.6, "wide": np.array([1.2, 0.5]), "spread": 0.9, "flat": 0.4,
         "noise": np.array([0.5, 0.8])}


def data(holes=True):
    rng = np.random.default_rng(0)
    y = rng.normal(size=(N, 2))
    if holes:
        y[3, 0] = y[7, 1] = np.nan
        y[11] = np.nan
    return {"group": rng.integers(0, 4, N), "item": rng.integers(0, 3, N),
            "x": rng.normal(size=(N, 3)), "y": y}


def joint(table, p, weights=None):
    """Mean, covariance and design of what is seen: loc = m + D u, u ~ N(mu, S)."""
    turn = p["wide"][:, None] * np.array([[1.0, 0.0], [0.4, 0.8]])
    blocks = [turn @ turn.T] * 4 + [np.eye(4)] + [p["spread"] ** 2 * np.eye(3)] + [
        p["flat"] ** 2 * np.eye(3)]
    prior = np.zeros((18, 18))
    start = 0
    for block in blocks:
        prior[start : start + len(block), start : start + len(block)] = block
        start += len(block)
    mu = np.concatenate([np.tile(p["level"] * np.array([1.0, 0.2]), 4), np.zeros(4),
                         np.full(3, 0.3), np.zeros(3)])
    design = np.zeros((N, 2, 18))
    for i, (g, k, x) in enumerate(zip(table["group"], table["item"], table["x"], strict=True)):
        middle = np.zeros(18)
        middle[2 * g], middle[2 * g + 1], middle[8 + g] = 1.0, x[0], p["tau"]
        design[i, 0], design[i, 1] = middle, 0.5 * middle
        design[i, 0, 12 + k] = -1.0
        design[i, 1, 15:] = x
    seen = ~np.isnan(table["y"])
    y, design = table["y"][seen], design[seen]
    variance = np.broadcast_to(p["noise"] ** 2, (N, 2))[seen]
    if weights is not None:
        variance = variance / np.broadcast_to(weights[:, None], (N, 2))[seen]
    return y, design @ mu, design @ prior @ design.T + np.diag(variance), design, mu, prior


def loaded(table, weights=None):
    held = read.read(everything(groups=4, items=3), table)
    plan = held.plan()
    found = integrable(plan, N)
    plan = held.plan(effects=found)
    return plan, *load.load(held, plan, weights)


@pytest.fixture(scope="module")
def case():
    table = data()
    plan, rows, known = loaded(table)
    return table, plan, rows, known


def test_what_ties_a_hierarchy_is_integrated_out(case):
    _, plan, _, _ = case
    assert set(plan.effects) == {"line", "z", "hard", "weight"}
    assert plan.free == ("level", "tau", "wide", "spread", "flat", "noise")
    first, *others = plan.groupings
    assert first.names == ("line", "z") and (first.members, first.cells) == (4, 3)
    assert {grouping.names for grouping in others} == {("hard",), ("weight",)}
    assert plan.integrated == plan.scattered == ("y",)


def cut(rows, pieces):
    """The same rows in several chunks."""

    def split(leaf):
        return leaf.reshape(pieces, -1, *leaf.shape[2:])

    return jax.tree.map(split, rows)


def test_the_evidence_is_that_of_the_joint_normal(case):
    table, plan, rows, known = case
    y, mean, covariance, *_ = joint(table, POINT)
    want = stats.multivariate_normal(mean, covariance).logpdf(y)
    at = {name: jnp.asarray(value) for name, value in POINT.items()}
    both = jax.jit(lambda at, rows: e_step.log_evidence(plan, at, known, rows))
    assert float(both(at, rows)) == pytest.approx(want, abs=1e-9)
    assert float(both(at, cut(rows, 2))) == pytest.approx(want, abs=1e-9)


def test_effects_given_rows_are_those_of_the_joint_normal(case):
    table, plan, rows, known = case
    y, mean, covariance, design, mu, prior = joint(table, POINT)
    gain = prior @ design.T @ np.linalg.inv(covariance)
    want, spread = mu + gain @ (y - mean), prior - gain @ design @ prior

    @jax.jit
    def found(at):
        own, given = information.compute_prior(plan, at, known), random_effects.condition_on_rows(plan, at, known, rows.total)
        drawn = jax.vmap(lambda key: integration.draw_deviation(given, key))(
            jax.random.split(jax.random.key(0), 20_000))
        return integration.moments(plan, own, given), jax.vmap(lambda e: information.effects_at(
            plan, own, jax.tree.map(jnp.add, e, given.centre)))(drawn)

    moments, drawn = found({name: jnp.asarray(value) for name, value in POINT.items()})
    got = np.concatenate([np.asarray(moments.mean[n]).reshape(-1)
                          for n in ("line", "z", "hard", "weight")])
    np.testing.assert_allclose(got, want, atol=1e-9)
    for g in range(4):  # of a group its line and z together
        at = [2 * g, 2 * g + 1, 8 + g]
        np.testing.assert_allclose(moments.block[g], spread[np.ix_(at, at)], atol=1e-9)
    rest = [r for g in plan.groupings[1:] for r in ((12, 13, 14) if g.names == ("hard",)
                                                    else (15, 16, 17))]
    np.testing.assert_allclose(moments.rest, spread[np.ix_(rest, rest)], atol=1e-9)
    np.testing.assert_allclose(moments.cross[1], spread[np.ix_([2, 3, 9], rest)], atol=1e-9)
    flat = np.concatenate([np.asarray(drawn[n]).reshape(20_000, -1)
                           for n in ("line", "z", "hard", "weight")], 1)
    np.testing.assert_allclose(np.cov(flat.T), spread, atol=0.05 * spread.max())
    np.testing.assert_allclose(flat.mean(0), want, atol=0.04)


def test_the_gradient_is_that_of_differences_in_one_chunk_and_in_several(case):
    _, plan, rows, known = case
    at = {name: jnp.asarray(value) for name, value in POINT.items()}
    u = density.to_unbounded(plan, at, known)
    both = jax.jit(lambda u, rows: density.log_posterior(plan, known, rows)(u))
    value, gradient = both(u, rows)
    steps = 1e-5 * np.eye(len(u))
    for_ = np.array([(both(u + s, rows)[0] - both(u - s, rows)[0]) / 2e-5 for s in steps])
    np.testing.assert_allclose(gradient, for_, atol=1e-6)
    again, other = both(u, cut(rows, 2))
    assert float(again) == pytest.approx(float(value), abs=1e-9)
    np.testing.assert_allclose(other, gradient, atol=1e-8)


@pytest.mark.parametrize("weights", [None, np.array([1.0, 2.0, 0.0] * 8)])
def test_effects_eliminated_by_pairs_of_rows_have_the_joint_normal_of_all_rows(monkeypatch,
                                                                               weights):
    """Of large crossed effects, here of small ones: vectors, and others that every row reads."""
    monkeypatch.setattr(plan_effects, "MAX_DENSE_ENTRIES", 0)
    monkeypatch.setattr(load, "SCATTERED", 1e-3)
    table = data()
    plan, rows, known = loaded(table, weights)
    live = np.ones(N, bool) if weights is None else weights > 0
    group = table["group"][live]
    assert len(rows.pairs.first) == sum(n * (n - 1) // 2 for n in np.bincount(group))
    at = {name: jnp.asarray(value) for name, value in POINT.items()}
    u = density.unbounded_by_name(plan, at, known)
    both = jax.jit(lambda u, rows: random_effect_gradients.value_and_gradient(
        plan, lambda u: density.from_unbounded_by_name(plan, u, known), u, known, rows))
    value, gradient = both(u, rows)
    again, other = both(u, dataclasses.replace(rows, pairs=None))
    for name in u:
        np.testing.assert_allclose(gradient[name], other[name], atol=1e-9, err_msg=name)
    assert float(value) == pytest.approx(float(again), abs=1e-9)
    if weights is None:
        y, mean, covariance, *_ = joint(table, POINT)
        want = stats.multivariate_normal(mean, covariance).logpdf(y)
        assert float(value) == pytest.approx(want, abs=1e-9)


def test_the_surrogate_touches_the_evidence(case):
    """Q's gradient at the E-step's own parameters is the evidence's (Dempster, Laird & Rubin)."""
    _, plan, rows, known = case
    at = {name: jnp.asarray(value) for name, value in POINT.items()}
    one = rows.first

    @jax.jit
    def gradients(at):
        _, held = random_effects.expect(plan, at, known, rows.total)
        q = jax.grad(lambda at: random_effects.row_surrogate(plan, at, known, one, held)
                     + random_effects.surrogate(plan, at, known, held))(at)
        return q, jax.grad(lambda at: e_step.log_evidence(plan, at, known, rows))(at)

    q, evidence = gradients(at)
    for name in at:
        np.testing.assert_allclose(q[name], evidence[name], atol=1e-8, err_msg=name)


def test_a_spread_of_zero_is_the_model_without_the_effects(case):
    table, plan, rows, known = case
    at = {name: jnp.asarray(value) for name, value in {
        **POINT, "tau": 0.0, "wide": np.zeros(2), "spread": 0.0, "flat": 0.0}.items()}
    y, mean, covariance, *_ = joint(table, at)
    value, gradient = jax.jit(jax.value_and_grad(
        lambda at: e_step.log_evidence(plan, at, known, rows)))(at)
    want = stats.multivariate_normal(mean, np.asarray(covariance)).logpdf(y)
    assert float(value) == pytest.approx(want, abs=1e-9)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_weights_are_copies_of_rows():
    table, weights = data(holes=False), np.array([1.0, 2.0, 0.0] * 8)[:N]
    plan, rows, known = loaded(table, weights)
    again = np.repeat(np.arange(N), weights.astype(int))
    twice = {name: value[again] for name, value in table.items()}
    _, more, _ = loaded(twice)
    at = {name: jnp.asarray(value) for name, value in POINT.items()}
    evidence = jax.jit(lambda at, rows: e_step.log_evidence(plan, at, known, rows))
    assert float(evidence(at, rows)) == pytest.approx(float(evidence(at, more)), abs=1e-9)
