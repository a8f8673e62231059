"""Validation of arguments by scikit-learn's checks, with clearer messages for tables."""


import numpy as np

from probml import errors
from probml.dataset.frames import check_once
from probml.errors import DataError, KindError, counted, describe_dates, shortly, type_of
from probml.numerics.process.threads import finite
from probml.typing import DataLike

try:
    from sklearn import exceptions
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        DensityMixin,
        RegressorMixin,
        TransformerMixin,
        clone,
    )
    from sklearn.utils import (
        assert_all_finite,
        check_random_state,
        column_or_1d,
        compute_class_weight,
    )
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_feature_names as check_feature_names
    from sklearn.utils.validation import _check_sample_weight as check_sample_weight
    from sklearn.utils.validation import (
        check_array,
        check_consistent_length,
        check_is_fitted,
    )
    from sklearn.utils.validation import validate_data as check_data
except ModuleNotFoundError as error:
    raise ImportError(f"the estimators of probml.models need scikit-learn ({error}). Install it: "
                      "pip install 'probml[sklearn]'") from error

__all__ = [
    "BaseEstimator",
    "ClassNamePrefixFeaturesOutMixin",
    "ClassifierMixin",
    "ConvergenceWarning",
    "DensityMixin",
    "RegressorMixin",
    "TransformerMixin",
    "assert_all_finite",
    "check_array",
    "check_classification_targets",
    "check_consistent_length",
    "check_feature_names",
    "check_is_fitted",
    "check_random_state",
    "check_sample_weight",
    "clone",
    "column_or_1d",
    "compute_class_weight",
    "finite",
    "places_of",
    "refuse_infinite",
    "refuse_nonfinite",
    "validate_data",
]


class ConvergenceWarning(errors.ConvergenceWarning, exceptions.ConvergenceWarning):
    """A subclass of probml's and scikit-learn's warnings, so that a filter on either applies."""


errors.ConvergenceWarning.kind = ConvergenceWarning


def validate_data(estimator: object, X: object, **settings: object) -> np.ndarray:
    """scikit-learn's `validate_data` of X, which stores the names of its columns.

    Raises:
        DataError: two columns with one name, a column of dates, or one axis alone; of a table that
            is not converted, an infinite cell, by column and row. ValueError, TypeError: other
            refusals of scikit-learn.
    """
    check_once(X)
    if getattr(X, "ndim", 0) == 1:
        raise _one_axis(X)
    if settings.get("skip_check_array"):
        refuse_infinite(X, [f"'{name}'" for name in getattr(X, "columns", ())])
    if settings.get("dtype") is not None and not settings.get("skip_check_array"):
        _refuse_dates(X, None)
    try:
        return check_data(estimator, X, **settings)
    except TypeError as error:
        _refuse_dates(X, error)
        _refuse_cells(X, error)
        raise
    except ValueError as error:
        if "could not convert" in str(error) or "setting an array element" in str(error):
            _refuse_cells(X, error)
        if "got 1D array" in str(error):
            raise _one_axis(X) from error
        raise


def _refuse_dates(X: DataLike, error: TypeError | None) -> None:
    """
    Raises:
        DataError: the first column of a table that holds dates. If all do, scikit-learn converts
            them to numbers, in units that depend on their dtype (s, ns).
    """
    kinds = {"X": getattr(X, "dtype", None)} | {
        f"column '{name}' of X": kind for name, kind in zip(
            getattr(X, "columns", ()), getattr(X, "dtypes", ()), strict=False)}
    for label, kind in kinds.items():
        if getattr(kind, "kind", "O") in "Mm":
            raise DataError(describe_dates(label, kind)) from error


def _is_missing(cell: object) -> bool:
    try:
        return cell is None or bool(cell != cell)
    except (TypeError, ValueError):  # pandas' NA is neither; an array is several
        return type(cell).__name__ == "NAType"


def _refuse_cells(X: DataLike, error: Exception) -> None:
    """
    Raises:
        KindError, DataError: the first cell that is no number, by column and row.
    """
    columns = ({f"'{name}'": X[name] for name in X.columns} if hasattr(X, "columns")
               else dict(enumerate(np.atleast_2d(np.asarray(X, object)).T)))
    for name, column in columns.items():
        for row, cell in enumerate(column.tolist() if hasattr(column, "tolist") else column):
            try:
                if not _is_missing(cell):
                    float(cell)
            except (TypeError, ValueError):
                kind = DataError if isinstance(cell, str) else KindError
                why = (f"could not convert string to float: {shortly(cell)}"
                       if isinstance(cell, str) else "float() argument must be a string or a real "
                       f"number, got {type_of(cell)}, {shortly(cell)}")
                raise kind(f"column {name} of X, row {row}: {why}. Convert the column to numbers, "
                           f"drop it, or encode it: with pandas.get_dummies(X), or, for a "
                           f"regression, with probml.models.formula('y ~ …', table)") from error


def _one_axis(X: DataLike) -> DataError:
    return DataError(f"Expected 2D array, got 1D array: X has the shape {np.shape(X)}, but needs "
                     "rows and columns. Reshape your data: X[:, None] is one column")


def places_of(name: str, values: np.ndarray, count: int) -> np.ndarray:
    """The argument of `inverse_transform`, (n, n_components), as floats.

    Raises:
        DataError: another shape. ValueError: no table of numbers, by scikit-learn.
    """
    if getattr(values, "ndim", 2) != 2:
        raise DataError(f"inverse_transform: {name} has the shape {np.shape(values)}, expected (n, "
                        "n_components). Pass the result of transform(X)")
    values = check_array(values, dtype=np.float64, input_name=name)
    if values.shape[1] != count:
        raise DataError(f"inverse_transform: {name} has {counted(values.shape[1], 'column')}, "
                        f"expected n_components={count}. Pass the result of transform(X)")
    return values


def refuse_nonfinite(name: str, values: np.ndarray) -> None:
    """
    Raises:
        DataError: a cell of a target is NaN or infinite, by row.
    """
    bad = ~np.isfinite(values)
    if bad.any():
        row = int(np.argwhere(bad)[0, 0])
        what = "NaN" if np.isnan(values[bad][0]) else "infinity"
        raise DataError(f"Input {name} contains {what} in row {row} ({int(bad.sum())} in all), but "
                        f"{name} must be a finite number in every row. Drop these rows")


def refuse_infinite(X: DataLike, names: list[str]) -> None:
    """
    Args:
        names: of the columns, quoted; none, if they have numbers.

    Raises:
        DataError: the first cell of numbers that is infinite, or too large for a float, by column
            and row.
    """
    columns = [X.iloc[:, j] for j in range(X.shape[1])] if hasattr(X, "iloc") else np.atleast_2d(
        np.asarray(X)
    ).T
    for j, column in enumerate(columns):
        if getattr(column.dtype, "kind", "O") != "f":
            continue
        found = np.flatnonzero(np.isinf(np.asarray(column, dtype=float)))
        if len(found):
            name = names[j] if names else j
            raise DataError(f"X contains infinity: column {name} is infinite in row {found[0]}. "
                            f"Infinite values are not allowed; use NaN for a missing value")
