"""Do rows look at each other? The axis of rows is followed through a program traced with a number
of rows that no other axis has.

Of every array it is known where its axis of rows is: the slice of row i is then a function of row i
of the data and of what all rows share, and of nothing else. An array without such an axis is the
same for all rows. What a primitive does to the axis stands in row_axes.py; the walk is walk.py's,
and a primitive that the table (primitives.py) does not hold mixes rows.

A row's own number is followed too: arange over rows, a random number for each, a constant with an
axis of rows.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
from jax.extend import core

from probml.jaxpr.primitives import Kind, known, name_of
from probml.jaxpr.row_axes import placed
from probml.jaxpr.row_places import EACH, SHARED, Mixed, Rows
from probml.jaxpr.walk import Scan, While, bodies, equations, interpret, settled
from probml.jaxpr.whole_numbers import LARGEST_READ, folded

NUMBER = "iota"  # stands for a dependence on a row's number
COUNT = "shape"  # stands for a dependence on how many rows there are


def looks(
    single: core.ClosedJaxpr, many: Callable[[int], core.ClosedJaxpr], axes: Sequence[int | None],
    numbers: Collection[int] = ()
) -> list[str]:
    """For each output of a function of rows, how one row comes to depend on others: see mixes.

    Args:
        single: the function traced for a single row.
        many: traces it for so many rows.
        axes: for each input, which axis of it is that of the rows; None where it is the same for
            all.
        numbers: the inputs that are the numbers of the rows, 0 … rows - 1.

    Cost: one more trace; two if the program for many rows holds a number that the one for a single
        row does not.
    """
    rows, more = itertools.islice(_unlike(single), 2)
    closed = many(rows)
    counted = _held(closed) - _held(single)
    if counted:
        counted -= _held(many(more))
    return mixes(closed, axes, rows, numbers, counted)


def mixes(
    closed: core.ClosedJaxpr, axes: Sequence[int | None], rows: int, numbers: Collection[int] = (),
    counted: Collection[tuple] = ()
) -> list[str]:
    """For each output, the primitive through which one row comes to depend on another, NUMBER for
    its own number, COUNT, or ''.

    Args:
        closed: traced with `rows` rows.
        rows: a size, a prime, of which no other axis is a multiple.
        counted: numbers held by the program that come from the number of rows.
    """
    walk = _Walk(rows, counted)
    number = Rows(0, number=True, known=np.arange(rows, dtype=float))
    inputs = [number if i in numbers else SHARED if axis is None else Rows(axis, data=True)
              for i, axis in enumerate(axes)]
    return [value.mixed or (NUMBER if value.number else "") for value in walk.run(closed, inputs)]


def _unlike(single: core.ClosedJaxpr) -> Iterator[int]:
    """Numbers of rows for a trace: primes of which no axis in the program of a single row is a
    multiple, and which it does not hold."""
    sizes = {size for value in single.consts for size in np.shape(value)}
    for eqn in equations(single):
        sizes.update(size for atom in (*eqn.invars, *eqn.outvars)
                     for size in getattr(atom.aval, "shape", ()))
        sizes.add(eqn.params.get("length", 0) or 0)
    sizes.update(size for aval in (*single.in_avals, *single.out_avals) for size in aval.shape)
    held = _held(single)
    primes = (n for n in itertools.count(61, 2)
              if all(n % p for p in range(3, math.isqrt(n) + 1, 2)))
    return (n for n in primes if _key(n) not in held
            and not any(size and size % n == 0 for size in sizes))


def _held(closed: core.ClosedJaxpr) -> set[tuple]:
    """The numbers that a program holds, in equations and as constants, also inside calls and
    loops."""
    values = [atom.val for atom in closed.jaxpr.outvars if isinstance(atom, core.Literal)] + list(
        closed.consts
    )
    for eqn in equations(closed):
        values += [atom.val for atom in eqn.invars if isinstance(atom, core.Literal)]
        values += [value for body in bodies(eqn) for value in body.consts]
    return {key for key in map(_key, values) if key is not None}


def _key(value: Any) -> tuple | None:
    """What two numbers, or small arrays of them, share that are equal."""
    if np.size(value) > LARGEST_READ:
        return None
    try:
        array = np.asarray(value)
    except TypeError:  # a random key, a tracer
        return None
    return (array.shape, array.astype(float).tobytes()) if array.dtype.kind in "iuf" else None


class _Walk:
    """The reading of one program with so many rows."""

    def __init__(self, rows: int, counted: Collection[tuple] = ()):
        self.rows, self.counted = rows, counted

    def run(self, closed: core.ClosedJaxpr, inputs: Sequence[Rows]) -> list[Rows]:
        return interpret(closed, inputs, self.constant, self.rule)

    def constant(self, value: Any) -> Rows:
        """An array that the program holds: it depends on the row's number if it has an axis of rows
        and differs along it."""
        found = [axis for axis, size in enumerate(np.shape(value)) if size
                 and size % self.rows == 0]
        try:
            array = np.asarray(value)
        except TypeError:  # a random key, a tracer
            return _numbered(found, np.shape(value), self.rows)
        differs = [axis for axis in found if (array != np.take(array, [0], axis)).any()]
        if not found and self.counted and _key(array) in self.counted:
            return Rows(mixed=COUNT)
        whole = array.dtype.kind in "biu" and array.size <= LARGEST_READ
        return _numbered(differs, array.shape, self.rows)._replace(known=array.astype(float)
                                                                   if whole else None)

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
        which = values[0].known if name_of(eqn) == "select_n" else None
        # an index that is known counts from the end, or not
        if which is not None and which.size and (which == which.flat[0]).all():
            return [values[1 + int(which.flat[0])]]
        flags = Rows(data=any(v.data for v in values), number=any(v.number for v in values))
        if any(v.mixed for v in values):
            worst, combines = _worst(values), entry is None or entry.kind not in (Kind.ELEMENTWISE,
                                                                                  Kind.MOVE)
            return [flags._replace(mixed=name_of(eqn) if worst == NUMBER and flags.data
                                   and combines else worst)] * results
        # one row at a time: whatever is done, is done to that row alone
        if any(v.axis == EACH for v in values):
            alone = all(v.axis in (EACH, None) for v in values)
            return [flags._replace(axis=EACH)
                    if alone else flags._replace(mixed=name_of(eqn))] * results
        try:
            out = placed(eqn, entry, values, self.rows)
        except Mixed:
            return [flags._replace(mixed=name_of(eqn) if flags.data or not flags.number
                                   else NUMBER)] * results
        return [out[0]._replace(known=self.whole(eqn, values, out[0]))] if results == 1 else out

    def whole(self, eqn: Any, values: list[Rows], result: Rows) -> np.ndarray | None:
        """The whole numbers that a result is: so is known which index is the row's own number."""
        if result.axis == EACH or any(value.known is None and value.number for value in values):
            return None
        return folded(eqn, [value.known for value in values])

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
        """A loop over an axis that is not rows, which stand beside it; or over rows, one at a
        time."""
        scan = Scan.of(eqn)
        over = scan.length > 0 and scan.length % self.rows == 0
        held, carry = ([_plain(v) for v in values[: scan.constants]],
                       [_plain(v) for v in values[scan.constants :][: scan.carries]])
        xs = [_entering(value, over and scan.length == self.rows)
              for value in values[scan.constants + scan.carries :]]
        # a carry goes from row to row: at each it depends on the row's number at least, unless it
        # is only handed on
        if over:
            carry = [value if scan.kept(i) else value._replace(mixed=value.mixed or NUMBER)
                     for i, value in enumerate(carry)]

        def step(carry: list[Rows]) -> list[Rows]:
            after = self.run(scan.body, [*held, *carry, *xs])[: scan.carries]
            across = [over and v.data and not scan.kept(i) and v.mixed in ("", NUMBER)
                      for i, v in enumerate(after)]
            return [v._replace(mixed="scan") if mixes else v
                    for v, mixes in zip(after, across, strict=True)]

        carry = settled(step, carry, lambda one, other: self.join(one, other, "scan"), _alike)
        return carry + [_leaving(value)
                        for value in self.run(scan.body, [*held, *carry, *xs])[scan.carries :]]

    def loop(self, eqn: Any, values: list[Rows]) -> list[Rows]:
        """A `while`: where the condition has an axis of rows, as under vmap, each row stops by its
        own and is then left as it is."""
        loop = While.of(eqn)
        asked, held = values[: loop.asked], values[loop.asked :][: loop.constants]

        def step(carry: list[Rows]) -> list[Rows]:
            (going,) = self.run(loop.condition, [*asked, *carry])
            after = self.run(loop.body, [*held, *carry])
            return [value if loop.kept(i) else self.join(value, going, "while")
                    for i, value in enumerate(after)]

        start = [_plain(value) for value in values[loop.asked + loop.constants :]]
        return settled(step, start, lambda one, other: self.join(one, other, "while"), _alike)

    def branch(self, eqn: Any, values: list[Rows]) -> list[Rows]:
        """One of many programs: the choice is for all rows (under vmap a choice for each is a
        select), or one row's alone."""
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
    """The primitive that mixes rows; their number, or a row's own, only where there is none."""
    found = [value.mixed for value in values if value.mixed]
    return min(found, key=(NUMBER, COUNT).__contains__)


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
        return value._replace(axis=EACH) if over and value.inner == 1 else value._replace(
            axis=None, mixed="scan"
        )
    return value._replace(axis=value.axis - 1)


def _leaving(value: Rows) -> Rows:
    """The stack of what the body gives, along a new first axis."""
    if value.mixed or value.axis is None:
        return _plain(value)
    return _plain(value)._replace(axis=value.axis + 1)
