"""Where the axis of rows lies in an array of a traced program: the values that the rules of
primitives read and give."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Rows(NamedTuple):
    """What is known of one array about rows.

    The axis of rows may be merged with others by a reshape: its size is then outer x rows x inner,
    row i standing at every place p with (p // inner) % rows == i.
    """

    # None: the same for all rows, and along every axis of their number; EACH: one row's own, in a
    # loop over rows
    axis: int | None = None
    inner: int = 1
    data: bool = False  # depends on data of its row
    number: bool = False  # depends on its row's number
    mixed: str = ""  # the primitive through which a row came to depend on others
    # whole numbers that depend on no data; NaN stands for one that does. Last: not compared
    known: np.ndarray | None = None


EACH = -1
SHARED = Rows()
Place = tuple[int, int]  # axis and inner


class Mixed(Exception):
    """A primitive combines rows, or nobody says that it does not."""


def number_of(shape: tuple[int, ...], axes: list[int], rows: int) -> Rows:
    if not axes:
        return SHARED
    if len(axes) > 1 or shape[axes[0]] != rows:
        return Rows(number=True, mixed="iota")
    return Rows(axes[0], number=True)


def one(places: Sequence[Place]) -> Place:
    """The one place on which all operands agree."""
    if len(set(places)) != 1:
        raise Mixed
    return places[0]


def _own(values: Sequence[Rows]) -> list[Place]:
    return [(value.axis, value.inner) for value in values if value.axis is not None]


def same(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    return one(_own(values))


def without(touched: Callable[[dict], Any], gone: bool = False) -> Callable:
    """The rule of a primitive that works along the axes `touched(params)`, which are gone
    afterwards or stay."""

    def rule(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
        axis, inner = same(eqn, values, rows)
        axes = touched(eqn.params)
        axes = {int(a) for a in axes} if isinstance(axes, list | tuple) else {int(axes)}
        axes = {a % len(eqn.invars[0].aval.shape) for a in axes}
        if axis in axes:
            raise Mixed
        return axis - sum(a < axis for a in axes) * gone, inner

    return rule


def unknown(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    raise Mixed
