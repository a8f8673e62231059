"""Since when a thread compiles: what a progress line says while nothing else can be said.

A program of ours is traced first when it is compiled; from then on it is under way until its call
returns, which does not wait for its results.
"""

import functools
import threading
import time
from collections.abc import Callable

_SINCE: dict[int, float] = {}


def marked(function: Callable) -> Callable:
    """The same function, of which a trace marks its thread."""

    @functools.wraps(function)
    def traced(*args):
        _SINCE.setdefault(threading.get_ident(), time.time())
        return function(*args)

    return traced


def ended() -> None:
    """This thread compiles no more."""
    _SINCE.pop(threading.get_ident(), None)


def seconds(thread: int) -> float:
    """How long a thread has been compiling; 0 where it is not."""
    since = _SINCE.get(thread)
    return 0.0 if since is None else time.time() - since
