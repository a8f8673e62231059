"""Rows of a table as places beside the rows of another, to which they belong: (m, ...) ↔ (n,
places, ...).

A row of the other table has as many places as the one to which most belong; places that are left
are unseen cells, of which every answer is independent, and inputs there repeat a row's.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from probml.dataset.arrays import Categories, Raw, as_raw
from probml.errors import DataError


class Places(NamedTuple):
    """Where the rows of a table stand: beside which row of the other, in which place, (m,)."""

    row: np.ndarray
    place: np.ndarray

    @property
    def width(self) -> int:
        """The most rows that belong to one."""
        return int(self.place.max()) + 1 if len(self.place) else 1

    def gathered(self, array: object) -> np.ndarray:
        """(n, places, ...) → (m, ...), in the order of the table."""
        return np.asarray(array)[self.row, self.place]

    def spread(self, what: str, column: object, rows: int, width: int, unseen: bool) -> Any:
        """A column (m, ...) → (rows, width, ...).

        Args:
            what: the column, in words.
            unseen: places that are left are unseen; else they hold the first row's value.
        """
        raw = as_raw(what, column, True)
        if len(raw.values) != len(self.row):
            raise DataError(f"{what} has {len(raw.values)} rows, and the index of its table "
                            f"{len(self.row)}: all columns of a table need the same length")
        values, full = raw.values, len(self.row) == rows * width
        if unseen and not full and raw.labels is None and values.dtype.kind != "f":
            values = values.astype(np.result_type(values.dtype, np.float32))
        blank = 0 if full else -1 if raw.labels is not None else np.nan
        fill = blank if unseen else _first(what, raw)
        out = np.full((rows, width, *values.shape[1:]), fill, values.dtype)
        out[self.row, self.place] = values
        return out if raw.labels is None else _labelled(out, raw)


def _first(what: str, raw: Raw) -> Any:
    """The value of an input's first row; inputs are seen."""
    gone = raw.values == -1 if raw.labels is not None else np.isnan(raw.values.astype(float))
    if gone.any():
        raise DataError(f"{what} is missing in row {int(np.argwhere(gone)[0, 0])}: an input needs "
                        f"a value in every row. Drop the row or fill the cell")
    return raw.values[0]


def _labelled(codes: np.ndarray, raw: Raw) -> Any:
    """Codes as what they stand for; those of a categorical column keep its order."""
    assert raw.labels is not None
    if raw.categorical and codes.ndim == 2:
        import pandas as pd  # such a column is its own

        kind = pd.CategoricalDtype(list(raw.labels), raw.categorical is Categories.ORDERED)
        return pd.DataFrame({j: pd.Categorical.from_codes(codes[:, j], dtype=kind)
                             for j in range(codes.shape[1])})
    return np.array([*raw.labels, None], object)[codes]


def keys_of(what: str, column: object) -> tuple[list[Any], np.ndarray]:
    """The different values of a column that is an index, in order, and which of them every row has.

    Raises:
        DataError: it is no column of single values; it is unseen in some row.
    """
    raw = as_raw(what, column, True)
    if raw.values.ndim != 1:
        raise DataError(f"{what} has the shape {raw.values.shape}: an index has one value per row")
    gone = raw.values == -1 if raw.labels is not None else np.isnan(raw.values.astype(float))
    if gone.any():
        raise DataError(f"{what} is missing in row {int(np.argmax(gone))}: it gives the row of the "
                        f"other table to which the row belongs. Drop the row")
    if raw.labels is not None:
        return list(raw.labels), raw.values
    values, codes = np.unique(raw.values, return_inverse=True)
    return values.tolist(), codes


def positions(what: str, column: object, rows: Mapping[Any, int], other: str) -> Places:
    """The places of a table's rows beside those of the other, in the order in which they come.

    Args:
        column: the index; what: it, in words; other: the other table, in words.
        rows: key → row of the other table.

    Raises:
        DataError: a key that is none of these.
    """
    values, codes = keys_of(what, column)
    found = np.array([rows.get(value, -1) for value in values], int)[codes]
    if (found < 0).any():
        at = int(np.argmax(found < 0))
        raise DataError(f"{what} is {values[codes[at]]!r} in row {at}, and {other} has no such "
                        f"row: its keys are {list(rows)[:6]}{' …' * (len(rows) > 6)}. Add that row "
                        f"with missing cells, or drop this one")
    order = np.argsort(found, kind="stable")
    counts = np.bincount(found, minlength=len(rows))
    begins = np.concatenate([[0], np.cumsum(counts)[:-1]])
    place = np.empty(len(found), int)
    place[order] = np.arange(len(found)) - begins[found[order]]
    return Places(found, place)
