"""Hierarchies as they come: members named by text, without rows, alone; plates within plates; hidden
states that share a parent. Answers are those of joint normals, of quadrature, of enumeration."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample
from scipy import stats
from scipy.special import expit, logsumexp

import probml

RNG = np.random.default_rng(24)


def half_normal(value, scale):
    return stats.halfnorm(scale=scale).logpdf(value).sum()


@probml.model
def levels(group, members: int):
    mean, spread = sample("mean", dist.Normal(0.0, 10.0)), sample("spread", dist.HalfNormal(5.0))
    noise = sample("noise", dist.HalfNormal(5.0))
    with plate("members", members):
        alpha = sample("alpha", dist.Normal(mean, spread))
    with probml.rows():
        sample("y", dist.Normal(alpha[group], noise))


def of_levels(params, y, codes):
    """log p(y, mean, spread, noise), effects integrated out: a joint normal."""
    mean, spread, noise = (float(params[n]) for n in ("mean", "spread", "noise"))
    shared = codes[:, None] == codes
    joint = stats.multivariate_normal(np.full(len(y), mean), spread**2 * shared
                                      + noise**2 * np.eye(len(y)))
    return (joint.logpdf(y) + stats.norm(0, 10).logpdf(mean) + half_normal(spread, 5)
            + half_normal(noise, 5))


def at_its_top(density, params, names):
    """Whether no parameter alone, nor its logarithm, can be moved to a higher density."""
    best = density(params)
    for name in names:
        for step in (0.99, 1.01):
            assert density({**params, name: params[name] * step}) <= best + 1e-6, name
    return best


Y = np.repeat([1.0, 4.0, -2.0], 5) + 0.7 * RNG.normal(size=15)
CODES = np.repeat([0, 2, 3], 5)
WRITTEN = {
    "gaps in codes": CODES,
    "text, of more categories than there are": pd.Categorical.from_codes(
        CODES, ["ann", "bob", "cyd", "dan", "eve"]),
    "whole floats": CODES * 1.0,
}


@pytest.mark.parametrize("group", WRITTEN.values(), ids=WRITTEN)
def test_members_without_rows_have_their_prior_however_they_are_written(group):
    fit = levels(members=5).fit({"group": group, "y": Y}, probml.MAP())
    top = at_its_top(lambda p: of_levels(p, Y, CODES), fit.params, ("mean", "spread", "noise"))
    assert fit.history[-1] == pytest.approx(top, abs=1e-6)
    mean, spread, noise = (float(fit.params[n]) for n in ("mean", "spread", "noise"))
    found = fit.posterior("alpha")
    for member in range(5):
        own = Y[member == CODES]
        precision = spread**-2 + len(own) / noise**2
        assert found.mean[member] == pytest.approx(
            (mean / spread**2 + own.sum() / noise**2) / precision, abs=1e-6)
        assert found.variance[member] == pytest.approx(1 / precision, rel=1e-6)


def test_rows_that_tell_nothing_are_as_if_they_were_not_there():
    """Of one member all unseen, of another one that weighs nothing."""
    y, weights = Y.copy(), np.ones(15)
    y[10:], weights[1] = np.nan, 0.0
    kept = ~np.isnan(y) & (weights > 0)
    one = levels(members=5).fit({"group": CODES, "y": y}, probml.MAP(), weights=weights)
    other = levels(members=5).fit({"group": CODES[kept], "y": y[kept]}, probml.MAP())
    assert one.history[-1] == pytest.approx(other.history[-1], abs=1e-6)
    for name in ("mean", "spread", "noise", "alpha"):
        np.testing.assert_allclose(one.params[name], other.params[name], atol=1e-4)


def test_codes_that_begin_at_one_are_refused_or_say_so():
    with pytest.raises(probml.DataError, match="'group' is 3 in row 10, but it is used as an index of .*, which has 3"):
        levels(members=3).fit({"group": np.repeat([1, 2, 3], 5), "y": Y})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_of_a_single_member_nuts_has_the_means_of_quadrature():
    """Nothing tells the spread of all members: its prior does."""
    y = Y[:5]
    mean, spread, noise = (grid.reshape(-1) for grid in np.meshgrid(
        np.linspace(-30, 30, 121), np.linspace(0.05, 20, 80), np.linspace(0.1, 6, 80)))
    # sums of squares about the mean of the rows, and of that about the mean of all members
    within = ((y - y.mean()) ** 2).sum()
    log = (-4 * np.log(noise) - 0.5 * within / noise**2
           + stats.norm(mean, np.sqrt(spread**2 + noise**2 / 5)).logpdf(y.mean())
           + stats.norm(0, 10).logpdf(mean) + stats.halfnorm(scale=5).logpdf(spread)
           + stats.halfnorm(scale=5).logpdf(noise))
    share = np.exp(log - logsumexp(log))
    fit = levels(members=1).fit({"group": ["only"] * 5, "y": y},
                                probml.NUTS(draws=1000, target_accept=0.99))
    for name, value in (("mean", mean), ("spread", spread), ("noise", noise)):
        middle = share @ value
        wide = np.sqrt(share @ (value - middle) ** 2)
        assert abs(float(fit.params[name]) - middle) < 0.2 * wide, name


@probml.model
def schools(school, district, members: int, districts: int):
    wide, narrow = sample("wide", dist.HalfNormal(5.0)), sample("narrow", dist.HalfNormal(5.0))
    noise, mean = sample("noise", dist.HalfNormal(5.0)), sample("mean", dist.Normal(0.0, 10.0))
    with plate("districts", districts):
        delta = sample("delta", dist.Normal(mean, wide))
    with plate("schools", members):
        alpha = sample("alpha", dist.Normal(0.0, narrow))
    with probml.rows():
        sample("y", dist.Normal(delta[district] + alpha[school], noise))


@pytest.mark.slow
def test_members_within_members_are_a_joint_normal():
    school = np.repeat(np.arange(7), 4)
    district = np.array([0, 0, 1, 1, 2, 2, 2])[school]
    y = (np.array([3.0, 0.0, -4.0])[district] + np.array([1, -1, 0.5, 0.2, 0, 1.5, -1.0])[school]
         + 0.5 * RNG.normal(size=28))

    def density(p):
        wide, narrow, noise, mean = (float(p[n]) for n in ("wide", "narrow", "noise", "mean"))
        joint = stats.multivariate_normal(np.full(28, mean), wide**2
                                          * (district[:, None] == district) + narrow**2
                                          * (school[:, None] == school) + noise**2 * np.eye(28))
        return joint.logpdf(y) + stats.norm(0, 10).logpdf(mean) + sum(
            half_normal(s, 5) for s in (wide, narrow, noise))

    data = {"school": np.array(list("tuvwxyz"))[school], "district": district, "y": y}
    fit = schools(members=7, districts=3).fit(data, probml.MAP())
    top = at_its_top(density, fit.params, ("wide", "narrow", "noise", "mean"))
    assert fit.history[-1] == pytest.approx(top, abs=1e-6)


@pytest.mark.slow
def test_plates_within_plates_with_obs_are_a_joint_normal():
    """Three districts of four schools each, five pupils: nested plates, as NumPyro has them."""
    def nested(y=None):
        mean, spread = sample("mean", dist.Normal(0.0, 10.0)), 0.8
        with plate("districts", 3, dim=-3):
            delta = sample("delta", dist.Normal(mean, 2.0))
            with plate("schools", 4, dim=-2):
                alpha = sample("alpha", dist.Normal(delta, spread))
                with plate("pupils", 5, dim=-1):
                    sample("y", dist.Normal(alpha, 0.5), obs=y)

    y = RNG.normal(size=(3, 4, 5)) + np.array([3.0, 0.0, -2.0])[:, None, None]
    place = np.array(list(np.ndindex(3, 4, 5)))
    within = place[:, None] == place
    covariance = (100.0 + 4.0 * within[..., 0] + 0.64 * within[..., :2].all(-1)
                  + 0.25 * np.eye(60))
    cross = np.stack([100.0 + 4.0 * (place[:, 0] == d) for d in range(3)])
    delta = cross @ np.linalg.solve(covariance, y.reshape(-1))
    mean = 100.0 * np.linalg.solve(covariance, y.reshape(-1)).sum()
    fit = probml.model(nested)().fit({"y": y}, probml.MAP())
    np.testing.assert_allclose(np.reshape(fit.params["delta"], -1), delta, atol=2e-4)
    np.testing.assert_allclose(fit.params["mean"], mean, atol=2e-4)


@probml.model
def twins(group, members: int):
    """Two hidden states with one hidden parent, whose chance each group has its own of."""
    with plate("members", members):
        theta = sample("theta", dist.Beta(2.0, 2.0))
    mu = sample("mu", dist.Normal(0.0, 5.0).expand([3]).to_event(1))
    with probml.rows():
        z = sample("z", dist.Bernoulli(theta[group]))
        a = sample("a", dist.Categorical(A[z]))
        b = sample("b", dist.Bernoulli(B[z]))
        sample("x", dist.Normal(mu[a], 1.0))
        sample("n", dist.Poisson(LAM[b]))


A, B = jnp.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]]), jnp.array([0.2, 0.9])
LAM = jnp.array([1.0, 6.0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:EM of model 'twins':probml.ConvergenceWarning")  # of few rows a member
def test_two_hidden_states_that_share_a_hidden_parent_are_summed_as_by_enumeration():
    group = np.array(["u", "v", "u", "w", "v", "u"])
    codes = np.array([0, 1, 0, 2, 1, 0])
    data = {"group": group, "x": RNG.normal(size=6) * 3, "n": RNG.poisson(3, 6) * 1.0}
    data["x"][2] = np.nan
    fit = twins(members=3).fit(data, probml.EM(restarts=1))
    theta, mu = np.asarray(fit.params["theta"]), np.asarray(fit.params["mu"])
    logs = np.zeros((6, 2, 3, 2))
    for z, a, b in itertools.product(range(2), range(3), range(2)):
        seen = np.where(np.isnan(data["x"]), 0.0, stats.norm(mu[a], 1).logpdf(data["x"]))
        logs[:, z, a, b] = (np.log(np.where(z, theta, 1 - theta))[codes] + np.log(A[z, a])
                            + np.log(B[z] if b else 1 - B[z]) + seen
                            + stats.poisson(LAM[b]).logpmf(data["n"]))
    log = logsumexp(logs, (1, 2, 3))
    top = log.sum() + stats.beta(2, 2).logpdf(theta).sum() + stats.norm(0, 5).logpdf(mu).sum()
    assert fit.history[-1] == pytest.approx(top, abs=1e-4)
    joint = np.exp(logs - log[:, None, None, None])
    for name, over in (("z", (2, 3)), ("a", (1, 3)), ("b", (1, 2))):
        np.testing.assert_allclose(fit.predict_proba(data, name), joint.sum(over), atol=1e-4)
    best = fit.decode(data)
    where = np.stack([best[name] for name in "zab"], 1).astype(int)
    np.testing.assert_allclose(logs[(np.arange(6), *where.T)], logs.reshape(6, -1).max(1),
                               atol=1e-4)


@pytest.mark.slow
def test_members_whose_hidden_kinds_share_a_parent_are_summed_as_by_enumeration():
    """All members' kinds, and what they share, are outside the rows."""
    p, q = np.array([0.2, 0.7]), np.array([0.5, 0.1])
    m, k = np.array([-1.0, 2.0]), np.array([0.0, 1.0])

    def kinds(group):
        era = sample("era", dist.Bernoulli(0.3))
        with plate("members", 3):
            a = sample("a", dist.Bernoulli(jnp.array(p)[era]))
            b = sample("b", dist.Bernoulli(jnp.array(q)[era]))
        with probml.rows():
            sample("y", dist.Normal(jnp.array(m)[a[group]] + jnp.array(k)[b[group]], 1.0))

    group, y = np.array([0, 1, 0, 2, 1]), RNG.normal(size=5)
    logs = {}
    for era in (0, 1):
        for a in itertools.product((0, 1), repeat=3):
            for b in itertools.product((0, 1), repeat=3):
                at = m[np.array(a)[group]] + k[np.array(b)[group]]
                logs[era, a, b] = (np.log([0.7, 0.3][era]) + stats.norm(at, 1).logpdf(y).sum()
                                   + stats.bernoulli(p[era]).logpmf(a).sum()
                                   + stats.bernoulli(q[era]).logpmf(b).sum())
    total = logsumexp(list(logs.values()))
    data = {"group": group, "y": y}
    model = probml.model(kinds)()
    assert model.log_density(data, {}) == pytest.approx(total, abs=1e-4)
    fit = model.fit(data)
    found = {name: np.asarray(fit.posterior(name).probs) for name in ("era", "a", "b")}
    sums = {"era": np.zeros(2), "a": np.zeros((3, 2)), "b": np.zeros((3, 2))}
    for (era, a, b), log in logs.items():
        sums["era"][era] += np.exp(log - total)
        for i in range(3):
            sums["a"][i, a[i]] += np.exp(log - total)
            sums["b"][i, b[i]] += np.exp(log - total)
    for name, value in sums.items():
        own = value if found[name].ndim == value.ndim and found[name].shape[-1] == 2 else (
            value[..., 1])
        np.testing.assert_allclose(found[name], own, atol=1e-4)


@pytest.mark.slow
def test_counts_of_a_single_member_are_integrated_as_by_quadrature():
    @probml.model
    def counts(group):
        mean = sample("mean", dist.Normal(0.0, 3.0))
        with plate("members", 2):
            alpha = sample("alpha", dist.Normal(mean, 0.7))
        with probml.rows():
            sample("n", dist.Bernoulli(logits=alpha[group]))

    n, group = np.array([1.0, 1, 0, 1, 1, 0, 0]), np.array(["b"] * 4 + ["d"] * 3)
    fit = counts().fit({"group": group, "n": n}, probml.MAP())
    grid = np.linspace(-8, 8, 4001)

    def density(p):
        total = stats.norm(0, 3).logpdf(p["mean"])
        for member in "bd":
            own = n[group == member]
            inside = (stats.norm(float(p["mean"]), 0.7).logpdf(grid)
                      + own.sum() * np.log(expit(grid)) + (1 - own).sum() * np.log(expit(-grid)))
            total += logsumexp(inside) + np.log(grid[1] - grid[0])
        return float(total)

    top = at_its_top(density, {name: float(value) for name, value in fit.params.items()
                               if name == "mean"}, ("mean",))
    assert fit.history[-1] == pytest.approx(top, abs=1e-4)
