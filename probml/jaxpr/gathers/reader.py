"""Gathers, slices and scatters in a traced program: which numbers are indices into which arrays.

A program is read equation by equation (walk.py walks into calls); numbers and the labels of axes
(symbols.py) go with the elements.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from probml.jaxpr.analysis import Domain
from probml.jaxpr.gathers.moves import (
    MOVES,
    Reading,
    blank,
    default,
    gathered,
    stacked,
    unknown,
)
from probml.jaxpr.gathers.symbols import (
    ELEMENTWISE,
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
from probml.jaxpr.program import Scan


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
        values = operands
        name = eqn.primitive.name.replace("-", "_")
        if name == "gather":
            return [self._gather(eqn, *values)]
        if name == "dynamic_slice":
            return [self._slice(eqn, values[0], values[1:])]
        if name.startswith("scatter"):
            self._scatter(eqn, *values)
        if name == "dynamic_update_slice":
            for axis, start in enumerate(values[2:]):
                size, length = eqn.invars[1].aval.shape[axis], eqn.invars[0].aval.shape[axis]
                self._note(start.numbers, length - size, length, blank(values[0]), axis)
        if name in ELEMENTWISE:
            return [elementwise(name, eqn, values, self.nodes)]
        move = MOVES.get(name)
        return unknown(eqn, values) if move is None else move(eqn, values)

    def _note(self, numbers: np.ndarray | None, last: int, length: int, operand: Value, axis: int,
              free: Any = False) -> None:
        """An index array reads along an axis of an array."""
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

    def _gather(self, eqn: Any, operand: Value, indices: Value) -> Value:
        numbers, dims, sizes = (eqn.params["dimension_numbers"], eqn.invars[0].aval.shape,
                                eqn.params["slice_sizes"])
        mode, fill = eqn.params["mode"].name, eqn.params["fill_value"]
        stated = mode == "FILL_OR_DROP" and fill is not None and not default(
            fill, eqn.invars[0].aval.dtype
        )
        for k, axis in enumerate(numbers.start_index_map):
            own = None if indices.numbers is None else indices.numbers[..., k]
            # vmap makes a slice into a gather that clips, whose axis is not collapsed; of one that
            # is, somebody has asked for it
            clips = mode == "CLIP" and axis in numbers.collapsed_slice_dims
            self._note(own, dims[axis] - sizes[axis], dims[axis], operand, axis,
                       free=stated or clips)
        away = (*numbers.collapsed_slice_dims, *getattr(numbers, "operand_batching_dims", ()))
        window = [axis for axis in range(len(dims)) if axis not in away]
        axes = [frozenset()] * len(eqn.outvars[0].aval.shape)
        loose = set(operand.loose)
        for axis, place in zip(window, numbers.offset_dims, strict=True):
            if sizes[axis] == dims[axis]:
                axes[place] = operand.axes[axis]
        for axis in range(len(dims)):
            at = numbers.start_index_map.index(axis) if axis in numbers.start_index_map else None
            full = axis in window and sizes[axis] == dims[axis]
            if not full and not (at is not None and indices.numbers is not None
                                 and (indices.numbers[SOURCE, ..., at] >= 0).all()):
                loose |= {label[:2] for label in operand.axes[axis]}
        found = gathered(eqn, operand.numbers, indices.numbers, self.nodes)
        return Value(found, tuple(axes), frozenset(loose))

    def _slice(self, eqn: Any, operand: Value, starts: Sequence[Value]) -> Value:
        dims, sizes = eqn.invars[0].aval.shape, eqn.params["slice_sizes"]
        axes, loose = [], set(operand.loose)
        for axis, (start, dim, size) in enumerate(zip(starts, dims, sizes, strict=True)):
            if dim == size:
                axes.append(operand.axes[axis])
                continue
            self._note(start.numbers, dim - size, dim, operand, axis)
            axes.append(frozenset())
            if start.numbers is None or not (start.numbers[SOURCE] >= 0).all():
                loose |= {label[:2] for label in operand.axes[axis]}
        known = [s.numbers for s in starts if s.numbers is not None]
        indices = stacked(known) if len(known) == len(starts) else None
        found = gathered(eqn, operand.numbers, indices, self.nodes)
        return Value(found, tuple(axes), frozenset(loose))

    def _scatter(self, eqn: Any, operand: Value, indices: Value, updates: Value) -> None:
        numbers, dims = eqn.params["dimension_numbers"], eqn.invars[0].aval.shape
        away = (*numbers.inserted_window_dims, *getattr(numbers, "operand_batching_dims", ()))
        window = dict(zip((a for a in range(len(dims)) if a not in away),
                          numbers.update_window_dims, strict=True))
        for k, axis in enumerate(numbers.scatter_dims_to_operand_dims):
            size = eqn.invars[2].aval.shape[window[axis]] if axis in window else 1
            free = eqn.params["mode"].name == "CLIP"
            if indices.numbers is not None:
                self._note(indices.numbers[..., k], dims[axis] - size, dims[axis], blank(operand),
                           axis, free=free)

    def entering(self, value: Value, turn: int | None, scan: Scan) -> Value:
        return Value(None if value.numbers is None or turn is None else value.numbers[:, :, turn],
                     value.axes[1:], value.loose | {label[:2] for label in value.axes[0]})

    def leaving(self, values: Sequence[Value], aval: Any) -> Value:
        parts = [v.numbers for v in values if v.numbers is not None and v.numbers.shape[1] == 1]
        numbers = np.stack(parts, 2) if len(parts) == len(values) else None
        axes = tuple(frozenset().union(*each)
                     for each in zip(*(v.axes for v in values), strict=True))
        return Value(numbers, (frozenset(), *axes), frozenset().union(*(v.loose for v in values)))

    def whole(self, eqn: Any, operands: list[Value]) -> list[Value]:
        return unknown(eqn, operands)
