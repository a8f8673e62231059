"""The columns of a table as the variables of a network: codes of states or numbers, by the one rule
of kinds (kinds.py)."""

import difflib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np

from probml import DataError
from probml.errors import counted, listed, type_of
from probml.models.frames.kinds import default_kind, refuse_dates
from probml.numerics.process.libraries import pd


@dataclass(frozen=True, eq=False)
class Variables:
    """n rows of d columns, discrete ones as codes 0..r−1, continuous ones as floats.

    `guessed`: nobody said the kind, and values that are numbers alone do not tell it; the rule of
        kinds.py did.
    """

    names: tuple[str, ...]
    labels: tuple[tuple | None, ...]  # in code order; None for a continuous column
    columns: tuple[np.ndarray, ...]  # (n,) int32 codes or float64; unseen cells −1 or NaN
    rows: int
    guessed: tuple[bool, ...]

    @property
    def continuous(self) -> list[int]:
        return [j for j, labels in enumerate(self.labels) if labels is None]

    @property
    def unseen(self) -> list[np.ndarray]:
        """Which cells of each column are missing, (n,) each."""
        return [np.isnan(values) if labels is None else values < 0
                for values, labels in zip(self.columns, self.labels, strict=True)]

    @property
    def states(self) -> dict[str, tuple | type]:
        """Column → its labels, or float, as bayesian_network takes them."""
        return {name: float if labels is None else labels
                for name, labels in zip(self.names, self.labels, strict=True)}

    @property
    def status(self) -> str:
        """The whole numbers whose kind was guessed, in words; empty where there are none."""
        notes = []
        for numbers, words in ((False, "few distinct values are treated as categories"),
                               (True, "many distinct values are treated as numbers")):
            names = [name for name, labels, guess in zip(self.names, self.labels, self.guessed,
                                                         strict=True) if guess]
            if names := [name for name in names
                         if (self.labels[self.names.index(name)] is None) == numbers]:
                notes.append(f"columns of integers with {words}: {listed(names)}")
        return "; ".join(notes) + " (use kinds={...} to change this)" * bool(notes)


def use_one_of(names, wrong=None) -> str:
    """The known names for a message, and the one nearest to a wrong name."""
    matches = difflib.get_close_matches(str(wrong), [str(name) for name in names], 1)
    return f"use one of {listed(names)}" + (f". Did you mean {matches[0]!r}?" if matches else "")


def read(data, states: Mapping | None = None, kinds: Mapping | None = None,
         complete: bool = True) -> Variables:
    """A DataFrame, a pyarrow Table or a mapping name → column, as codes and floats.

    Strings, categoricals, booleans and whole numbers of few values are discrete
    (probml.models.kinds), and so is what `states` names; other numbers are continuous. `kinds` says
    otherwise: column → "categorical" or "normal". Codes follow the order of `states`, else of the
        categorical, else the sorted values, numbers before text.

    Args:
        complete: refuse unseen cells.

    Raises:
        DataError: no rows or columns, names that are not distinct strings, unequal lengths, an
        unseen cell, a label that `states` lacks, dates, infinity, or a continuous column that does
        not vary.
    """
    columns = items(data)
    if unknown := [name for name, _ in columns if not isinstance(name, str)]:
        raise DataError(f"the names of columns must be strings, got {unknown[0]!r}. Convert them, "
                        f"data.columns = data.columns.astype(str)")
    if repeat := [name for name, k in Counter(name for name, _ in columns).items() if k > 1]:
        raise DataError(f"the data contain several columns named {repeat[0]!r}. Rename or drop all "
                        f"but one")
    names = tuple(name for name, _ in columns)
    states, kinds = (_check_mapping(what, setting, names)
                     for what, setting in (("states", states), ("kinds", kinds)))
    for name, kind in kinds.items():
        if not isinstance(kind, str) or kind not in ("categorical", "normal"):
            raise DataError(f"kinds={{{name!r}: {kind!r}}}: expected 'categorical' or 'normal'")
        if kind == "normal" and name in states:
            raise DataError(f"column {name!r} is 'normal' in kinds=, but has labels in states=. "
                            f"Drop the column from one of the two")
    series = {name: _series(name, value, complete) for name, value in columns}
    lengths = {name: len(column) for name, column in series.items()}
    rows = max(lengths.values(), default=0)
    if rows == 0:
        raise DataError("the data are empty: expected at least 1 row and 1 column, got "
                        f"{counted(rows, 'row')} and {counted(len(names), 'column')}. Check how "
                        "the table was read or filtered")
    if short := [name for name in names if lengths[name] != rows]:
        raise DataError(f"column {short[0]!r} has {counted(lengths[short[0]], 'row')}, but another "
                        f"column has {rows}. Give all columns the same number of rows")
    parsed = [_column(name, column, states.get(name), kinds.get(name))
              for name, column in series.items()]
    labels, columns, guessed = zip(*parsed, strict=True)
    return Variables(names, labels, columns, rows, guessed)


def _check_mapping(what: str, setting, names: tuple[str, ...]) -> dict:
    """
    Raises:
        DataError: a setting that is no mapping from names of columns.
    """
    if setting is not None and not isinstance(setting, Mapping):
        raise DataError(f"{what}={setting!r:.200}: expected a dict from columns to {what}, such as "
                        f"{what}={{{names[0] if names else 'a'!r}: "
                        f"{'categorical' if what == 'kinds' else ['no', 'yes']!r}}}")
    if unknown := [name for name in setting or () if name not in names]:
        raise DataError(f"{what} contains {unknown[0]!r}, which is not a column; "
                        f"{use_one_of(names, unknown[0])}")
    return dict(setting or {})


def items(data) -> list[tuple]:
    if isinstance(data, Mapping):
        return list(data.items())
    if hasattr(data, "column_names") and hasattr(data, "to_pandas"):  # a pyarrow Table
        return [(name, data.column(j).to_pandas()) for j, name in enumerate(data.column_names)]
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        return [(name, data.iloc[:, j]) for j, name in enumerate(data.columns)]
    raise DataError(f"data: expected a DataFrame, a pyarrow Table or a dict from names to "
                    f"columns, got {type_of(data)}")


def _series(name, value, complete: bool):
    value = np.asarray(value) if hasattr(value,
                                         "__jax_array__") or isinstance(value, jax.Array) else value
    if getattr(value, "ndim", 1) != 1 or isinstance(value, str) or not hasattr(value, "__len__"):
        raise DataError(f"column {name!r}: expected one value per row, got {type_of(value)} of "
                        f"shape {np.shape(value)}. Make it a list or an array of shape (rows,)")
    try:
        column = pd.Series(value).reset_index(drop=True)
    except (TypeError, ValueError) as error:  # a set, which has no order
        raise DataError(f"column {name!r}: expected one value per row, got {type_of(value)} "
                        f"({error}). Make it a list or an array of shape (rows,)") from None
    if column.dtype.kind == "c":
        raise DataError(f"column {name!r} contains complex numbers. Make two columns, one of the "
                        f"real parts and one of the imaginary parts")
    if complete and (hidden := column.isna().to_numpy(bool)).any():
        raise DataError(
            f"column {name!r} is missing in row {int(np.argmax(hidden))} "
            f"({counted(int(hidden.sum()), 'row')} in all), but edge_probabilities does not "
            "support missing values. Drop these rows, data.dropna(). If the graph is known, you "
            "can fit bayesian_network(dag, data=data), and fill in the values by fit.impute(data)"
        )
    return column


def _column(name, column, given, stated=None) -> tuple[tuple | None, np.ndarray, bool]:
    """(labels, codes, guessed?) of a discrete column, (None, floats, guessed?) of a continuous
    one."""
    title = f"column {name!r}"
    if stated != "normal":
        refuse_dates(column, title)
    kind = column.dtype
    if pd.api.types.is_object_dtype(kind) and pd.api.types.infer_dtype(column) in (
        "integer", "floating", "mixed-integer-float"
    ):
        # numbers among None are numbers
        column = column.astype(np.float64) if given is None and stated is None else column
        kind = column.dtype
    is_number = getattr(kind, "kind", "O") in "iuf"
    guess = None
    if given is None and stated is None:
        guess = default_kind(column, title)
        if guess == "normal" and kind.kind in "iu" and column.nunique() == 1:
            guess = "categorical"  # one whole number throughout: no normal can be fitted to it
    if (stated or guess) == "normal":
        try:
            values = _float(name, column.to_numpy(np.float64, na_value=np.nan))
        except (TypeError, ValueError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{title} is 'normal' in kinds=, but contains values that are not "
                            f"numbers ({error}). Convert the column to numbers, or omit it from "
                            f"kinds=") from None
        observed = values[~np.isnan(values)]
        return None, values, guess is not None and bool((observed == np.floor(observed)).all())
    return (*_codes(name, column, given), guess is not None and is_number)


def _codes(name, column, given) -> tuple[tuple, np.ndarray]:
    """(labels, codes) of a discrete column, −1 where a cell is missing.

    Args:
        given: its labels, or how many states it has; None: those that it shows.
    """
    kind = column.dtype
    if given is None and isinstance(kind, pd.CategoricalDtype):
        return tuple(kind.categories.tolist()), column.cat.codes.to_numpy(np.int32)
    try:
        codes, values = pd.factorize(column.astype(object) if isinstance(kind, pd.CategoricalDtype)
                                     else column)
        values = values.tolist()
        given = range(given) if isinstance(given, int | np.integer) else given
        labels = tuple(sorted(values, key=lambda v: (isinstance(v, str), v)) if given is None
                       else given)
        distinct = set(labels)
    except TypeError as error:
        if given is not None:
            raise DataError(f"states={{{name!r}: ...}}: expected a list of labels, such as ['no', "
                            f"'yes'], or the number of states, got {given!r:.60}") from None
        raise DataError(f"column {name!r} contains values that cannot be sorted ({error}), but the "
                        f"labels of a column must have an order. Convert the column to text or "
                        f"numbers") from None
    if len(distinct) < len(labels) or not labels:
        raise DataError(f"column {name!r} is missing in every row, so nothing can be learned about "
                        f"it. Drop the column" if given is None else
                        f"states={{{name!r}: ...}}: expected one or more labels, each once, got "
                        f"{listed(labels)}")
    lookup = {label: code for code, label in enumerate(labels)}
    if unknown := [label for label in values if label not in lookup]:
        row = int(np.argmax(codes == values.index(unknown[0])))
        raise DataError(f"column {name!r} is {unknown[0]!r} in row {row}, which is not a label in "
                        f"states=; {use_one_of(labels, unknown[0])}")
    # unseen cells are −1, the last
    recode = np.array([*(lookup[label] for label in values), -1], np.int32)
    return labels, recode[codes]


def _float(name, values: np.ndarray) -> np.ndarray:
    if np.isinf(values).any():
        row = int(np.argmax(np.isinf(values)))
        raise DataError(f"column {name!r} is {values[row]} in row {row}, expected a finite number. "
                        f"Drop the row")
    if np.isnan(values).all():
        raise DataError(f"column {name!r} is missing in every row, so nothing can be learned about "
                        "it. Drop the column")
    if np.nanmin(values) == np.nanmax(values):
        raise DataError(
            f"column {name!r} is continuous and constant, so a normal distribution fitted to it "
            "has variance 0 and the likelihood has no maximum. Drop the column, or make it "
            f"discrete, data[{name!r}].astype(str)"
        )
    return values
