"""A cache of compiled programs on disk, shared by processes.

JAX has such a cache, off by default, of programs that compile for more than a second. If the user
has not set it, our programs are stored in a folder of the user's cache: `PROBML_CACHE=0` turns this
off, `PROBML_CACHE=/a/folder` sets another folder.

Compiled programs are executed. The folder is therefore used only if it belongs to the user and is
closed to others (0700). A file is written under a temporary name and renamed, and is read only if
its digest matches. Each version of JAX and each processor has its own folder. Above MAX_BYTES
the least recently used files are removed.
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
MAX_BYTES = 2**29  # bytes of all files
RETAINED_SHARE = 0.8  # of MAX_BYTES, after files were removed
DIGEST_BYTES = 32  # bytes


def cache_folder() -> Path | None:
    """Returns the path of the cache folder, by environment variables and platform; None if it is
    turned off."""
    setting = os.environ.get(SWITCH, "").strip()
    if setting.lower() in OFF:
        return None
    if setting and setting != "1":
        base = Path(setting).expanduser()
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "probml"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches" / "probml"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "probml"
    return base / f"programs-{_machine()}"


def _machine() -> str:
    """Returns a digest of versions, platform and processor, for which compiled code is valid."""
    parts = [jax.__version__, jaxlib.__version__, sys.platform, platform.machine(),
             platform.processor(), os.environ.get("XLA_FLAGS", "")]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        parts += sorted({line for line in lines
                         if line.startswith(("flags", "Features", "model name"))})
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


class Folder:
    """A cache of files, key → bytes.

    Raises:
        OSError: the folder cannot be created, or other users can access it.
    """

    def __init__(self, path: Path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid"):
            status = path.lstat()
            if status.st_uid != os.getuid() or status.st_mode & 0o077:
                raise PermissionError(f"the folder {path} is accessible to other users, who could "
                                      f"change the files in it. Run chmod 700 {path}")
        self._path, self._cleared = path, False

    def get(self, key: str) -> bytes | None:
        """Returns the value of a key; None if it is missing or damaged."""
        file = self._path / key
        try:
            content = file.read_bytes()
        except OSError:
            return None
        with contextlib.suppress(OSError):  # a read-only disk
            os.utime(file)
        digest, value = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
        return value if hashlib.sha256(value).digest() == digest else None

    def put(self, key: str, value: bytes) -> None:
        """Stores a value, if the disk allows it."""
        with contextlib.suppress(OSError):
            self._evict()
            handle, name = tempfile.mkstemp(dir=self._path)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(value).digest() + value)
                os.replace(name, self._path / key)
            except OSError:  # no room
                os.unlink(name)
                raise

    def _evict(self) -> None:
        """Removes the least recently used files if the folder is too large, once a process."""
        if self._cleared:
            return
        self._cleared = True
        files = sorted(((f.stat().st_mtime, f.stat().st_size, f) for f in self._path.iterdir()),
                       key=lambda found: found[:2])
        excess = sum(size for _, size, _ in files) - MAX_BYTES
        to_free = excess + (1 - RETAINED_SHARE) * MAX_BYTES if excess > 0 else 0
        for _, size, file in files:
            if to_free <= 0:
                return
            file.unlink(missing_ok=True)
            to_free -= size


def folder() -> Folder | None:
    """Returns the cache folder, created if needed; None if it is turned off or the user has
    configured JAX's own cache."""
    if jax.config.jax_compilation_cache_dir or not jax.config.jax_enable_compilation_cache:
        return None
    return _folder()


@functools.cache
def _folder() -> Folder | None:
    path = cache_folder()
    if path is None:
        return None
    try:
        return Folder(path)
    except OSError:
        return None
