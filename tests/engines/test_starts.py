"""Starts: of several kinds, in standardised units, as many as are worth their time; the first
answer does not hang on the seed."""

import importlib
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy.cluster.hierarchy import fcluster, linkage

import probml
from compilations import counted
from probml.dataset import read
from probml.dataset.measures import with_measures
from probml.engines.engine import Status
from probml.engines.ladder import choose
from probml.engines.start import labelling, race
from probml.interface.sizes import grid
from probml.models import LatentClass, gaussian_mixture, hidden_markov, mixture_of_experts

R = np.random.default_rng(1)
GLANDS = np.concatenate(  # as the thyroid data: a large tight cluster, two wide ones
    [R.normal(0, 1, (150, 5)), R.normal(4, [1, 3, 1, 0.3, 2], (35, 5)),
     R.normal(-3, [2, 0.5, 1, 1, 4], (30, 5))]
)


def restarts_finding(fit):
    """(how many starts there were, how many reached this optimum, how much lower the next is)"""
    (found,) = (found for found in fit.findings if found.code.value == "restarts")
    numbers = dict(found.numbers)
    return numbers["starts"], numbers["reached"], numbers["lower"]


def held(model, data):
    data = with_measures(read.read(model, data))
    return data, data.plan()


def test_every_seed_reaches_the_best_end_and_says_how_often():
    model, ends = gaussian_mixture(3, 5), []
    for seed in range(8):
        fit = model.fit({"x": GLANDS}, probml.EM(), seed=seed)
        ends.append(fit.history[-1])
        starts, reached, lower = restarts_finding(fit)
        assert starts >= 10 and 1 <= reached <= starts and lower > 0
    assert np.ptp(ends) < 1e-3


def test_restarts_that_are_asked_for_are_made_and_one_says_nothing():
    z = np.repeat([0, 1], 40)
    data = {"storms": R.poisson(np.array([1.0, 7.0])[z]), "calm": z}
    assert two_rates().fit(data, probml.EM(restarts=1)).findings == ()
    assert restarts_finding(two_rates().fit(data, probml.EM(restarts=5)))[0] == 5


def test_a_second_default_fit_compiles_nothing():
    gaussian_mixture(3, 5).fit({"x": GLANDS}, probml.EM(), seed=0)
    with counted() as found:
        gaussian_mixture(3, 5).fit({"x": GLANDS[:-1] + 0.1}, probml.EM(), seed=3)
    assert found == []


def test_one_start_is_made_where_there_is_nothing_to_tell_apart_and_fewer_of_many_rows():
    model = gaussian_mixture(3, 5)
    data, plan = held(model, {"x": GLANDS})
    point = {"weights": np.full(3, 1 / 3), "mean": GLANDS[[0, 160, 200]],
             "precision": np.stack([np.eye(5)] * 3)}
    assert probml.EM().starts(data, plan, {}) >= 10
    assert probml.EM().starts(data, plan, point) == 1
    assert probml.EM(restarts=4).starts(data, plan, {}) == 4
    holes = np.where(R.random(GLANDS.shape) < 0.1, np.nan, GLANDS)
    assert probml.EM().starts(*held(gaussian_mixture(1, 5), {"x": holes}), {}) == 1
    many = held(model, {"x": np.resize(GLANDS, (300_000, 5))})
    assert 1 <= probml.EM().starts(*many, {}) < 10


def test_ten_starts_are_made_where_an_m_step_takes_a_large_hessian_of_the_rows():
    for columns, count in ((1, race.MAX_STARTS), (10, race.MIN_STARTS)):
        x = np.random.default_rng(0).normal(size=(300, columns))
        y = (x[:, 0] > 0).astype(int)
        data, plan = held(mixture_of_experts(k=2, classes=2), {"x": x, "y": y})
        assert probml.EM().starts(data, plan, {}) == count


def test_starts_do_not_depend_on_units_and_are_of_several_kinds():
    model = gaussian_mixture(3, 5)
    here, plan = held(model, {"x": GLANDS})
    there, _ = held(model, {"x": GLANDS * [1e6, 1e-3, 1, 5, 1e3] + [0, 10, -1e3, 0, 1e9]})
    one, other = (labelling.labelled(data, plan, None, 12, 0, {}) for data in (here, there))
    np.testing.assert_array_equal(one.rows, other.rows)
    np.testing.assert_allclose(one.evidence["z"], other.evidence["z"], atol=1e-6)
    np.testing.assert_allclose(one.weights, other.weights)
    table = one.evidence["z"]
    hard, soft = ((table == 1).any(-1) & (table.sum(-1) == 1),
                  (table > 0).all(-1) & (table.sum(-1) < 1 + 1e-9))
    assert hard[1, 3:].all() and soft[2, 3:].all() and hard[0, :3].all() and one.drawn.sum() == 2


def test_a_tree_that_is_cut_is_that_of_scipy():
    for seed, (n, d, k) in enumerate([(40, 3, 2), (256, 4, 3), (30, 1, 7), (12, 2, 11), (9, 2, 1)]):
        x = np.random.default_rng(seed).normal(size=(n, d)) * [10.0 ** (i - 1) for i in range(d)]
        wanted = fcluster(linkage(x, "ward"), k, "maxclust") - 1
        np.testing.assert_array_equal(labelling.cut(x, k), wanted)


def test_a_tree_with_equal_heights_at_the_cut_has_no_such_parts():
    square = np.array([[0.0, 0.0], [0.0, 1.0], [5.0, 0.0], [5.0, 1.0]])
    assert labelling.cut(square, 3) is None and labelling.cut(square[:2], 3) is None
    np.testing.assert_array_equal(labelling.cut(square, 2), [0, 0, 1, 1])


@pytest.mark.parametrize("states", [5, 100_000])
def test_states_are_points_equally_far_from_each_other_in_a_bounded_number_of_columns(states):
    codes = np.random.default_rng(2).choice(states, (50, 2)).astype(float)
    codes[0, 0] = np.nan
    points = labelling._indicators(codes, states)
    assert points.shape == (50, 2, min(states, labelling.MAX_INDICATORS))
    assert not points[0, 0].any()
    flat, own = points.reshape(100, -1)[1:], codes.reshape(100)[1:]
    apart = np.linalg.norm(flat[:, None] - flat, axis=-1)
    np.testing.assert_allclose(apart, own[:, None] != own, atol=1e-6 if states == 5 else 0.25)


def test_an_outlier_does_not_hide_the_spread_of_a_column():
    x = np.concatenate([GLANDS[:, :1], [[1e8]]])
    found = labelling._standardised(x)
    assert 0.5 < found[:-1].std() < 3 and found[-1] > found[:-1].max()
    np.testing.assert_allclose(found[:-1], labelling._standardised(x * 1e-6 + 5)[:-1], atol=1e-4)


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
    data = {"storms": R.poisson(np.array([1.0, 7.0])[z]),
            "calm": (R.random(80) < np.array([0.9, 0.2])[z]).astype(int)}
    for seed in range(4):
        rate = two_rates().fit(data, probml.EM(), seed=seed).params["rate"]
        assert rate[0] < 2 and rate[1] > 5


def test_a_hidden_chain_finds_the_better_basin_from_every_seed():
    z = np.repeat([0, 1, 0, 2, 0, 1], 40)
    y = R.normal(np.array([0.05, -0.05, 0.0])[z], np.array([0.5, 1.2, 3.0])[z])
    ends = [hidden_markov(k=3).fit({"y": y[None, :, None]}, probml.EM(), seed=seed).history[-1]
            for seed in range(4)]
    assert np.ptp(ends) < 1e-2


def test_those_far_behind_are_left_unless_they_gain_quickly_or_are_among_the_best():
    value = np.array([-10.0, -11, -500, -500, -12, -400, -np.inf])
    trail = np.repeat(value[:, None], 32, 1)
    trail[3, :8] = -800  # climbs yet
    status, all_starts = np.array([0, 0, 0, 0, 1, 0, Status.COLLAPSED]), race.Race(np.zeros(7, int))
    np.testing.assert_array_equal(all_starts.stop_hopeless(status, value, trail, True),
                                  [0, 0, Status.STOPPED, 0, 1, Status.STOPPED, Status.COLLAPSED])
    np.testing.assert_array_equal(all_starts.stop_hopeless(status, value, trail, False)[:2], [0, Status.STOPPED])
    status = np.array([1, 1, Status.STOPPED, 1, 1, Status.STOPPED, Status.COLLAPSED])
    found = race.restarts_finding(status, value, 0, 1e-3)
    assert found.problem == ("best of 7 random starts (1 reached this optimum; the log density of the next "
                             "best is lower by 1; 2 were stopped early; 1 collapsed and were discarded)")


def test_many_rows_are_searched_on_a_sample_first_and_each_of_several_fits_is_worth_its_starts():
    assert race.plan_effort(215, 60, 3) == race.Effort(32)
    few, many, huge = (race.plan_effort(rows, 50, 3) for rows in (20_000, 200_000, 10_000_000))
    for made, rows in ((few, 20_000), (many, 200_000), (huge, 10_000_000)):
        assert (made.starts == race.FOLLOWED_STARTS and made.pilots >= race.MIN_STARTS
                and race.MIN_PILOT_ROWS <= made.size < rows)
        assert made.pilots * made.size <= max(race.MAX_ENTRIES / 50, race.PILOT_SHARE * rows)
    # a sample large enough for 50 states is no saving
    assert race.plan_effort(5_000, 125_000, 50) == race.Effort(1)
    assert race.plan_effort(1_000, 100, 3, programs=6).starts == race.MIN_STARTS
    assert race.plan_effort(20_000, 50, 3, sampling=False).pilots == 0


def test_a_sample_keeps_the_weights_and_cuts_long_sequences_into_stretches():
    data, _ = held(gaussian_mixture(3, 5), {"x": GLANDS})
    part, weights = race.sample_rows(data, None, 50, 0)
    assert part.table.rows == 50 and weights is None
    assert np.isin(part.table.columns["x"].values[:, 0], GLANDS[:, 0]).all()
    heavy = np.where(np.arange(215) == 7, 1e3, np.arange(215) % 2)
    part, weights = race.sample_rows(data, heavy, 50, 0)
    values = part.table.columns["x"].values[:, 0]
    assert weights.sum() == 50 and weights[values == GLANDS[7, 0]] > 40
    assert np.isin(values, GLANDS[(heavy > 0), 0]).all()
    y = np.arange(12_000.0).reshape(2, 6_000, 1)
    y[1, 4_000:] = np.nan  # a short sequence
    data, plan = held(hidden_markov(k=2), {"y": y})
    part, _ = race.sample_rows(data.trimmed(), None, 2_000, 0)
    assert part.plan() == data.trimmed().plan() and part.steps == 125 and part.table.rows == 16
    assert (np.diff(part.table.columns["y"].values[:, :, 0], axis=1) == 1).all() and (
        part.lengths == 125
    ).all()
    sequences = held(hidden_markov(k=2), {"y": y[:1].reshape(600, 10, 1)})[0]
    assert race.sample_rows(sequences, None, 500, 0)[0].table.rows == 50


def test_ends_on_a_sample_are_finished_one_of_each_height_if_not_hopeless():
    value = np.array([-50.0, -10, -10.01, -12, -13, -14, -900, -5])
    status = np.array([1, 1, 1, 0, 1, 1, 1, Status.STOPPED])
    np.testing.assert_array_equal(race.promising(status, value, 100.0), [1, 3, 4])
    np.testing.assert_array_equal(race.promising(status[:3], value[:3], 100.0), [1])
    assert not len(race.promising(np.array([Status.COLLAPSED]), np.array([np.nan]), 100.0))


def test_a_fit_of_many_rows_ends_where_all_starts_on_all_rows_do(monkeypatch):
    """What no row of the sample shows is not therefore impossible."""
    z = np.random.default_rng(3).integers(0, 3, 1500)
    items = (np.random.default_rng(4).random((1500, 6))
             < np.array([0.1, 0.5, 0.9])[(z[:, None] + np.arange(6) // 3) % 3]).astype(int)
    items[700, 0] = 2  # once only
    best = LatentClass(3, prior=False).fit(items).fit_
    monkeypatch.setattr(race, "MAX_ENTRIES", 3e4)
    for seed in range(2):
        fit = LatentClass(3, prior=False, random_state=seed).fit(items).fit_
        assert re.search(r"best of \d+ random starts on 7\d\d of 1500 rows \(.* continued on all",
                         fit.status), fit.status
        assert fit.converged and fit.history[-1] > best.history[-1] - 0.1


def test_each_of_several_sizes_has_its_own_race(monkeypatch):
    models = {k: levels_apart(k=k) for k in (2, 3)}
    x = np.random.default_rng(5).normal(np.repeat([0.0, 9.0, 30.0], 150), 1.0)
    fits = grid(models, {"x": x}, "z", probml.EM())
    assert all(restarts_finding(fit)[0] >= race.MIN_STARTS for fit in fits.values())
    monkeypatch.setattr(race, "MAX_ENTRIES", 1e4)
    monkeypatch.setattr(race, "MIN_PILOT_ROWS", 100)
    for k, fit in grid(models, {"x": x}, "z", probml.EM()).items():
        assert "of 450 rows" in fit.status and fit.history[-1] > fits[k].history[-1] - 0.1


@probml.model
def levels_apart(k):
    """Normals of one spread that is known."""
    weights = sample("weights", dist.Dirichlet(jnp.ones(k)))
    with plate("state", k):
        mean = sample("mean", dist.Normal(10.0, 20.0))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Normal(mean[z], 1.0))


QUICK = ("earthquakes k=3", "mixreg_tonedata")
SLOW = ("nile HMM 2", "polca_carcinoma k=3", "speed HMM 3", "moe_npreg",
        "diabetes_reaven_miller VVI3")


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def test_the_first_answer_reaches_the_best_known_likelihood(name, shared_data, monkeypatch):
    """The yardstick of benchmarks/default_cases.py on a few references, from a few seeds."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    cases = importlib.import_module("default_cases")
    monkeypatch.setattr(cases, "DATA", shared_data)
    rows, best, ours = next((
        rows, best, ours
    ) for found, rows, best, _, ours, _ in cases.references(False) if found == name)
    short = np.maximum(best - np.array([ours(seed) for seed in range(3)]), 0)
    assert short.mean() < 0.01 * rows and short.min() < max(0.01, 1e-6 * abs(best))


@pytest.mark.parametrize("restarts", [0, -1, 1.5, True])
def test_a_number_of_restarts_that_is_none_is_refused(restarts):
    with pytest.raises(probml.ModelError, match="restarts"):
        probml.EM(restarts=restarts)


@pytest.mark.parametrize("engine", [probml.MAP(), pytest.param(probml.Laplace(),
                                                               marks=pytest.mark.slow)])
def test_priors_so_wide_that_no_draw_makes_the_data_possible_are_begun_near_the_middle(engine):
    """BUGS's dogs: exp(−250) beside 1 is certainty, which the data contradict."""
    wide = dist.TruncatedNormal(0.0, 1e4, high=-1e-5)

    @probml.model
    def dogs(avoided, shocked):
        p = jnp.exp(sample("a", wide) * avoided + sample("b", wide) * shocked)
        with probml.rows():
            sample("y", dist.Bernoulli(1 - p))

    data = {"avoided": np.arange(12) % 4, "shocked": 1 + np.arange(12) % 3,
            "y": np.arange(12) % 4 == 0}
    fit = dogs().fit(data, engine)
    assert fit.history[-1] > -60 and -5 < fit.params["a"] < 0


def cells(loc=None):
    @probml.model
    def cells():
        w = sample("w", dist.Dirichlet(jnp.full(3, 2.0)))
        where = sample("loc", dist.Normal(0, 10).expand([3]).to_event(1)) if loc is None else loc
        with probml.rows(), plate("cells", 2):
            z = sample("z", dist.Categorical(w))
            sample("x", dist.Normal(where[z], 1.0))

    return cells()


def test_components_are_counted_where_they_are_found_and_in_cells():
    few = {"x": [[0.0, 8.0], [16.0, 8.5]]}  # two rows of two cells, three components
    fit = cells().fit(few, probml.EM())
    np.testing.assert_allclose(np.sort(fit.params["loc"]), [0.0, 8.25, 16.0], atol=0.2)
    # w alone is unseen
    known = cells(jnp.array([0.0, 8.0, 16.0])).fit({"x": few["x"][:1]}, probml.EM())
    assert np.argmax(known.params["w"]) < 2
    with pytest.raises(probml.errors.DataError, match="3 states.*only 2 distinct values"):
        cells().fit({"x": few["x"][:1]}, probml.EM())


@probml.model
def zero_inflated(x):
    a, b = sample("a", dist.Normal(0, 3).expand([2])), sample("b", dist.Normal(0, 3).expand([2]))
    size = sample("size", dist.Gamma(2, 0.5))
    with probml.rows():
        never = sample("never", dist.Bernoulli(logits=a[0] + a[1] * x))
        mean = jnp.where(never == 1, 1e-6, jnp.exp(b[0] + b[1] * x))
        sample("y", dist.NegativeBinomial2(mean, size))


@probml.model
def kinds_of_counts(x):
    weight = sample("weight", dist.Beta(2, 2))
    with plate("kinds", 2):
        a, b = sample("a", dist.Normal(0, 3)), sample("b", dist.Normal(0, 3))
        size = sample("size", dist.Gamma(2, 0.5))
    with probml.rows():
        kind = sample("kind", dist.Bernoulli(weight))
        sample("y", dist.NegativeBinomial2(jnp.exp(a[kind] + b[kind] * x), size[kind]))


@probml.model
def kinds_of_waits(x):
    weight = sample("weight", dist.Beta(2, 2))
    with plate("kinds", 2):
        rate, shape = sample("rate", dist.Gamma(2, 1)), sample("shape", dist.Gamma(2, 1))
    with probml.rows():
        kind = sample("kind", dist.Bernoulli(weight))
        sample("y", dist.Weibull(rate[kind] * jnp.exp(0.1 * x), shape[kind]))


@pytest.mark.parametrize("model", [zero_inflated, kinds_of_counts, kinds_of_waits])
def test_what_an_m_step_would_climb_on_the_rows_is_left_to_laplace_and_by_name_has_few_starts(model):
    """32 starts of such steps took 550 s of 644 rows."""
    random = np.random.default_rng(0)
    y = 1 + random.poisson(3.0, 644)
    data, plan = held(model(), {"x": random.normal(size=644), "y": y})
    assert choose(data)[0][0] == probml.Laplace()
    assert probml.EM().starts(data, plan, {}) < race.MIN_STARTS


@pytest.mark.slow
def test_map_of_the_ladder_begins_from_several_labellings_of_hidden_kinds():
    random = np.random.default_rng(2)
    x = random.normal(size=150)
    kind = np.arange(150) % 2
    y = random.poisson(np.exp(np.where(kind, 2.5 + 0.8 * x, 0.3 - 0.5 * x)))
    fit = kinds_of_counts().fit({"x": x, "y": y})
    best = max(kinds_of_counts().fit({"x": x, "y": y}, probml.MAP(), seed=seed).history[-1]
               for seed in range(4))
    assert fit.history[-1] >= best - 1e-2


@pytest.mark.parametrize(("kind", "arguments"), [
    (dist.Normal, (1.0, 0.0)), (dist.Uniform, (1.0, 1.0)), (dist.HalfNormal, (0.0,)),
], ids=["normal", "uniform", "positive"])
def test_a_prior_without_width_is_refused_by_name(kind, arguments):
    @probml.model
    def pinned():
        b = sample("b", kind(*arguments))
        with probml.rows():
            sample("y", dist.Normal(b, 1.0))

    with pytest.raises(probml.ModelError, match=(
            r"the log prior density of 'b' is .* with scale 0|"
            r"the prior of 'b' has the argument scale = 0\.0, which must be positive")):
        pinned().fit({"y": np.ones(3)}, probml.MAP())


@pytest.mark.parametrize("engine", [probml.NUTS(), probml.SVI()], ids=lambda each: type(each).__name__)
def test_a_density_whose_derivative_is_nowhere_finite_is_refused(engine):
    """All chains stayed where they began."""
    @probml.model
    def roots(x):
        a = sample("a", dist.LogNormal(0.0, 1.0))
        with probml.rows():
            sample("y", dist.Normal(jnp.sqrt(x * a), 1.0))

    data = {"x": np.array([0.0, 1.0, 2.0]), "y": np.array([0.1, 1.0, 1.5])}
    with pytest.raises(probml.Refusal, match="log density is finite, but its derivative is NaN or infinite"):
        roots().fit(data, engine)
