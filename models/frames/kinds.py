"""Which kind a column of data is, where nobody said: one rule for every estimator and for learning
structure.

| values | kind |
|---|---|
| text, booleans, categories | categorical |
| 0 and 1; at most `MAX_CATEGORIES` distinct whole numbers, each seen `OFTEN` times | categorical |
| other numbers, also in a column of objects | a number |
| dates and times | refused |
"""

import datetime

import numpy as np

from probml import DataError
from probml.errors import describe_dates
from probml.numerics.process.libraries import pd

MAX_CATEGORIES = 10  # distinct values up to which whole numbers are categories
OFTEN = 5  # how often each of them is seen, on average
# in a column of objects
DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
NUMBERS = ("integer", "floating", "mixed-integer-float")  # of objects, as pandas names them
GLANCE = 1000  # rows that are looked at first: most columns of numbers end there


def refuse_dates(column, name: str) -> None:
    """Refuse a column of dates, times or lengths of time.

    Raises:
        DataError: naming the column, and what to do.
    """
    dtype_name = str(column.dtype)
    if getattr(column.dtype, "kind", "O") not in "Mm" and not dtype_name.startswith(
        ("date", "time", "duration", "period")
    ):
        cell = _first(column) if dtype_name == "object" else None
        if not isinstance(cell, DATES):
            return
        dtype_name = type(cell).__name__
    raise DataError(f"{describe_dates(name, dtype_name)}, or make categories of them, such as "
                    "column.dt.month.astype(str)")


def _first(column):
    """The first cell that is seen."""
    return next((cell for cell in column if pd.isna(cell) is not True), None)  # of several: several


def discrete(values) -> bool:
    """Whether numbers are few distinct whole ones, NaN unseen: more than one, and each seen several
    times; or 0 and 1."""
    values = np.asarray(values)
    return _has_few_values(values[:GLANCE]) and (len(values) <= GLANCE
                                                 or _has_few_values(values)) and (
        _repeats(values) or _binary(values)
    )


def has_few_values(values) -> bool:
    """Whether numbers, whole or not, take so few values that a normal fitted to them can shrink
    onto one; NaN unseen."""
    values = np.asarray(values, float)
    few_values = _has_few_values(values[:GLANCE], integer=False) and (
        len(values) <= GLANCE or _has_few_values(values, integer=False))
    return few_values and _repeats(values)


def _has_few_values(values, integer: bool = True) -> bool:
    observed = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if integer and values.dtype.kind == "f" and not (observed == np.floor(observed)).all():
        return False
    return len(np.unique(observed)) <= MAX_CATEGORIES


def _repeats(values) -> bool:
    observed = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    n_distinct = len(np.unique(observed))
    return n_distinct > 1 and len(observed) >= OFTEN * n_distinct


def _binary(values) -> bool:
    return np.array_equal(
        np.unique(values[~np.isnan(values)] if values.dtype.kind == "f" else values), [0, 1]
    )


def default_kind(column, name: str) -> str:
    """The kind of a column of a table: "categorical" or "normal".

    Raises:
        DataError: dates.
    """
    refuse_dates(column, name)
    values = _numbers(column)
    return "categorical" if values is None or discrete(values) else "normal"


def _numbers(column) -> np.ndarray | None:
    """A column of numbers as floats, NaN unseen; None where it holds anything else. Numbers that
    stand there as objects (`[None, 1.2]`, a row of a transposed table) are numbers none the less:
    as categories every one of them would be a state of its own."""
    if getattr(column.dtype, "kind", "O") in "iuf":
        return column.to_numpy(dtype=float, na_value=np.nan) if hasattr(
            column, "to_numpy"
        ) else column
    if str(column.dtype) != "object":
        return None
    if pd.api.types.infer_dtype(column, skipna=True) not in NUMBERS:
        return None
    values = pd.Series(column).to_numpy(float, na_value=np.nan)
    return None if np.isnan(values).all() else values
