"""Checkpoints of fits: the states of loops, written to a file at intervals, from which a fit
resumes.

The computations around the loops are repeated with the same results: they are functions of model,
data, engine and seed. So a loop is identified by its number within the fit; one that had finished
returns its final state, and one that was running continues from its last iteration. The file is
JSON and arrays, without pickle: reading it executes nothing.
"""

import hashlib
import io
import json
import os
import signal
import threading
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from probml.errors import DataError, ModelError
from probml.numerics.outside.atomic import replacing
from probml.typing import Json

FORMAT = 2


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
        seconds = self.seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
            raise ModelError(f"Checkpoint(seconds={seconds!r}): expected the seconds between two "
                             f"writes, a number of at least 0")
        if not isinstance(self.path, str | os.PathLike):
            raise ModelError(f"Checkpoint(path={self.path!r}): expected the name of a file, such "
                             "as 'fit.checkpoint'")
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
    variables: Any


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
        saved = [self._read(content) for content
                 in every(self.path.read_bytes() if self.path.exists() else None)
                 if content is not None]
        self._pasts: dict[str, LoopState] = max(saved, default={}, key=lambda pasts: sum(
            past.done for past in pasts.values()))
        self._previous: Any = None

    def __enter__(self) -> "Journal":
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._previous = signal.signal(signal.SIGTERM, _ended)
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGTERM, self._previous)
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

    def note(self, key: str, state: LoopState) -> None:
        """Record the state of a loop after an iteration; write it if it is time."""
        with self._lock:
            self._pasts[key] = state
            if time.monotonic() - self._saved >= self.seconds:
                self.save()

    def save(self) -> None:
        """Write the recorded states."""
        with self._lock:
            arrays: list[np.ndarray] = []
            loops = {key: [state.done, state.status, state.value, _packed(state.variables, arrays)]
                     for key, state in self._pasts.items()}
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
                unpacked = sum(member.file_size for member in packed.infolist())
            if unpacked > len(content):
                raise ValueError(f"it is compressed ({len(content):,} bytes that unpack to "
                                 f"{unpacked:,}), but checkpoints of probml are not")
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                arrays = [file[f"arr_{i}"] for i in range(len(file.files))]
            meta = json.loads(arrays[0].tobytes())
            version, owner, loops = meta["probml checkpoint"], dict(meta["of"]), dict(meta["loops"])
            if meta.pop("sum") != _digest(meta, arrays[1:]):
                raise ValueError("its content differs from what was written (damaged)")
            arrays = [array.astype(array.dtype.newbyteorder("="), copy=False) for array in arrays]
            pasts = {key: LoopState(done, status, value, _unpacked(variables, arrays))
                     for key, (done, status, value, variables) in loops.items()}
        except Exception as error:
            raise ModelError(f"the file '{self.path}' cannot be read as a checkpoint: {error}. "
                             f"Give another path, or delete the file") from None
        if version != FORMAT:
            raise ModelError(f"the checkpoint '{self.path}' was written by another version of "
                             f"probml (format {version}, expected {FORMAT}). Give another path, or "
                             f"delete the checkpoint")
        for kind, own in self.of.items():
            if owner.get(kind) != own:
                wrong = DataError if kind == "data" else ModelError
                raise wrong(f"the checkpoint '{self.path}' belongs to another fit. Different "
                            f"{kind}: {owner.get(kind)} in the checkpoint, {own} in this fit. Give "
                            f"another path, or delete the checkpoint")
        return pasts


def _digest(meta: Json, arrays: Sequence[np.ndarray]) -> str:
    """The digest of metadata and arrays, by which a damaged file is detected."""
    hasher = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for array in arrays:
        hasher.update(f"{array.dtype.str}{array.shape}".encode())
        hasher.update(np.ascontiguousarray(array).data)
    return hasher.hexdigest()


def _ended(*_: object) -> None:
    """The handler of SIGTERM: exits the interpreter as at Ctrl-C, through every `with`."""
    raise SystemExit(128 + signal.SIGTERM)


def _packed(tree: object, arrays: list[np.ndarray]) -> Any:
    """Containers as JSON, their arrays by number from 1 on."""
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, Mapping):
        return {"map": {name: _packed(value, arrays) for name, value in tree.items()}}
    if isinstance(tree, list | tuple):
        return [_packed(value, arrays) for value in tree]
    if isinstance(tree, jax.Array) and jax.dtypes.issubdtype(tree.dtype, jax.dtypes.prng_key):
        arrays.append(np.asarray(jax.random.key_data(tree)))
        return {"key": len(arrays), "kind": str(jax.random.key_impl(tree))}
    arrays.append(np.asarray(tree))
    return {"array": len(arrays)}


def _unpacked(tree: object, arrays: list[np.ndarray]) -> Any:
    if isinstance(tree, list):
        return [_unpacked(value, arrays) for value in tree]
    if not isinstance(tree, dict):
        return tree
    if "map" in tree:
        return {name: _unpacked(value, arrays) for name, value in tree["map"].items()}
    if "key" in tree:
        return jax.random.wrap_key_data(arrays[tree["key"]], impl=tree["kind"])
    return arrays[tree["array"]]
