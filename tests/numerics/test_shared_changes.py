"""Changes of the whole process last while somebody of ours is inside: here Python's collector."""

import gc
import subprocess
import sys
import threading
from contextvars import ContextVar
from pathlib import Path

import numpy as np
import pytest

import probml
from probml.numerics.compiling import jit
from probml.numerics.process.shared_changes import assigned, uncollected


@pytest.fixture
def off():
    gc.disable()
    yield
    gc.enable()


def traced(seen):
    def function(x):
        seen.append(gc.isenabled())
        return x + 1.0

    return function


def test_the_collector_is_off_in_a_trace_and_on_again_after_it():
    seen = []
    assert gc.isenabled() and jit(traced(seen))(np.ones(3)).sum() == 6.0
    assert seen == [False] and gc.isenabled()


def test_it_is_on_again_after_an_error():
    with pytest.raises(ZeroDivisionError), uncollected():
        assert not gc.isenabled() and 1 / 0
    assert gc.isenabled()


def test_the_last_thread_to_leave_turns_it_on_again():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with uncollected():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait()
    with uncollected():
        pass
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_what_the_user_turned_off_stays_off(off):
    with uncollected():
        pass
    jit(traced([]))(np.ones(3))
    assert not gc.isenabled()


def test_what_an_import_creates_is_old_to_the_collector():
    """Unless something is frozen before, as by Python 3.12 when it starts."""
    code = ("import gc; before = gc.get_freeze_count(); import probml; probml.EM; "
            "young = sum(gc.get_count()[1:]); frozen = gc.get_freeze_count(); "
            "print(young if not before else 0, frozen - before, gc.isenabled())")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["0", "0", "True"]


VARIABLE = ContextVar("variable", default=0)


def test_a_context_variable_has_its_value_within_and_the_one_before_after_an_error():
    with pytest.raises(ZeroDivisionError), assigned(VARIABLE, 1), assigned(VARIABLE, 2):
        assert VARIABLE.get() == 2 and 1 / 0
    assert VARIABLE.get() == 0


def test_no_other_code_sets_context_variables_by_hand():
    root = Path(probml.__file__).parent
    assert [path.name for path in root.rglob("*.py") if ".reset(token)" in path.read_text()] == [
        "shared_changes.py"]
