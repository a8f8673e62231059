"""A fit whose digits ran out in float32 is in double, and is asked in double, whatever JAX's own precision is."""

import functools
from collections.abc import Callable, Mapping
from types import FunctionType

import jax
import numpy as np

from probml.tables import Column

LOST = 1e-3  # of a column's spread: the distance between neighbouring numbers at its mean that is too much
TOLD = 2**16  # rows that tell the mean and the spread of a column
HUGE = 1e15  # spreads whose squares, cubes of them or reciprocals have no room in float32


def measured(values: np.ndarray, seen: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of the cells of a column over the rows in which they are seen; of very many rows some tell them."""
    step = max(len(values) // TOLD, 1)
    values = np.asarray(values[::step], float)
    share = np.ones(values.shape) if seen is None else np.asarray(seen[::step], float)
    total = np.maximum(share.sum(0), 1.0)
    mean = (share * values).sum(0) / total
    return mean, np.sqrt((share * (values - mean) ** 2).sum(0) / total)


def beyond(columns: Mapping[str, Column]) -> str | None:
    """Which of some columns of numbers float32 does not hold, in words; None: it holds them all.

    It has seven digits: of seconds since 1970 those that tell one minute from the next are lost.
    """
    for name, column in columns.items():
        if not len(column.values) or column.values.dtype.kind not in "iuf":
            continue
        mean, spread = (part.ravel() for part in measured(column.values, column.seen))
        near = np.finfo(np.float32).eps * np.abs(mean) > LOST * spread
        for j in np.flatnonzero((spread > 64 * np.finfo(float).eps * np.abs(mean)) & (near | (spread > HUGE) | (spread < 1 / HUGE))):
            where = f"'{name}'" if len(mean) == 1 else f"'{name}'[{j}]"
            return f"{where}, which lies around {mean[j]:.6g} with a spread of {spread[j]:.3g}"
    return None


def in_its_own(cls: type) -> type:
    """Let the public verbs and answers of a class compute in double where `self.double` says so."""
    for name, found in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(found, FunctionType):
            setattr(cls, name, _switched(found))
        elif isinstance(found, functools.cached_property):
            found.func = _switched(found.func)
    return cls


def _switched(function: Callable) -> Callable:
    @functools.wraps(function)
    def ask(self, *args, **kwargs):
        if not self.double or jax.config.jax_enable_x64:
            return function(self, *args, **kwargs)
        with jax.enable_x64(True):
            return function(self, *args, **kwargs)

    return ask
