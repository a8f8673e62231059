"""Rows on disk, as pyarrow sees them: a `pyarrow.dataset.Dataset` of Parquet, CSV or Arrow files,
local or in any store that it reaches.

A part is a file, or so many rows of one as are worth reading at once; pyarrow's own threads read
and decode the next ones meanwhile. What other libraries hold (Polars) comes through Arrow's
interface, without a dependency on them.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from probml.dataset.source import Part, Source
from probml.errors import DataError

ROWS = 2**17  # of a part at the most
AHEAD, FILES = 4, 2  # batches of a file, and files, that pyarrow reads ahead: it holds them whole


class ArrowRows(Source):
    """A `pyarrow.dataset.Dataset`: its files in their order, each in parts of at most ROWS rows.

    Every file must have the columns of the dataset, of its kinds; a column by which files are
    partitioned stands in their paths. A filter of the dataset holds; rows are then numbered among
    those that it leaves.
    """

    def __init__(self, dataset: Any):
        self.dataset = dataset
        self._sound = False

    def parts(self) -> Iterator[Part]:
        import pyarrow as pa

        if not self._sound:
            self._check()
            self._sound = True
        name, first, waiting, count = None, 0, [], 0
        for path, batch in self._batches():
            if path != name:
                if count:
                    yield Part(str(name), pa.Table.from_batches(waiting), first)
                name, first, waiting, count = path, 0, [], 0
            while len(batch):
                some = batch.slice(0, ROWS - count)
                waiting.append(some)
                count, batch = count + len(some), batch.slice(len(some))
                if count == ROWS:
                    yield Part(str(name), pa.Table.from_batches(waiting), first)
                    first, waiting, count = first + count, [], 0
        if count:
            yield Part(str(name), pa.Table.from_batches(waiting), first)

    def mixed(self, random: np.random.Generator) -> Iterator[Part]:
        """Row groups of all files in random order; of other formats than Parquet files. A filtered
        dataset is read as it comes: pyarrow does not hand out its files."""
        import pyarrow as pa

        try:
            groups = [group for file in self.dataset.get_fragments() for group in _groups(file)]
        except ValueError:
            yield from self.parts()
            return
        names, schema, last = self._names(), self.dataset.schema, "its first file"
        try:
            for i in random.permutation(len(groups)):
                last = names.get(_path(groups[i])) or "in memory"
                for batch in groups[i].scanner(schema=schema, batch_size=ROWS,
                                               batch_readahead=AHEAD).to_batches():
                    if len(batch):
                        yield Part(last, pa.Table.from_batches([batch]))
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"the dataset cannot be read on from '{last}': {error}") from error

    def _batches(self) -> Iterator[tuple[str, Any]]:
        """(file, batch) in the order of files and rows."""
        import pyarrow as pa

        named, last = self._names(), "its first file"
        try:
            scanned = self.dataset.scanner(batch_size=ROWS, batch_readahead=AHEAD,
                                           fragment_readahead=FILES).scan_batches()
            for found in scanned:
                last = named.get(_path(found.fragment)) or "in memory"
                yield last, found.record_batch
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"the dataset cannot be read on from '{last}': {error}") from error

    def _fragments(self) -> Iterator[Any]:
        """The files, of a dataset with a filter too, whose fragments pyarrow does not hand out."""
        import pyarrow.dataset as ds

        try:
            yield from self.dataset.get_fragments()
        except ValueError:
            data = self.dataset
            yield from ds.dataset(data.files, filesystem=data.filesystem,
                                  format=data.format).get_fragments()

    def _names(self) -> dict[str, str]:
        """Path of each file → what it is called: its path below the folder of all."""
        paths = [_path(fragment) for fragment in self._fragments()]
        top = os.path.commonpath([os.path.dirname(path) for path in paths]) if all(paths) else ""
        return {path: os.path.relpath(path, top) if top else path for path in paths}

    def _check(self) -> None:
        """Refuse files whose columns are not those of the dataset."""
        schema, names = self.dataset.schema, self._names()
        parted = getattr(getattr(self.dataset, "partitioning", None), "schema", None) or ()
        known = set(schema.names) - {field.name for field in parted}
        for fragment in self._fragments():
            file = names[_path(fragment)]
            try:
                own = fragment.physical_schema
            except OSError as error:
                raise DataError(f"part '{file}' cannot be read: {error}") from error
            _compare(file, known, own, schema)


def _compare(file: str, known: set[str], own: Any, schema: Any) -> None:
    beyond = [name for name in own.names if name not in schema.names]
    lacking = [name for name in schema.names if name in known and name not in own.names]
    if beyond or lacking:
        what = (f"has the column{_plural(beyond)} {_listed(beyond)}, which the dataset's schema "
                f"does not name" if beyond else
                f"lacks the column{_plural(lacking)} {_listed(lacking)} of the dataset's schema")
        raise DataError(f"part '{file}' {what}: every file needs the same columns. For some of the "
                        f"columns pass a function that makes batches of them, "
                        f"lambda: dataset.to_batches(columns=[...])")
    for name in known:
        mine, all_of = own.field(name).type, schema.field(name).type
        if _kind(mine) != _kind(all_of) and "nothing" not in (_kind(mine), _kind(all_of)):
            raise DataError(f"part '{file}' holds '{name}' as {mine}, and the dataset as {all_of}: "
                            f"write it as one type in all files")


def _kind(type_: Any) -> str:
    """What values of an Arrow type are to a model."""
    import pyarrow.types as kinds

    if kinds.is_dictionary(type_):
        return _kind(type_.value_type)
    if kinds.is_integer(type_) or kinds.is_floating(type_) or kinds.is_decimal(type_):
        return "number"
    if kinds.is_null(type_):
        return "nothing"
    if kinds.is_string(type_) or kinds.is_large_string(type_) or kinds.is_string_view(type_):
        return "text"
    return str(type_)


def _plural(names: Sequence[str]) -> str:
    return "s" if len(names) > 1 else ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _groups(fragment: Any) -> list[Any]:
    """What can be read of a file by itself."""
    return fragment.split_by_row_group() if hasattr(fragment, "split_by_row_group") else [fragment]


def _path(fragment: Any) -> str:
    """Where a fragment lies; "" of one in memory."""
    return getattr(fragment, "path", "") or ""


def as_table(data: Any) -> Any:
    """A frame that speaks Arrow's interface, as Polars' do, as a pyarrow Table; all else as it is.
    """
    library = type(data).__module__.partition(".")[0]
    if library == "polars" and hasattr(data, "collect"):  # a lazy one
        data = data.collect()
    if library in ("pandas", "pyarrow") or not hasattr(data, "__arrow_c_stream__"):
        return data
    import pyarrow as pa

    return pa.table(data)


def is_dataset(data: Any) -> bool:
    """Whether data are a `pyarrow.dataset.Dataset`."""
    return type(data).__module__ == "pyarrow._dataset" and hasattr(data, "get_fragments")
