"""Clusters of rows from which an estimator guesses the spread inside a component before it is
fitted: k-means from a start without chance.

The start parts the cluster of the largest sum of squares at its mean, across its widest direction,
until there are k (Su & Dy 2007, "In search of deterministic methods for initializing k-means and
Gaussian mixture clustering": PCA-Part); Lloyd's rounds follow (1982). So neither the order of rows
nor whether one stands twice or has weight 2 matters.
"""

import numpy as np

ROUNDS = 30  # of Lloyd's, at the most: the last ones move a spread by less than a hundredth
POWERS = 20  # of a scatter matrix: two directions nearly as wide part the rows as well
SAMPLE = 10_000  # rows from which the centres are found, at the most
CHUNK = 8_192  # rows whose distances to all centres are made at once: they stay in cache


def clusters(X, k: int, weights=None) -> np.ndarray:
    """A cluster 0 … k − 1 of every row of X (n, d), (n,); fewer where the rows have fewer distinct
    values.

    Columns are compared in their own standard deviations; an unseen cell, NaN, stands at its
    column's mean.

    Cost: O(min(n, SAMPLE) · k · d) a round.
    """
    X = np.asarray(X, float)
    if k == 1 or len(X) < 2:
        return np.zeros(len(X), int)
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, float)
    sample = slice(None, None, -(-len(X) // SAMPLE))
    cell_weights = weights[sample, None] * ~np.isnan(X[sample])
    total = np.maximum(cell_weights.sum(0), np.finfo(float).tiny)
    origin = np.where(np.isnan(X[0]), 0.0, X[0])  # of large numbers the differences are summed
    offsets = np.where(np.isnan(X[sample]), 0.0, X[sample] - origin)
    centre = (cell_weights * offsets).sum(0) / total
    scales = np.sqrt((cell_weights * (offsets - centre) ** 2).sum(0) / total)
    scales = np.where(scales > 0, scales, 1.0)

    def standard(x: np.ndarray) -> np.ndarray:
        return np.nan_to_num(x - origin - centre, nan=0.0, posinf=np.inf, neginf=-np.inf) / scales

    z = standard(X[sample])
    means = _means_of_parts(z, weights[sample], k)
    codes = None
    for _ in range(ROUNDS):
        previous, codes = codes, _nearest(z, means)
        if previous is not None and (codes == previous).all():
            break
        means = _means(z, weights[sample], codes, means)
    return np.concatenate([_nearest(standard(X[i : i + CHUNK]), means)
                           for i in range(0, len(X), CHUNK)])


def _means_of_parts(z, weights, k: int) -> np.ndarray:
    """(k or fewer, d) means of parts of the rows."""
    codes, parts = np.zeros(len(z), int), {}
    for new_code in range(1, k):
        for code in set(range(new_code)) - parts.keys():
            parts[code] = _halves(z[codes == code], weights[codes == code])
        widest = max(parts, key=lambda code: parts[code][0])
        sum_sq, beyond = parts.pop(widest)
        if not sum_sq > 0:
            break
        codes[np.flatnonzero(codes == widest)[beyond]] = new_code
    return _means(z, weights, codes, np.zeros((codes.max() + 1, z.shape[1])))


def _halves(z, weights) -> tuple[float, np.ndarray]:
    """The sum of squares about the mean, and which rows lie beyond the mean along the widest
    direction: the row that lies farthest, turned by powers of the scatter matrix."""
    total = weights.sum()
    centred = z - weights @ z / (total if total > 0 else 1.0)
    squares = (centred**2).sum(1)
    direction = centred[np.argmax(np.where(weights > 0, squares, 0.0))]
    for _ in range(POWERS):
        direction = (weights * (centred @ direction)) @ centred
        direction /= max(np.linalg.norm(direction), np.finfo(float).tiny)
    return float(weights @ squares), centred @ direction > 0


def _means(z, weights, codes, previous) -> np.ndarray:
    """The mean of every cluster; of an empty one the one before."""
    assigned = weights * (codes == np.arange(len(previous))[:, None])
    total = assigned.sum(1, keepdims=True)
    return np.where(total > 0, assigned @ z / np.where(total > 0, total, 1.0), previous)


def _nearest(z, means) -> np.ndarray:
    """The nearest mean of every row."""
    return np.argmin((means**2).sum(1) - 2 * z @ means.T, 1)
