"""One thread for small matrices.

OpenBLAS wakes its threads for matrices of 4 × 4 too, and whoever waits for them spins. XLA calls it
from threads of its own, so that on two busy cores 20 iterations of a mixture of 150 rows, with
32 starts, took 12 s instead of 0.4 s (4 s and 0.2 s of processor).
"""

import contextlib
import functools
import threading
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController

from probml.jaxpr.mechanisms import OFF

SMALL = 128  # columns of a matrix from which several threads gain something

_LOCK = threading.Lock()
_INSIDE: list[contextlib.ExitStack] = []  # what puts the threads back, once for each who is inside


@functools.cache
def _libraries() -> ThreadpoolController:
    """Those that are loaded; jaxlib has loaded SciPy's."""
    return ThreadpoolController()


@contextlib.contextmanager
def one_thread(size: int, small: int = SMALL) -> Iterator[None]:
    """Inside, the linear algebra of the process has one thread, if matrices of `size` columns are
    small, of at most `small`; after it as many as before.

    All that is computed inside must have ended there, since JAX computes while Python goes on.
    Several threads of Python may be inside at once. Cost: 0.1 ms.
    """
    if size > small or "blas" in OFF:
        yield
        return
    with _LOCK:
        if not _INSIDE:
            back = contextlib.ExitStack()
            back.enter_context(_libraries().limit(limits=1, user_api="blas"))
        else:
            back = _INSIDE[0]
        _INSIDE.append(back)
    try:
        yield
    finally:
        with _LOCK:
            back = _INSIDE.pop()
            if not _INSIDE:
                back.close()
