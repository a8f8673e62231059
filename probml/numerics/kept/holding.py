"""Programs are let go before the process has no room for more.

A compiled program holds memory and several of the mappings of which Linux allows a process 65,530;
JAX keeps them all, and a process that asks for one more is killed. So, after some programs have
been made, the mappings are counted; where they are many, the programs of ours that were used
longest ago go, then what JAX keeps, whose programs are found on disk or compiled when they are
asked for again.

Long before that they fill memory: a mapping stands for some 0.3 megabytes of programs and traces,
twenty thousand for five gigabytes. So they also go where the process has grown by HEAVY since the
last time and MANY of its mappings are new, which the rows that somebody holds are not, or so many
programs are that they may be it: what NumPy runs has no mappings, and a trace all the same. What
JAX lets go is free to C's allocator, which keeps it: half of it goes back to the system only when
that is told to give it (malloc_trim).
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

MOST = 20_000  # mappings: some thousand programs, and a third of what Linux allows
HEAVY = 2**30  # bytes by which the process has grown
MANY = 4_000  # mappings, of which programs may be what it has grown by
PROGRAMS = 1_000  # of which as many may be, with their traces: some 0.4 to 1.2 megabytes each
OFTEN = 32  # programs from one look to the next: a look takes as long as one small program

_MAPS, _PAGES = Path("/proc/self/maps"), Path("/proc/self/statm")
_LOCK = threading.Lock()
_SHELVES: "weakref.WeakSet[Forgetful]" = weakref.WeakSet()
_MADE = [0]  # programs since the last look
_SINCE = [0]  # and, at the last look, since some were let go


class Held(NamedTuple):
    """Memory use of the process: memory mappings and resident bytes."""

    mappings: int
    resident: int  # bytes in memory


_RESTED: list[Held] = []  # when programs were last let go; at first, when first looked at


class Forgetful(Protocol):
    """A cache of programs that can release some of them."""

    def forget(self) -> None:
        """Let go of the half that was used longest ago."""


def kept_by(shelf: Forgetful) -> None:
    """Registers a cache, whose `forget` is called when memory is to be released."""
    _SHELVES.add(shelf)


def made() -> None:
    """Counts a program that was compiled or loaded from disk."""
    _MADE[0] += 1


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


def let_go() -> bool:
    """Releases cached programs if they are many or fill memory; returns whether it did. Called
    between programs."""
    if "holding" in OFF or _MADE[0] < OFTEN or not _LOCK.acquire(blocking=False):
        return False
    try:
        _SINCE[0] += _MADE[0]
        _MADE[0] = 0
        held = Held(mappings(), resident())
        if not _RESTED:
            _RESTED.append(held)
        grown = Held(*(now - then for now, then in zip(held, _RESTED[0], strict=True)))
        many = grown.mappings > MANY or _SINCE[0] > PROGRAMS
        if held.mappings < MOST and not (many and grown.resident > HEAVY):
            return False
        _SINCE[0] = 0
        for shelf in list(_SHELVES):
            shelf.forget()
        memo.forget()
        if mappings() >= held.mappings // 2:
            jax.clear_caches()
        gc.collect()  # traces and what they are of hold one another
        trim()
        # memory that is free and in pieces stays with the process: the least there was is what it
        # grows from, else it might grow by as much each time
        _RESTED[0] = Held(mappings(), min(resident(), _RESTED[0].resident))
        return True
    finally:
        _LOCK.release()
