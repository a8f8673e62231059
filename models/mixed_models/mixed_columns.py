"""Columns of a table as a mixed model takes them: numbers, and the labels of groupings."""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from probml import DataError
from probml.dataset.arrays import missing, positions
from probml.dataset.coding.labels import refuse_other_type
from probml.dataset.frames import as_pandas
from probml.errors import listed
from probml.language.given import floats

NUMBERS = "biuf"  # kinds of arrays
DEPENDENT = 1e-8  # of the largest singular value of columns of length 1, which counts as 0


def table_of(X) -> dict[Hashable, np.ndarray]:
    """Columns by name; of an array by number."""
    X = as_pandas(X)
    if hasattr(X, "columns"):
        return {name: X[name].to_numpy() for name in X.columns}
    X = np.asarray(X)
    if X.ndim != 2 or not X.size:
        raise DataError(f"X has the shape {X.shape}, expected a DataFrame or an array (n, "
                        "columns). Reshape one column by X[:, None]")
    return dict(enumerate(X.T))


def numbers_of(table: Mapping, names: list) -> np.ndarray:
    """Some columns as numbers, (n, columns).

    Raises:
        DataError: text, dates or a missing cell, by column and row.
    """
    data = np.empty((len(next(iter(table.values()))), len(names)))
    for j, name in enumerate(names):
        data[:, j] = floats(table[name], f"column {name!r} of X", "Convert or drop the column, or "
                            f"make it a grouping, effects={{{name!r}: ['1']}}")
        if not np.isfinite(data[:, j]).all():
            row = int(np.argmin(np.isfinite(data[:, j])))
            raise DataError(f"X contains NaN or infinity: column {name!r} is {data[row, j]} in row "
                            f"{row}. Drop this row, or fill in the value")
    return data


def labels_of(table: Mapping, name: Hashable) -> np.ndarray:
    """A grouping's labels, none of which may be missing, as text, numbers or dates.

    Raises:
        DataError: one that is missing; labels of several kinds, which have no order.
    """
    values = np.asarray(table[name])
    is_na = missing(values)
    if is_na.any():
        raise DataError(f"the grouping {name!r} is missing in row {int(np.argmax(is_na))}, but "
                        f"every row must belong to a group. Drop rows without a group")
    if values.dtype.kind != "O":
        return values
    is_str = np.array([isinstance(v, str) for v in values], bool)
    if is_str.any() and not is_str.all():
        raise DataError(f"the grouping {name!r} has text, such as {values[is_str][0]!r}, and other "
                        f"values, such as {values[~is_str][0]!r}, as labels. Convert the column to "
                        f"one type, such as X[{name!r}].astype(str)")
    array = np.asarray(values.tolist())
    return array if array.dtype.kind in "biufU" and array.shape == values.shape else values


def codes_of(labels: np.ndarray, values: np.ndarray, name: Hashable) -> np.ndarray:
    """The numbers of labels among the fitted ones, −1 of one that is new.

    Raises:
        DataError: a label that is written like a fitted one, and has another type.
    """
    codes = np.full(len(values), -1)
    if (labels.dtype.kind in NUMBERS) == (values.dtype.kind in NUMBERS) and (
            labels.dtype.kind == values.dtype.kind or values.dtype.kind in NUMBERS):
        codes = positions(labels, values)
    refuse_other_type(f"grouping {name!r}", np.unique(values[codes < 0]), labels)
    return codes


def refuse_dependent(estimator: str, what: str, x: np.ndarray, names: Sequence) -> None:
    """Refuses linearly dependent columns x (n, d), centred and none constant, before anything is
    compiled: their coefficients have no separate estimates, nor a restricted likelihood.

    Raises:
        DataError: by the names of the columns.
    """
    norms = np.linalg.norm(x, axis=0)
    triangle = np.linalg.qr(x / np.where(norms > 0, norms, 1.0), mode="r")
    _, values, axes = np.linalg.svd(triangle)
    rank = int((values > DEPENDENT * values.max(initial=0.0)).sum())
    if rank < len(names):
        involved = np.abs(axes[rank:]).max(0) > DEPENDENT**0.5
        linked = [name for name, flag in zip(names, involved, strict=True) if flag]
        raise DataError(f"{estimator}.fit: the {what} {listed(linked)} are linearly dependent, so "
                        "their coefficients cannot be estimated separately. Drop one of them")
