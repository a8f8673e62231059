"""Inlines calls of compiled functions while a program of ours is traced.

Nearly all functions of jax.numpy are jitted, and so is `x + y`. In a trace each such call is looked
up by its arguments, traced if it is new, recorded as an equation and later inlined; vmap and grad
repeat all of this. `jax.disable_jit` would also unroll loops, so that a scan becomes one copy of
its body per step. This module inlines calls alone, by a switch of their compiled dispatcher. That
is not a public interface: if it is not found nothing is changed, and
tests/numerics/test_inline_calls.py fails (jaxpr/compat.py).
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator

import jax

from probml.errors import present
from probml.jaxpr.compat import OFF, call_switch, is_outside_of_traces
from probml.numerics.process.shared_changes import SharedChange, assigned
from probml.typing import PyTree

_SWITCH = call_switch()
# whether nothing is inlined, as it would be by those further within
_COMPILED: contextvars.ContextVar[bool] = contextvars.ContextVar("compiled", default=False)


def _activate_inlining() -> Callable[[], object]:
    own, others, follow, _ = present(_SWITCH)
    follow(own)
    return lambda: follow(others)


_FOLLOWED = SharedChange(_activate_inlining)


@contextlib.contextmanager
def evaluated() -> Iterator[None]:
    """Like jax.ensure_compile_time_eval, also within `inline_calls`: values are computed at once,
    by compiled functions. Outside of traces they are in any case; programs traced there would
    compute each constant by a program of its own."""
    if is_outside_of_traces():
        yield
        return
    with inline_calls(False), jax.ensure_compile_time_eval():
        yield


@contextlib.contextmanager
def inline_calls(on: bool = True) -> Iterator[None]:
    """Within this context calls of compiled functions in this thread are inlined; with on=False
    they are compiled calls again. Use it only where everything is traced."""
    if _SWITCH is None or "inline" in OFF or on and (
            _SWITCH.folding.value or _COMPILED.get()):  # concrete evaluation needs calls
        yield
        return
    with _FOLLOWED():
        previous = _SWITCH.ours.swap_local(on)
        try:
            yield
        finally:
            _SWITCH.ours.set_local(previous)


@contextlib.contextmanager
def compiled_calls() -> Iterator[None]:
    """Within this context calls of compiled functions in this thread stay calls, whatever asks for
    `inline_calls` or is `traced_once`."""
    with assigned(_COMPILED, True), inline_calls(False):
        yield


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
