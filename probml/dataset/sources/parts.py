"""The data of a model from a source of rows: a first pass, in which every row is checked and a
profile is made, and a reader for all further passes."""

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import replace
from types import BuiltinFunctionType
from typing import Any

import jax
import numpy as np

from probml.dataset import frames, tables
from probml.dataset.arrays import as_raw
from probml.dataset.coding import indices as coding
from probml.dataset.dataset import Data, Profile, Survey
from probml.dataset.measures import with_measures
from probml.dataset.ragged import along_time, of_table
from probml.dataset.read import expected_of, read, refuse_some_labels
from probml.dataset.source import Batches, Part, Source, Weighed, named, naming, parts_of, without
from probml.dataset.sources.arrow import ArrowRows, ScannedRows
from probml.dataset.sources.profile import (
    lengthened,
    measured,
    merged,
    profile_of,
    trim_sample,
    under,
)
from probml.errors import MARK_ROWS, DataError, Refusal, counted, present, type_of
from probml.language.language import Bound
from probml.numerics.process.shared_changes import assigned
from probml.typing import ArrayLike, DataLike

CHANGED = "the data source returned other batches than when it was first read"
SLACK = 2  # times the size of the sample: rows that the first pass keeps before it draws again
# called with the number of rows that the first pass has read so far
_REPORT: ContextVar[Callable[[int], object]] = ContextVar("report", default=lambda rows: None)


def source_of(data: DataLike) -> Source | None:
    """A user's data as a source, if they are one; else None.

    Raises:
        DataError: data are an iterator, which can be read only once.
    """
    if isinstance(data, Source):
        return data
    arrow = type(data).__module__ == "pyarrow._dataset"
    if arrow and hasattr(data, "get_fragments"):
        return ArrowRows(data)
    if arrow and hasattr(data, "scan_batches"):
        return ScannedRows(data)
    if hasattr(data, "__next__"):
        raise DataError(f"the data are {type_of(data)}, which can be read only once, but a "
                        "fit reads the rows several times. Pass a function that returns a new one, "
                        "model.fit(lambda: batches(...))")
    is_function = callable(data) and not isinstance(data, type | BuiltinFunctionType)
    return Batches(data) if is_function else None


def reporting_progress(report: Callable[[int], object]) -> AbstractContextManager[None]:
    """A context in which a first pass calls report(number of rows read so far)."""
    return assigned(_REPORT, report)


def open_data(model: Bound, data: object, weights: object = None) -> Data:
    """A user's data, checked against a model: a table, or a sample of a source with its profile.

    Args:
        weights: one per row, (n,), or the name of a column, the only choice for a source.

    Raises:
        DataError: see read.read; for a source with the part, or because parts differ.
        Refusal: the model is one joint density, which cannot be fitted to a source.
    """
    data, weights = weighed(data, weights)
    source = source_of(data)
    if source is None:
        checked = refuse_some_labels(read(model, data)).trimmed()
        return with_measures(checked._replace(
            weights=tables.read_weights(weights, checked.table.rows)))
    if weights is not None:
        raise DataError(f"model '{model.name}': the data are read in batches, so weights must be "
                        f"the name of a column of the data, weights='...'")
    profile = profile_source(model, source)
    return sampled(Survey(source, profile, profile.names, profile.sizes))


def weighed(data: object, weights: object) -> tuple[DataLike, ArrayLike | None]:
    """Data and weights, weights that name a column replaced by that column, for a source in each
    part. A table of Dask is unchanged: its workers do that."""
    if not isinstance(weights, str) or frames.is_far(data):
        if weights is not None:
            frames.check_order(data, weights)
        return data, weights
    source = source_of(data)
    if source is not None:
        return (Weighed(source, weights), None)
    return without(frames.as_table(data), weights)


def profile_source(model: Bound, source: Source, first: int = 0) -> Profile:
    """The profile of all batches of a source, whose rows are numbered from `first` on."""
    if model.is_joint:
        raise Refusal(f"model '{model.name}' does not mark the independent rows, so it cannot be "
                      f"fitted to data that are read in batches. {MARK_ROWS}, or pass all data in "
                      "memory")
    profile: Profile | None = None
    for part in parts_of(source):
        with naming(part):
            data = measured(_weighed(read(model, part.rows), part))
            added = profile_of(data, part.called, first + (profile.rows if profile else 0), profile)
            added = replace(added, columns=frames.columns_of(part.rows))
            profile = added if profile is None else merged(profile, added, SLACK)
        _REPORT.get()(profile.rows)
    return trim_sample(present(profile))


def _weighed(data: Data, part: Part) -> Data:
    """The data of a part with its weights."""
    return data._replace(weights=tables.read_weights(part.weights, data.table.rows, False))


def sampled(survey: Survey) -> Data:
    """The sample of a profile as data, with the source they come from."""
    profile = survey.profile
    if not profile.weight > 0:
        raise DataError("all weights are zero. Give at least one row a weight above 0.")
    return with_measures(refuse_some_labels(
        under(profile.sample, profile.pattern, profile.means)._replace(survey=survey)))


class Reader:
    """Reads the rows of a source, any number of passes. It skips checks of the first pass, and does
    not call JAX, so that it can run in a thread beside compiled programs.

    Args:
        data: of a source, see `open_data`.
    """

    def __init__(self, data: Data):
        self.data, self.survey = data, present(data.survey)
        self.profile, self.means = self.survey.profile, self.survey.profile.means
        self._known: dict[int | None, dict[str, tables.Expected]] = {}
        self._sums: dict[str, int] = {}  # part → checksum of its values

    def batches(self) -> Iterator[Data]:
        """One pass over the rows, batch by batch.

        Raises:
            DataError: the source has other parts or values than in the first pass.
        """
        parts, first = named(self.survey.source.parts()), 0
        n_left = len(self.survey.names)
        for name, rows in zip(self.survey.names, self.survey.sizes, strict=True):
            part = next(parts, None)
            if part is None or part.called != name:
                got = ("no more batches. Every call of the source must start again from the first "
                       "batch" if part is None
                       else f"batch '{part.called}'")
                raise DataError(f"{CHANGED}: expected batch '{name}' of {counted(rows, 'row')}, "
                                f"got {got}. Do not change the source during a fit, and fit again")
            batch = self._read(part)
            if batch.table.rows != rows:
                raise DataError(f"{CHANGED}: batch '{name}' had {counted(rows, 'row')} before and "
                                f"has {batch.table.rows} now. Do not change the source during a "
                                "fit, and fit again")
            self._check_unchanged(f"batch '{name}'", _sum_of_bits(batch))
            del part  # frees the memory before the next part is read
            n_left -= 1
            if not n_left and (extra := next(parts, None)) is not None:
                raise DataError(f"{CHANGED}: batch '{name}' was the last one before, and batch "
                                f"'{extra.called}' follows it now. Do not change the source during "
                                f"a fit, and fit again")
            yield self._chosen(batch, first)
            first += rows
            del batch

    def mixed(self, random: np.random.Generator) -> Iterator[Data]:
        """One pass over the rows in random order, see Source.mixed."""
        n_rows, rows, total = sum(self.survey.sizes), 0, 0
        for part in named(self.survey.source.mixed(random)):
            batch, first = self._read(part), self._first(part)
            rows += batch.table.rows
            total += _sum_of_bits(batch)
            del part
            yield self._chosen(batch, first)
            del batch
        if rows != n_rows:
            raise DataError(f"{CHANGED}: it had {counted(n_rows, 'row')} before and has {rows} "
                            "now. Do not change the source during a fit, and fit again")
        self._check_unchanged("all batches together", total % 2**64)

    def _check_unchanged(self, which: str, total: int) -> None:
        if self._sums.setdefault(which, total) != total:
            raise DataError("the data source returned other values than when it was first read "
                            f"({which}). A fit reads the rows several times and needs the same "
                            "values each time. Fix the seed if the rows are random or augmented. "
                            "Fit a copy if another program writes to the rows")

    def _chosen(self, batch: Data, first: int) -> Data:
        """The chosen rows of a part, whose first row has the number `first` among all."""
        chosen = self.survey.chosen
        return batch if chosen is None else batch.taken(chosen.indices(first, batch.table.rows))

    def _first(self, part: Part) -> int:
        """The number of the first row of a part of `mixed` among all rows.

        Raises:
            Refusal: the source does not name such a part as `parts` does.
        """
        if self.survey.chosen is None:
            return 0
        if part.name not in self._first_rows:
            raise Refusal("held_out= identifies the held-out rows by the name of their batch and "
                          "their number in this batch. The method `mixed` of the source returned a "
                          f"batch named '{part.name}', but its method `parts` returned no batch of "
                          "this name. Let `mixed` use the names of `parts`, with Part.first as the "
                          "number of the first row, or omit held_out=")
        return self._first_rows[part.name] + part.first

    @functools.cached_property
    def _first_rows(self) -> dict[str, int]:
        """The number of the first row of each batch among all rows."""
        names, sizes = self.survey.names, self.survey.sizes
        return dict(zip(names, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))

    def _read(self, part: Part) -> Data:
        """The rows of a part, coded, padded and with missing cells as all rows of the source."""
        model, template, rows, steps = self.data.model, self.data.table, part.rows, None
        with naming(part):
            if self.data.steps is None:
                rows = frames.as_table(rows)
            else:
                rows, steps, _ = along_time(self.data.structure, of_table(rows), None)
            table = tables.read(rows, self._expected(steps), model.inputs, self.data.labels,
                                model=model.name, has_fit=True, codes=self._codes(rows))
            part_data = self.data._replace(table=table, survey=None, steps=steps, lengths=None)
            part_data = lengthened(measured(_weighed(part_data, part)), self.data.steps)
            table = part_data.table
        inputs = {name: values.astype(template.inputs[name].dtype, copy=False)
                  for name, values in table.inputs.items()}
        table = replace(table, inputs=inputs, values=template.values, labels=template.labels)
        return under(part_data._replace(table=table), self.profile.pattern, self.means)

    def _codes(self, rows: DataLike) -> dict[str, np.ndarray]:
        """The codes of index inputs, if any have labels."""
        structure, labels = self.data.structure, self.data.labels
        if not any(name in labels for name in structure.indexed):
            return {}
        raws = {name: as_raw(f"the input '{name}'", rows[name], True)
                for name in self.data.model.inputs}
        return coding.read(structure, raws, labels, {}, coding.REFUSE, True).values

    def _expected(self, steps: int | None) -> dict[str, tables.Expected]:
        """What is expected of each site with this number of steps; supports are not checked."""
        if steps not in self._known:
            structure = self.data.structure
            self._known[steps] = {
                site.name: replace(expected_of(site, structure, steps), valid=None)
                for site in structure.sites.values() if not site.factor
            }
        return self._known[steps]


def _sum_of_bits(data: Data) -> int:
    """A checksum of the values of some rows: the sum of their bits as integers, modulo 2⁶⁴. It does
    not depend on the order of rows or on the parts."""
    table = data.table
    arrays = [*table.inputs.values(), *([] if data.weights is None else [data.weights])]
    for column in table.columns.values():
        arrays += [array for array in (column.values, column.observed, column.likelihood)
                   if array is not None]
    return sum(int(np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
                   .sum(dtype=np.uint64)) for array in arrays) % 2**64


def by_parts(verb: Callable) -> Callable:
    """Decorates a method whose first argument is data and whose result are arrays with rows: for a
    source it is called part by part, and the results are concatenated."""

    @functools.wraps(verb)
    def ask(self: Any, data: object, *args: object, **named: object) -> Any:
        source = source_of(data)
        if source is None:
            return verb(self, data, *args, **named)
        answers = []
        for part in parts_of(source):
            with naming(part):
                answers.append(verb(self, part.rows, *args, **named))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *answers)

    return ask


def as_given(verb: Callable) -> Callable:
    """Decorates a method whose first argument is data and whose result are columns of their rows:
    for a table the result is the same kind of table."""

    @functools.wraps(verb)
    def ask(self: Any, data: object, *args: object, **named: object) -> Any:
        answer = verb(self, data, *args, **named)
        return answer if source_of(data) is not None else frames.like(data, answer)

    return ask
