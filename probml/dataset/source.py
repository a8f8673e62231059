"""Rows that are read in parts, as often as they are passed over, and never all in memory.

A source is one file: a class with `parts()`. Data of any length are fitted with it in the place of
a table, `model.fit(Mine(...))`, and asked about, `fit.log_prob(Mine(...))`.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from probml.dataset import frames
from probml.errors import DataError, RowError


class Part(NamedTuple):
    """Some rows of a source.

    Args:
        name: what messages call where they lie, such as a file. rows: as `fit` takes a table.
        first: the number of the first of them there.
        weights: one a row, in all parts or in none; None: 1 each.
    """

    name: str
    rows: Any
    first: int = 0
    weights: Any = None

    @property
    def called(self) -> str:
        """A name that no other part of its source has."""
        return self.name if not self.first else f"{self.name} from row {self.first}"


class Source(ABC):
    """Rows in parts."""

    @abstractmethod
    def parts(self) -> Iterator[Part | tuple[str, Any]]:
        """A new iterator of parts, or of pairs (name, rows): the same parts in the same order every
        time. Only the part that is asked for is read.
        """

    def mixed(self, random: np.random.Generator) -> Iterator[Part | tuple[str, Any]]:
        """The same rows in parts of any size, in an order that `random` chooses, for engines that
        take batches. A source that cannot be read here and there gives them as they come: batches
        are then mixed within a buffer alone.
        """
        return self.parts()


class Batches(Source):
    """A function that makes a new iterator of tables."""

    def __init__(self, function: Callable[[], Iterator[Any]]):
        self.function = function

    def parts(self) -> Iterator[Part]:
        for i, batch in enumerate(self.function()):
            yield Part(f"batch {i}", batch)


class Weighed(Source):
    """A source whose rows have their weights in a column."""

    def __init__(self, source: Source, column: str):
        self.source, self.column = source, column

    def parts(self) -> Iterator[Part]:
        return self._parted(self.source.parts())

    def mixed(self, random: np.random.Generator) -> Iterator[Part]:
        return self._parted(self.source.mixed(random))

    def _parted(self, parts: Iterator[Part | tuple[str, Any]]) -> Iterator[Part]:
        for found in named(parts):
            with naming(found):
                rows, weights = without(found.rows, self.column)
            yield found._replace(rows=rows, weights=weights)
            del found, rows, weights  # before another part comes


def parts_of(source: Source) -> Iterator[Part]:
    """A new iterator of the parts of a source."""
    return named(source.parts())


def named(parts: Iterator[Part | tuple[str, Any]]) -> Iterator[Part]:
    """Parts as such, without those that have no rows: what a filter leaves of a file may be none.
    """
    for found in parts:
        part = Part(*found)
        del found
        if not _empty(part.rows):
            yield part
        del part  # before another part comes


def _empty(rows: Any) -> bool:
    """Whether a table has columns, and no rows."""
    if isinstance(rows, Mapping):
        return bool(rows) and all(map(_is_empty, rows.values()))
    return frames.is_table(rows) and not frames.is_far(rows) and rows.shape[0] == 0


def _is_empty(column: object) -> bool:
    shape = getattr(column, "shape", None)
    if shape is not None:
        return tuple(shape[:1]) == (0,)
    return hasattr(column, "__len__") and not len(column)


def without(rows: Any, column: str) -> tuple[Any, Any]:
    """A table without one of its columns, and that column.

    Raises:
        DataError: it has none of that name.
    """
    rows = frames.to_pandas(rows)
    names = list(rows) if isinstance(rows, Mapping) else frames.names_of(rows)
    if column not in names:
        raise DataError(f"weights='{column}': no such column; the data have "
                        f"{', '.join(map(repr, names[:12]))}")
    if isinstance(rows, Mapping):
        return {name: rows[name] for name in rows if name != column}, rows[column]
    if hasattr(rows, "drop_columns"):  # Arrow's
        return rows.drop_columns([column]), rows.column(column)
    return rows.drop(columns=[column]), rows[column]


@contextlib.contextmanager
def naming(part: Part) -> Iterator[None]:
    """What is wrong with data within is said of the part that has it."""
    try:
        yield
    except RowError as error:
        raise DataError(f"part '{part.name}': {error.behind(part.first)}") from None
    except DataError as error:
        raise DataError(f"part '{part.called}': {error}") from None
