"""Columns in their own units, for what measures distances or keeps few digits of a number."""

import numpy as np


def middle_and_unit(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the standard deviation of every column of X (n, d), of what is seen, NaN is not;
    1 for a column that is constant or unseen."""
    observed = ~np.isnan(X)
    count = np.maximum(observed.sum(0), 1)
    # about the first row: of large numbers the differences are summed
    origin = np.where(observed[:1], X[:1], 0.0) if len(X) else np.zeros((1, X.shape[1]))
    offsets = np.where(observed, X - origin, 0.0)
    mean = offsets.sum(0) / count
    scales = np.sqrt((np.where(observed, offsets - mean, 0.0) ** 2).sum(0) / count)
    return origin[0] + mean, np.where(scales > 0, scales, 1.0)
