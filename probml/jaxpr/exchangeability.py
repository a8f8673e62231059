"""Whether rows depend on each other. The program is traced with a number of rows that is the length
of no other axis, and the axis of rows is tracked through it: a slice along this axis is a function
of one row and of values that all rows share.

Every element of an array with an axis of rows is labelled with the number of its row. A primitive
is evaluated on these labels (provenance.py), and the axis of rows of the result is found from them.
An element with several labels, or labels in another order, means that the primitive mixes rows;
unknown primitives are assumed to. An array without an axis of rows is the same for all rows.

Dependence on the index of the row is tracked as well: an arange over rows, a random number for each
row, a constant with an axis of rows.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jax.core import Atom
from jax.extend import core
from jax.extend.core import JaxprEqn
from jax.typing import ArrayLike

from probml.jaxpr.analysis import Domain, analyse
from probml.jaxpr.primitives import (
    LARGEST_READ,
    Kind,
    Known,
    as_integers,
    folded,
    name_of,
    table_entry,
)
from probml.jaxpr.program import Scan, bodies, equations
from probml.jaxpr.provenance import ENDS, MAX_TRACKED_ELEMENTS, NONE, sources

NUMBER = "iota"  # stands for dependence on the index of the row
COUNT = "shape"  # stands for dependence on the number of rows


class Rows(NamedTuple):
    """The axis of rows of an array, and its dependences.

    The axis of rows may be merged with others by a reshape: its size is then outer x rows x inner,
    with row i at every position p with (p // inner) % rows == i.
    """

    # None: the same for all rows, and constant along every axis of that length; EACH: the value of
    # a single row, in a loop over rows
    axis: int | None = None
    inner: int = 1
    data: bool = False  # depends on the data of its row
    number: bool = False  # depends on the index of its row
    mixed: str = ""  # the primitive that made a row depend on other rows
    # integers that depend on no data (NaN: unknown). Last field: `same` leaves it out
    known: np.ndarray | None = None


EACH = -1
SHARED = Rows()
_SPREADING = frozenset("""
        broadcast broadcast_in_dim dynamic_slice expand_dims gather reduce_precision rev slice split
        squeeze transpose unstack""".split())
"""Primitives that keep an array constant along rows if it was, whatever their indices are."""


class Mixed(Exception):
    """A primitive combines rows, or may do so."""


def key_of(value: ArrayLike) -> tuple | None:
    """A hashable key of a number or small numeric array; None for anything else."""
    if np.size(value) > LARGEST_READ:
        return None
    try:
        array = np.asarray(value)
    except TypeError:  # a random key, a tracer
        return None
    return (array.shape, array.astype(float).tobytes()) if array.dtype.kind in "iuf" else None


class Rowwise(Domain[Rows]):
    """The analysis for a program with `rows` rows.

    Args:
        counted: keys (`key_of`) of constants that were computed from the number of rows.
    """

    def __init__(self, rows: int, counted: Collection[tuple] = ()):
        self.rows, self.counted = rows, counted

    def constant(self, value: ArrayLike) -> Rows:
        """A constant depends on the row index if it has an axis of rows and varies along it."""
        shape = np.shape(value)
        row_axes = self._row_sized(shape)
        if not row_axes and not shape and not self.counted:
            return SHARED._replace(known=as_integers(value))
        try:
            array = np.asarray(value)
        except TypeError:  # a random key, a tracer
            return self._numbered(shape, row_axes)
        if not row_axes and self.counted and key_of(array) in self.counted:
            return Rows(mixed=COUNT)
        varying = [axis for axis in row_axes if (array != np.take(array, [0], axis)).any()]
        return self._numbered(shape, varying)._replace(known=as_integers(value))

    def equation(self, eqn: JaxprEqn, operands: list[Rows]) -> list[Rows]:
        entry, name, results = table_entry(eqn), name_of(eqn), len(eqn.outvars)
        selector = operands[0].known if name == "select_n" else None
        # the sign of a known index decides whether it counts from the end
        if selector is not None and len(np.unique(selector)) == 1:
            return [operands[1 + int(selector.flat[0])]]
        flags = _flags(operands)
        if any(v.mixed for v in operands):
            cause, combines = _worst(operands), getattr(entry, "kind", None) not in (
                Kind.ELEMENTWISE, Kind.MOVE)
            return [flags._replace(mixed=name if cause == NUMBER and flags.data and combines
                                   else cause)] * results
        # inside a loop over rows: every operation acts on the current row alone
        if any(v.axis == EACH for v in operands):
            rowwise = all(v.axis in (EACH, None) for v in operands)
            return [flags._replace(axis=EACH) if rowwise else flags._replace(mixed=name)] * results
        try:
            values = self._placed(eqn, entry, operands, flags)
        except Mixed:
            return [flags._replace(mixed=name if flags.data or not flags.number
                                   else NUMBER)] * results
        if results == 1 and not any(v.known is None and v.number for v in operands):
            # constant folding: tells which indices equal the row index
            return [values[0]._replace(known=folded(eqn, [v.known for v in operands]))]
        return values

    def join(self, one: Rows, other: Rows, eqn: JaxprEqn) -> Rows:
        flags = _flags([one, other])
        if one.mixed or other.mixed:
            return flags._replace(mixed=_worst([one, other]))
        places = {value[:2] for value in (one, other) if value.axis is not None}
        if len(places) > 1:
            return flags._replace(mixed=name_of(eqn) if flags.data else NUMBER)
        axis, inner = places.pop() if places else (None, 1)
        return flags._replace(axis=axis, inner=inner)

    def same(self, one: Rows, other: Rows) -> bool:
        return one[:-1] == other[:-1]

    def entering(self, value: Rows, turn: int | None, scan: Scan) -> Rows:
        """The slice of a scanned array: a loop over rows, or over another axis."""
        value = _without_numbers(value)
        if value.mixed or value.axis in (None, EACH):
            return value
        if value.axis == 0:
            return value._replace(axis=EACH) if scan.length == self.rows and value.inner == 1 else (
                value._replace(axis=None, mixed="scan"))
        return value._replace(axis=value.axis - 1)

    def loop_carry(self, value: Rows, scan: Scan | None, first: bool) -> Rows:
        """The carry of a loop: over rows it passes from row to row, so it depends at least on the
        row index."""
        value = _without_numbers(value)
        if scan is None or not scan.length or scan.length % self.rows:
            return value
        if first:
            return value._replace(mixed=value.mixed or NUMBER)
        return value._replace(mixed="scan") if value.data and value.mixed in ("", NUMBER) else value

    def leaving(self, values: Sequence[Rows], aval: object) -> Rows:
        value = _without_numbers(values[0])
        return value if value.mixed or value.axis is None else value._replace(axis=value.axis + 1)

    # one equation

    def _placed(self, eqn: JaxprEqn, entry: Known | None, values: Sequence[Rows],
                flags: Rows) -> list[Rows]:
        """The results of an equation whose operands do not mix rows.

        Raises:
            Mixed: it combines rows.
        """
        shapes = [_shape(var) for var in eqn.outvars]
        if all(value.axis is None for value in values):
            return [self._created(eqn, entry, values, shape) for shape in shapes]
        if entry is None:
            raise Mixed
        if entry.kind is Kind.ELEMENTWISE:
            places = {value[:2] for value in values if value.axis is not None}
            if len(places) > 1:
                raise Mixed
            return [flags._replace(axis=axis, inner=inner) for axis, inner in places] * len(shapes)
        if entry.kind is not Kind.MOVE:
            values = [self._supposed(value, _shape(atom))
                      for value, atom in zip(values, eqn.invars, strict=True)]
        if self._leads_to_itself(eqn, values):
            flags = flags._replace(number=any(v.number for i, v in enumerate(values) if i != 1))
        return [flags._replace(axis=axis, inner=inner) if flags.data or flags.number or inner > 1
                or shape[axis] != self.rows else SHARED
                for (axis, inner), shape in zip(self._followed(eqn, values), shapes, strict=True)]

    def _followed(self, eqn: JaxprEqn, values: Sequence[Rows]) -> list[tuple[int, int]]:
        """Axis and `inner` of every result, found from the row labels of its elements."""
        marks = [self._marks(value, _shape(atom))
                 for value, atom in zip(values, eqn.invars, strict=True)]
        numbers = [value.known for value in values]
        low, high = (sources(eqn, marks, end, numbers) for end in ENDS)
        return [self._found(*bounds) for bounds in zip(low, high, map(_shape, eqn.outvars),
                                                       strict=True)]

    def _marks(self, value: Rows, shape: tuple[int, ...]) -> np.ndarray | None:
        if value.axis is None:
            return None
        dims = [size if axis == value.axis else 1 for axis, size in enumerate(shape)]
        return (np.arange(shape[value.axis]) // value.inner % self.rows).reshape(dims)

    def _found(self, low: np.ndarray, high: np.ndarray, shape: tuple[int, ...]) -> tuple[int, int]:
        """The axis along which the row labels run through all rows in order."""
        is_mixed = (low != high) & (high != NONE)
        axes = [axis for axis in self._row_sized(shape) if high.shape[axis] == shape[axis]]
        if is_mixed.any():
            raise Mixed
        if axes and not high.size:
            return axes[0], 1  # an empty array
        for axis in axes:
            labels = np.moveaxis(high, axis, -1).reshape(-1, shape[axis])
            labels = labels[(labels != NONE).any(-1)]
            inner = int((labels[0] > 0).argmax()) if len(labels) else 0
            if inner and (labels == np.arange(shape[axis]) // inner % self.rows).all():
                return axis, inner
        raise Mixed

    def _created(self, eqn: JaxprEqn, entry: Known | None, values: Sequence[Rows],
                 shape: tuple[int, ...]) -> Rows:
        """The result of an equation whose operands are the same for all rows: it is the same for
        all rows, too, or depends on the row index or the number of rows."""
        if entry is not None and entry.kind in (Kind.ELEMENTWISE, Kind.COPY):
            return SHARED
        row_axes, name = self._row_sized(shape), name_of(eqn)
        if entry is None and any(hasattr(atom.aval, "inner_aval") for atom in eqn.invars):
            raise Mixed  # a mutable reference, into which another equation may have written data
        in_axes = [self._row_sized(_shape(atom)) for atom in eqn.invars]
        if name in _SPREADING or not row_axes and not any(in_axes):
            return SHARED
        # treat axes as long as the rows as if they held data: an operation that does not combine
        # them keeps constants constant
        if any(in_axes):
            supposed = [self._supposed(value, _shape(atom))
                        for value, atom in zip(values, eqn.invars, strict=True)]
            axis, inner = self._followed(eqn, supposed)[0]
            if name == "reshape":
                return SHARED if inner == 1 and shape[axis] == self.rows else Rows(axis, inner)
            return SHARED if row_axes == [axis] else self._numbered(shape, row_axes)
        if name == "tile":
            row_axes = [axis for axis in row_axes if _shape(eqn.invars[0])[axis] != 1]
        if name == "iota":
            row_axes = [axis for axis in row_axes if axis == eqn.params["dimension"]]
        return self._numbered(shape, row_axes)

    def _row_sized(self, shape: tuple[int, ...]) -> list[int]:
        return [axis for axis, size in enumerate(shape) if size and size % self.rows == 0]

    def _numbered(self, shape: tuple[int, ...], axes: list[int]) -> Rows:
        """An array that depends on no data and varies along these axes of rows."""
        if not axes:
            return SHARED
        if len(axes) == 1 and shape[axes[0]] == self.rows:
            return Rows(axes[0], number=True)
        return Rows(number=True, mixed=NUMBER)

    def _supposed(self, value: Rows, shape: tuple[int, ...]) -> Rows:
        """The value with its axis of rows, along which it may be constant: a sum along it would
        count the rows."""
        axes = [axis for axis in self._row_sized(shape) if axis != value.axis]
        if not axes:
            return value
        if value.axis is not None or len(axes) > 1 or shape[axes[0]] != self.rows:
            raise Mixed
        return value._replace(axis=axes[0])

    def _leads_to_itself(self, eqn: JaxprEqn, values: Sequence[Rows]) -> bool:
        """Whether the indices depend on the row index only along the axis of rows of the array that
        is read or written, so that each row reads itself (or what is the same for all rows)."""
        dims = eqn.params.get("dimension_numbers")
        columns: Sequence[int] = getattr(dims, "start_index_map", ()) or getattr(
            dims, "scatter_dims_to_operand_dims", ())
        index = values[1] if columns else SHARED
        if index.known is None or index.axis is None or index.axis == index.known.ndim - 1:
            return False
        by_row = np.moveaxis(index.known, index.axis, 0)
        varying = [axis for column, axis in enumerate(columns) if not np.array_equal(
            by_row[..., column], np.broadcast_to(by_row[:1, ..., column], by_row.shape[:-1]),
            equal_nan=True)]
        axis, inner = values[0][:2]
        shape = _shape(eqn.invars[0])
        axes = self._row_sized(shape) if axis is None else [axis]
        return inner == 1 and set(varying) <= {axis for axis in axes if shape[axis] == self.rows}


def _shape(atom: Atom) -> tuple[int, ...]:
    return tuple(getattr(atom.aval, "shape", ()))


def _without_numbers(value: Rows) -> Rows:
    """The value without its known integers, which change from step to step of a loop."""
    return value._replace(known=None) if value.known is not None else value


def _flags(values: Sequence[Rows]) -> Rows:
    """Depends on data, or on the row index, if one of the values does."""
    return Rows(data=any(v.data for v in values), number=any(v.number for v in values))


def _worst(values: Sequence[Rows]) -> str:
    """The primitive that mixes rows; NUMBER or COUNT only if there is none."""
    causes = [value.mixed for value in values if value.mixed]
    return min(causes, key=(NUMBER, COUNT).__contains__)


def row_dependence(
    single: core.ClosedJaxpr, many: Callable[[int], core.ClosedJaxpr], axes: Sequence[int | None],
    numbers: Collection[int] = ()
) -> list[str]:
    """For each output of a function of rows, how a row depends on other rows; see `mixes`.

    Args:
        single: the function traced for a single row.
        many: traces it for a given number of rows.
        axes: for each input its axis of rows; None if it is the same for all rows.
        numbers: the inputs that hold the row index, 0 … rows - 1.

    Cost: one more trace; two if the program for many rows has a constant that the one for a single
        row has not.
    """
    rows, other_rows = itertools.islice(_unlike(single), 2)
    closed = many(rows)
    counted = _constant_keys(closed) - _constant_keys(single)
    if counted:
        counted -= _constant_keys(many(other_rows))
    return mixes(closed, axes, rows, numbers, counted)


def mixes(
    closed: core.ClosedJaxpr, axes: Sequence[int | None], rows: int, numbers: Collection[int] = (),
    counted: Collection[tuple] = ()
) -> list[str]:
    """For each output the primitive that makes a row depend on another; NUMBER if it depends on the
    row index, COUNT if on the number of rows; '' if on neither.

    Args:
        closed: traced with `rows` rows.
        rows: a prime of which the length of no other axis is a multiple.
        counted: keys of constants that were computed from the number of rows.
    """
    number = Rows(0, number=True, known=np.arange(rows, dtype=float))
    inputs = [number if i in numbers else SHARED if axis is None else Rows(axis, data=True)
              for i, axis in enumerate(axes)]
    return [value.mixed or (NUMBER if value.number else "") for value 
            in analyse(closed, Rowwise(rows, counted), inputs)]


def _unlike(single: core.ClosedJaxpr) -> Iterator[int]:
    """Numbers of rows for a trace: primes that divide the length of no axis in the program of a
    single row, and that are no constant of it."""
    shapes = {np.shape(value) for value in single.consts}
    shapes.update(aval.shape for aval in (*single.in_avals, *single.out_avals))
    sizes = set()
    for eqn in equations(single):
        shapes.update(getattr(atom.aval, "shape", ()) for atom in (*eqn.invars, *eqn.outvars))
        sizes.add(eqn.params.get("length", 0) or 0)
    sizes.update(itertools.chain(*shapes))
    constants, largest = _constant_keys(single), max(map(math.prod, shapes), default=0)
    # fewer rows if a row is large, so that elements can be tracked one by one
    primes = (n for n in itertools.count(61 if 61 * 4 * largest < MAX_TRACKED_ELEMENTS else 5, 2)
              if all(n % p for p in range(3, math.isqrt(n) + 1, 2)))
    return (n for n in primes if key_of(n) not in constants
            and not any(size and size % n == 0 for size in sizes))


def _constant_keys(closed: core.ClosedJaxpr) -> set[tuple]:
    """The keys of all constants of a program, also inside calls and loops."""
    values = [atom.val for atom in closed.jaxpr.outvars if isinstance(atom, core.Literal)] + list(
        closed.consts
    )
    for eqn in equations(closed):
        values += [atom.val for atom in eqn.invars if isinstance(atom, core.Literal)]
        values += [value for body in bodies(eqn) for value in body.consts]
    return {key for key in map(key_of, values) if key is not None}
