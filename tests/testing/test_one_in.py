"""A part of a long list of slow cases is run, and it hardly changes with the list."""

import pytest

from one_in import left_out


class Case:
    """A case of a test, as pytest collects it."""

    def __init__(self, name: str, **marks: int):
        self.nodeid, self.marks = f"test_x.py::{name}", marks

    def get_closest_marker(self, name: str):
        return getattr(pytest.mark, name)(self.marks[name]).mark if name in self.marks else None


def kept(*names, **marks):
    cases = [Case(f"test_a[{name}]", **marks) for name in names]
    return {case.nodeid for case in cases} - left_out(cases)


def test_one_in_so_many_slow_cases_is_run_and_at_least_one():
    assert len(kept(*range(20), slow=1, one_in=10)) == 2
    assert len(kept(*range(21), slow=1, one_in=10)) == 3
    assert len(kept("only", slow=1, one_in=10)) == 1


def test_quick_cases_and_tests_without_the_mark_are_all_run():
    assert len(kept(*range(20), one_in=10)) == len(kept(*range(20), slow=1)) == 20


def test_a_case_that_is_added_displaces_one_other_at_most():
    before = kept(*range(20), slow=1, one_in=5)
    for new in range(20, 30):
        assert len(before - kept(*range(20), new, slow=1, one_in=5)) <= 1
