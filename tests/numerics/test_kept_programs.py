"""Fits and questions by programs that are found on disk: what another process compiled answers
alike, and nothing is traced. The rest of the suite has JAX's own cache, which turns ours off."""

import jax
import networkx as nx
import numpy as np
import pytest

import cases
import probml.models
from compilations import counted
from probml.language.fingerprint import fingerprint
from probml.models import GaussianMixture, HiddenMarkov, LogisticRegression, bayesian_network
from probml.numerics import identity
from probml.numerics.kept import disk, programs

X = np.random.default_rng(0).normal(size=(40, 2)) + 4.0 * np.arange(40)[:, None] // 20
COUNTS = np.random.default_rng(1).poisson(np.repeat([2, 9, 2], 10))


def coin():
    fit = cases.coin(a=2.0, b=3.0).fit({"toss": [1, 0, 1, 0, 0]})
    return fit.params["heads"], fit.log_evidence, fit.predict_proba({"toss": [1, 0]}, "toss")


def network():
    fit = bayesian_network(nx.DiGraph([("a", "b")]), states={"a": 2, "b": 2}).fit(
        {"a": [0, 1, 1, 0], "b": [0, 1, 0, 0]}
    )
    return fit.predict_proba({"b": [1]}, "a")


def mixture():
    estimator = GaussianMixture(2, n_init=2).fit(X)
    return estimator.means_, estimator.predict_proba(X), estimator.score_samples(X)


JOBS = {
    "coin": coin,
    "network": network,
    "mixture": mixture,
    "logistic regression": lambda: LogisticRegression().fit(X, np.arange(40) // 20).predict_proba(X),
    "hidden Markov model": lambda: HiddenMarkov(2, emission="poisson", n_init=2).fit(COUNTS).predict(COUNTS),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Our folder in the place of JAX's cache: what comes from there cannot be kept."""
    found, before = disk.Folder(tmp_path_factory.mktemp("kept") / "programs"), disk.folder
    own = jax.config.jax_enable_compilation_cache
    disk.folder = lambda: found
    jax.config.update("jax_enable_compilation_cache", False)
    jax.clear_caches()
    yield found
    disk.folder = before
    jax.config.update("jax_enable_compilation_cache", own)


def forget() -> None:
    """As a new process begins: no program is held."""
    shelves = list(programs._CACHES)
    assert len(shelves) > 20 and all(isinstance(shelf, programs.ProgramCache) for shelf in shelves)
    for shelf in shelves:
        shelf._programs.clear()


@pytest.mark.parametrize("name", JOBS)
def test_what_is_found_on_disk_answers_to_the_last_digit_and_is_not_traced(name, folder):
    forget()
    first = JOBS[name]()
    forget()
    with counted() as made:
        second = JOBS[name]()
    assert made == []
    jax.tree.map(np.testing.assert_array_equal, first, second)


@pytest.mark.parametrize(("mappings", "grown", "since", "goes"), [
    (programs.MIN_NEW_MAPPINGS + 10, 1001, 0, True), (programs.MIN_NEW_MAPPINGS + 10, 999, 0, False),
    (programs.MIN_NEW_MAPPINGS - 10, 10**6, 0, False), (programs.MAX_MAPPINGS, 0, 0, True),
    (10, 1001, programs.MAX_PROGRAMS, True), (10, 999, programs.MAX_PROGRAMS, False)])
def test_programs_are_let_go_where_they_fill_memory_or_mappings(mappings, grown, since, goes, monkeypatch):
    """Whoever holds a hundred gigabytes of rows, and a program, keeps his program; what NumPy runs has no mappings."""
    cleared, shelves = [], []
    monkeypatch.setattr(programs, "MAX_GROWTH", 1000)
    monkeypatch.setattr(programs, "_AFTER_RELEASE", [programs.MemoryUse(0, 0)])
    monkeypatch.setattr(programs, "_CACHES", shelves)
    monkeypatch.setattr(programs, "_NEW_PROGRAMS", [programs.PROGRAMS_BETWEEN_CHECKS])
    monkeypatch.setattr(programs, "_PROGRAMS_SINCE_RELEASE", [since])
    monkeypatch.setattr(programs, "mappings", lambda: mappings)
    monkeypatch.setattr(programs, "resident", lambda: grown)
    monkeypatch.setattr(programs.jax, "clear_caches", lambda: cleared.append(True))
    assert programs.release_if_many() is goes and len(cleared) == goes
    monkeypatch.setattr(programs, "_NEW_PROGRAMS", [programs.PROGRAMS_BETWEEN_CHECKS])
    assert programs.release_if_many() is (mappings >= programs.MAX_MAPPINGS)  # what stays is no reason to let go again


def test_programs_of_every_function_of_the_library_can_be_kept():
    """What it reads, and what it declares, is told by value or found again by its name."""
    functions = [value for name in probml.models.__all__
                 if hasattr(value := getattr(probml.models, name), "identified_by")]
    assert len(functions) > 30
    for each in functions:
        declared = [each.identified_by] if each.identified_by else []
        assert identity.digest(*map(fingerprint, [each.function, *declared])), each.__name__


def test_programs_of_one_text_that_leave_arguments_of_other_shapes_unused_are_several(folder):
    """Of a function without a name on disk the key is its text, in which an argument that it does
    not use is left out."""
    def add(used, unused):
        return used + 1.0

    for unused in (np.zeros(3), np.zeros((2, 5)), np.zeros(4, int)):
        found = programs.ProgramCache(add, {}).find((X, unused), None)
        np.testing.assert_array_equal(found(X, unused), X + 1.0)
