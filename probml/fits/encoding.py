"""Values as JSON and arrays, and back: numbers, text, lists, dicts, arrays, graphs, and the records
of this package; nothing that is read can run."""

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from probml.errors import ModelError
from probml.numerics.process.libraries import networkx, pd

TYPES = {"float": float, "int": int, "str": str, "bool": bool}
ROOT = "probml."  # whose dataclasses and named tuples a file may name
LIBRARY = "probml.models"

Arrays = dict[str, np.ndarray]
Others = Mapping[str, tuple[type, Callable, Callable]]  # kind → (class, to JSON, from JSON)
NONE: Others = MappingProxyType({})


def packed(value: object, arrays: Arrays, where: str, others: Others = NONE) -> Any:
    """A value as JSON, its arrays put into `arrays`.

    Args:
        where: what it is, for the message.
        others: further kinds: `to JSON` is given the value and `arrays`.

    Raises:
        ModelError: something that a file cannot hold, such as a function.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    for name, (own, pack, _) in others.items():
        if isinstance(value, own):
            return {"kind": name, "value": pack(value, arrays)}
    for name, kind in KINDS.items():
        if kind.holds(value):
            return {"kind": name, **kind.write(value, _Writer(arrays, where, others))}
    raise ModelError(f"save: {where} is a {type(value).__module__}.{type(value).__qualname__}, but "
                     f"a file can contain only numbers, text and arrays. Use pickle or joblib")


def unpacked(value: object, arrays: Mapping[str, np.ndarray], others: Others = NONE) -> Any:
    """What `packed` made JSON of.

    Raises:
        ModelError: a kind that nobody knows.
    """
    if not isinstance(value, dict):
        return value
    name, held = value["kind"], value["value"]
    if name in others:
        return others[name][2](held, arrays)
    if name not in KINDS:
        raise ModelError(f"a saved value has the type {name!r}, which this version of probml "
                         f"cannot read. Load the file with the version that saved it, or a later "
                         f"one")
    return KINDS[name].read(value, _Reader(arrays, others))


class _Writer(NamedTuple):
    """Packs the parts of a value."""

    arrays: Arrays
    where: str
    others: Others

    def one(self, value: object, field: str = "") -> Any:
        return packed(value, self.arrays, self.where + f".{field}" * bool(field), self.others)

    def all(self, values: Iterable) -> list:
        return [self.one(item) for item in values]

    def array(self, values: object) -> dict[str, object]:
        name = f"plain/{len(self.arrays)}"
        self.arrays[name] = np.asarray(values)
        return {"value": name}

    def table(self, table: "pd.DataFrame") -> dict[str, object]:
        return {"index": self.all(table.index), "names": self.all(table.index.names)}


class _Reader(NamedTuple):
    """Unpacks the parts of a value."""

    arrays: Mapping[str, np.ndarray]
    others: Others

    def one(self, value: object) -> Any:
        return unpacked(value, self.arrays, self.others)

    def all(self, values: Iterable) -> list:
        return [self.one(item) for item in values]


def _read_collection(kind: type, entry: dict, read: Any) -> Any:
    return kind(read.all(entry["value"]))


class Kind(NamedTuple):
    """How the values of one kind are written and read: `write` returns the entry, with "value"."""

    holds: Callable[[object], bool]
    write: Callable[[Any, _Writer], dict[str, Any]]
    read: Callable[[Any, _Reader], Any]


def _read_objects(entry: dict, read: _Reader) -> np.ndarray:
    out = np.empty(len(entry["value"]), object)
    out[:] = read.all(entry["value"])
    return out.reshape(entry["shape"])


def _read_range(entry: dict, read: _Reader) -> range:
    found = read.all(entry["value"])
    first, step = [*found[:1], 0][0], found[1] - found[0] if len(found) > 1 else 1
    every = range(first, first + step * len(found), step)
    if len(every) != len(found) or any(a != b for a, b in zip(every, found, strict=True)):
        raise ModelError(f"the file is damaged: the numbers of a range are not equally spaced, "
                         f"{found!r:.60}. Save the fit again")
    return every


def _read_jax(entry: dict, read: _Reader) -> jax.Array:
    import jax.numpy as jnp

    return jnp.asarray(read.arrays[entry["value"]])


def _read_graph(entry: dict, read: _Reader) -> "networkx.Graph":
    graph = getattr(networkx, entry["kind"])()
    graph.add_nodes_from(map(tuple, map(read.all, entry["value"])))
    graph.add_edges_from(map(tuple, map(read.all, entry["edges"])))
    return graph


def _read_table(entry: dict, read: _Reader) -> "pd.DataFrame":
    import pandas

    out = (pandas.DataFrame(read.one(entry["value"])) if entry["kind"] == "frame" else
           pandas.Series(read.all(entry["value"]), name=read.one(entry["name"])))
    if "index" in entry:  # files of earlier versions have none
        index, names = read.all(entry["index"]), read.all(entry["names"])
        out.index = (pandas.MultiIndex.from_tuples(index, names=names) if len(names) > 1
                     else pandas.Index(index, name=names[0]))
    return out


def _read_record(entry: dict, read: _Reader) -> Any:
    found = named(entry["module"], entry["name"])
    # what a module of ours has imported from elsewhere is no record of ours
    if _fields(found) is None or not found.__module__.startswith(ROOT):
        raise ModelError(f"the file contains a value of the class "
                         f"{entry['module']}.{entry['name']}, which is not one of the classes that "
                         f"probml saves. Load only files that were written by save()")
    return found(**{name: read.one(item) for name, item in entry["value"].items()})


def _is_table(value: Any, ndim: int) -> bool:
    return (type(value).__module__.startswith("pandas") and hasattr(value, "to_dict")
            and value.ndim == ndim)


# the first that holds a value writes it
KINDS = {
    "type": Kind(lambda v: isinstance(v, type) and TYPES.get(v.__name__) is v,
                 lambda v, write: {"value": v.__name__},
                 lambda entry, read: TYPES[entry["value"]]),
    "dtype": Kind(lambda v: isinstance(v, np.dtype), lambda v, write: {"value": v.str},
                  lambda entry, read: np.dtype(entry["value"])),
    "objects": Kind(lambda v: isinstance(v, np.ndarray) and v.dtype.hasobject,
                    lambda v, write: {"shape": list(v.shape), "value": write.all(v.ravel())},
                    _read_objects),
    "array": Kind(lambda v: isinstance(v, np.ndarray), lambda v, write: write.array(v),
                  lambda entry, read: read.arrays[entry["value"]]),
    "number": Kind(lambda v: isinstance(v, np.generic), lambda v, write: write.array(v),
                   lambda entry, read: read.arrays[entry["value"]][()]),
    "jax": Kind(lambda v: hasattr(v, "__jax_array__") or type(v).__module__.startswith("jax"),
                lambda v, write: write.array(v), _read_jax),
    "record": Kind(lambda v: (type(v).__module__.startswith(ROOT)
                              and "<" not in type(v).__qualname__
                              and _fields(type(v)) is not None),
                   lambda v, write: {"module": type(v).__module__, "name": type(v).__qualname__,
                                     "value": {name: write.one(getattr(v, name), name)
                                               for name in _fields(type(v)) or ()}},
                   _read_record),
    **{kind.__name__: Kind(lambda v, kind=kind: type(v) is kind,  # type: ignore[misc]
                           lambda v, write: {"value": write.all(v)},
                           partial(_read_collection, kind))
       for kind in (list, tuple, set, frozenset)},
    "range": Kind(lambda v: type(v) is range, lambda v, write: {"value": write.all(v)},
                  _read_range),
    "dict": Kind(lambda v: isinstance(v, Mapping),
                 lambda v, write: {"value": [write.all(item) for item in v.items()]},
                 lambda entry, read: dict(map(read.all, entry["value"]))),
    **{name: Kind(lambda v, name=name: (  # type: ignore[misc]
                      type(v).__module__.startswith("networkx") and type(v).__name__ == name),
                  lambda v, write: {
                      "value": [write.all((n, dict(d))) for n, d in v.nodes.items()],
                      "edges": [write.all((a, b, dict(d))) for (a, b), d in v.edges.items()]},
                  _read_graph) for name in ("Graph", "DiGraph")},
    "series": Kind(lambda v: _is_table(v, 1),
                   lambda v, write: {"name": write.one(v.name), "value": write.all(v.array),
                                     **write.table(v)}, _read_table),
    "frame": Kind(lambda v: _is_table(v, 2),
                  lambda v, write: {"value": write.one(v.to_dict("list")), **write.table(v)},
                  _read_table),
}


def named(module: str, name: str) -> Any:
    """A name of a module of this package; of a public name of the model library its module does
    not matter, as it may have moved since a file was written.

    Raises:
        ModelError: it is none of this package, or not there.
    """
    if not module.startswith(ROOT) or not all(part.isidentifier() for part in module.split(".")):
        raise ModelError(f"the file refers to {module}.{name}, which is not part of probml, and "
                         "load() imports only code of probml, for safety. Load only files that "
                         "save() wrote")
    try:
        library = importlib.import_module(LIBRARY) if module.startswith(LIBRARY) else None
        public = library is not None and name in library.__all__
        found: Any = library if public else importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"the file refers to {module}.{name}, which cannot be imported ({error}). "
                         "Install the version of probml that saved the file") from None
    return found


def _fields(kind: object) -> tuple[str, ...] | None:
    """The fields of a record, which its constructor takes by name; None: it is none."""
    if not isinstance(kind, type):
        return None
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind) if field.init)
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None
