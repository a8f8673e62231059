"""Faces take the tables of any library, and answer `impute` with the kind that went in."""

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from probml.dataset.frames import as_pandas, is_table, like, names_of

ROWS = ("X", "y", "sample_weight")  # the arguments that may be tables or columns of one


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
        args = tuple(as_pandas(value) if name in ROWS else value
                     for name, value in zip(names, args, strict=False)) + args[len(names):]
        named = {name: as_pandas(value) if name in ROWS else value
                 for name, value in named.items()}
        found = verb(self, *args, **named)
        return _framed(rows, found) if verb.__name__ == "impute" and is_table(rows) else found

    return ask


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
