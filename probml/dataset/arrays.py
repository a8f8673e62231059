"""A user's arrays, tables and lists as NumPy arrays: numbers, or codes with labels."""

import enum
import sys
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from probml.dataset import frames
from probml.dataset.sources import arrow
from probml.errors import DataError, RowError, describe_dates, shortly, untraced
from probml.numerics.process.libraries import pd

UNSEEN = "Correct the value, or use NaN or None if it is missing."
NUMBERS = (Real, Decimal, np.bool_)


class Categories(enum.IntEnum):
    """Where the labels of a column come from."""

    FOUND = 0  # from its values, sorted here
    LISTED = 1  # from an unordered categorical column
    ORDERED = 2  # from an ordered categorical column


@dataclass(frozen=True, eq=False)
class Raw:
    """A user's column, before it is checked against a model."""

    values: np.ndarray  # numbers, missing ones NaN; with labels codes, missing ones -1
    labels: tuple | None = None
    categorical: Categories = Categories.FOUND

    @property
    def missing(self) -> np.ndarray:
        """The mask of missing cells."""
        if self.labels is not None:
            return self.values < 0
        return (np.isnan(self.values) if self.values.dtype.kind == "f"
                else np.zeros(self.values.shape, bool))

    @property
    def in_order(self) -> bool:
        """Whether the labels have an order: an ordered categorical's, or that of sorted numbers."""
        labels = self.labels or ()
        return self.categorical is Categories.ORDERED or all(
            isinstance(label, NUMBERS) for label in labels) and list(labels) == sorted(labels)


def missing(values: np.ndarray) -> np.ndarray:
    """The mask of cells that are NaN, None or NA."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind != "O":
        return np.zeros(values.shape, bool)
    if pandas := sys.modules.get("pandas"):
        return pandas.isna(values)
    return np.array([v is None or isinstance(v, float | np.floating) and v != v
                     for v in values.ravel()], bool).reshape(values.shape)


def distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values of a column, sorted; of integers near each other by counting, a tenth of
    the time of a sort."""
    if values.dtype.kind in "iu" and len(values) and np.can_cast(values.dtype, np.int64):
        low = int(values.min())
        if int(values.max()) - low < max(len(values) // 2, 1024):
            occurs = np.bincount(values.astype(np.int64, copy=False) - low)
            return (np.flatnonzero(occurs) + low).astype(values.dtype)
    return np.unique(values)


def positions(labels: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The place of each value among sorted labels, −1 where it is none of them; of integers near
    each other from a table, a fifth of the time of a search."""
    if len(values) and all(part.dtype.kind in "iu" and np.can_cast(part.dtype, np.int64)
                           for part in (labels, values)):
        low, high = int(labels[0]), int(labels[-1])
        if (high - low < max(len(values) // 2, 1024)
                and low <= int(values.min()) and int(values.max()) <= high):
            table = np.full(high - low + 1, -1)
            table[labels.astype(np.int64) - low] = np.arange(len(labels))
            return table[values.astype(np.int64, copy=False) - low]
    places = np.minimum(np.searchsorted(labels, values), len(labels) - 1)
    return np.where(labels[places] == values, places, -1)


class Labelled(np.ndarray):
    """An array of codes with their labels, of a column that was read before."""

    labels: tuple | None = ()
    categorical = Categories.FOUND

    @classmethod
    def of(cls, codes: np.ndarray, labels: tuple | None, categorical: Categories):
        out = np.asarray(codes).view(cls)
        out.labels, out.categorical = labels, categorical
        return out


def as_raw(what: str, value: object, rows: bool):
    """A user's value as an array; with `rows`, its first axis is that of rows, of which there must
    be some."""
    if isinstance(value, Labelled) and value.labels:
        return Raw(np.asarray(value).astype(np.int32), value.labels, value.categorical)
    try:
        raw = _from_library(what, frames.to_pandas(value), rows)
    except Exception as error:
        untraced(what, value)
        # the text of a file is decoded here
        undecodable = (isinstance(error, UnicodeError)
                       or type(error).__module__.startswith("pyarrow"))
        if isinstance(error, DataError) or not undecodable:
            raise
        raise DataError(f"{what} cannot be read ({error}). If it contains text that is not UTF-8, "
                        "give the encoding when you read the file, such as pandas.read_csv(path, "
                        "encoding='latin-1')") from None
    if rows and raw.values.ndim == 0:
        raise DataError(f"{what} must have one value per row, got a single value. Pass a list or "
                        "an array whose first axis is the rows. If the value is the same in all "
                        "rows, give it as an argument of the model, model(name=value).")
    if rows and len(raw.values) == 0:
        raise DataError(f"the data are empty: {what} has 0 rows, expected at least 1. Check how "
                        "the data were read or filtered.")
    return raw


def _from_library(what: str, value: Any, rows: bool):
    """A value of pyarrow, pandas or NumPy as an array."""
    module = type(value).__module__.partition(".")[0]
    if module == "pyarrow" and hasattr(value, "schema"):  # several columns as one array
        value, module = value.to_pandas(), "pandas"
    elif module == "pyarrow" and hasattr(value, "to_pandas"):
        value = arrow.from_arrow(value)
        module = "numpy" if isinstance(value, np.ndarray) else "pandas"
    return (_from_pandas if module == "pandas" else _from_numpy)(what, value, rows)


def _from_pandas(what: str, value: "pd.Series | pd.DataFrame | pd.Index", rows: bool):
    """A pandas column or table as an array; categories and text as codes."""
    if isinstance(value, pd.Index | pd.api.extensions.ExtensionArray):
        value = pd.Series(value)
    columns = ([value.iloc[:, j] for j in range(value.shape[1])] if isinstance(value, pd.DataFrame)
               else [value])
    dtype = getattr(columns[0], "dtype", None) if columns else None
    if isinstance(dtype, pd.CategoricalDtype) and all(column.dtype == dtype for column in columns):
        codes = np.stack([column.cat.set_categories(dtype.categories).cat.codes
                          for column in columns], 1).astype(np.int32)
        return Raw(codes if value.ndim == 2 else codes[:, 0], tuple(dtype.categories.tolist()),
                   Categories.ORDERED if dtype.ordered else Categories.LISTED)
    if isinstance(dtype, pd.StringDtype) and value.ndim == 1:
        codes, labels = pd.factorize(value)  # −1: missing
        order = np.argsort(np.asarray(labels, object).astype(str))
        place = np.append(np.argsort(order), -1).astype(np.int32)
        return Raw(place[codes], tuple(str(label) for label in labels[order]))
    return _from_numpy(what, value.to_numpy() if hasattr(value, "to_numpy") else value, rows)


def _from_numpy(what: str, value: object, rows: bool):
    """An array, or what NumPy makes an array of; text as codes."""
    if isinstance(value, np.ma.MaskedArray) and value.dtype.kind in "biuf":
        value = np.ma.filled(value.astype(np.result_type(value.dtype, np.float32)), np.nan)
    elif isinstance(value, np.ma.MaskedArray):
        value = np.where(np.ma.getmaskarray(value), np.array(None), value.data.astype(object))
    try:
        a = np.asarray(value)
    except ValueError:
        raise DataError(f"{what} is not a rectangular array, because its lists have different "
                        "lengths. Pad the shorter lists with NaN.") from None
    if a.dtype.kind == "U" and not isinstance(value, np.ndarray):
        a = np.array(value, object)  # NumPy would write the numbers and NaN beside text as text
    if a.dtype.kind in "UTO":
        return _from_objects(what, a.astype(object, copy=False), rows)
    if a.dtype.kind in "biu" or a.dtype.kind == "f" and a.dtype.itemsize in (4, 8):
        return Raw(a if a.dtype.isnative else a.astype(a.dtype.newbyteorder("=")))
    if a.dtype.kind == "f" or a.dtype.name.startswith(("bfloat", "float")):
        return Raw(a.astype(np.float32 if a.dtype.itemsize < 4 else np.float64))
    if a.dtype.kind in "mM":
        raise DataError(f"{describe_dates(what, a.dtype)}, or to text if they name groups, "
                        "column.astype(str)")
    raise DataError(f"{what} has dtype {a.dtype}, expected real numbers, labels or booleans. "
                    "Convert the values to one of these.")


def _from_objects(what: str, a: np.ndarray, rows: bool):
    """An array of objects: numbers and missing values as floats, text as codes."""
    flat = a.ravel()
    if Decimal in set(map(type, flat.tolist())):  # comparisons with its signalling NaN raise
        flat = np.array([np.nan if isinstance(v, Decimal) and v.is_nan() else v
                         for v in flat.tolist()], object)
    is_na = missing(flat)
    known = flat[~is_na].tolist()
    types = set(map(type, known))
    bad_types = [kind for kind in types if not issubclass(kind, (*NUMBERS, str))]
    if all(issubclass(kind, NUMBERS) for kind in types):
        out = np.array(known) if len(known) == flat.size else np.where(is_na, np.nan, flat).astype(
            np.float64
        )
        return Raw((out if out.dtype.kind in "biuf" else out.astype(np.float64)).reshape(a.shape))
    if not bad_types:
        return coded(a, is_na.reshape(a.shape))
    if a.ndim == 1 and types <= {list, tuple, np.ndarray}:
        return _from_numpy(what, flat.tolist(), rows)
    bad = np.array([type(v) in bad_types for v in flat.tolist()]) & ~is_na
    deny(bad.reshape(a.shape), what, a, "numbers, labels or None", rows,
         f"Convert values of type {bad_types[0].__name__} to numbers or text.")


def coded(a: np.ndarray, is_na: np.ndarray):
    """Values as codes of their sorted distinct labels, numbers before text."""
    known = a[~is_na].tolist()
    labels = sorted(set(known), key=lambda v: (isinstance(v, str), v))
    "".join(v for v in labels if isinstance(v, str)).encode()  # raises for lone surrogates
    lookup = {label: code for code, label in enumerate(labels)}
    codes = np.full(a.shape, -1, np.int32)
    codes[~is_na] = [lookup[v] for v in known]
    return Raw(codes, tuple(str(v) if isinstance(v, str) else v for v in labels))


def deny(bad: np.ndarray, what: str, values: "np.ndarray | Raw | None", must: str,
         rows: bool = True, hint: str = UNSEEN):
    """Raise an error about the first cell in the mask `bad`: its place, what it must be, its value.
    """
    if bad.any():
        i = tuple(int(j) for j in np.unravel_index(np.argmax(bad), bad.shape))
        got = ("a missing cell" if values is None else (values.labels or ())[values.values[i]]
               if isinstance(values, Raw) else values[i])
        got = (got.tolist() if isinstance(got, np.ndarray) else shortly(str(got))
               if isinstance(got, str) and values is not None else got)
        cell = i[1:] if rows else i
        where = f"cell {cell[0] if len(cell) == 1 else cell}" * bool(cell)
        text = f"{what} must be {must}, got {got}"
        if not rows or not i:
            raise DataError(f"{text}{f' in {where}' * bool(cell)}. {hint}")
        raise RowError(f"{text} in ", i[0], f"{f', {where}' * bool(cell)}. {hint}")
