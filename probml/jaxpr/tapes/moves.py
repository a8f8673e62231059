"""Primitives that move or overwrite entries: reshapes, slices, concatenations, gathers, scatters.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from probml.jaxpr.tapes.operation import SECONDS_PER_CALL, Avals, Operation, Unsupported

SECONDS_PER_INDEXED_ENTRY = 1e-8
MAX_COPIED_ENTRIES = 4096  # up to which a copy is as fast as NumPy's view of a repeated array
CLIP, DROP, PROMISED = "CLIP", "FILL_OR_DROP", "PROMISE_IN_BOUNDS"


def _broadcast(ins: Avals, outs: Avals, broadcast_dimensions: Sequence[int]) -> Callable:
    if len(ins) > 1:
        raise Unsupported("shapes that depend on operands")
    (shape, dtype), expanded = outs[0], [1] * len(outs[0].shape)
    for axis, place in enumerate(broadcast_dimensions):
        expanded[place] = ins[0].shape[axis]
    if tuple(expanded) == shape:
        return lambda x: x.reshape(shape)
    if outs[0].size > MAX_COPIED_ENTRIES:
        return lambda x: np.broadcast_to(x.reshape(expanded), shape)

    def filled(x: np.ndarray):
        result = np.empty(shape, dtype)
        result[...] = x.reshape(expanded)
        return result

    return filled


def _reshaped(ins: Avals, outs: Avals, dimensions: Sequence[int] | None = None) -> Callable:
    if len(ins) > 1:
        raise Unsupported("a shape that depends on operands")
    shape = outs[0].shape
    if dimensions is not None:
        return lambda x: x.transpose(dimensions).reshape(shape)
    return lambda x: x.reshape(shape)


def _sliced(ins: Avals, outs: Avals, start_indices: Sequence[int], limit_indices: Sequence[int],
            strides: Sequence[int] | None) -> Callable:
    steps = strides or [1] * len(start_indices)
    window = tuple(map(slice, start_indices, limit_indices, steps))
    return lambda x: x[window]


def _window(starts: Sequence[np.ndarray], sizes: Sequence[int], shape: Sequence[int]) -> tuple:
    """The slices of a window with these starts, clamped into the array."""
    first = [min(max(int(s), 0), n - size) for s, size, n in zip(starts, sizes, shape, strict=True)]
    return tuple(slice(b, b + size) for b, size in zip(first, sizes, strict=True))


def _dynamic_slice(ins: Avals, outs: Avals, slice_sizes: Sequence[int]) -> Callable:
    if len(ins) != 1 + len(slice_sizes):
        raise Unsupported("sizes that depend on operands")
    return lambda x, *starts: x[_window(starts, slice_sizes, x.shape)]


def _put(ins: Avals, outs: Avals) -> Callable:
    def put(x: np.ndarray, update: np.ndarray, *starts: np.ndarray):
        result = np.array(x)
        result[_window(starts, update.shape, x.shape)] = update
        return result

    return put


def _padded(ins: Avals, outs: Avals, padding_config: Sequence[tuple[int, int, int]]) -> Callable:
    shape, dtype = outs[0]
    targets, sources = [], []
    for (low, _, inner), size, length in zip(padding_config, ins[0].shape, shape, strict=True):
        step = inner + 1
        first = max(0, -(low // step)) if low < 0 else 0
        last = min(size, -((low - length) // step)) if length > low else 0
        last = max(first, last)
        position = low + first * step
        targets.append(slice(position, position + (last - first) * step, step))
        sources.append(slice(first, last))
    target, source = tuple(targets), tuple(sources)

    def padded(x: np.ndarray, value: np.ndarray):
        result = np.empty(shape, dtype)
        result[...] = value
        result[target] = x[source]
        return result

    return padded


def _iota(ins: Avals, outs: Avals, dimension: int) -> Callable:
    if ins:
        raise Unsupported("shapes that depend on operands")
    (shape, dtype), = outs
    dims = [size if axis == dimension else 1 for axis, size in enumerate(shape)]
    return lambda: np.broadcast_to(np.arange(shape[dimension], dtype=dtype).reshape(dims), shape)


# gathers and scatters, which describe their axes in the same way


def _window_positions(index: np.ndarray, shape: Sequence[int], sizes: Sequence[int],
                      mapped: Sequence[int],
                      inner: Sequence[int], paired: Sequence[int], batch: Sequence[int],
                      ) -> tuple[list[np.ndarray], np.ndarray]:
    """For every axis of the operand the positions of the entries, (*axes of the indices, *axes of
    windows), windows clamped into the array; and for each index whether its window was.

    Args:
        sizes: of a window along every axis. mapped: the axes that indices tell.
        inner: the axes that windows have. paired: those that are also axes `batch` of the indices.
    """
    lead, width = index.shape[:-1], len(inner)
    in_bounds, positions = np.ones(lead, bool), []
    for axis, (length, size) in enumerate(zip(shape, sizes, strict=True)):
        position: Any = np.zeros(lead, np.int64)
        if axis in mapped:
            raw = index[..., mapped.index(axis)].astype(np.int64)
            position = np.clip(raw, 0, length - size)
            in_bounds = in_bounds & (raw == position)
        elif axis in paired:
            batch_axis = batch[paired.index(axis)]
            dims = [lead[batch_axis] if i == batch_axis else 1 for i in range(len(lead))]
            position = np.broadcast_to(np.arange(lead[batch_axis]).reshape(dims), lead)
        position = position.reshape(lead + (1,) * width)
        if axis in inner:
            dims = [1] * (len(lead) + width)
            dims[len(lead) + inner.index(axis)] = size
            position = position + np.arange(size).reshape(dims)
        positions.append(position)
    return positions, in_bounds


def _mode(mode: object) -> str:
    name = getattr(mode, "name", None)
    if name not in (CLIP, DROP, PROMISED):
        raise Unsupported(f"indices of mode {mode}")
    return name


def _gathered(ins: Avals, outs: Avals, dimension_numbers: jax.lax.GatherDimensionNumbers,
              slice_sizes: Sequence[int], mode: jax.lax.GatherScatterMode,
              fill_value: float | None) -> Callable:
    d, kind = dimension_numbers, _mode(mode)
    paired, batch = tuple(d.operand_batching_dims), tuple(d.start_indices_batching_dims)
    inner = [axis for axis in range(len(slice_sizes))
             if axis not in d.collapsed_slice_dims and axis not in paired]
    width, shape, lead = len(inner), ins[0].shape, len(ins[1].shape) - 1
    # the position of window axes in the result; indexing puts them last
    order = [axis for axis in range(lead + width) if axis not in d.offset_dims]
    order = [lead + d.offset_dims.index(axis) if axis in d.offset_dims else order.index(axis)
             for axis in range(lead + width)]
    permuted = order != list(range(lead + width))

    def gathered(x: np.ndarray, index: np.ndarray):
        positions, in_bounds = _window_positions(index, shape, slice_sizes,
                                                 tuple(d.start_index_map), inner,
                                                 paired,
                                                 batch)
        result = x[tuple(positions)] if positions else np.broadcast_to(x, index.shape[:-1])
        if kind == DROP and not in_bounds.all():
            fill = fill_value if fill_value is not None else default_fill(x.dtype)
            result = np.where(in_bounds.reshape(in_bounds.shape + (1,) * width), result, fill)
        return result.transpose(order) if permuted else result

    return gathered


def default_fill(dtype: np.dtype) -> float:
    """The fill value of a dtype for indices out of bounds."""
    if jax.numpy.issubdtype(dtype, np.inexact):
        return np.nan
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max


def _scattered(write: Callable) -> Callable:
    def build(ins: Avals, outs: Avals, dimension_numbers: jax.lax.GatherDimensionNumbers,
              mode: jax.lax.GatherScatterMode) -> Callable:
        d, kind = dimension_numbers, _mode(mode)
        paired, batch = tuple(d.operand_batching_dims), tuple(d.scatter_indices_batching_dims)
        shape = ins[0].shape
        inner = [axis for axis in range(len(shape))
                 if axis not in d.inserted_window_dims and axis not in paired]
        windows = dict(zip(inner, d.update_window_dims, strict=True))
        sizes = [ins[2].shape[windows[axis]] if axis in windows else 1
                 for axis in range(len(shape))]
        lead = len(ins[1].shape) - 1

        def scattered(x: np.ndarray, index: np.ndarray, update: np.ndarray):
            positions, in_bounds = _window_positions(index, shape, sizes,
                                                     tuple(d.scatter_dims_to_operand_dims),
                                                     inner, paired, batch)
            values = np.moveaxis(update, d.update_window_dims,
                                 range(lead, lead + len(inner)))
            result = np.array(x)
            if kind != CLIP and not in_bounds.all():
                keep = np.broadcast_to(in_bounds.reshape(in_bounds.shape + (1,) * len(inner)),
                                       values.shape)
                positions = [np.broadcast_to(axis, values.shape)[keep] for axis in positions]
                values = values[keep]
            write(result, tuple(positions), values)
            return result

        return scattered

    return build


def _by_index(ins: Avals, outs: Avals, **_: object) -> float:
    """Seconds of a gather, or of a scatter of its last operand."""
    return 20 * SECONDS_PER_CALL + SECONDS_PER_INDEXED_ENTRY * max(ins[-1].size, outs[0].size)


_WRITES: dict[str, Callable] = {
    "scatter": operator.setitem, "scatter_add": np.add.at, "scatter_sub": np.subtract.at,
    "scatter_mul": np.multiply.at, "scatter_min": np.minimum.at, "scatter_max": np.maximum.at}
OPERATIONS: dict[str, Operation] = {
    "broadcast_in_dim": Operation(_broadcast, ("broadcast_dimensions",)),
    "concatenate": Operation(lambda ins, outs, dimension: lambda *parts: np.concatenate(
        parts, dimension), ("dimension",)),
    "dynamic_slice": Operation(_dynamic_slice, ("slice_sizes",)),
    "dynamic_update_slice": Operation(_put),
    "expand_dims": Operation(_reshaped),
    "gather": Operation(_gathered, ("dimension_numbers", "slice_sizes", "mode", "fill_value"),
                        cost=_by_index),
    "iota": Operation(_iota, ("dimension",)),
    "optimization_barrier": Operation(lambda ins, outs: lambda *values: list(values), (), True),
    "pad": Operation(_padded, ("padding_config",)),
    "reshape": Operation(_reshaped, ("dimensions",)),
    "rev": Operation(lambda ins, outs, dimensions: lambda x: np.flip(x, dimensions),
                     ("dimensions",)),
    "slice": Operation(_sliced, ("start_indices", "limit_indices", "strides")),
    "split": Operation(lambda ins, outs, sizes, axis: lambda x: np.split(
        x, np.cumsum(sizes)[:-1], axis), ("sizes", "axis"), True),
    "squeeze": Operation(_reshaped),
    "stack": Operation(lambda ins, outs, axis: lambda *parts: np.stack(parts, axis), ("axis",)),
    "tile": Operation(lambda ins, outs, reps: lambda x: np.tile(x, reps), ("reps",)),
    "transpose": Operation(lambda ins, outs, permutation: lambda x: x.transpose(permutation),
                           ("permutation",)),
    "unstack": Operation(lambda ins, outs, axis: lambda x: [*np.moveaxis(x, axis, 0)],
                         ("axis",), True),
    **{name: Operation(_scattered(write), ("dimension_numbers", "mode"), cost=_by_index)
       for name, write in _WRITES.items()},
}
