"""Threads of linear algebra: one for small matrices, as many as before for all others and after."""

import threading

import pytest

from probml.numerics.process import threads


def counts() -> set[int]:
    return {each["num_threads"] for each in threads._libraries().select(user_api="blas").info()}


@pytest.fixture
def several():
    """As many threads as there are; one core has but one."""
    found = counts()
    if found == {1}:
        pytest.skip("linear algebra has one thread here in any case")
    return found


def test_small_matrices_have_one_thread_and_large_ones_all(several):
    with threads.one_thread(4):
        assert counts() == {1}
        with threads.one_thread(4):
            pass
        assert counts() == {1}
    assert counts() == several
    with threads.one_thread(threads.SMALL + 1):
        assert counts() == several


def test_what_is_small_is_for_the_caller_to_say(several):
    with threads.one_thread(200, small=512):
        assert counts() == {1}
    with threads.one_thread(513, small=512):
        assert counts() == several


def test_after_an_error_there_are_as_many_as_before(several):
    with pytest.raises(ValueError), threads.one_thread(4):
        raise ValueError
    assert counts() == several


def test_who_leaves_first_does_not_take_it_from_those_inside(several):
    inside, leave = threading.Event(), threading.Event()

    def first():
        with threads.one_thread(4):
            inside.set()
            leave.wait(10)

    other = threading.Thread(target=first)
    other.start()
    assert inside.wait(10)
    with threads.one_thread(4):
        leave.set()
        other.join()
        assert counts() == {1}
    assert counts() == several
