"""Functions of jax.numpy as what they do, not as calls of compiled functions, while a program of
ours is traced.

Nearly all of them are compiled by themselves, and so is `x + y`. Within a trace each call is then
looked up by its arguments, traced where it is new, made an equation, and opened again; a map or a
derivative around it does all of that once more. JAX's own switch for it, `jax.disable_jit`, turns
loops into Python's too, so that a scan would be as many copies of its body as it has steps. Here
calls alone are meant: their compiled dispatcher is told of a switch of ours. That is not public:
this is the one file that knows it, and where it is not found nothing is changed
(tests/numerics/test_plain.py fails then).
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax

_LOCK = threading.Lock()
_INSIDE = [0]


@functools.cache
def _switch() -> Any:
    """Ours, JAX's own, and what tells the dispatcher which of them it follows; None: unknown."""
    try:
        from jax._src import config
        from jax._src.lib import jax_jit

        own = config.config_ext.Config("probml_plain", False, include_in_jit_key=False,
                                       include_in_trace_context=False)
        own.set_local(own.swap_local(True))  # as it will be used
        return (own, config.disable_jit, jax_jit.set_disable_jit_state,
                config.eager_constant_folding)
    except (ImportError, AttributeError, TypeError):
        return None


@contextlib.contextmanager
def plain(on: bool = True) -> Iterator[None]:
    """Inside, calls of compiled functions in this thread are calls of the functions; or, within
    such, calls of compiled ones again. Only to be entered where all is traced."""
    found = _switch()
    if found is None:
        yield
        return
    own, others, follow, folding = found
    with _LOCK:
        _INSIDE[0] += 1
        follow(own)
    # what is computed at once amid a trace calls compiled functions, whose calls would call them
    before = own.swap_local(on and not folding.value)
    try:
        yield
    finally:
        own.set_local(before)
        with _LOCK:
            _INSIDE[0] -= 1
            if not _INSIDE[0]:
                follow(others)


def folding() -> bool:
    """Whether constants are computed while a trace goes on (jax.ensure_compile_time_eval): not all
    is traced then."""
    try:
        from jax._src import config

        return bool(config.eager_constant_folding.value)
    except (ImportError, AttributeError):
        return False


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Inside, what looks at nothing that is traced is computed at once, as in
    jax.ensure_compile_time_eval, also amid a trace in which calls are opened: there each would call
    itself without end."""
    with plain(False), jax.ensure_compile_time_eval():
        yield


def traced_once(function: Callable) -> Callable:
    """The function, traced once for each shape of its arguments, though it is called more often in
    a program."""

    @functools.wraps(function)
    def opened(*args: Any) -> Any:
        with plain():
            return function(*args)

    compiled = jax.jit(opened)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        with plain(False):
            return compiled(*args)

    return call
