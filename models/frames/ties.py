"""Normal columns with too little to fit a spread to: few distinct values, or one."""

import warnings
from collections.abc import Mapping

import numpy as np

from probml import DataError
from probml.errors import counted
from probml.estimators.estimator import flat
from probml.models.frames.columns import Columns
from probml.models.frames.kinds import has_few_values

SHOWN = 6  # columns that a warning names


def warn_of_ties(columns: Columns, data: Mapping[str, np.ndarray]) -> None:
    """Say which normal columns take few values only: in a mixture a component can shrink onto one
    of them."""
    if "normal" not in columns.groups:
        return
    values, indices = data["normal"], columns.groups["normal"][1]
    tied = [i for i in range(values.shape[1]) if has_few_values(values[:, i])]
    kinds = ", ".join(f"{columns.names[indices[i]]!r}: 'categorical'" for i in tied)
    _warn([columns.describe_column(indices[i]) for i in tied], values[:, tied],
          f"Pass kinds={{{kinds}}}, or drop {'it' if len(tied) == 1 else 'them'}")


def warn_of_ties_in_array(X, title, advice: str) -> None:
    """As `warn_of_ties`, of an array whose columns are all normal; `title`: a column's number → its
    name in a message."""
    tied = [j for j in range(X.shape[1]) if has_few_values(X[:, j])]
    _warn([title(j) for j in tied], X[:, tied], advice)


def _warn(names: list[str], values: np.ndarray, advice: str) -> None:
    """One warning that normals fitted to these columns have densities that only the prior bounds;
    none where there are none."""
    counts = [len(np.unique(column[~np.isnan(column)])) for column in values.T]
    if not names:
        return
    if len(names) == 1:
        subject = (f"{names[0]} has {counted(counts[0], 'distinct value')} in "
                   f"{counted(len(values), 'row')} and is")
    else:
        head = [f"{name} ({count})" for name, count in zip(names, counts, strict=True)][:SHOWN]
        n_more = len(names) - len(head)
        others = f" and {counted(n_more, 'more column')}" * bool(n_more)
        subject = (f"{', '.join(head)}{others} have few distinct values (their number in brackets) "
                   f"in {counted(len(values), 'row')} and are")
    warnings.warn(
        f"{subject} fitted by normal distributions. The variance of a component can shrink to 0 at "
        f"one of these values, so the score prefers too many components. {advice}",
        UserWarning,
        stacklevel=5,
    )


def refuse_constant(columns: Columns, data: Mapping[str, np.ndarray], label: object = None) -> None:
    """Normal columns that have no spread, in one class or in all rows, where the likelihood is to
    be maximised.

    Raises:
        DataError: naming the column and the class.
    """
    if "normal" not in columns.groups:
        return
    values, within = data["normal"], "" if label is None else f" in class {label!r}"
    if label is not None and len(values) < 2:
        raise DataError(
            f"class {label!r} has only {len(values)} row, so normal distributions fitted to this "
            "class have variance 0 and the likelihood has no maximum. Set prior=True, or drop the "
            "class"
        )
    if flat(values).any():
        i = int(np.argmax(flat(values)))
        raise DataError(
            f"{columns.describe_column(columns.groups['normal'][1][i])} is constant{within}, so a "
            "normal distribution fitted to it has variance 0 and the likelihood has no maximum. "
            "Drop the column, or set prior=True"
        )
