"""What a newcomer with the README alone typed on 1 December, and the sentence that says what to type instead."""

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import plate, sample

import probml
from probml.engines.findings import Code
from probml.models import HiddenMarkov


@probml.model
def schools_apart(school, schools: int):
    with plate("schools", schools):
        a = sample("a", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("score", dist.Normal(a[school], 5.0))


@probml.model
def observed_by_hand(score):
    mu = sample("mu", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("score", dist.Normal(mu, 1.0), obs=score)


@probml.model
def without_a_call():
    mu = sample("mu", dist.Normal(0.0, 10.0))
    with probml.rows:
        sample("y", dist.Normal(mu, 1.0))


@probml.model
def with_a_default(x=None):
    b = sample("b", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("y", dist.Normal(b * x, 1.0))


@probml.model
def a_class():
    b = sample("b", dist.Normal)
    with probml.rows():
        sample("y", dist.Normal(b, 1.0))


@probml.model
def negative_width():
    b = sample("b", dist.Normal(0.0, -10.0))
    with probml.rows():
        sample("y", dist.Normal(b, 1.0))


@probml.model
def line(x):
    b = sample("b", dist.Normal(0.0, 5.0))
    with probml.rows():
        sample("y", dist.Normal(b * x, 5.0))


@probml.model
def real_width():
    mu, s = sample("mu", dist.Normal(0.0, 10.0)), sample("s", dist.Normal(0.0, 10.0))
    with probml.rows():
        sample("y", dist.Normal(mu, s))


Y = {"y": np.array([1.0, 2.0, 3.0, 4.5])}
XY = {"x": np.arange(4.0), **Y}
SCORES = pd.DataFrame({"school": ["A", "B"] * 5, "score": np.arange(10.0)})


@pytest.mark.parametrize(("typed", "words"), [
    (lambda: schools_apart().fit(SCORES), r"schools: int, .*schools_apart\(schools=\.\.\.\)"),
    (lambda: observed_by_hand().fit({"score": Y["y"]}), "Remove obs=score and the argument 'score'"),
    (lambda: without_a_call().fit(Y), r"`with probml\.rows\(\):`"),
    (lambda: with_a_default().fit(XY), "write the argument without a default"),
    (lambda: a_class().fit(Y), "The name of the site comes first"),
    (lambda: negative_width().fit(Y), r"argument scale = -10\.0, which must be positive"),
    (lambda: line().fit(XY, "nuts"), r"such as .*probml\.NUTS\(\), or None, without quotes"),
    (lambda: line(pd.DataFrame(XY)), r"A table is data: give it to fit"),
    (lambda: line().fit(XY).report("page.pdf"), r"Name it 'page\.html'"),
    (lambda: HiddenMarkov(2).fit(np.arange(10.0)).forecast(3), r"as in forecast\(X, steps\)"),
], ids=["size", "obs", "rows", "default", "class", "width", "engine", "table", "report", "forecast"])
def test_the_error_says_what_to_type(typed, words):
    with pytest.raises(ValueError, match=words):
        typed()


def test_few_draws_are_said():
    for draws in (20, 300):
        found = {finding.code for finding in line().fit(XY, probml.NUTS(draws=draws, warmup=300)).warnings}
        assert (Code.FEW_DRAWS in found) == (draws == 20) and Code.DRAWS_TAIL not in found


def test_a_prior_beyond_the_support_is_said():
    (finding,) = [f for f in real_width().fit(Y, probml.MAP()).warnings if f.code is Code.PRIOR_BEYOND]
    assert finding.parameter == "s" and "the scale of 'y'" in str(finding)
    assert not any(f.code is Code.PRIOR_BEYOND for f in line().fit(XY).findings)


def test_a_hidden_markov_model_with_gaps_keeps_its_standard_errors():
    """Entries of its matrix at 0 left the other numbers without any."""
    states = np.repeat([0, 1, 0, 2], 50)
    series = np.random.default_rng(3).normal(np.array([0, 4, 9])[states], 1)
    series[10:14] = np.nan
    table = HiddenMarkov(3).fit(series).fit_.summary()
    inner = (table["value"] > 1e-6) & (table["value"] < 1 - 1e-6)
    assert np.isfinite(table["sd"][inner]).all() and inner.sum() >= 10
