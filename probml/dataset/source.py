"""Sources of rows, which are read part by part in every pass and are never all in memory.

A source is a class with `parts()`. It is passed like a table, `model.fit(Mine(...))`,
`fit.log_prob(Mine(...))`.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from probml.dataset import frames
from probml.errors import DataError, RowError, listed
from probml.typing import ArrayLike, DataLike


class Part(NamedTuple):
    """Some rows of a source.

    Args:
        name: where they come from, such as a file, for messages. rows: a table as `fit` takes it.
        first: the number of the first row there.
        weights: one per row, in all parts or in none; None: 1 each.
    """

    name: str
    rows: DataLike
    first: int = 0
    weights: ArrayLike | None = None

    @property
    def called(self) -> str:
        """A name that is unique among the parts of the source."""
        return self.name if not self.first else f"{self.name} from row {self.first}"


class Source(ABC):
    """Rows in parts."""

    @abstractmethod
    def parts(self) -> Iterator[Part | tuple[str, DataLike]]:
        """A new iterator of parts, or of pairs (name, rows): the same parts in the same order every
        time, each read when it is asked for."""

    def mixed(self, random: np.random.Generator) -> Iterator[Part | tuple[str, DataLike]]:
        """The same rows in parts of any size, in random order, for engines that take batches. By
        default the order of `parts`: rows are then shuffled within a buffer only."""
        return self.parts()


class Batches(Source):
    """A source from a function that returns a new iterator of tables."""

    def __init__(self, function: Callable[[], Iterator[DataLike]]):
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

    def _parted(self, parts: Iterator[Part | tuple[str, DataLike]]) -> Iterator[Part]:
        for part in named(parts):
            with naming(part):
                rows, weights = without(part.rows, self.column)
            yield part._replace(rows=rows, weights=weights)
            del part, rows, weights  # frees the memory before the next part is read


def parts_of(source: Source) -> Iterator[Part]:
    """A new iterator of the parts of a source.

    Raises:
        DataError: it has no part with rows.
    """
    any_rows = False
    for part in named(source.parts()):
        any_rows = True
        yield part
        del part  # frees the memory before the next part is read
    if not any_rows:
        raise DataError("the data source returned no batches, expected at least one batch of rows. "
                        "Check the source")


def named(parts: Iterator[Part | tuple[str, DataLike]]) -> Iterator[Part]:
    """Parts, or pairs, as parts, without those that have no rows, such as files of which a filter
    leaves nothing."""
    for item in parts:
        part = Part(*item)
        del item
        if not _empty(part.rows):
            yield part
        del part  # frees the memory before the next part is read


def _empty(rows: DataLike) -> bool:
    """Whether a table has columns, and no rows."""

    def is_empty(column: ArrayLike) -> bool:
        if hasattr(column, "shape"):
            return tuple(column.shape[:1]) == (0,)
        return hasattr(column, "__len__") and not len(column)

    if isinstance(rows, Mapping):
        return bool(rows) and all(map(is_empty, rows.values()))
    return frames.is_table(rows) and not frames.is_far(rows) and rows.shape[0] == 0


def without(rows: DataLike, column: str) -> tuple[DataLike, ArrayLike | None]:
    """A table without one of its columns, and that column.

    Raises:
        DataError: it has no column of that name.
    """
    rows = frames.to_pandas(rows)
    names = list(rows) if isinstance(rows, Mapping) else frames.names_of(rows)
    if column not in names:
        raise DataError(f"weights='{column}': the data have no such column. Use one of the columns "
                        f"{listed(names)}")
    if isinstance(rows, Mapping):
        return {name: rows[name] for name in rows if name != column}, rows[column]
    if hasattr(rows, "drop_columns"):  # Arrow's
        return rows.drop_columns([column]), rows.column(column)
    return rows.drop(columns=[column]), rows[column]


@contextlib.contextmanager
def naming(part: Part) -> Iterator[None]:
    """A context in which errors about data name the part that they are in."""
    try:
        yield
    except RowError as error:
        raise DataError(f"batch '{part.name}': {error.behind(part.first)}") from None
    except DataError as error:
        raise DataError(f"batch '{part.called}': {error}") from None
