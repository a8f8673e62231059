"""What y, offsets and trials may be, by the family of y: asked by every estimator that has
families."""

import warnings

import numpy as np

from probml import DataError, Fit, ReliabilityWarning
from probml.estimators.validation import refuse_nonfinite
from probml.language.given import floats
from probml.models.regression.generalized_linear import ALIASES, ZEROS

SUPPORTS = {  # family → what y must be, in words and as a test
    "bernoulli": ("0 or 1", lambda y: (y == 0) | (y == 1)),
    "binomial": ("an integer of at least 0", lambda y: (y >= 0) & (y == np.floor(y))),
    "poisson": ("an integer of at least 0", lambda y: (y >= 0) & (y == np.floor(y))),
    "negative binomial": ("an integer of at least 0", lambda y: (y >= 0) & (y == np.floor(y))),
    "gamma": ("above 0", lambda y: y > 0),
    "normal": ("a number", lambda y: np.isfinite(y)),
    "student_t": ("a number", lambda y: np.isfinite(y)),
    "beta": ("above 0 and below 1", lambda y: (y > 0) & (y < 1)),
}
SUPPORTS |= {family: SUPPORTS["poisson"] for family in ZEROS}
COUNTS = ("bernoulli", "binomial", "poisson", "negative binomial", *ZEROS)


def family_of_targets(family: str, trials: np.ndarray | None) -> str:
    """The family by its name here; a binomial without trials is of y that are 0 or 1."""
    family = ALIASES.get(family, family)
    return "bernoulli" if family == "binomial" and trials is None else family


def checked_column(values, name: str, count: int,
                   rows: np.ndarray | None = None) -> np.ndarray | None:
    """A column that goes with X, checked.

    Args:
        count: the rows of X. rows: the numbers of those that are kept; None: all.

    Raises:
        DataError: it is no column of finite numbers, one a row.
    """
    if values is None:
        return None
    values = floats(values, name)
    if values.shape != (count,):
        raise DataError(f"{name} has the shape {values.shape}, expected ({count},). Give one "
                        "number for each row of X")
    refuse_nonfinite(name, values)
    return values if rows is None else values[rows]


def check_targets(family: str, y: np.ndarray, trials: np.ndarray | None, rows: np.ndarray) -> None:
    """
    Args:
        rows: the numbers of those that are kept, for messages.

    Raises:
        DataError: a y that the family cannot have, by row; trials without a binomial, or the other
            way round.
    """
    words, valid = SUPPORTS[family]
    if not (allowed := valid(y)).all():
        row = int(rows[np.argmin(allowed)])
        hint = (". For counts of successes use family='binomial' with trials="
                * (family == "bernoulli"))
        raise DataError(f"y is {y[np.argmin(allowed)]:g} in row {row}, but family={family!r} needs "
                        f"{words}. Correct the value, or use another family{hint}")
    if family != "binomial" and trials is not None:
        raise DataError(f"trials= is only for family='binomial', got family={family!r}. Omit "
                        f"trials=")
    invalid = np.zeros(len(y), bool) if trials is None else (trials < 1) | (y > trials)
    if trials is not None and invalid.any():
        i = int(np.argmax(invalid))
        raise DataError(f"y (successes) is {y[i]:g} and trials is {trials[i]:g} in row {rows[i]}. "
                        "Expected trials of at least 1, and y of at most trials. Correct this row")


def asked_offset(fit: Fit, offset, count: int) -> np.ndarray | None:
    """The offset of a question, checked; warns where the rows that were fitted had one and there is
    none, since the answer is then for an offset of 0."""
    if offset is None and "offset" in fit.model.inputs:
        warnings.warn("the model was fitted with offset=, but predict was called without it. The "
                      "prediction is for an offset of 0 (for counts, an exposure of 1). Give "
                      "offset=, an array (n,) as in fit", ReliabilityWarning, stacklevel=4)
    return checked_column(offset, "offset", count)
