"""Data of several processes, each with rows of its own. They exchange only their samples and
profiles, so that plans, labels, centres and starts are the same in all."""

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

import jax

from probml.dataset.dataset import Data, Profile, Survey
from probml.dataset.read import read
from probml.dataset.source import Part, Source
from probml.dataset.sources.parts import profile_source, sampled, source_of, weighed
from probml.dataset.sources.profile import merged
from probml.errors import DataError
from probml.language.language import Bound
from probml.numerics.outside.processes import gather_or_raise
from probml.structure.structure import Structure
from probml.typing import DataLike

ROW_BITS = 40  # a process numbers its rows from its index × 2^ROW_BITS on


class Own(Source):
    """The table of this process as a source of one part."""

    def __init__(self, table: DataLike, weights: object = None):
        self.table, self.weights = table, weights

    def parts(self) -> Iterator[Part]:
        name = f"the rows of process {jax.process_index()}"
        yield Part(name, self.table, weights=self.weights)


def open_data(model: Bound, data: object, weights: object = None) -> Data:
    """parts.open_data for the rows of all processes: the sample and the profile are the same in
    all, the source is that of this process. All processes must call it.

    Raises:
        DataError: as parts.open_data, in all processes if in any.
    """
    rank = jax.process_index()
    data, weights = weighed(data, weights)
    counts = gather_or_raise(lambda: None if source_of(data) is not None
                             else read(model, data).table.rows)
    known = [rows for rows in counts if rows is not None]
    # the same sample as of one process, if the numbers of rows are known before reading
    first = sum(known[:rank]) if len(known) == len(counts) else rank << ROW_BITS
    source = source_of(data) or Own(data, weights)
    structures: list[Structure] = []

    def look() -> tuple[Profile, dict[str, tuple]]:
        profile = profile_source(model, source, first)
        sample = profile.sample
        structures.append(sample.structure)
        # the model and the structure are the same in all processes, and are not sent
        bare = sample._replace(model=None, structure=None)  # type: ignore[arg-type]
        return replace(profile, sample=bare), sample.shapes

    gathered = gather_or_raise(look)
    for number, (_, shapes) in enumerate(gathered):
        if shapes != gathered[rank][1]:
            raise DataError(f"the inputs have the shapes and types {gathered[rank][1]} in process "
                            f"{rank}, but {shapes} in process {number}. Give all processes inputs "
                            f"of the same shapes and types")
    profiles = [replace(profile, sample=profile.sample._replace(model=model,
                                                                structure=structures[0]))
                for profile, _ in gathered]
    local = profiles[rank]
    survey = Survey(source, reduce(merged, profiles), local.names, local.sizes,
                    tuple(profile.sizes for profile in profiles), True)
    return sampled(survey)
