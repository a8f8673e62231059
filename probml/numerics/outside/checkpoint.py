"""Checkpoints of fits: the states of loops, written to a file at intervals, from which a fit
resumes; and atomic writing of files.

The computations around the loops are repeated with the same results: they are functions of model,
data, engine and seed. So a loop is identified by its number within the fit; one that had finished
returns its final state, and one that was running continues from its last iteration. The file is
JSON and arrays, without pickle: reading it executes nothing.
"""

import contextlib
import hashlib
import io
import json
import os
import secrets
import signal
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from probml.errors import DataError, ModelError
from probml.typing import Json


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


FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """The file of a checkpoint and the interval of its writing, see Model.fit.

    Args:
        path: a file, written atomically; it stays after the fit.
        seconds: between two writings; it is also written at the end, and at Ctrl-C and SIGTERM.

    Raises:
        ModelError: no such folder, seconds below 0.

    Cost: a copy of the state of the loop (parameters, draws), not of the rows, each time.
    """

    path: str | os.PathLike
    seconds: float = 30.0

    def __post_init__(self):
        own = self.seconds
        if isinstance(own, bool) or not isinstance(own, int | float) or not own >= 0:
            raise ModelError(f"Checkpoint(seconds={own!r}): expected the seconds between two "
                             f"writes, a number of at least 0")
        if not isinstance(self.path, str | os.PathLike):
            raise ModelError(f"Checkpoint(path={self.path!r}): expected the name of a file")
        if not Path(self.path).parent.is_dir():
            raise ModelError(f"Checkpoint(path={str(self.path)!r}): the folder "
                             f"'{Path(self.path).parent}' does not exist. Create the folder first, "
                             f"or give another path")


class LoopState(NamedTuple):
    """The state of a loop after an iteration: the number of iterations, its status (0: running),
    the objective, and its variables, as containers of arrays."""

    done: int
    status: int
    value: float
    held: Any

    def counted(self, limit: int) -> int:
        """The number of iterations, checked.

        Raises:
            ValueError: more than `limit` + 1, in a damaged file.
        """
        if self.done > limit + 1:
            raise ValueError(f"{self.done} iterations of {limit}")
        return self.done


class GrowingList(NamedTuple):
    """The form of a list to which a loop appends at each iteration: arrays of a shape, alone or by
    name. None in the shape is any length above 0, the same in all arrays of an iteration.

    Args:
        more: by how much the total length, or the number of entries where the shape has no None,
            exceeds the number of iterations; None: not checked.
    """

    shape: tuple[int | None, ...] | Mapping[str, tuple[int | None, ...]]
    more: int | None = None

    def check(self, entries: object, done: int, where: str) -> None:
        """
        Raises:
            ValueError: entries of another form, in a damaged file.
        """
        if not isinstance(entries, list) or (done > 0 and not entries):
            raise ValueError(f"the checkpoint contains {entries!r:.60} in {where}, expected a list "
                             f"with the values of {done} iterations")
        long = sum(self._length(entry, where) for entry in entries)
        if self.more is not None and long != done + self.more:
            raise ValueError(f"{where} has length {long} after {done} iterations, expected "
                             f"{done + self.more}")

    def _length(self, entry: Any, where: str) -> int:
        named = isinstance(self.shape, Mapping)
        if named != isinstance(entry, Mapping) or named and set(entry) != set(self.shape):
            raise ValueError(f"{where} contains {entry!r:.60} as the values of an iteration")
        parts = [(self.shape[name], value) for name, value in entry.items()] if isinstance(
            self.shape, Mapping) else [(self.shape, entry)]
        lengths = set()
        for shape, value in parts:
            own = np.shape(value)
            if np.asarray(value).dtype.kind not in "biuf" or len(own) != len(shape) or any(
                    size != wanted and wanted is not None or size == 0
                    for size, wanted in zip(own, shape, strict=True)):
                raise ValueError(f"{where} has an iteration with shape {own}, expected {shape}")
            lengths |= {size for size, wanted in zip(own, shape, strict=True) if wanted is None}
        if len(lengths) > 1:
            raise ValueError(f"{where} has an iteration with arrays of different lengths, "
                             f"{sorted(lengths)}")
        return lengths.pop() if lengths else 1


def check_same_form(own: Any, other: Any, where: str) -> None:
    """Check that the variables of a loop in a file have the names, dtypes and shapes of those
    before its first iteration; lists that grow are empty there, and finished runs have been dropped
    from the arrays of runs.

    Raises:
        ValueError: they differ.
    """
    if isinstance(own, Mapping):
        if not isinstance(other, Mapping) or set(own) != set(other):
            raise ValueError(f"{where} has the entries {list(other)!r:.200}, expected {list(own)}")
        for name, value in own.items():
            check_same_form(value, other[name], f"{where}, '{name}'")
    elif isinstance(own, list):
        if not isinstance(other, list):
            raise ValueError(f"{where} is {other!r:.60}, expected a list")
        grows = all(np.ndim(value) == 0 for value in own)
        if not grows and len(own) != len(other):
            raise ValueError(f"{where} has {len(other)} arrays, expected {len(own)}")
        left: dict[tuple[int, ...], tuple[int, ...]] = {}  # runs, the same in all arrays
        for i, (value, found) in enumerate(zip(own, other, strict=False)):
            check_same_form(value, found, f"{where}, {i}")
            first = np.shape(value)[:1]
            if left.setdefault(first, np.shape(found)[:1]) != np.shape(found)[:1]:
                raise ValueError(f"{where}, array {i} has {np.shape(found)[0]} runs, but another "
                                 f"array has {left[first]}")
    elif own is not None:
        here, there = (_form(value) for value in (own, other))
        if here[:2] != there[:2] or any(not min(a, 1) <= b <= a
                                        for a, b in zip(here[2], there[2], strict=True)):
            raise ValueError(f"{where} is {there}, expected {here}")


def _form(value: Any) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """(kind of dtype, sizes of the axes but the first, size of the first)."""
    kind = "key" if isinstance(value, jax.Array) and jax.dtypes.issubdtype(
        value.dtype, jax.dtypes.prng_key) else np.asarray(value).dtype.kind
    shape = np.shape(value)
    return kind, (len(shape), *shape[1:]), shape[:1]


class Journal:
    """The loop states of one fit, in the order of its loops; used as a context manager.

    Args:
        of: the identity of the fit: kind ("model", "data", ...) → description. The file of another
            fit is refused.
        every: of a fit of several processes, returns the contents of the files of all, given those
            of this one: all resume from the latest, since they must make the same iterations.
    """

    def __init__(self, checkpoint: Checkpoint, of: Mapping[str, str],
                 every: Callable[[bytes | None], Sequence[bytes | None]] = lambda own: [own]):
        self.path, self.seconds, self.of = Path(checkpoint.path), checkpoint.seconds, dict(of)
        self._lock, self._saved, self._count = threading.RLock(), time.monotonic(), 0
        found = [self._read(content) for content
                 in every(self.path.read_bytes() if self.path.exists() else None)
                 if content is not None]
        self._pasts: dict[str, LoopState] = max(found, default={}, key=lambda pasts: sum(
            past.done for past in pasts.values()))
        self._before: Any = None

    def __enter__(self) -> "Journal":
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._before = signal.signal(signal.SIGTERM, _ended)
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
        if self._pasts or kind is None:
            self.save()

    def section(self, title: str) -> str:
        """The name of the next loop, or of several simultaneous ones."""
        with self._lock:
            self._count += 1
            return f"{self._count} {title}"

    def past(self, key: str) -> LoopState | None:
        """The state of a loop in the file; None: it had not begun."""
        return self._pasts.get(key)

    def note(self, key: str, past: LoopState) -> None:
        """Record the state of a loop after an iteration; write it if it is time."""
        with self._lock:
            self._pasts[key] = past
            if time.monotonic() - self._saved >= self.seconds:
                self.save()

    def save(self) -> None:
        """Write the recorded states."""
        with self._lock:
            arrays: list[np.ndarray] = []
            loops = {key: [past.done, past.status, past.value, _packed(past.held, arrays)]
                     for key, past in self._pasts.items()}
            meta = {"probml checkpoint": FORMAT, "of": self.of, "loops": loops}
            meta["sum"] = _digest(meta, arrays)
            buffer = io.BytesIO()
            np.savez(buffer, np.frombuffer(json.dumps(meta).encode(), np.uint8), *arrays)
            with replacing(self.path) as temporary:
                Path(temporary).write_bytes(buffer.getvalue())
            self._saved = time.monotonic()

    def _read(self, content: bytes) -> dict[str, LoopState]:
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as packed:
                long = sum(member.file_size for member in packed.infolist())
            if long > len(content):
                raise ValueError(f"the file has {len(content):,} bytes that unpack to {long:,} "
                                 f"bytes, but checkpoints are not compressed")
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                arrays = [file[f"arr_{i}"] for i in range(len(file.files))]
            meta = json.loads(arrays[0].tobytes())
            form, of, loops = meta["probml checkpoint"], dict(meta["of"]), dict(meta["loops"])
            if meta.pop("sum") != _digest(meta, arrays[1:]):
                raise ValueError("the content differs from what was written, so the file is "
                                 "damaged")
            arrays = [array.astype(array.dtype.newbyteorder("="), copy=False) for array in arrays]
            pasts = {key: LoopState(_to_count(done), _to_count(status), float(value),
                                    _unpacked(held, arrays))
                     for key, (done, status, value, held) in loops.items()}
        except Exception as error:
            raise ModelError(f"'{self.path}' is not a checkpoint of probml: {error}. Give another "
                             f"path, or delete the file") from None
        if form != FORMAT:
            raise ModelError(f"the checkpoint '{self.path}' was written by another version of "
                             f"probml (format {form}, expected {FORMAT}). Give another path, or "
                             f"delete the checkpoint")
        for kind, own in self.of.items():
            if of.get(kind) != own:
                wrong = DataError if kind == "data" else ModelError
                raise wrong(f"the checkpoint '{self.path}' belongs to a fit with another {kind}: "
                            f"{of.get(kind)} in the checkpoint, {own} in this fit. Give another "
                            f"path, or delete the checkpoint")
        return pasts


def _digest(meta: Json, arrays: Sequence[np.ndarray]) -> str:
    """The digest of metadata and arrays, by which a damaged file is detected."""
    into = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for array in arrays:
        into.update(f"{array.dtype.str}{array.shape}".encode())
        into.update(np.ascontiguousarray(array).data)
    return into.hexdigest()


def _to_count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise ValueError(f"the checkpoint contains {value!r:.60} where a count is expected")
    return value


def _ended(*_: object) -> None:
    """The handler of SIGTERM: exits the interpreter as at Ctrl-C, through every `with`."""
    raise SystemExit(128 + signal.SIGTERM)


def _packed(held: object, arrays: list[np.ndarray]) -> Any:
    """Containers as JSON, their arrays by number from 1 on."""
    if held is None or isinstance(held, bool | int | float | str):
        return held
    if isinstance(held, Mapping):
        return {"map": {name: _packed(value, arrays) for name, value in held.items()}}
    if isinstance(held, list | tuple):
        return [_packed(value, arrays) for value in held]
    if isinstance(held, jax.Array) and jax.dtypes.issubdtype(held.dtype, jax.dtypes.prng_key):
        arrays.append(np.asarray(jax.random.key_data(held)))
        return {"key": len(arrays), "kind": str(jax.random.key_impl(held))}
    arrays.append(np.asarray(held))
    return {"array": len(arrays)}


def _unpacked(held: object, arrays: list[np.ndarray]) -> Any:
    if isinstance(held, list):
        return [_unpacked(value, arrays) for value in held]
    if not isinstance(held, dict):
        return held
    if "map" in held:
        return {name: _unpacked(value, arrays) for name, value in held["map"].items()}
    if "key" in held:
        return jax.random.wrap_key_data(arrays[held["key"]], impl=held["kind"])
    return arrays[held["array"]]
