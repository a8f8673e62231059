"""Limits BLAS to one thread for small matrices; and a lock for running NumPyro functions.

OpenBLAS uses all of its threads even for 4 × 4 matrices, and waits for them in a busy loop. XLA
calls it from several threads, so that on two busy cores 20 iterations of a mixture (150 rows,
32 starts) took 12 s instead of 0.4 s (CPU time 4 s and 0.2 s).

NumPyro's stack of handlers is shared by all threads, so that functions that run at the same time
would be affected by each other's handlers.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator

import jax
from threadpoolctl import ThreadpoolController

from probml.jaxpr.compat import OFF
from probml.numerics.process.shared_changes import SharedChange

_LOCK = threading.RLock()


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Within this context no other thread runs a model; it is reentrant. Compilation and
    computation in other threads go on. Code inside must not wait for another thread."""
    with _LOCK:
        yield


# Columns of a matrix above which all threads are used: for 564 columns two threads save 1 ms, but
# take 45 times as long as one while another process computes.
MIN_COLUMNS_FOR_THREADS = 1024


@functools.cache
def _libraries() -> ThreadpoolController:
    """Returns the controller of the loaded BLAS libraries; jaxlib has loaded SciPy's."""
    return ThreadpoolController()


def _limit() -> Callable[[], object]:
    back = contextlib.ExitStack()
    back.enter_context(_libraries().limit(limits=1, user_api="blas"))
    return back.close


_SINGLE_BLAS_THREAD = SharedChange(_limit)


@contextlib.contextmanager
def one_thread(size: int) -> Iterator[None]:
    """Within this context BLAS has one thread in the whole process, unless `size` (columns of a
    matrix) exceeds MIN_COLUMNS_FOR_THREADS.

    JAX computes asynchronously: results must be waited for inside. Several Python threads may be
    inside at once. Cost: 0.1 ms.
    """
    if size > MIN_COLUMNS_FOR_THREADS or "blas" in OFF:
        yield
        return
    with _SINGLE_BLAS_THREAD():
        yield


def computed(program: Callable, dynamic: Iterable, static: Iterable) -> object:
    """Run a program and return its result. If its plan factorises matrices, unless large, BLAS has
    one thread meanwhile, and the result is waited for; within a fit the limit is already in force.

    Args:
        dynamic: the arguments of the program. static: its static arguments, which include a plan.
    """
    size = max((getattr(each, "largest_matrix", 0) for each in static), default=0)
    if not 0 < size <= MIN_COLUMNS_FOR_THREADS or _SINGLE_BLAS_THREAD.active:
        return program(*dynamic)
    with one_thread(size):
        return jax.block_until_ready(program(*dynamic))
