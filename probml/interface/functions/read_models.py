"""A function read together with its data, and how readings are made."""

from types import MappingProxyType
from typing import NamedTuple

from probml.dataset import arrays, kinds
from probml.interface.functions.given.values import Ragged
from probml.interface.functions.readings import Reading
from probml.interface.functions.survey import Survey
from probml.language.language import Bound
from probml.language.settings import freeze
from probml.structure.structure import Structure
from probml.typing import DataLike, SiteValues


class ReadModel(NamedTuple):
    """A model as it is read, its data by the names of its inputs and sites, why it is read so, in
    words (None: as it is written), and the initial values of its params."""

    model: Bound
    data: DataLike
    why: str | None = None
    begin: SiteValues = MappingProxyType({})


def input_name(own: str, shown: Survey) -> str:
    """The name of an argument as an input, which differs from the names of sites."""
    return f"{own} (argument)" if own in shown.sites or own in shown.computed else own


def bind(model: Bound, reading: Reading, values: SiteValues,
           without: SiteValues) -> Bound:
    """The model with a reading of its function, some arguments bound."""
    settings = {name: value for name, value in model.settings if name not in without}
    settings |= {name: freeze(list(value) if isinstance(value, Ragged) else value, name)
                 for name, value in values.items()}
    return type(model)(reading, tuple(settings.items()), model.interventions)


def trace_structure(model: Bound, data: SiteValues) -> Structure:
    raws = {name: arrays.as_raw(f"the input '{name}'", data[name], True) for name in model.inputs}
    return kinds.structure_for_inputs(model, raws, {},
                                      {name: (raw.values.shape[1:], raw.values.dtype.kind)
                                       for name, raw in raws.items()})
