"""Gathers, slices and scatters in a traced program: which integers index which arrays.

A program is read equation by equation (analysis.py enters calls and loops); numbers and the labels
of axes (symbols.py) move with the elements.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from probml.jaxpr.analysis import Domain
from probml.jaxpr.gathers.moves import (
    AXES,
    Reading,
    blank,
    counted,
    gathered,
    looks,
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
from probml.jaxpr.primitives import Kind, name_of, named, table_entry
from probml.jaxpr.program import Scan

READS = frozenset({"dynamic_slice", "gather"})
LOOKS = READS | named(Kind.WRITE)


class Reader(Domain[Value]):
    """Reads programs, and keeps what it finds: cell → its readings, and indices that are
    formulas."""

    unrolled = UNROLLED
    idle = True

    def __init__(self):
        self.found: dict[int, list[Reading]] = {}
        self.nodes: list[Node] = []
        self.formulas: list[tuple[tuple[float, ...], int, frozenset[Label]]] = []

    def constant(self, value: Any) -> Value:
        return constant(value)

    def equation(self, eqn: Any, operands: list[Value]) -> list[Value]:
        name = name_of(eqn)
        for look in looks(eqn) if name in LOOKS else ():
            index, operand = operands[look.operand].numbers, operands[0]
            length = eqn.invars[0].aval.shape[look.axis]
            if index is not None and not (look.column is None and look.size == length):
                self._note(look.of(index), length - look.size, length,
                           operand if name in READS else blank(operand), look.axis, look.free)
        if name in READS:
            return [self._read(eqn, operands)]
        if len(eqn.outvars) == 1 and (entry := table_entry(eqn)) is not None and (
                entry.kind is Kind.ELEMENTWISE or name == "reduce_precision"):
            return [elementwise(name, eqn, operands, self.nodes)]
        if name == "iota":
            return [counted(eqn)]
        return move_elements(eqn, operands) if name in AXES else unknown(eqn, operands)

    def _note(self, numbers: np.ndarray | None, last: int, length: int, operand: Value, axis: int,
              free: Any = False) -> None:
        """Record that an index array reads along an axis of an array."""
        if numbers is None or length == 0:
            return
        whole = bool(operand.loose & {label[:2] for label in operand.axes[axis]})
        whole |= not operand.axes[axis] and bool(operand.every)
        for number in np.unique(numbers.reshape(len(numbers), -1).T, axis=0):
            own = tuple(number.tolist())
            for source in sources_of(self.nodes, own):
                reading = Reading(own, last, length, operand.axes[axis], free, whole)
                kept = self.found.setdefault(source, [])
                if reading not in kept:
                    kept.append(reading)
            if own[NODE] and not free and not 0 <= own[LOW] <= own[HIGH] <= last:
                self.formulas.append((own, last, operand.axes[axis]))

    def _read(self, eqn: Any, operands: list[Value]) -> Value:
        """The result of a gather or slice: the labels of an axis that is read in full are kept."""
        operand, dims, sizes = operands[0], eqn.invars[0].aval.shape, eqn.params["slice_sizes"]
        by, numbers = {look.axis: look for look in looks(eqn)}, eqn.params.get("dimension_numbers")
        away = () if numbers is None else (*numbers.collapsed_slice_dims,
                                           *numbers.operand_batching_dims)
        window = [axis for axis in range(len(dims)) if axis not in away]
        places = dict(zip(window, window if numbers is None else numbers.offset_dims, strict=True))
        axes = [frozenset[Label]()] * len(eqn.outvars[0].aval.shape)
        loose = set(operand.loose)
        for axis, labels in enumerate(operand.axes):
            if axis in window and sizes[axis] == dims[axis]:
                axes[places[axis]] = labels
                continue
            index = operands[by[axis].operand].numbers if axis in by else None
            if index is None or not (by[axis].of(index)[SOURCE] >= 0).all():
                loose |= {label[:2] for label in labels}
        found = gathered(eqn, operand.numbers, [value.numbers for value in operands[1:]],
                         self.nodes)
        return Value(found, tuple(axes), frozenset(loose))

    def entering(self, value: Value, turn: int | None, scan: Scan) -> Value:
        return Value(None if value.numbers is None or turn is None else value.numbers[:, :, turn],
                     value.axes[1:], value.loose | {label[:2] for label in value.axes[0]})

    def leaving(self, values: Sequence[Value], aval: Any) -> Value:
        parts = [v.numbers for v in values if v.numbers is not None and v.numbers.shape[1] == 1]
        numbers = np.stack(parts, 2) if len(parts) == len(values) else None
        axes = tuple(frozenset().union(*each)
                     for each in zip(*(v.axes for v in values), strict=True))
        return Value(numbers, (frozenset(), *axes), frozenset().union(*(v.loose for v in values)))

    def opaque_results(self, eqn: Any, operands: list[Value]) -> list[Value]:
        return unknown(eqn, operands)
