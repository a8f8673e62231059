"""Files that are whole or not there: written beside their place, and moved into it at the end."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[str]:
    """A path to write to in the folder of `path`: it takes that name once all within has gone well,
    is on disk, and nobody has seen a part of it; else it goes, and an older file stays.

    Raises:
        OSError: the folder is not there, or cannot be written to.
    """
    goal = Path(path)
    handle, temporary = tempfile.mkstemp(dir=goal.parent, prefix=f".{goal.name}.")
    os.close(handle)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, goal)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
