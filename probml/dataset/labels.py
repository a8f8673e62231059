"""The index, the dates and the column names of pandas tables and columns, and answers about their
rows, or about following steps, with the same."""

import datetime
import sys
import warnings
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from probml.errors import listed
from probml.numerics.process.libraries import pd
from probml.typing import ArrayLike

MIN_DATES = 3  # dates that pandas needs to infer a frequency
# of a series that is regular but for gaps: its least length, the greatest share of gaps, and what
# other steps may differ by, as months do
MIN_DATED_STEPS, MAX_GAPS, MAX_UNEVEN = 8, 0.1, 0.15


class Labels(NamedTuple):
    """Labels of a pandas table or column.

    Attributes:
        index: of the rows: the table's, or its column of dates.
        names: of the columns; of a Series its own.
        column: whether it is a Series.
        dates: the name of the column of dates that is the index; None: the index is the table's.
    """

    index: "pd.Index"
    names: tuple[Hashable, ...]
    column: bool
    dates: Any = None

    def table(self, values: ArrayLike, names: Sequence | None = None,
              index: "pd.Index" = None) -> "pd.DataFrame":
        """Numbers (n,) or (n, c) as a Series or a DataFrame with these labels.

        Args:
            names: of the columns, instead of the table's; of a Series, one.
            index: instead of the table's.
        """
        values, index = np.asarray(values), self.index if index is None else index
        if self.column and names is None:
            values = values.reshape(len(index))
        single = values.ndim == 1 and (self.column or names is not None)
        names = self.names if names is None else tuple(names)
        if single:
            out = pd.Series(values, index=index, name=names[0])
            return out if self.dates is None else out.to_frame().reset_index(names=[self.dates])
        columns = pd.Index(names, tupleize_cols=False)
        out = pd.DataFrame(values.reshape(len(index), -1), index=index, columns=columns)
        return out if self.dates is None else out.reset_index(names=[self.dates])

    def following(self, steps: int) -> "pd.Index":
        """The index of the following steps: dates continue by their frequency, integers by their
        difference; otherwise steps are numbered from 1."""
        index, numbered = self.index, pd.RangeIndex(1, steps + 1, name="step")
        if isinstance(index, pd.PeriodIndex):
            return pd.period_range(index[-1] + 1, periods=steps, name=index.name)
        if isinstance(index, pd.DatetimeIndex | pd.TimedeltaIndex):
            freq = _frequency(index)
            if freq is None:
                warnings.warn(
                    "the dates of X have no regular frequency (the last are "
                    f"{listed(map(str, index[-2:]))}), so the forecast has the step numbers 1 "
                    f"to {steps} instead of dates. Give X a regular frequency, X.asfreq('D') or "
                    "X.resample('MS').mean(); missing steps may be NaN", RuntimeWarning,
                    stacklevel=5)
                return numbered
            series = pd.date_range if isinstance(index, pd.DatetimeIndex) else pd.timedelta_range
            return series(index[-1], periods=steps + 1, freq=freq, name=index.name)[1:]
        if not pd.api.types.is_integer_dtype(index.dtype):
            return numbered
        gaps = np.unique(np.diff(index.to_numpy())) if len(index) > 1 else np.ones(1, int)
        if len(gaps) != 1 or not gaps[0]:
            return numbered
        first, freq = int(index[-1]), int(gaps[0])
        return pd.RangeIndex(first + freq, first + freq * (steps + 1), freq, name=index.name)


def tables_of(labels: Iterable[Labels | None], parts: Iterable, names: Sequence | None = None,
              ahead: bool = False, framed: bool = False) -> list:
    """Answers about sequences, (steps, ...) each, as Series or DataFrames with the labels of the
    sequences.

    Args:
        labels: of each sequence; None for an array, whose answer is an array.
        names: of the columns, instead of the tables'; of an answer with one axis, one.
        ahead: whether the answers are about the following steps.
        framed: whether answers about arrays are DataFrames, too.
    """
    out = []
    for label_set, part in zip(labels, parts, strict=True):
        if label_set is not None:
            part = label_set.table(part, names, label_set.following(len(part)) if ahead else None)
        out.append(pd.DataFrame(part, columns=names) if label_set is None and framed else part)
    return out


def left_out(index: "pd.Index") -> tuple[int, Any]:
    """How many dates an index leaves out that is regular but for a few gaps, and the date before
    the first; (0, None) of any other index."""
    if (not isinstance(index, pd.DatetimeIndex | pd.PeriodIndex) or len(index) < MIN_DATED_STEPS
        or index.hasnans or isinstance(index, pd.DatetimeIndex) and _frequency(index) is not None):
        return 0, None
    gaps = np.diff(index.asi8).astype(float)
    ratio = gaps / (np.median(gaps) or np.nan)
    is_gap = ratio > 1.5
    if not 0 < is_gap.mean() < MAX_GAPS or (np.abs(ratio[~is_gap] - 1) > MAX_UNEVEN).any():
        return 0, None
    return int(np.round(ratio[is_gap] - 1).sum()), index[int(np.argmax(is_gap))]


def _frequency(index: "pd.Index") -> object:
    """The frequency of dates or durations; None if there is none."""
    if index.freq is not None or index.hasnans or len(index) < 2:
        return index.freq
    if len(index) < MIN_DATES:
        return index[1] - index[0] if index[1] > index[0] else None
    return type(index)(index, freq="infer").freq


def labels_of(table: object) -> tuple[ArrayLike, Labels | None]:
    """A pandas table without its column of dates, if it has one, or a column, with its labels; None
    for labels of an array."""
    if "pandas" not in sys.modules:  # nobody holds a table who has not imported it
        return table, None
    if isinstance(table, pd.Series):
        return table, Labels(table.index, (table.name,), True)
    if not isinstance(table, pd.DataFrame):
        return table, None
    dated = [j for j in range(table.shape[1]) if _holds_dates(table.iloc[:, j])]
    if len(dated) != 1 or table.shape[1] < 2:
        return table, Labels(table.index, tuple(table.columns), False)
    name, dates = table.columns[dated[0]], table.iloc[:, dated[0]]
    numbers = table.drop(columns=name)
    index = pd.Index(pd.to_datetime(dates) if dates.dtype == object else dates)
    return numbers, Labels(index, tuple(numbers.columns), False, name)


def _holds_dates(column: "pd.Series") -> bool:
    if isinstance(column.dtype, pd.PeriodDtype) or pd.api.types.is_datetime64_any_dtype(column):
        return True
    known = column.dropna() if column.dtype == object else column[:0]
    return len(known) > 0 and all(isinstance(each, datetime.date) for each in known)
