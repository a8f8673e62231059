"""A random split of the rows of a source, which depends only on their numbers among all, not on the
parts or the order of reading."""

from typing import NamedTuple

import numpy as np

BLOCK = 2**20  # row numbers at a time, to bound memory


class Chosen(NamedTuple):
    """A random subset of rows, or its complement.

    Args:
        share: the probability that a row is drawn, in (0, 1). seed: of the draw.
        complement: whether it is the rows that are not drawn. rows: how many there are.
    """

    share: float
    seed: int
    complement: bool
    rows: int

    def indices(self, first: int, rows: int) -> np.ndarray:
        """The indices of its rows among `rows` rows, of which the first has the number `first`."""
        numbers = np.arange(first, first + rows, dtype=np.uint64)
        drawn = hashed(numbers ^ hashed(np.array([self.seed], np.uint64))) < np.uint64(
            self.share * 2.0**64)
        return np.flatnonzero(drawn != self.complement)


def split(rows: int, share: float, seed: int) -> tuple[Chosen, Chosen]:
    """The rows that are not drawn, and those that are."""
    drawn = Chosen(share, seed, False, 0)
    count = sum(len(drawn.indices(low, min(BLOCK, rows - low))) for low in range(0, rows, BLOCK))
    return drawn._replace(complement=True, rows=rows - count), drawn._replace(rows=count)


def hashed(numbers: np.ndarray) -> np.ndarray:
    """Pseudorandom 64-bit integers, one for each: SplitMix64's hash (Steele, Lea & Flood 2014)."""
    x = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
