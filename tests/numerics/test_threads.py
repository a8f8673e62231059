"""Threads of linear algebra: one for small matrices, as many as before for all others and after."""

import threading

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import sample

import probml
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
    with threads.one_thread(threads.MIN_COLUMNS_FOR_THREADS + 1):
        assert counts() == several


@pytest.mark.parametrize("engine", [probml.MAP(), probml.Laplace()])
def test_a_fit_runs_with_one_thread_unless_it_factorises_large_matrices(several, engine, monkeypatch):
    """Whatever the engine: here a joint density of 40 numbers, whose covariance the user makes."""
    seen, own = [], type(engine).run
    monkeypatch.setattr(type(engine), "run", lambda self, problem: (
        seen.append((problem.plan.largest_matrix, counts())), own(self, problem))[1])

    @probml.model
    def process(x):
        length = sample("length", dist.LogNormal(0.0, 1.0))
        gap = (x[:, None] - x) / length
        sample("y", dist.MultivariateNormal(0.0, jnp.exp(-gap**2) + jnp.eye(len(x))))

    x = np.linspace(0, 5, 40)
    data = {"x": x, "y": np.sin(x)}
    process().fit(data, engine)
    assert seen[0] == (40, {1}) and counts() == several


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
