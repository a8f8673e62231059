"""Files that are whole or not there: written beside their place, and moved into it at the end."""

import contextlib
import os
import secrets
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
    temporary = str(goal.parent / f".{goal.name}.{secrets.token_hex(8)}")
    open(temporary, "xb").close()  # who may read it, the umask says
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, goal)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
