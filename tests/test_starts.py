"""Starts: of several kinds, in standardised units, as many as are worth their time; the first answer does not hang on the seed."""

import re

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from compilations import counted
from probml import chunks
from probml.engines import em, labelling
from probml.engines.run import Status
from probml.models import gaussian_mixture, hidden_markov

R = np.random.default_rng(1)
GLANDS = np.concatenate(  # as the thyroid data: a large tight cluster, two wide ones
    [R.normal(0, 1, (150, 5)), R.normal(4, [1, 3, 1, 0.3, 2], (35, 5)), R.normal(-3, [2, 0.5, 1, 1, 4], (30, 5))]
)
WORDS = re.compile(r"best of (\d+) starts, reached by (\d+)(; the next is \S+ nats below)?")


def held(model, data):
    data = chunks.read(model, data)
    return data, data.plan()


def test_every_seed_reaches_the_best_end_and_says_how_often():
    model, ends = gaussian_mixture(3, 5), []
    for seed in range(8):
        fit = model.fit({"x": GLANDS}, probml.EM(), seed=seed)
        ends.append(fit.history[-1])
        starts, reached, below = WORDS.search(fit.status).groups()
        assert int(starts) >= 10 and 1 <= int(reached) <= int(starts) and below
    assert np.ptp(ends) < 1e-3


def test_restarts_that_are_asked_for_are_made_and_one_says_nothing():
    z = np.repeat([0, 1], 40)
    data = {"storms": R.poisson(np.array([1.0, 7.0])[z]), "calm": z}
    assert two_rates().fit(data, probml.EM(restarts=1)).notes == ()
    assert WORDS.search(two_rates().fit(data, probml.EM(restarts=5)).status)[1] == "5"


def test_a_second_default_fit_compiles_nothing():
    gaussian_mixture(3, 5).fit({"x": GLANDS}, probml.EM(), seed=0)
    with counted() as found:
        gaussian_mixture(3, 5).fit({"x": GLANDS[:-1] + 0.1}, probml.EM(), seed=3)
    assert found == []


def test_one_start_is_made_where_there_is_nothing_to_tell_apart_and_fewer_of_many_rows():
    model = gaussian_mixture(3, 5)
    data, plan = held(model, {"x": GLANDS})
    point = {"weights": np.full(3, 1 / 3), "mean": GLANDS[[0, 160, 200]], "precision": np.stack([np.eye(5)] * 3)}
    assert probml.EM().starts(data, plan, {}) >= 10
    assert probml.EM().starts(data, plan, point) == 1
    assert probml.EM(restarts=4).starts(data, plan, {}) == 4
    holes = np.where(R.random(GLANDS.shape) < 0.1, np.nan, GLANDS)
    assert probml.EM().starts(*held(gaussian_mixture(1, 5), {"x": holes}), {}) == 1
    many = held(model, {"x": np.resize(GLANDS, (300_000, 5))})
    assert 1 <= probml.EM().starts(*many, {}) < 10


def test_starts_do_not_depend_on_units_and_are_of_several_kinds():
    model = gaussian_mixture(3, 5)
    here, plan = held(model, {"x": GLANDS})
    there, _ = held(model, {"x": GLANDS * [1e6, 1e-3, 1, 5, 1e3] + [0, 10, -1e3, 0, 1e9]})
    one, other = (labelling.labelled(data, plan, None, 12, 0, {}) for data in (here, there))
    np.testing.assert_array_equal(one.rows, other.rows)
    np.testing.assert_allclose(one.evidence["z"], other.evidence["z"], atol=1e-6)
    np.testing.assert_allclose(one.weights, other.weights)
    table = one.evidence["z"]
    hard, soft = (table == 1).any(-1) & (table.sum(-1) == 1), (table > 0).all(-1) & (table.sum(-1) < 1 + 1e-9)
    assert hard[1, 3:].all() and soft[2, 3:].all() and hard[0, :3].all() and one.drawn.sum() == 2


def test_an_outlier_does_not_hide_the_spread_of_a_column():
    x = np.concatenate([GLANDS[:, :1], [[1e8]]])
    found = labelling._standard(x)
    assert 0.5 < found[:-1].std() < 3 and found[-1] > found[:-1].max()
    np.testing.assert_allclose(found[:-1], labelling._standard(x * 1e-6 + 5)[:-1], atol=1e-4)


def test_states_that_are_not_allowed_get_no_rows_of_a_start():
    data, plan = held(gaussian_mixture(3, 5), {"x": GLANDS})
    few = labelling.labelled(data, plan, None, 12, 0, {"z": np.arange(3) < np.array([[2]] * 12)})
    assert (few.evidence["z"][1:3, 3:, 2] == 0).all() and (few.weights[0, :3] == [1, 1, 0]).all()


@probml.model
def two_rates():
    """States that a constant table tells apart."""
    with plate("state", 2):
        rate = sample("rate", dist.Gamma(2.0, 0.5))
    with probml.rows():
        z = sample("z", dist.Bernoulli(0.5))
        sample("storms", dist.Poisson(rate[z]))
        sample("calm", dist.Bernoulli(jnp.array([0.9, 0.2])[z]))


def test_states_that_cannot_stand_for_one_another_keep_their_roles():
    z = np.arange(80) % 2
    data = {"storms": R.poisson(np.array([1.0, 7.0])[z]), "calm": (R.random(80) < np.array([0.9, 0.2])[z]).astype(int)}
    for seed in range(4):
        rate = two_rates().fit(data, probml.EM(), seed=seed).params["rate"]
        assert rate[0] < 2 and rate[1] > 5


def test_a_hidden_chain_finds_the_better_basin_from_every_seed():
    z = np.repeat([0, 1, 0, 2, 0, 1], 40)
    y = R.normal(np.array([0.05, -0.05, 0.0])[z], np.array([0.5, 1.2, 3.0])[z])
    ends = [hidden_markov(k=3).fit({"y": y[None, :, None]}, probml.EM(), seed=seed).history[-1] for seed in range(4)]
    assert np.ptp(ends) < 1e-2


def test_those_far_behind_are_left_unless_they_gain_quickly_or_are_among_the_best():
    value = np.array([-10.0, -11, -500, -500, -12, -400, -np.inf])
    trail = np.repeat(value[:, None], 32, 1)
    trail[3, :8] = -800  # climbs yet
    status = np.array([0, 0, 0, 0, 1, 0, Status.COLLAPSED])
    np.testing.assert_array_equal(em._left(status, value, trail, True), [0, 0, Status.LEFT, 0, 1, Status.LEFT, Status.COLLAPSED])
    np.testing.assert_array_equal(em._left(status, value, trail, False)[:2], [0, Status.LEFT])
    words = em._ends(value, np.array([1, 1, 0, 1, 1, 0, 0], bool), np.isfinite(value), 0, 1e-3)
    assert words == "best of 7 starts, reached by 1; the next is 1 nats below; 2 fell behind and were left; 1 collapsed and were discarded"


@pytest.mark.parametrize("restarts", [0, -1, 1.5, True])
def test_a_number_of_restarts_that_is_none_is_refused(restarts):
    with pytest.raises(probml.ModelError, match="restarts"):
        probml.EM(restarts=restarts)
