"""What becomes of a function that has met its data, and what its readings are made with."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from probml.dataset import arrays, kinds
from probml.errors import DataError
from probml.interface.functions.given.held import Held, Ragged, held, ragged
from probml.interface.functions.readings import Reading
from probml.interface.functions.survey import Survey
from probml.language.language import Bound
from probml.language.settings import freeze
from probml.structure.structure import Structure


class Met(NamedTuple):
    """A model as everything below reads it, its data in its names, why it is read so, in words
    (None: as it is written), and where its params begin."""

    model: Bound
    data: Any
    why: str | None = None
    begin: Mapping[str, Any] = MappingProxyType({})


def named(own: str, shown: Survey) -> str:
    """The name of an argument as an input: no site's."""
    return f"{own} (argument)" if own in shown.sites or own in shown.computed else own


def bound(model: Bound, reading: Reading, values: Mapping[str, Any],
           without: Mapping[str, Any]) -> Bound:
    """The model by a reading, some arguments bound."""
    settings = {name: value for name, value in model.settings if name not in without}
    settings |= {name: freeze(list(value) if isinstance(value, Ragged) else value, name)
                 for name, value in values.items()}
    return type(model)(reading, tuple(settings.items()))


def traced(model: Bound, data: Mapping[str, Any]) -> Structure:
    raws = {name: arrays.as_raw(f"the input '{name}'", data[name], True) for name in model.inputs}
    return kinds.settled(model, raws, {}, {name: (raw.values.shape[1:], raw.values.dtype.kind)
                                           for name, raw in raws.items()})


def value_of(value: Any) -> Any:
    """What a run of the function is given: numbers as an array, or as a list of arrays of
    different lengths, text and categories as codes in the order in which rows have them, unseen
    ones NaN, all else as it is."""
    if value is None or isinstance(value, str | bool | Mapping) or callable(value):
        return value
    if (uneven := ragged(value)) is not None:
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
        if raw.labels is None:
            return held(raw.values)
        gone = raw.values < 0
        if gone.any():
            return held(np.where(gone, np.nan, raw.values))
        codes = held(raw.values.astype(int))
        if isinstance(codes, Held):
            codes.labels, codes.categorical = raw.labels, raw.categorical
        return codes
    # an array of its own: what is observed is told from what else holds the same numbers
    return held(array) if array.ndim else array.item()
