"""Values as JSON and arrays, and back: numbers, text, lists, dicts, arrays, graphs, and the records
of this package; nothing that is read can run."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from probml.errors import ModelError

TYPES = {"float": float, "int": int, "str": str, "bool": bool}
ROOT = "probml."  # whose dataclasses and named tuples a file may name
LIBRARY = "probml.models"

Arrays = dict[str, np.ndarray]
Others = Mapping[str, tuple[type, Callable, Callable]]  # kind → (class, to JSON, from JSON)
NONE: Others = MappingProxyType({})


def packed(value: Any, arrays: Arrays, where: str, others: Others = NONE) -> Any:
    """A value as JSON, its arrays put into `arrays`.

    Args:
        where: what it is, for the message.
        others: further kinds: `to JSON` is given the value and `arrays`.

    Raises:
        ModelError: something that a file cannot hold, such as a function.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    for kind, (own, pack, _) in others.items():
        if isinstance(value, own):
            return {"kind": kind, "value": pack(value, arrays)}

    def pack_all(values: Any) -> list:
        return [packed(item, arrays, where, others) for item in values]

    def array(kind: str, of: np.ndarray) -> dict[str, Any]:
        name = f"plain/{len(arrays)}"
        arrays[name] = of
        return {"kind": kind, "value": name}

    if isinstance(value, type) and TYPES.get(value.__name__) is value:
        return {"kind": "type", "value": value.__name__}
    if isinstance(value, np.dtype):
        return {"kind": "dtype", "value": value.str}
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return {"kind": "objects", "shape": list(value.shape), "value": pack_all(value.ravel())}
    if isinstance(value, np.ndarray | np.generic):
        return array("array" if isinstance(value, np.ndarray) else "number", np.asarray(value))
    if hasattr(value, "__jax_array__") or type(value).__module__.startswith("jax"):
        return array("jax", np.asarray(value))
    kind = type(value)
    if kind.__module__.startswith(ROOT) and "<" not in kind.__qualname__:
        fields = _fields(kind)
        if fields is not None:
            return {"kind": "record", "module": kind.__module__, "name": kind.__qualname__,
                    "value": {name: packed(getattr(value, name), arrays, f"{where}.{name}", others)
                              for name in fields}}
    if kind in (list, tuple, set, frozenset, range):
        return {"kind": kind.__name__, "value": pack_all(value)}
    if isinstance(value, Mapping):
        return {"kind": "dict", "value": [pack_all(item) for item in value.items()]}
    if kind.__module__.startswith("networkx") and hasattr(value, "edges"):
        return {"kind": kind.__name__,
                "value": [pack_all((n, dict(d))) for n, d in value.nodes.items()],
                "edges": [pack_all((a, b, dict(d))) for (a, b), d in value.edges.items()]}
    if kind.__module__.startswith("pandas") and hasattr(value, "to_dict"):
        index = {"index": pack_all(value.index), "names": pack_all(value.index.names)}
        if value.ndim == 1:
            return {"kind": "series", "name": packed(value.name, arrays, where, others),
                    "value": pack_all(value.array), **index}
        return {"kind": "frame", "value": packed(value.to_dict("list"), arrays, where, others),
                **index}
    raise ModelError(f"save: {where} is a {kind.__module__}.{kind.__qualname__}, which a file of "
                     f"numbers and text cannot hold: use pickle or joblib")


def unpacked(value: Any, arrays: Mapping[str, np.ndarray], others: Others = NONE) -> Any:
    """What `packed` made JSON of.

    Raises:
        ModelError: a kind that nobody knows.
    """
    if not isinstance(value, dict):
        return value
    kind, held = value["kind"], value["value"]

    def unpack_all(values: Any) -> list:
        return [unpacked(item, arrays, others) for item in values]

    if kind in others:
        return others[kind][2](held, arrays)
    if kind in ("array", "number"):
        return arrays[held] if kind == "array" else arrays[held][()]
    if kind == "objects":
        out = np.empty(len(held), object)
        out[:] = unpack_all(held)
        return out.reshape(value["shape"])
    if kind in ("list", "tuple", "set", "frozenset"):
        return {"list": list, "tuple": tuple, "set": set,
                "frozenset": frozenset}[kind](unpack_all(held))
    if kind == "range":
        found = unpack_all(held)
        first, step = [*found[:1], 0][0], found[1] - found[0] if len(found) > 1 else 1
        every = range(first, first + step * len(found), step)
        if len(every) != len(found) or any(a != b for a, b in zip(every, found, strict=True)):
            raise ModelError(f"a range that is none: {found!r:.60}")
        return every
    if kind == "dict":
        return {key: item for key, item in map(unpack_all, held)}
    if kind == "type":
        return TYPES[held]
    if kind == "dtype":
        return np.dtype(held)
    if kind == "jax":
        import jax.numpy as jnp

        return jnp.asarray(arrays[held])
    if kind in ("Graph", "DiGraph"):
        import networkx

        graph = getattr(networkx, kind)()
        graph.add_nodes_from(map(tuple, map(unpack_all, held)))
        graph.add_edges_from(map(tuple, map(unpack_all, value["edges"])))
        return graph
    if kind in ("frame", "series"):
        import pandas

        out = (pandas.DataFrame(unpacked(held, arrays, others)) if kind == "frame" else
               pandas.Series(unpack_all(held), name=unpacked(value["name"], arrays, others)))
        if "index" in value:  # files of earlier versions have none
            index, names = unpack_all(value["index"]), unpack_all(value["names"])
            out.index = (pandas.MultiIndex.from_tuples(index, names=names) if len(names) > 1
                         else pandas.Index(index, name=names[0]))
        return out
    if kind == "record":
        found = named(value["module"], value["name"])
        # what a module of ours has imported from elsewhere is no record of ours
        if _fields(found) is None or not found.__module__.startswith(ROOT):
            raise ModelError(f"{value['module']}.{value['name']} is no record")
        return found(**{name: unpacked(item, arrays, others) for name, item in held.items()})
    raise ModelError(f"a value of the kind {kind!r} is unknown here")


def named(module: str, name: str) -> Any:
    """A name of a module of this package; of a public name of the model library its module does
    not matter, as it may have moved since a file was written.

    Raises:
        ModelError: it is none of this package, or not there.
    """
    if not module.startswith(ROOT) or not all(part.isidentifier() for part in module.split(".")):
        raise ModelError(f"{module}.{name} is no name of probml")
    try:
        library = importlib.import_module(LIBRARY) if module.startswith(LIBRARY) else None
        public = library is not None and name in library.__all__
        found: Any = library if public else importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"{module}.{name} is not there: {error}") from None
    return found


def _fields(kind: Any) -> tuple[str, ...] | None:
    """The fields of a record, which its constructor takes by name; None: it is none."""
    if not isinstance(kind, type):
        return None
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind) if field.init)
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None
