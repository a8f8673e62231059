"""Rows that numpyro.factor weighs answer as NumPy does with a table of all their values: every model
of weighted_models.py, every question."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import factor, plate, sample
from numpyro.infer.util import log_density
from scipy import stats
from weighted_models import CASES

import probml

ROWS, DRAWS = 3, 1200
ENGINES = {"EM": probml.EM(), "MAP": probml.MAP(), "Laplace": probml.Laplace(),
           "NUTS": probml.NUTS(draws=100, warmup=200, chains=2)}
EVERY = [pytest.param(case, id=repr(case), marks=[] if case.quick else [pytest.mark.slow])
         for case in CASES]


def asked(case):
    """A few rows with the site unseen, and their table by NumPy's hand."""
    rows = {name: value[:ROWS] for name, value in case.data.items() if name != case.site}
    return rows, {**rows, case.site: np.full(ROWS, np.nan)}


def held(case, fit):
    """What a fit says at its point, against the table."""
    rows, data = asked(case)
    params = {name: np.asarray(value, float) for name, value in fit.params.items()}
    table = np.broadcast_to(case.table(params, rows), (ROWS, len(case.values)))
    mean, below = table @ case.values, table.cumsum(1)
    spread = np.sqrt(table @ case.values**2 - mean**2)
    if fit.structure.sites[case.site].states:
        np.testing.assert_allclose(fit.predict_proba(data, case.site, plug_in=True), table,
                                   atol=1e-4)
        assert (fit.predict(data, case.site, plug_in=True) == table.argmax(1)).all()
    else:
        close = 2e-3 * spread.max()
        np.testing.assert_allclose(fit.predict(data, case.site, plug_in=True), mean, atol=close)
        np.testing.assert_allclose(fit.impute(data, plug_in=True)[case.site], mean, atol=close)
        found = fit.predict(data, case.site, plug_in=True, interval=0.8)
        for share, bound in ((0.1, found.lower), (0.9, found.upper)):
            at = (below < share).sum(1)
            step = 0.01 * spread.max() if len(case.values) > 1000 else 0.5  # of nodes, of counts
            if len(case.values) < 1000 and np.abs(
                    below[np.arange(ROWS), at] - share).min() < 0.03:
                step = 1.5  # drawn quantiles of counts, where no factor bears on them
            np.testing.assert_allclose(bound, case.values[at], atol=step + 0.1 * spread.max())
    many = {name: np.repeat(value, DRAWS // ROWS, 0) for name, value in data.items()}
    drawn = fit.simulate(given=many, plug_in=True)[case.site].reshape(ROWS, -1).astype(float)
    error = spread / np.sqrt(drawn.shape[1])
    assert (np.abs(drawn.mean(1) - mean) < 4.5 * error).all()
    inside = np.interp(drawn.ravel(), case.values, table[0] if len(table) == 1 else table.max(0))
    assert (inside > 0).all(), "a value was drawn that is cut off"


@pytest.mark.parametrize("case", EVERY)
def test_every_question_has_the_factor_in_its_answer(case):
    held(case, case.model.fit(case.data))


LAST, ENTRY = np.array([0.4, 1.3, 2.9]), np.array([-1.0, 0.3, 1.5])
TRUNCATED = {"reported_in_time": ({"rate": 0.8}, {"last": LAST},
                                  stats.truncexpon(b=0.8 * LAST, scale=1 / 0.8)),
             "entered_late": ({"mu": 0.5, "sd": 1.2}, {"entry": ENTRY},
                              stats.truncnorm((ENTRY - 0.5) / 1.2, np.inf, 0.5, 1.2))}


@pytest.mark.parametrize("name", TRUNCATED)
def test_mean_and_quantiles_of_a_truncated_number_are_scipys(name):
    case = next(case for case in CASES if repr(case) == name)
    point, inputs, exact = TRUNCATED[name]
    data = {**inputs, case.site: np.full(3, np.nan)}
    for level in (0.8, 0.98):
        found = case.model.at(point).predict(data, case.site, interval=level)
        for got, want in ((found.value, exact.mean()), (found.lower, exact.ppf(0.5 - level / 2)),
                          (found.upper, exact.ppf(0.5 + level / 2))):
            assert (np.abs(got - want) < 1e-3 * exact.std()).all()


@pytest.mark.one_in(4)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # few draws
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_every_engine_answers_with_the_factor_or_refuses(case, engine):
    try:
        fit = case.model.fit(case.data, ENGINES[engine])
    except probml.Refusal as refusal:
        assert case.model.name in str(refusal)
        return
    held(case, fit)
    if fit.certain:
        return
    params = {name: np.asarray(value, float) for name, value in fit.draws(200).items()}
    rows, data = asked(case)
    if not fit.structure.sites[case.site].states and case.name not in UNEVEN:
        tables = [np.broadcast_to(case.table({n: v[i] for n, v in params.items()}, rows),
                                  (ROWS, len(case.values))) for i in range(200)]
        mean = np.mean(tables, 0) @ case.values
        between = np.std([table @ case.values for table in tables], 0)
        assert (np.abs(fit.predict(data, case.site) - mean) < 0.35 * between + 1e-2).all()


# as they are written, draws of the parameters weigh as much as their factors integrate to
UNEVEN = {"a_soft_constraint", "a_tilt", "weighted_likelihood", "a_survival_time_beside"}


@pytest.mark.filterwarnings("ignore")  # few steps
@pytest.mark.parametrize("case", [param for param in EVERY
                                  if repr(param.values[0]) != "truncated_mixture"])
def test_log_prob_of_a_row_is_its_density_and_its_factors_as_numpyro_adds_them(case):
    rows = {name: value[:ROWS] for name, value in case.data.items()}
    point = case.model.fit(case.data, probml.MAP(steps=3)).params
    point = {name: np.asarray(value, float) for name, value in point.items()}
    got = case.model.at(point).log_prob(rows)

    def total(n):
        at = {name: value[:n] for name, value in rows.items()}
        own = {name: at.pop(name) for name in case.model.inputs}
        return float(log_density(case.model, (n,), own, {**point, **at})[0])

    steps = np.diff([total(n) for n in range(1, ROWS + 1)])
    np.testing.assert_allclose(got[1:], steps, rtol=1e-4, atol=1e-4)


@probml.model
def cells_together():
    mu = sample("mu", dist.Normal(0.0, 2.0))
    with probml.rows():
        y = sample("y", dist.Normal(mu, 1.0).expand([2]).to_event(1))
        factor("alike", -2.0 * (y[..., 0] - y[..., 1]) ** 2)


def test_a_vector_is_answered_by_weighted_draws():
    fit = cells_together().at({"mu": 1.5})
    drawn = fit.simulate(3000)["y"]
    want = np.linalg.inv(np.eye(2) + 4.0 * np.array([[1, -1], [-1, 1]]))
    np.testing.assert_allclose(np.cov(drawn.T), want, atol=0.06)
    np.testing.assert_allclose(fit.predict({"y": np.full((1, 2), np.nan)}, "y"), [[1.5, 1.5]],
                               atol=0.1)


@probml.model
def cut_in_a_way_unknown():
    mu = sample("mu", dist.Normal(0.0, 1.0))
    with probml.rows():
        y = dist.Normal(mu, 1.0)
        sample("y", y)
        # outside of (-1, 1): no interval
        factor("cut", -jnp.log(1 - (y.cdf(1.0) - y.cdf(-1.0))))


def test_what_a_factor_cut_off_is_asked_for_where_it_cannot_be_told():
    fit = cut_in_a_way_unknown().at({"mu": 0.3})
    for ask in (lambda: fit.predict({"y": [np.nan]}, "y"), lambda: fit.simulate(3)):
        with pytest.raises(probml.Refusal, match="'cut'.*jnp.where.*-jnp.inf"):
            ask()


@probml.model
def two_plates(c):
    with plate("item", 2):
        mu = sample("mu", dist.Normal(0.0, 1.0))
    with probml.rows(), plate("items", 2):
        sample("y", dist.Normal(mu[:, None], 1.0))
        factor("constant", c)


@pytest.mark.parametrize("c", [0.4, np.array([[0.1], [0.2]])])
def test_a_factor_that_is_the_same_in_every_row_counts_in_each_as_numpyros(c):
    model, y = two_plates(c=c), np.arange(6.0).reshape(3, 2)
    want = log_density(model, (3,), {}, {"mu": np.zeros(2), "y": y.T})[0]
    np.testing.assert_allclose(model.log_density({"y": y}, {"mu": np.zeros(2)}), want, rtol=1e-6)


# what a site depends on, with the weights of its values: its log weights and the values
ABOVE = {"a latent kind": (lambda: sample("a", dist.Categorical(jnp.array([0.5, 0.3, 0.2]))),
                           np.log([0.5, 0.3, 0.2]), np.arange(3.0)),
         "a latent number": (lambda: sample("a", dist.Normal(0.5, 1.0)),
                             -0.5 * (np.linspace(-8, 9, 4001) - 0.5) ** 2,
                             np.linspace(-8, 9, 4001))}
BELOW = {"normal": (lambda a: dist.Normal(2.0 * a, 1.0), lambda a: 2.0 * a),
         "student": (lambda a: dist.StudentT(5.0, a, 1.0), lambda a: a),
         "counts": (lambda a: dist.Poisson(jnp.exp(0.3 * a)), lambda a: np.exp(0.3 * a)),
         "gamma": (lambda a: dist.Gamma(2.0, jnp.exp(-0.3 * a)), lambda a: 2.0 * np.exp(0.3 * a))}


QUICK = ("a latent kind", "normal", 0.7)


@pytest.mark.parametrize("above, below, tilt", [
    pytest.param(*one, marks=[] if one == QUICK else [pytest.mark.slow])
    for one in itertools.product(ABOVE, BELOW, (0.7, -0.7, 0.0))])
def test_a_factor_of_what_a_site_depends_on_is_no_truncation_of_it(above, below, tilt):
    """As for tilt > 0 and without a parameter that could be moved it was taken for."""

    @probml.model
    def tilted(c):
        with probml.rows():
            a = ABOVE[above][0]()
            factor("tilt", c * a)
            sample("y", BELOW[below][0](a))

    _, log, values = ABOVE[above]
    weight = np.exp(log + tilt * values)
    fit = tilted().at({})
    want = weight @ BELOW[below][1](values) / weight.sum()
    np.testing.assert_allclose(fit.predict({"c": [tilt]}, "y"), [want], rtol=2e-3, atol=2e-3)
    drawn = np.asarray(fit.simulate(c=np.full(3000, tilt))["a"], float)
    mean = weight @ values / weight.sum()
    spread = np.sqrt(weight @ values**2 / weight.sum() - mean**2)
    assert abs(drawn.mean() - mean) < 5 * spread / np.sqrt(3000)
    if above == "a latent kind":
        given = fit.predict({"a": [2], "c": [tilt]}, "y")
        np.testing.assert_allclose(given, BELOW[below][1](np.array([2.0])), rtol=2e-3)
