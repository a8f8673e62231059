"""Compiled programs on disk: what one process compiled, another reads.

JAX has such a cache, off by default, of all programs that take longer than a second. Where the user
has set none, ours are kept in a folder: `PROBML_CACHE=0` turns that off, `PROBML_CACHE=/a/folder`
names another than the user's cache folder.

A compiled program is code that will run. So the folder is the user's own and closed to others
(0700), else it is not used; a file is written whole under another name before it gets its own, and
is read only if its digest is right; what was compiled by another JAX or for another processor lies
elsewhere. The files used longest ago go when there are more than MOST bytes.
"""

import contextlib
import functools
import hashlib
import os
import platform
import sys
import tempfile
from pathlib import Path

import jax
import jaxlib

SWITCH = "PROBML_CACHE"
OFF = ("0", "off", "no", "false")
MOST = 2**29  # bytes of all files
LEFT = 0.8  # share of them that is left after a clearance
DIGEST = 32  # bytes


def place() -> Path | None:
    """The folder, as the environment and the system say; None: turned off."""
    said = os.environ.get(SWITCH, "").strip()
    if said.lower() in OFF:
        return None
    if said and said != "1":
        base = Path(said).expanduser()
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "probml"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches" / "probml"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "probml"
    return base / f"programs-{_machine()}"


def _machine() -> str:
    """A digest of what compiled code is good for."""
    parts = [jax.__version__, jaxlib.__version__, sys.platform, platform.machine(),
             platform.processor(), os.environ.get("XLA_FLAGS", "")]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        parts += sorted({line for line in lines
                         if line.startswith(("flags", "Features", "model name"))})
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


class Folder:
    """A cache as JAX uses it: key → bytes.

    Raises:
        OSError: it cannot be made, or others may write into it.
    """

    def __init__(self, path: Path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid"):
            found = path.lstat()
            if found.st_uid != os.getuid() or found.st_mode & 0o077:
                raise PermissionError(f"{path} is accessible to other users")
        self._path, self._cleared = path, False

    def get(self, key: str) -> bytes | None:
        """What was put there; None where it is not, or not whole."""
        file = self._path / key
        try:
            held = file.read_bytes()
        except OSError:
            return None
        with contextlib.suppress(OSError):  # a disk that is only read
            os.utime(file)
        digest, value = held[:DIGEST], held[DIGEST:]
        return value if hashlib.sha256(value).digest() == digest else None

    def put(self, key: str, value: bytes) -> None:
        """Keeps it, if the disk lets us."""
        with contextlib.suppress(OSError):
            self._clear()
            handle, name = tempfile.mkstemp(dir=self._path)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(value).digest() + value)
                os.replace(name, self._path / key)
            except OSError:  # no room
                os.unlink(name)
                raise

    def _clear(self) -> None:
        """Once a process, the files used longest ago, where all are too many."""
        if self._cleared:
            return
        self._cleared = True
        files = sorted(((f.stat().st_mtime, f.stat().st_size, f) for f in self._path.iterdir()),
                       key=lambda found: found[:2])
        excess = sum(size for _, size, _ in files) - MOST
        goal = excess + (1 - LEFT) * MOST if excess > 0 else 0
        for _, size, file in files:
            if goal <= 0:
                return
            file.unlink(missing_ok=True)
            goal -= size


def folder() -> Folder | None:
    """The folder, made where it was not; None: turned off, or the user has a cache of JAX's own."""
    if jax.config.jax_compilation_cache_dir or not jax.config.jax_enable_compilation_cache:
        return None
    return _folder()


@functools.cache
def _folder() -> Folder | None:
    path = place()
    if path is None:
        return None
    try:
        return Folder(path)
    except OSError:
        return None
