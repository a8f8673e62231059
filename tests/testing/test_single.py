"""A slice of tests/testing/single.py: what is answered in float32 is what double answers, or says
that it is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import single

from probml.models import hidden_markov

FEW = ("KernelDensity", "NaiveBayes", "BayesianLinearRegression", "Boosted", "EvidenceTree")
HARD = ("about a million", "seconds since 1970", "times a millionth", "clusters far apart")
CASES = single.cases()


@pytest.mark.parametrize("where", HARD)
@pytest.mark.parametrize("name", FEW)
def test_float32_answers_as_double_or_says_that_it_does_not(name, where):
    assert single.compared(CASES[name], single.WHERE[where](single.plain())) == ""


@pytest.mark.one_in(12)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_float32_is_told_wherever_it_fails(name):
    table = single.plain()
    wrong = {where: single.compared(CASES[name], moved(table), where == "as they are")
             for where, moved in single.WHERE.items()}
    assert {where: said for where, said in wrong.items() if said} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", single.LONG)
def test_float32_follows_chains_of_100_000_steps(name):
    assert single.compared(single.LONG[name], single.plain()) == ""


def test_every_estimator_and_function_is_asked():
    assert set(single.ESTIMATORS) == set(single.estimators())
    assert {*single.ZOO, *single.BEHIND} == set(single.functions())
    assert set(single.BEHIND.values()) <= set(single.ESTIMATORS)


def test_a_wrong_answer_without_a_word_is_found():
    def answers(table):
        y = jnp.asarray(table.y)
        return {"": "", "predict": (y + 1e6) - 1e6}

    assert "times what is allowed" in single.compared(answers, single.plain())


def test_a_wrong_answer_that_says_so_is_none():
    def answers(table):
        y = jnp.asarray(table.y)
        said = "in few digits" if y.dtype == jnp.float32 else ""  # other numbers are no other words
        return {"": said, "predict": (y + 1e6) - 1e6}

    assert single.compared(answers, single.plain()) == ""


@pytest.mark.slow
@pytest.mark.parametrize("emission", ["normal", "poisson"])
def test_float32_decodes_chains_of_100_000_steps_as_double(emission):
    random, steps = np.random.default_rng(1), 100_000
    states = np.cumsum(random.random(steps) < 0.05) % 3
    own = ({"mean": np.arange(3.0)[:, None], "scale": np.ones((3, 1))} if emission == "normal"
           else {"rate": np.array([[1.0], [2.0], [4.0]])})
    y = states + random.normal(size=steps) if emission == "normal" else random.poisson(2.0**states)
    point = {"initial": np.ones(3) / 3, "transition": 0.9 * np.eye(3) + 0.1 / 3, **own}

    def decoded(double):
        with jax.enable_x64(double):
            fit = hidden_markov(k=3, emission=emission).at(point)
            return fit.decode({"y": y[None, :, None]})["z"], fit.predict_proba({"y": y[None, :, None]}, "z")

    (path, states), (right, sure) = decoded(False), decoded(True)
    np.testing.assert_array_equal(path, right)
    np.testing.assert_allclose(states, sure, atol=1e-3)
