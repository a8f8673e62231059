"""Some rows of a source, told by their numbers among all: it does not matter how these are cut into
parts, nor in which order they are read."""

from typing import NamedTuple

import numpy as np

BLOCK = 2**20  # numbers that are looked at together


class Chosen(NamedTuple):
    """A share of rows that chance drew, or the others.

    Args:
        share: of all, in (0, 1). seed: of the draw. others: those that were not drawn.
        rows: how many they are.
    """

    share: float
    seed: int
    others: bool
    rows: int

    def at(self, first: int, rows: int) -> np.ndarray:
        """Which of so many rows from the number `first` on, as indices."""
        numbers = np.arange(first, first + rows, dtype=np.uint64)
        drawn = scrambled(numbers ^ scrambled(np.array([self.seed], np.uint64))) < np.uint64(
            self.share * 2.0**64)
        return np.flatnonzero(drawn != self.others)


def split(rows: int, share: float, seed: int) -> tuple[Chosen, Chosen]:
    """The rows that are not drawn, and those that are: about a share of all."""
    drawn = Chosen(share, seed, False, 0)
    count = sum(len(drawn.at(low, min(BLOCK, rows - low))) for low in range(0, rows, BLOCK))
    return drawn._replace(others=True, rows=rows - count), drawn._replace(rows=count)


def scrambled(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers in no order: the mixing of SplitMix64 (Steele, Lea & Flood 2014)."""
    x = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
