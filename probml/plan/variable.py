"""A discrete site that is summed out as a whole, and its joint states."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Variable:
    """A discrete site that is summed out: `values[s]` are the site's cells in joint state s."""

    name: str
    values: np.ndarray

    @property
    def states(self) -> int:
        return len(self.values)
