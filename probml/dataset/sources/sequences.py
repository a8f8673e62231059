"""Sequences of a source: parts of different numbers of steps are padded to that of the longest, and
each row has its length."""

from dataclasses import replace

import numpy as np
from jax.typing import ArrayLike

from probml.dataset.dataset import Data
from probml.dataset.moments import Moments


def measured(data: Data) -> Data:
    """The same rows with the length of each, also where all have all steps."""
    if data.steps is None:
        return data
    data = data.trimmed()
    lengths = np.full(data.table.rows, data.steps) if data.lengths is None else data.lengths
    return data._replace(lengths=lengths, given=None)


def lengthened(data: Data, steps: int | None) -> Data:
    """The same rows, padded to `steps` steps."""
    if data.steps is None or steps is None or data.steps == steps:
        return data
    more, sites, columns = steps - data.steps, data.structure.sites, dict(data.table.columns)

    def padded(array: ArrayLike, axis: int, value: float) -> ArrayLike:
        if array is None:
            return None
        around = [(0, more if i == axis else 0) for i in range(array.ndim)]
        return np.pad(array, around, constant_values=value)

    for name, column in columns.items():
        time = sites[name].time
        if time is not None:
            columns[name] = replace(column, values=padded(column.values, 1 + time, 0),
                                    seen=padded(column.seen, 1 + time, True),
                                    likelihood=padded(column.likelihood, 1 + time, 1))
    inputs = {name: padded(array, 1, 0) if name in data.structure.timed else array
              for name, array in data.table.inputs.items()}
    return data._replace(table=replace(data.table, columns=columns, inputs=inputs), steps=steps)


def along_steps(data: Data, name: str, weights: np.ndarray | None) -> Moments:
    """The moments of a site along time, over rows and steps without padding."""
    time, column = data.structure.sites[name].time, data.table.columns[name]
    assert time is not None and data.steps is not None
    n, steps = data.table.rows, data.steps

    def flat(array: np.ndarray) -> np.ndarray:
        array = np.moveaxis(array, 1 + time, 1)
        return array.reshape(n * steps, *array.shape[2:])

    weight = np.ones(n) if weights is None else weights
    share = np.broadcast_to(weight[:, None], (n, steps))
    if data.lengths is not None:
        share = share * (np.arange(steps) < data.lengths[:, None])
    return Moments.of(column.mapped(flat),
                      None if (share == 1).all() else share.reshape(-1))
