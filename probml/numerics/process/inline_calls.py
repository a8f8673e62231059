"""Functions of jax.numpy as what they do, not as calls of compiled functions, while a program of
ours is traced.

Nearly all of them are compiled by themselves, and so is `x + y`. Within a trace each call is then
looked up by its arguments, traced where it is new, made an equation, and opened again; a map or a
derivative around it does all of that once more. JAX's own switch for it, `jax.disable_jit`, turns
loops into Python's too, so that a scan would be as many copies of its body as it has steps. Here
calls alone are meant: their compiled dispatcher is told of a switch of ours. That is not public:
where it is not found nothing is changed (jaxpr/compat.py;
tests/numerics/test_inline_calls.py fails then).
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax

from probml.jaxpr.compat import OFF, call_switch

_LOCK = threading.Lock()
_INSIDE = [0]


@contextlib.contextmanager
def evaluated() -> Iterator[None]:
    """As jax.ensure_compile_time_eval, also within `inline_calls`: numbers are computed at once, by
    compiled functions."""
    with inline_calls(False), jax.ensure_compile_time_eval():
        yield


@contextlib.contextmanager
def inline_calls(on: bool = True) -> Iterator[None]:
    """Inside, calls of compiled functions in this thread are calls of the functions; or, within
    such, calls of compiled ones again. Only to be entered where all is traced."""
    found = None if "inline" in OFF else call_switch()
    if found is None or on and found.folding.value:  # what computes numbers at once needs its calls
        yield
        return
    own, others, follow, _ = found
    with _LOCK:
        _INSIDE[0] += 1
        follow(own)
    before = own.swap_local(on)
    try:
        yield
    finally:
        own.set_local(before)
        with _LOCK:
            _INSIDE[0] -= 1
            if not _INSIDE[0]:
                follow(others)


def traced_once(function: Callable) -> Callable:
    """The function, traced once for each shape of its arguments, though it is called more often in
    a program."""

    @functools.wraps(function)
    def inlined(*args: object) -> Any:
        with inline_calls():
            return function(*args)

    compiled = jax.jit(inlined)

    @functools.wraps(function)
    def call(*args: object) -> Any:
        with inline_calls(False):
            return compiled(*args)

    return call
