"""Every engine keeps to what an engine is, and one loop serves them all."""

import threading
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

import probml
from probml.dataset.read import read
from probml.engines import ladder
from probml.engines.engine import Engine, Status, checked, problem_of
from probml.engines.progress import Progress, StepResult, in_threads, iterate
from probml.models import gaussian_mixture

VALUES = [*ladder.SELECTION_ORDER, *ladder.ON_REQUEST, probml.EmpiricalBayes(("scale",)),
          probml.EM(restarts=3, prior=False), probml.Laplace(over=("a",))]


@pytest.mark.parametrize("engine", VALUES, ids=repr)
def test_an_engine_is_a_frozen_value_that_is_known_by_its_settings(engine):
    assert checked(engine) is engine
    again = type(engine)(**{each.name: getattr(engine, each.name) for each in fields(engine)})
    assert engine == again and hash(engine) == hash(again)
    with pytest.raises(FrozenInstanceError):
        setattr(engine, fields(engine)[0].name if fields(engine) else "any", None)


@pytest.mark.parametrize("engine", VALUES, ids=repr)
def test_an_engine_is_read_again_from_what_a_file_says_of_it(engine):
    assert ladder.parse_engine(repr(engine)) == engine


@pytest.mark.parametrize("text", ["known", "Mine(steps=3)", "EM(restarts=print())", "MAP(", "EM",
                                  "MAP(optimizer=GradientTransformation())", "os.system('ls')"])
def test_what_is_no_engine_of_ours_is_not_read_from_a_file(text):
    with pytest.raises(probml.ModelError, match="Give an engine for this model"):
        ladder.parse_engine(text)


def test_the_ladder_is_climbed_from_exact_to_samples():
    assert [type(engine).__name__ for engine in ladder.SELECTION_ORDER] == [
        "Exact", "EM", "Laplace", "MAP", "NUTS"]
    assert ladder.SELECTION_ORDER[-1].target_accept == 0.9  # nobody asked for it: the more careful steps
    assert [engine.capabilities.finds for engine in ladder.SELECTION_ORDER] == ["posterior", "point", "posterior",
                                                          "point", "posterior"]


def test_a_class_that_does_not_run_is_no_engine():
    class Idle(Engine):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Idle()


def test_the_loop_ends_at_its_limit_or_where_a_turn_says_how():
    asked = []

    def turn(done, end=None):
        asked.append(done)
        return StepResult(4, float(done), Status.STALLED if done == end else Status.RUNNING)

    with Progress("test", 10, False) as bar:
        assert iterate(bar, 10, turn) is Status.MAX_ITERATIONS
    assert asked == [0, 4, 8] and bar.count == 12
    with Progress("test", 10, False) as bar:
        assert iterate(bar, 100, lambda done: turn(done, end=8), lanes=2) is Status.STALLED
    assert bar.count == 24
    with Progress("test", 3, False) as bar:  # a turn that makes no iteration ends all the same
        assert iterate(bar, 3, lambda done: StepResult(0, 0.0)) is Status.MAX_ITERATIONS


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_where_one_of_several_threads_is_interrupted_the_others_end_after_their_turn(error):
    began, turns = threading.Barrier(2, timeout=10), []

    def work(part):
        def turn(done):
            if done == 0 and part < 2:
                began.wait()
            if part == 0:
                raise error
            turns.append(part)
            bar.stopped.wait(10)
            return StepResult(1, 0.0)

        return iterate(bar, 1000, turn)

    with Progress("test", 1000, False) as bar:
        with pytest.raises(error):
            in_threads(bar, work, range(6), 2)
    assert turns.count(1) == 1 and len(turns) <= 2


def test_threads_answer_in_order():
    with Progress("test", None, False) as bar:
        assert in_threads(bar, lambda part: part * part, range(5), 2) == [0, 1, 4, 9, 16]


OWN = {probml.EM: {"grid", "narrowed", "starts"}, probml.VB: {"grid", "narrowed", "starts"},
       probml.MAP: {"maximize_posterior"}, probml.SVI: {"optimizer_or_adam"},
       probml.EmpiricalBayes: {"names"}}  # methods of an engine that its own room calls


@pytest.mark.parametrize("engine", ladder.KINDS, ids=lambda engine: engine.__name__)
def test_what_an_engine_defines_is_asked_of_every_engine(engine):
    """A method that was renamed in one class alone would be called by nobody."""
    methods = {name for name, own in vars(engine).items()
               if not name.startswith("_") and (callable(own) or isinstance(own, property))}
    assert methods - set(dir(Engine)) == OWN.get(engine, set())


def test_every_engine_is_tried_or_offered():
    """One that is in KINDS alone would be missing in `explain` and among what a refusal offers."""
    offered = {type(engine) for engine in (*ladder.SELECTION_ORDER, *ladder.ON_REQUEST)}
    assert {*ladder.KINDS} - {probml.EmpiricalBayes} == offered, "add it to ON_REQUEST"


def test_em_runs_its_restarts_side_by_side():
    x = np.random.default_rng(0).normal(size=(40, 1))
    data = read(gaussian_mixture(k=2, d=1), {"x": x})
    for restarts in (1, 7):
        engine = probml.EM(restarts=restarts)
        assert engine.runs(problem_of(engine, data)) == restarts
