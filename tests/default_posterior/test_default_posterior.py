"""What nobody who names no engine is told in silence: the default answer has the posterior means and
standard deviations of a long run of NumPyro's NUTS, or says that it is not to be trusted.

run.py of this folder runs and counts all of them in float32; truths.py adds a case's truth."""

import functools
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import judge  # noqa: E402
import seventh_answers  # noqa: E402
import tabled_models  # noqa: E402

import run  # noqa: E402

TRUTHS = run.stored()
CASES = {name: case for name, case in tabled_models.every().items()
         if "mean" in TRUTHS.get(name, {}) and TRUTHS[name].get("r_hat", 1.0) <= 1.05
         and not case.hopeless}
HOPELESS = [name for name, case in tabled_models.every().items() if case.hopeless]
QUICK = ("users/kidscore", "users/normal_inverse_gamma", "users/logistic", "users/change_point",
         "users/ordered_mixture", "hierarchies/five_rows", "hierarchies/folded",
         "hierarchies/bradley_terry", "seventh/rain_in_a_full_gauge",
         "seventh/frogs_that_call_with_gaps", "pasted_bugs/mice",
         "eighth/bounds_that_depend_on_each_other", "eighth/arrhenius_in_si")
# wrong without a word, as run.py counts them: name → what is wrong; the aim is none
WRONG: dict[str, str] = {}


def marked(name):
    """The name, slow unless it is one of the quick ones, and expected to fail where it is known."""
    marks = [] if name in QUICK else [pytest.mark.slow]
    if name in WRONG:
        marks.append(pytest.mark.xfail(reason=WRONG[name], raises=AssertionError))
    return pytest.param(name, marks=marks)


@pytest.mark.one_in(10)
@pytest.mark.parametrize("name", [marked(name) for name in CASES])
def test_the_default_has_the_posterior_or_says_that_it_has_not(name):
    case = CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fit = case.build().fit(case.read(), seed=0)
        except Exception as error:
            assert judge.refused(error) == "refused"
            return
        found = judge.judge(fit, TRUTHS[name])
    assert found.verdict != "wrong", f"{found}: {fit.status}"


@pytest.mark.slow
@pytest.mark.parametrize("name", HOPELESS)
def test_the_default_warns_where_no_means_or_widths_could_be_right(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert judge.said(fitted(name))


ANSWERS = json.loads(seventh_answers.STORED.read_text())


@functools.cache
def fitted(name):
    case = tabled_models.every()[name]
    return case.build().fit(case.read(), seed=0)


@pytest.mark.parametrize("name", [name if "behind_a_hurdle" in name else
                                  pytest.param(name, marks=pytest.mark.slow) for name in ANSWERS])
def test_new_rows_are_answered_as_by_draws_of_nuts(name):
    question = seventh_answers.QUESTIONS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = question.ask(fitted(f"seventh/{question.model}"))
    want = np.asarray(ANSWERS[name])
    assert np.shape(found) == want.shape
    np.testing.assert_array_less(np.abs(found - want), question.close * np.maximum(1, np.abs(want)))


def moments(mean, sd):
    return {"a": judge.Moments(np.array([mean]), np.array([sd]), np.zeros(1), np.zeros(1))}


TRUTH = {"mean": {"a": 1.0}, "sd": {"a": 2.0}, "error": {"a": 0.0}, "sd_error": {"a": 0.0}}


@pytest.mark.parametrize("mean, sd, verdict", [
    (1.3, 2.2, "right"), (1.5, 2.0, "wrong"), (1.0, 2.5, "wrong"), (1.0, np.nan, "wrong")])
def test_a_mean_too_far_or_a_width_too_wide_is_wrong(mean, sd, verdict):
    assert judge.compared(moments(mean, sd), TRUTH, False).verdict == verdict
    assert judge.compared(moments(mean, sd), TRUTH, True).verdict == (
        "said" if verdict == "wrong" else verdict)


def test_monte_carlo_errors_are_allowed_for():
    few = {"a": judge.Moments(np.array([1.5]), np.array([2.0]), np.array([0.2]), np.zeros(1))}
    assert judge.compared(few, TRUTH, False).verdict == "right"
