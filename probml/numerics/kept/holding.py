"""Releases cached programs before the process runs out of memory mappings or memory.

A compiled program holds memory and several memory mappings, of which Linux allows a process 65,530;
JAX keeps all programs, and a process that exceeds the limit is killed. So after some programs have
been compiled the mappings are counted; where they are many, the least recently used of our programs
are released, then JAX's caches, whose programs are found on disk or compiled when needed again.

Memory fills long before that: there are some 0.3 megabytes of programs and traces per mapping, five
gigabytes per twenty thousand. So programs are also released where the process has grown by
MAX_GROWTH since the last release and there are MIN_NEW_MAPPINGS new mappings, which user data do
not cause, or MAX_PROGRAMS new programs: those that NumPy runs have no mappings, but traces. C's
allocator keeps the memory that JAX frees; half of it returns to the system only by malloc_trim.
"""

import contextlib
import ctypes
import gc
import os
import sys
import threading
import weakref
from pathlib import Path
from typing import NamedTuple, Protocol

import jax

from probml.jaxpr import memo
from probml.jaxpr.compat import OFF

MAX_MAPPINGS = 20_000  # of some thousand programs; a third of what Linux allows
MAX_GROWTH = 2**30  # bytes of the process since the last release
MIN_NEW_MAPPINGS = 4_000  # since the last release, if the growth is due to programs
MAX_PROGRAMS = 1_000  # new ones that may be the growth: 0.4 to 1.2 megabytes each, with their trace
PROGRAMS_BETWEEN_CHECKS = 32  # a check takes as long as compiling one small program

_MAPS, _PAGES = Path("/proc/self/maps"), Path("/proc/self/statm")
_LOCK = threading.Lock()
_CACHES: "weakref.WeakSet[ReleasableCache]" = weakref.WeakSet()
_NEW_PROGRAMS = [0]  # since the last check
_PROGRAMS_SINCE_RELEASE = [0]  # as of the last check


class MemoryUse(NamedTuple):
    """Memory use of the process: memory mappings and resident bytes."""

    mappings: int
    resident: int  # bytes in memory


_AFTER_RELEASE: list[MemoryUse] = []  # after the last release; at first, at the first check


class ReleasableCache(Protocol):
    """A cache of programs that can release some of them."""

    def release_half(self) -> None:
        """Releases the least recently used half."""


def register_cache(cache: ReleasableCache) -> None:
    """Registers a cache, whose `release_half` is called when memory is to be released."""
    _CACHES.add(cache)


def count_program() -> None:
    """Counts a program that was compiled or loaded from disk."""
    _NEW_PROGRAMS[0] += 1


def mappings() -> int:
    """Returns the number of memory mappings of this process; 0 if unknown."""
    try:
        return _MAPS.read_bytes().count(b"\n")
    except OSError:
        return 0


def resident() -> int:
    """Returns the resident bytes of this process; 0 if unknown."""
    try:
        return int(_PAGES.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 0


def trim() -> None:
    """Returns the free memory of C's allocator to the system."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # of another C library
            ctypes.CDLL(None).malloc_trim(0)


def release_if_many() -> bool:
    """Releases cached programs if they are many or fill memory; returns whether it did. Called
    between programs."""
    if ("holding" in OFF or _NEW_PROGRAMS[0] < PROGRAMS_BETWEEN_CHECKS
            or not _LOCK.acquire(blocking=False)):
        return False
    try:
        _PROGRAMS_SINCE_RELEASE[0] += _NEW_PROGRAMS[0]
        _NEW_PROGRAMS[0] = 0
        held = MemoryUse(mappings(), resident())
        if not _AFTER_RELEASE:
            _AFTER_RELEASE.append(held)
        grown = MemoryUse(*(now - then for now, then in zip(held, _AFTER_RELEASE[0], strict=True)))
        many = grown.mappings > MIN_NEW_MAPPINGS or _PROGRAMS_SINCE_RELEASE[0] > MAX_PROGRAMS
        if held.mappings < MAX_MAPPINGS and not (many and grown.resident > MAX_GROWTH):
            return False
        _PROGRAMS_SINCE_RELEASE[0] = 0
        for cache in list(_CACHES):
            cache.release_half()
        memo.release_half()
        if mappings() >= held.mappings // 2:
            jax.clear_caches()
        gc.collect()  # traces and their functions are reference cycles
        trim()
        # fragmented memory stays with the process: growth is measured from the least use so far,
        # else the process might grow by as much each time
        _AFTER_RELEASE[0] = MemoryUse(mappings(), min(resident(), _AFTER_RELEASE[0].resident))
        return True
    finally:
        _LOCK.release()
