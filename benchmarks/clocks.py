"""Seconds by the clock and of processors, and those that one iteration takes."""

import time
from typing import Any, NamedTuple

import numpy as np


class Timed(NamedTuple):
    """What a call found, and the seconds (by the clock, of processors) that count for it."""

    found: Any
    seconds: float
    processor: float


def now() -> np.ndarray:
    return np.array([time.perf_counter(), time.process_time()])


def iteration(learn, few: int, many: int) -> Timed:
    """One iteration of learn(iterations), without what a fit costs besides."""
    began = now()
    learn(few)
    middle = now()
    found = learn(many)
    last = now()
    each = np.maximum((last - middle) - (middle - began), 0.0) / (many - few)
    return Timed(found, *each)
