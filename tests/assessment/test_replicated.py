"""Tables made by a model beside the one that was seen: statistics lie where a closed form says, and
what a model does not make is missed."""

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers, plate, sample
from scipy import stats

import probml
from probml.assessment.replicated import replicated
from probml.dataset import read

N = 60
RANDOM = np.random.default_rng(0)
NORMAL = RANDOM.normal(3.0, 1.0, N)


@probml.model
def level():
    mean = sample("mean", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("y", dist.Normal(mean, 1.0))


@probml.model
def kinds():
    weights = sample("weights", dist.Dirichlet(np.ones(3)))
    with probml.rows():
        sample("kind", dist.Categorical(weights))
        with plate("side", 2):
            sample("count", dist.Poisson(4.0))


def told(fit, data):
    found = replicated(fit, read.read(fit.model, data, fit.names))
    return found, {(each.name, each.of): each for each in found.statistics}


def test_a_mean_is_spread_as_the_posterior_predictive_is():
    fit = level().fit({"y": NORMAL}, probml.Exact())
    found, by = told(fit, {"y": NORMAL})
    mean, expected = by["y", "mean"], stats.norm(NORMAL.mean(), np.sqrt(2 / N))
    np.testing.assert_allclose([mean.low, mean.median, mean.high],
                               expected.ppf([0.025, 0.5, 0.975]), atol=0.09)
    assert 0.4 < mean.p_value < 0.6 and not found.point
    assert not any(each.missed for each in found.statistics)
    bins, = found.bins
    assert bins.observed.sum() == N and (bins.low <= bins.median).all()


def test_of_a_point_tables_are_made_at_it():
    found, by = told(level().at({"mean": 3.0}), {"y": NORMAL})
    mean = by["y", "mean"]
    assert found.point
    np.testing.assert_allclose((mean.high - mean.low) / 3.92, 1 / np.sqrt(N), rtol=0.25)


def test_what_a_model_does_not_make_is_missed():
    y = np.append(NORMAL[:-1], 30.0)
    found, by = told(level().fit({"y": y}, probml.Exact()), {"y": y})
    assert by["y", "maximum"].missed and by["y", "sd"].missed and not by["y", "mean"].missed
    assert by["y", "maximum"].p_value == 0.0


def test_states_are_told_by_shares_and_cells_by_their_index_unseen_ones_left_out():
    kind = np.array(["a", "b", "c", "b", None, "b"], object)
    count = RANDOM.poisson(4.0, (6, 2)).astype(float)
    count[0, 1] = np.nan
    data = {"kind": kind, "count": count}
    found, by = told(kinds().fit(data), data)
    assert by["kind", "share of b"].observed == pytest.approx(3 / 5)
    assert by["count[1]", "mean"].observed == pytest.approx(np.nanmean(count[:, 1]))
    assert {each.name for each in found.bins} == {"count[0]", "count[1]"}


@probml.model
def partly_counted(ok, each):
    mean = sample("mean", dist.Normal(0.0, 1.0))
    with probml.rows():
        with handlers.mask(mask=ok):
            sample("y", dist.Normal(mean, 1.0))
            sample("v", dist.MultivariateNormal(mean * np.ones(2), np.eye(2)))
            with plate("side", 2):
                sample("s", dist.Poisson(4.0))
        sample("t", dist.Normal(mean, 1.0).mask(each).to_event(1))


def test_cells_that_a_mask_leaves_out_are_in_no_statistic():
    """They were compared with replicates: 99 in their place was a misfit."""
    rng = np.random.default_rng(1)
    ok, each = rng.random(N) < 0.7, rng.random((N, 3)) < 0.7
    held = {"y": rng.normal(size=N), "v": rng.normal(size=(N, 2)),
            "s": rng.poisson(4.0, (N, 2)), "t": rng.normal(size=(N, 3))}
    left = {name: np.reshape(ok, (N,) + (1,) * (held[name].ndim - 1)) for name in ("y", "v", "s")}
    data = {"ok": ok, "each": each} | {
        name: np.where(left.get(name, each), value, 99) for name, value in held.items()}
    found, by = told(partly_counted().fit(data, probml.MAP()), data)
    assert not any(one.missed for one in found.statistics)
    assert by["y", "mean"].observed == pytest.approx(held["y"][ok].mean(), abs=1e-5)
    assert by["s[1]", "maximum"].observed == held["s"][ok, 1].max()
    assert by["t[2]", "minimum"].observed == pytest.approx(held["t"][each[:, 2], 2].min())
