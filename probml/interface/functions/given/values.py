"""What a run of a function of the user's own is given of each argument.

An argument of one value a row, where the function asks for a number of the whole column.

`int(np.max(labels)) + 1` and `len(np.unique(labels))` are facts of the data, not of a row: they
were settled when the function met them, and stay.

An array of the user's as a function is given it: NumPy's, so that its numbers are concrete, and
JAX's where NumPy has no answer.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset import arrays
from probml.dataset.coding import labels as naming
from probml.errors import DataError
from probml.language.settings import fields_of
from probml.typing import ArrayLike, SiteValues


class GivenArray(np.ndarray):
    """A NumPy array that may be indexed by what JAX traces, and multiplied with it.

    `len(y)`, `int(np.max(groups))` and `if y.mean() > 0` are asked of NumPy; `y[t]` in a loop's
    body, `x.dot(beta)` and `y.at[0].set(1)` are JAX's, as of the arrays that NumPyro's users pass.

    Attributes:
        labels: of an array that was text, what its codes stand for; a part of it has none.
        categorical: where these come from.
    """

    labels: tuple = ()
    categorical = arrays.Categories.FOUND

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, jax.core.Tracer) for part in parts):
            return jnp.asarray(self)[key]
        return super().__getitem__(key)

    def dot(self, other: ArrayLike, out: Any = None) -> ArrayLike:
        return (jnp.dot(jnp.asarray(self), other) if isinstance(other, jax.Array)
                else super().dot(other, out))

    @property
    def at(self) -> Any:
        return jnp.asarray(self).at


class Ragged(list):
    """Arrays of different lengths, as a list of the user's: a list, whatever else asks for arrays.
    """

    ndim, shape = 0, ()


def as_given(value: object) -> ArrayLike:
    """An array as a function is given it: a view that shares its numbers, and such views of a list
    of arrays; anything else unchanged."""
    if fields_of(value) is None and isinstance(value, list | tuple) and all(
        isinstance(part, np.ndarray) for part in value
    ):
        return type(value)(as_given(part) for part in value)
    return value.view(GivenArray) if isinstance(value, np.ndarray) and value.ndim else value


def as_ragged(value: object) -> Ragged | None:
    """Sequences of numbers of different lengths as a list of arrays; None: it is nothing such."""
    if not isinstance(value, list | tuple) and not (
        isinstance(value, np.ndarray) and value.dtype.hasobject and value.ndim == 1
    ):
        return None
    try:
        parts = [np.asarray(part) for part in value]
    except ValueError:
        return None
    is_numeric = len(parts) > 1 and all(part.ndim and part.dtype.kind in "biuf" for part in parts)
    return Ragged(map(as_given,
                      parts)) if is_numeric and len({part.shape for part in parts}) > 1 else None


MOST_DISTINCT = 4096  # different values of a column that are kept beside it


def distinct_values(columns: SiteValues) -> dict[str, tuple[int, ...]]:
    """Name → the values of a column of whole numbers, in order, where they are not too many."""
    distinct = {name: tuple(np.unique(value).tolist()) for name, value in columns.items()
                if isinstance(value, np.ndarray) and value.dtype.kind in "iuf" and value.size
                and (np.isfinite(value) & (value == np.floor(value))).all()}
    return {name: values for name, values in distinct.items() if len(values) <= MOST_DISTINCT}


def with_known_values(value: object, distinct: tuple[object, ...]) -> ArrayLike:
    """The values of some rows, that know which values all of them have, in order: asked by NumPy
    for these, or for the least or greatest, they answer with what is settled; all else is as it is
    of what `value` is, a tracer or an array."""
    if isinstance(value, jax.core.Tracer):
        value.__class__ = _kind(value.__class__, distinct)  # it is still the same tracer to JAX
        return value
    return np.asarray(value).view(_kind(GivenArray, distinct))


@functools.cache
def _kind(base: Any, distinct: tuple[object, ...]) -> type:
    """A class of arrays beside `base`, with the answers for some values."""
    values = np.array(distinct)

    class Told(base):
        __slots__ = ()

        def __array_function__(self, function: Any, types: object, args: Any,
                               kwargs: Any) -> Any:
            first, *others = args or (None,)
            if first is self and not others:
                if function is np.unique and not kwargs:
                    return values.copy()
                if function in (np.max, np.amax, np.min, np.amin) and not kwargs:
                    return values[-1 if function in (np.max, np.amax) else 0]
            if base is GivenArray:
                return super().__array_function__(function, types, args, kwargs)
            return function.__wrapped__(*args, **kwargs)

        def min(self, axis: object = None, out: object = None, **more: object) -> ArrayLike:
            return values[0] if axis is None else super().min(axis, out, **more)

        def max(self, axis: object = None, out: object = None, **more: object) -> ArrayLike:
            return values[-1] if axis is None else super().max(axis, out, **more)

    return Told


def _is_whole(value: object) -> bool:
    """Whether an argument is no array and no sequence of parts: text, a mapping, a dataclass, …"""
    return (value is None or isinstance(value, str | bool | Mapping) or callable(value)
            or fields_of(value) is not None)


def value_of(value: object, name: str = "") -> ArrayLike:
    """Numbers as an array, or as a list of arrays of different lengths, text and categories as
    codes in the order in which rows have them (dataset/coding/labels.py), unseen ones NaN, all else
    as it is.

    Args:
        name: of the argument, for messages.

    Raises:
        DataError: text beside numbers.
    """
    if _is_whole(value):
        return value
    if (uneven := as_ragged(value)) is not None:
        return uneven
    try:
        array = np.asarray(value)
    except ValueError:  # sequences of different lengths and of no numbers, which rows take
        return value
    if array.dtype.kind in "OUST":
        try:
            raw = arrays.as_raw("an argument", value, False)
        except DataError:  # of no numbers and no text
            return value
        return as_given(raw.values) if raw.labels is None else _codes(raw, name)
    # an array of its own: what is observed is told from what else holds the same numbers
    return as_given(array) if array.ndim else array.item()


def codes_of(value: object) -> ArrayLike:
    """As `value_of`, where the function turns out to want codes: categories that are numbers and
    truths as codes that keep their labels, floats that are whole as whole numbers; None: it has
    none, or none but those of `value_of`.

    A function indexes by what rows() would take for an index: see dataset/kinds.py.
    """
    if _is_whole(value):
        return None
    try:
        raw = arrays.as_raw("an argument", value, False)
    except DataError:
        return None
    values = raw.values
    if raw.labels is not None:
        is_number = all(isinstance(label, arrays.NUMBERS) for label in raw.labels)
        return _codes(raw) if raw.categorical and is_number and (values >= 0).all() else None
    if values.dtype.kind == "b":
        return _codes(arrays.Raw(values.astype(np.int32), (False, True),
                                 arrays.Categories.LISTED))
    is_whole = (values.ndim and values.size and values.dtype.kind == "f"
                and bool((values == np.floor(values)).all()) and np.abs(values).max() < 2**31)
    return as_given(values.astype(int)) if is_whole else None


def _codes(raw: arrays.Raw, name: str = "") -> ArrayLike:
    """Codes that keep their labels, floats where some are unseen."""
    naming.unmixed(f"'{name}'" if name else "an argument", raw)
    unseen = raw.values < 0
    if unseen.any():
        return as_given(np.where(unseen, np.nan, raw.values))
    codes = as_given(raw.values.astype(int))
    if isinstance(codes, GivenArray):
        codes.labels, codes.categorical = raw.labels or (), raw.categorical
    return codes
