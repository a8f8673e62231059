"""Inlines calls of compiled functions while a program of ours is traced.

Nearly all functions of jax.numpy are jitted, and so is `x + y`. In a trace each such call is looked
up by its arguments, traced if it is new, recorded as an equation and later inlined; vmap and grad
repeat all of this. `jax.disable_jit` would also unroll loops, so that a scan becomes one copy of
its body per step. This module inlines calls alone, by a switch of their compiled dispatcher. That
is not a public interface: if it is not found nothing is changed, and
tests/numerics/test_inline_calls.py fails (jaxpr/compat.py).
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator

import jax

from probml.jaxpr.compat import OFF, call_switch
from probml.typing import PyTree

_LOCK = threading.Lock()
_INSIDE = [0]


@contextlib.contextmanager
def evaluated() -> Iterator[None]:
    """Like jax.ensure_compile_time_eval, also within `inline_calls`: values are computed at once,
    by compiled functions."""
    with inline_calls(False), jax.ensure_compile_time_eval():
        yield


@contextlib.contextmanager
def inline_calls(on: bool = True) -> Iterator[None]:
    """Within this context calls of compiled functions in this thread are inlined; with on=False
    they are compiled calls again. Use it only where everything is traced."""
    found = None if "inline" in OFF else call_switch()
    if found is None or on and found.folding.value:  # concrete evaluation needs calls
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
    """Returns a function that is traced once for each shape of its arguments, however often a
    program calls it."""

    @functools.wraps(function)
    def inlined(*args: object) -> PyTree:
        with inline_calls():
            return function(*args)

    compiled = jax.jit(inlined)

    @functools.wraps(function)
    def call(*args: object) -> PyTree:
        with inline_calls(False):
            return compiled(*args)

    return call
