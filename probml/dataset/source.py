"""Rows that are read in parts, as often as they are passed over, and never all in memory.

A source is one file: a class with `parts()`. Data of any length are fitted with it in the place of
a table, `model.fit(Mine(...))`, and asked about, `fit.log_prob(Mine(...))`.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType
from typing import Any

from probml.errors import DataError


class Source(ABC):
    """Rows in parts."""

    @abstractmethod
    def parts(self) -> Iterator[tuple[str, Any]]:
        """A new iterator of (what messages call the part, its rows as `fit` takes a table): the
        same parts in the same order every time. Only the part that is asked for is read.
        """


class Batches(Source):
    """A function that makes a new iterator of tables."""

    def __init__(self, function: Callable[[], Iterator[Any]]):
        self.function = function

    def parts(self) -> Iterator[tuple[str, Any]]:
        for i, batch in enumerate(self.function()):
            yield f"batch {i}", batch


def source_of(data: Any) -> Source | None:
    """The source that a user gave in the place of data; None: it is none."""
    if isinstance(data, Source):
        return data
    plain = callable(data) and not isinstance(data, type | BuiltinFunctionType)
    return Batches(data) if plain else None


@contextlib.contextmanager
def naming(part: str) -> Iterator[None]:
    """What is wrong with data within is said of the part that has it."""
    try:
        yield
    except DataError as error:
        raise DataError(f"part '{part}': {error}") from None
