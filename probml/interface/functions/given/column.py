"""An argument of one value a row, where the function asks for a number of the whole column.

`int(np.max(labels)) + 1` and `len(np.unique(labels))` are facts of the data, not of a row: they
were settled when the function met them, and stay.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from probml.interface.functions.given.given_arrays import GivenArray

MOST_DISTINCT = 4096  # different values of a column that are kept beside it


def distinct_values(columns: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name → the values of a column of whole numbers, in order, where they are not too many."""
    found = {name: tuple(np.unique(value).tolist()) for name, value in columns.items()
             if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size}
    return {name: values for name, values in found.items() if len(values) <= MOST_DISTINCT}


def with_known_values(value: object, every: tuple[Any, ...]) -> Any:
    """The values of some rows, that know which values all of them have, in order: asked by NumPy
    for these, or for the least or greatest, they answer with what is settled; all else is as it is
    of what `value` is, a tracer or an array."""
    if isinstance(value, jax.core.Tracer):
        value.__class__ = _kind(value.__class__, every)  # it is still the same tracer to JAX
        return value
    return np.asarray(value).view(_kind(GivenArray, every))


@functools.cache
def _kind(own: Any, every: tuple[Any, ...]) -> type:
    """A class of arrays beside `own`, with the answers for some values."""
    values = np.array(every)

    class Told(own):
        __slots__ = ()

        def __array_function__(self, function: Any, types: object, args: Any, kwargs: Any) -> Any:
            first, *rest = args or (None,)
            if first is self and not rest:
                if function is np.unique and not kwargs:
                    return values.copy()
                if function in (np.max, np.amax, np.min, np.amin) and not kwargs:
                    return values[-1 if function in (np.max, np.amax) else 0]
            if own is GivenArray:
                return super().__array_function__(function, types, args, kwargs)
            return function.__wrapped__(*args, **kwargs)

        def min(self, axis: object = None, out: object = None, **more: object) -> Any:
            return values[0] if axis is None else super().min(axis, out, **more)

        def max(self, axis: object = None, out: object = None, **more: object) -> Any:
            return values[-1] if axis is None else super().max(axis, out, **more)

    return Told
