"""Changes that last while some thread is inside a context, of the process or of this thread."""

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


class SharedChange:
    """A change that the first thread to enter makes and the last thread to leave reverts:
    `with change(): ...`.

    Args:
        make: makes the change; returns a function that reverts it.
    """

    def __init__(self, make: Callable[[], Callable[[], object]]):
        self._make, self._lock, self._n_users = make, threading.RLock(), 0

    @property
    def active(self) -> bool:
        """Whether a thread is inside."""
        return self._n_users > 0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._n_users:
                self._take_back = self._make()
            self._n_users += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_users -= 1
                if not self._n_users:
                    self._take_back()


@contextlib.contextmanager
def assigned(variable: ContextVar[T], value: T) -> Iterator[None]:
    """A context in which a context variable has a value, in this thread."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def no_change() -> None:
    """Reverts nothing: for a change that could not be made."""


def _without_collector() -> Callable[[], object]:
    if not gc.isenabled():
        return no_change
    gc.disable()
    return gc.enable


uncollected = SharedChange(_without_collector)
"""A context without Python's garbage collector. Traces and imports create hundreds of thousands of
small objects that stay alive: repeated collections would visit all objects and free almost none."""
