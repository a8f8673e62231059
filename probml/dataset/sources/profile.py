"""What is told of all rows by a first look at them: how many they are, what is seen of which site,
labels, where columns lie, and some rows themselves. Profiles of parts add up to that of the whole.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from probml.dataset import tables
from probml.dataset.coding import indices as coding
from probml.dataset.coding import labels as naming
from probml.dataset.dataset import Data, Profile
from probml.dataset.moments import Moments
from probml.dataset.sources.chosen import scrambled
from probml.dataset.sources.sequences import along_steps, lengthened
from probml.errors import DataError

KEPT = 2**16  # rows that stand for all: engines look there for a start
NUMBERS, LEAST = 2**23, 2**10  # numbers that these hold, but so many rows in any case
STRENGTH = ("seen", "part", "torn")  # of patterns: what holds of a part holds of the whole


def profile_of(data: Data, name: str = "", first: int = 0,
               before: Profile | None = None) -> Profile:
    """Of one part, as it was read; `first` rows stand before it in those of all parts.

    Args:
        before: of other parts, with which it will be merged: rows that their sample leaves no
            room for are not kept.
    """
    sites, rows, weights = data.structure.sites, data.table.rows, data.weights
    moments = {name: Moments.of(column, weights) if sites[name].time is None
               else along_steps(data, name, weights)
               for name, column in data.table.columns.items() if not sites[name].discrete}
    ranks = scrambled(np.arange(first, first + rows, dtype=np.uint64))
    labels = {name: naming.without_padding(own, _codes(data, name))
              for name, own in data.table.labels.items()}
    return Profile((name,), (rows,), data.pattern, labels, moments,
                   *_bottom_k_sample(data._replace(survey=None), ranks,
                                     None if before is None else _entry_rank(before)),
                   float(rows if weights is None else weights.sum()))


def _entry_rank(profile: Profile) -> np.uint64 | None:
    """The rank below which a row comes into the sample; None: there is room for any."""
    return profile.ranks.max() if len(profile.ranks) >= _most(profile.sample) else None


def trim_sample(profile: Profile) -> Profile:
    """The same profile, its sample reduced to the size that represents all rows."""
    sample, ranks = _bottom_k_sample(profile.sample, profile.ranks)
    return replace(profile, sample=sample, ranks=ranks)


def merged(profile: Profile, other: Profile, slack: int = 1) -> Profile:
    """Of both, the other's parts behind.

    Args:
        slack: rows are left out when there are more than so many times those that stand for
            all: to choose among them costs more than to keep some. See `trim_sample`.

    Raises:
        DataError: parts that cannot be read as one table, which site and why.
    """
    steps = max((own.sample.steps for own in (profile, other)
                 if own.sample.steps is not None), default=None)
    one, two = (lengthened(own.sample, steps) for own in (profile, other))
    _check_same_structure(one, two)
    labels = {site: _union(site, [own.labels[site] for own in (profile, other)
                                  if site in own.labels], _states(one, site))
              for site in {**profile.labels, **other.labels}}
    for site in labels:
        for own in (profile, other):
            if site not in own.labels and (site in own.pattern
                                           or site in own.sample.table.inputs):
                raise DataError(f"'{site}' has labels, {list(labels[site])}, in some batches "
                                f"and codes in others: use one of the two in all")
    pattern = {site: _weaker(site, profile.pattern.get(site), other.pattern.get(site))
               for site in {**profile.pattern, **other.pattern}}
    moments = {**profile.moments, **other.moments}
    for site in profile.moments.keys() & other.moments.keys():
        moments[site] = profile.moments[site].merged(other.moments[site])
    parts = [under(_recoded(sample, own.labels, labels), pattern)
             for sample, own in ((one, profile), (two, other))]
    whole = joined(parts)
    whole = whole._replace(table=replace(whole.table, labels={
        site: naming.filled(own, _states(whole, site) or 0) for site, own in labels.items()
    }))
    return Profile(profile.names + other.names, profile.sizes + other.sizes, pattern, labels,
                   moments,
                   *_bottom_k_sample(whole, np.concatenate([profile.ranks, other.ranks]),
                                     slack=slack),
                   profile.weight + other.weight)


def under(data: Data, pattern: Mapping[str, str], means: Mapping[str, Any] = {}) -> Data:
    """The same rows, their columns as in a larger table of that pattern: what is seen throughout
    here may be unseen elsewhere, and the other way round.

    Args:
        means: continuous site → what its unseen cells hold; of states and counts it is 0.
    """
    columns, sites, rows = {}, data.structure.sites, data.table.rows
    for name, state in pattern.items():
        site, column = sites[name], data.table.columns.get(name)
        shape = (rows, *site.along(data.steps))
        if column is None:
            values = np.zeros(shape, np.int32 if site.discrete else float)
            column = tables.Column(values, np.zeros(shape, bool))
            if state == "likelihood":
                column = replace(column, likelihood=np.ones((rows, site.states or 0)))
        elif state in ("part", "torn") and column.seen is None:
            column = replace(column, seen=np.ones(shape, bool))
        if column.seen is not None and (name in means or site.discrete):
            fill = np.asarray(means.get(name, 0)).astype(column.values.dtype)
            column = replace(column, values=np.where(column.seen, column.values, fill))
        columns[name] = replace(column, torn=state == "torn")
    return data._replace(table=replace(data.table, columns=columns))


def representative_sample(data: Data, weights: np.ndarray | None) -> tuple[Data, np.ndarray | None]:
    """A sample that represents all rows, as in the profile of a source, with their weights; of
    sequences all rows."""
    if data.steps is not None or data.table.rows <= _most(data):
        return data, weights
    index = _least(scrambled(np.arange(data.table.rows, dtype=np.uint64)), _most(data))
    return data.taken(index), None if weights is None else weights[index]


def _most(data: Data) -> int:
    """How many rows stand for all."""
    return int(np.clip(NUMBERS // max(data.numbers, 1), LEAST, KEPT))


def _least(ranks: np.ndarray, most: int) -> np.ndarray:
    """The rows of the least ranks, so many, in their order."""
    return np.flatnonzero(ranks <= np.partition(ranks, most - 1)[most - 1])


def _bottom_k_sample(data: Data, ranks: np.ndarray, least: np.uint64 | None = None,
                     slack: int = 1) -> tuple[Data, np.ndarray]:
    """The rows of the smallest random ranks (a bottom-k sample), and these ranks."""
    if least is not None:
        index = np.flatnonzero(ranks < least)
        data, ranks = data.taken(index), ranks[index]
    if len(ranks) <= slack * _most(data):
        return data, ranks
    index = _least(ranks, _most(data))
    return data.taken(index), ranks[index]


def _check_same_structure(one: Data, other: Data) -> None:
    """Refuse batches that have different structures, or differ outside rows."""
    if one.structure is not other.structure:
        kinds = [{name: values.dtype.kind for name, values in data.table.inputs.items()}
                 for data in (one, other)]
        name = next((n for n in kinds[0] if kinds[0][n] != kinds[1].get(n)), next(iter(kinds[0])))
        raise DataError(f"the input '{name}' has another type or shape than in the batches before: "
                        f"use one type in all")
    for name in {**one.table.values, **other.table.values}:
        mine, theirs = (data.table.values.get(name) for data in (one, other))
        if mine is None or theirs is None or not np.array_equal(mine, theirs):
            raise DataError(f"'{name}' is outside rows() and differs between batches")


def _weaker(site: str, one: str | None, other: str | None) -> str:
    """What is seen of a site in both parts together; None: nothing."""
    if one == other and one is not None:
        return one
    if "likelihood" in (one, other):
        if None in (one, other):
            return "likelihood"
        raise DataError(f"'{site}' is given as label probabilities in some batches and as states "
                        f"in others")
    known = [state for state in (one, other) if state is not None]
    return STRENGTH[max(STRENGTH.index(state) for state in (*known, "part"))]


def _states(data: Data, name: str) -> int | None:
    """Of a site, or how many entries the axis has that an input indexes; None: there is no end."""
    sites = data.structure.sites
    return sites[name].states if name in sites else coding.axis(data.structure, name)[1]


def _codes(data: Data, name: str) -> np.ndarray | None:
    """Those that rows show of a site, or of an input that is an index, from 0 on."""
    if name in data.table.inputs:
        return data.table.inputs[name] - coding.axis(data.structure, name)[0]
    column = data.table.columns.get(name)
    return None if column is None else column.values[
        ... if column.seen is None else column.seen]


def _union(site: str, labels: Sequence[tuple], states: int | None) -> tuple:
    """The labels of parts as one tuple.

    Raises:
        DataError: they are too many together.
    """
    out = naming.union(labels)
    if states is not None and len(out) > states:
        raise DataError(f"'{site}' has {len(out)} labels in all batches, {list(out)}, but only "
                        f"{states} states")
    return out


def _recoded(data: Data, own: Mapping[str, tuple], labels: Mapping[str, tuple]) -> Data:
    """The same rows, their codes those of other labels."""
    columns = dict(data.table.columns)
    for name, column in columns.items():
        if name in own and column.likelihood is None and own[name] != labels[name]:
            place = np.array([labels[name].index(label) for label in own[name]] or [0], np.int32)
            values = place[np.minimum(column.values, len(place) - 1)]
            columns[name] = replace(column, values=values)
    inputs = dict(data.table.inputs)
    for name, codes in inputs.items():
        if name in own and own[name] != labels[name]:
            base, _ = coding.axis(data.structure, name)
            place = np.array([labels[name].index(label) for label in own[name]]) + base
            inputs[name] = place.astype(codes.dtype)[codes - base]
    return data._replace(table=replace(data.table, columns=columns, inputs=inputs))


def joined(parts: Sequence[Data]) -> Data:
    """The rows of several, of one pattern, behind one another."""
    if len(parts) == 1:
        return parts[0]


    def together(arrays: list[Any]) -> np.ndarray | None:
        return None if arrays[0] is None else np.concatenate(arrays)

    one, columns = parts[0], {}
    for name, column in one.table.columns.items():
        own = [part.table.columns[name] for part in parts]
        columns[name] = replace(column, values=np.concatenate([c.values for c in own]),
                                seen=together([c.seen for c in own]),
                                likelihood=together([c.likelihood for c in own]))
    inputs = {name: np.concatenate([part.table.inputs[name] for part in parts])
              for name in one.table.inputs}
    weights = None
    if any(part.weights is not None for part in parts):
        weights = np.concatenate([np.ones(part.table.rows) if part.weights is None
                                  else part.weights for part in parts])
    lengths = together([part.lengths for part in parts])
    rows = sum(part.table.rows for part in parts)
    table = replace(one.table, rows=rows, columns=columns, inputs=inputs, index=None)
    return one._replace(table=table, weights=weights, lengths=lengths)


def grouped(pieces: Iterable[Data], size: int) -> Iterator[list[Data]]:
    """The same rows in groups of pieces, of `size` rows together; the last may be short."""
    waiting: list[Data] = []
    missing = size
    for piece in pieces:
        low, rows = 0, piece.table.rows
        while low < rows:
            some = min(rows - low, missing)
            waiting.append(piece if some == rows else piece.taken(slice(low, low + some)))
            low, missing = low + some, missing - some
            if not missing:
                yield waiting
                waiting, missing = [], size
    if waiting:
        yield waiting
