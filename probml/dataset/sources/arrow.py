"""Rows of files through pyarrow: a `pyarrow.dataset.Dataset` of Parquet, CSV or Arrow files, local
or remote, or a `Scanner` of one, with chosen or computed columns.

A part is a file, or up to ROWS rows of one; pyarrow's threads read and decode the next ones
meanwhile. Tables of other libraries (Polars) come through Arrow's interface, without importing
them.
"""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from probml.dataset.source import Part, Source
from probml.dataset.sources.schemas import unify_schemas
from probml.errors import DataError

ROWS = 2**17  # of a part at most
AHEAD, FILES = 4, 2  # batches of a file, and files, that pyarrow reads ahead into memory
MEMORY = "in memory"  # the name of parts that come from no file


class ArrowRows(Source):
    """A `pyarrow.dataset.Dataset`: its files in their order, each in parts of at most ROWS rows.

    Every file must have the columns of the dataset, with the same types, except those by which the
    dataset is partitioned. If the dataset has a filter, the rows that pass it are numbered.
    """

    def __init__(self, dataset: Any):
        self.dataset = dataset
        self._checked = False

    def parts(self) -> Iterator[Part]:
        if not self._checked:
            names = self._names()
            self.dataset = unify_schemas(self.dataset, ((names[_path(fragment)], fragment)
                                                        for fragment in self._fragments()))
            self._checked = True
        return _parted(self._batches())

    def mixed(self, random: np.random.Generator) -> Iterator[Part]:
        """Row groups of Parquet files in random order, whole files of other formats. A filtered
        dataset is read in order, since pyarrow does not give access to its files."""
        import pyarrow as pa

        try:
            groups = [group for file in self.dataset.get_fragments() for group in _groups(file)]
        except ValueError:
            yield from self.parts()
            return
        names, schema, last = self._names(), self.dataset.schema, "its first file"
        begins = _first_rows(groups)
        try:
            for i in random.permutation(len(groups)):
                last, first = names.get(_path(groups[i])) or MEMORY, begins[i]
                for batch in groups[i].scanner(schema=schema, batch_size=ROWS,
                                               batch_readahead=AHEAD).to_batches():
                    if len(batch):
                        yield Part(last, pa.Table.from_batches([batch]), first)
                    first += len(batch)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"part '{last}' cannot be read: {error}") from error

    def _batches(self) -> Iterator[tuple[str, Any]]:
        """(file, batch) in the order of files and rows."""
        import pyarrow as pa

        named, last = self._names(), ""
        try:
            scanned = self.dataset.scanner(batch_size=ROWS, batch_readahead=AHEAD,
                                           fragment_readahead=FILES).scan_batches()
            for found in scanned:
                last = named.get(_path(found.fragment)) or MEMORY
                yield last, found.record_batch
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self._where(last)}: {error}") from error

    def _where(self, last: str) -> str:
        """The first file from `last` on that cannot be read, and the row, in words: pyarrow's error
        does not name them, and it reads ahead."""
        import pyarrow as pa

        names, files = self._names(), list(self._fragments())
        begin = next((i for i, one in enumerate(files) if names[_path(one)] == last), 0)
        for fragment in files[begin:]:
            rows = 0
            try:
                for batch in fragment.scanner(schema=self.dataset.schema).to_batches():
                    rows += len(batch)
            except (pa.ArrowException, OSError):
                return (f"the dataset cannot be read after row {rows} of part "
                        f"'{names[_path(fragment)]}'")
        return f"the dataset cannot be read after part '{last}'"

    def _fragments(self) -> Iterator[Any]:
        """The files of the dataset. Of one with a filter pyarrow gives the paths only."""
        import pyarrow.dataset as ds

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

    def __init__(self, scanner: Any):
        self.scanner = scanner

    def parts(self) -> Iterator[Part]:
        return _parted(self._batches())

    def _batches(self) -> Iterator[tuple[str, Any]]:
        import pyarrow as pa

        last = ""
        try:
            for found in self.scanner.scan_batches():
                last = _path(found.fragment) or MEMORY
                yield last, found.record_batch
        except (pa.ArrowException, OSError) as error:
            where = f"after part '{last}'" if last else "at all"
            raise DataError(f"the scanner cannot be read {where}: {error}") from error


def _parted(batches: Iterator[tuple[str, Any]]) -> Iterator[Part]:
    """Pairs (file, batch) as parts of at most ROWS rows of one file."""
    import pyarrow as pa

    name, first, waiting, count = None, 0, [], 0
    for path, batch in batches:
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


def _groups(fragment: object) -> list[Any]:
    """The row groups of a Parquet file; of another format the whole file."""
    return fragment.split_by_row_group() if hasattr(fragment, "split_by_row_group") else [fragment]


def _first_rows(groups: list[Any]) -> list[int]:
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


def as_table(data: object) -> Any:
    """A table with Arrow's C stream interface as a pyarrow Table; anything else unchanged."""
    library = type(data).__module__.partition(".")[0]
    if library in ("pandas", "pyarrow") or not hasattr(data, "__arrow_c_stream__"):
        return data
    import pyarrow as pa

    return pa.table(data)


def is_dataset(data: object) -> bool:
    """Whether data are a `pyarrow.dataset.Dataset`."""
    return type(data).__module__ == "pyarrow._dataset" and hasattr(data, "get_fragments")


def is_scanner(data: object) -> bool:
    """Whether data are a `pyarrow.dataset.Scanner`."""
    return type(data).__module__ == "pyarrow._dataset" and hasattr(data, "scan_batches")
