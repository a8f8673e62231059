"""The CPU cores of this process, and passes over long arrays by all of them."""

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import numpy as np

CHUNK_NUMBERS = 2**17  # that stay in cache
MIN_THREADED_NUMBERS = 2**22  # from which several threads are faster

# arrays that were found finite within `looked_at_once`, by their id
_FOUND: ContextVar[dict[int, weakref.ref] | None] = ContextVar("found", default=None)


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_chunks(function: Callable[[slice], object], array: np.ndarray) -> list:
    """function(slice of rows) for chunks of an array that stay in cache; for a long one by a thread
    for each core, which pays where NumPy does the work."""
    size = max(CHUNK_NUMBERS // max(array[:1].size, 1), 1)
    cuts = [slice(begin, begin + size) for begin in range(0, len(array), size)]
    workers = cores() if array.size > MIN_THREADED_NUMBERS else 1
    if workers == 1:
        return list(map(function, cuts))
    share = -(-len(cuts) // workers)
    with ThreadPoolExecutor(workers) as pool:
        found = pool.map(lambda part: list(map(function, part)),
                         [cuts[begin : begin + share] for begin in range(0, len(cuts), share)])
        return [each for part in found for each in part]


def finite(array: np.ndarray) -> bool:
    """Whether all numbers are finite, by their sum: False also where that overflows.

    Cost: one read, no temporary array; none within `looked_at_once` of an array that was found so.
    """
    if not array.ndim:
        return bool(np.isfinite(array))
    known = _FOUND.get()
    if known is not None and id(array) in known and known[id(array)]() is array:
        return True
    with np.errstate(all="ignore"):
        found = bool(np.isfinite(map_chunks(lambda part: array[part].sum(), array)).all())
    if found and known is not None:
        known[id(array)] = weakref.ref(array)
    return found


@contextlib.contextmanager
def looked_at_once() -> Iterator[None]:
    """Within this context arrays are assumed not to change, so that each is checked once for finite
    numbers."""
    token = None if _FOUND.get() is not None else _FOUND.set({})
    try:
        yield
    finally:
        if token is not None:
            _FOUND.reset(token)
