"""Means and sums of squares of a column's cells, which can be merged over parts of the rows."""

import functools
from typing import NamedTuple, Self

import numpy as np

from probml.dataset.tables import Column
from probml.numerics.process.threads import map_in_threads

PIECE = 2**17  # numbers at a time, which fit in cache
NARROW = 8  # numbers of a row up to which a matrix product is the faster sum


class Moments(NamedTuple):
    """The weight, the mean and the sum of squares about the mean of each cell of a column, over the
    rows in which it is observed. They are merged without cancellation (Chan, Golub & LeVeque 1983).
    """

    weight: np.ndarray
    mean: np.ndarray
    square: np.ndarray

    @classmethod
    def of(cls, column: Column, weights: np.ndarray | None = None) -> "Moments":
        """The moments of a column with weights (n,); None: 1 each.

        Cost: one pass, piece by piece, in several threads if it is long; memory of some pieces.
        """
        rows = len(column.values)
        size = max(PIECE // max(column.values[0].size, 1), 1)

        def at(begin: int) -> Moments:
            part = slice(begin, begin + size)
            return cls._of(column.values[part], None if column.observed is None
                           else column.observed[part],
                           None if weights is None else weights[part])

        return functools.reduce(cls.merged, map_in_threads(at, range(0, rows, size)))

    @classmethod
    def _of(cls, values: np.ndarray, mask: np.ndarray | None,
            weights: np.ndarray | None) -> "Moments":
        if weights is None and mask is None:
            diff = values.astype(float)
            mean = _mean(diff)
            diff -= mean
            return cls(np.full(mean.shape, float(len(values))), mean,
                       np.einsum("i...,i...->...", diff, diff))
        share = np.ones(len(values)) if weights is None else weights
        if mask is None:
            weight = np.full(values.shape[1:], share.sum())
            mean = np.tensordot(share, values, 1) / np.where(weight > 0, weight, 1.0)
            diff = values - mean
        else:
            weight = np.tensordot(share, mask, 1)
            safe_weight = np.where(weight > 0, weight, 1.0)
            mean = np.tensordot(share, np.where(mask, values, 0.0), 1) / safe_weight
            # a cell that is missing in all rows gets the mean of the others
            mean = np.where(weight > 0, mean, (weight * mean).sum() / max(weight.sum(), 1e-300))
            diff = np.where(mask, values - mean, 0.0)
        return cls(weight, mean, np.einsum("i,i...,i...->...", share, diff, diff))

    @classmethod
    def about(cls, diff: np.ndarray, centre: np.ndarray) -> "Moments":
        """The moments of completely observed cells from `diff`, (n, *cells), float64, cells less
        a guess of their means, `centre`: the sum of squares about the means is that about the guess
        minus n × (error of the guess)², which is precise if the guess is within a few standard
        deviations.

        Cost: two reads, no copy of the rows.
        """
        n, mean_error = float(len(diff)), _mean(diff)
        square = np.einsum("i...,i...->...", diff, diff) - n * mean_error**2
        return cls(np.full(mean_error.shape, n), centre + mean_error, np.maximum(square, 0.0))

    def merged(self, other: Self) -> Self:
        """The moments of both parts together."""
        weight = self.weight + other.weight
        share = other.weight / np.where(weight > 0, weight, 1.0)
        shift = other.mean - self.mean
        return type(self)(weight, self.mean + share * shift,
                          self.square + other.square + self.weight * share * shift**2)


def _mean(values: np.ndarray) -> np.ndarray:
    """values.mean(0), for narrow rows by a product, since NumPy's sum takes them one at a time."""
    flat = values.reshape(len(values), -1)
    if not 1 < flat.shape[1] <= NARROW:
        return values.mean(0)
    return (np.ones(len(flat), flat.dtype) @ flat / len(flat)).reshape(values.shape[1:])
