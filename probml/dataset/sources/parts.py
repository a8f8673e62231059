"""A source of rows under a model: one look at all its parts, in which every row is checked, then
pass after pass of which each reads, codes and cuts them anew."""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import BuiltinFunctionType
from typing import Any

import jax
import numpy as np

from probml.dataset import frames, tables
from probml.dataset.dataset import Data, Survey
from probml.dataset.read import expected_of, read
from probml.dataset.source import Batches, Source, naming, parts_of
from probml.dataset.sources.arrow import ArrowRows, is_dataset
from probml.dataset.sources.profile import Profile, under
from probml.errors import DataError, Refusal
from probml.language.language import Bound


def source_of(data: Any) -> Source | None:
    """The source that a user gave in the place of data; None: it is none.

    Raises:
        DataError: an iterator, which could be passed over once.
    """
    if isinstance(data, Source):
        return data
    if is_dataset(data):
        return ArrowRows(data)
    if hasattr(data, "__next__"):
        raise DataError(f"data is a {type(data).__name__}, which can be read once, and fits pass "
                        f"over rows many times: pass a function that makes a new one, "
                        f"model.fit(lambda: batches(...))")
    plain = callable(data) and not isinstance(data, type | BuiltinFunctionType)
    return Batches(data) if plain else None


def opened(model: Bound, data: Any) -> Data:
    """A user's data, checked against a model: a table whole, of a source the profile and a sample.

    Raises:
        DataError: see read.read; of a source also the part, and how parts differ.
        Refusal: a source of sequences, of labels of an index, or of one density of everything.
    """
    source = source_of(data)
    if source is None:
        return read(model, data).trimmed()
    profile = looked(model, source)
    return sampled(Survey(source, profile, profile.names, profile.sizes))


def looked(model: Bound, source: Source, first: int = 0) -> Profile:
    """The profile of all parts of a source; `first` rows of others stand before them."""
    profile: Profile | None = None
    for part in parts_of(source):
        with naming(part):
            held = read(model, part.rows)
            _refuse(held)
            found = Profile.of(held, part.called, first + (profile.rows if profile else 0))
            profile = found if profile is None else profile.merged(found)
    if profile is None:
        raise DataError(f"model '{model.name}': the source has no parts: expected at least one")
    return profile


def sampled(survey: Survey) -> Data:
    """The rows that stand for all."""
    profile = survey.profile
    means = {name: found.mean for name, found in profile.moments.items()}
    return under(profile.sample, profile.pattern, means)._replace(survey=survey)


def _refuse(held: Data) -> None:
    model, structure = held.model, held.structure
    where = f"model '{model.name}' cannot be fitted to rows that are read in parts"
    if structure.chains or model.whole:
        why = (f"'{structure.chains[0]}' runs along time" if structure.chains
               else "it is one density of everything")
        raise Refusal(f"{where}: {why}. Pass all rows in memory")
    labelled = next((name for name in held.table.labels if name in held.table.inputs), None)
    if labelled is not None:
        raise Refusal(f"{where}: the index '{labelled}' has labels, which each part would number "
                      f"for itself. Pass its codes, whole numbers from 0 on")


class Reader:
    """The rows of a source, pass after pass, in pieces of at most so many rows; what a fit has made
    sure of is not checked again, and nothing in it is JAX's: it works beside running programs.

    Args:
        data: of a source, see `opened`. size: rows of a piece.
        means: site → (*cells) what unseen cells hold.
    """

    def __init__(self, data: Data, size: int, means: dict[str, np.ndarray]):
        assert data.survey is not None
        self.data, self.size, self.means = data, size, means
        self.survey, self.profile = data.survey, data.survey.profile
        structure = data.structure
        self.expected = {site.name: replace(expected_of(site, structure, None), valid=None)
                         for site in structure.sites.values() if not site.factor}

    @property
    def count(self) -> int:
        """How many pieces a pass has."""
        return self.counted(self.survey.sizes)

    def counted(self, sizes: Iterable[int]) -> int:
        """How many pieces parts of these sizes have."""
        return sum(-(-rows // self.size) for rows in sizes)

    def pieces(self) -> Iterator[Data]:
        """A pass: every piece in its place; the last of a part may be short."""
        parts = parts_of(self.survey.source)
        for name, rows in zip(self.survey.names, self.survey.sizes, strict=True):
            found = next(parts, None)
            if found is None or found.called != name:
                got = ("no more parts, though every call begins anew" if found is None
                       else f"part '{found.called}'")
                raise DataError(f"the source has changed since it was first read: expected part "
                                f"'{name}' of {rows} rows, got {got}")
            with naming(found):
                whole = self._read(found.rows)
            if whole.table.rows != rows:
                raise DataError(f"the source has changed since it was first read: part '{name}' "
                                f"had {rows} rows, and now has {whole.table.rows}")
            for low in range(0, rows, self.size):
                yield whole.taken(slice(low, min(low + self.size, rows)))
            del found, whole  # before another part comes

    def _read(self, part: Any) -> Data:
        model, like = self.data.model, self.data.table
        table = tables.read(part, self.expected, model.inputs, self.data.labels, model=model.name,
                            asked=True)
        inputs = {name: values.astype(like.inputs[name].dtype, copy=False)
                  for name, values in table.inputs.items()}
        table = replace(table, inputs=inputs, values=like.values, labels=like.labels)
        return under(self.data._replace(table=table, survey=None), self.profile.pattern,
                     self.means)


def by_parts(verb: Callable) -> Callable:
    """A question whose first argument is data, and whose answer is arrays of their rows, also of a
    source: part by part, the answers one behind the other."""

    @functools.wraps(verb)
    def ask(self: Any, data: Any, *args: Any, **named: Any) -> Any:
        source = source_of(data)
        if source is None:
            return verb(self, data, *args, **named)
        return _stacked(source, lambda part: verb(self, part, *args, **named))

    return ask


def as_given(verb: Callable) -> Callable:
    """A question whose first argument is data, and whose answer is columns of their rows: of a
    table the same kind of table."""

    @functools.wraps(verb)
    def ask(self: Any, data: Any, *args: Any, **named: Any) -> Any:
        found = verb(self, data, *args, **named)
        return found if source_of(data) is not None else frames.like(data, found)

    return ask


def _stacked(source: Source, ask: Callable) -> Any:
    found = []
    for part in parts_of(source):
        with naming(part):
            found.append(ask(part.rows))
    if not found:
        raise DataError("the source has no parts: expected at least one")
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *found)
