"""Sequences of different lengths as one array, padded with missing steps; their lengths."""

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from probml.dataset.frames import as_pandas, native, same_columns
from probml.dataset.labels import Labels, labels_of, tables_of
from probml.dataset.sources import arrow
from probml.errors import DataError, counted, listed
from probml.numerics.process.libraries import pa
from probml.structure.structure import Structure
from probml.typing import ArrayLike, DataLike, SiteValues

MATRICES = 3  # axes of sequences of vectors


def padded(name: str, value: ArrayLike, as_nan: bool = True) -> ArrayLike:
    """A list of sequences, (steps, ...) each, as one array (rows, most steps, ...); anything else
    unchanged.

    Args:
        as_nan: pad with missing cells; else with zeros, for inputs.

    Raises:
        DataError: an empty sequence, or sequences of different width.
    """
    objects = isinstance(value, np.ndarray) and value.dtype.hasobject and value.ndim == 1
    if not objects and not isinstance(value, list | tuple):
        return value
    value = value if objects else same_columns(name, value)
    read = [(part, None) if isinstance(part, np.ndarray | np.generic | float | int) else
            labels_of(as_pandas(part)) for part in value]
    parts = [np.asarray(part) for part, _ in read]
    if min((part.ndim for part in parts), default=0) == 0:
        return value
    lengths = [len(part) for part in parts]
    if 0 in lengths:
        raise DataError(f"'{name}': sequence {lengths.index(0)} is empty; expected at least 1 "
                        f"step. Drop this sequence.")
    if len(set(lengths)) == 1:
        dated = any(getattr(own, "dates", None) is not None for _, own in read)
        return np.stack(parts) if dated else value
    odd = next((i for i, part in enumerate(parts) if part.shape[1:] != parts[0].shape[1:]), None)
    if odd is not None:
        raise DataError(
            f"'{name}': sequence {odd} has the shape {parts[odd].shape}, but sequence 0 has the "
            f"shape {parts[0].shape}. Give all sequences the same columns; only the number of "
            "steps (the first axis) may differ."
        )
    kind, missing = np.dtype(object), cast(Any, None)
    if {part.dtype.kind for part in parts} <= set("biuf"):
        kind, missing = np.result_type(*parts, *[np.float32] * as_nan), np.nan
    out = np.full((len(parts), max(lengths), *parts[0].shape[1:]), missing if as_nan else 0, kind)
    for row, part in zip(out, parts, strict=True):
        row[: len(part)] = part
    return out


def of_column(value: object) -> ArrayLike:
    """A column of Arrow with lists of unequal lengths as sequences; anything else unchanged."""
    return (arrow.sequences(value) if arrow.holds_lists(value)
            and arrow.uneven(value) else value)


def of_table(data: DataLike) -> DataLike:
    """A table of Arrow with columns of lists as a mapping, these as sequences; anything else
    unchanged."""
    schema: pa.Schema = getattr(data, "schema", None)
    if (type(data).__module__.partition(".")[0] != "pyarrow"
        or not any(arrow.is_list(kind) for kind in schema.types)):
        return data
    return {name: arrow.sequences(data.column(name)) if arrow.is_list(kind)
            else data.column(name) for name, kind in zip(schema.names, schema.types, strict=True)}


class SequenceTables(NamedTuple):
    """The sequences of a site that came as tables.

    Attributes:
        tables: one per sequence. labels: of each; None for an array.
        is_single: whether it is a single table, not a list.
    """

    tables: list
    labels: list[Labels | None]
    is_single: bool

    def ahead(self, values: np.ndarray, name: str | None) -> Any:
        """Forecasts of the following steps, (n, steps, ...), as tables like those of the sequences.

        Args:
            name: a site that is in no table; None: the columns are those of the tables.
        """
        if values.ndim > MATRICES:
            return values
        names = None if name is None else [name] if values.ndim < MATRICES else [
            f"{name}[{i}]" for i in range(values.shape[-1])]
        tables = tables_of(self.labels, values, names, ahead=True)
        tables = [native(part, own) for part, own in zip(tables, self.tables, strict=True)]
        return tables[0] if self.is_single else tables


def sequence_tables(structure: Structure, data: object) -> dict[str, SequenceTables]:
    """Site with an axis of time → its sequences, for those that are given as tables."""
    out = {}
    for name, value in data.items() if isinstance(data, Mapping) else ():
        site, is_single = structure.sites.get(name), _is_single_sequence(structure, name, value)
        if site is None or site.time is None or not (is_single or isinstance(value, list | tuple)):
            continue
        tables = [value] if is_single else list(value)
        labels = [labels_of(as_pandas(part))[1] for part in tables]
        if any(own is not None for own in labels):
            out[name] = SequenceTables(tables, labels, is_single)
    return out


def _is_single_sequence(structure: Structure, name: str, value: object) -> bool:
    """Whether a value is one sequence, a Series or a table whose rows are its steps."""
    if isinstance(value, list | tuple | np.ndarray):
        return False
    site = structure.sites.get(name)
    axes = 1 if site is None else len(site.along("steps"))
    return len(getattr(value, "shape", ())) == axes and labels_of(as_pandas(value))[1] is not None


def along_time(structure: Structure, items: SiteValues,
               steps: int | None) -> tuple[dict[str, ArrayLike], int, np.ndarray | None]:
    """The data of a model with chains, its sequences padded; their number of steps; and the length
    of each, None if they are not lists of different lengths.

    Args:
        steps: the number of steps for data without sequences.

    Raises:
        DataError: sites of different lengths; no length at all.
    """
    out, lengths, list_lengths = {}, {}, {}
    for name, value in items.items():
        site = structure.sites.get(name)
        time = 0 if name in structure.timed else getattr(site, "time", None)
        if time is not None:
            if _is_single_sequence(structure, name, value):
                value = [value]
            given, value = value, padded(name, value, name not in structure.timed)
            if value is not given:
                list_lengths[name] = np.array([len(part) for part in given])
            shape = np.shape(value)
            if len(shape) <= 1 + time:
                cells = "".join(f", {size}" for size in (
                    site.along("steps") if site is not None else ("steps",)
                ))
                raise DataError(
                    f"'{name}' has the wrong shape: expected (rows{cells}), got {shape}. Each row "
                    f"is one sequence; pass a single sequence as {name}[None]"
                )
            lengths[name] = shape[1 + time]
        out[name] = value
    n_steps = structure.declared or (next(iter(lengths.values())) if lengths else steps)
    if n_steps is None:
        names = [site.name for site in structure.sites.values() if site.time is not None]
        raise DataError(f"model '{structure.model.name}': the number of time steps is unknown, "
                        f"because the data contain none of {listed(names)}. Give data for one of "
                        "these sites, or give the number, such as steps=10")
    odd = next((name for name, length in lengths.items() if length != n_steps), None)
    if odd is not None:
        other = next((f"'{name}' has {length}" for name, length in lengths.items()
                      if length == n_steps), f"this model needs {n_steps}")
        raise DataError(
            f"'{odd}' has {counted(lengths[odd], 'time step')}, but {other}. All sites need the "
            "same number of steps, shape (rows, steps, ...). Pad shorter sequences with NaN, or "
            "give a list of arrays."
        )
    if 0 in lengths.values():
        raise DataError(f"'{next(iter(lengths))}' is empty: it has 0 time steps, expected at least "
                        "1. Check how the data were read or filtered.")
    for (one, mine), (other, theirs) in itertools.pairwise(list_lengths.items()):
        if len(mine) == len(theirs) and (mine != theirs).any():
            i = int(np.argmax(mine != theirs))
            raise DataError(f"sequence {i}: '{one}' has {counted(mine[i], 'step')}, but '{other}' "
                            f"has {theirs[i]}. Give both the same number of steps, with NaN where "
                            "a value is missing.")
    return out, int(n_steps), next(iter(list_lengths.values()), None)


def count_steps(mask: np.ndarray) -> np.ndarray | None:
    """The length of each row, up to its last step that is observed in `mask`, (rows, steps); None
    where that is the last step in every row."""
    steps = mask.shape[1]
    lengths = np.where(mask.any(1), steps - mask[:, ::-1].argmax(1), 0)
    return None if (lengths == steps).all() else lengths
