"""The one search: what is higher wins and is recorded, what is not may be a finding."""

import jax.numpy as jnp
import numpy as np
import pytest

from probml.engines.engine import Outcome, Status
from probml.engines.findings import Code, Finding
from probml.engines.optimization.search import (
    Proposal,
    final_objective,
    improve,
    index_of_highest,
)


def at(value, status=Status.CONVERGED):
    return Outcome({"a": np.asarray(value)}, np.array([-1e3, value]), status, 1)


def proposed(*values, **settings):
    return Proposal("elsewhere", lambda _: [{"a": value} for value in values],
                    lambda point: at(point["a"]), **settings)


def test_the_highest_of_what_is_proposed_wins_and_is_recorded():
    found = improve(at(-5.0), [proposed(-7.0, -2.0, -3.0)])
    (won,) = found.findings
    assert final_objective(found) == -2.0 and won.code is Code.IMPROVED
    assert dict(won.numbers) == {"where": "elsewhere", "gain": 3.0}


@pytest.mark.parametrize("value, slack, wins", [(-5.0, 0.0, False), (-5.0 + 1e-8, 0.0, False),
                                                (-4.9, 0.0, True), (-4.9, 0.2, False)])
def test_only_what_is_higher_than_rounding_and_slack_wins(value, slack, wins):
    assert (final_objective(improve(at(-5.0), [proposed(value)], slack)) > -5.0) is wins


@pytest.mark.parametrize("value, best", [(-6.0, -5.0), (-4.0, -4.0)])
def test_a_comparison_of_two_optima_is_a_finding_of_the_higher_one(value, best):
    def compare(better, other):
        return Finding.of(Code.NOTE, text=f"{final_objective(better)} and {final_objective(other)}")

    found = improve(at(-5.0), [proposed(value, compare=compare)])
    assert final_objective(found) == best
    assert found.findings[-1] == compare(at(best), at(min(value, -5.0)))


def test_what_ends_at_no_optimum_and_what_collapsed_are_left():
    nothing = Proposal("nowhere", lambda _: [{}, {}], lambda _: None)
    fallen = Proposal("fallen", lambda _: [{}], lambda _: at(9.0, Status.COLLAPSED))
    found = improve(at(-5.0), [nothing, fallen])
    assert final_objective(found) == -5.0 and found.findings == ()


def test_a_proposal_is_made_again_while_it_gains():
    again = Proposal("a step up", lambda found: [{"a": min(final_objective(found) + 1.0, -1.0)}],
                     lambda point: at(point["a"]), rounds=10)
    assert final_objective(improve(at(-5.0), [again])) == -1.0


@pytest.mark.parametrize("values, allowed, slack, best", [
    ([1.0, 2.0, 3.0], [True, True, False], 0.0, 1), ([1.0, 1.05, 0.0], [False] + 2 * [True], 0.1, 0),
    ([np.nan, -np.inf, -3.0], 3 * [True], 0.0, 2), ([1.0, np.nan, np.inf], 3 * [True], 0.0, 0)])
def test_a_program_takes_the_highest_of_its_optima_by_the_same_rule(values, allowed, slack, best):
    assert int(index_of_highest(jnp.asarray(values), jnp.asarray(allowed), slack)) == best
