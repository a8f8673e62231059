"""Gathers, slices and scatters in a traced program: which integers index which arrays.

A program is read equation by equation (analysis.py enters calls and loops); numbers and the labels
of axes (symbols.py) move with the elements.

Constant indices of a program that are out of bounds.

JAX clamps an index beyond the end when it reads and drops it when it writes, so that codes counted
from 1 would go unnoticed. Indices that depend on constants alone are evaluated with NumPy; nothing
else is computed.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn

from probml.jaxpr.analysis import Domain, analyse
from probml.jaxpr.gathers.moves import (
    AXES,
    Reading,
    blank,
    counted,
    gather_indices,
    gathered,
    move_elements,
    unknown,
)
from probml.jaxpr.gathers.symbols import (
    HIGH,
    LOW,
    NODE,
    SOURCE,
    UNROLLED,
    Label,
    Node,
    Value,
    constant,
    elementwise,
    sources_of,
)
from probml.jaxpr.primitives import Kind, computed, name_of, named, table_entry
from probml.jaxpr.program import Scan

WHOLE = "biu"  # kinds of dtypes that are evaluated


class Beyond(NamedTuple):
    """Constant indices along an axis, at least one of them out of bounds.

    Attributes:
        codes: the indices. length: of the axis. last: the largest allowed index.
    """

    codes: np.ndarray
    length: int
    last: int

    @property
    def first(self) -> int:
        """The first index that is out of bounds."""
        return int(self.codes[(self.codes < 0) | (self.codes > self.last)].flat[0])


def beyond(program: ClosedJaxpr) -> tuple[Beyond, ...]:
    """The constant indices that are out of bounds, whatever the arguments of the program are. With
    an explicit fill value or explicit clipping they are intended and not reported.

    Cost: one pass over the equations, and the evaluation of the indices with NumPy.
    """
    domain = _Constants()
    analyse(program, domain, [None] * len(program.in_avals))
    return tuple(domain.found)


_Array = np.ndarray | None  # known integers or booleans; None: unknown


class _Constants(Domain[_Array]):
    """Evaluates what depends on constants alone; `found` collects indices out of bounds."""

    idle = True

    def __init__(self) -> None:
        self.found: list[Beyond] = []

    def constant(self, value: object) -> _Array:
        kind = getattr(getattr(value, "dtype", None), "kind", "")
        if isinstance(value, bool | int) or kind in WHOLE and kind:
            return np.asarray(value)
        return None

    def equation(self, eqn: JaxprEqn, operands: list[_Array]) -> list[_Array]:
        self.found.extend(index for index in _indexed(eqn, operands) if index.codes.size
                          and (index.codes.min() < 0 or index.codes.max() > index.last))
        known = [value for value in operands if value is not None]
        result = computed(eqn, known) if len(known) == len(operands) and all(
            getattr(var.aval.dtype, "kind", "V") in WHOLE for var in eqn.outvars) else None
        return [None] * len(eqn.outvars) if result is None else [*result]

    def opaque_results(self, eqn: JaxprEqn, operands: list[_Array]) -> list[_Array]:
        return [None] * len(eqn.outvars)


def _indexed(eqn: JaxprEqn, values: list[np.ndarray | None]) -> Iterator[Beyond]:
    """The constant indices of an equation, axis by axis. Not those of slices of several entries and
    of writes by a slice, which JAX moves inside the array."""
    name = name_of(eqn)
    for gather in gather_indices(eqn) if name != "dynamic_update_slice" else ():
        index, length = values[gather.operand], eqn.invars[0].aval.shape[gather.axis]
        if index is not None and not gather.free and (gather.size == 1 or name == "gather"):
            yield Beyond(gather.of(index), length, length - gather.size)


READS = frozenset({"dynamic_slice", "gather"})
GATHERS = READS | named(Kind.WRITE)


class Reader(Domain[Value]):
    """Reads programs, and keeps what it finds: cell → its readings, and indices that are
    formulas."""

    unrolled = UNROLLED
    idle = True

    def __init__(self):
        self.found: dict[int, list[Reading]] = {}
        self.nodes: list[Node] = []
        self.formulas: list[tuple[tuple[float, ...], int, frozenset[Label]]] = []

    def constant(self, value: object) -> Value:
        return constant(value)

    def equation(self, eqn: JaxprEqn, operands: list[Value]) -> list[Value]:
        name = name_of(eqn)
        for gather in gather_indices(eqn) if name in GATHERS else ():
            index, operand = operands[gather.operand].numbers, operands[0]
            length = eqn.invars[0].aval.shape[gather.axis]
            if index is not None and length and not (gather.column is None
                                                     and gather.size == length):
                self._note(gather.of(index), length - gather.size, length,
                           operand if name in READS else blank(operand), gather.axis, gather.free)
        if name in READS:
            return [self._read(eqn, operands)]
        if len(eqn.outvars) == 1 and (entry := table_entry(eqn)) is not None and (
                entry.kind is Kind.ELEMENTWISE or name == "reduce_precision"):
            return [elementwise(name, eqn, operands, self.nodes)]
        if name == "iota":
            return [counted(eqn)]
        return move_elements(eqn, operands) if name in AXES else unknown(eqn, operands)

    def _note(self, numbers: np.ndarray, last: int, length: int, operand: Value, axis: int,
              free: bool = False) -> None:
        """Record that an index array reads along an axis of an array."""
        reads_all = bool(operand.other_axes & {label[:2] for label in operand.axes[axis]})
        reads_all |= not operand.axes[axis] and bool(operand.all_axes)
        for number in np.unique(numbers.reshape(len(numbers), -1).T, axis=0):
            key = tuple(number.tolist())
            for source in sources_of(self.nodes, key):
                reading = Reading(key, last, length, operand.axes[axis], free, reads_all)
                readings = self.found.setdefault(source, [])
                if reading not in readings:
                    readings.append(reading)
            if key[NODE] and not free and not 0 <= key[LOW] <= key[HIGH] <= last:
                self.formulas.append((key, last, operand.axes[axis]))

    def _read(self, eqn: JaxprEqn, operands: list[Value]) -> Value:
        """The result of a gather or slice: the labels of an axis that is read in full are kept."""
        operand, dims, sizes = operands[0], eqn.invars[0].aval.shape, eqn.params["slice_sizes"]
        index_of = {index.axis: index for index in gather_indices(eqn)}
        numbers = eqn.params.get("dimension_numbers")
        dropped = () if numbers is None else (*numbers.collapsed_slice_dims,
                                              *numbers.operand_batching_dims)
        window = [axis for axis in range(len(dims)) if axis not in dropped]
        places = dict(zip(window, window if numbers is None else numbers.offset_dims, strict=True))
        axes = [frozenset[Label]()] * len(eqn.outvars[0].aval.shape)
        loose = set(operand.other_axes)
        for axis, labels in enumerate(operand.axes):
            if axis in window and sizes[axis] == dims[axis]:
                axes[places[axis]] = labels
                continue
            index = operands[index_of[axis].operand].numbers if axis in index_of else None
            if index is None or not (index_of[axis].of(index)[SOURCE] >= 0).all():
                loose |= {label[:2] for label in labels}
        result = gathered(eqn, operand.numbers, [value.numbers for value in operands[1:]],
                          self.nodes)
        return Value(result, tuple(axes), frozenset(loose))

    def entering(self, value: Value, turn: int | None, scan: Scan) -> Value:
        return Value(None if value.numbers is None or turn is None else value.numbers[:, :, turn],
                     value.axes[1:], value.other_axes | {label[:2] for label in value.axes[0]})

    def leaving(self, values: Sequence[Value], aval: object) -> Value:
        parts = [v.numbers for v in values if v.numbers is not None and v.numbers.shape[1] == 1]
        numbers = np.stack(parts, 2) if len(parts) == len(values) else None
        axes = tuple(frozenset().union(*labels)
                     for labels in zip(*(v.axes for v in values), strict=True))
        return Value(numbers, (frozenset(), *axes),
                     frozenset().union(*(v.other_axes for v in values)))

    def opaque_results(self, eqn: JaxprEqn, operands: list[Value]) -> list[Value]:
        return unknown(eqn, operands)
