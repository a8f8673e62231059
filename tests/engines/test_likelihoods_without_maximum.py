"""Likelihoods without a maximum, those with many as high, and those that only look so: what is said
of each, whichever engine climbs it.

A line of LINES is a likelihood more: its model and data, the engines, and what is right: DIVERGES,
LIMIT (a parameter tends to a limit of its support, as to the Poisson of a negative binomial), LEVEL
(not identified), or PROPER.
"""

import warnings
from collections.abc import Callable
from importlib.resources import files
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample
from numpyro.distributions import constraints

import probml
from coded import codes
from probml.models import GeneralizedLinearModel, LogisticRegression, MixedModel

DIVERGES, LIMIT, LEVEL, PROPER = "separation", "limit", "not-identified|no-information", ""
ML, BY_EM = probml.MAP(prior=False), probml.EM(prior=False)
REAL, POSITIVE = constraints.real, constraints.positive


def flat(name, *shape, support=REAL):
    return sample(name, dist.ImproperUniform(support, (), shape))


def effects(name, members):
    spread = sample(f"sd_{name}", dist.HalfNormal(3.0))
    with plate(f"members_{name}", members):
        return sample(name, dist.Normal(0.0, spread))


@probml.model
def logistic(x):
    eta = flat("a") + x @ flat("b", x.shape[-1])
    with probml.rows():
        sample("y", dist.Bernoulli(logits=eta))


@probml.model
def probit(x):
    eta = flat("a") + x @ flat("b", x.shape[-1])
    with probml.rows():
        sample("y", dist.Bernoulli(jnp.clip(dist.Normal().cdf(eta), 1e-30, 1 - 1e-7)))


@probml.model
def softmax(x, states: int):
    eta = x @ flat("b", x.shape[-1], states - 1)
    with probml.rows():
        sample("y", dist.Categorical(logits=jnp.pad(eta, ((0, 0), (1, 0)))))


@probml.model
def ordered(x):
    slope = flat("b")
    cuts = sample("c", dist.ImproperUniform(constraints.ordered_vector, (), (2,)))
    with probml.rows():
        sample("y", dist.OrderedLogistic(slope * x, cuts))


@probml.model
def bradley_terry(win, lose, players: int):
    with plate("players", players):
        strength = sample("strength", dist.Normal(0.0, 3.0))
    with probml.rows():
        sample("won", dist.Bernoulli(logits=strength[win] - strength[lose]))


@probml.model
def items(person, item, persons: int, count: int):
    with plate("items", count):
        difficulty = flat("difficulty")
    ability = effects("ability", persons)
    with probml.rows():
        sample("y", dist.Bernoulli(logits=ability[person] - difficulty[item]))


@probml.model
def grouped(x, group, groups: int, family: str):
    eta = flat("a") + flat("b") * x + effects("u", groups)[group]
    with probml.rows():
        sample("y", dist.Poisson(jnp.exp(eta)) if family == "poisson" else
               dist.Bernoulli(logits=eta))


@probml.model
def survival(x, time, died):
    rate, mean = jnp.exp(flat("a") + flat("b") * x), flat("mean")
    with probml.rows():
        numpyro.factor("times", died * jnp.log(rate) - rate * time)
        sample("other", dist.Normal(mean, 1.0))


@probml.model
def student():
    level, (df, scale) = flat("a"), (flat(name, support=POSITIVE) for name in ("df", "scale"))
    with probml.rows():
        sample("y", dist.StudentT(df, level, scale))


@probml.model
def zeros(x):
    eta, rate = flat("a") + flat("b") * x, jnp.exp(flat("c"))
    with probml.rows():
        z = sample("z", dist.Bernoulli(logits=eta))
        sample("y", dist.Poisson(jnp.where(z == 1, rate, 1e-6)))


@probml.model
def two_groupings(g, h, groups: int):
    level, noise = flat("a"), flat("noise", support=POSITIVE)
    u, v = effects("u", groups), effects("v", groups)
    with probml.rows():
        sample("y", dist.Normal(level + u[g] + v[h], noise))


@probml.model
def along_years(x, group, groups: int):
    eta, noise = flat("a") + flat("b") * x, flat("noise", support=POSITIVE)
    eta = eta + effects("u", groups)[group]
    with probml.rows():
        sample("y", dist.Normal(eta, noise))


class Line(NamedTuple):
    name: str
    right: str
    make: Callable  # NumPy's generator → model, data
    engines: tuple = (ML,)
    quick: bool = False


def off_centre(r, model=probit):
    x = r.normal(50, 3, 80)
    return model(), {"x": x[:, None], "y": (x > 50).astype(int)}


def by_two_columns(r):
    x = r.normal(size=(120, 2)) * [1, 30] + [5, -200]
    return logistic(), {"x": x, "y": (x[:, 0] - x[:, 1] / 30 > 11.5).astype(int)}


def many_columns(r):
    x = r.normal(size=(300, 10))
    return softmax(states=4), {"x": x, "y": np.where(x[:, 0] > 0, r.integers(0, 2, 300),
                                                     r.integers(2, 4, 300))}


def classes_in_order(r):
    x = r.normal(size=90)
    return ordered(), {"x": x, "y": np.digitize(x, [-0.5, 0.6])}


def players(r, count=50):
    strength, pairs = r.normal(size=count), r.integers(0, count, (900, 2))
    i, j = pairs[pairs[:, 0] != pairs[:, 1]].T
    won = r.random(len(i)) < 1 / (1 + np.exp(strength[j] - strength[i]))
    won = np.where(i == 3, False, np.where(j == 3, True, won))  # player 3 never wins
    return bradley_terry(players=count), {"win": np.where(won, i, j), "lose": np.where(won, j, i),
                                          "won": np.ones(len(i), int)}


def answers(r):
    person, item = np.repeat(np.arange(60), 5), np.tile(np.arange(5), 60)
    y = r.random(300) < 1 / (1 + np.exp(r.normal(size=5)[item] - r.normal(size=60)[person]))
    return items(persons=60, count=5), {"person": person, "item": item,
                                        "y": np.where(item == 4, 1, y)}


def zeros_of_a_level(r):
    group, x = np.repeat(np.arange(12), 8), np.tile([0.0, 1.0], 48)
    y = r.poisson(np.exp(1 + 0.5 * r.normal(size=12)[group]))
    return grouped(groups=12, family="poisson"), {"x": x, "group": group,
                                                  "y": np.where(x == 1, 0, y)}


def censored(r):
    x = np.tile([0.0, 1.0], 30)
    return survival(), {"x": x, "time": r.exponential(size=60) + 0.1, "died": 1 - x,
                        "other": r.normal(size=60)}


def zeros_separated(r):
    x = r.normal(size=200)
    return zeros(), {"x": x, "y": np.where(x > 0, r.poisson(20.0, 200) + 1, 0)}


def partition_twice(r):
    g = np.repeat(np.arange(12), 6)
    return two_groupings(groups=12), {"g": g, "h": 11 - g, "y": r.normal(size=12)[g] * 2
                                      + r.normal(size=72) + 5}


def rare(r):
    y = np.zeros(5000, int)
    y[[3, 70, 900, 4000]] = 1
    return logistic(), {"x": r.normal(300, 20, (5000, 1)), "y": y}


def nearly(r):
    x = r.normal(size=200)
    y = (x > 0).astype(int)
    y[np.argsort(np.abs(x))[10:14]] ^= 1
    return grouped(groups=20, family="bernoulli"), {"x": x, "group": np.tile(np.arange(20), 10),
                                                    "y": y}


def years(r):
    group, x = np.repeat(np.arange(20), 10), np.tile(np.arange(1990.0, 2000.0), 20)
    return along_years(groups=20), {"x": x, "group": group, "y": 0.3 * (x - 1995) + 100
                                    + 2 * r.normal(size=20)[group] + r.normal(size=200)}


LINES = [
    Line("probit, a column far from 0", DIVERGES, off_centre),
    Line("logistic, a column far from 0", DIVERGES, lambda r: off_centre(r, logistic)),
    Line("logistic, two columns together", DIVERGES, by_two_columns, quick=True),
    Line("softmax of 30 coefficients", DIVERGES, many_columns, quick=True),
    Line("ordered classes", DIVERGES, classes_in_order),
    Line("a player who never wins, of 50", DIVERGES, players, (ML, BY_EM)),
    Line("a player who never wins, of 8", DIVERGES, lambda r: players(r, 8), (BY_EM,), quick=True),
    Line("an item that all answer", DIVERGES, answers),
    Line("effects, and a level of zeros", DIVERGES, zeros_of_a_level),
    Line("an arm in which all are censored", DIVERGES, censored),
    Line("zeros that a column separates", DIVERGES, zeros_separated, (ML, BY_EM)),
    Line("Student's t of a uniform", LIMIT, lambda r: (student(), {"y": r.uniform(size=200)}),
         (ML, BY_EM)),
    Line("two groupings that are one", LEVEL, partition_twice),
    Line("as many groups as rows", LEVEL, lambda r: (along_years(groups=50), {
        "x": r.normal(size=50), "group": np.arange(50), "y": r.normal(3, 2, 50)})),
    Line("rare events", PROPER, rare, quick=True),
    Line("nearly separated", PROPER, nearly),
    Line("a level beside years", PROPER, years),
]


@pytest.mark.parametrize(("line", "engine"), [
    pytest.param(line, engine, id=f"{line.name}, {type(engine).__name__}",
                 marks=[] if line.quick else pytest.mark.slow)
    for line in LINES for engine in line.engines])
def test_whether_a_likelihood_has_a_maximum_is_said(line, engine):
    model, data = line.make(np.random.default_rng(7))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        fit = model.fit(data, engine)
    if line.right == PROPER:
        assert fit.converged
        assert not fit.warnings
    else:
        assert codes(fit) & set(line.right.split("|")), fit.status
        assert fit.converged == (line.right == LEVEL)


def separated_rows(order):
    """Of three procedures the third ends in 1 always."""
    ends = [(1, 1, None)] * 48 + [(1, 1, 1)] * 48 + [(0, 1, 1), (1, 0, 1), (1, 0, None), (0, 1, None)]
    rows = pd.DataFrame([(f"i{i}", p, own[p]) for p in range(3) for i, own in enumerate(ends)
                         if own[p] is not None], columns=["id", "p", "y"])
    rows = rows.assign(second=(rows["p"] == 1) * 1.0, third=(rows["p"] == 2) * 1.0)
    return rows.sample(frac=1, random_state=order)


@pytest.mark.parametrize("order", [0, pytest.param(1, marks=pytest.mark.slow),
                                   pytest.param(4, marks=pytest.mark.slow)])
def test_a_mixed_model_of_separated_rows_says_so_in_any_order(order):
    rows = separated_rows(order)
    with pytest.warns(probml.ConvergenceWarning, match="separation"):
        estimator = MixedModel({"id": ["1"]}, family="bernoulli").fit(rows[["id", "second", "third"]],
                                                               rows["y"].to_numpy())
    assert not estimator.converged_


def test_counts_narrower_than_poisson_ones_are_said_to_have_no_dispersion():
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 1))
    narrow, wide = random.binomial(6, 1 / (1 + np.exp(-x[:, 0]))), random.negative_binomial(2, 0.4, 200)
    with pytest.warns(probml.ConvergenceWarning, match="'concentration'.*Poisson"):
        estimator = GeneralizedLinearModel("negative binomial").fit(x, narrow)
    assert not estimator.converged_
    assert GeneralizedLinearModel("negative binomial").fit(x, wide).converged_


def test_newton_stops_where_rounding_alone_tells_steps_apart():
    iris = pd.read_csv(files("probml.data") / "iris.csv")
    with pytest.warns(probml.ConvergenceWarning, match="separation"):
        estimator = LogisticRegression(C=np.inf).fit(iris.drop(columns="Species"), iris["Species"])
    assert estimator.n_iter_ < 100  # of at most 10,000


@pytest.mark.parametrize("reml", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_mixed_model_of_as_many_groups_as_rows_says_that_spread_and_noise_are_not_told_apart(reml):
    random = np.random.default_rng(0)
    x = random.normal(size=60)
    table = pd.DataFrame({"x": x, "g": [f"g{i}" for i in range(60)]})
    estimator = MixedModel({"g": ["1"]}, reml=reml).fit(table, 1 + 2 * x + random.normal(size=60))
    assert "not-identified" in codes(estimator.fit_)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("n,d", [
    (9, 30), (15, 30), (50, 10), pytest.param(100, 120, marks=pytest.mark.slow)])
def test_columns_that_are_not_identified_are_reported_in_any_precision(n, d, double):
    random = np.random.default_rng(n)
    x, y = random.uniform(size=(n, d)), random.integers(0, 3, n).astype(float)
    doubled = np.column_stack([x, x[:, 0] + x[:, 1]])
    with jax.enable_x64(double), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole, collinear = (GeneralizedLinearModel().fit(columns, y) for columns in (x, doubled))
    assert ("not-identified" in codes(whole.fit_)) == (d >= n)
    assert "not-identified" in codes(collinear.fit_)
    # of many points the nearest to the start, which tells columns with the same rows no difference
    np.testing.assert_allclose(collinear.predict(doubled), whole.predict(x), atol=1e-3)


@pytest.mark.parametrize("noise", [lambda mean, scale: dist.Normal(mean, scale),
                                   lambda mean, scale: dist.StudentT(4.0, mean, scale)])
@pytest.mark.parametrize("engine", [probml.EM(), probml.MAP()])
def test_collinear_columns_under_flat_priors_are_reported_by_em_as_by_map(engine, noise):
    def regression(x, y=None):
        beta = sample("beta", dist.ImproperUniform(constraints.real_vector, (), (3,)))
        scale = sample("scale", dist.HalfNormal(10.0))
        with plate("n", len(x)):
            sample("y", noise(x @ beta, scale), obs=y)

    random = np.random.default_rng(3)
    x, y = random.normal(size=(40, 3)), random.normal(size=40)
    collinear = np.column_stack([x[:, :2], x[:, 0] - 2 * x[:, 1]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, double = (probml.model(regression)().fit({"x": columns, "y": y}, engine)
                         for columns in (x, collinear))
    assert "not-identified" not in codes(plain) and "not-identified" in codes(double)
