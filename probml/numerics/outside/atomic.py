"""Files that are written whole or not at all."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[str]:
    """A context manager of a temporary path in the folder of `path`. On success the file is synced
    to disk and renamed to `path`, atomically; on an error it is removed, and an older file stays.

    Raises:
        OSError: the folder does not exist, or cannot be written to.
    """
    goal = Path(path)
    temporary = str(goal.parent / f".{goal.name}.{secrets.token_hex(8)}")
    open(temporary, "xb").close()  # with the permissions of the umask
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, goal)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
