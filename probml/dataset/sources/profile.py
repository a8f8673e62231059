"""The profile of rows: their number, the sites observed, labels, moments of columns, and a random
sample. Profiles of parts are merged to that of all rows.

Sequences of a source: parts of different numbers of steps are padded to that of the longest, and
each row has its length.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from probml.dataset import tables
from probml.dataset.coding import indices as coding
from probml.dataset.coding import labels as naming
from probml.dataset.dataset import Data, Profile
from probml.dataset.moments import Moments
from probml.dataset.sources.chosen import hashed
from probml.errors import DataError, counted, listed, present
from probml.typing import ArrayLike

SAMPLE_ROWS = 2**16  # at most; engines find a start on the sample
# numbers in the sample at most, but as many rows at least
SAMPLE_NUMBERS, MIN_SAMPLE_ROWS = 2**23, 2**10
# patterns: that of all rows is the last of those of the parts
WEAKER = ("seen", "part", "partially_observed")


def profile_of(data: Data, name: str = "", first: int = 0,
               other: Profile | None = None) -> Profile:
    """The profile of one part, whose first row has the number `first` among all.

    Args:
        other: the profile with which it will be merged; rows that cannot come into the sample of
            both are left out.
    """
    sites, rows, weights = data.structure.sites, data.table.rows, data.weights
    moments = {name: Moments.of(column, weights) if sites[name].time is None
               else along_steps(data, name, weights)
               for name, column in data.table.columns.items() if not sites[name].discrete}
    ranks = hashed(np.arange(first, first + rows, dtype=np.uint64))
    labels = {name: naming.without_padding(own, _codes(data, name))
              for name, own in data.table.labels.items()}
    return Profile((name,), (rows,), data.pattern, labels, moments,
                   *_bottom_k_sample(data._replace(survey=None), ranks,
                                     None if other is None else _entry_rank(other)),
                   float(rows if weights is None else weights.sum()))


def _entry_rank(profile: Profile) -> np.uint64 | None:
    """The rank below which a row comes into the sample; None: any row does."""
    return profile.ranks.max() if len(profile.ranks) >= _sample_size(profile.sample) else None


def trim_sample(profile: Profile) -> Profile:
    """The same profile, its sample reduced to its size."""
    sample, ranks = _bottom_k_sample(profile.sample, profile.ranks)
    return replace(profile, sample=sample, ranks=ranks)


def merged(profile: Profile, other: Profile, slack: int = 1) -> Profile:
    """The profile of the parts of both.

    Args:
        slack: rows leave the sample when it has more than `slack` times its size: to choose among
            them costs more than to keep some. See `trim_sample`.

    Raises:
        DataError: the parts are not parts of one table, which site and why.
    """
    for name in profile.columns.keys() & other.columns.keys():
        if profile.columns[name] != other.columns[name]:
            raise DataError(f"'{name}' has the columns {listed(profile.columns[name])} in some "
                            f"batches and {listed(other.columns[name])} in others. Give all "
                            "batches the same columns in the same order")
    steps = max((part.sample.steps for part in (profile, other)
                 if part.sample.steps is not None), default=None)
    one, two = (lengthened(part.sample, steps) for part in (profile, other))
    _check_same_structure(one, two)
    labels = {site: _union(site, [part.labels[site] for part in (profile, other)
                                  if site in part.labels], _states(one, site))
              for site in {**profile.labels, **other.labels}}
    for site in labels:
        for part in (profile, other):
            if site not in part.labels and (site in part.pattern
                                            or site in part.sample.table.inputs):
                raise DataError(f"'{site}' has labels, {listed(labels[site])}, in some batches and "
                                f"integer codes in others. Use one of the two in all batches")
    pattern = {site: _weaker(site, profile.pattern.get(site), other.pattern.get(site))
               for site in {**profile.pattern, **other.pattern}}
    moments = {**profile.moments, **other.moments}
    for site in profile.moments.keys() & other.moments.keys():
        moments[site] = profile.moments[site].merged(other.moments[site])
    parts = [under(_recoded(sample, part.labels, labels), pattern)
             for sample, part in ((one, profile), (two, other))]
    all_rows = joined(parts)
    all_rows = all_rows._replace(table=replace(all_rows.table, labels={
        site: naming.filled(part, _states(all_rows, site) or 0) for site, part in labels.items()
    }))
    return Profile(profile.names + other.names, profile.sizes + other.sizes, pattern, labels,
                   moments,
                   *_bottom_k_sample(all_rows, np.concatenate([profile.ranks, other.ranks]),
                                     slack=slack),
                   profile.weight + other.weight, {**profile.columns, **other.columns})


def under(data: Data, pattern: Mapping[str, str], means: Mapping[str, ArrayLike] = {}) -> Data:
    """The same rows, their columns with the pattern of all rows: a column may be completely
    observed here and missing elsewhere, or the other way round.

    Args:
        means: continuous site → the value of its missing cells; it is 0 for states and counts.
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
        elif state in ("part", "partially_observed") and column.observed is None:
            column = replace(column, observed=np.ones(shape, bool))
        if column.observed is not None and (name in means or site.discrete):
            fill = np.asarray(means.get(name, 0)).astype(column.values.dtype)
            column = replace(column, values=np.where(column.observed, column.values, fill))
        columns[name] = replace(column, partial=state == "partially_observed")
    return data._replace(table=replace(data.table, columns=columns))


def representative_sample(data: Data, weights: np.ndarray | None) -> tuple[Data, np.ndarray | None]:
    """A random sample of the rows as in the profile of a source, with their weights; all rows if
    they are sequences."""
    size = _sample_size(data)
    if data.steps is not None or data.table.rows <= size:
        return data, weights
    index = _smallest(hashed(np.arange(data.table.rows, dtype=np.uint64)), size)
    return data.taken(index), None if weights is None else weights[index]


def _sample_size(data: Data) -> int:
    """The number of rows in a sample."""
    return int(np.clip(SAMPLE_NUMBERS // max(data.numbers, 1), MIN_SAMPLE_ROWS, SAMPLE_ROWS))


def _smallest(ranks: np.ndarray, k: int) -> np.ndarray:
    """The indices of the k smallest ranks, in order."""
    return np.flatnonzero(ranks <= np.partition(ranks, k - 1)[k - 1])


def _bottom_k_sample(data: Data, ranks: np.ndarray, max_rank: np.uint64 | None = None,
                     slack: int = 1) -> tuple[Data, np.ndarray]:
    """The rows with the smallest pseudorandom ranks (a bottom-k sample), and these ranks."""
    if max_rank is not None:
        index = np.flatnonzero(ranks < max_rank)
        data, ranks = data.taken(index), ranks[index]
    if len(ranks) <= slack * _sample_size(data):
        return data, ranks
    index = _smallest(ranks, _sample_size(data))
    return data.taken(index), ranks[index]


def _check_same_structure(one: Data, other: Data) -> None:
    """Refuses batches with different structures, or different values of sites outside rows."""
    if one.structure is not other.structure:
        kinds = [{name: values.dtype.kind for name, values in data.table.inputs.items()}
                 for data in (one, other)]
        name = next((n for n in kinds[0] if kinds[0][n] != kinds[1].get(n)), next(iter(kinds[0])))
        raise DataError(f"the input '{name}' has another type or shape in this batch than in "
                        f"earlier batches. Use the same type and shape in all batches")
    for name in {**one.table.values, **other.table.values}:
        mine, theirs = (data.table.values.get(name) for data in (one, other))
        if mine is None or theirs is None or not np.array_equal(mine, theirs):
            raise DataError(f"'{name}' is outside rows() and so has one value for all rows, but "
                            f"its value differs between batches. Give the same value in all "
                            f"batches")


def _weaker(site: str, one: str | None, other: str | None) -> str:
    """The pattern of a site in two parts together; None: it is not in the part."""
    if one == other and one is not None:
        return one
    if "likelihood" in (one, other):
        if None in (one, other):
            return "likelihood"
        raise DataError(f"'{site}' is given as label probabilities in some batches and as labels "
                        f"or codes in others. Use one of the two in all batches")
    known = [state for state in (one, other) if state is not None]
    return WEAKER[max(WEAKER.index(state) for state in (*known, "part"))]


def _states(data: Data, name: str) -> int | None:
    """The number of states of a site, or the length of the axis that an input indexes; None:
    unlimited."""
    sites = data.structure.sites
    return sites[name].states if name in sites else coding.axis(data.structure, name)[1]


def _codes(data: Data, name: str) -> np.ndarray | None:
    """The observed codes of a site, or those of an index input, from 0 on."""
    if name in data.table.inputs:
        return data.table.inputs[name] - coding.axis(data.structure, name)[0]
    column = data.table.columns.get(name)
    return None if column is None else column.values[
        ... if column.observed is None else column.observed]


def _union(site: str, labels: Sequence[tuple], states: int | None) -> tuple:
    """The labels of all parts; refused where there are more than states."""
    out = naming.union(labels)
    if states is not None and len(out) > states:
        raise DataError(f"'{site}' has {counted(len(out), 'label')} in all batches together, "
                        f"{listed(out)}, but the model has only {counted(states, 'state')}. Give "
                        "the model more states, or merge labels")
    return out


def _recoded(data: Data, own: Mapping[str, tuple], labels: Mapping[str, tuple]) -> Data:
    """The same rows, codes of the labels `own` replaced by codes of `labels`."""
    columns = dict(data.table.columns)
    for name, column in columns.items():
        if name in own and column.likelihood is None and own[name] != labels[name]:
            new_codes = np.array([labels[name].index(label) for label in own[name]] or [0],
                                 np.int32)
            values = new_codes[np.minimum(column.values, len(new_codes) - 1)]
            columns[name] = replace(column, values=values)
    inputs = dict(data.table.inputs)
    for name, codes in inputs.items():
        if name in own and own[name] != labels[name]:
            base, _ = coding.axis(data.structure, name)
            new_codes = np.array([labels[name].index(label) for label in own[name]]) + base
            inputs[name] = new_codes.astype(codes.dtype)[codes - base]
    return data._replace(table=replace(data.table, columns=columns, inputs=inputs))


def joined(parts: Sequence[Data]) -> Data:
    """The rows of several parts with the same pattern, concatenated."""
    if len(parts) == 1:
        return parts[0]

    def together(arrays: list[ArrayLike]) -> np.ndarray | None:
        return None if arrays[0] is None else np.concatenate(arrays)

    first, columns = parts[0], {}
    for name, column in first.table.columns.items():
        site_columns = [part.table.columns[name] for part in parts]
        columns[name] = replace(column, values=np.concatenate([c.values for c in site_columns]),
                                observed=together([c.observed for c in site_columns]),
                                likelihood=together([c.likelihood for c in site_columns]))
    inputs = {name: np.concatenate([part.table.inputs[name] for part in parts])
              for name in first.table.inputs}
    weights = None
    if any(part.weights is not None for part in parts):
        weights = np.concatenate([np.ones(part.table.rows) if part.weights is None
                                  else part.weights for part in parts])
    lengths = together([part.lengths for part in parts])
    rows = sum(part.table.rows for part in parts)
    table = replace(first.table, rows=rows, columns=columns, inputs=inputs, index=None)
    return first._replace(table=table, weights=weights, lengths=lengths)


def grouped(pieces: Iterable[Data], size: int) -> Iterator[list[Data]]:
    """The same rows as lists of pieces with `size` rows together; the last may have fewer."""
    pending: list[Data] = []
    n_missing = size
    for piece in pieces:
        low, rows = 0, piece.table.rows
        while low < rows:
            n_taken = min(rows - low, n_missing)
            pending.append(piece if n_taken == rows else piece.taken(slice(low, low + n_taken)))
            low, n_missing = low + n_taken, n_missing - n_taken
            if not n_missing:
                yield pending
                pending, n_missing = [], size
    if pending:
        yield pending


def measured(data: Data) -> Data:
    """The same rows with the length of each, also where all have all steps."""
    if data.steps is None:
        return data
    data = data.trimmed()
    lengths = np.full(data.table.rows, data.steps) if data.lengths is None else data.lengths
    return data._replace(lengths=lengths, list_lengths=None)


def lengthened(data: Data, steps: int | None) -> Data:
    """The same rows, padded to `steps` steps."""
    if data.steps is None or steps is None or data.steps == steps:
        return data
    n_extra, sites, columns = steps - data.steps, data.structure.sites, dict(data.table.columns)

    def padded(array: ArrayLike, axis: int, value: float) -> ArrayLike:
        if array is None:
            return None
        widths = [(0, n_extra if i == axis else 0) for i in range(array.ndim)]
        return np.pad(array, widths, constant_values=value)

    for name, column in columns.items():
        time = sites[name].time
        if time is not None:
            columns[name] = replace(column, values=padded(column.values, 1 + time, 0),
                                    observed=padded(column.observed, 1 + time, True),
                                    likelihood=padded(column.likelihood, 1 + time, 1))
    inputs = {name: padded(array, 1, 0) if name in data.structure.timed else array
              for name, array in data.table.inputs.items()}
    return data._replace(table=replace(data.table, columns=columns, inputs=inputs), steps=steps)


def along_steps(data: Data, name: str, weights: np.ndarray | None) -> Moments:
    """The moments of a site along time, over rows and steps without padding."""
    time, column = data.structure.sites[name].time, data.table.columns[name]
    n, steps = data.table.rows, present(data.steps)

    def flat(array: np.ndarray) -> np.ndarray:
        array = np.moveaxis(array, 1 + present(time), 1)
        return array.reshape(n * steps, *array.shape[2:])

    weight = np.ones(n) if weights is None else weights
    share = np.broadcast_to(weight[:, None], (n, steps))
    if data.lengths is not None:
        share = share * (np.arange(steps) < data.lengths[:, None])
    return Moments.of(column.mapped(flat),
                      None if (share == 1).all() else share.reshape(-1))
