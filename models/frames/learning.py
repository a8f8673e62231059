"""What the columns of a table are, learnt from its rows and from what a user said of them."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from probml import DataError, ModelError
from probml.dataset.arrays import missing
from probml.errors import listed
from probml.estimators.estimator import Estimator
from probml.estimators.validation import validate_data
from probml.models.frames.cells import column_of, labels_of, usual_of
from probml.models.frames.columns import KINDS, Columns
from probml.models.frames.kinds import refuse_dates


def validated_columns(estimator: Estimator, X, reset: bool, frames: tuple) -> Any:
    """X as the estimator's columns are read from it: floats where every column is a number, else an
    array or DataFrame as it is.

    Args:
        frames: (categorical, kinds), the settings of the estimator.
    """
    categorical, kinds = frames
    if hasattr(X, "iloc"):
        X = validate_data(estimator, X, reset=reset, skip_check_array=True)
        if 0 in X.shape:
            raise DataError(f"X is empty: its shape is {X.shape}, expected at least 1 sample and 1 "
                            "feature. Check how X was read or filtered")
    elif categorical is None and kinds != "categorical" and "categorical" not in getattr(
        kinds, "values", tuple
    )():
        return estimator._numbers(X, reset)
    else:  # a list of rows with text and NaN stays as it is
        X = np.array(X, dtype=object) if isinstance(X, list | tuple) else X
        X = validate_data(estimator, X, reset=reset, dtype=None, ensure_all_finite=False)
    if reset:
        columns = [column_of(X, j) for j in range(X.shape[1])]
        estimator._refuse_missing(np.array(
            [missing(c.to_numpy() if hasattr(c, "to_numpy") else c).all() for c in columns]
        ))
    return X


def learn_for(estimator: Estimator, X, categorical: Collection | str | None,
              kinds: Mapping[Hashable, str] | Sequence[str] | None) -> Columns:
    """`learn` with the other settings of an estimator, those it has."""
    names = getattr(estimator, "feature_names_in_", None)
    spare = getattr(estimator, "unknown", "refuse") == "prior"
    return learn(X, categorical, kinds, getattr(estimator, "categories", None), spare,
                 None if names is None else names.tolist())


def learn(X, categorical: Collection | str | None,
          kinds: Mapping[Hashable, str] | Sequence[str] | None,
          categories: Mapping[Hashable, Sequence] | Sequence | str | None, spare: bool,
          names: Sequence[str] | None) -> Columns:
    """The kinds and categories of the columns of X, an array or a DataFrame.

    Args:
        categorical: None, "all", or the categorical columns by name or index.
        kinds: None, one kind for all columns, or column → kind, by name or index.
        categories: None, the categories of all categorical columns, or column → categories.
        spare: one further state for what training did not show.
        names: the columns' names, None where they have none.

    Raises:
        ModelError: a setting that names no column, or an unknown kind.
        DataError: a column that is missing in every row, a kind that its values do not suit.
    """
    width = X.shape[1]
    titles = tuple(f"column {j}" if names is None else f"column {names[j]!r}" for j in range(width))

    stated = _stated_kinds(categorical, kinds, width, names)
    guessed = tuple(kind is None for kind in stated)
    kind_of = [usual_of(column_of(X, j), titles[j]) if kind is None else kind
               for j, kind in enumerate(stated)]
    for j, kind in enumerate(kind_of):
        if kind != "categorical" and kind not in KINDS:
            raise ModelError(f"kinds: {titles[j]} is {kind!r}, expected 'categorical' or one of "
                             f"{listed(KINDS)}")
    for j, kind in enumerate(kind_of):
        if kind != "categorical":
            refuse_dates(column_of(X, j), titles[j])
    given = {}
    if isinstance(categories, Mapping):
        given = {_position(key, "categories", width, names): _categories(value,
                                                                         f"categories[{key!r}]")
                 for key, value in categories.items()}
    elif categories is not None:
        given = dict.fromkeys(range(width), _categories(categories, "categories"))
    labels = []
    for j, kind in enumerate(kind_of):
        labels.append((given[j] if j in given else labels_of(column_of(X, j), titles[j]))
                      if kind == "categorical" else None)
    return Columns(tuple(range(width) if names is None else names), tuple(kind_of), tuple(labels),
                   spare, guessed)


def _position(key: Hashable, setting: str, width: int, names: Sequence[Hashable] | None) -> int:
    """The number of a column that a setting names, by its name or number."""
    if names is not None and key in names:
        return list(names).index(key)
    if isinstance(key, int | np.integer) and not isinstance(key, bool) and -width <= key < width:
        return int(key) % width
    raise ModelError(f"{setting} contains {key!r}, which is not a column. Use one of "
                     f"{listed(range(width) if names is None else names)}")


def _stated_kinds(categorical: Collection | str | None,
                  kinds: Mapping[Hashable, str] | Sequence[str] | None, width: int,
                  names: Sequence[str] | None) -> list[str | None]:
    """The kind of each column that the settings of `learn` state; None: none."""
    if not isinstance(kinds, str | Mapping | None):
        raise ModelError(f"kinds={kinds!r:.80}: expected None, one kind for all columns, or a "
                         "mapping from columns to kinds, such as {'age': 'normal'}")
    if categorical is not None and not isinstance(categorical, str) and (
            not isinstance(categorical, Iterable) or getattr(categorical, "ndim", 1) != 1):
        raise ModelError(f"categorical={categorical!r:.80}: expected None, 'all', or a list of "
                         "columns, by name or number, such as ['sex']")
    stated: list[str | None] = [kinds if isinstance(kinds, str) else None] * width
    for key, kind in (kinds or {}).items() if not isinstance(kinds, str) else ():
        stated[_position(key, "kinds", width, names)] = kind
    if isinstance(categorical, str) and categorical == "all":
        stated = ["categorical"] * width
    elif categorical is not None:
        for key in categorical:
            stated[_position(key, "categorical", width, names)] = "categorical"
    return stated


def _categories(values: object, name: str) -> tuple:
    """Categories as they were given."""
    items = (list(values) if isinstance(values, Iterable)
             and not isinstance(values, str | bytes | Mapping) else [])
    if not items or any(isinstance(value, list | tuple | set | dict | np.ndarray)
                        for value in items):
        raise ModelError(f"{name}={values!r:.80}: expected one list of categories for all "
                         f"columns, such as ['no', 'yes'], or one list per column, such as "
                         f"{{'smoker': ['no', 'yes']}}")
    if repeats := [value for i, value in enumerate(items) if value in items[:i]]:
        raise ModelError(f"{name}={values!r:.80}: {repeats[0]!r} occurs twice. Give every category "
                         f"once")
    return tuple(items)
