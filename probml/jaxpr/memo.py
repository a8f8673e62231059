"""What functions have found, kept for as long as it is asked for.

A structure, a plan, a traced program of one shape is a megabyte of Python's objects; a process that
meets new shapes all day long would keep hundreds of each, in as many caches as there are functions.
So every cache says that it is one, and all of them let go of what is old when they are told
(numerics/kept/holding.py, when memory fills).
"""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_FORGETS: list[Callable[[], None]] = []


def kept_by(forget: Callable[[], None]) -> None:
    """From now on a cache is told to forget what is old by calling this."""
    _FORGETS.append(forget)


def forget() -> None:
    """All caches let go of what is old; what is let go of is found anew when it is asked for."""
    for each in _FORGETS:
        each()


def memo(most: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """functools.lru_cache of so many entries, that lets go of what has not been asked for since it
    was last told to forget.

    When it is told, its entries become a second cache, which is asked where the first, empty then,
    has nothing; what is in the second one the next time goes. So a call takes as long as one of
    functools.lru_cache, and no note is made of it.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        held = [_Generation(function, most)]

        @functools.wraps(function)
        def call(*args: P.args, **said: P.kwargs) -> R:
            return held[0].find(*args, **said)

        def turn() -> None:
            held[0].behind = function  # what lay there goes
            held[0] = _Generation(held[0].find, most)

        def clear() -> None:
            held[0] = _Generation(function, most)

        call.cache_clear = clear  # type: ignore[attr-defined]
        kept_by(turn)
        return call

    return decorated


class _Generation:
    """What was asked for since a cache was last told to forget, and who is asked for the rest."""

    def __init__(self, behind: Callable, most: int):
        self.behind = behind
        self.find: Callable = functools.lru_cache(maxsize=most)(self._missed)

    def _missed(self, *args: object, **said: object) -> Any:
        return self.behind(*args, **said)
