"""What a run of a function of the user's own is given of each argument."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from probml.dataset import arrays
from probml.dataset.coding import labels as naming
from probml.errors import DataError
from probml.interface.functions.given.given_arrays import GivenArray, as_given, as_ragged


def value_of(value: object, name: str = "") -> Any:
    """Numbers as an array, or as a list of arrays of different lengths, text and categories as
    codes in the order in which rows have them (dataset/coding/labels.py), unseen ones NaN, all else
    as it is.

    Args:
        name: of the argument, for messages.

    Raises:
        DataError: text beside numbers.
    """
    if value is None or isinstance(value, str | bool | Mapping) or callable(value):
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


def codes_of(value: object) -> Any:
    """The same where the function turns out to want codes: categories that are numbers and truths
    as codes that keep their labels, floats that are whole as whole numbers; None: it has none, or
    none but those of `value_of`.

    A function indexes by what rows() would take for an index: see dataset/kinds.py.
    """
    if value is None or isinstance(value, str | bool | Mapping) or callable(value):
        return None
    try:
        raw = arrays.as_raw("an argument", value, False)
    except DataError:
        return None
    values = raw.values
    if raw.labels is not None:
        number = all(isinstance(label, arrays.NUMBERS) for label in raw.labels)
        return _codes(raw) if raw.categorical and number and (values >= 0).all() else None
    if values.dtype.kind == "b":
        return _codes(arrays.Raw(values.astype(np.int32), (False, True),
                                 arrays.Categories.LISTED))
    whole = (values.ndim and values.size and values.dtype.kind == "f"
             and bool((values == np.floor(values)).all()) and np.abs(values).max() < 2**31)
    return as_given(values.astype(int)) if whole else None


def _codes(raw: arrays.Raw, name: str = "") -> Any:
    """Codes that keep their labels, floats where some are unseen."""
    naming.unmixed(f"'{name}'" if name else "an argument", raw)
    gone = raw.values < 0
    if gone.any():
        return as_given(np.where(gone, np.nan, raw.values))
    codes = as_given(raw.values.astype(int))
    if isinstance(codes, GivenArray):
        codes.labels, codes.categorical = raw.labels or (), raw.categorical
    return codes
