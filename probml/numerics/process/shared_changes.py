"""Changes of the whole process that last while somebody of ours is inside, and no longer."""

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator


class SharedChange:
    """A change that the first of several threads makes and the last to leave takes back:
    `with change(): ...`.

    Args:
        make: makes it; returns what takes it back.
    """

    def __init__(self, make: Callable[[], Callable[[], object]]):
        self._make, self._lock, self._inside = make, threading.RLock(), 0

    @property
    def active(self) -> bool:
        """Whether somebody is inside."""
        return self._inside > 0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._inside:
                self._take_back = self._make()
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._take_back()


def no_change() -> None:
    """Takes back nothing, where nothing was changed."""


def _without_collector() -> Callable[[], object]:
    if not gc.isenabled():
        return no_change
    gc.disable()
    return gc.enable


uncollected = SharedChange(_without_collector)
"""Python's garbage collector is off within. A trace, and an import, make hundreds of thousands of
small objects that live on: the collector would look at every object that there is, again and again,
and find next to nothing."""
