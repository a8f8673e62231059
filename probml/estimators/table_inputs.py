"""Tables of any library as arguments of estimators; methods such as `impute`, and those of
sequences, return the kind of table that was given. Rows are checked here for all methods."""

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import numpy as np

from probml.dataset.frames import as_pandas, is_table, like, native
from probml.dataset.labels import labels_of
from probml.errors import DataError, counted, described
from probml.estimators.validation import RegressorMixin
from probml.language.given import floats
from probml.typing import ArrayLike, DataLike, FitOrEstimator

# arguments that may be a table or a column of one
ROWS = ("X", "y", "sample_weight", "offset", "trials", "event")
NUMBERS = ("sample_weight", "offset", "trials", "event")
LEARN = ("fit", "partial_fit")
# in rows that an estimator retains for its report and pictures, and for partial_fit
MAX_RETAINED_NUMBERS = 2**20
FLAGS = ("return_std",)
LIBRARY_PREFIX = "probml."  # of the modules whose methods are wrapped


def take_tables(estimator: type) -> None:
    """Let the methods of an estimator whose first argument is X take any table; also those that it
    inherits from mixins, in the class that defines them, so that overriding still works."""
    for owner in estimator.__mro__:
        for name, verb in list(vars(owner).items()):
            is_own = isinstance(verb, FunctionType) and verb.__module__.startswith(LIBRARY_PREFIX)
            if is_own and not name.startswith("_") and not hasattr(verb, "takes_tables"):
                if list(inspect.signature(verb).parameters)[1:2] == ["X"]:
                    setattr(owner, name, _with_tables(verb))


def _with_tables(verb: Callable) -> Callable:
    params = list(inspect.signature(verb).parameters.values())[1:]
    names = [param.name for param in params]
    needs_y = any(param.name == "y" and param.default is param.empty for param in params)

    @functools.wraps(verb)
    def ask(self: Any, *args: object, **named: object) -> Any:
        rows = args[0] if args else named.get("X")
        given = {**dict(zip(names, args, strict=False)), **named}
        where = f"{type(self).__name__}.{verb.__name__}"
        args = tuple(_rows(value, name, self, where) for name, value
                     in zip(names, args, strict=False)) + args[len(names):]
        named = {name: _rows(value, name, self, where) for name, value in named.items()}
        if (terms := vars(self).get("formula_")) is not None:  # X has the columns of a formula
            args, named = terms.arguments(names, args, named)
        if needs_y and not self.lists:
            arguments = {**dict(zip(names, args, strict=False)), **named}
            if "X" in arguments and "y" in arguments:
                _check_target(arguments["X"], arguments["y"], where)
        result = verb(self, *args, **named)
        if verb.__name__ in LEARN:
            self._fitted_rows = given if verb.__name__ == "fit" and is_small(given) else {}
        if verb.__name__ == "impute":
            result = _to_table(rows, result, self.lists)
        return native(result, rows) if self.lists else result

    ask.takes_tables = True  # type: ignore[attr-defined]
    return ask


def is_small(given: Mapping[str, object]) -> bool:
    """Whether the rows that were given are few enough for an estimator to retain them."""

    def size(value: object) -> int:
        if hasattr(value, "shape"):
            return math.prod(value.shape)
        if not isinstance(value, list | tuple):
            return np.asarray(value).size
        nested = len(value) > 0 and (isinstance(value[0], list | tuple)
                                     or hasattr(value[0], "shape"))
        return sum(map(size, value)) if nested else len(value)

    return sum(map(size, given.values())) <= MAX_RETAINED_NUMBERS


def _check_target(X: DataLike, y: ArrayLike, where: str) -> None:
    """
    Raises:
        DataError: there is no y, or not one a row.
    """
    if y is None:
        raise DataError(f"{where} requires y to be passed, but the target y is None. Pass y")
    # tables without NumPy's protocol are not passed to NumPy; a sparse one has no length
    sizes = [value.shape[0] if getattr(value, "shape", None) else len(value) for value in (X, y)
             if hasattr(value, "__len__") and getattr(value, "shape", True) != ()]
    if len(set(sizes)) > 1:
        raise DataError(f"{where}: Found input variables with inconsistent numbers of samples: X "
                        f"has {counted(sizes[0], 'row')}, y has {sizes[1]}. Pass one y for each "
                        "row of X")


def _rows(value: DataLike, name: str, estimator: FitOrEstimator, where: str) -> DataLike:
    """An argument of a method, tables as pandas.

    Raises:
        DataError: rows of unequal lengths; text, NaN or None where a number per row is expected; no
            list of classes; no True or False.
    """
    if name in FLAGS and not isinstance(value, bool | np.bool_):
        raise DataError(f"{where}({name}={described(value)}): expected True or False")
    if name == "classes" and value is not None:
        refuse_scalar(value, name, where)
    if name not in ROWS or value is None:
        return value
    value = as_pandas(value)
    if hasattr(value, "toarray"):  # sparse; its zeros are observed cells
        value = value.toarray()
    # a list of sequences may be of unequal lengths
    if isinstance(value, list | tuple):
        if estimator.lists and name in ("X", "y"):
            tables = len(value) > 0 and hasattr(value[0], "shape")
            return [as_pandas(part) for part in value] if tables else value
        refuse_scalar(value, name, where)
    if name == "y" and np.asarray(value).ndim == 0:
        raise DataError(f"{where}: expected y as an array with one value for each row of X, got "
                        f"{described(value)}")
    if name in NUMBERS or name == "y" and isinstance(estimator, RegressorMixin):
        return _numbers(value, name, where)
    return value


def refuse_scalar(value: object, name: str, where: str) -> None:
    with contextlib.suppress(ValueError):
        if np.ndim(np.asarray(value)):
            return
    raise DataError(f"{where}: expected {name} as an array or a table whose first axis is the "
                    f"rows, all of equal length, got {described(value)}. Missing values are NaN")


def _numbers(value: object, name: str, where: str) -> DataLike:
    """Numbers, or values that can be converted: weights, offsets and trials must be finite."""
    array = np.asarray(value, object if isinstance(value, list | tuple) else None)
    if array.dtype.kind == "c" and name not in NUMBERS:
        return value  # refused by scikit-learn, with X
    if array.dtype.kind in "OUSMmc":
        array = floats(value, f"{where}: {name}", "For classes use a classifier, such as "
                       "LogisticRegression" if name == "y" else "Convert them")
    if array.dtype.kind == "b" and not array.ndim:
        raise DataError(f"{where}: expected numbers as {name}, one for each row, got {value!r}")
    if name in NUMBERS and array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError(f"{where}: {name} contains NaN or infinity, expected a finite number in "
                        "every row. Drop these rows, or fill in the values")
    return value if array.dtype.kind in "biuf" and value is not array else array


def _to_table(rows: object, cells: object, lists: bool) -> DataLike:
    """Cells (n, d) as a table with the columns of the one that was given, or as a list of such
    tables; as a column where one was given."""
    if lists and isinstance(rows, list | tuple) and isinstance(cells, list):
        return [_to_table(part, own, False) for part, own in zip(rows, cells, strict=True)]
    labels, columns = labels_of(as_pandas(rows))[1], {}
    if labels is None:
        return cells
    if not is_table(rows):
        return labels.table(cells)
    cells = np.asarray(cells)
    cells = cells.reshape(len(cells), -1)
    for j, name in enumerate(labels.names):
        column = cells[:, j]
        if column.dtype.hasobject:  # as they would be by themselves
            column = np.array(column.tolist())
        columns[str(name)] = column
    return like(rows, columns)
