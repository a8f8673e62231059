"""Rows that tell nothing but their second moments: a few rows of the same moments stand for them,
and likelihoods are those of all."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy.stats import multivariate_normal

import probml
from probml.dataset.sources.parts import open_data
from probml.device import load as loading
from probml.device.few import add_moments, moments, moments_on_host, rows_with_moments
from probml.device.rows import Chunk, Resident
from probml.models import factor_analysis
from probml.plan.random_effects import effects
from probml.plan.sufficient_statistics import by_members, by_moments

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(1200, 1)) @ [[1.0, -2.0, 0.5]] + 0.7 * RANDOM.normal(size=(1200, 3)) + 5.0
HOLES = np.where(RANDOM.random(X.shape) < 0.1, np.nan, X)
WEIGHTS = RANDOM.integers(3, size=1200).astype(float)


def test_few_rows_have_the_weight_means_and_second_moments_of_all():
    x, y = 1e6 + RANDOM.normal(size=(3, 8, 2)), RANDOM.normal(size=(3, 8))
    weights = np.arange(24.0).reshape(3, 8) % 4
    x[weights == 0] = np.inf  # padding
    rows = Resident(Chunk({"x": jnp.asarray(x), "y": jnp.asarray(y)}, {}, {}, {}, {}, {},
                          jnp.asarray(weights)))
    told = moments(rows, ("x", "y"))
    found = rows_with_moments(told, {"x": (2,), "y": ()}).stacked
    flat, w = np.concatenate([x, y[..., None]], -1).reshape(-1, 3), weights.reshape(-1)
    flat, w = flat[w > 0], w[w > 0]
    ours = np.concatenate([found.values["x"][0], np.asarray(found.values["y"][0])[:, None]], -1)
    assert ours.shape == (6, 3) and float(found.weights.sum()) == pytest.approx(w.sum())
    own = np.asarray(found.weights[0])
    np.testing.assert_allclose(own @ ours / own.sum(), w @ flat / w.sum(), rtol=1e-13)
    np.testing.assert_allclose(np.cov(ours.T, aweights=own, bias=True),
                               np.cov(flat.T, aweights=w, bias=True), rtol=1e-8, atol=1e-9)


def test_moments_of_parts_add_up_in_any_order():
    x, y = 1e6 + RANDOM.normal(size=(30, 2)), RANDOM.normal(size=30)
    weights = np.arange(30.0) % 4
    parts = [moments_on_host([x[rows], y[rows]], weights[rows]) for rows in np.split(np.arange(30), [4, 19])]
    flat = np.column_stack([x, y])
    mean = weights @ flat / weights.sum()
    for one, two, three in (parts, parts[::-1]):
        found = add_moments(add_moments(one, two), three)
        assert found.weights == weights.sum()
        np.testing.assert_allclose(found.mean, mean, rtol=1e-14)
        np.testing.assert_allclose(found.second, (weights[:, None] * (flat - mean)).T
                                   @ (flat - mean), rtol=1e-7, atol=1e-7)


WIDE = RANDOM.normal(size=(1200, 1)) @ [[1.0, -2.0, 0.5, 1.5, 1.0]] + RANDOM.normal(size=(1200, 5))


@pytest.mark.parametrize("engine", [
    probml.EM(prior=False), pytest.param(probml.MAP(), marks=pytest.mark.slow)], ids=["EM", "MAP"])
def test_fits_of_parts_and_further_rows_are_the_fit_of_all(engine):
    """Of few rows, which were passed over, and of many, for which a few stood."""
    model = factor_analysis(k=1, d=5)
    whole = model.fit({"x": WIDE}, engine, weights=WEIGHTS)
    few_rows, many = ({"x": WIDE[:150]}, WEIGHTS[:150]), ({"x": WIDE[150:]}, WEIGHTS[150:])
    parts = [model.fit(data, engine, weights=weights) for data, weights in (few_rows, many)]
    for found in (parts[0].merge(parts[1]), parts[1].merge(parts[0]),
                  parts[0].update(many[0], weights=many[1])):
        assert found.converged and found.history[-1] == pytest.approx(whole.history[-1], rel=1e-7)
        for name in ("mean", "precision"):
            np.testing.assert_allclose(found.params[name], whole.params[name], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(found.log_prob({"x": WIDE[:5]}),
                                   whole.log_prob({"x": WIDE[:5]}), atol=1e-3)


def test_rows_that_tell_more_than_moments_are_refused_by_name():
    fit = factor_analysis(k=1, d=3).fit({"x": X[:100]}, probml.EM())
    with pytest.raises(probml.Refusal, match="update.*site 'x' has missing values"):
        fit.update({"x": HOLES[:50]})


@pytest.mark.slow
def test_parts_of_which_one_tells_more_are_not_merged():
    model = factor_analysis(k=1, d=3)
    fit = model.fit({"x": X[:100]}, probml.EM())
    with pytest.raises(probml.Refusal, match="merge.*statistics"):
        fit.merge(model.fit({"x": HOLES[:100]}, probml.EM()))
    with pytest.raises(probml.Refusal, match="merge"):
        fit.merge(model.fit({"x": X[:100], "z": X[:100, :1]}, probml.EM()))


@pytest.mark.parametrize(("engine", "weights"), [(probml.EM(max_iterations=3, prior=False), None),
                                                 (probml.MAP(prior=False), WEIGHTS)], ids=str)
@pytest.mark.filterwarnings("ignore")  # three iterations do not converge
def test_a_fit_to_few_rows_has_the_likelihood_of_all(engine, weights):
    fit = factor_analysis(k=1, d=3).fit({"x": X}, engine, weights=weights)
    W, psi = np.asarray(fit.params["loadings"]), 1 / np.asarray(fit.params["precision"])
    log = multivariate_normal(fit.params["mean"], W @ W.T + np.diag(psi)).logpdf(X)
    total = log.sum() if weights is None else log @ weights
    assert fit.history[-1] == pytest.approx(total, rel=1e-10)
    np.testing.assert_allclose(fit.log_prob({"x": X[:9]}), log[:9], atol=1e-9)


def plan_of(model, data):
    return open_data(model, data, None).plan()


def test_rows_tell_more_where_cells_inputs_or_states_differ_between_them():
    @probml.model
    def shifted(t):
        slope = sample("slope", dist.Normal(0.0, 1.0))
        with probml.rows():
            z = sample("z", dist.Normal(0.0, 1.0))
            sample("y", dist.Normal(z + slope * t, 1.0))

    @probml.model
    def mixed():
        with plate("component", 2):
            mean = sample("mean", dist.Normal(0.0, 1.0))
        with probml.rows():
            c = sample("c", dist.Bernoulli(0.5))
            z = sample("z", dist.Normal(0.0, 1.0))
            sample("y", dist.Normal(z + mean[c], 1.0))

    y, model = X[:20, 0], factor_analysis(k=1, d=3)
    assert by_moments(plan_of(model, {"x": X})) == ("x",)
    assert by_moments(plan_of(model, {"x": HOLES})) == ()
    assert by_moments(plan_of(shifted(), {"y": y, "t": y})) == ()
    assert by_moments(plan_of(mixed(), {"y": y})) == ()


def test_rows_of_a_source_are_passed_over_twice(monkeypatch):
    passes = []

    def parts():
        passes.append(0)
        return iter([{"x": X[:700]}, {"x": X[700:]}])

    # with a prior there is one maximum: without, another has no noise in one column
    engine, model = probml.MAP(), factor_analysis(k=1, d=3)
    fit = model.fit(parts, engine)
    assert fit.history[-1] == pytest.approx(model.fit({"x": X}, engine).history[-1], rel=1e-9)
    assert len(passes) <= 5


@probml.model
def lines(group, kind, t, n: int = 9):
    level = sample("level", dist.Normal(0.0, 1e2).expand([3]).to_event(1))
    spread = sample("spread", dist.HalfNormal(1e1).expand([2]).to_event(1))
    noise = sample("noise", dist.HalfNormal(1e1))
    with plate("groups", n):
        own = sample("own", dist.Normal(0.0, spread).to_event(1))
    with probml.rows():
        line = level[:2] + own[group]
        at = level[2] * (kind == 1) + line[..., 0] + line[..., 1] * t
        sample("y", dist.Normal(at, noise * (1 + kind)))


def of_groups(n=1500):
    group, kind, t = RANDOM.integers(9, size=n), RANDOM.integers(2, size=n), RANDOM.normal(size=n)
    y = RANDOM.normal(size=9)[group] + (1 + 0.3 * RANDOM.normal(size=9))[group] * t + kind
    return {"group": group, "kind": kind, "t": t, "y": y + 0.5 * RANDOM.normal(size=n)}


@pytest.mark.parametrize("weights", [None, RANDOM.integers(3, size=1500).astype(float)],
                         ids=["", "weights"])
def test_rows_of_a_member_are_as_good_as_a_few_of_the_same_moments(monkeypatch, weights):
    data, engine = of_groups(), probml.MAP(prior=False)
    counts = []
    monkeypatch.setattr("probml.fits.fitting.load", lambda data, *more: counts.append(
        data.table.rows) or loading.load(data, *more))
    fit = lines().fit(data, engine, weights=weights)
    assert counts == [9 * 2 * 3]  # groups, kinds, and corners of two numbers
    monkeypatch.setattr("probml.fits.fitting.by_members", lambda plan: None)
    plain = lines().fit(data, engine, weights=weights)
    assert fit.history[-1] == pytest.approx(plain.history[-1], rel=1e-10)
    for name in ("level", "spread", "noise", "own"):
        np.testing.assert_allclose(fit.params[name], plain.params[name], atol=1e-5)
    np.testing.assert_allclose(fit.posterior("own").variance, plain.posterior("own").variance,
                               rtol=1e-5)


def test_what_a_member_tells_by_more_than_moments_keeps_its_rows():
    data = of_groups(60)
    assert by_members(plan_with_effects(lines(), data)).inputs == ("t",)
    assert by_members(plan_with_effects(lines(), data)).codes == ("group", "kind")
    holes = {**data, "y": np.where(np.arange(60) == 3, np.nan, data["y"])}
    assert by_members(plan_with_effects(lines(), holes)) is None
    for form in ("bent", "scaled"):
        assert by_members(plan_with_effects(others(form=form), data)).inputs == (), form
    assert by_members(plan_with_effects(others(form="heavy"), data)) is None


@probml.model
def others(group, t, form: str):
    spread, b = sample("spread", dist.HalfNormal(1e1)), sample("b", dist.Normal(0.0, 1.0))
    with plate("groups", 9):
        own = sample("own", dist.Normal(0.0, spread))
    with probml.rows():
        if form == "heavy":
            sample("y", dist.StudentT(4.0, own[group] + b * t, 1.0))
        else:
            sample("y", dist.Normal(own[group] + b * (t**2 if form == "bent" else t),
                                    jnp.exp(t) if form == "scaled" else 1.0))


def plan_with_effects(model, data):
    held = open_data(model, {name: data[name] for name in data if name in (
        "group", "t", "y") or model.name == "lines"}, None)
    return held.plan(effects=effects(held.plan(), 60, closed=False))
