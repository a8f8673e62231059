"""Where EM begins in an estimator: rows far from each other as means, and precisions from the rows
near them, in any unit."""

import numpy as np

from probml.dataset.checks.digits import ROUNDING
from probml.models.frames.units import moments


def far_rows(X, k: int, random: np.random.RandomState, weights=None) -> np.ndarray:
    """k of the distinct rows of complete X by k-means++ (Arthur & Vassilvitskii 2007) on
    standardised columns, (k, d); the same ones in any order of rows and columns, and whether a row
    stands twice or has weight 2."""
    from sklearn.cluster import kmeans_plusplus  # slow to import, and few estimators need it

    stats = moments(X, weights)
    rows, inverse = np.unique(X, axis=0, return_inverse=True)
    counts, z = np.bincount(inverse.ravel(), weights), (rows - stats.centre) / stats.spread
    order = np.lexsort([np.round((z**power).sum(1), 9) for power in (3, 2, 1)])
    return rows[order][kmeans_plusplus(z[order], k, random_state=random,
                                       sample_weight=counts[order])[1]]


def precision_near(X, means, event: tuple[int, ...], weights=None) -> np.ndarray:
    """One precision for all components: 1 / the mean squared distance of the rows to their nearest
    mean, column by column.

    Args:
        means: (k, d).
        event: the shape of a precision: (d, d), (d,) or ().
    """
    scale = moments(X, weights).spread
    distance = [np.nansum(((X - mean) / scale) ** 2, 1) for mean in means]
    squares = np.ma.masked_invalid((X - means[np.argmin(distance, 0)]) ** 2)
    within = np.ma.filled(np.ma.average(squares, 0, weights), np.nan)
    within = np.where(within > (ROUNDING * scale) ** 2, within, scale**2)
    return np.diag(1 / within) if len(event) == 2 else 1 / within if event else 1 / within.mean()
