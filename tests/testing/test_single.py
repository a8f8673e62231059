"""A slice of tests/testing/single.py: what is answered in float32 is what double answers, or says
that it is not."""

import jax.numpy as jnp
import pytest
import single

FEW = ("KernelDensity", "NaiveBayes", "BayesianLinearRegression", "Boosted", "EvidenceTree")
HARD = ("about a million", "seconds since 1970", "times a millionth", "clusters far apart")
CASES = single.cases()


@pytest.mark.parametrize("where", HARD)
@pytest.mark.parametrize("name", FEW)
def test_float32_answers_as_double_or_says_that_it_does_not(name, where):
    assert single.compared(CASES[name], single.WHERE[where](single.plain())) == ""


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


def test_every_face_and_function_is_asked():
    assert set(single.FACES) == set(single.faces())
    assert {*single.ZOO, *single.BEHIND} == set(single.functions())
    assert set(single.BEHIND.values()) <= set(single.FACES)


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
