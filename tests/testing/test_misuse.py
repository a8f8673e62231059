"""A slice of tests/testing/misuse_all.py: wrong kinds, shapes, sizes and values are answered in
words, and close nothing."""

import inspect
import os

import calls
import picture_calls
import pytest
import zoo_calls
from random_models import misuse

import probml.models
from probml.estimators.estimator import Estimator

FEW = ("save", "report", "answer", "Checkpoint", "load", "read_bif", "write_bif", "probml.model",
       "BayesianLinearRegression.as_data", "BayesianLinearRegression.predict",
       "BayesianLinearRegression.log_prob", "KernelDensity.score_samples", "KernelDensity.sample",
       "classical_scaling", "conditional_dependence", "edge_probabilities", "learn_pattern",
       "EM", "MAP", "NUTS", "SVI", "Laplace", "VB", "EmpiricalBayes", "stationary", "StickBreaking",
       "dirichlet_process", "structure_score", "member_of", "pattern_of", "MarkovChain", "GaussianChain", "KMedoids", "FuzzyCMeans",
       "a served row", "a cell of a served row", "filter.step", "a cell of filter.step")


@pytest.fixture(scope="module")
def every():
    return {**calls.calls(), **calls.estimator_calls()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FEW)
def test_what_is_misused_answers_in_words(name, every, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, arguments = every[name]
    assert list(misuse.misused(name, call, arguments)) == []


def test_every_estimator_is_misused():
    estimators = {name for name in probml.models._LATE if inspect.isclass(
        estimator := getattr(probml.models, name)) and issubclass(estimator, Estimator)}
    assert estimators == set(calls.estimators())


def test_every_public_name_is_misused(every):
    """What stands for itself: the kinds of an error, and what others are made by."""
    made = {"Calibration", "ConvergenceWarning", "DataError", "ReliabilityWarning", "Fit", "Model", "ModelError", "Refusal", "compare", "rows",
            "model", "load"}
    names = {*probml.__all__, *probml.models.__all__}
    assert names - made - set(every) == set(), "each needs a call in tests/testing/calls.py"
    verbs = {name for kind in (probml.Fit, probml.Model) for name in dir(kind)
             if not name.startswith("_") and inspect.isfunction(getattr(kind, name))}
    asked = {name.rpartition(".")[2] for name in calls.calls()}  # estimators have verbs of the same names
    inside = {"check_context", "check_inputs", "of", "read", "run"}
    assert verbs - asked - inside - {"summary"} == set(), (  # which takes nothing
        "each needs a call in tests/testing/calls.py")


def test_every_argument_is_misused():
    assert calls.short() == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_pictures_that_are_misused_answer_in_words():
    assert picture_calls.short() == {}
    assert [fault for name, (call, arguments) in picture_calls.drawn().items()
            for fault in misuse.misused(name, call, arguments)] == []


def test_every_argument_of_the_zoo_is_misused():
    assert zoo_calls.short() == {}
    for name, (_, settings) in zoo_calls.simulated().items():
        made = getattr(probml.models, name)
        assert set(made.defaults) - {"y"} <= set(settings), name


def test_a_share_of_misuse_is_the_same_for_one_seed():
    def tried(seed):
        given = []
        list(misuse.misused("call", lambda a: given.append(a), {"a": 1}, share=0.3, seed=seed))
        return list(map(repr, given))

    one = tried(0)
    assert 0 < len(one) < len(misuse.odd()) and len(one) == len(tried(0)) and one != tried(1)


def test_a_call_that_closes_a_stream_is_at_fault():
    def reads(path):
        with open(path):
            pass

    kept = os.dup(2)
    try:
        found = misuse.find_fault(lambda said: reads(**said), {"path": 2})
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    assert found == "the call has closed stderr"
