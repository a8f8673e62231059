"""Rows of files through pyarrow: a `pyarrow.dataset.Dataset` of Parquet, CSV or Arrow files, local
or remote, or a `Scanner` of one, with chosen or computed columns.

A part is a file, or up to ROWS rows of one; pyarrow's threads read and decode the next ones
meanwhile. Tables of other libraries (Polars) come through Arrow's interface, without importing
them.

One schema for all files of a dataset: every file has the same columns, with types that hold the
values of all.

Columns of Arrow as pandas columns or NumPy arrays: decimals are floats, lists of numbers of one
length are an array, other lists are sequences.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from probml.dataset.source import Part, Source
from probml.errors import DataError, listed
from probml.numerics.process.libraries import arrow_types, ds, pa, pc
from probml.typing import ArrayLike, DataLike


def from_arrow(column: "pa.ChunkedArray") -> ArrayLike:
    """An Arrow array, chunked or not, as an array (n, length, ...) if it holds lists of one length,
    NaN where a row has none; else as NumPy or pandas."""
    kind = column.type
    if is_list(kind) and _inner(kind) is not None:
        array = _stacked(_single_chunk(column))
        if array is not None:
            return array
    if arrow_types.is_decimal(kind):
        column = column.cast(pa.float64())
    if arrow_types.is_floating(column.type) and not column.null_count:
        return column.to_numpy()  # faster than a Series
    return column.to_pandas()


def sequences(column: object) -> list[np.ndarray]:
    """Lists as arrays, (steps, ...) each; a row without a list has one missing step."""
    lists = _single_chunk(column)
    flat = lists.flatten()
    steps = _stacked(flat) if _inner(flat.type) is not None else flat.to_pandas().to_numpy(object)
    if steps is None:  # vectors of different widths, which `ragged.padded` refuses
        steps = flat.to_pandas().to_numpy()
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
    arrays = np.split(steps, np.cumsum(lengths)[:-1])
    if not lists.null_count:
        return arrays
    missing = np.full((1, *steps.shape[1:]), None if steps.dtype.hasobject else np.nan)
    is_valid = np.asarray(lists.is_valid())
    return [own if there else missing for own, there in zip(arrays, is_valid, strict=True)]


def uneven(column: object) -> bool:
    """Whether lists have different lengths."""
    return pc.count_distinct(pc.list_value_length(_single_chunk(column))).as_py() > 1


def _single_chunk(column: "pa.ChunkedArray") -> "pa.Array":
    """A column as one chunk."""
    if not hasattr(column, "num_chunks"):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def holds_lists(column: object) -> bool:
    """Whether it is a column of Arrow with lists."""
    return (type(column).__module__.partition(".")[0] == "pyarrow" and hasattr(column, "type")
            and is_list(column.type))


def is_list(kind: object) -> bool:
    """Whether values of an Arrow type are lists."""
    return (arrow_types.is_list(kind) or arrow_types.is_large_list(kind)
            or arrow_types.is_fixed_size_list(kind))


def _inner(kind: "pa.DataType") -> "pa.DataType":
    """The type of the numbers in lists, or in lists of lists; None if they hold anything else."""
    while is_list(kind):
        kind = kind.value_type
    return kind if arrow_types.is_integer(kind) or arrow_types.is_floating(kind) else None


def _stacked(lists: "pa.Array") -> np.ndarray | None:
    """Lists of one length as an array; None if their lengths differ."""
    if not is_list(lists.type):
        return lists.to_numpy(zero_copy_only=False)
    lengths = pc.unique(pc.list_value_length(lists).drop_null())
    if len(lengths) != 1:
        return None
    flat = _stacked(lists.flatten())  # of the rows that have a list
    if flat is None:
        return None
    flat = flat.reshape(-1, lengths[0].as_py(), *flat.shape[1:])
    if not lists.null_count:
        return flat
    out = np.full((len(lists), *flat.shape[1:]), np.nan, np.result_type(flat.dtype, np.float32))
    out[np.asarray(lists.is_valid())] = flat
    return out


def unify_schemas(dataset: "ds.Dataset", files: "Iterable[tuple[str, pa.Schema]]") -> "ds.Dataset":
    """A dataset with a schema whose types hold the values of all its files. pyarrow takes the types
    of the first file, where a column may be empty, or of integers that are floats in others.

    Args:
        files: the name and the fragment of each.

    Raises:
        DataError: a file cannot be read, or has other columns, or incompatible types.
    """
    widest = schema = dataset.schema
    # a column of a text file can be read as text where other files have numbers
    loose = getattr(getattr(dataset, "format", None), "default_extname", "") in ("csv", "json")
    partition = getattr(getattr(dataset, "partitioning", None), "schema", None) or ()
    known = [name for name in schema.names if name not in {field.name for field in partition}]
    origin = dict.fromkeys(known, "the dataset")
    for file, fragment in files:
        try:
            physical = fragment.physical_schema
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"the file '{file}' cannot be read ({error}). Write the file again, or "
                            "leave it out") from error
        _compare(file, known, physical, schema)
        for name in known:
            old, new = widest.field(name).type, physical.field(name).type
            if old == new or _is_text(old) and (loose or _is_text(new)):
                continue
            if pa.types.is_null(old):
                origin[name] = f"'{file}'"
            try:
                merged = pa.unify_schemas([pa.schema([(name, old)]), pa.schema([(name, new)])],
                                          promote_options="permissive")
            except pa.ArrowTypeError:
                raise DataError(f"the column '{name}' has the type {new} in the file '{file}', "
                                f"but {old} in {origin[name]}. Use one type in all "
                                f"files") from None
            i = widest.get_field_index(name)
            widest = widest.set(i, widest.field(i).with_type(merged.field(0).type))
    return dataset if widest.equals(schema) else dataset.replace_schema(widest)


def _compare(file: str, known: Sequence[str], physical: "pa.Schema", schema: "pa.Schema") -> None:
    """Refuses a file whose columns are not those of the dataset."""
    extra = [name for name in physical.names if name not in schema.names]
    missing = [name for name in known if name not in physical.names]
    if extra or missing:
        what = (f"has the column{_plural(extra)} {listed(extra)}, which the schema of the "
                f"dataset does not have" if extra else
                f"has no column{_plural(missing)} {listed(missing)}, which the schema of the "
                f"dataset has")
        raise DataError(f"the file '{file}' {what}. Give all files the same columns, or pass a "
                        "scanner that reads only common columns, dataset.scanner(columns=[...])")


def _is_text(type_: "pa.DataType") -> bool:
    """Whether values of an Arrow type are text, in a dictionary too."""
    if arrow_types.is_dictionary(type_):
        return _is_text(type_.value_type)
    return (arrow_types.is_string(type_) or arrow_types.is_large_string(type_)
            or arrow_types.is_string_view(type_))


def _plural(names: Sequence[str]) -> str:
    return "s" if len(names) > 1 else ""


ROWS = 2**17  # of a part at most
AHEAD, FILES = 4, 2  # batches of a file, and files, that pyarrow reads ahead into memory
MEMORY = "in memory"  # the name of parts that come from no file


class ArrowRows(Source):
    """A `pyarrow.dataset.Dataset`: its files in their order, each in parts of at most ROWS rows.

    Every file must have the columns of the dataset, with the same types, except those by which the
    dataset is partitioned. If the dataset has a filter, the rows that pass it are numbered.
    """

    def __init__(self, dataset: "ds.Dataset"):
        self.dataset = dataset
        self._checked = False

    def parts(self) -> Iterator[Part]:
        if not self._checked:
            names = self._names()
            self.dataset = unify_schemas(self.dataset, ((names[_path(fragment)], fragment)
                                                        for fragment in self._fragments()))
            self._checked = True
        scanner = self.dataset.scanner(batch_size=ROWS, batch_readahead=AHEAD,
                                       fragment_readahead=FILES)
        return _parted(_scanned(scanner, self._names(), self._where))

    def mixed(self, random: np.random.Generator) -> Iterator[Part]:
        """Row groups of Parquet files in random order, whole files of other formats. A filtered
        dataset is read in order, since pyarrow does not give access to its files."""
        try:
            groups = [group for file in self.dataset.get_fragments() for group in _groups(file)]
        except ValueError:
            yield from self.parts()
            return
        names, schema, last = self._names(), self.dataset.schema, "its first file"
        starts = _first_rows(groups)
        try:
            for i in random.permutation(len(groups)):
                last, first = names.get(_path(groups[i])) or MEMORY, starts[i]
                for batch in groups[i].scanner(schema=schema, batch_size=ROWS,
                                               batch_readahead=AHEAD).to_batches():
                    if len(batch):
                        yield Part(last, pa.Table.from_batches([batch]), first)
                    first += len(batch)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"the file '{last}' cannot be read ({error}). Write the file again, or "
                            "leave it out") from error

    def _where(self, last: str) -> str:
        """What cannot be read, in words: the first file from `last` on that fails, and the row,
        which pyarrow's error does not name, since it reads ahead."""
        names, files = self._names(), list(self._fragments())
        begin = next((i for i, one in enumerate(files) if names[_path(one)] == last), 0)
        for fragment in files[begin:]:
            rows = 0
            try:
                for batch in fragment.scanner(schema=self.dataset.schema).to_batches():
                    rows += len(batch)
            except (pa.ArrowException, OSError):
                return (f"the dataset cannot be read after row {rows} of the file "
                        f"'{names[_path(fragment)]}'")
        return f"the dataset cannot be read after batch '{last}'"

    def _fragments(self) -> "Iterator[ds.Fragment]":
        """The files of the dataset. Of one with a filter pyarrow gives the paths only."""
        try:
            yield from self.dataset.get_fragments()
        except ValueError:
            data = self.dataset
            yield from ds.dataset(data.files, filesystem=data.filesystem,
                                  format=data.format).get_fragments()

    def _names(self) -> dict[str, str]:
        """Path of each file → its path relative to the common folder."""
        paths = [_path(fragment) for fragment in self._fragments()]
        top = os.path.commonpath([os.path.dirname(path) for path in paths]) if all(paths) else ""
        return {path: os.path.relpath(path, top) if top else path for path in paths}


class ScannedRows(Source):
    """A `pyarrow.dataset.Scanner`, dataset.scanner(columns=..., filter=...): chosen or computed
    columns of a dataset, in parts named after the files. It must be one that can be read again: of
    a dataset, not of an iterator of batches."""

    def __init__(self, scanner: "ds.Scanner"):
        self.scanner = scanner

    def parts(self) -> Iterator[Part]:
        return _parted(_scanned(self.scanner, {}, self._where))

    def _where(self, last: str) -> str:
        return f"the scanner cannot be read {f'after batch {last!r}' if last else 'at all'}"


def _scanned(scanner: "ds.Scanner", names: Mapping[str, str],
             where: Callable[[str], str]) -> Iterator[tuple[str, DataLike]]:
    """(file, batch) in the order of files and rows.

    Args:
        names: path → name of a file, where it has another. where: the last file that could be read
            → what cannot be read, in words.
    """
    last = ""
    try:
        for batch in scanner.scan_batches():
            path = _path(batch.fragment)
            last = names.get(path, path) or MEMORY
            yield last, batch.record_batch
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{where(last)}: {error}. Check the files and their columns") from error


def _parted(batches: Iterator[tuple[str, DataLike]]) -> Iterator[Part]:
    """Pairs (file, batch) as parts of at most ROWS rows of one file."""
    name, first, pending, count = None, 0, [], 0
    for path, batch in batches:
        if path != name:
            if count:
                yield Part(str(name), pa.Table.from_batches(pending), first)
            name, first, pending, count = path, 0, [], 0
        while len(batch):
            piece = batch.slice(0, ROWS - count)
            pending.append(piece)
            count, batch = count + len(piece), batch.slice(len(piece))
            if count == ROWS:
                yield Part(str(name), pa.Table.from_batches(pending), first)
                first, pending, count = first + count, [], 0
    if count:
        yield Part(str(name), pa.Table.from_batches(pending), first)


def _groups(fragment: object) -> "list[ds.Fragment]":
    """The row groups of a Parquet file; of another format the whole file."""
    return fragment.split_by_row_group() if hasattr(fragment, "split_by_row_group") else [fragment]


def _first_rows(groups: "list[ds.Fragment]") -> list[int]:
    """The number of the first row of each row group in its file."""
    out, rows = [], {"": 0}
    for group in groups:
        path = _path(group)
        out.append(rows.get(path, 0))
        rows[path] = out[-1] + sum(one.num_rows for one in getattr(group, "row_groups", ()))
    return out


def _path(fragment: object) -> str:
    """The path of a fragment; "" for one in memory."""
    return getattr(fragment, "path", "") or ""
