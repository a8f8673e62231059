"""Where EM begins in an estimator: rows far from each other as means, and precisions from the rows
near them, in any unit."""

import numpy as np

from probml.dataset.checks.digits import ROUNDING
from probml.models.frames.units import moments


def spread(X) -> np.ndarray:
    """The columns' standard deviations, of a constant column the size of its value, or 1; (d,)."""
    return moments(X).spread


def far_rows(X, k: int, random: np.random.RandomState) -> np.ndarray:
    """k rows of complete X by k-means++ (Arthur & Vassilvitskii 2007) on standardised columns, (k,
    d)."""
    from sklearn.cluster import kmeans_plusplus  # slow to import, and few estimators need it

    return X[kmeans_plusplus((X - X.mean(0)) / spread(X), k, random_state=random)[1]]


def precision_near(X, means, event: tuple[int, ...]) -> np.ndarray:
    """One precision for all components: 1 / the mean squared distance of the rows to their nearest
    mean, column by column.

    Args:
        means: (k, d).
        event: the shape of a precision: (d, d), (d,) or ().
    """
    scale = spread(X)
    distance = [np.nansum(((X - mean) / scale) ** 2, 1) for mean in means]
    within = np.nanmean((X - means[np.argmin(distance, 0)]) ** 2, 0)
    within = np.where(within > (ROUNDING * scale) ** 2, within, scale**2)
    return np.diag(1 / within) if len(event) == 2 else 1 / within if event else 1 / within.mean()
