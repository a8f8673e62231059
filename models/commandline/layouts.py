"""How a table is the data of a function of a user's own: columns that make one array, rows that are
the steps of sequences; and answers as rows of the table again."""

import itertools
import warnings
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from probml.errors import DataError, ModelError, counted, listed, shortly
from probml.interface.fit import Fit
from probml.language.language import Bound
from probml.models.commandline.files import require_columns
from probml.numerics.process.libraries import pd
from probml.structure.structure import Structure
from probml.structure.trace import trace
from probml.typing import DataLike, SiteValues

NONE: Mapping[str, tuple[str, ...]] = MappingProxyType({})

DATE = r"\d{4}-\d{2}(-\d{2})?([ T]\d{2}:\d{2}.*)?$"


class Layout(NamedTuple):
    """What a user says of a table."""

    joined: Mapping[str, tuple[str, ...]] = NONE  # site or input → the columns that make it
    by: str | None = None  # the column that tells sequences apart
    unknown: str = "refuse"  # members of groups that were not learnt, or "new"


PLAIN = Layout()


class TableData(NamedTuple):
    """A table as data.

    Attributes:
        data: a table, or name → array, a list of arrays of sequences.
        rows: of the table.
        steps: of each sequence the rows that are its steps; None where a row is a row.
        joined: as in Layout, and what the fit itself remembers.
    """

    data: DataLike
    rows: int
    steps: tuple[np.ndarray, ...] | None
    joined: Mapping[str, tuple[str, ...]]

    def back(self, answer: DataLike, timed: bool) -> np.ndarray:
        """An answer about sequences, (sequences, steps, ...), or (sequences, ...) of what has no
        steps, for the rows of the table, (rows, ...)."""
        answer = np.asarray(answer)
        if self.steps is None:
            return answer
        result = np.empty((self.rows, *answer.shape[1 + timed:]), answer.dtype)
        for i, places in enumerate(self.steps):
            result[places] = answer[i, : len(places)] if timed else answer[i]
        return result

    def columns(self, name: str, answer: np.ndarray) -> dict[str, np.ndarray]:
        """An answer as columns, one a cell: named as the columns that the site was made of."""
        names = self.joined.get(name, ())
        if answer.ndim == 2 and len(names) == answer.shape[1]:
            return dict(zip(names, answer.T, strict=True))
        return {f"{name}[{', '.join(map(str, index))}]" if index else name: answer[:, *index]
                for index in np.ndindex(answer.shape[1:])}


def of_model(model: Bound, table: "pd.DataFrame", layout: Layout) -> TableData:
    """A table as the data of a model that is to be fitted."""
    try:
        structure = trace(model)
    except ModelError:  # it is read by its data, and tells of its own what it lacks
        structure = None
    laid = _arrange_columns(structure, model, NONE, table, layout)
    missing = next((name for name in model.inputs if name not in laid.data), None)
    if missing is not None:
        raise DataError(f"the table has no column '{missing}', which is an argument of the model. "
                        f"If another column contains its values, give --as {missing}=COLUMN. If it "
                        f"is one value for all rows, give --set {missing}=VALUE. The columns of "
                        f"the table are {listed(list(table.columns))}")
    used_names = (*laid.data, layout.by, *itertools.chain(*laid.joined.values()))
    setting = next((name for name in model.at_default
                    if name in table.columns and name not in used_names), None)
    if setting is not None:
        raise DataError(f"the column '{setting}' has the name of a setting of the model, "
                        f"{setting}={shortly(model.bound[setting])}, which has one value for all "
                        f"rows. Give --set {setting}=VALUE with another value, or drop the "
                        f"column, --drop {setting}")
    return laid


def of_fit(fit: Fit, table: "pd.DataFrame", layout: Layout,
           without: str | None = None) -> TableData:
    """A table as data of a question to a fit; columns that it does not know are left alone, and a
    warning names what was seen when it was fitted and is not there.

    Args:
        without: a site that is asked for, and not shown; "" the one that is not there.
    """
    laid = _arrange_columns(fit.structure, fit.model, fit.columns, table, layout)
    absent = [name for name, _ in fit.pattern if name not in laid.data and name != without]
    if absent and not (without == "" and len(absent) == 1):
        warnings.warn(f"the table lacks columns of the fitted data: {listed(absent)}. Their values "
                      f"are treated as missing. If another column contains the values of "
                      f"'{absent[0]}', give --as {absent[0]}=COLUMN", RuntimeWarning, stacklevel=2)
    if not without or not (without in table.columns or without in laid.joined):
        return laid
    if isinstance(laid.data, pd.DataFrame):
        return laid._replace(data=laid.data.drop(columns=without, errors="ignore"))
    return laid._replace(data={k: v for k, v in laid.data.items() if k != without})


def _arrange_columns(structure: Structure | None, model: Bound,
                     remembered: Mapping[str, tuple[str, ...]],
                     table: "pd.DataFrame", layout: Layout) -> TableData:
    in_rows = () if structure is None else (s.name for s in structure.named.values() if s.rows)
    known = [*in_rows, *model.inputs]  # a column has no value of what lies outside rows
    for name, columns in layout.joined.items():
        if structure is not None and name not in known:
            raise ModelError(f"--as {name}=…: model '{model.name}' has no site or input '{name}'. "
                             f"Use one of its sites and inputs, {listed(known)}")
        require_columns(table, columns, f"--as {name}={','.join(columns)}")
    # of what a fit remembers the table shows all columns, or it shows nothing of it
    present = {name: columns for name, columns in remembered.items() if set(columns) & set(table)}
    for name, columns in present.items():
        require_columns(table, columns, f"'{name}' consists of {listed(columns)}")
    joined = {**present, **layout.joined}
    has_chains = structure is not None and bool(structure.chains)
    if layout.by is not None and not has_chains:
        raise ModelError(f"--by {layout.by}: model '{model.name}' has no chain (MarkovChain or "
                         f"GaussianChain), so its rows are not the steps of sequences. Omit --by")
    unjoined = [name for name in table.columns if name not in joined
                and (name in known or structure is None and not joined)]
    stacked = {name: table[columns[0]] if len(columns) == 1 and not _is_vector_site(structure, name)
               else table[list(columns)] for name, columns in joined.items()}
    data, steps = {**table[unjoined], **stacked} if joined else table[unjoined], None
    if structure is not None and has_chains:
        steps = _steps(table, layout.by)
        data = _sequences_of(structure, data, steps, layout.by)
    return TableData(data, len(table), steps, {**remembered, **joined})


def _sequences_of(structure: Structure, columns: SiteValues,
                  steps: tuple[np.ndarray, ...], by: str | None) -> dict[str, ArrayLike]:
    """Columns of a table of steps by sequence: one value of each where a site has no steps."""
    fixed = {name for name in columns if name in structure.named
             and structure.named[name].time is None}
    data = {name: (_sequence_constant(name, value.to_numpy(), steps, by) if name in fixed
                   else _sequences(value.to_numpy(), steps)) for name, value in columns.items()}
    if set(data) <= fixed:  # the lengths of sequences are those of a site along time, all missing
        timed = [s.name for s in structure.sites.values() if s.rows and s.time is not None
                 and len(s.cells) == 1]
        empty = np.full(sum(map(len, steps)), np.nan)
        data |= {name: _sequences(empty, steps) for name in timed[:1]}
    return data


def _is_vector_site(structure: Structure | None, name: str) -> bool:
    """Whether a site has several cells in a row, and so is no column under another name."""
    site = None if structure is None else structure.named.get(name)
    return site is not None and len(site.cells) > (site.time is not None)


def _steps(table: "pd.DataFrame", by: str | None) -> tuple[np.ndarray, ...]:
    """The rows of each sequence, in the order of the file."""
    if by is None:
        return (np.arange(len(table)),)
    require_columns(table, [by], f"--by {by}")
    if table[by].isna().any():
        row = int(np.argmax(table[by].isna().to_numpy()))
        raise DataError(f"--by {by}: the identifier of the sequence is missing in row {row}, but "
                        f"every row needs one. Drop the row, or fill in the identifier")
    codes, _ = pd.factorize(table[by])
    return tuple(np.flatnonzero(codes == code) for code in range(codes.max() + 1))


def _sequences(value: np.ndarray, steps: tuple[np.ndarray, ...]) -> DataLike:
    parts = [value[places] for places in steps]
    return np.stack(parts) if len({len(part) for part in parts}) == 1 else parts


def _sequence_constant(name: str, value: np.ndarray, steps: tuple[np.ndarray, ...],
                       by: str | None) -> np.ndarray:
    """The one value of each sequence, of a site without steps."""
    for i, places in enumerate(steps):
        values = pd.unique(pd.Series(list(value[places]), dtype=object).map(str))
        if len(values) > 1:
            where = "the sequence" if by is None else f"sequence {i} of --by {by}"
            raise DataError(f"column '{name}' must have one value in each sequence, but it has "
                            f"{counted(len(values), 'different value')} in {where}: "
                            f"{listed(values[:3])}. Correct "
                            f"these rows, or name {'another' if by else 'the'} column that "
                            "identifies the sequences, --by NAME")
    return np.stack([value[places[0]] for places in steps])


def joined_of(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """"NAME=COLUMN,COLUMN" as a mapping.

    Raises:
        ModelError: another text.
    """
    joined = {}
    for text in texts:
        name, equals, columns = text.partition("=")
        names = tuple(column.strip() for column in columns.split(",") if column.strip())
        if not (equals and name and names):
            raise ModelError(f"--as {text}: expected NAME=COLUMN or NAME=COLUMN,COLUMN, where NAME "
                             "is a site or input of the model, such as --as x=height,weight")
        joined[name] = names
    return joined


def index_by_date(table: "pd.DataFrame") -> "pd.DataFrame":
    """A table whose rows are steps, with its one column of dates, 2024-01-31, as the index."""
    dates = {name: column if pd.api.types.is_datetime64_any_dtype(column) else
             column.astype(object).map(str) for name, column in table.items()
             if column.notna().all() and not pd.api.types.is_numeric_dtype(column)}
    names = [name for name, column in dates.items()
             if pd.api.types.is_datetime64_any_dtype(column) or column.str.match(DATE).all()]
    if len(names) != 1:
        return table
    return table.drop(columns=names).set_index(pd.DatetimeIndex(pd.to_datetime(dates[names[0]]),
                                                                name=names[0]))


def sequences(part: "pd.DataFrame", table: "pd.DataFrame", by: str) -> "list[pd.DataFrame]":
    """Columns of a table as one table a sequence."""
    return [part.iloc[places] for places in _steps(table, by)]


def together(answers: Iterable[DataLike], table: "pd.DataFrame", by: str) -> np.ndarray:
    """Answers about sequences, one array each, in the order of the table."""
    places = np.concatenate(_steps(table, by))
    return np.concatenate([np.asarray(answer) for answer in answers])[np.argsort(places)]


def names_of(table: "pd.DataFrame", by: str | None) -> list[Any]:
    """The names of the sequences, in the order in which they begin; None of the only one."""
    return [None if by is None else table[by].iloc[places[0]] for places in _steps(table, by)]
