"""How primitives that move elements act on indices and axis labels: one rule for each."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend.core import JaxprEqn
from jax.lax import GatherScatterMode

from probml.jaxpr.gathers.symbols import (
    ALTERNATIVES,
    HIGH,
    KNOWN,
    LOW,
    MAX_TRACKED_ELEMENTS,
    OFFSET,
    SOURCE,
    TABLE,
    UNKNOWN,
    Label,
    Value,
    constant,
    numbers_of,
    opaque,
    write,
)
from probml.jaxpr.primitives import TABLE as PRIMITIVES
from probml.jaxpr.primitives import Kind, computed, name_of
from probml.jaxpr.tapes.moves import default_fill

CLIP = GatherScatterMode.CLIP


class Reading(NamedTuple):
    """One index of a gather, slice or scatter: the symbolic number, the largest allowed index, and
    the array that is read."""

    number: tuple[float, ...]
    last: int
    length: int
    labels: frozenset[Label]
    free: bool  # an index out of bounds is intended (clipped, or filled)
    reads_all: bool  # every entry read depends on all entries of a parameter


class GatherIndex(NamedTuple):
    """An index of a gather, slice or scatter.

    Attributes:
        operand: the operand that holds the index. column: its place along the last axis of this
            operand; None for a scalar.
        axis: the axis of the first operand that is indexed. size: the length of the slice.
        free: an index out of bounds is intended: it is clipped, or a fill value is given.
    """

    operand: int
    column: int | None
    axis: int
    size: int
    free: bool = False

    def of(self, index: np.ndarray) -> np.ndarray:
        """The index itself, taken from the array of all indices of its operand."""
        return index if self.column is None else index[..., self.column]


def gather_indices(eqn: JaxprEqn) -> list[GatherIndex]:
    """The indices of an equation; empty if it is no gather, slice or scatter."""
    name, params = name_of(eqn), eqn.params
    dims = params.get("dimension_numbers")
    if name == "gather":
        clips, fill = params["mode"].name == "CLIP", params["fill_value"]
        fills = params["mode"].name == "FILL_OR_DROP" and fill is not None and not np.array_equal(
            fill, default_fill(eqn.invars[0].aval.dtype), True)
        # vmap turns a slice into a gather that clips, whose axis is not collapsed; clipping along a
        # collapsed axis was asked for by the user
        return [GatherIndex(1, k, axis, params["slice_sizes"][axis],
                            fills or clips and axis in dims.collapsed_slice_dims)
                for k, axis in enumerate(dims.start_index_map)]
    if name.startswith("scatter"):
        dropped = (*dims.inserted_window_dims, *dims.operand_batching_dims)
        window = dict(zip((a for a in range(len(eqn.invars[0].aval.shape)) if a not in dropped),
                          dims.update_window_dims, strict=True))
        return [GatherIndex(1, k, axis,
                            eqn.invars[2].aval.shape[window[axis]] if axis in window else 1,
                            params["mode"].name == "CLIP")
                for k, axis in enumerate(dims.scatter_dims_to_operand_dims)]
    if name not in ("dynamic_slice", "dynamic_update_slice"):
        return []
    first = 1 if name == "dynamic_slice" else 2
    sizes = params["slice_sizes"] if first == 1 else eqn.invars[1].aval.shape
    return [GatherIndex(first + axis, None, axis, size) for axis, size in enumerate(sizes)]


def blank(operand: Value) -> Value:
    """An array that is written to: its entries are no longer those of a parameter."""
    return operand._replace(axes=tuple(labels or frozenset([(TABLE, 0, 0)])
                                       for labels in operand.axes))


def unknown(eqn: JaxprEqn, values: Iterable[Value]) -> list[Value]:
    """Results that depend on all operands in an unknown way."""
    loose = frozenset().union(*(value.all_axes for value in values))
    return [Value(None, (frozenset(),) * len(getattr(var.aval, "shape", ())), loose)
            for var in eqn.outvars]


# Gathers of indices


def gathered(eqn: JaxprEqn, operand: np.ndarray | None, indices: Sequence[Any],
             nodes: list) -> np.ndarray | None:
    """The numbers that a gather or slice reads from an array of numbers.

    Args:
        indices: for a slice one index for each axis.
    """
    dims, sizes, shape = (eqn.invars[0].aval.shape, eqn.params["slice_sizes"],
                          eqn.outvars[0].aval.shape)
    if operand is None or math.prod(shape) > MAX_TRACKED_ELEMENTS or any(
            index is None or index.shape[1] > 1 for index in indices):
        return None
    # (6, *batch, components)
    flat, components = ((np.stack([index[:, 0] for index in indices], -1), range(len(dims)))
                        if name_of(eqn) == "dynamic_slice" else
                        (indices[0][:, 0], eqn.params["dimension_numbers"].start_index_map))
    varying = [k for k in range(len(components)) if not (flat[SOURCE, ..., k] == KNOWN).all()]

    def at(starts: np.ndarray) -> np.ndarray:
        return operand.reshape(6, operand.shape[1], -1)[:, :, _positions(eqn, starts)]

    if not varying:
        return at(flat[OFFSET])
    # an unknown index into a table of constants: a function of the cell of the index
    if (operand[SOURCE] == KNOWN).all():
        source = opaque([flat[..., k] for k in varying])[SOURCE]
        single = np.unique(source)
        numbers = numbers_of(np.full(shape, single[0] if len(single) == 1 else UNKNOWN), np.nan,
                             np.nan)
        numbers[LOW], numbers[HIGH] = operand[OFFSET].min(), operand[OFFSET].max()
        if len(dims) == 1 and sizes == (1,) and operand.shape[1] == 1:
            starts = np.broadcast_to(flat[..., 0].reshape(6, -1), (6, math.prod(shape)))[:, None]
            write(nodes, numbers, [starts.reshape(6, 1, *shape)], "table", True,
                  operand[OFFSET].ravel())
        return numbers
    count = math.prod(dims[components[k]] - sizes[components[k]] + 1 for k in varying)
    if count * operand.shape[1] > ALTERNATIVES:
        return None
    choices = []
    for place in np.ndindex(*(dims[components[k]] - sizes[components[k]] + 1 for k in varying)):
        starts = flat[OFFSET].copy()
        for k, start in zip(varying, place, strict=True):
            starts[..., k] = start
        choices.append(at(starts))
    return np.concatenate(choices, 1)


def _positions(eqn: JaxprEqn, starts: np.ndarray) -> np.ndarray:
    """The position in the flattened operand of each element of the result, with indices clamped as
    JAX does: the primitive, evaluated on the positions of the elements."""
    dims = eqn.invars[0].aval.shape
    index = np.nan_to_num(np.clip(starts, -1, max(dims, default=0))).astype(int)
    operands = [*index] if name_of(eqn) == "dynamic_slice" else [index]
    result = computed(eqn, [np.arange(math.prod(dims)).reshape(dims), *operands], np.dtype(int),
                      **({"mode": CLIP} if "mode" in eqn.params else {}))
    assert result is not None, "gathers that clamp are known to NumPy"
    return result[0]


# Moves: numbers and labels go with the elements


def move_elements(eqn: JaxprEqn, values: list[Value]) -> list[Value]:
    """Numbers move with their elements. The labels of an axis move with it if it survives;
    otherwise the result depends on the parameter in another way."""
    rule, shapes = AXES[name_of(eqn)], [tuple(var.aval.shape) for var in eqn.invars]
    numbers = _moved_numbers(eqn, [value.numbers for value in values], shapes)
    negative = (_moved_numbers(eqn, [values[0].negative], shapes) if len(values) == 1
                else [None] * len(eqn.outvars))
    results = []
    for j, var in enumerate(eqn.outvars):
        axes = [frozenset[Label]()] * len(var.aval.shape)
        loose = frozenset().union(*(value.other_axes for value in values))
        for i, (value, shape) in enumerate(zip(values, shapes, strict=True)):
            for labels, target in zip(value.axes, rule(eqn, i, j, shape), strict=True):
                if target is None:
                    loose |= {label[:2] for label in labels}
                else:
                    new_axis, offset = target if isinstance(target, tuple) else (target, 0)
                    axes[new_axis] |= {(p, axis, shift + offset) for p, axis, shift in labels}
        results.append(Value(numbers[j], tuple(axes), loose, negative[j]))
    return results


def _moved_numbers(eqn: JaxprEqn, parts: list[Any],
                   shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray | None]:
    """The numbers of each result, with the alternatives of each operand. Unknown numbers stay
    unknown, such as the state in the index of `mean[town, z]`."""
    if all(part is None for part in parts) or any(
            math.prod(var.aval.shape) > MAX_TRACKED_ELEMENTS for var in eqn.outvars) or (
            PRIMITIVES[name_of(eqn)].kind not in (Kind.JOIN, Kind.MOVE)):
        return [None] * len(eqn.outvars)
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    places = computed(eqn, [np.arange(end - math.prod(shape), end).reshape(shape)
                            for end, shape in zip(ends, shapes, strict=True)], np.dtype(int))
    if places is None:
        return [None] * len(eqn.outvars)
    parts = [numbers_of(np.full(shape, float(UNKNOWN)), np.nan, np.nan) if part is None else part
             for part, shape in zip(parts, shapes, strict=True)]
    count = max(part.shape[1] for part in parts)
    flat = np.concatenate([np.take(part, np.arange(count) % part.shape[1], 1).reshape(6, count, -1)
                           for part in parts], -1)
    return [flat[:, :, place] for place in places]


# rules (equation, number of the operand, number of the result, shape of the operand) → for each
# axis of the operand its axis in the result, perhaps with a shift of its entries; None: it is gone

Places = Sequence[int | tuple[int, int] | None]


def _without(removed: Iterable[int], shape: Sequence[int]) -> Places:
    removed = [axis % len(shape) for axis in removed]
    return [None if axis in removed else axis - sum(other < axis for other in removed)
            for axis in range(len(shape))]


def _reshaped(eqn: JaxprEqn, i: int, j: int, shape: Sequence[int]) -> Places:
    """An axis survives a reshape if its length and the product of the lengths before it do."""

    def keys(shape: Sequence[int]) -> list[tuple]:
        prefixes = [(math.prod(shape[:axis]), size) for axis, size in enumerate(shape)]
        return [(*key, prefixes[:axis].count(key)) for axis, key in enumerate(prefixes)]

    new_keys = keys(eqn.outvars[0].aval.shape)
    return [new_keys.index(key) if key in new_keys else None for key in keys(shape)]


def _cut(eqn: JaxprEqn, i: int, j: int, shape: Sequence[int]) -> Places:
    """A slice; a single entry cut from several no longer varies along the axis."""
    steps = eqn.params["strides"] or (1,) * len(shape)
    return [(axis, -start) if step == 1 and (length > 1 or size == 1) else None
            for axis, (start, step, size, length) in enumerate(zip(
                eqn.params["start_indices"], steps, shape, eqn.outvars[0].aval.shape, strict=True))]


def _along(axis: int, shape: Sequence[int], shift: int) -> Places:
    return [(k, shift if k == axis else 0) for k in range(len(shape))]


def _concatenated(eqn: JaxprEqn, i: int, j: int, shape: Sequence[int]) -> Places:
    axis = eqn.params["dimension"]
    return _along(axis, shape, sum(var.aval.shape[axis] for var in eqn.invars[:i]))


def _product(eqn: JaxprEqn, i: int, j: int, shape: Sequence[int]) -> Places:
    summed, batch = (dims[i] for dims in eqn.params["dimension_numbers"])
    free_axes = [axis for axis in range(len(shape)) if axis not in (*summed, *batch)]
    first = len(batch) if i == 0 else len(eqn.outvars[0].aval.shape) - len(free_axes)
    return [None if axis in summed else batch.index(axis) if axis in batch
            else first + free_axes.index(axis) for axis in range(len(shape))]


AXES: dict[str, Callable[[JaxprEqn, int, int, Sequence[int]], Places]] = {
    "broadcast_in_dim": lambda eqn, i, j, shape: [
        place if size == eqn.params["shape"][place] else None
        for place, size in zip(eqn.params["broadcast_dimensions"], shape, strict=True)],
    "concatenate": _concatenated, "dot_general": _product,
    "expand_dims": _reshaped, "reshape": _reshaped, "slice": _cut,
    "split": lambda eqn, i, j, shape: _along(eqn.params["axis"], shape,
                                             -sum(eqn.params["sizes"][:j])),
    "rev": lambda eqn, i, j, shape: [None if axis in eqn.params["dimensions"] else axis
                                     for axis in range(len(shape))],
    "squeeze": lambda eqn, i, j, shape: _without(eqn.params["dimensions"], shape),
    "stack": lambda eqn, i, j, shape: [axis + (axis >= eqn.params["axis"])
                                       for axis in range(len(shape))],
    "tile": lambda eqn, i, j, shape: [None if rep != 1 else axis
                                      for axis, rep in enumerate(eqn.params["reps"])],
    "transpose": lambda eqn, i, j, shape: [eqn.params["permutation"].index(axis)
                                           for axis in range(len(shape))],
    "unstack": lambda eqn, i, j, shape: _without([eqn.params["axis"]], shape),
} | dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"),
                  lambda eqn, i, j, shape: _without(eqn.params["axes"], shape))


def counted(eqn: JaxprEqn) -> Value:
    """The result of `iota`."""
    shape, axis = eqn.params["shape"], eqn.params["dimension"]
    if math.prod(shape) > MAX_TRACKED_ELEMENTS:
        return Value(None, tuple(frozenset([(TABLE, 0, 0)]) if i == axis else frozenset()
                                 for i in range(len(shape))))
    return constant(np.broadcast_to(
        np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape
    ))
