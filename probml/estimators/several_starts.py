"""The best of several fits of an estimator, each from another start."""

import math
import warnings
from collections.abc import Callable, Iterable

from probml.interface.fit import Fit


def best_of(attempts: Iterable[Callable[[], Fit]]) -> Fit:
    """The fit of the highest objective, with its own warnings: of the others nothing is kept, so
    that what they were warned of is not said."""
    found = []
    for attempt in attempts:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found.append((attempt(), said))
    best, said = max(found, key=lambda each: _objective(each[0]))
    for each in said:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return best


def _objective(fit: Fit) -> float:
    """The value that a fit ended at."""
    return -math.inf if fit.history is None else float(fit.history[-1])
