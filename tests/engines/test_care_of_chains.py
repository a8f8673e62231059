"""NUTS looks after itself: what its diagnostics call for is done, in programs that are there; chains
begin apart; and what does not help is said."""

import re
import time
from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import factor, plate, sample

import probml
from coded import codes
from compilations import counted
from probml.engines import nuts
from probml.engines.sampling.chains import diagnose_chains
from probml.engines.start.modes import Mode
from probml.numerics.curvature import Frame, Starts
from probml.posteriors import diagnostics

RANDOM = np.random.default_rng(0)


@probml.model
def funnel():
    """A scale and three numbers on it, in coordinates that nothing can standardise."""
    log_scale = sample("log_scale", dist.Normal(0.0, 0.5))
    x = sample("x", dist.Normal(0.0, 10.0).expand([3]).to_event(1))
    scaled = dist.Normal(0.0, jnp.exp(log_scale))
    factor("scaled", (scaled.log_prob(x) - dist.Normal(0.0, 10.0).log_prob(x)).sum())
    with probml.rows():
        sample("y", dist.Normal(x.sum(), 20.0))


@probml.model
def folded():
    mu = sample("mu", dist.Normal(0.0, 5.0))
    with probml.rows():
        sample("y", dist.Normal(jnp.abs(mu), 1.0))


@probml.model
def two_means():
    mean = sample("mean", dist.Normal(0.0, 5.0).expand([2]).to_event(1))
    with probml.rows():
        halves = dist.Categorical(jnp.array([0.5, 0.5]))
        sample("y", dist.MixtureSameFamily(halves, dist.Normal(mean, 1.0)))


@probml.model
def two_priors():
    """Rows whose form is a closed one, under a prior of two peaks."""
    halves = dist.Categorical(jnp.array([0.5, 0.5]))
    mean = sample("mean", dist.MixtureSameFamily(halves, dist.Normal(jnp.array([-4.0, 4.0]), 0.5)))
    with probml.rows():
        sample("y", dist.Normal(mean, 30.0))


@probml.model
def line(x):
    slope = sample("slope", dist.Normal(0.0, 2.0))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=slope * x))


X = RANDOM.normal(size=100)
LINE = {"x": X, "y": RANDOM.random(100) < 1 / (1 + np.exp(-X))}
FUNNEL = {"y": np.array([1.0, -2.0, 0.5])}
CARELESS = probml.NUTS(target_accept=0.6)


@pytest.mark.filterwarnings("ignore:NUTS:UserWarning")
def test_draws_that_diverge_are_sampled_again_with_smaller_steps_until_they_can_be_trusted():
    once = funnel().fit(FUNNEL, replace(CARELESS, retries=0))
    assert not once.converged and "divergences" in codes(once) and "again" not in once.status
    fit = funnel().fit(FUNNEL, CARELESS)
    assert fit.converged and fit.drawn.values["x"].shape == (4, 1000, 3)
    assert re.search(r"run again with target_accept=0\.95.*because of warnings "
                     r"about the first run \([^)]*divergences", fit.status)
    found = fit.drawn.values["log_scale"]
    np.testing.assert_allclose([found.mean(), found.std()], [0.0, 0.5], atol=0.05)
    again = funnel().fit(FUNNEL, CARELESS)
    np.testing.assert_array_equal(found, again.drawn.values["log_scale"])


@pytest.mark.filterwarnings("ignore:NUTS:UserWarning")
@pytest.mark.parametrize("method", ["parallel", "vectorized"])
def test_sampling_again_compiles_nothing(method):
    engine = probml.NUTS(draws=50, warmup=50, chain_method=method, target_accept=0.6)
    funnel().fit(FUNNEL, replace(engine, retries=0))
    with counted() as programs:
        fit = funnel().fit(FUNNEL, engine)
    assert "the sampler was run again with target_accept=0.95" in fit.status and programs == []
    assert fit.drawn.values["x"].shape == (4, 50, 3)


def test_where_nothing_is_wrong_the_draws_are_those_of_one_run():
    once, fit = (line().fit(LINE, probml.NUTS(retries=retries)) for retries in (0, 2))
    assert fit.findings == once.findings == ()
    np.testing.assert_array_equal(once.drawn.values["slope"], fit.drawn.values["slope"])


@pytest.mark.filterwarnings("ignore:NUTS:UserWarning")
@pytest.mark.parametrize("model, name, data", [
    (folded(), "mu", {"y": RANDOM.normal(3.0, 1.0, 20)}),
    pytest.param(two_means(), "mean", {"y": np.append(RANDOM.normal(-2, 1, 30),
                                                      RANDOM.normal(2, 1, 50))},
                 marks=pytest.mark.slow),
    (two_priors(), "mean", {"y": np.array([1.0, -2.0, 0.5])}),
], ids=["folded", "mixture", "prior"])
def test_two_modes_that_no_chain_goes_between_are_both_met_and_said(model, name, data):
    fit = model.fit(data, probml.NUTS(draws=200, warmup=200))
    found = np.asarray(fit.drawn.values[name]).reshape(4, 200, -1)[..., 0].mean(1)
    assert found.min() < -1 < 1 < found.max()
    assert not fit.converged and f"R-hat of '{name}'" in fit.status
    assert fit.status.count("the sampler was run again") == 1  # after which the chains are as far apart


def test_a_mode_that_holds_next_to_nothing_is_left_out():
    @probml.model
    def lower():
        """A mode of the same width, 12 nats below."""
        mu = sample("mu", dist.Normal(0.0, 5.0))
        peaks = jnp.logaddexp(dist.Normal(3.0, 0.3).log_prob(mu),
                              dist.Normal(-3.0, 0.3).log_prob(mu) - 12.0)
        factor("peaks", peaks)
        with probml.rows():
            sample("y", dist.Normal(mu, 100.0))

    fit = lower().fit({"y": np.zeros(2)}, probml.NUTS(draws=400, warmup=400))
    assert fit.converged and fit.drawn.values["mu"].min() > 0


def test_the_mass_where_a_chain_stays_is_told_from_its_draws():
    scale = np.array([1.0, 1.0, 0.01])
    z = RANDOM.normal(size=(3, 2000, 4)) * scale[:, None, None]
    log_density = -0.5 * ((z / scale[:, None, None]) ** 2).sum(2) + np.array([[0.0], [-3.0], [5.0]])
    found = diagnostics.log_mass(z, log_density)
    wanted = np.array([0.0, -3.0, 5.0 + 4 * np.log(0.01)])
    np.testing.assert_allclose(found - found[0], wanted, atol=0.2)


def test_a_chain_that_never_moves_is_said():
    z = RANDOM.normal(size=(4, 400, 2))
    stats = {"diverging": np.zeros((4, 400), bool), "steps": np.full((4, 400), 7),
             "log_density": RANDOM.normal(size=(4, 400)), "energy": RANDOM.normal(size=(4, 400))}
    good = diagnose_chains({"v": z}, z, stats, 0.8, 10)
    assert good.findings == [] and not good.needs_smaller_steps and not good.needs_more_draws
    z[:, :, 1] = 1e-9  # all of them, so that they agree
    still = diagnose_chains({"v": z}, z, stats, 0.8, 10)
    assert "proposal of chain 1, 2, 3, 4 was rejected" in still.findings[0].problem and still.needs_smaller_steps and still.needs_more_draws


def test_a_mode_that_a_chain_leaves_before_the_second_run_is_not_forgotten():
    peaks = np.array([-4.0, -4.0, -4.0, 4.0])[:, None, None] + RANDOM.normal(size=(4, 500, 2))
    assert nuts.has_left_mode(peaks, peaks[:3]) and not nuts.has_left_mode(peaks, peaks)
    assert not nuts.has_left_mode(peaks[:3, :20], peaks[:3])
    engine = probml.NUTS(draws=100, warmup=20, target_accept=0.9)
    with pytest.warns(probml.ReliabilityWarning, match="R-hat of 'mean'"):
        fit = two_priors().fit({"y": np.array([1.0, -2.0, 0.5])}, engine, seed=2)
    assert fit.drawn.values["mean"].min() < -3 and fit.drawn.values["mean"].max() > 3


def test_energies_that_hardly_change_from_draw_to_draw_are_said():
    """Of independent energies the fraction is 2; of a random walk as good as none."""
    energy = np.stack([RANDOM.normal(size=1000), RANDOM.normal(size=1000).cumsum()])
    found = diagnostics.energy_fraction(energy)
    np.testing.assert_allclose(found[0], 2.0, rtol=0.1)
    assert found[1] < 0.1 and np.isnan(diagnostics.energy_fraction(energy[:, :50])).all()


@pytest.mark.filterwarnings("ignore:NUTS:UserWarning")
def test_a_limit_of_seconds_bounds_the_whole_and_keeps_what_was_drawn():
    engine = probml.NUTS(draws=1_000_000, warmup=100, chains=2, seconds=2.0)
    line().fit(LINE, engine)  # compiles, which on a slow machine takes all of the two seconds
    began = time.perf_counter()
    fit = line().fit(LINE, engine)
    took, (_, draws) = time.perf_counter() - began, fit.drawn.values["slope"].shape
    assert took < 8.0 and 1 <= draws < 1_000_000
    assert f"time limit seconds=2, with {draws} of 1000000 draws in each chain" in fit.status


def few_rows(x, y=None):
    a = sample("a", dist.Normal(0.0, 10.0))
    b = sample("b", dist.Normal(0.0, 10.0))
    sigma = sample("sigma", dist.HalfNormal(10.0))
    with plate("n", len(x)):
        sample("y", dist.Normal(a + b * x, sigma), obs=y)


def test_the_default_stops_sampling_at_a_limit_and_says_so():
    model, x = probml.model(few_rows)(), np.arange(4.0)
    data = {"x": x, "y": 1 + 2 * x + np.array([0.5, -0.3, 0.2, -0.6])}
    fit = model.fit(data, seconds=1e-3)
    assert not fit.converged and "time limit seconds=0.001" in fit.status
    assert "seconds=0.001" in fit.engine
    with pytest.raises(probml.ModelError, match=r"use the engine NUTS\(seconds=1\)"):
        model.fit(data, probml.MAP(), seconds=1)
    with pytest.raises(probml.ModelError, match="seconds"):
        model.fit(data, seconds=-1)


def test_settings_of_care_are_checked():
    for wrong in ({"seconds": 0}, {"seconds": "1"}, {"seconds": True}, {"retries": -1},
                  {"retries": 1.5}):
        with pytest.raises(probml.ModelError, match=next(iter(wrong))):
            probml.NUTS(**wrong)


@pytest.mark.slow
def test_a_spread_of_effects_beside_numbers_of_rows_does_not_stay_at_zero():
    @probml.model
    def counts(group):
        mean = sample("mean", dist.Normal(0.0, 2.0))
        between, within = (sample(name, dist.HalfNormal(1.0)) for name in ("between", "within"))
        with plate("groups", 6):
            effect = sample("effect", dist.Normal(mean, between))
        with probml.rows():
            own = sample("own", dist.Normal(0.0, within))
            sample("y", dist.Poisson(jnp.exp(effect[group] + own)))

    random = np.random.default_rng(1)
    group = np.repeat(np.arange(6), 6)
    y = random.poisson(np.exp(random.normal(1.0, 0.8, 6)[group] + 0.4 * random.normal(size=36)))
    fit = counts().fit({"group": group, "y": y}, probml.NUTS(draws=200, warmup=300))
    between = fit.drawn.values["between"]
    assert fit.converged and np.quantile(between, 0.05) > 0.1 and between.mean() > 0.4


def test_half_of_the_chains_begin_at_draws_of_the_prior_where_no_mode_was_found(monkeypatch):
    prior = [np.full(2, 10.0 * (k + 1)) for k in range(3)]
    monkeypatch.setattr(nuts, "_prior_places", lambda *_: prior)

    def about(u, converged=False):
        frame = Frame(u, np.eye(2), np.ones(2), np.eye(2))
        starts = Starts(u + 0.1 * np.arange(8.0)[:, None], np.zeros(8), np.zeros((8, 2)))
        return Mode(frame, np.eye(2), np.zeros(()), np.asarray(converged), np.zeros(1), starts)

    found = nuts.starts_of_chains(SimpleNamespace(posterior_points=None), None, about(np.zeros(2)), 4, about).u
    np.testing.assert_allclose(found[:, 0], [0.0, 0.1, 20.2, 10.3])
    found = nuts.starts_of_chains(SimpleNamespace(posterior_points=None), None, about(np.zeros(2), True), 4, about).u
    np.testing.assert_allclose(found[:, 0], [0.0, 0.1, 0.2, 0.3])
