"""The implementation of a primitive in NumPy: a function built from the parameters and shapes of an
equation, and the estimated seconds of a call."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

SECONDS_PER_CALL = 2e-6  # of a NumPy function on few numbers, with our overhead
SECONDS_PER_ENTRY = 1e-9  # of operands and results


class Aval(NamedTuple):
    """The shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        return math.prod(self.shape)


Avals = Sequence[Aval]


class Step(NamedTuple):
    """One primitive, and the places of its operands and results."""

    name: str
    params: dict[str, Any]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    ins: tuple[Aval, ...]
    outs: tuple[Aval, ...]


class Unsupported(Exception):
    """A program has a primitive that is not implemented in NumPy, and is compiled by XLA."""


class TooLong(Exception):
    """A loop takes much longer than assumed: the program is compiled by XLA after all."""


def seconds(ins: Avals, outs: Avals, **_: object) -> float:
    """The estimated seconds of a call that reads every entry once."""
    return SECONDS_PER_CALL + SECONDS_PER_ENTRY * sum(aval.size for aval in (*ins, *outs))


class Operation(NamedTuple):
    """One primitive.

    Attributes:
        build: (avals of operands, avals of results, **parameters) → the function of the operands,
            which returns the result, or if `several` a list of results. Raises Unsupported.
        keys: the parameters that it takes.
        cost: (avals of operands, avals of results, **parameters) → estimated seconds of a call.
        fixed: the number of an operand whose value is passed to `build` as `at`, if constant.
    """

    build: Callable[..., Callable]
    keys: tuple[str, ...] = ()
    several: bool = False
    cost: Callable[..., float] = seconds
    fixed: int | None = None
