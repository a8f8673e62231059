"""A lock for running NumPyro functions: NumPyro's stack of handlers is shared by all threads, so
that functions that run at the same time would see each other's handlers."""

import contextlib
import threading
from collections.abc import Iterator

_LOCK = threading.RLock()


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Within this context no other thread runs a model; it is reentrant. Compilation and
    computation in other threads go on. Code inside must not wait for another thread."""
    with _LOCK:
        yield
