"""The best of several fits of an estimator, each from another start."""

import warnings
from collections.abc import Callable, Iterable

from probml.estimators.estimator import objective_of
from probml.interface.fit import Fit


def best_of(attempts: Iterable[Callable[[], Fit]]) -> Fit:
    """Returns the fit with the highest objective. Only its own warnings are issued; those of the
    other fits are dropped."""
    found = []
    for attempt in attempts:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found.append((attempt(), said))
    best, said = max(found, key=lambda each: objective_of(each[0]))
    for each in said:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return best
