"""Data of several tables, the rows of one belonging to those of another: densities and answers are
what brute force sums, and what the same model nested by hand gives."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample
from scipy import stats
from scipy.special import logsumexp

import probml
from plain_numpyro import log_density
from probml import rows
from probml.errors import DataError, ModelError

RNG = np.random.default_rng(3)
NAMES = np.array(["ann", "bob", "cid", "dan", "eve"])
OWNER = np.array([1, 0, 0, 3, 1, 0, 4, 3])  # cid never came
DAY = RNG.normal(size=8)
Y = RNG.normal(size=8) + np.array([2.0, -2.0])[np.array([0, 1, 0, 1, 1])[OWNER]]
Y[4] = np.nan
RELAPSE = np.array([1, np.nan, 0, 0, np.nan, 1, np.nan, 1])
BASE = np.array([0.3, -1.0, np.nan, 0.5, 2.0])
TABLES = {"patients": {"patient": NAMES, "baseline": BASE},
          "visits": {"patient": NAMES[OWNER], "day": DAY, "relapse": RELAPSE, "y": Y}}
POINT = {"weights": np.array([0.3, 0.7]), "base": np.array([-1.0, 1.0]), "slope": 0.4,
         "rate": np.array([0.2, 0.6]), "level": np.array([2.0, -2.0]), "sigma": 0.8}


def parameters():
    return (sample("weights", dist.Dirichlet(2 * jnp.ones(2))),
            sample("base", dist.Normal(0, 3).expand([2])), sample("slope", dist.Normal(0, 1)),
            sample("rate", dist.Beta(2, 2).expand([2])),
            sample("level", dist.Normal(0, 3).expand([2])),
            sample("sigma", dist.LogNormal(0, 1)))


@probml.model
def clinic(patient, day):
    weights, base, slope, rate, level, sigma = parameters()
    with rows("patients"):
        kind = sample("kind", dist.Categorical(weights))
        sample("baseline", dist.Normal(base[kind], 1.0))
    with rows("visits", of="patients"):
        relapse = sample("relapse", dist.Bernoulli(rate[kind[patient]]))
        sample("y", dist.Normal(level[kind[patient]] + slope * day + relapse, sigma))


@probml.model
def by_hand(day):
    weights, base, slope, rate, level, sigma = parameters()
    with rows():
        kind = sample("kind", dist.Categorical(weights))
        sample("baseline", dist.Normal(base[kind], 1.0))
        with plate("visits", 3):
            relapse = sample("relapse", dist.Bernoulli(rate[kind]))
            sample("y", dist.Normal(level[kind] + slope * day.T + relapse, sigma))


@probml.model
def intercepts(patient, day):
    slope, s = sample("slope", dist.Normal(0, 2)), sample("s", dist.LogNormal(0, 1))
    with rows("patients"):
        a = sample("a", dist.Normal(0.5, 1.2))
    with rows("visits", of="patients"):
        sample("y", dist.Normal(a[patient] + slope * day, s))


def log_rows(point=POINT):
    """log p(kind, what is seen) of every patient and kind, (5, 2)."""
    out = np.tile(np.log(point["weights"]), (5, 1))
    seen = ~np.isnan(BASE)
    out[seen] += stats.norm(point["base"], 1.0).logpdf(BASE[seen, None])
    for owner, day, relapse, y in zip(OWNER, DAY, RELAPSE, Y, strict=True):
        for k in range(2):
            ways = []
            for r in (0, 1) if np.isnan(relapse) else (int(relapse),):
                log = np.log([1 - point["rate"][k], point["rate"][k]][r])
                mean = point["level"][k] + point["slope"] * day + r
                ways.append(log + (0 if np.isnan(y) else stats.norm.logpdf(y, mean, point["sigma"])))
            out[owner, k] += logsumexp(ways)
    return out


def log_prior(point=POINT):
    return (stats.dirichlet([2, 2]).logpdf(point["weights"])
            + stats.norm(0, 3).logpdf(np.r_[point["base"], point["level"]]).sum()
            + stats.norm(0, 1).logpdf(point["slope"]) + stats.beta(2, 2).logpdf(point["rate"]).sum()
            + stats.lognorm(1.0).logpdf(point["sigma"]))


def nested():
    """The same data, visits in places beside patients."""
    place = {0: 0, 1: 0, 2: 0, 3: 0, 4: 0}
    day, relapse, y = np.zeros((5, 3)), np.full((5, 3), np.nan), np.full((5, 3), np.nan)
    day[:] = DAY[0]
    for owner, *values in zip(OWNER, DAY, RELAPSE, Y, strict=True):
        at = owner, place[owner]
        day[at], relapse[at], y[at] = values
        place[owner] += 1
    return {"day": day, "relapse": relapse, "y": y, "baseline": BASE}


def test_the_density_of_two_tables_is_what_brute_force_sums():
    want = logsumexp(log_rows(), axis=1).sum() + log_prior()
    np.testing.assert_allclose(clinic().log_density(TABLES, POINT), want, atol=1e-10)


def test_the_density_of_complete_tables_is_numpyros_own():
    full = {"kind": np.array([0, 1, 0, 1, 1]), "baseline": RNG.normal(size=5)}
    visits = {"relapse": RNG.integers(2, size=8), "y": RNG.normal(size=8)}
    numbers = {**POINT, **full, **visits}

    def plain():
        clinic()(rows={"patients": 5, "visits": 8}, patient=OWNER, day=DAY)

    want = log_density(plain, (), {}, numbers)
    got = clinic().log_density({"patients": {"patient": NAMES, **full},
                                "visits": {"patient": NAMES[OWNER], "day": DAY, **visits}}, POINT)
    np.testing.assert_allclose(got, want, atol=1e-10)


def test_questions_about_each_table_are_what_brute_force_answers():
    fit, each = clinic().at(POINT), log_rows()
    np.testing.assert_allclose(fit.log_prob(TABLES), logsumexp(each, axis=1), atol=1e-10)
    kinds = np.exp(each - logsumexp(each, axis=1, keepdims=True))
    np.testing.assert_allclose(fit.predict_proba(TABLES, "kind"), kinds, atol=1e-10)
    relapse = fit.predict_proba(TABLES, "relapse")
    want = np.eye(2)[np.nan_to_num(RELAPSE).astype(int)]
    for i in np.flatnonzero(np.isnan(RELAPSE)):
        joint = np.zeros((2, 2))
        for k in range(2):
            for r in range(2):
                mean = POINT["level"][k] + POINT["slope"] * DAY[i] + r
                joint[k, r] = np.log([1 - POINT["rate"][k], POINT["rate"][k]][r]) + (
                    0 if np.isnan(Y[i]) else stats.norm(mean, POINT["sigma"]).logpdf(Y[i]))
        joint -= logsumexp(joint, axis=1, keepdims=True)
        want[i] = (kinds[OWNER[i], :, None] * np.exp(joint)).sum(0)
    np.testing.assert_allclose(relapse, want, atol=1e-10)
    filled = fit.impute(TABLES)
    assert filled["y"].shape == (8,) and filled["baseline"].shape == (5,)
    np.testing.assert_array_equal(filled["y"][~np.isnan(Y)], Y[~np.isnan(Y)])
    mean = POINT["level"] + POINT["slope"] * DAY[4]
    both = (kinds[1] * mean).sum() + relapse[4, 1]
    np.testing.assert_allclose(filled["y"][4], both, atol=1e-10)


def test_em_of_two_tables_is_em_of_the_model_nested_by_hand():
    engine = probml.EM(max_iterations=40, restarts=1, tolerance=1e-12)
    one = clinic().fit(TABLES, engine, seed=1, start=POINT)
    two = by_hand().fit(nested(), engine, seed=1, start=POINT)
    for name, value in two.params.items():
        np.testing.assert_allclose(one.params[name], value, rtol=1e-9)
    np.testing.assert_allclose(one.log_prob(TABLES), two.log_prob(nested()), rtol=1e-9)


def test_a_fit_answers_tables_of_more_rows_than_it_has_seen():
    fit = clinic().fit(TABLES, probml.MAP(), start=POINT)
    more = {"patients": {"patient": ["zoe"], "baseline": [np.nan]},
            "visits": {"patient": ["zoe"] * 6, "day": np.zeros(6), "y": np.arange(6.0)}}
    once = [fit.predict(more, "relapse"), fit.predict_proba(more, "kind")]
    assert once[0].shape == (6,) and once[1].shape == (1, 2)
    few = {"patients": {"patient": NAMES, "baseline": BASE}}
    base = np.asarray(fit.params["base"])
    logs = np.log(fit.params["weights"]) + np.where(
        np.isnan(BASE)[:, None], 0, stats.norm(base, 1.0).logpdf(BASE[:, None]))
    few["visits"] = {"patient": ["ann"], "day": [0.0]}
    np.testing.assert_allclose(fit.log_prob(few), logsumexp(logs, axis=1), rtol=1e-9, atol=1e-15)


def test_numbers_of_patients_are_integrated_over_their_visits():
    point = {"slope": 0.3, "s": 0.7}
    data = {"patients": {"patient": NAMES},
            "visits": {"patient": NAMES[OWNER], "day": DAY, "y": Y}}
    fit, want, mean = intercepts().at(point), np.zeros(5), np.full(5, 0.5)
    for i in range(5):
        own = (i == OWNER) & ~np.isnan(Y)
        if own.any():
            cov = 0.49 * np.eye(own.sum()) + 1.44
            rest = Y[own] - 0.5 - 0.3 * DAY[own]
            want[i] = stats.multivariate_normal(np.zeros(own.sum()), cov).logpdf(rest)
            mean[i] = 0.5 + 1.44 * np.linalg.solve(cov, rest).sum()
    np.testing.assert_allclose(fit.log_prob(data), want, atol=1e-10)
    np.testing.assert_allclose(fit.predict(data, "a"), mean, atol=1e-10)
    np.testing.assert_allclose(fit.conditional(data, "a").mean, mean, atol=1e-10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:NUTS")
def test_nuts_of_two_tables_draws_what_is_integrated_exactly():
    data = {"patients": {"patient": NAMES},
            "visits": {"patient": NAMES[OWNER], "day": DAY, "y": Y}}
    fit = intercepts().fit(data, probml.NUTS(draws=300, warmup=200, chains=2), seed=2)
    grid = np.linspace(-3, 3, 61)
    scales = np.exp(np.linspace(-2, 2, 41))
    log = np.zeros((61, 41))
    for j, s in enumerate(scales):
        for i in range(5):
            own = (i == OWNER) & ~np.isnan(Y)
            if own.any():
                cov = s**2 * np.eye(own.sum()) + 1.44
                rest = Y[own] - 0.5 - grid[:, None] * DAY[own]
                log[:, j] += stats.multivariate_normal(np.zeros(own.sum()), cov).logpdf(rest)
        log[:, j] += stats.norm(0, 2).logpdf(grid) + stats.norm(0, 1).logpdf(np.log(s))
    weight = np.exp(log - log.max()).sum(1)
    want = (weight * grid).sum() / weight.sum()
    assert abs(fit.params["slope"] - want) < 0.15


def test_tables_are_simulated_by_their_sizes_and_by_what_is_given():
    found = clinic().simulate({"patients": 5, "visits": 8}, seed=1, patient=OWNER, day=DAY)
    assert {name: value.shape for name, value in found.items()} == {
        "kind": (5,), "baseline": (5,), "relapse": (8,), "y": (8,)}
    given = clinic().at(POINT).simulate(given=TABLES, seed=1)
    assert given["y"].shape == (8,) and given["kind"].shape == (5,)
    np.testing.assert_array_equal(given["y"][~np.isnan(Y)], Y[~np.isnan(Y)])


def test_frames_are_tables_and_categories_keep_their_order():
    pd = pytest.importorskip("pandas")
    kinds = pd.Categorical(["low", "high", None, "low", "high"], categories=["low", "high"])
    frames = {"patients": pd.DataFrame({"patient": NAMES, "baseline": BASE, "kind": kinds}),
              "visits": pd.DataFrame(TABLES["visits"])}
    fit = clinic().fit(frames, probml.MAP(), start=POINT)
    assert fit.labels("kind") == ("low", "high")
    assert list(fit.predict(frames, "kind")[[0, 1, 3]]) == ["low", "high", "low"]
    assert "table 'patients'" in str(clinic().explain(frames))


@probml.model
def centred(patient, day):
    mean = sample("mean", dist.Normal(0, 1))
    with rows("patients"):
        a = sample("a", dist.Normal(mean, 1))
    with rows("visits", of="patients"):
        sample("y", dist.Normal(a[patient] + day - day.mean(0), 1))


@probml.model
def inside_one_another(patient):
    mean = sample("mean", dist.Normal(0, 1))
    with rows("patients"):
        a = sample("a", dist.Normal(mean, 1))
        with rows("visits", of="patients"):
            sample("y", dist.Normal(a, 1))


@probml.model
def weighed(patient):
    mean = sample("mean", dist.Normal(0, 1))
    with rows("patients"):
        a = sample("a", dist.Normal(mean, 1))
    with rows("visits", of="patients"):
        numpyro.factor("penalty", -a[patient] ** 2)
        sample("y", dist.Normal(a[patient], 1))


@probml.model
def results_of_visits(patient, visit):
    with rows("patients"):
        a = sample("a", dist.Normal(0, 1))
    with rows("visits", of="patients"):
        b = sample("b", dist.Normal(a[patient], 1))
    with rows("tests", of="visits"):
        sample("y", dist.Normal(b[visit], 1))


def without(table, column):
    return {**TABLES, table: {k: v for k, v in TABLES[table].items() if k != column}}


BAD = [
    (clinic, {**TABLES, "drugs": {"x": [1.0]}}, DataError, ["'drugs'", "Drop the table"]),
    (clinic, without("visits", "day"), DataError, ["has the column 'day'", "give its value to the model"]),
    (clinic, without("patients", "patient"), DataError, ["links the two tables must be in both", "by="]),
    (clinic, {"patients": TABLES["patients"]}, DataError, ["has the column 'day'"]),
    (clinic, {**TABLES, "visits": {**TABLES["visits"], "baseline": np.ones(8)}}, DataError,
     ["'baseline' is a site of rows('patients')", "'visits'"]),
    (clinic, {**TABLES, "patients": {"patient": ["ann"] * 5, "baseline": BASE}}, DataError,
     ["'ann' twice"]),
    (clinic, {**TABLES, "patients": {"patient": NAMES[:4], "baseline": BASE[:4]}}, DataError,
     ["'eve' in row 6", "Add a row with this key to"]),
    (clinic, {**TABLES, "visits": {**TABLES["visits"], "day": np.r_[np.nan, DAY[1:]]}}, DataError,
     ["'day' of table 'visits' is missing in row 0"]),
    (clinic, {**TABLES, "visits": {**TABLES["visits"], "y": np.ones(7)}}, DataError,
     ["'y' of table 'visits' has 7 rows"]),
    (clinic, {"day": DAY, "patient": OWNER, "y": Y}, ModelError, ["mapping of tables"]),
    (centred, {"patients": {"patient": NAMES},
               "visits": {"patient": NAMES[OWNER], "day": DAY, "y": Y}}, ModelError,
     ["'y'", "other rows", "'visits'"]),
    (inside_one_another, {"patients": {"patient": NAMES},
                          "visits": {"patient": NAMES[OWNER], "y": Y}}, ModelError,
     ["at once", "one below the other"]),
    (weighed, {"patients": {"patient": NAMES}, "visits": {"patient": NAMES[OWNER], "y": Y}},
     ModelError, ["'penalty'", "factor"]),
    (results_of_visits, {"patients": {"patient": NAMES},
                       "visits": {"patient": NAMES[OWNER], "visit": np.arange(8)},
                       "tests": {"visit": [0, 1], "y": [0.1, 0.2]}}, ModelError,
     ["belong to 'visits'", "only two levels of tables"]),
]


@pytest.mark.parametrize("model, data, kind, words", BAD, ids=[" ".join(c[3]) for c in BAD])
def test_tables_that_do_not_belong_together_are_refused_by_name(model, data, kind, words):
    with pytest.raises(kind) as failure:
        model().fit(data, probml.MAP())
    for word in words:
        assert word in str(failure.value), str(failure.value)
