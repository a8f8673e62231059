"""Tables of any library that narwhals supports: read as pandas, and answers as the same kind of
table; the names of columns of a matrix."""

import difflib
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from probml.errors import DataError, listed
from probml.numerics.process.libraries import nw, pa, pd
from probml.typing import ArrayLike, DataLike, SiteValues

OURS = ("pandas", "pyarrow")  # libraries whose tables are read without narwhals


def as_table(data: object) -> DataLike:
    """A table of another library as pandas, one with Arrow's C stream interface alone as a pyarrow
    Table; anything else unchanged."""
    table = to_pandas(data)
    library = type(table).__module__.partition(".")[0]
    if library in ("pandas", "pyarrow") or not hasattr(table, "__arrow_c_stream__"):
        return table
    return pa.table(table)


def to_pandas(data: object) -> DataLike:
    """A table or a column of another library (Polars, Modin, cuDF, …) as pandas, a lazy frame of
    Polars collected; anything else unchanged."""
    if not _foreign(data):
        return data
    frame = nw.from_native(data, pass_through=True, allow_series=True)
    if isinstance(frame, nw.LazyFrame):  # of other libraries, a source of rows
        return to_pandas(data.collect()) if type(data).__module__.startswith("polars") else data
    if isinstance(frame, nw.Series):
        return _column(frame)
    if not isinstance(frame, nw.DataFrame):
        return data
    return pd.DataFrame({name: _column(frame[name]) for name in frame.columns})


def as_pandas(data: DataLike) -> DataLike:
    """A table or a column of any library, Arrow's too, as pandas; anything else unchanged."""
    arrow = type(data).__module__.partition(".")[0] == "pyarrow" and hasattr(data, "to_pandas")
    return data.to_pandas() if arrow else to_pandas(data)


def _foreign(data: object) -> bool:
    """Whether data may be a table or a column of a library that needs narwhals."""
    if data is None or isinstance(data, Mapping | Sequence | np.ndarray | str):
        return False
    module = type(data).__module__.partition(".")[0]
    return module not in (*OURS, "numpy", "jax", "jaxlib") and any(
        hasattr(type(data), name) for name in ("columns", "to_list", "__narwhals_series__"))


def _column(series: "pd.Series") -> ArrayLike:
    """A narwhals Series as pandas: numbers with NaN, ordered categories, else objects with None."""
    kind = series.dtype
    if kind in (nw.Categorical, nw.Enum):
        known = series.cat.get_categories().to_list()
        return pd.Series(pd.Categorical(series.to_list(), known, ordered=kind == nw.Enum),
                         name=series.name)
    if kind.is_numeric():
        filled = series if not series.null_count() else series.cast(nw.Float64)
        return pd.Series(filled.to_numpy(), name=series.name)
    return pd.Series(series.to_list(), name=series.name, dtype=object)


def like(given: DataLike, columns: Mapping[str, np.ndarray]) -> DataLike:
    """Columns as the same kind of table as `given`, with its index, the order of its columns, its
    categories and its observed numbers unchanged; its columns that are not in `columns` are
    copied. A mapping if `given` is not a table."""
    if not is_table(given):
        return dict(columns)
    table, module = as_pandas(given), type(given).__module__.partition(".")[0]
    index = {str(name): i for i, name in enumerate(table.columns)}
    flat = {name: _filled_column(table.iloc[:, index[name]], value) if name in index
            else shortest(value)
            for name, value in _flat(columns).items()}
    if module == "pyarrow":
        return pa.table(_ordered(index, flat, {name: given.column(i) for name, i in index.items()}))
    if module == "pandas":
        unchanged = {name: table.iloc[:, i].array for name, i in index.items()}
        out = pd.DataFrame(_ordered(index, flat, unchanged), index=given.index)
        kinds = {name: given[name].dtype for name in given.columns if name in out.columns}
        return out.astype({name: kind for name, kind in kinds.items()
                           if isinstance(kind, pd.CategoricalDtype)})
    frame = nw.from_native(given)
    unchanged = {name: frame[frame.columns[i]].to_native() for name, i in index.items()}
    return nw.from_dict(_ordered(index, flat, unchanged),
                        backend=nw.get_native_namespace(frame)).to_native()


def native(answer: DataLike, given: object) -> DataLike:
    """An answer with pandas tables and columns converted to the library of `given`, also inside
    lists, tuples and mappings. Dates keep the type they have in `given`."""
    if isinstance(given, list | tuple):
        given = given[0] if len(given) else None
    if not _foreign(given):
        return answer
    if isinstance(answer, dict):
        return {name: native(each, given) for name, each in answer.items()}
    if isinstance(answer, list | tuple):
        return type(answer)(native(each, given) for each in answer)
    if type(answer).__module__.partition(".")[0] != "pandas":
        return answer
    frame = nw.from_native(given, allow_series=True)
    library = nw.get_native_namespace(frame)
    if not is_table(answer):
        name = "" if answer.name is None else str(answer.name)
        return nw.new_series(name, answer.to_numpy(), backend=library).to_native()
    columns = {str(name): answer.iloc[:, j].to_numpy() for j, name in enumerate(answer.columns)}
    columns = {name: column.astype("datetime64[us]") if column.dtype.kind == "M" else column
               for name, column in columns.items()}  # a unit that all libraries have
    kinds = frame.schema if isinstance(frame, nw.DataFrame) else {}
    return nw.from_dict(columns, backend=library).with_columns(
        *(nw.col(name).cast(kinds[name]) for name, column in columns.items()
          if column.dtype.kind == "M" and name in kinds)).to_native()


def _ordered(names: Iterable[str], flat: Mapping, unchanged: Mapping) -> dict[str, np.ndarray]:
    """Columns in the order of a table, then those that it does not have."""
    return {**{name: flat[name] if name in flat else unchanged[name] for name in names}, **flat}


def _filled_column(column: "pd.Series", filled: np.ndarray) -> np.ndarray:
    """A pandas column of numbers, its missing cells filled; of other types `filled` itself."""
    filled = shortest(filled)
    if filled.dtype.kind != "f" or not pd.api.types.is_numeric_dtype(column):
        return filled
    mask = column.notna().to_numpy()
    if mask.all():
        return column.to_numpy()
    return np.where(mask, column.to_numpy(float, na_value=np.nan), filled)


def shortest(values: object) -> np.ndarray:
    """float32 as the float64 with the shortest decimals, 0.3 for 0.30000001192092896, for tables;
    anything else unchanged."""
    values = np.asarray(values)
    if values.dtype != np.float32:
        return values
    out = values.astype(float)
    double, size = out.copy(), np.abs(out)
    is_usual = (size > 1e-15) & (size < 1e15)  # so that powers of ten are exact
    exponent = np.floor(np.log10(np.where(is_usual, size, 1.0)))
    for digits in (9, 8, 7, 6):  # nine always identify a float32
        scale = 10.0 ** np.abs(digits - 1 - exponent)
        rounded = np.where(digits - 1 >= exponent, np.rint(double * scale) / scale,
                           np.rint(double / scale) * scale)
        out = np.where(is_usual & (rounded.astype(np.float32) == values), rounded, out)
    return out


def _flat(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Columns with one axis; an array with several is one column per cell, named `name[i, j]`."""
    out = {}
    for name, value in columns.items():
        value = np.asarray(value)
        for index in np.ndindex(value.shape[1:]):
            out[f"{name}[{', '.join(map(str, index))}]" if index else name] = value[:, *index]
    return out


def check_order(data: object, weights: object = None) -> None:
    """
    Args:
        weights: of the rows, where they were given beside them.

    Raises:
        DataError: pandas columns of a mapping have the same index in different orders, so that
            matching them by position would mix up rows; or data are NumPy records.
    """
    if isinstance(data, np.ndarray) and data.dtype.names:
        raise DataError(f"the data are a record array of NumPy, with the fields "
                        f"{listed(data.dtype.names)}, but a table is expected. Pass "
                        f"pandas.DataFrame(data)")
    columns: dict[Any, Any] = dict(data) if isinstance(data, Mapping) else {"data": data}
    if weights is not None:
        columns["weights"] = weights
    indexes = [(name, value.index) for name, value in columns.items()
               if type(value).__module__.partition(".")[0] == "pandas" and hasattr(value, "iloc")]
    for (other, first), (name, index) in zip(indexes, indexes[1:], strict=False):
        if (len(first) == len(index) and not first.equals(index) and first.is_unique
                and index.is_unique and first.isin(index).all()):
            raise DataError(f"the index of '{name}' has the same labels as that of '{other}' in "
                            f"another order, but rows are matched by position. Give both in the "
                            f"same order, {other}.loc[{name}.index], or pass '{name}' without an "
                            f"index, {name}.to_numpy()")


def check_once(data: object) -> None:
    """
    Raises:
        DataError: a table has two columns of one name.
    """
    if not is_table(data):
        return
    cols = [str(name) for name in names_of(data)]
    name = next((name for name, count in Counter(cols).items() if count > 1), None)
    if name is not None:
        raise DataError(f"the table has {cols.count(name)} columns named '{name}'. Rename them, or "
                        f"keep the first of each, table.loc[:, ~table.columns.duplicated()]")


def is_far(data: object) -> bool:
    """Whether data are a table of Dask, on other machines perhaps: its length has to be computed.
    """
    return type(data).__module__.partition(".")[0] in ("dask", "dask_expr")


def is_table(data: object) -> bool:
    """Whether data are a table of some library, with columns by name."""
    kind = type(data)  # attributes of a lazy table itself would make it read
    return not isinstance(data, Mapping) and hasattr(kind, "columns") and hasattr(kind, "shape")


def names_of(table: DataLike) -> list:
    """The names of a table's columns."""
    return list(getattr(table, "column_names", None) or table.columns)


def items_of(data: DataLike) -> dict[str, ArrayLike]:
    """Name → values, of a mapping or of a table's columns."""
    if isinstance(data, Mapping):
        return dict(data)
    return {name: data.column(name) if hasattr(data, "column_names") else data[name]
            for name in names_of(data)}


# Columns of a matrix, {"x": table[["a", "b"]]}


def columns_of(data: object) -> dict[str, tuple[str, ...]]:
    """Name → the names of its columns, for values that are tables."""
    if not isinstance(data, Mapping):
        return {}
    return {name: tuple(map(str, names_of(first))) for name, value in data.items()
            if isinstance(name, str) and is_table(first := _first_of(value))}


def _first_of(value: object) -> Any:
    """A value, or the first of a list of tables, the sequences of a site."""
    tables = isinstance(value, list | tuple) and len(value) and all(map(is_table, value))
    return value[0] if isinstance(value, list | tuple) and tables else value


def in_columns(name: str, table: DataLike, columns: Sequence[str], what: str) -> DataLike:
    """A table, its columns in the order of `columns`.

    Args:
        name: of the site or input. what: in messages, whose columns these are.

    Raises:
        DataError: one of them is missing.
    """
    names = tuple(map(str, names_of(table)))
    if names == tuple(columns):
        return table
    missing = [column for column in columns if column not in names]
    if missing:
        raise DataError(f"'{name}' has no column {missing[0]!r}. Expected the columns of {what}, "
                        f"{listed(columns)}, got {listed(names)}. Add or rename the column")
    position = {column: i for i, column in enumerate(names)}
    order, table = [position[column] for column in columns], to_pandas(table)
    return table.iloc[:, order] if hasattr(table, "iloc") else table.select(order)


def same_columns(name: str, tables: Sequence) -> Sequence:
    """Sequences of a site, those that are tables with the columns of the first, in its order.

    Raises:
        DataError: a table lacks one of them.
    """
    if not (tables and is_table(tables[0])):
        return tables
    columns = tuple(map(str, names_of(tables[0])))
    return [in_columns(name, part, columns, "sequence 0") if is_table(part)
            and len(names_of(part)) == len(columns) else part for part in tables]


def aligned(data: DataLike, columns: Mapping[str, tuple[str, ...]]) -> DataLike:
    """Data whose tables have their columns in the order of those in `columns`, those of a fit.

    Raises:
        DataError: a column of the fit is missing.
    """
    names = [name for name in columns_of(data) if name in columns]
    if not names:
        return data
    out = dict(data)
    for name in names:
        value = out[name]
        out[name] = (in_columns(name, value, columns[name], "the fitted data") if is_table(value)
                     else [in_columns(name, part, columns[name], "the fitted data")
                           for part in value])
    return out


# The names of a table's columns compared with those of a model


def closest_name(name: object, names: Iterable[str]) -> str | None:
    """The name of `names` closest to a mistyped one, ignoring case; None where none is close."""
    by_lower = {candidate.lower(): candidate for candidate in names}
    matches = difflib.get_close_matches(str(name).lower(), by_lower, 1)
    return by_lower[matches[0]] if matches else None


def select_known_columns(items: SiteValues, expected: Mapping[str, Any],
                         inputs: Sequence[str], has_fit: bool,
                         model: str) -> dict[str, ArrayLike]:
    """The columns of a table that a model uses. Others are ignored if all of the model's are there.
    With a fit (`has_fit`) one may be absent, the one to predict, with a warning.

    Args:
        expected: site → tables.Expected.

    Raises:
        DataError: a column that the model does not use, where one of the model's is absent.
    """
    extra = [name for name in items if name not in expected and name not in inputs]
    absent = [e.name for e in expected.values() if e.rows and e.name not in items]
    if not extra:
        return dict(items)
    close = next((name for name in extra if closest_name(name, absent)), None)
    has_vectors = any(e.cells not in ((), (1,)) for e in expected.values() if e.name in absent)
    if close is not None or has_vectors or len(extra) == len(items):
        check(extra[0] if close is None else close, True, expected, inputs, model)
    if len(absent) > has_fit:
        raise DataError(f"model '{model}': the table has no column '{absent[0]}', and has the "
                        f"column '{extra[0]}', which the model does not use. If '{extra[0]}' "
                        f"contains the values of '{absent[0]}', rename it; if '{absent[0]}' is "
                        f"latent, drop {listed(extra)}")
    if absent:
        warnings.warn(f"model '{model}': the table has no column '{absent[0]}', so '{absent[0]}' "
                      "is missing in all rows, and the model does not use the columns "
                      f"{listed(extra)}. Rename one of these if it contains the values of "
                      f"'{absent[0]}', else drop them", RuntimeWarning, stacklevel=2)
    return {name: value for name, value in items.items() if name not in extra}


def check(name: str, frame: bool, expected: Mapping[str, Any], inputs: Sequence[str],
          model: str) -> None:
    """
    Raises:
        DataError: the model has no such site or input, or it does not fit in a column of a table.
    """
    vectors = [e.name for e in expected.values() if e.rows and e.cells not in ((), (1,))]
    if name not in expected:
        # those in rows first
        known = sorted(expected, key=lambda n: not expected[n].rows) + [
            i for i in inputs if i not in expected
        ]
        raise unknown_name(model, name, known, known, frame and vectors and (
            f"'{vectors[0]}' has several values per row. Pass a mapping, such as "
            f"{{'{vectors[0]}': table[['a', 'b']]}}"))
    if frame and (name in vectors or not expected[name].rows):
        what = (f"the shape {expected[name].cells} in every row" if name in vectors
                else f"one value of shape {expected[name].cells} for all rows")
        remedy = ("table[['a', 'b']]}" if name in vectors else "..., **table}")
        raise DataError(f"'{name}' has {what}, which does not fit in one column of a table. Pass a "
                        f"mapping, such as {{'{name}': {remedy}.")


def unknown_name(model: str, name: str, known: Iterable[str], free: Iterable[str],
                 remedy: object = None) -> DataError:
    """The error about data by a name that the model does not have.

    Args:
        free: the names that may have been meant. remedy: where none of them is close.
    """
    if meant := closest_name(name, free):
        remedy = f"Did you mean '{meant}'?"
    return DataError(f"model '{model}': '{name}' is neither a site nor an input of the model. "
                     f"Known names: {listed(known)}. {remedy or f'Drop or rename {name!r}'}")


def missing_input(model: str, name: str, columns: Iterable = ()) -> DataError:
    """The error about an input that the data lack.

    Args:
        columns: of the table, if the data are one.
    """
    columns, remedy = [str(column) for column in columns], ""
    if meant := closest_name(name, columns):
        remedy = f". If it is the column '{meant}', rename that column to '{name}'"
    elif columns:
        remedy = (f". The columns are {listed(columns)}. Rename one of them to '{name}', or, if it "
                  f"has several columns, pass a mapping, {{'{name}': table[['a', 'b']]}}")
    return DataError(f"model '{model}': the data have no '{name}', which is an input of the model "
                     f"(an argument of its function). Add '{name}' to the data. Or, if it is the "
                     f"same in all rows, give it to the model, {model}(…, {name}=...){remedy}")


def refuse_computed(model: str, computed: Iterable[str], given: Collection[str]) -> None:
    """
    Raises:
        DataError: values of a site that the model computes.
    """
    name = next((name for name in computed if name in given), None)
    if name is not None:
        raise DataError(f"model '{model}': '{name}' is computed by the model "
                        f"(numpyro.deterministic, or a reparametrised site), so the data cannot "
                        f"contain it. Drop '{name}' from the data, or, to observe it, sample it "
                        f"without reparametrisation")


def tables_of(data: object) -> dict[str, dict[str, ArrayLike]] | None:
    """A mapping of tables as table → column → values; None for anything else."""
    if not isinstance(data, Mapping) or not data or not all(
            isinstance(name, str) and (isinstance(table, Mapping) or hasattr(table, "columns"))
            for name, table in data.items()):
        return None
    for table in data.values():
        if hasattr(table, "column_names"):  # an Arrow table cannot be indexed by a duplicate name
            check_once(table)
    return {name: items_of(table) for name, table in data.items()}
