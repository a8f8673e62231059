"""What NumPy is told of a primitive: how its function is made of the equation's parameters and
shapes, and about how long a call takes."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

CALL = 2e-6  # seconds of a NumPy function on next to nothing, the walk to it included
ENTRY = 1e-9  # seconds an entry, of operands and results


class Aval(NamedTuple):
    """The shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        return math.prod(self.shape)


Avals = Sequence[Aval]


class Step(NamedTuple):
    """One primitive at its places."""

    name: str
    params: dict[str, Any]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    ins: tuple[Aval, ...]
    outs: tuple[Aval, ...]


class Untold(Exception):
    """A program has something that is not implemented in NumPy: it is left to XLA."""


class TooLong(Exception):
    """A loop goes on for longer than it was taken to: the program is left to XLA after all."""


def seconds(ins: Avals, outs: Avals, **_: object) -> float:
    """About how long a call takes that looks at every entry once."""
    return CALL + ENTRY * sum(aval.size for aval in (*ins, *outs))


class Operation(NamedTuple):
    """One primitive.

    Attributes:
        build: (operands, results, **parameters) → the function of the operands; it returns the
            result, or where `several` a list of results. Raises Untold.
        keys: the parameters that it takes.
        cost: (operands, results, **parameters) → about how many seconds a call takes.
        fixed: the number of an operand that `build` is given as `at`, where it is a constant.
    """

    build: Callable[..., Callable]
    keys: tuple[str, ...] = ()
    several: bool = False
    cost: Callable[..., float] = seconds
    fixed: int | None = None


def from_function(function: Callable) -> Operation:
    """The operation of a function of the operands alone."""
    return Operation(lambda ins, outs: function)
