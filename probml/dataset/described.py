"""The columns of a user's data described: type, missing values, range, an example.

Data are as a user gives them to a fit, before they are coded as numbers: a table of any library, an
array, a list of sequences, or a mapping of name → values.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from probml.dataset.frames import as_pandas, is_table, names_of
from probml.errors import counted
from probml.numerics.process.libraries import pd
from probml.typing import ArrayLike, DataLike

CATEGORIES = 8  # categories that a description lists
MAX_DESCRIBED_COLUMNS = 200  # columns of one array up to which each is described by itself


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: the user's name. type: "number", "integer", "boolean", "category", "text" or "date".
        rows: the number of values, missing ones included. missing: the number of missing ones.
        low, high, middle: minimum, maximum and median of numbers, minimum and maximum of dates as
            text; `middle` of text is the most frequent value.
        labels: the first CATEGORIES categories or distinct texts. distinct: the number of all.
        example: the first value that is not missing.
    """

    name: str
    type: str
    rows: int
    missing: int
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    middle: ArrayLike | None = None
    labels: tuple = ()
    distinct: int = 0
    example: object = None

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers."""
        return self.type in ("number", "integer")

    def record(self) -> dict[str, object]:
        """A row of a table about the columns."""
        share = self.missing / max(self.rows, 1)
        return {"column": self.name, "type": self.type,
                "missing": f"{share:.1%}" if 0.0005 < share or not share else "< 0.1%",
                "range": self._range(), "example": written(self.example)}

    def _range(self) -> str:
        if self.low is not None:
            return f"{written(self.low)} to {written(self.high)}"
        if not self.labels:
            return ""
        more = f", … ({counted(self.distinct, 'value')})" * (self.distinct > len(self.labels))
        return ", ".join(map(written, self.labels)) + more


def written(value: object) -> str:
    """A value as it is shown: numbers with five significant digits."""
    if value is None:
        return ""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        number = float(value)
        return f"{number:.5g}" if abs(number) < 1e5 or number != int(number) else f"{number:.0f}"
    text = " ".join(str(value).split())
    return text if len(text) <= 40 else f"{text[:39]}…"


def described(data: DataLike, name: str = "column") -> list[Column]:
    """The columns of what a user gave.

    Args:
        data: a table, a column, an array (n,) or (n, d), a list of sequences of these, or a mapping
            of name → such values.
        name: of a column, or of columns, without a name of their own.
    """
    data = as_pandas(data)
    if is_table(data):
        return [column_of(str(key), data[key] if hasattr(data, "loc") and data.columns.is_unique
                          else data.iloc[:, j]) for j, key in enumerate(names_of(data))]
    if isinstance(data, Mapping):
        return [column for key, values in data.items() for column in described(values, str(key))]
    if hasattr(data, "toarray"):
        data = data.toarray()
    if isinstance(data, Sequence) and not isinstance(data, str):
        data = _together(data)
    if getattr(data, "name", None) is not None:
        name = str(data.name)
    values = np.asarray(data)
    if values.ndim < 2:
        return [column_of(name, data if hasattr(data, "dtype") else np.atleast_1d(values))]
    flat = values.reshape(-1, values.shape[-1])
    if flat.shape[1] == 1:
        return [column_of(name, flat[:, 0])]
    # many columns are described as one
    if flat.shape[1] > MAX_DESCRIBED_COLUMNS:
        return [column_of(f"{name} ({counted(flat.shape[1], 'column')})", flat.ravel())]
    return [column_of(f"{name} {j}" if name == "column" else f"{name}[{j}]", flat[:, j])
            for j in range(flat.shape[1])]


def _together(data: Sequence) -> np.ndarray:
    """Rows as an array, sequences of unequal lengths concatenated."""
    parts = [np.asarray(as_pandas(part)) for part in data]
    if parts and len({part.shape for part in parts}) > 1 and parts[0].ndim:
        return np.concatenate([part.reshape(len(part), -1) for part in parts])
    try:
        return np.asarray(data)
    except ValueError:
        return np.asarray(data, object)


def column_of(name: str, values: object) -> Column:
    """One column: a pandas Series or an array (n,)."""
    series = values if isinstance(values, pd.Series) else pd.Series(np.asarray(values))
    kind, count = series.dtype, len(series)
    if kind.kind == "O" and not isinstance(kind, pd.CategoricalDtype):
        series = series.infer_objects()
        kind = series.dtype
    is_na = series.isna()
    known = series[~is_na]
    shared: dict[str, Any] = {"name": name, "rows": count, "missing": int(is_na.sum())}
    if not len(known):
        return Column(type="number" if pd.api.types.is_numeric_dtype(kind) else "text", **shared)
    example = known.iloc[0]
    if pd.api.types.is_bool_dtype(kind):
        return Column(type="boolean", labels=tuple(map(bool, sorted(known.unique()))),
                      distinct=known.nunique(), example=bool(example), **shared)
    if pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_complex_dtype(kind):
        numbers = known.to_numpy(float)
        is_integer = bool((numbers == np.round(numbers)).all() and np.abs(numbers).max() < 2**53)
        number = int if is_integer else float
        return Column(type="integer" if is_integer else "number", low=number(numbers.min()),
                      high=number(numbers.max()), middle=float(np.median(numbers)),
                      distinct=int(known.nunique()) if is_integer else 0, example=number(example),
                      **shared)
    if pd.api.types.is_datetime64_any_dtype(kind) or isinstance(kind, pd.PeriodDtype):
        low, high = known.min(), known.max()
        return Column(type="date", low=_day(low), high=_day(high), example=_day(example), **shared)
    labels = (list(kind.categories) if isinstance(kind, pd.CategoricalDtype)
              else list(known.astype(str).unique()))
    order = labels if isinstance(kind, pd.CategoricalDtype) else sorted(labels)
    is_cat = len(order) <= max(CATEGORIES, count // 2)
    mode = str(known.astype(str).mode().iloc[0])
    return Column(type="category" if is_cat else "text", labels=tuple(map(str, order[:CATEGORIES])),
                  distinct=len(order), middle=mode, example=str(example), **shared)


def _day(value: object) -> str:
    """A date without a time of day where that is midnight."""
    return str(value).removesuffix(" 00:00:00")
