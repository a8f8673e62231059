"""Programs are let go before the process has no room for more.

A compiled program holds memory and several of the mappings of which Linux allows a process 65,530;
JAX keeps them all, and a process that asks for one more is killed. So, after some programs have
been made, the mappings are counted; where they are many, the programs of ours that were used
longest ago go, then what JAX keeps, whose programs are found on disk or compiled when they are
asked for again.
"""

import threading
import weakref
from pathlib import Path
from typing import Protocol

import jax

MOST = 20_000  # mappings: some thousand programs, and a third of what Linux allows
OFTEN = 32  # programs from one look to the next: a look takes as long as one small program

_MAPS = Path("/proc/self/maps")
_LOCK = threading.Lock()
_SHELVES: "weakref.WeakSet[Forgetful]" = weakref.WeakSet()
_MADE = [0]


class Forgetful(Protocol):
    """Who keeps programs and can let go of some."""

    def forget(self) -> None:
        """Let go of the half that was used longest ago."""


def kept_by(shelf: Forgetful) -> None:
    """From now on it is asked to forget."""
    _SHELVES.add(shelf)


def made() -> None:
    """A program has been made, or found on disk."""
    _MADE[0] += 1


def mappings() -> int:
    """The mappings of this process; 0 where the system does not tell."""
    try:
        return _MAPS.read_bytes().count(b"\n")
    except OSError:
        return 0


def let_go() -> bool:
    """Let go of programs where they are many: whether some went. Called between programs."""
    if _MADE[0] < OFTEN or not _LOCK.acquire(blocking=False):
        return False
    try:
        _MADE[0] = 0
        if mappings() < MOST:
            return False
        for shelf in list(_SHELVES):
            shelf.forget()
        if mappings() >= MOST // 2:
            jax.clear_caches()
        return True
    finally:
        _LOCK.release()
