"""The collector of cycles rests while programs are made, and no longer."""

import gc
import threading

import numpy as np

from probml.numerics.compiling import jit
from probml.numerics.process.collector import pause_garbage_collection


def test_the_collector_is_off_in_a_trace_and_on_again_after_it():
    seen = []

    def traced(x):
        seen.append(gc.isenabled())
        return x + 1.0

    assert gc.isenabled() and jit(traced)(np.ones(3)).sum() == 6.0
    assert seen == [False] and gc.isenabled()


def test_the_last_thread_to_leave_turns_it_on_again():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with pause_garbage_collection():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait()
    with pause_garbage_collection():
        pass
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_what_the_user_turned_off_stays_off():
    gc.disable()
    try:
        with pause_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
