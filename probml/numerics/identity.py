"""Digests of values that are the same in every process: equal values have equal digests, different
values different ones.

They are the keys of compiled programs cached on disk, so a digest covers everything that a program
depends on. Values that cannot be read have no digest: user functions that
language/fingerprint.py cannot read, objects of user classes, random keys on the device. Functions
and classes of libraries are identified by name; the versions of those libraries and the whole
source of probml are part of `surroundings`.
"""

import dataclasses
import enum
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

# packages whose modules, functions and classes nobody changes while a process runs
LIBRARIES = frozenset(
    {"jax", "jaxlib", "numpy", "numpyro", "optax", "probml", "scipy", "builtins", "collections",
     "contextlib", "functools", "itertools", "math", "operator", "typing"}
)  # fmt: skip
VERSIONED = ("jax", "jaxlib", "numpy", "numpyro", "optax", "scipy")
OURS = ("probml", "probml.models")
_IMPORTED = time.time()
_AHEAD = _IMPORTED - time.monotonic()  # of the clock that files are stamped by


class Nameless(Exception):
    """Something has no value that another process could know it by."""


def digest(*values: object) -> str:
    """The digest of some values, in hexadecimal digits.

    Plain values, arrays, enumerations, containers, shapes of trees, what libraries hold by name,
    and our own frozen dataclasses by their fields; or by their property `portable`, where they have
    one.

    Raises:
        Nameless: one of them, or a part of it, is none of these.
    """
    into = hashlib.sha256()
    _feed(into, values)
    return into.hexdigest()


def _feed(into: "hashlib._Hash", value: Any) -> None:
    kind = type(value)
    ours = kind.__module__.partition(".")[0] == "probml"
    if kind is str:
        _put(into, "s", value.encode("utf-8", "surrogatepass"))
    elif value is None or value is Ellipsis or kind in (bool, int, range, slice):
        _put(into, kind.__name__, repr(value).encode())
    elif kind in (float, complex):
        _put(into, kind.__name__, repr(value).encode())  # signed zeros differ, NaN is itself
    elif kind is bytes:
        _put(into, "b", value)
    elif ours and hasattr(kind, "portable"):
        _put(into, f"{kind.__module__}.{kind.__qualname__}", value.portable.encode())
    elif isinstance(value, enum.Enum) and ours:
        _put(into, f"{kind.__module__}.{kind.__qualname__}", value.name.encode())
    elif isinstance(value, tuple) and (kind is tuple or ours) or kind is list:
        _put(into, kind.__qualname__, str(len(value)).encode())
        for item in value:
            _feed(into, item)
    elif kind in (set, frozenset):
        _put(into, kind.__name__, str(len(value)).encode())
        for item in sorted(map(digest, value)):
            _put(into, "", item.encode())
    elif kind in (dict, types.MappingProxyType):
        _put(into, "dict", str(len(value)).encode())
        for key, item in value.items():
            _feed(into, key)
            _feed(into, item)
    elif isinstance(value, np.ndarray | np.generic | jax.Array):
        _array(into, value)
    elif isinstance(value, jax.tree_util.PyTreeDef):
        _put(into, "tree", f"{value.num_leaves},{value.num_nodes}".encode())
        node = value.node_data()  # None: a leaf
        if node is not None:
            _feed(into, node)
            for child in value.children():
                _feed(into, child)
    elif isinstance(value, np.dtype):
        _put(into, "dtype", value.str.encode())
    elif isinstance(getattr(value, "__wrapped__", value), type | types.BuiltinFunctionType
                    | types.FunctionType | types.ModuleType):
        _put(into, "named", _named(value).encode())
    elif ours and dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(value)
        _put(into, f"{kind.__module__}.{kind.__qualname__}", str(len(fields)).encode())
        for field in fields:
            _feed(into, getattr(value, field.name))
    elif ours and getattr(value, "__dict__", None) == {}:  # of no state: its class
        _put(into, f"{kind.__module__}.{kind.__qualname__}", b"")
    else:
        raise Nameless(f"{kind.__module__}.{kind.__qualname__}")


def _put(into: "hashlib._Hash", tag: str, content: bytes) -> None:
    """One piece, delimited by its length."""
    into.update(f"{tag}:{len(content)}:".encode())
    into.update(content)  # not in one piece: it may be long


def _array(into: "hashlib._Hash", value: ArrayLike) -> None:
    if isinstance(value, jax.core.Tracer) or jax.dtypes.issubdtype(value.dtype,
                                                                   jax.dtypes.prng_key):
        raise Nameless("a traced array or a random key")
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise Nameless("an array of objects")
    weak = bool(getattr(value, "weak_type", False))
    kind = "jax" if isinstance(value, jax.Array) else type(value).__name__
    _put(into, f"{kind}{weak}{array.dtype.str}{array.shape}", array.tobytes())


def _named(value: Any) -> str:
    """By which name a thing of a library is found again."""
    if value is type(None):  # of which types alone holds the name
        return "NoneType"
    if isinstance(value, types.ModuleType):
        if value.__name__.partition(".")[0] not in LIBRARIES:
            raise Nameless(f"module {value.__name__}")
        return value.__name__
    module, name = getattr(value, "__module__", None) or "builtins", value.__qualname__
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    # under the name of a model's function stands what the decorator made of it
    itself = found is value or getattr(found, "function", None) is value
    if not itself or module.partition(".")[0] not in LIBRARIES:
        raise Nameless(f"{module}.{name}")
    return f"{module}.{name}"


@functools.cache
def surroundings() -> str:
    """The digest of what all programs depend on: versions of libraries and our own code.

    Raises:
        Nameless: a file of ours has changed since it was imported, or cannot be read.
    """
    versions = [f"{name} {importlib.metadata.version(name)}" for name in VERSIONED
                if importlib.util.find_spec(name) is not None]
    return digest(sys.version, sys.flags.optimize, os.cpu_count(), versions, _source())


def _source() -> list[str]:
    """The digest of every file of ours. About 20 ms."""
    out, seen = [], set()
    if time.time() - time.monotonic() < _AHEAD - 1:  # what has changed since may look older
        raise Nameless("the clock was set back since this process started")
    try:
        for package in OURS:
            spec = importlib.util.find_spec(package)
            for top in (spec.submodule_search_locations or ()) if spec else ():
                for folder, within in _folders(os.path.realpath(top), package):
                    if folder not in seen:  # a package may lie inside another, or be a link in it
                        seen.add(folder)
                        out += _digests(folder, within)
    except OSError as error:
        raise Nameless(str(error)) from error
    return sorted(out)


def _folders(top: str, name: str) -> Iterator[tuple[str, str]]:
    """A folder and those in it, but for links, with their names in a package."""
    yield top, name
    with os.scandir(top) as entries:
        inner = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)
                 and entry.name != "__pycache__"]
    for each in inner:
        yield from _folders(os.path.join(top, each), f"{name}/{each}")


def _digests(folder: str, name: str) -> Iterator[str]:
    """
    Raises:
        Nameless: a file has changed since this process began.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith(".py"):
                continue
            if entry.stat().st_mtime > _IMPORTED:
                raise Nameless(f"{entry.path} has changed since this process started")
            content = Path(entry.path).read_bytes()
            yield f"{name}/{entry.name} {hashlib.sha256(content).hexdigest()}"
