"""Long work is told to a function of the user's, step by step, with what is left of it."""

import re
import time

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import plate, sample

import probml
from probml.engines import progress
from probml.engines.progress import Progress, StepResult, iterate
from probml.errors import ModelError


@probml.model
def counts():
    weights = sample("weights", dist.Dirichlet(jnp.ones(2)))
    with plate("component", 2):
        rate = sample("rate", dist.Gamma(2.0, 0.5))
    with probml.rows():
        z = sample("z", dist.Categorical(weights))
        sample("x", dist.Poisson(rate[z]))


def parts():
    for seed in range(3):
        yield {"x": np.random.default_rng(seed).poisson([2.0, 9.0], (20, 2)).reshape(-1)}


@pytest.mark.filterwarnings("ignore:EM of model:probml.ConvergenceWarning")
def test_fits_and_answers_say_how_far_they_are():
    told, engine = [], probml.EM(max_iterations=6, tolerance=0.0, restarts=1, accelerate=False)
    with probml.watch(told.append, seconds=0):
        fit = counts().fit(parts, engine)
    assert [step.done for step in told if step.title == "first look"] == [40, 80, 120]
    last = [step for step in told if step.title == "EM"][-1]
    assert 5 <= last.done <= last.total == 6 and 0.0 <= last.left < last.seconds < 600 and last.rows_per_second > 0
    assert last.objective == pytest.approx(fit.history[-1], rel=1e-6)
    assert str(last).startswith(f"EM: {last.done} of 6, objective -") and "rows a second" in str(last)
    before = len(told)
    with probml.watch(told.append, seconds=0):
        fit.answer(parts, ask="log_prob")
    assert [step.done for step in told[before:]] == [40, 80, 120] and told[-1].total is None

    class Enough(Exception):
        pass

    def stop(step):
        raise Enough

    with pytest.raises(Enough), probml.watch(stop):
        counts().fit(parts, engine)
    counts().fit(parts, engine)
    assert len(told) == before + 3  # nobody watches any more


def test_seconds_lie_between_two_calls_and_the_last_step_is_told():
    often, seldom = [], []
    with probml.watch(often.append, 0), probml.watch(seldom.append, 1000):
        for title in ("one", "two"):
            with Progress(title, 4, False) as bar:
                for _ in range(4):
                    bar.advance(1, -1.0)
    assert [step.done for step in often] == [1, 2, 3, 4] * 2
    assert [(step.title, step.done) for step in seldom] == [("one", 1), ("one", 4), ("two", 4)]


def test_what_cannot_be_called_is_refused():
    with pytest.raises(ModelError, match=r"watch\('log'\): expected a function that takes one argument"), probml.watch("log"):
        pass
    with pytest.raises(ModelError, match=r"watch\(seconds=-1\)"), probml.watch(print, -1):
        pass


def test_a_long_run_that_nobody_looks_on_writes_a_line_of_what_is_done_and_how_long_it_may_take(
        monkeypatch, capsys):
    monkeypatch.setattr(progress, "DELAY", 0.05)
    with Progress("fit of 'm'", None, False), Progress("EM", 40, False) as bar:
        iterate(bar, 40, lambda done: (time.sleep(0.005), StepResult(1, -3.0))[1])
    said = capsys.readouterr().err
    assert re.search(r"fit of 'm', EM: \d+ of at most 40 iterations, objective -3; .*at most about "
                     r"\d+ s more", said)
    with Progress("fit of 'm'", None, False):
        pass
    assert not capsys.readouterr().err
