"""Columns of a table as a mixed model takes them: numbers, and the labels of groupings."""

from collections.abc import Hashable, Mapping

import numpy as np

from probml import DataError


def table_of(X) -> dict[Hashable, np.ndarray]:
    """Columns by name; of an array by number."""
    if hasattr(X, "columns"):
        return {name: X[name].to_numpy() for name in X.columns}
    X = np.asarray(X)
    if X.ndim != 2 or not X.size:
        raise DataError(f"X has the shape {X.shape}, expected a DataFrame or an array (n, columns)")
    return dict(enumerate(X.T))


def numbers_of(table: Mapping, names: list) -> np.ndarray:
    """Some columns as numbers, (n, columns).

    Raises:
        DataError: text or a missing cell, by column and row.
    """
    out = np.empty((len(next(iter(table.values()))), len(names)))
    for j, name in enumerate(names):
        try:
            out[:, j] = np.asarray(table[name], float)
        except (TypeError, ValueError) as error:
            raise DataError(f"column {name!r} of X must be numbers ({error}). Convert or drop the "
                            f"column, or make it a grouping, effects={{{name!r}: ['1']}}") from None
        if not np.isfinite(out[:, j]).all():
            row = int(np.argmin(np.isfinite(out[:, j])))
            raise DataError(f"X contains NaN or infinity: column {name!r} is {out[row, j]} in row "
                            f"{row}. Drop this row, or fill in the value")
    return out


def labels_of(table: Mapping, name: Hashable) -> np.ndarray:
    """A grouping's labels, none of which may be missing."""
    values = np.asarray(table[name])
    gone = np.array([v is None or v != v for v in values], bool)
    if gone.any():
        raise DataError(f"the grouping {name!r} is missing in row {int(np.argmax(gone))}, but "
                        f"every row must belong to a group. Drop rows without a group")
    if values.dtype.kind == "O" and len({type(v) for v in values}) == 1 and isinstance(values[0],
                                                                                        str):
        return values.astype(str)
    return values
