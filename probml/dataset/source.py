"""Rows that are read in parts, as often as they are passed over, and never all in memory.

A source is one file: a class with `parts()`. Data of any length are fitted with it in the place of
a table, `model.fit(Mine(...))`, and asked about, `fit.log_prob(Mine(...))`.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from probml.errors import DataError, RowError


class Part(NamedTuple):
    """Some rows of a source.

    Args:
        name: what messages call where they lie, such as a file. rows: as `fit` takes a table.
        first: the number of the first of them there.
    """

    name: str
    rows: Any
    first: int = 0

    @property
    def called(self) -> str:
        """A name that no other part of its source has."""
        return self.name if not self.first else f"{self.name} from row {self.first} on"


class Source(ABC):
    """Rows in parts."""

    @abstractmethod
    def parts(self) -> Iterator[Part | tuple[str, Any]]:
        """A new iterator of parts, or of pairs (name, rows): the same parts in the same order every
        time. Only the part that is asked for is read.
        """


class Batches(Source):
    """A function that makes a new iterator of tables."""

    def __init__(self, function: Callable[[], Iterator[Any]]):
        self.function = function

    def parts(self) -> Iterator[Part]:
        for i, batch in enumerate(self.function()):
            yield Part(f"batch {i}", batch)


def parts_of(source: Source) -> Iterator[Part]:
    """A new iterator of the parts of a source."""
    for found in source.parts():
        yield Part(*found)
        del found  # before another part comes


@contextlib.contextmanager
def naming(part: Part) -> Iterator[None]:
    """What is wrong with data within is said of the part that has it."""
    try:
        yield
    except RowError as error:
        raise DataError(f"part '{part.name}': {error.behind(part.first)}") from None
    except DataError as error:
        raise DataError(f"part '{part.called}': {error}") from None
