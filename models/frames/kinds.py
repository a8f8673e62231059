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
    found = str(column.dtype)
    if getattr(column.dtype, "kind", "O") not in "Mm" and not found.startswith(
        ("date", "time", "duration", "period")
    ):
        cell = _first(column) if found == "object" else None
        if not isinstance(cell, DATES):
            return
        found = type(cell).__name__
    raise DataError(f"{describe_dates(name, found)}, or make categories of them, such as "
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
        _often(values) or _binary(values)
    )


def has_few_values(values) -> bool:
    """Whether numbers, whole or not, take so few values that a normal fitted to them can shrink
    onto one; NaN unseen."""
    values = np.asarray(values, float)
    few = _has_few_values(values[:GLANCE], whole=False) and (
        len(values) <= GLANCE or _has_few_values(values, whole=False))
    return few and _often(values)


def _has_few_values(values, whole: bool = True) -> bool:
    seen = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if whole and values.dtype.kind == "f" and not (seen == np.floor(seen)).all():
        return False
    return len(np.unique(seen)) <= MAX_CATEGORIES


def _often(values) -> bool:
    seen = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    distinct = len(np.unique(seen))
    return distinct > 1 and len(seen) >= OFTEN * distinct


def _binary(values) -> bool:
    return np.array_equal(
        np.unique(values[~np.isnan(values)] if values.dtype.kind == "f" else values), [0, 1]
    )


def usual(column, name: str) -> str:
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
