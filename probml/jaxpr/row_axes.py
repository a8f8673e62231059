"""Where the axis of rows goes: what each primitive of the table does to it. See exchangeability.py
for the walk and its meaning."""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from probml.jaxpr.primitives import Kind, Known, entry_of, name_of
from probml.jaxpr.row_places import (
    SHARED,
    Mixed,
    Place,
    Rows,
    number_of,
    one,
    same,
    unknown,
    without,
)


def placed(eqn: Any, entry: Known | None, values: Sequence[Rows], rows: int) -> list[Rows]:
    """The results of an equation on arrays of which none is mixed.

    Raises:
        Mixed: it combines rows.
    """
    flags = Rows(data=any(v.data for v in values), number=any(v.number for v in values))
    shapes = [var.aval.shape for var in eqn.outvars]
    if all(value.axis is None for value in values):
        return [_created(eqn, entry, values, shape, rows) for shape in shapes]
    if entry is None:
        raise Mixed
    name = name_of(eqn)
    if entry.kind not in (Kind.ELEMENTWISE, Kind.MOVE):
        values = [_supposed(value, atom.aval.shape, rows)
                  for value, atom in zip(values, eqn.invars, strict=True)]
    if name in ("gather", *_SCATTERS) and _numbered_alone(eqn, values, rows):
        flags = flags._replace(number=any(value.number for i, value in enumerate(values) if i != 1))
    axis, inner = _RULES.get(name, _KINDS.get(entry.kind, unknown))(eqn, values, rows)
    for shape in shapes:
        if not axis < len(shape) or shape[axis] % (rows * inner) or not shape[axis]:
            raise Mixed
    if not flags.data and not flags.number and inner == 1 and all(
        shape[axis] == rows for shape in shapes
    ):
        return [SHARED] * len(shapes)
    return [flags._replace(axis=axis, inner=inner)] * len(shapes)


def _created(eqn: Any, entry: Known | None, values: Sequence[Rows], shape: tuple[int, ...],
             rows: int) -> Rows:
    """The result of an equation on arrays that are the same for all rows: so is it, or it depends
    on rows' numbers or on how many."""
    new, name = _row_sized(shape, rows), name_of(eqn)
    if entry is None and any(hasattr(atom.aval, "inner_aval") for atom in eqn.invars):
        raise Mixed  # a reference: another equation may have put data there
    taken = [_row_sized(atom.aval.shape, rows) for atom in eqn.invars]
    if name == "reshape" and taken[0]:
        return _reshaped_constant(eqn, taken[0], rows)
    if entry is not None and (entry.kind in (Kind.ELEMENTWISE, Kind.COPY) or name in _SPREADING):
        return SHARED
    # as if their axes of rows were of data: whatever does not combine those leaves constant what is
    # constant
    if any(taken):
        supposed = [_supposed(value, atom.aval.shape, rows)
                    for value, atom in zip(values, eqn.invars, strict=True)]
        result = placed(eqn, entry, [v._replace(data=v.axis is not None) for v in supposed],
                        rows)[0]
        return SHARED if new == [result.axis] else number_of(shape, new, rows)
    if name == "tile":
        new = [axis for axis in new if eqn.invars[0].aval.shape[axis] != 1]
    if name == "iota":
        new = [axis for axis in new if axis == eqn.params["dimension"]]
    return number_of(shape, new, rows)


def _row_sized(shape: tuple[int, ...], rows: int) -> list[int]:
    return [axis for axis, size in enumerate(shape) if size and size % rows == 0]


def _supposed(value: Rows, shape: tuple[int, ...], rows: int) -> Rows:
    """The same, told where its axis of rows is, along which it may be constant: combining it, say
    in a sum, would count the rows."""
    axes = [axis for axis in _row_sized(shape, rows) if axis != value.axis]
    if not axes:
        return value
    if value.axis is not None or len(axes) > 1 or shape[axes[0]] != rows:
        raise Mixed
    return value._replace(axis=axes[0])


def _reshaped_constant(eqn: Any, axes: list[int], rows: int) -> Rows:
    """An axis along which all rows are the same, merged with others: its place must be kept, lest
    others be taken for it."""
    if len(axes) > 1:
        raise Mixed
    axis, inner = _reshape(eqn, [Rows(axes[0])], rows)
    return SHARED if inner == 1 and eqn.outvars[0].aval.shape[axis] == rows else Rows(axis, inner)


_SPREADING = """
        broadcast broadcast_in_dim dynamic_slice expand_dims gather reduce_precision rev slice split
        squeeze transpose unstack""".split()
"""Moves that leave constant along rows what is constant along rows, wherever they read."""


def _reduce(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    return without(operator.itemgetter(entry_of(eqn).axes), gone=True)(eqn, values, rows)


def _along(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    return without(lambda params: params.get(entry_of(eqn).axes, -1))(eqn, values, rows)


def _opaque(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    own = entry_of(eqn).own or (len(eqn.params["fft_lengths"]),)
    for i, (value, atom) in enumerate(zip(values, eqn.invars, strict=True)):
        if value.axis is not None and value.axis >= len(atom.aval.shape) - own[
            min(i, len(own) - 1)
        ]:
            raise Mixed
    return same(eqn, values, rows)


def _triangular_solve(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    """The right sides of one matrix are solved for on their own: rows may stand there too."""
    rank = len(eqn.invars[1].aval.shape)
    if values[0].axis is None and values[1].axis == rank - (1 if eqn.params["left_side"] else 2):
        return values[1].axis, values[1].inner
    return _opaque(eqn, values, rows)


def _broadcast_in_dim(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    axis, inner = same(eqn, values[:1], rows)
    there = int(eqn.params["broadcast_dimensions"][axis])
    if eqn.outvars[0].aval.shape[there] != eqn.invars[0].aval.shape[axis]:
        raise Mixed
    return there, inner


def _expand_dims(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    axis, inner = same(eqn, values, rows)
    new = set(eqn.params["dimensions"])
    return [a for a in range(len(eqn.outvars[0].aval.shape)) if a not in new][axis], inner


def _stack(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    axis, inner = same(eqn, values, rows)
    return axis + (axis >= eqn.params["axis"]), inner


def _transpose(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    axis, inner = same(eqn, values, rows)
    return tuple(eqn.params["permutation"]).index(axis), inner


def _reshape(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    """The factor `rows` of the old shape is found again in the new one: neighbours along it are as
    far apart, in one axis."""
    axis, inner = same(eqn, values[:1], rows)
    old, new = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    order = eqn.params.get("dimensions")
    if order is not None:
        old, axis = tuple(old[a] for a in order), tuple(order).index(axis)
    apart = inner * math.prod(old[axis + 1 :])
    for there in reversed(range(len(new))):
        behind = math.prod(new[there + 1 :])
        if behind and apart % behind == 0 and (behind * new[there]) % (apart * rows) == 0:
            return there, apart // behind
    raise Mixed


def _untouched(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    """slice, dynamic_slice, dynamic_update_slice: the axis of rows is taken, or written, as a
    whole."""
    arrays = 2 if name_of(eqn) == "dynamic_update_slice" else 1
    if any(value.axis is not None for value in values[arrays:]):
        raise Mixed
    axis, inner = same(eqn, values[:arrays], rows)
    sizes = {atom.aval.shape[axis] for atom in (*eqn.invars[:arrays], *eqn.outvars)}
    strides = eqn.params.get("strides")
    if len(sizes) > 1 or strides is not None and strides[axis] != 1:
        raise Mixed
    return axis, inner


def _pad(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    axis, inner = same(eqn, values, rows)
    if tuple(eqn.params["padding_config"][axis]) != (0, 0, 0):
        raise Mixed
    return axis, inner


def _window(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    axis, inner = same(eqn, values, rows)
    params = eqn.params
    trivial = all(params[key][axis] == 1 for key in ("window_dimensions", "window_strides",
                                                     "window_dilation", "base_dilation"))
    if not trivial or tuple(params["padding"][axis]) != (0, 0):
        raise Mixed
    return axis, inner


def _dot_general(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    summed, batch = eqn.params["dimension_numbers"]
    found, free = [], len(batch[0])
    for side, value in enumerate(values[:2]):
        kept = [a for a in range(len(eqn.invars[side].aval.shape)) if a not in summed[side]
                and a not in batch[side]]
        if value.axis is not None:
            if value.axis in summed[side]:
                raise Mixed
            paired = value.axis in batch[side]
            found.append((list(batch[side]).index(value.axis)
                          if paired else free + kept.index(value.axis), value.inner))
        free += len(kept)
    return one(found)


def _convolution(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    """Rows may be the batch, or stand in the channels, each in groups of its own: both are what
    vmap makes."""
    numbers, groups, found = eqn.params["dimension_numbers"], eqn.params["feature_group_count"], []
    (batch, channel, *_), (filters, *_), (out_batch, out_channel,
                                          *_) = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    left, right = values
    if eqn.params["batch_group_count"] != 1:
        raise Mixed
    if left.axis == batch:
        found.append((out_batch, left.inner))
    elif left.axis == channel:
        each = eqn.invars[0].aval.shape[channel] // groups
        if left.inner % each:
            raise Mixed
        found.append((out_channel,
                      left.inner // each * (eqn.invars[1].aval.shape[filters] // groups)))
    elif left.axis is not None:
        raise Mixed
    if right.axis == filters:
        found.append((out_channel, right.inner))
    elif right.axis is not None:
        raise Mixed
    return one(found)


def _axis_of_own_number(indices: Rows, column: int, rows: int) -> int | None:
    """The axis of the indices along which this column is the row's own number."""
    if (indices.known is None or indices.axis is None or indices.inner != 1
        or indices.axis == indices.known.ndim - 1):
        return None
    axis, along = indices.axis, indices.known[..., column]
    number = np.arange(rows).reshape([-1 if a == axis else 1 for a in range(along.ndim)])
    return axis if along.shape[axis] == rows and (along == number).all() else None


def _numbered_alone(eqn: Any, values: Sequence[Rows], rows: int) -> bool:
    """Whether the indices depend on the row's number only where it leads to the row itself."""
    indices, dims = values[1], eqn.params["dimension_numbers"]
    if indices.known is None or indices.axis is None:
        return False
    columns = getattr(dims, "start_index_map", None) or dims.scatter_dims_to_operand_dims
    held = [values[0]] + list(values[2:])
    if not any(value.axis is not None for value in held) and name_of(eqn) == "gather":
        return False  # what all rows share, read by the row's number
    for column in range(len(columns)):
        along = indices.known[..., column]
        if _axis_of_own_number(indices, column, rows) is None:
            if not np.array_equal(along, np.broadcast_to(np.take(along, [0], indices.axis),
                                                         along.shape), equal_nan=True):
                return False
    return True


def _gather(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    dims, sizes, (operand, indices) = (eqn.params["dimension_numbers"], eqn.params["slice_sizes"],
                                       values[:2])
    shape, index_shape = (atom.aval.shape for atom in eqn.invars[:2])
    # the axes of the indices, but the last
    beside = [a for a in range(len(eqn.outvars[0].aval.shape)) if a not in dims.offset_dims]
    found = []
    if indices.axis is not None:
        if indices.axis == len(index_shape) - 1:
            raise Mixed
        found.append((beside[indices.axis], indices.inner))
    if operand.axis is not None:
        axis, inner = operand[:2]
        taken = (*dims.collapsed_slice_dims, *dims.operand_batching_dims)
        window = [a for a in range(len(shape)) if a not in taken]
        if axis in dims.operand_batching_dims:
            paired = dims.start_indices_batching_dims[list(dims.operand_batching_dims).index(axis)]
            found.append((beside[paired], inner))
        elif axis in window and sizes[axis] == shape[axis]:
            found.append((dims.offset_dims[window.index(axis)], inner))
        else:
            column = (list(dims.start_index_map).index(axis) if axis in dims.start_index_map
                      else None)
            there = (None if column is None or sizes[axis] != 1
                     or inner != 1 else _axis_of_own_number(indices, column, rows))
            if there is None or shape[axis] != rows:
                raise Mixed
            found.append((beside[there], 1))
    return one(found)


def _scatter(eqn: Any, values: Sequence[Rows], rows: int) -> Place:
    dims, (operand, indices, updates) = eqn.params["dimension_numbers"], values[:3]
    shape, index_shape, update_shape = (atom.aval.shape for atom in eqn.invars[:3])
    gone = (*dims.inserted_window_dims, *dims.operand_batching_dims)
    window = [a for a in range(len(shape)) if a not in gone]
    beside = [a for a in range(len(update_shape)) if a not in dims.update_window_dims]
    whole = {a: u for a, u in zip(window, dims.update_window_dims, strict=True)
             if update_shape[u] == shape[a]}

    def through_indices(axis: int) -> int:
        """The axis of the operand that this axis of the indices runs along."""
        if axis in dims.scatter_indices_batching_dims:
            return dims.operand_batching_dims[list(dims.scatter_indices_batching_dims).index(axis)]
        for column, there in enumerate(dims.scatter_dims_to_operand_dims):
            if (there in dims.inserted_window_dims and shape[there] == rows
                and _axis_of_own_number(indices, column, rows) == axis):
                return there
        raise Mixed

    found = []
    if operand.axis is not None:
        found.append((operand.axis, operand.inner))
    if indices.axis is not None:
        if indices.axis == len(index_shape) - 1:
            raise Mixed
        found.append((through_indices(indices.axis), indices.inner))
    if updates.axis in dims.update_window_dims:
        there = next((a for a, u in whole.items() if u == updates.axis), None)
        if there is None:
            raise Mixed
        found.append((there, updates.inner))
    elif updates.axis is not None:
        found.append((through_indices(beside.index(updates.axis)), updates.inner))
    axis, inner = one(found)
    by_indices = indices.axis is not None and through_indices(indices.axis) == axis
    if axis not in whole and axis not in dims.operand_batching_dims and not by_indices:
        raise Mixed  # some rows are written, others are not
    return axis, inner


_SCATTERS = ("scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max")
_RULES: dict[str, Callable[[Any, Sequence[Rows], int], Place]] = {
    "broadcast": lambda eqn, values, rows: (values[0].axis + len(eqn.params["sizes"]),
                                            values[0].inner),
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": without(operator.itemgetter("dimension")),
    "conv_general_dilated": _convolution,
    "dot_general": _dot_general,
    "dynamic_slice": _untouched,
    "dynamic_update_slice": _untouched,
    "expand_dims": _expand_dims,
    "gather": _gather,
    "pad": _pad,
    "reduce_precision": same,
    "reshape": _reshape,
    "rev": without(operator.itemgetter("dimensions")),
    "slice": _untouched,
    "split": without(operator.itemgetter("axis")),
    "squeeze": without(operator.itemgetter("dimensions"), gone=True),
    "stack": _stack,
    "tile": same,  # repeats stand outside of rows: (place // inner) % rows is as before
    "transpose": _transpose,
    "triangular_solve": _triangular_solve,
    "unstack": without(operator.itemgetter("axis"), gone=True),
} | dict.fromkeys(_SCATTERS, _scatter)
_KINDS: dict[Kind, Callable[[Any, Sequence[Rows], int], Place]] = {
    Kind.ELEMENTWISE: same,
    Kind.REDUCE: _reduce,
    Kind.ALONG: _along,
    Kind.WINDOW: _window,
    Kind.OPAQUE: _opaque,
    Kind.LEADING: same,
}
