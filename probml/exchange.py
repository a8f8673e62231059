"""Do rows look at each other? The axis of rows is followed through a program traced with a number of rows that no other axis has.

Of every array it is known where its axis of rows is: the slice of row i is then a function of row i of the data and of what all rows
share, and of nothing else. An array without such an axis is the same for all rows. What a primitive does to the axis stands in
row_axes.py; the walk is walk.py's, and a primitive that the table (primitives.py) does not hold mixes rows.

A row's own number is followed too: arange over rows, a random number for each, a constant with an axis of rows.
"""

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from jax.extend import core

from probml.primitives import Kind, known, name_of
from probml.row_axes import EACH, LARGEST_READ, SHARED, Mixed, Rows, folded, placed
from probml.walk import Scan, While, equations, interpret, settled

NUMBER = "iota"  # stands for a dependence on a row's number


def mixes(closed: core.ClosedJaxpr, axes: Sequence[int | None], rows: int, numbers: Collection[int] = ()) -> list[str]:
    """For each output, the primitive through which one row comes to depend on another, NUMBER for its own number, or ''.

    Args:
        closed: traced with `rows` rows.
        axes: for each input, which axis of it is that of the rows; None where it is the same for all.
        rows: a size, a prime, of which no other axis is a multiple.
        numbers: the inputs that are the numbers of the rows, 0 … rows - 1.
    """
    walk = _Walk(rows)
    number = Rows(0, number=True, known=np.arange(rows, dtype=float))
    inputs = [number if i in numbers else SHARED if axis is None else Rows(axis, data=True) for i, axis in enumerate(axes)]
    return [value.mixed or (NUMBER if value.number else "") for value in walk.run(closed, inputs)]


def unlike(single: core.ClosedJaxpr) -> int:
    """A number of rows for the trace: a prime of which no axis in the program of a single row is a multiple."""
    sizes = {size for value in single.consts for size in np.shape(value)}
    for eqn in equations(single):
        sizes.update(size for atom in (*eqn.invars, *eqn.outvars) for size in getattr(atom.aval, "shape", ()))
        sizes.add(eqn.params.get("length", 0) or 0)
    sizes.update(size for aval in (*single.in_avals, *single.out_avals) for size in aval.shape)
    primes = (n for n in itertools.count(61, 2) if all(n % p for p in range(3, math.isqrt(n) + 1, 2)))
    return next(n for n in primes if not any(size and size % n == 0 for size in sizes))


class _Walk:
    """The reading of one program with so many rows."""

    def __init__(self, rows: int):
        self.rows = rows

    def run(self, closed: core.ClosedJaxpr, inputs: Sequence[Rows]) -> list[Rows]:
        return interpret(closed, inputs, self.constant, self.rule)

    def constant(self, value: Any) -> Rows:
        """An array that the program holds: it depends on the row's number if it has an axis of rows and differs along it."""
        found = [axis for axis, size in enumerate(np.shape(value)) if size and size % self.rows == 0]
        try:
            array = np.asarray(value)
        except TypeError:  # a random key, a tracer
            return _numbered(found, np.shape(value), self.rows)
        differs = [axis for axis in found if (array != np.take(array, [0], axis)).any()]
        whole = array.dtype.kind in "biu" and array.size <= LARGEST_READ
        return _numbered(differs, array.shape, self.rows)._replace(known=array.astype(float) if whole else None)

    def rule(self, eqn: Any, values: list[Rows]) -> list[Rows]:
        """The results of an equation that is not a call."""
        match name_of(eqn):
            case "scan":
                return self.scan(eqn, values)
            case "while":
                return self.loop(eqn, values)
            case "cond":
                return self.branch(eqn, values)
        entry, results = known(eqn), len(eqn.outvars)
        if entry is not None and entry.kind is Kind.COPY and len(values) == results:
            return values
        flags = Rows(data=any(v.data for v in values), number=any(v.number for v in values))
        if any(v.mixed for v in values):
            return [flags._replace(mixed=_worst(values))] * results
        if any(v.axis == EACH for v in values):  # one row at a time: whatever is done, is done to that row alone
            alone = all(v.axis in (EACH, None) for v in values)
            return [flags._replace(axis=EACH) if alone else flags._replace(mixed=name_of(eqn))] * results
        try:
            out = placed(eqn, entry, values, self.rows)
        except Mixed:
            return [flags._replace(mixed=name_of(eqn) if flags.data or not flags.number else NUMBER)] * results
        return [out[0]._replace(known=folded(eqn, values, out[0]))] if results == 1 else out

    def join(self, one: Rows, other: Rows, name: str) -> Rows:
        """What holds of an array that may be either."""
        both = Rows(data=one.data or other.data, number=one.number or other.number)
        if one.mixed or other.mixed:
            return both._replace(mixed=_worst([one, other]))
        places = {value[:2] for value in (one, other) if value.axis is not None}
        if len(places) > 1:
            return both._replace(mixed=name if both.data else NUMBER)
        axis, inner = places.pop() if places else (None, 1)
        return both._replace(axis=axis, inner=inner)

    def scan(self, eqn: Any, values: list[Rows]) -> list[Rows]:
        """A loop over an axis that is not rows, which stand beside it; or over rows, one at a time."""
        scan = Scan.of(eqn)
        over = scan.length > 0 and scan.length % self.rows == 0
        held, carry = [_plain(v) for v in values[: scan.constants]], [_plain(v) for v in values[scan.constants :][: scan.carries]]
        xs = [_entering(value, over and scan.length == self.rows) for value in values[scan.constants + scan.carries :]]
        if over:  # a carry goes from row to row: at each it depends on the row's number at least, unless it is only handed on
            carry = [value if scan.kept(i) else value._replace(mixed=value.mixed or NUMBER) for i, value in enumerate(carry)]

        def step(carry: list[Rows]) -> list[Rows]:
            after = self.run(scan.body, [*held, *carry, *xs])[: scan.carries]
            return [v._replace(mixed=v.mixed or "scan") if over and v.axis == EACH and v.data else v for v in after]

        carry = settled(step, carry, lambda one, other: self.join(one, other, "scan"), _alike)
        return carry + [_leaving(value) for value in self.run(scan.body, [*held, *carry, *xs])[scan.carries :]]

    def loop(self, eqn: Any, values: list[Rows]) -> list[Rows]:
        """A `while`: where the condition has an axis of rows, as under vmap, each row stops by its own and is then left as it is."""
        loop = While.of(eqn)
        asked, held = values[: loop.asked], values[loop.asked :][: loop.constants]

        def step(carry: list[Rows]) -> list[Rows]:
            (going,) = self.run(loop.condition, [*asked, *carry])
            after = self.run(loop.body, [*held, *carry])
            return [value if loop.kept(i) else self.join(value, going, "while") for i, value in enumerate(after)]

        start = [_plain(value) for value in values[loop.asked + loop.constants :]]
        return settled(step, start, lambda one, other: self.join(one, other, "while"), _alike)

    def branch(self, eqn: Any, values: list[Rows]) -> list[Rows]:
        """One of many programs: the choice is for all rows (under vmap a choice for each is a select), or one row's alone."""
        ways = [self.run(body, values[1:]) for body in eqn.params["branches"]]
        results = []
        for way in zip(*ways, strict=True):
            result = _plain(values[0])
            for value in way:
                result = self.join(result, value, "cond")
            results.append(result)
        return results


def _alike(one: Rows, other: Rows) -> bool:
    return one[:-1] == other[:-1]


def _plain(value: Rows) -> Rows:
    """Without its numbers: they are another turn's in the next."""
    return value._replace(known=None)


def _worst(values: Sequence[Rows]) -> str:
    """The primitive that mixes rows; a row's number only where there is none."""
    found = [value.mixed for value in values if value.mixed]
    return next((name for name in found if name != NUMBER), found[0])


def _numbered(axes: list[int], shape: tuple[int, ...], rows: int) -> Rows:
    """An array that depends on no data and differs along these axes of rows."""
    if not axes:
        return SHARED
    if len(axes) == 1 and shape[axes[0]] == rows:
        return Rows(axes[0], number=True)
    return Rows(number=True, mixed=NUMBER)


def _entering(value: Rows, over: bool) -> Rows:
    """A slice along the first axis, as the body takes it."""
    value = _plain(value)
    if value.mixed or value.axis in (None, EACH):
        return value
    if value.axis == 0:
        return value._replace(axis=EACH) if over and value.inner == 1 else value._replace(axis=None, mixed="scan")
    return value._replace(axis=value.axis - 1)


def _leaving(value: Rows) -> Rows:
    """The stack of what the body gives, along a new first axis."""
    if value.mixed or value.axis is None:
        return _plain(value)
    return _plain(value)._replace(axis=value.axis + 1)
