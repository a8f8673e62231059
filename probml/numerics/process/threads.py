"""The threads of this process: BLAS with one for small matrices, a lock for running NumPyro
functions, work in parts by all cores, and a refusal to compute in a process that was forked after
JAX had started, whose threads are missing there, so that it would wait for ever.

OpenBLAS uses all of its threads even for 4 × 4 matrices, and waits for them in a busy loop. XLA
calls it from several threads, so that on two busy cores 20 iterations of a mixture (150 rows,
32 starts) took 12 s instead of 0.4 s (CPU time 4 s and 0.2 s).

NumPyro's stack of handlers is shared by all threads, so that functions that run at the same time
would be affected by each other's handlers.
"""

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import jax
import numpy as np
from threadpoolctl import ThreadpoolController

from probml.errors import ModelError
from probml.jaxpr.compat import OFF, has_started
from probml.numerics.process.shared_changes import SharedChange

CHUNK_NUMBERS = 2**17  # that stay in cache
MIN_THREADED_NUMBERS = 2**22  # from which several threads are faster

_LOCK = threading.RLock()


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Within this context no other thread runs a model; it is reentrant. Compilation and
    computation in other threads go on. Code inside must not wait for another thread."""
    with _LOCK:
        yield


# Columns of a matrix above which all threads are used. While another process computes, two threads
# take 45 times the processor time of one for 564 columns, 20 times for 2,000 (an inverse, 2.2 s
# for 0.1 s) and 2.5 times for 4,000.
MIN_COLUMNS_FOR_THREADS = 2048


@functools.cache
def _libraries() -> ThreadpoolController:
    """Returns the controller of the loaded BLAS libraries; jaxlib has loaded SciPy's."""
    return ThreadpoolController()


def _limit() -> Callable[[], object]:
    limits = contextlib.ExitStack()
    limits.enter_context(_libraries().limit(limits=1, user_api="blas"))
    return limits.close


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


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_same_precision(function: Callable) -> Callable:
    """Returns the function for use in another thread, with the precision of this thread; JAX's
    setting is thread-local."""
    double = bool(jax.config.jax_enable_x64)

    @functools.wraps(function)
    def own(*args: object, **kwargs: object):
        with jax.enable_x64(double):
            return function(*args, **kwargs)

    return own


def map_in_threads(function: Callable[[Any], Any], parts: Sequence, serial: bool = False) -> list:
    """function(part) of every part, by as many threads as there are cores; by one if `serial`."""
    workers = 1 if serial else min(len(parts), cores())
    if workers == 1:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(in_same_precision(function), parts))


def map_chunks(function: Callable[[slice], object], array: np.ndarray) -> list:
    """function(slice of rows) for chunks of an array that stay in cache; for a long one by a thread
    for each core, which pays where NumPy does the work."""
    size = max(CHUNK_NUMBERS // max(array[:1].size, 1), 1)
    cuts = [slice(begin, begin + size) for begin in range(0, len(array), size)]
    workers = cores() if array.size > MIN_THREADED_NUMBERS else 1
    shares = [cuts[k * len(cuts) // workers : (k + 1) * len(cuts) // workers]
              for k in range(workers)]
    return list(chain(*map_in_threads(lambda share: list(map(function, share)), shares)))


def finite(array: np.ndarray) -> bool:
    """Whether all numbers are finite, by their sum: False also where that overflows.

    Cost: one read, no temporary array.
    """
    if not array.ndim:
        return bool(np.isfinite(array))
    with np.errstate(all="ignore"):
        return bool(np.isfinite(map_chunks(lambda part: array[part].sum(), array)).all())


_FORKED: list[int] = []  # the id of this process, if it was forked after JAX had started
_BEFORE = [False]  # whether JAX had started before the fork; asking in the child would hang


def _mark() -> None:
    if _BEFORE[0]:
        _FORKED.append(os.getpid())


def _ask() -> None:
    _BEFORE[0] = has_started()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_ask, after_in_child=_mark)


def refuse_fork() -> None:
    """Refuse to compute in a forked process, which would hang.

    Raises:
        ModelError: this process was forked after JAX had begun.
    """
    if _FORKED:
        raise ModelError(
            f"this process ({_FORKED[-1]}) was forked from a process in which JAX was already "
            f"running. A fork does not copy the threads of JAX, so the computation would hang. "
            f"Start processes with multiprocessing.get_context('spawn') or 'forkserver', or with "
            f"joblib's default backend, loky; or fork before the first fit"
        )
