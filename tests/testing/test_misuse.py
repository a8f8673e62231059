"""A slice of tests/testing/misuse_all.py: wrong kinds, shapes, sizes and values are answered in
words, and close nothing."""

import inspect
import os

import calls
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import picture_calls
import pytest
import zoo_calls
from numpyro import factor, sample
from random_models import misuse

import probml.models
from probml.estimators.estimator import Estimator
from probml.estimators.rules import rules

FEW = ("save", "report", "answer", "Checkpoint", "load", "read_bif", "write_bif", "probml.model",
       "BayesianLinearRegression.as_data", "BayesianLinearRegression.predict",
       "BayesianLinearRegression.log_prob", "KernelDensity.score_samples", "KernelDensity.sample",
       "classical_scaling", "conditional_dependence", "edge_probabilities", "learn_pattern",
       "EM", "MAP", "NUTS", "SVI", "Laplace", "VB", "EmpiricalBayes", "stationary", "StickBreaking",
       "dirichlet_process", "structure_score", "member_of", "pattern_of", "MarkovChain", "GaussianChain", "KMedoids", "FuzzyCMeans",
       "a served row", "a cell of a served row", "filter.step", "a cell of filter.step")


# found by chance (`make misuse`): call, argument, value
FOUND = [
    *((name, own, "10**18") for name in ("SupportVectorMachine", "SupportVectorRegression")
      for own in ("degree", "max_iter")), ("LinearSVM", "max_iter", "10**18"),
    ("screen", "X", "ragged"), ("screen", "y", "ragged"), ("how_many", "sizes", "an inf array"),
    ("ParzenClassifier.score", "X", "huge array"), ("Boosted", "likelihood", "int"),
    ("LeastSquaresClassifier.as_data", "y", "[None]"), ("softmax_regression", "states", "0"),
    ("MixtureDiscriminant", "n_components", "10**18"),
    *((name, "noise", "1e300") for name in ("BayesianLinearRegression", "SmoothingSpline")),
]


@pytest.fixture(scope="module")
def every():
    return {**calls.calls(), **calls.estimator_calls()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FEW)
def test_what_is_misused_answers_in_words(name, every, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, arguments = every[name]
    assert list(misuse.misused(name, call, arguments)) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "argument", "given"), FOUND)
def test_what_was_found_by_chance_answers_in_words(name, argument, given, every):
    call, arguments = every[name]
    assert misuse.find_fault(lambda said: call(**said),
                             {**arguments, argument: misuse.odd()[given]}) is None


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


@pytest.mark.parametrize("name", sorted(calls.estimators()))
def test_verbs_take_no_columns_that_fit_does_not_take(name):
    """A verb that an estimator inherits had an offset that it ignored, or handed on to what has
    none."""
    make, table, y = calls.estimators()[name]
    learnt = inspect.signature(make().fit).parameters
    for verb, arguments in calls.verbs(make(), table, y).items():
        assert {"offset", "trials", "event"} & set(arguments) <= set(learnt), verb


@pytest.mark.parametrize("name", sorted(zoo_calls.simulated()))
def test_complex_settings_are_refused(name):
    """Their imaginary parts were dropped."""
    call, settings = zoo_calls.simulated()[name]
    for own in (own for own, usual in settings.items() if isinstance(usual, float)):
        assert misuse.find_fault(lambda said: call(**said), {**settings, own: 1j}) is None, own


@pytest.mark.parametrize("argument", [1j, jnp.full(2, 1j)], ids=["number", "array"])
@pytest.mark.parametrize("place", ["loc", "scale", "weight"])
def test_complex_arguments_of_distributions_are_refused(argument, place):
    @probml.model
    def own():
        here = jnp.sum(argument)
        sample("a", dist.Normal(here if place == "loc" else 0.0, here if place == "scale" else 1.0))
        with probml.rows():
            factor("w", here if place == "weight" else 0.0)
            sample("y", dist.Normal(0.0, 1.0))

    with pytest.raises(probml.ModelError, match="complex, expected real numbers"):
        own().simulate(2)


@pytest.mark.parametrize("name", ["LeastSquaresClassifier", "LogisticRegression"])
@pytest.mark.parametrize("label", [None, "unknown", 7, 0.5, np.nan], ids=str)
def test_labels_that_were_not_fitted_are_refused(name, label):
    make, X, y = calls.estimators()[name]
    fitted, labels = make().fit(X, y), np.array([*y[:-1].tolist(), label], object)
    with pytest.raises(probml.DataError, match=f"in row {len(y) - 1}, which is not one"):
        (fitted.as_data if name == "LeastSquaresClassifier" else fitted.residuals)(X, labels)


@pytest.mark.parametrize("name", ["GeneralizedLinearModel", "RobustRegression",
                                  "BayesianLinearRegression", "SmoothingSpline"])
@pytest.mark.parametrize("verb", ["residuals", "row_weights", "score", "log_prob"])
def test_targets_of_two_columns_are_refused(name, verb, every):
    call, arguments = every.get(f"{name}.{verb}", (None, None))
    if call is not None:
        assert misuse.find_fault(lambda said: call(**said),
                                 {**arguments, "y": np.ones((6, 2))}) is None


@pytest.mark.parametrize("likelihood", [int, lambda f: 1 / 0, lambda f: f.item()])
def test_a_likelihood_that_fails_is_told_in_words(likelihood):
    with pytest.raises(probml.ModelError, match="the function likelihood= failed"):
        probml.models.Boosted(likelihood, n_estimators=2).fit(calls.X, calls.Y)


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


def test_repetitions_are_as_few_as_are_made_one_after_another():
    for name in calls.estimators():
        own = rules(getattr(probml.models, name))
        assert not any(own[each][1](10**18) for each in ("n_init", "n_starts") if each in own), name
