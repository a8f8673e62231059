"""The rows of a table, arranged by the rows of another table to which they belong:
(m, ...) ↔ (n, places, ...).

Each of the n rows has as many places as the row to which most belong. The other places are padding:
missing cells of sites, on which no answer depends, and repeated values of inputs.
"""

from collections.abc import Hashable, Mapping
from typing import NamedTuple

import numpy as np

from probml.dataset.arrays import Categories, Raw, as_raw
from probml.errors import DataError, counted, listed
from probml.numerics.process.libraries import pd
from probml.typing import ArrayLike


class Places(NamedTuple):
    """For each row of a table, (m,): the row of the other table, and the place in that row."""

    row: np.ndarray
    slot: np.ndarray

    @property
    def width(self) -> int:
        """The number of places."""
        return int(self.slot.max()) + 1 if len(self.slot) else 1

    def gathered(self, array: object) -> np.ndarray:
        """(n, places, ...) → (m, ...), in the order of the table."""
        return np.asarray(array)[self.row, self.slot]

    def spread(self, what: str, column: object, rows: int, width: int, as_nan: bool) -> ArrayLike:
        """A column (m, ...) → (rows, width, ...).

        Args:
            what: the column, in words.
            as_nan: padding is missing; else it holds the first row's value.
        """
        raw = as_raw(what, column, True)
        if len(raw.values) != len(self.row):
            raise DataError(f"{what} has {counted(len(raw.values), 'row')}, but the column that "
                            f"links this table to the other one has {len(self.row)}. Give all "
                            "columns of a table the same length")
        values, is_full = raw.values, len(self.row) == rows * width
        if as_nan and not is_full and raw.labels is None and values.dtype.kind != "f":
            values = values.astype(np.result_type(values.dtype, np.float32))
        blank = 0 if is_full else -1 if raw.labels is not None else np.nan
        fill = blank if as_nan else _first(what, raw)
        out = np.full((rows, width, *values.shape[1:]), fill, values.dtype)
        out[self.row, self.slot] = values
        return out if raw.labels is None else _labelled(out, raw)


def _first(what: str, raw: Raw) -> ArrayLike:
    """The first row's value of an input, which must not have missing cells."""
    if raw.missing.any():
        row = int(np.argwhere(raw.missing)[0, 0])
        raise DataError(f"{what} is missing in row {row}: an input needs a value in every row. "
                        f"Drop the row, or fill in the value")
    return raw.values[0]


def _labelled(codes: np.ndarray, raw: Raw) -> ArrayLike:
    """Codes as labels; those of a categorical column as a pandas Categorical."""
    assert raw.labels is not None
    if raw.categorical and codes.ndim == 2:
        kind = pd.CategoricalDtype(list(raw.labels), raw.categorical is Categories.ORDERED)
        return pd.DataFrame({j: pd.Categorical.from_codes(codes[:, j], dtype=kind)
                             for j in range(codes.shape[1])})
    return np.array([*raw.labels, None], object)[codes]


def keys_of(what: str, column: object) -> tuple[list[Hashable], np.ndarray]:
    """The sorted distinct values of an index column, and the code of each row.

    Raises:
        DataError: the column has several values per row, or a missing one.
    """
    raw = as_raw(what, column, True)
    if raw.values.ndim != 1:
        raise DataError(f"{what} has the shape {raw.values.shape}, expected one value per row, "
                        "shape (n,). Select one, such as values[:, 0]")
    if raw.missing.any():
        raise DataError(f"{what} is missing in row {int(np.argmax(raw.missing))}, but this column "
                        f"says to which row of the other table each row belongs. Drop the row")
    if raw.labels is not None:
        return list(raw.labels), raw.values
    values, codes = np.unique(raw.values, return_inverse=True)
    return values.tolist(), codes


def positions(what: str, column: object, rows: Mapping[Hashable, int], other: str) -> Places:
    """The places of a table's rows in the rows of the other table.

    Args:
        column: the index column, with a key of the other table per row; what: it, in words.
        rows: key → row of the other table; other: that table, in words.

    Raises:
        DataError: a key that the other table does not have.
    """
    values, codes = keys_of(what, column)
    row = np.array([rows.get(value, -1) for value in values], int)[codes]
    if (row < 0).any():
        bad = int(np.argmax(row < 0))
        raise DataError(f"{what} is {values[codes[bad]]!r} in row {bad}, which is not a key of "
                        f"{other}; its keys are {listed(rows)}. Add a "
                        f"row with this key to {other} (its other values may be NaN), or drop "
                        f"row {bad}")
    return Places(row, places_in_groups(row))


def places_in_groups(groups: np.ndarray) -> np.ndarray:
    """The position of each element among those of its group, in their order."""
    order = np.argsort(groups, kind="stable")
    slot = np.empty(len(groups), int)
    slot[order] = np.arange(len(groups)) - np.searchsorted(groups[order], groups[order])
    return slot
