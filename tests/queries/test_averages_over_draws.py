"""Answers that are averaged over draws of the posterior, against the closed form: as exact for rows
of many columns, of whose densities few draws make most."""

import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample
from scipy import stats

import probml

COLUMNS = 9
RANDOM = np.random.default_rng(9)
X, NEW = RANDOM.normal(size=(7, COLUMNS)), 2 * RANDOM.normal(size=(3, COLUMNS))
VARIANCE = 1 / (1 / 4 + 4 * len(X))
MEAN = 2 * VARIANCE * 2 * X.sum(0)  # of a column of a new row
PREDICTIVE = stats.norm(MEAN, np.sqrt(1 + 4 * VARIANCE))


@probml.model
def columns(d: int):
    mean = sample("mean", dist.Normal(0.0, 2.0).expand([d]).to_event(1))
    with probml.rows():
        sample("x", dist.Normal(2 * mean, 1.0).to_event(1))


@pytest.mark.parametrize("engine", [probml.Exact(), probml.Laplace()])
def test_a_row_of_many_columns_has_its_density(engine):
    fit = columns(d=COLUMNS).fit({"x": X}, engine)
    logs = fit.log_prob({"x": NEW})  # by 256 draws 0.2 to 0.3 off
    np.testing.assert_allclose(logs, PREDICTIVE.logpdf(NEW).sum(1), atol=0.15)
    many = np.concatenate([X, NEW, np.repeat(X, 200, 0)])  # few of them once more
    np.testing.assert_allclose(fit.log_prob({"x": many})[7:10], logs, rtol=1e-12)


def test_a_row_too_far_away_for_draws_is_said():
    fit = columns(d=COLUMNS).fit({"x": X}, probml.Exact())
    with pytest.warns(RuntimeWarning, match="answers for 1 of 2 rows are inaccurate averages over draws"):
        fit.log_prob({"x": np.stack([X[0], X[0] + 8.0])})


@probml.model
def line(x):
    b = sample("b", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with probml.rows():
        sample("y", dist.Bernoulli(logits=x @ b))


def test_a_compiled_question_gives_the_answer_and_not_its_error():
    x = RANDOM.normal(size=(40, 2))
    fit = line().fit({"x": x, "y": (x[:, 0] > 0).astype(int)}, probml.Laplace())
    ask = fit.compiled("predict_proba", {"x": x[:1]}, "y")
    np.testing.assert_allclose(ask({"x": x[0]}), fit.predict_proba({"x": x[:1]}, "y")[0], rtol=1e-5)
