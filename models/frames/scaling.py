"""Columns in their own units, for what measures distances or keeps few digits of a number."""

import numpy as np


def middle_and_unit(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the standard deviation of every column of X (n, d), of what is seen, NaN is not;
    1 for a column that is constant or unseen."""
    seen = ~np.isnan(X)
    count = np.maximum(seen.sum(0), 1)
    # about the first row: of large numbers the differences are summed
    first = np.where(seen[:1], X[:1], 0.0) if len(X) else np.zeros((1, X.shape[1]))
    apart = np.where(seen, X - first, 0.0)
    mean = apart.sum(0) / count
    unit = np.sqrt((np.where(seen, apart - mean, 0.0) ** 2).sum(0) / count)
    return first[0] + mean, np.where(unit > 0, unit, 1.0)
