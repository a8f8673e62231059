"""Columns of Arrow as pandas columns or NumPy arrays: decimals are floats, lists of numbers of one
length are an array, other lists are sequences."""

from typing import Any

import numpy as np


def from_arrow(column: Any) -> Any:
    """An Arrow array, chunked or not, as an array (n, length, ...) if it holds lists of one length,
    NaN where a row has none; else as NumPy or pandas."""
    import pyarrow as pa
    import pyarrow.types as kinds

    kind = column.type
    if is_list(kind) and _inner(kind) is not None:
        found = _stacked(_single_chunk(column))
        if found is not None:
            return found
    if kinds.is_decimal(kind):
        column = column.cast(pa.float64())
    if kinds.is_floating(column.type) and not column.null_count:
        return column.to_numpy()  # faster than a Series
    return column.to_pandas()


def sequences(column: object) -> list[np.ndarray]:
    """Lists as arrays, (steps, ...) each; a row without a list has one missing step."""
    import pyarrow.compute as pc

    lists = _single_chunk(column)
    flat = lists.flatten()
    steps = _stacked(flat) if _inner(flat.type) is not None else flat.to_pandas().to_numpy(object)
    if steps is None:  # vectors of different widths, which `ragged.padded` refuses
        steps = flat.to_pandas().to_numpy()
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
    found = np.split(steps, np.cumsum(lengths)[:-1])
    if not lists.null_count:
        return found
    nothing = np.full((1, *steps.shape[1:]), None if steps.dtype.hasobject else np.nan)
    seen = np.asarray(lists.is_valid())
    return [own if there else nothing for own, there in zip(found, seen, strict=True)]


def uneven(column: object) -> bool:
    """Whether lists have different lengths."""
    import pyarrow.compute as pc

    return pc.count_distinct(pc.list_value_length(_single_chunk(column))).as_py() > 1


def _single_chunk(column: Any) -> Any:
    """A column as one chunk."""
    if not hasattr(column, "num_chunks"):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def holds_lists(column: object) -> bool:
    """Whether it is a column of Arrow with lists."""
    return (type(column).__module__.partition(".")[0] == "pyarrow" and hasattr(column, "type")
            and is_list(column.type))


def is_list(kind: object) -> bool:
    """Whether values of an Arrow type are lists."""
    import pyarrow.types as kinds

    return kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)


def _inner(kind: Any) -> Any:
    """The type of the numbers in lists, or in lists of lists; None if they hold anything else."""
    import pyarrow.types as kinds

    while is_list(kind):
        kind = kind.value_type
    return kind if kinds.is_integer(kind) or kinds.is_floating(kind) else None


def _stacked(lists: Any) -> np.ndarray | None:
    """Lists of one length as an array; None if their lengths differ."""
    import pyarrow.compute as pc

    if not is_list(lists.type):
        return lists.to_numpy(zero_copy_only=False)
    lengths = pc.unique(pc.list_value_length(lists).drop_null())
    if len(lengths) != 1:
        return None
    flat = _stacked(lists.flatten())  # of the rows that have a list
    if flat is None:
        return None
    flat = flat.reshape(-1, lengths[0].as_py(), *flat.shape[1:])
    if not lists.null_count:
        return flat
    out = np.full((len(lists), *flat.shape[1:]), np.nan, np.result_type(flat.dtype, np.float32))
    out[np.asarray(lists.is_valid())] = flat
    return out
