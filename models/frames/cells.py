"""The cells of one column of a user's table: as numbers, or as codes of its labels."""

from numbers import Number

import numpy as np

from probml.dataset.arrays import distinct, missing
from probml.errors import DataError, KindError, shortly, type_of
from probml.models.frames.kinds import default_kind, refuse_dates


def column_of(X, j: int):
    return X.iloc[:, j] if hasattr(X, "iloc") else X[:, j]


def usual_of(column, name: str) -> str:
    """The kind of a column that nobody named."""
    # an array of objects: text in it has to be named
    if not hasattr(column, "iloc") and column.dtype.kind == "O":
        try:
            column = column.astype(float)
        except (TypeError, ValueError):
            return "normal"
    return default_kind(column, name)


def numbers_of(column, name: str) -> np.ndarray:
    """A column as floats, NaN unseen.

    Raises:
        DataError: dates, which would be numbers in units that nobody has said; text. KindError:
            a cell that is no number.
    """
    if hasattr(column, "dtype"):
        refuse_dates(column, name)
    try:
        if hasattr(column, "to_numpy"):
            return column.to_numpy(dtype=float, na_value=np.nan)
        return np.asarray(column, float)
    except (TypeError, ValueError):
        for i, value in enumerate(column):
            if isinstance(value, str):
                raise DataError(
                    f"{name} is {value!r} in row {i}, expected a number. If the column is "
                    f"categorical, use NaiveBayes or MixedMixture with categorical=[...]"
                ) from None
        row, bad = next(((i, value) for i, value in enumerate(column)
                         if not isinstance(value, Number)), (0, column))
        raise KindError(f"{name} is {type_of(bad)}, {shortly(bad)}, in row {row}, expected one "
                        "number per cell (float() argument must be a string or a real number). "
                        "Give a number, or drop the column") from None


def labels_of(column, name: str) -> tuple:
    """The distinct values that are seen, in the order of a pandas Categorical, else sorted, numbers
    before text."""
    if hasattr(column, "cat"):
        return tuple(column.cat.categories.tolist())
    values = np.asarray(column) if not hasattr(column, "to_numpy") else column.to_numpy()
    is_missing = missing(values)
    observed = values[~is_missing] if is_missing.any() else values
    if values.dtype.kind == "f" and np.isinf(observed).any():
        raise DataError(f"{name} contains infinity, which is not a category. Use NaN for a missing "
                        f"value")
    if values.dtype.kind != "O":
        return tuple(distinct(observed).tolist())
    for value in observed.tolist():
        if not isinstance(value, str | bool | int | float | np.generic):
            raise KindError(f"{name} contains {type_of(value)}, but each value of the argument "
                            f"must be a string or a number. Convert the column to text")
    return tuple(sorted(set(observed.tolist()), key=lambda v: (isinstance(v, str), v)))


def codes_of(column, labels: tuple) -> np.ndarray:
    """Codes into labels, −1 where unseen, −2 where the label is none of them."""
    values = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
    if values.dtype.kind in "mM" and hasattr(column, "astype"):  # else as counts of nanoseconds
        values = np.asarray(column.astype(object), object)
    numeric = values.dtype.kind in "iufb" and not any(isinstance(label, str) for label in labels)
    if not numeric or not labels:
        lookup, is_missing = {label: code for code, label in enumerate(labels)}, missing(values)
        result = np.full(len(values), -1, np.int32)
        result[~is_missing] = [lookup.get(v, -2) for v in values[~is_missing].tolist()]
        return result
    categories = np.asarray(labels, float)
    order = np.argsort(categories)
    positions = np.minimum(np.searchsorted(categories, values, sorter=order), len(categories) - 1)
    codes = order[positions]
    result = np.where(categories[codes] == values, codes, -2).astype(np.int32)
    return np.where(np.isnan(values), -1, result) if values.dtype.kind == "f" else result
