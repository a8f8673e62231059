"""Text tables as the command line reads them: what pandas makes of a file is what the file says, or
it is refused; what may not be meant is said."""

import io
import sys
import warnings
from typing import Any

import pandas as pd

from probml.errors import DataError, listed

OTHERS = (";", "\t", "|", ",")  # separators of tables that are not meant here
# of the cells of a column of text, from which on it is taken for numbers gone wrong
MAX_ODD_SHARE = 0.5
SHOWN = 3  # words of a column that a warning shows


def read_text(path: str, comma: str) -> pd.DataFrame:
    """A table of text; "-" is standard input.

    Raises:
        DataError: names of columns that are there twice, rows that are longer than their header,
            cells that are parted by something else.
    """
    whole = sys.stdin.read() if path == "-" else None

    def read(**more: Any) -> pd.DataFrame:
        # read in pieces a long file has 1 and '1' in one column; of rows that are longer than their
        # header pandas would take the first cell for an index, and move the others
        return pd.read_csv(path if whole is None else io.StringIO(whole), sep=comma,
                           low_memory=False, index_col=False, **more)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            out = read()
    except pd.errors.ParserWarning:
        names = list(read(nrows=0).columns)
        _refuse_other(path, names, comma)
        raise DataError(f"'{path}': expected as many cells in every row as names in the first "
                        f"line, {len(names)} ({listed(names)}), got rows with more cells: give "
                        f"every column a name, and separate cells by commas (by tabs in "
                        f".tsv)") from None
    head = read(header=None, nrows=1, dtype=str, keep_default_na=False).iloc[0]
    twice = head[head.duplicated() & (head != "")]
    if len(twice):
        raise DataError(f"'{path}' has {int((head == twice.iloc[0]).sum())} columns named "
                        f"'{twice.iloc[0]}': rename or drop all but one")
    _refuse_other(path, list(out.columns), comma)
    text = [name for name, column in out.items() if not pd.api.types.is_numeric_dtype(column)]
    holed = [name for name in text if out[name].isna().any()]
    if holed:
        _tell_unseen(read(usecols=[out.columns.get_loc(name) for name in holed], dtype=str,
                          keep_default_na=False), out)
    for name in text:
        _tell_numbers(name, out[name])
    return out


def _refuse_other(path: str, names: list, comma: str) -> None:
    """Refuse a table of one column whose name has another separator in it."""
    head = str(names[0])
    other = next((mark for mark in OTHERS if mark != comma and mark in head), None)
    if len(names) == 1 and other is not None:
        raise DataError(f"'{path}' has one column, {head!r:.80}: the separator is {other!r}, "
                        f"expected {comma!r}. Rewrite the file, pandas.read_csv({path!r}, "
                        f"sep={other!r}, decimal=',').to_csv('new.csv', index=False), with "
                        f"decimal='.' if the decimal mark is a point")


def _tell_unseen(said: pd.DataFrame, out: pd.DataFrame) -> None:
    """Of columns of text the cells that are not empty, and are read as unseen: None, NA, null."""
    for name, column in said.items():
        words = column[out[name].isna().to_numpy() & (column.str.strip() != "").to_numpy()]
        if len(words):
            warnings.warn(f"column '{name}': {len(words)} cells with the text "
                          f"{listed(list(words.unique()[:SHOWN]))} are read as missing; if such a "
                          f"text is a value, spell it differently in the file",
                          RuntimeWarning, stacklevel=2)


def _tell_numbers(name: str, column: pd.Series) -> None:
    """Of a column of text that is numbers but for some cells, which these are."""
    seen = column.dropna().astype(str)
    odd = seen[pd.to_numeric(seen, errors="coerce").isna().to_numpy()]
    if len(seen) and 0 < len(odd) < MAX_ODD_SHARE * len(seen):
        warnings.warn(f"column '{name}' is numeric except for {len(odd)} of {len(seen)} cells, "
                      f"with the text {listed(list(odd.unique()[:SHOWN]))}, so the column is read "
                      f"as text; if these cells are missing, leave them empty in the file",
                      RuntimeWarning, stacklevel=2)
