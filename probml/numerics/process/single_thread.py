"""One thread at a time where a NumPyro function runs: the stack of its handlers is one for all
threads, and two that run at once would meet each other's."""

import contextlib
import threading
from collections.abc import Iterator

_ONE = threading.RLock()


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Inside, no other thread runs a function of ours that NumPyro's handlers look at; one may
    enter it again. What is compiled or computed meanwhile is not held up.

    Nothing inside waits for another thread.
    """
    with _ONE:
        yield
