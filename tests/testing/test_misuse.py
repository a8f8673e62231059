"""A slice of tests/testing/misuse_all.py: wrong kinds, shapes, sizes and values are answered in
words, and close nothing."""

import os

import calls
import pytest

from probml.testing import misuse

FEW = ("save", "report", "answer", "Checkpoint", "load", "read_bif", "write_bif", "probml.model",
       "BayesianLinearRegression.as_data", "BayesianLinearRegression.predict",
       "BayesianLinearRegression.log_prob", "KernelDensity.score_samples", "KernelDensity.sample")


@pytest.fixture(scope="module")
def every():
    return {**calls.calls(), **calls.face_calls()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FEW)
def test_what_is_misused_answers_in_words(name, every, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, arguments = every[name]
    assert list(misuse.misused(name, call, arguments)) == []


def test_a_call_that_closes_a_stream_is_at_fault():
    def reads(path):
        with open(path):
            pass

    kept = os.dup(2)
    try:
        found = misuse.judged(lambda said: reads(**said), {"path": 2})
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    assert found == "the call has closed stderr"
