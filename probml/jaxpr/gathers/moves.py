"""What each primitive that moves numbers does to positions: one rule a primitive."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.lax import GatherScatterMode

from probml.jaxpr.gathers.symbols import (
    ALTERNATIVES,
    HIGH,
    KNOWN,
    LARGEST,
    LOW,
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
from probml.jaxpr.primitives import computed, name_of

CLIP = GatherScatterMode.CLIP


class Reading(NamedTuple):
    """One index of one gather, slice or scatter: the number, the largest index allowed, and what is
    read."""

    number: tuple[float, ...]
    last: int
    length: int
    labels: frozenset[Label]
    free: bool  # an index out of bounds has a meaning here
    whole: bool  # the array read depends on all entries of a parameter


class Look(NamedTuple):
    """An index of a gather, slice or scatter.

    Attributes:
        operand: the one that holds it; column: where along its last axis, None for a number.
        axis: along which the first operand is read or written; size: how many entries at once.
        free: an index out of bounds has a meaning: it is clipped, or a fill value is stated.
    """

    operand: int
    column: int | None
    axis: int
    size: int
    free: bool = False

    def of(self, index: np.ndarray) -> np.ndarray:
        """Its numbers, or what is known of them, among those of its operand."""
        return index if self.column is None else index[..., self.column]


def looks(eqn: Any) -> list[Look]:
    """The indices of an equation; none where it has no such."""
    name, params = name_of(eqn), eqn.params
    dims = params.get("dimension_numbers")
    if name == "gather":
        clips, fill = params["mode"].name == "CLIP", params["fill_value"]
        stated = params["mode"].name == "FILL_OR_DROP" and fill is not None and not default(
            fill, eqn.invars[0].aval.dtype)
        # vmap makes a slice into a gather that clips, whose axis is not collapsed; of one that is,
        # somebody has asked for it
        return [Look(1, k, axis, params["slice_sizes"][axis],
                     stated or clips and axis in dims.collapsed_slice_dims)
                for k, axis in enumerate(dims.start_index_map)]
    if name.startswith("scatter"):
        away = (*dims.inserted_window_dims, *dims.operand_batching_dims)
        window = dict(zip((a for a in range(len(eqn.invars[0].aval.shape)) if a not in away),
                          dims.update_window_dims, strict=True))
        return [Look(1, k, axis, eqn.invars[2].aval.shape[window[axis]] if axis in window else 1,
                     params["mode"].name == "CLIP")
                for k, axis in enumerate(dims.scatter_dims_to_operand_dims)]
    if name not in ("dynamic_slice", "dynamic_update_slice"):
        return []
    first = 1 if name == "dynamic_slice" else 2
    sizes = params["slice_sizes"] if first == 1 else eqn.invars[1].aval.shape
    return [Look(first + axis, None, axis, size) for axis, size in enumerate(sizes)]


def blank(operand: Value) -> Value:
    """An array that is written to: whatever stands there now, its entries have no names of their
    own."""
    return operand._replace(axes=tuple(labels or frozenset([(TABLE, 0, 0)])
                                       for labels in operand.axes))


def default(fill: Any, dtype: Any) -> bool:
    """Whether a fill value is the one that jnp.take has where none is stated."""
    if jnp.issubdtype(dtype, jnp.floating):
        return bool(np.isnan(fill))
    if not jnp.issubdtype(dtype, jnp.integer):
        return bool(fill)
    info = jnp.iinfo(dtype)
    return int(fill) == (info.max if info.min == 0 else info.min)


def unknown(eqn: Any, values: Iterable[Value]) -> list[Value]:
    """Results that depend on all operands in a way that is not followed."""
    loose = frozenset().union(*(value.every for value in values))
    return [Value(None, (frozenset(),) * len(getattr(var.aval, "shape", ())), loose)
            for var in eqn.outvars]


# Gathers of indices


def gathered(eqn: Any, operand: Any, found: Sequence[Any], nodes: list) -> np.ndarray | None:
    """The numbers that a gather, or a slice, finds in an array of numbers.

    Args:
        found: its indices; of a slice one for each axis.
    """
    dims, sizes, shape = (eqn.invars[0].aval.shape, eqn.params["slice_sizes"],
                          eqn.outvars[0].aval.shape)
    if operand is None or math.prod(shape) > LARGEST or any(
            index is None or index.shape[1] > 1 for index in found):
        return None
    # (6, *batch, components)
    flat = (np.stack([index[:, 0] for index in found], -1) if name_of(eqn) == "dynamic_slice"
            else found[0][:, 0])
    numbers = eqn.params.get("dimension_numbers")
    components = (tuple(range(len(dims))) if name_of(eqn) == "dynamic_slice"
                  else tuple(numbers.start_index_map))
    varying = [k for k in range(len(components)) if not (flat[SOURCE, ..., k] == KNOWN).all()]

    def at(starts: np.ndarray) -> np.ndarray:
        places = _positions(eqn, starts)
        return operand.reshape(6, operand.shape[1], -1)[:, :, places]

    if not varying:
        return at(flat[OFFSET])
    # a table of constants: some number of those, by the cell of the index
    if (operand[SOURCE] == KNOWN).all():
        source = opaque([flat[..., k] for k in varying])[SOURCE]
        single = np.unique(source)
        found = numbers_of(np.full(shape, single[0] if len(single) == 1 else UNKNOWN), np.nan,
                           np.nan)
        found[LOW], found[HIGH] = operand[OFFSET].min(), operand[OFFSET].max()
        if len(dims) == 1 and sizes == (1,) and operand.shape[1] == 1:
            starts = np.broadcast_to(flat[..., 0].reshape(6, -1), (6, math.prod(shape)))[:, None]
            write(nodes, found, [starts.reshape(6, 1, *shape)], "table", True,
                  operand[OFFSET].ravel())
        return found
    count = math.prod(dims[components[k]] - sizes[components[k]] + 1 for k in varying)
    if count * operand.shape[1] > ALTERNATIVES:
        return None
    out = []
    for place in np.ndindex(*(dims[components[k]] - sizes[components[k]] + 1 for k in varying)):
        starts = flat[OFFSET].copy()
        for k, start in zip(varying, place, strict=True):
            starts[..., k] = start
        out.append(at(starts))
    return np.concatenate(out, 1)


def _positions(eqn: Any, starts: np.ndarray) -> np.ndarray:
    """Where in the flattened operand each element of the result stands, as JAX clamps indices: the
    primitive, run on the numbers of the elements."""
    dims = eqn.invars[0].aval.shape
    index = np.nan_to_num(np.clip(starts, -1, max(dims, default=0))).astype(int)
    split = [*index] if name_of(eqn) == "dynamic_slice" else [index]
    found = computed(eqn, [np.arange(math.prod(dims)).reshape(dims), *split], np.dtype(int),
                     **({"mode": CLIP} if "mode" in eqn.params else {}))
    assert found is not None, "gathers that clamp are known to NumPy"
    return found[0]


# Moves: numbers and labels go with the elements


def _moved(value: Value, change: Any, axes: Sequence[frozenset[Label]],
           lost: Iterable[frozenset[Label]] = ()) -> Value:
    loose = value.loose | {label[:2] for labels in lost for label in labels}
    small = value.numbers is not None
    return Value(change(value.numbers) if small else None, tuple(axes), loose,
                 None if value.negative is None else change(value.negative))


def _broadcast(eqn: Any, values: list[Value]) -> list[Value]:
    (value, *_), shape, places = values, eqn.params["shape"], eqn.params["broadcast_dimensions"]
    sizes = eqn.invars[0].aval.shape
    wide = [1] * len(shape)
    axes, lost = [frozenset()] * len(shape), []
    for place, size, labels in zip(places, sizes, value.axes, strict=True):
        wide[place] = size
        if size == shape[place]:
            axes[place] = labels
        else:
            lost.append(labels)

    def change(a):
        return np.broadcast_to(a.reshape(*a.shape[:2], *wide), (*a.shape[:2], *shape))

    if math.prod(shape) > LARGEST:
        value = value._replace(numbers=None, negative=None)
    return [_moved(value, change, axes, lost)]


def _reshape(eqn: Any, values: list[Value]) -> list[Value]:
    before, after, value = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape, values[0]
    axes, lost = [frozenset()] * len(after), []
    i = j = 0
    # groups of axes with the same product; of one axis each, but for ones, labels stay
    while i < len(before) or j < len(after):
        group, other = [i] if i < len(before) else [], [j] if j < len(after) else []
        i, j = i + len(group), j + len(other)
        while math.prod(before[k] for k in group) != math.prod(after[k] for k in other):
            if math.prod(before[k] for k in group) < math.prod(after[k] for k in other):
                group.append(i)
                i += 1
            else:
                other.append(j)
                j += 1
        real, place = [k for k in group if before[k] != 1], [k for k in other if after[k] != 1]
        if len(real) == len(place) == 1:
            axes[place[0]] = value.axes[real[0]]
            lost += [value.axes[k] for k in group if k not in real]
        elif not real and group and other:
            axes[other[0]] = frozenset().union(*(value.axes[k] for k in group))
        else:
            lost += [value.axes[k] for k in group]
    return [_moved(value, lambda a: a.reshape(*a.shape[:2], *after), axes, lost)]


def _squeeze(eqn: Any, values: list[Value]) -> list[Value]:
    gone = [axis % len(values[0].axes) for axis in eqn.params["dimensions"]]
    axes = [labels for axis, labels in enumerate(values[0].axes) if axis not in gone]
    lost = [values[0].axes[axis] for axis in gone]
    return [_moved(values[0], lambda a: a.reshape(*a.shape[:2], *eqn.outvars[0].aval.shape), axes,
                   lost)]


def _transpose(eqn: Any, values: list[Value]) -> list[Value]:
    order = eqn.params["permutation"]
    axes = [values[0].axes[axis] for axis in order]
    return [_moved(values[0], lambda a: a.transpose(0, 1, *(2 + axis for axis in order)), axes)]


def _cut(eqn: Any, values: list[Value]) -> list[Value]:
    begins, ends, steps = (eqn.params["start_indices"], eqn.params["limit_indices"],
                           eqn.params["strides"] or (1,) * len(values[0].axes))
    where = tuple(slice(b, e, s) for b, e, s in zip(begins, ends, steps, strict=True))
    axes, lost = [], []
    for labels, begin, step, size, left in zip(
        values[0].axes, begins, steps, eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape,
        strict=True
    ):
        if step == 1 and (left > 1 or size == 1):
            axes.append(frozenset((p, axis, shift - begin) for p, axis, shift in labels))
        else:  # one entry, whichever group a row belongs to
            axes.append(frozenset())
            lost.append(labels)
    return [_moved(values[0], lambda a: a[(slice(None), slice(None), *where)], axes, lost)]


def _split(eqn: Any, values: list[Value]) -> list[Value]:
    axis, begin, out = eqn.params["axis"], 0, []
    for size in eqn.params["sizes"]:
        where = (slice(None),) * (2 + axis) + (slice(begin, begin + size),)
        axes = list(values[0].axes)
        axes[axis] = frozenset((p, a, shift - begin) for p, a, shift in axes[axis])
        out.append(_moved(values[0], lambda a, where=where: a[where], axes))
        begin += size
    return out


def _unstack(eqn: Any, values: list[Value]) -> list[Value]:
    axis = eqn.params["axis"]
    axes = [labels for i, labels in enumerate(values[0].axes) if i != axis]
    return [_moved(values[0], lambda a, i=i: np.take(a, i, 2 + axis), axes, [values[0].axes[axis]])
            for i in range(len(eqn.outvars))]


def _reverse(eqn: Any, values: list[Value]) -> list[Value]:
    turned = eqn.params["dimensions"]
    axes = [frozenset() if axis in turned else labels for axis, labels in enumerate(values[0].axes)]
    lost = [values[0].axes[axis] for axis in turned]
    return [_moved(values[0], lambda a: np.flip(a, tuple(2 + axis for axis in turned)), axes, lost)]


def _concatenate(eqn: Any, values: list[Value]) -> list[Value]:
    axis, begin, axes = eqn.params["dimension"], 0, [frozenset() for _ in values[0].axes]
    for value, var in zip(values, eqn.invars, strict=True):
        for i, labels in enumerate(value.axes):
            axes[i] |= {(p, a, shift + begin) for p, a, shift in labels} if i == axis else labels
        begin += var.aval.shape[axis]
    loose = frozenset().union(*(value.loose for value in values))
    found = _together(eqn, values, lambda parts: np.concatenate(parts, 2 + axis))
    return [Value(found, tuple(axes), loose)]


def _stack(eqn: Any, values: list[Value]) -> list[Value]:
    axis = eqn.params["axis"]
    axes = [frozenset().union(*each) for each in zip(*(value.axes for value in values),
                                                     strict=True)]
    axes.insert(axis, frozenset())
    loose = frozenset().union(*(value.loose for value in values))
    found = _together(eqn, values, lambda parts: np.stack(parts, 2 + axis))
    return [Value(found, tuple(axes), loose)]


def _together(eqn: Any, values: Sequence[Value], join: Any) -> np.ndarray | None:
    """Arrays of numbers as one, with the alternatives of each; those of which nothing is known, as
    a state beside a code in `mean[town, z]`, stay unknown beside the others."""
    if all(value.numbers is None for value in values) or math.prod(
        eqn.outvars[0].aval.shape) > LARGEST:
        return None
    parts = [numbers_of(np.full(var.aval.shape, float(UNKNOWN)), np.nan, np.nan)
             if value.numbers is None else value.numbers
             for value, var in zip(values, eqn.invars, strict=True)]
    most = max(part.shape[1] for part in parts)
    return join([np.take(part, np.arange(most) % part.shape[1], 1) for part in parts])


def _tile(eqn: Any, values: list[Value]) -> list[Value]:
    reps = eqn.params["reps"]
    axes = [frozenset() if rep != 1 else labels
            for rep, labels in zip(reps, values[0].axes, strict=True)]
    lost = [labels for rep, labels in zip(reps, values[0].axes, strict=True) if rep != 1]
    return [_moved(values[0], lambda a: np.tile(a, (1, 1, *reps)), axes, lost)]


def _iota(eqn: Any, values: list[Value]) -> list[Value]:
    shape, axis = eqn.params["shape"], eqn.params["dimension"]
    if math.prod(shape) > LARGEST:
        return [Value(None, tuple(frozenset([(TABLE, 0, 0)]) if i == axis else frozenset()
                                  for i in range(len(shape))))]
    return [constant(np.broadcast_to(
        np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape
    ))]


def _reduce(eqn: Any, values: list[Value]) -> list[Value]:
    gone = eqn.params["axes"]
    axes = [labels for axis, labels in enumerate(values[0].axes) if axis not in gone]
    return [Value(None, tuple(axes),
                  values[0].loose | {label[:2] for axis in gone for label in values[0].axes[axis]})]


def _dot(eqn: Any, values: list[Value]) -> list[Value]:
    summed, batch = eqn.params["dimension_numbers"]
    left, right = values
    axes = [left.axes[a] | right.axes[b] for a, b in zip(*batch, strict=True)]
    loose = left.loose | right.loose
    for value, own, shared in zip(values, summed, batch, strict=True):
        axes += [labels for axis, labels in enumerate(value.axes) if axis not in (*own, *shared)]
        loose |= {label[:2] for axis in own for label in value.axes[axis]}
    return [Value(None, tuple(axes), loose)]


MOVES = {
    "broadcast_in_dim": _broadcast, "reshape": _reshape, "squeeze": _squeeze,
    "transpose": _transpose, "slice": _cut, "split": _split,
    "unstack": _unstack, "rev": _reverse, "concatenate": _concatenate, "stack": _stack,
    "tile": _tile, "iota": _iota,
    "reduce_sum": _reduce, "reduce_max": _reduce, "reduce_min": _reduce, "reduce_prod": _reduce,
    "dot_general": _dot,
}  # fmt: skip
