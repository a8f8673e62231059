"""A source of rows in one file: a folder of .npz parts, each a column a name, read one at a time."""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from probml.extend import Source


@dataclass
class Folder(Source):
    """Parts in the order of their names. For the tests it counts how often each was read, and how
    many were there at once."""

    path: Path
    opened: dict[str, int] = field(default_factory=dict)
    there: int = 0
    most: int = 0

    def parts(self) -> Iterator[tuple[str, Any]]:
        for file in sorted(self.path.glob("*.npz")):
            with np.load(file, allow_pickle=True) as part:
                table = {name: part[name] for name in part.files}
            self._count(file.name, next(iter(table.values())))
            yield file.name, table
            del table

    def _count(self, name: str, column: np.ndarray) -> None:
        self.opened[name] = self.opened.get(name, 0) + 1
        self.there += 1
        self.most = max(self.most, self.there)
        weakref.finalize(column, self._gone)

    def _gone(self) -> None:
        self.there -= 1


def stored(path: Path, table: dict[str, np.ndarray], cuts: list[int]) -> Folder:
    """A table as such a folder, cut behind so many rows."""
    ends = [0, *cuts, len(next(iter(table.values())))]
    for i, (low, high) in enumerate(zip(ends, ends[1:], strict=False)):
        part = {name: column[low:high] for name, column in table.items()}
        np.savez(path / f"part{i}.npz", **part)
    return Folder(path)
