"""Dependence of the elements of a result on the cells of its operands.

Cells are numbered. For every element we track the smallest and the largest number of a cell on
which it depends; it depends on a single cell exactly if the two are equal. A primitive that only
moves elements is run on these numbers; one that combines elements takes their minimum and maximum
along the axes that it combines (primitives.py); an unknown primitive takes them over everything.
The analysis is conservative: an element reported to depend on one cell does so, while an element
reported to depend on several may in truth depend on one.

An array of cell numbers may have length 1 along an axis where the array itself is longer: the
number is then the same along the whole axis.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.core import Atom
from jax.extend.core import JaxprEqn

from probml.jaxpr.primitives import TABLE, Kind, computed, name_of

NONE = -1  # stands for "depends on no cell"
# elements tracked one by one; in larger arrays each element depends on all
MAX_TRACKED_ELEMENTS = 10**7
_BEYOND = 2**31 - 1  # the minimum over no cells; the maximum over no cells is NONE
_WHOLE = np.dtype(np.int64)


class End(NamedTuple):
    """One of the two bounds that are tracked: how two bounds combine, and the bound of no cells."""

    join: np.ufunc
    blank: int


ENDS = (End(np.minimum, _BEYOND), End(np.maximum, NONE))
Marks = Sequence[Any]  # for each operand an array of bounds; None: it depends on no cell
Numbers = Sequence[Any]  # the integers that operands hold (NaN: unknown); None: all unknown


def sources(eqn: JaxprEqn, marks: Marks, end: End, numbers: Numbers) -> list[np.ndarray]:
    """One bound of the elements of every result, computed from the same bound of the operands."""
    name = name_of(eqn)
    rule = _RULES.get(name) or (_KINDS.get(TABLE[name].kind) if name in TABLE else None)
    in_place = rule in _READING and marks[0] is None  # places alone count, not elements
    if rule in _MOVING and not in_place and sum(
            math.prod(_shape(atom)) for atom in (*eqn.invars, *eqn.outvars)) > MAX_TRACKED_ELEMENTS:
        rule = None  # above this size elements are not tracked one by one
    bounds = None if rule is None else rule(eqn, marks, end, numbers)
    if bounds is None:
        bounds = _everything(marks, end)
    return bounds if isinstance(bounds, list) else [_ranked(bounds, len(_shape(var)))
                                                    for var in eqn.outvars]


def _shape(atom: Atom) -> tuple[int, ...]:
    return tuple(getattr(atom.aval, "shape", ()))


def _ranked(marks: np.ndarray, rank: int) -> np.ndarray:
    """The bounds with `rank` axes; a single bound holds for all elements."""
    return marks if marks.ndim == rank else marks.reshape((1,) * rank)


def _everything(marks: Marks, end: End) -> np.ndarray:
    return np.asarray(end.join.reduce([end.join.reduce(m, None, initial=end.blank)
                                       for m in marks if m is not None]))


def _joined(marks: Marks, end: End) -> np.ndarray:
    """The bounds of an elementwise function of several operands, with broadcasting."""
    joined, *others = [m for m in marks if m is not None]
    for m in others:
        if joined.size * m.size > MAX_TRACKED_ELEMENTS and math.prod(shape := np.broadcast_shapes(
                joined.shape, m.shape)) > MAX_TRACKED_ELEMENTS:
            return _everything(marks, end).reshape((1,) * len(shape))
        joined = end.join(joined, m)
    return joined


def _spread(marks: np.ndarray | None, shape: tuple[int, ...], end: End) -> np.ndarray:
    """The bounds broadcast to every element."""
    return np.full(shape, end.blank) if marks is None else np.broadcast_to(marks, shape)


def _exact(number: np.ndarray | None) -> bool:
    return number is not None and not np.isnan(number).any()


def _elementwise(eqn: JaxprEqn, marks: Marks, end: End, numbers: Numbers) -> np.ndarray:
    return _joined(marks, end)


def _combined(eqn: JaxprEqn, marks: Marks, end: End, numbers: Numbers) -> np.ndarray:
    """A reduction along the axes that a parameter of the equation names."""
    entry = TABLE[name_of(eqn)]
    axes = eqn.params.get(entry.axes, -1)
    joined = _ranked(_joined(marks, end), len(_shape(eqn.invars[0])))
    return end.join.reduce(joined, tuple(axes) if isinstance(axes, tuple | list) else axes,
                           keepdims=entry.kind is Kind.ALONG, initial=end.blank)


def _running(eqn: JaxprEqn, marks: Marks, end: End, numbers: Numbers) -> np.ndarray:
    """A cumulative reduction: each element depends on those before it along the axis."""
    axis, m = eqn.params["axis"], marks[0]
    if eqn.params["reverse"]:
        return np.flip(end.join.accumulate(np.flip(m, axis), axis), axis)
    return end.join.accumulate(m, axis)


def _window(eqn: JaxprEqn, marks: Marks, end: End, numbers: Numbers) -> np.ndarray:
    """A reduction over a sliding window: along the axes of the window each element depends on
    all."""
    rank, params = len(_shape(eqn.invars[0])), eqn.params
    settings = [params[key] for key in ("window_dimensions", "window_strides", "base_dilation")]
    axes = tuple(axis for axis in range(rank) if any(setting[axis] != 1 for setting in settings)
                 or tuple(params["padding"][axis]) != (0, 0))
    return end.join.reduce(_ranked(_joined(marks, end), rank), axes, keepdims=True,
                           initial=end.blank)


def _opaque(eqn: JaxprEqn, marks: Marks, end: End, numbers: Numbers) -> np.ndarray | list | None:
    """An arbitrary function of the trailing axes, batched over the leading ones."""
    n_trailing = TABLE[name_of(eqn)].core_ndims or (len(eqn.params["fft_lengths"]),)
    leading, batch = [], set()
    for i, (m, atom) in enumerate(zip(marks, eqn.invars, strict=True)):
        count, shape = n_trailing[min(i, len(n_trailing) - 1)], _shape(atom)
        batch.add(shape[: len(shape) - count])
        if m is not None:
            leading.append(end.join.reduce(m, tuple(range(m.ndim - count, m.ndim)),
                                           initial=end.blank))
    shapes = list(map(_shape, eqn.outvars))
    width = len(next(iter(batch)))
    if any({shape[:width]} != batch for shape in shapes):
        return None
    joined = _joined(leading, end)
    return [joined.reshape(joined.shape + (1,) * (len(shape) - width)) for shape in shapes]


def _triangular_solve(eqn: JaxprEqn, marks: Marks, end: End, numbers: Numbers) -> np.ndarray:
    """Each right-hand side is solved independently of the others."""
    matrix, sides = marks
    axis = -2 if eqn.params["left_side"] else -1
    return _joined([None if matrix is None
                    else end.join.reduce(matrix, (-2, -1), keepdims=True, initial=end.blank),
                    None if sides is None
                    else end.join.reduce(sides, axis, keepdims=True, initial=end.blank)], end)


def _leading(eqn: JaxprEqn, marks: Marks, end: End, numbers: Numbers) -> list[np.ndarray]:
    """Axes are appended after, or removed from, the trailing ones."""
    bounds = []
    for rank in (len(_shape(var)) for var in eqn.outvars):
        parts = [m.reshape(m.shape + (1,) * (rank - m.ndim)) if m.ndim < rank else end.join.reduce(
            m, tuple(range(rank, m.ndim)), initial=end.blank) for m in marks if m is not None]
        bounds.append(_joined(parts, end))
    return bounds


# moves


def _moved_elements(eqn: JaxprEqn, marks: Marks, end: End,
                    numbers: Numbers) -> list[np.ndarray] | None:
    """The element numbers of the results of a primitive that only moves elements: the primitive
    itself, run on the element numbers of its operands; None: it moves them to unknown places."""
    all_move, values = TABLE[name_of(eqn)].kind is Kind.JOIN, []
    for i, (m, atom) in enumerate(zip(marks, eqn.invars, strict=True)):
        if all_move or i == 0:
            values.append(_spread(m, _shape(atom), end))
        elif _exact(numbers[i]):
            values.append(numbers[i].astype(int))
        else:
            return None
    return _run(eqn, values, end)


def _run(eqn: JaxprEqn, values: list[np.ndarray], end: End,
         **changed: object) -> list[np.ndarray] | None:
    if "fill_value" in eqn.params:  # a fill value depends on nothing
        changed["fill_value"] = end.blank
    return computed(eqn, values, _WHOLE, **changed)


def _broadcast(eqn: JaxprEqn, marks: Marks, end: End, numbers: Numbers) -> np.ndarray:
    shape = [1] * len(_shape(eqn.outvars[0]))
    for size, place in zip(marks[0].shape, eqn.params["broadcast_dimensions"], strict=True):
        shape[place] = size
    return marks[0].reshape(shape)


def _select(eqn: JaxprEqn, marks: Marks, end: End, numbers: Numbers) -> np.ndarray:
    """A select: where the predicate is known, only the chosen case counts."""
    shape = _shape(eqn.outvars[0])
    if not _exact(numbers[0]) or math.prod(shape) > MAX_TRACKED_ELEMENTS:
        return _joined(marks, end)
    cases = np.stack([_spread(m, shape, end) for m in marks[1:]])
    selector = np.broadcast_to(numbers[0].astype(int), shape)
    return np.take_along_axis(cases, selector[None], 0)[0]


def _starts(eqn: JaxprEqn, marks: Marks, first: int, numbers: Numbers, sizes: Sequence[int],
            ) -> tuple[list[np.ndarray], list[int]]:
    """Where a slice starts, and the axes along which its start is unknown."""
    starts, unknown = [], []
    for axis, (size, length) in enumerate(zip(sizes, _shape(eqn.invars[0]), strict=True)):
        number = numbers[first + axis]
        starts.append(np.asarray(number if size != length and _exact(number) else 0, int))
        unknown += [axis] if size != length and not _exact(number) else []
    return starts, unknown


def _dynamic_slice(eqn: JaxprEqn, marks: Marks, end: End, numbers: Numbers) -> np.ndarray | None:
    """A dynamic slice; along an axis whose start is unknown any element may be taken."""
    starts, unknown = _starts(eqn, marks, 1, numbers, eqn.params["slice_sizes"])
    parts = [_ranked(m, len(starts)) for m in marks[1:] if m is not None]
    if marks[0] is not None:
        operand = end.join.reduce(marks[0], tuple(unknown), keepdims=True, initial=end.blank)
        moved = _run(eqn, [_spread(operand, _shape(eqn.invars[0]), end), *starts], end)
        if moved is None:
            return None
        parts += moved
    return _joined(parts, end)


def _dynamic_update(eqn: JaxprEqn, marks: Marks, end: End, numbers: Numbers) -> np.ndarray:
    starts, unknown = _starts(eqn, marks, 2, numbers, _shape(eqn.invars[1]))
    target, written = (end.join.reduce(_spread(m, _shape(atom), end), tuple(unknown), keepdims=True,
                                       initial=end.blank)
                       for m, atom in zip(marks[:2], eqn.invars[:2], strict=True))
    parts = [_ranked(m, len(starts)) for m in marks[2:] if m is not None]
    parts += computed(eqn, [target, written, *starts], _WHOLE) or []
    return _joined([*parts, target] if unknown else parts, end)


def _index(number: np.ndarray | None, shape: tuple[int, ...], columns: Sequence[int],
           ) -> tuple[np.ndarray, list[int]]:
    """The indices of a gather or scatter, and the axes along which they are unknown."""
    index = np.full(shape, np.nan) if number is None else np.array(number)
    unknown = np.isnan(index).any(tuple(range(index.ndim - 1)))
    index[..., unknown] = 0
    return index.astype(int), [axis for axis, flag in zip(columns, unknown, strict=True) if flag]


def _of_indices(marks: np.ndarray, rank: int, windows: Sequence[int], end: End) -> np.ndarray:
    """The bound of every index, broadcast over the window that it reads or writes."""
    per_index = end.join.reduce(marks, marks.ndim - 1, initial=end.blank)
    sizes = iter(per_index.shape)
    return per_index.reshape([1 if axis in windows else next(sizes) for axis in range(rank)])


def _gather(eqn: JaxprEqn, marks: Marks, end: End, numbers: Numbers) -> np.ndarray | None:
    """Elements of the first operand at the indices of the second."""
    dims, (operand, indices) = eqn.params["dimension_numbers"], marks
    parts = [] if indices is None else [
        _of_indices(indices, len(_shape(eqn.outvars[0])), dims.offset_dims, end)]
    if operand is not None:
        index, unknown = _index(numbers[1], _shape(eqn.invars[1]), dims.start_index_map)
        reduced = end.join.reduce(operand, tuple(unknown), keepdims=True, initial=end.blank)
        moved = _run(eqn, [_spread(reduced, _shape(eqn.invars[0]), end), index], end)
        if moved is None:
            return None
        parts += moved
    return _joined(parts, end)


def _scatter(eqn: JaxprEqn, marks: Marks, end: End, numbers: Numbers) -> np.ndarray | None:
    """The old elements and those written; along an axis whose index is unknown, anywhere."""
    dims, shapes = eqn.params["dimension_numbers"], list(map(_shape, eqn.invars))
    index, unknown = _index(numbers[1], shapes[1], dims.scatter_dims_to_operand_dims)
    dropped = (*dims.inserted_window_dims, *dims.operand_batching_dims)
    window = dict(zip((axis for axis in range(len(shapes[0])) if axis not in dropped),
                      dims.update_window_dims, strict=True))
    operand = end.join.reduce(_spread(marks[0], shapes[0], end), tuple(unknown), keepdims=True,
                              initial=end.blank)
    written = _joined([_spread(marks[2], shapes[2], end)] + [
        _of_indices(m, len(shapes[2]), dims.update_window_dims, end)
        for m in marks[1:2] if m is not None], end)
    written = end.join.reduce(written, tuple(window[axis] for axis in unknown if axis in window),
                              keepdims=True, initial=end.blank)
    if name_of(eqn) == "scatter" and not unknown:
        cleared = computed(eqn, [operand, index, np.full(written.shape, end.blank)], _WHOLE)
        operand = operand if cleared is None else cleared[0]
    result = computed(eqn, [operand, index, written], _WHOLE,
                      name="scatter_min" if end.join is np.minimum else "scatter_max")
    return None if result is None else result[0]


# sums of products


def _dot_general(eqn: JaxprEqn, marks: Marks, end: End, numbers: Numbers) -> np.ndarray:
    contracted, batch = eqn.params["dimension_numbers"]
    rank, lead, parts = len(_shape(eqn.outvars[0])), len(batch[0]), []
    for side, m in enumerate(marks):
        if m is not None:
            free = [a for a in range(m.ndim) if a not in (*contracted[side], *batch[side])]
            reduced = end.join.reduce(np.transpose(m, (*batch[side], *free, *contracted[side])),
                                      tuple(range(lead + len(free), m.ndim)), initial=end.blank)
            before = lead if side == 0 else rank - len(free)
            parts.append(reduced.reshape(reduced.shape[:lead] + (1,) * (before - lead)
                                         + reduced.shape[lead:] + (1,
                                                                   ) * (rank - before - len(free))))
    return _joined(parts, end)


def _convolution(eqn: JaxprEqn, marks: Marks, end: End, numbers: Numbers) -> np.ndarray | None:
    """A convolution depends on all spatial positions and on the channels of its group."""
    if eqn.params["batch_group_count"] != 1:
        return None
    spec, groups, parts = eqn.params["dimension_numbers"], eqn.params["feature_group_count"], []
    shape = [1] * len(spec.out_spec)
    if marks[0] is not None:
        reduced = end.join.reduce(np.transpose(marks[0], spec.lhs_spec),
                                  tuple(range(2, len(shape))),
                                  initial=end.blank)
        if reduced.shape[1] > 1:
            reduced = end.join.reduce(reduced.reshape(len(reduced), groups, -1), 2,
                                      initial=end.blank)
            reduced = np.repeat(reduced, _shape(eqn.outvars[0])[spec.out_spec[1]] // groups, 1)
        parts.append(np.transpose(reduced.reshape(*reduced.shape, *shape[2:]),
                                  np.argsort(spec.out_spec)))
    if marks[1] is not None:
        reduced = end.join.reduce(np.transpose(marks[1], spec.rhs_spec),
                                  tuple(range(1, len(shape))),
                                  initial=end.blank)
        parts.append(np.transpose(reduced.reshape(1, -1, *shape[2:]), np.argsort(spec.out_spec)))
    return _joined(parts, end)


_RULES: dict[str, Callable] = {
    "broadcast": lambda eqn, marks, *_: marks[0].reshape(
        (1,) * len(eqn.params["sizes"]) + marks[0].shape),
    "broadcast_in_dim": _broadcast, "conv_general_dilated": _convolution,
    "dot_general": _dot_general, "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update, "gather": _gather, "reduce_precision": _elementwise,
    "rev": lambda eqn, marks, *_: np.flip(marks[0], eqn.params["dimensions"]),
    "select_n": _select, 
    "transpose": lambda eqn, marks, *_: marks[0].transpose(eqn.params["permutation"]),
    "triangular_solve": _triangular_solve,
} | dict.fromkeys("cumlogsumexp cummax cummin cumprod cumsum".split(), _running) | dict.fromkeys(
    "scatter scatter_add scatter_max scatter_min scatter_mul scatter_sub".split(), _scatter)
_KINDS: dict[Kind, Callable] = {
    Kind.ALONG: _combined, Kind.ELEMENTWISE: _elementwise, Kind.JOIN: _moved_elements,
    Kind.LEADING: _leading, Kind.MOVE: _moved_elements, Kind.OPAQUE: _opaque,
    Kind.REDUCE: _combined,
    Kind.WINDOW: _window,
}
_READING = frozenset({_dynamic_slice, _gather})
_MOVING = _READING | {_moved_elements, _dynamic_update, _scatter}
