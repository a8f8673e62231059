"""What the command line reads and writes: tables by the ending of their name, fits, models of a
user's file.

Text tables are read by pandas. A file that pandas would change in reading is refused, and a warning
names what the user may not have meant.
"""

import importlib.util
import io
import json
import os
import sys
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probml.dataset.frames import shortest
from probml.errors import DataError, ModelError, counted, listed
from probml.interface.fit import Fit
from probml.interface.loading import load
from probml.interface.model import Generative, Model
from probml.numerics.outside.atomic import replacing
from probml.numerics.process.libraries import pd
from probml.typing import FitOrEstimator

ENDINGS = (".csv", ".tsv", ".parquet", ".arrow", ".feather")


def read_table(path: str) -> "pd.DataFrame":
    """A table: CSV, TSV, Parquet or Arrow by its ending; "-" is CSV on standard input.

    Raises:
        DataError: no such file, another ending, or what cannot be read as such.
    """
    ending = Path(path).suffix.lower() if path != "-" else ".csv"
    if ending not in ENDINGS:
        raise DataError(f"'{path}' has the ending '{ending}', which cannot be read. Save the table "
                        f"in one of the formats {listed(ENDINGS)}")
    try:
        if ending in (".csv", ".tsv"):
            table = read_text(path, "\t" if ending == ".tsv" else ",")
        else:
            table = pd.read_parquet(path) if ending == ".parquet" else pd.read_feather(path)
            if any(name is not None for name in table.index.names):  # which were columns once
                table = table.reset_index()
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"'{path}': there is no such file. Check the name and the folder") from None
    except ImportError as error:
        raise DataError(f"'{path}': reading {ending} files needs pyarrow ({error}). Install it: "
                        f"pip install 'probml[data]'") from None
    except Exception as error:
        raise DataError(f"'{path}' cannot be read as a {ending[1:]} table: {error}. Check "
                        "whether the file is complete and has this format") from None
    if not len(table):
        raise DataError(f"'{path}' contains no rows. Check the file, which needs a line of column "
                        "names and at least one row")
    return table


def write_table(table: "pd.DataFrame", path: str | None) -> None:
    """A table to a file by its ending; CSV on standard output without one."""
    if path in (None, "-"):
        table.to_csv(sys.stdout, index=False)
        return
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise DataError(f"'{path}' has the ending '{ending}', expected one of {listed(ENDINGS)}")
    try:
        with replacing(path) as place:
            if ending in (".csv", ".tsv"):
                table.to_csv(place, index=False, sep="\t" if ending == ".tsv" else ",")
            else:
                (table.to_parquet if ending == ".parquet" else table.to_feather)(place)
    except OSError as error:
        raise DataError(f"'{path}' cannot be written: {error.strerror or error}. Give another "
                        "path") from None
    except ImportError as error:
        raise DataError(f"'{path}': writing {ending} files needs pyarrow ({error}). Install it: "
                        f"pip install 'probml[data]'") from None
    except (TypeError, ValueError, OverflowError) as error:  # Arrow's, of a column of several kinds
        if type(error).__module__ == "builtins" and ending in (".csv", ".tsv"):
            raise
        raise DataError(f"'{path}': a {ending[1:]} file cannot store this table ({error}). Write a "
                        f".csv file"
                        ) from None


def require_columns(table: "pd.DataFrame", columns: Iterable[str], option: str) -> None:
    """
    Raises:
        DataError: the table has not all of these columns, which an option names.
    """
    missing = next((name for name in columns if name not in table.columns), None)
    if missing is not None:
        raise DataError(f"{option}: the table has no column '{missing}'. Use one of its columns, "
                        f"{listed(list(table.columns))}")


def check_kind(path: str, magic: bytes, what: str) -> None:
    """Refuse to write over a file of another kind, such as the table or the model that was read.

    Args:
        magic: with which files of the kind that is to be written begin.

    Raises:
        ModelError: there is one that begins otherwise.
    """
    if not os.path.isfile(path):
        return
    with open(path, "rb") as file:
        head = file.read(len(magic))
    if head and head != magic:
        raise ModelError(f"--out {path}: a file with this name exists, is not a {what}, and would "
                         f"be overwritten. Use another name, or remove the file first")


def write_json(value: object) -> None:
    """One line of JSON on standard output; what is no number of JSON is null."""
    print(json.dumps(to_json(value), ensure_ascii=False))


def to_json(value: object) -> Any:
    """A value as JSON takes it."""
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, pd.DataFrame):
        digits = {name: shortest(column) for name, column in value.items()
                  if column.dtype == np.float32}
        return [to_json(record) for record in value.assign(**digits).to_dict("records")]
    if isinstance(value, np.ndarray | list | tuple):
        return [to_json(item) for item in (shortest(value).tolist() if hasattr(value, "tolist")
                                           else value)]
    if isinstance(value, np.generic):
        return to_json(shortest(value).item())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if isinstance(value, bool | int | str) or value is None else str(value)


def open_fit(path: str, model: str | None = None,
             settings: Mapping[str, object] | None = None) -> FitOrEstimator:
    """A Fit or an estimator from its file.

    Args:
        model: FILE.py:name of a model of the user's own; its file is run, as Python runs a script.
    """
    try:
        return load(path, None if model is None else own_model(model, settings or {}))
    except FileNotFoundError:
        raise DataError(f"'{path}': there is no such file. Check the name and the folder") from None
    except ModelError as error:
        hint = str(error).replace("load(path, model)", "--model FILE.py:name")
        raise ModelError(hint) from None


def open_any(path: str, models: Sequence[str]) -> FitOrEstimator:
    """A Fit or an estimator from its file, by the first of a user's models whose fit it is.

    Raises:
        ModelError: it is of none of them.
    """
    try:
        return open_fit(path)
    except ModelError as error:
        message = str(error)
    for model in models:
        try:
            return open_fit(path, model)
        except ModelError as error:
            message = str(error)
    raise ModelError(message)


def own_model(spec: str, settings: Mapping[str, object]) -> Model:
    """The model that FILE.py:name names, its settings bound.

    Raises:
        ModelError: no such file or name, or what is no model.
    """
    path, _, name = spec.rpartition(":")
    if not path.endswith(".py") or not name:
        raise ModelError(f"--model {spec}: expected the name of a model of the library, or "
                         "FILE.py:name, such as models.py:mixture")
    module_name = Path(path).stem
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    if not Path(path).is_file() or module_spec is None or module_spec.loader is None:
        raise ModelError(f"--model {spec}: there is no file '{path}'. Check the name and the "
                         "folder")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_name] = module
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's own file may raise
        if os.environ.get("PROBML_TRACEBACK"):
            raise
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
                 if frame.filename == path]
        line = lines[-1] if lines else getattr(error, "lineno", None)
        raise ModelError(f"--model {spec}: running '{path}' "
                         f"failed{f' at line {line}' if line else ''}: {type(error).__name__}: "
                         f"{error}. Correct the file") from None
    value = getattr(module, name, None)
    if isinstance(value, Generative):
        return value(**settings)
    if isinstance(value, Model):
        return value
    known = [key for key, item in vars(module).items() if isinstance(item, Generative | Model)]
    raise ModelError(f"--model {spec}: '{path}' contains no model '{name}'. Use one of its models, "
                     f"{listed(known)}")


def is_fit(fitted: FitOrEstimator) -> bool:
    """Whether what a file holds is a Fit, no estimator."""
    return isinstance(fitted, Fit)


OTHERS = (";", "\t", "|", ",")  # separators of tables that are not meant here
# of the cells of a column of text, from which on it is taken for numbers gone wrong
MAX_ODD_SHARE = 0.5
SHOWN = 3  # words of a column that a warning shows


def read_text(path: str, comma: str) -> "pd.DataFrame":
    """A table of text; "-" is standard input.

    Raises:
        DataError: names of columns that are there twice, rows that are longer than their header,
            cells that are parted by something else.
    """
    content = sys.stdin.read() if path == "-" else None

    def read(**options: Any) -> "pd.DataFrame":
        # read in pieces a long file has 1 and '1' in one column; of rows that are longer than their
        # header pandas would take the first cell for an index, and move the others
        return pd.read_csv(path if content is None else io.StringIO(content), sep=comma,
                           low_memory=False, index_col=False, **options)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = read()
    except pd.errors.ParserWarning:
        names = list(read(nrows=0).columns)
        _refuse_other(path, names, comma)
        raise DataError(f"'{path}': some rows have more values than the first line has names, "
                        f"{len(names)} ({listed(names)}). Give every column a name, and separate "
                        f"values by commas (in a .tsv file by tabs)") from None
    head = read(header=None, nrows=1, dtype=str, keep_default_na=False).iloc[0]
    repeated = head[head.duplicated() & (head != "")]
    if len(repeated):
        raise DataError(f"'{path}' has {counted(int((head == repeated.iloc[0]).sum()), 'column')} "
                        f"named '{repeated.iloc[0]}'. Rename or drop all but one")
    _refuse_other(path, list(table.columns), comma)
    text = [name for name, column in table.items() if not pd.api.types.is_numeric_dtype(column)]
    incomplete = [name for name in text if table[name].isna().any()]
    if incomplete:
        _warn_of_missing(read(usecols=[table.columns.get_loc(name) for name in incomplete],
                              dtype=str,
                              keep_default_na=False), table)
    for name in text:
        _warn_of_text(name, table[name])
    return table


def _refuse_other(path: str, names: list, comma: str) -> None:
    """Refuse a table of one column whose name has another separator in it."""
    head = str(names[0])
    sep = next((mark for mark in OTHERS if mark != comma and mark in head), None)
    if len(names) == 1 and sep is not None:
        raise DataError(f"'{path}' is read as a single column, {head!r:.80}, because its values "
                        f"are separated by {sep!r}, not by {comma!r}. Rewrite the file: "
                        f"pandas.read_csv({path!r}, sep={sep!r}, decimal=',').to_csv('new.csv', "
                        f"index=False), with decimal='.' if the decimal mark is a point")


def _warn_of_missing(raw: "pd.DataFrame", table: "pd.DataFrame") -> None:
    """Warns of cells of columns of text that are not empty, and are read as missing: None, NA,
    null."""
    for name, column in raw.items():
        words = column[table[name].isna().to_numpy() & (column.str.strip() != "").to_numpy()]
        if len(words):
            warnings.warn(f"column '{name}': {counted(len(words), 'value')} with the text "
                          f"{listed(list(words.unique()[:SHOWN]))} "
                          f"{'is' if len(words) == 1 else 'are'} read as missing. If this text is "
                          "a value, replace it by another word in the file",
                          RuntimeWarning, stacklevel=2)


def _warn_of_text(name: str, column: "pd.Series") -> None:
    """Warns of the cells of a column of text which are no numbers, where all others are."""
    observed = column.dropna().astype(str)
    bad = observed[pd.to_numeric(observed, errors="coerce").isna().to_numpy()]
    if len(observed) and 0 < len(bad) < MAX_ODD_SHARE * len(observed):
        warnings.warn(f"column '{name}' is read as text, because it has "
                      f"{counted(len(bad), 'value')} that cannot be read as a number: "
                      f"{listed(list(bad.unique()[:SHOWN]))}. Correct "
                      "these values in the file, or leave them empty if they are missing",
                      RuntimeWarning, stacklevel=2)
