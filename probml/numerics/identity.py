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
    hasher = hashlib.sha256()
    _feed(hasher, values)
    return hasher.hexdigest()


def _feed(hasher: "hashlib._Hash", value: Any) -> None:
    kind = type(value)
    ours = kind.__module__.partition(".")[0] == "probml"
    if kind is str:
        _put(hasher, "s", value.encode("utf-8", "surrogatepass"))
    elif value is None or value is Ellipsis or kind in (bool, int, range, slice, float, complex):
        _put(hasher, kind.__name__, repr(value).encode())  # signed zeros differ, NaN is itself
    elif kind is bytes:
        _put(hasher, "b", value)
    elif ours and hasattr(kind, "portable"):
        _put(hasher, f"{kind.__module__}.{kind.__qualname__}", value.portable.encode())
    elif isinstance(value, enum.Enum) and ours:
        _put(hasher, f"{kind.__module__}.{kind.__qualname__}", value.name.encode())
    elif isinstance(value, tuple) and (kind is tuple or ours) or kind is list:
        _put(hasher, kind.__qualname__, str(len(value)).encode())
        for item in value:
            _feed(hasher, item)
    elif kind in (set, frozenset):
        _put(hasher, kind.__name__, str(len(value)).encode())
        for item in sorted(map(digest, value)):
            _put(hasher, "", item.encode())
    elif kind in (dict, types.MappingProxyType):
        _put(hasher, "dict", str(len(value)).encode())
        for key, item in value.items():
            _feed(hasher, key)
            _feed(hasher, item)
    elif isinstance(value, np.ndarray | np.generic | jax.Array):
        library, weak, dtype, shape, content = array_value(value)
        _put(hasher, f"{library}{weak}{dtype}{shape}", content)
    elif isinstance(value, jax.tree_util.PyTreeDef):
        _put(hasher, "tree", f"{value.num_leaves},{value.num_nodes}".encode())
        node = value.node_data()  # None: a leaf
        if node is not None:
            _feed(hasher, node)
            for child in value.children():
                _feed(hasher, child)
    elif isinstance(value, np.dtype):
        _put(hasher, "dtype", value.str.encode())
    elif isinstance(getattr(value, "__wrapped__", value), type | types.BuiltinFunctionType
                    | types.FunctionType | types.ModuleType):
        _put(hasher, "named", _named(value).encode())
    elif ours and dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(value)
        _put(hasher, f"{kind.__module__}.{kind.__qualname__}", str(len(fields)).encode())
        for field in fields:
            _feed(hasher, getattr(value, field.name))
    elif ours and getattr(value, "__dict__", None) == {}:  # of no state: its class
        _put(hasher, f"{kind.__module__}.{kind.__qualname__}", b"")
    else:
        raise Nameless(f"{kind.__module__}.{kind.__qualname__}")


def _put(hasher: "hashlib._Hash", tag: str, content: bytes) -> None:
    """One piece, delimited by its length."""
    hasher.update(f"{tag}:{len(content)}:".encode() + content)


def array_value(value: ArrayLike) -> tuple[str, bool, str, tuple[int, ...], bytes]:
    """An array as a value that is equal for equal arrays alone: its library, whether its type is
    weak, dtype, shape and bytes.

    Raises:
        Nameless: it is traced, or holds random keys or objects.
    """
    if isinstance(value, jax.core.Tracer) or jax.dtypes.issubdtype(value.dtype,
                                                                   jax.dtypes.prng_key):
        raise Nameless("a traced array or a random key")
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise Nameless("an array of objects")
    kind = "jax" if isinstance(value, jax.Array) else type(value).__name__
    weak = bool(getattr(value, "weak_type", False))
    return kind, weak, array.dtype.str, array.shape, array.tobytes()


def _named(value: Any) -> str:
    """The name by which a thing of a library is found again."""
    if value is type(None):  # of which types alone holds the name
        return "NoneType"
    if isinstance(value, types.ModuleType):
        if value.__name__.partition(".")[0] not in LIBRARIES:
            raise Nameless(f"module {value.__name__}")
        return value.__name__
    # a handler of NumPyro that decorates a function has what it wraps, and no name
    module = getattr(value, "__module__", None) or "builtins"
    name = getattr(value, "__qualname__", "")
    target: Any = sys.modules.get(module)
    for part in name.split("."):
        target = getattr(target, part, None)
    # under the name of a model's function stands what the decorator made of it
    itself = target is value or getattr(target, "function", None) is value
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
    """The digest of every file of ours. About 20 ms.

    Raises:
        Nameless: a file has changed since this process began, or cannot be read.
    """
    out: dict[str, str] = {}  # a package may lie inside another, or be a link in it
    if time.time() - time.monotonic() < _AHEAD - 1:  # what has changed since may look older
        raise Nameless("the clock was set back since this process started")
    try:
        for package in OURS:
            spec = importlib.util.find_spec(package)
            for top in (spec.submodule_search_locations or ()) if spec else ():
                top = os.path.realpath(top)
                for folder, inner, names in os.walk(top):
                    inner[:] = [name for name in inner if name != "__pycache__"]
                    within = package + folder[len(top):].replace(os.sep, "/")
                    for name in (name for name in names if name.endswith(".py")):
                        path = f"{folder}{os.sep}{name}"
                        out.setdefault(path, f"{within}/{name} {_file_digest(path)}")
    except OSError as error:
        raise Nameless(str(error)) from error
    return sorted(out.values())


def _file_digest(path: str) -> str:
    if os.stat(path).st_mtime > _IMPORTED:
        raise Nameless(f"{path} has changed since this process started")
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
