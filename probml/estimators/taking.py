"""Faces take the tables of any library, and answer `impute` with the kind that went in. What a
verb's rows must be in any case is asked here, for all of them."""

import functools
import inspect
import reprlib
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from probml.dataset.frames import as_pandas, is_table, like, names_of
from probml.errors import DataError

ROWS = ("X", "y", "sample_weight", "offset", "trials")  # what may be a table or a column of one
NUMBERS = ("sample_weight", "offset", "trials")


def take_tables(face: type) -> None:
    """Let the verbs that a class defines, those whose first argument is X, take any table."""
    for name, found in list(vars(face).items()):
        if isinstance(found, FunctionType) and not name.startswith("_"):
            if list(inspect.signature(found).parameters)[1:2] == ["X"]:
                setattr(face, name, _taking(found))


def _taking(verb: Callable) -> Callable:
    names = list(inspect.signature(verb).parameters)[1:]

    @functools.wraps(verb)
    def ask(self: Any, *args: Any, **named: Any) -> Any:
        rows = args[0] if args else named.get("X")
        where = f"{type(self).__name__}.{verb.__name__}"
        listed = getattr(self, "_listed", False)
        args = tuple(_rows(value, name, where, listed) for name, value
                     in zip(names, args, strict=False)) + args[len(names):]
        named = {name: _rows(value, name, where, listed) for name, value in named.items()}
        found = verb(self, *args, **named)
        return _framed(rows, found) if verb.__name__ == "impute" and is_table(rows) else found

    return ask


def _rows(value: Any, name: str, where: str, listed: bool) -> Any:
    """An argument of rows as pandas or as it is.

    Args:
        listed: rows may be a list of sequences of unequal lengths.

    Raises:
        DataError: its rows are of unequal lengths, or it holds text where numbers are meant.
    """
    if name not in ROWS:
        return value
    value = as_pandas(value)
    if isinstance(value, list | tuple) and not (listed and name in ("X", "y")):
        try:
            np.asarray(value)
        except ValueError:
            raise DataError(f"{where}: the rows of {name} have unequal lengths: expected an array "
                            f"or a table, rows first. An unseen cell is NaN") from None
    if name in NUMBERS and value is not None:
        try:
            return np.asarray(value, float) if np.asarray(value).dtype.kind in "OUS" else value
        except (TypeError, ValueError):
            raise DataError(f"{where}: expected numbers as {name}, one a row, got "
                            f"{reprlib.repr(value)}") from None
    return value


def _framed(rows: Any, cells: Any) -> Any:
    """Cells (n, d) as the columns of the table that was given."""
    cells = np.asarray(cells)
    columns = {}
    for j, name in enumerate(names_of(rows)):
        column = cells[:, j]
        if column.dtype.hasobject:  # as they would be by themselves
            column = np.array(column.tolist())
        columns[str(name)] = column
    return like(rows, columns)
