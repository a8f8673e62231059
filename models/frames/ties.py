"""Normal columns with too little to fit a spread to: few distinct values, or one."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from probml import DataError
from probml.estimators.face import flat
from probml.models.frames.columns import Columns
from probml.models.frames.kinds import tied


def warn_of_ties(columns: Columns, data: Mapping[str, np.ndarray]) -> None:
    """Say which normal columns take few values only: in a mixture a component can shrink onto one
    of them."""
    if "normal" not in columns.groups:
        return
    for i, j in enumerate(columns.groups["normal"][1]):
        if tied(data["normal"][:, i]):
            say_ties(columns.shown(j), data["normal"][:, i],
                     f"Say kinds={{{columns.names[j]!r}: 'categorical'}}, or drop it")


def warn_of_tied(X, shown, advice: str) -> None:
    """The same of an array whose columns are all normal; `shown`: a column's number → its name in a
    message."""
    for j in range(X.shape[1]):
        if tied(X[:, j]):
            say_ties(shown(j), X[:, j], advice)


def say_ties(shown: str, values, advice: str) -> None:
    """A warning that a normal fitted to this column has a density that only the prior bounds."""
    distinct = len(np.unique(values[~np.isnan(values)]))
    warnings.warn(
        f"{shown} has {distinct} distinct values in {len(values)} rows and is fitted by normals: a "
        f"component that shrinks onto one value "
        f"has a density that only the prior bounds, and more components always look better. "
        f"{advice}",
        UserWarning,
        stacklevel=5,
    )


def refuse_constant(columns: Columns, data: Mapping[str, np.ndarray], label: Any = None) -> None:
    """Normal columns that have no spread, in one class or in all rows, where the likelihood is to
    be maximised.

    Raises:
        DataError: naming the column and the class.
    """
    if "normal" not in columns.groups:
        return
    values, where = data["normal"], "" if label is None else f" in class {label!r}"
    if label is not None and len(values) < 2:
        raise DataError(
            f"class {label!r} has {len(values)} row: its normal columns have variance 0 and no "
            f"maximum of the likelihood. "
            "Keep prior=True, or drop the class"
        )
    if flat(values).any():
        i = int(np.argmax(flat(values)))
        raise DataError(
            f"{columns.shown(columns.groups['normal'][1][i])} is constant{where}: a normal that is "
            f"fitted to it has variance 0 and no "
            "maximum of the likelihood. Drop it, or keep prior=True"
        )
