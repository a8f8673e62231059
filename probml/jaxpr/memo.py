"""`memo`: functools.lru_cache whose old entries can be released when memory fills.

A structure, a plan, a traced program of one shape takes a megabyte of Python objects; a long
process with ever new shapes would keep hundreds of each, in as many caches as there are functions.
So all caches are registered here, and numerics/kept/programs.py releases old entries of all.
"""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_RELEASES: list[Callable[[], None]] = []


def register_cache(release: Callable[[], None]) -> None:
    """Registers a cache by the function that releases its old entries."""
    _RELEASES.append(release)


def release_half() -> None:
    """Releases the entries of all caches that were not used since the last release."""
    for release in _RELEASES:
        release()


def memo(size: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """functools.lru_cache of `size` entries; `release_half` releases those that were not used since
    its last call.

    At a release the entries become a second generation, which is looked up where the first, then
    empty, has no entry; the previous second generation is dropped. So a hit costs as much as with
    functools.lru_cache.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        current = [_Generation(function, size)]

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return current[0].find(*args, **kwargs)

        def release() -> None:
            current[0].behind = function  # drops the previous second generation
            current[0] = _Generation(current[0].find, size)

        def clear() -> None:
            current[0] = _Generation(function, size)

        call.cache_clear = clear  # type: ignore[attr-defined]
        register_cache(release)
        return call

    return decorated


class _Generation:
    """The entries since the last release, and the function `behind` that finds others."""

    def __init__(self, behind: Callable, size: int):
        self.behind = behind
        self.find: Callable = functools.lru_cache(maxsize=size)(self._missed)

    def _missed(self, *args: object, **kwargs: object) -> Any:
        return self.behind(*args, **kwargs)
