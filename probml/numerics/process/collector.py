"""Python's collector of cycles rests while a program is made.

A trace makes hundreds of thousands of small objects that live until it ends. The collector counts
them as a growth of the process, looks at every object that there is, and finds next to nothing.
"""

import contextlib
import gc
import threading
from collections.abc import Iterator

from probml.jaxpr.mechanisms import OFF

_LOCK = threading.RLock()
_RESTS: list[bool] = []  # whether it was on, once for each of us who let it rest


@contextlib.contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """The collector is off within; the last of several threads to leave turns it on again, where it
    was on."""
    if "collector" in OFF:
        yield
        return
    with _LOCK:
        _RESTS.append(_RESTS[0] if _RESTS else gc.isenabled())
        gc.disable()
    try:
        yield
    finally:
        with _LOCK:
            was = _RESTS.pop()
            if was and not _RESTS:
                gc.enable()
