"""Old names of the members of extensions: they work and warn, also where a user's class defines them."""

import dataclasses

import pytest

from probml import extend
from probml.extend import Capabilities, Engine, Known, Outcome, Plan, Problem, Quadrature, Status
from probml.language.former_members import rename_members

OLD = pytest.warns(DeprecationWarning, match="is now named")


def test_an_engine_with_old_names_is_asked_by_the_new_ones():
    with OLD:
        @dataclasses.dataclass(frozen=True)
        class Mine(Engine):
            def taken(self, data):
                return data, super().taken("theirs")

            def run(self, problem: Problem) -> Outcome:
                raise NotImplementedError

    with OLD:
        assert Mine().prepare_data("mine") == ("mine", "theirs")
    with OLD:
        assert Mine().manner(None) == ""  # as the engine of the library says
    assert Mine().describe_method(None) == ""


def test_a_class_derived_from_one_with_old_names_overrides_them_by_new_ones():
    with OLD:
        class Old(Quadrature):
            def claims(self, structure, group):
                return "old"

    class New(Old):
        def why_not(self, structure, group):
            return "new"

    assert (Old().why_not(None, None), New().why_not(None, None)) == ("old", "new")


def test_keywords_and_fields_with_old_names():
    with OLD:
        assert Capabilities(way=1) == Capabilities(incremental_update=1)
    with pytest.warns(DeprecationWarning, match="'rung' has no effect"):
        assert Capabilities(rung=3) == Capabilities()
    problem = Problem(None, None, posterior_points={"b": 1})
    with OLD:
        assert problem.seen == {"b": 1}
    with OLD:
        assert Problem(None, None, astray=True).mode_is_atypical
    with OLD:
        assert Known({}, {}, {"x": 1.0}).spread == {"x": 1.0}
    assert dataclasses.replace(problem, seed=2).posterior_points == {"b": 1}


def test_a_kind_that_derives_from_nothing_gets_new_names():
    class Kind:
        def claims(self, structure, group):
            return None

    with OLD:
        rename_members(Kind, {"claims": "why_not"})
    assert Kind().why_not(None, None) is None


def test_old_names_of_the_module_and_of_statuses():
    with OLD:
        assert extend.Turn is extend.StepResult
    with OLD:
        assert extend.read is extend.natural_parameters
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        extend.nothing  # noqa: B018
    assert Status.RUNAWAY is Status.DIVERGED and Status.DIVERGED.name == "DIVERGED"
    assert Plan.reach is Plan.group_scope  # of the class without a warning: tools list members
