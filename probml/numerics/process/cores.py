"""The CPU cores of this process, and passes over long arrays by all of them."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

CHUNK_NUMBERS = 2**17  # that stay in cache
MIN_THREADED_NUMBERS = 2**22  # from which several threads are faster


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

    Cost: one read, no temporary array.
    """
    if not array.ndim:
        return bool(np.isfinite(array))
    with np.errstate(all="ignore"):
        return bool(np.isfinite(map_chunks(lambda part: array[part].sum(), array)).all())
