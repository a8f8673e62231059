"""Settings of a model as values that compare and hash: frozen for the key of a program, thawed for
the function."""

import dataclasses
import sys
from collections.abc import Hashable, Mapping
from typing import Any

import jax
import numpy as np

from probml.errors import ModelError, counted, shortly, type_of
from probml.numerics.process.inline_calls import evaluated
from probml.numerics.process.libraries import networkx


class _Frozen(tuple):
    """A frozen mutable setting: (kind, content), hashable, thawed before the function sees it."""


def freeze(value: object, name: str = "setting") -> Hashable:
    """A hashable twin of a setting: arrays become bytes, dicts and lists tuples, graphs their nodes
    and edges, dataclasses and named tuples their fields."""
    if isinstance(value, np.ndarray) or (hasattr(value, "__array__") and hasattr(value, "shape")
                                         and not np.isscalar(value)):
        if name in getattr(value, "columns", ()):
            raise ModelError(f"setting '{name}' is a table that has a column '{name}'. A table is "
                             "data: give it to fit, model().fit(table)")
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise ModelError(f"setting '{name}' is an array of Python objects, which cannot be "
                             f"stored in a model. Pass an array of numbers, or a list")
        return _Frozen(("jax" if isinstance(value, jax.Array) else "array", array.dtype.str,
                        array.shape, array.tobytes()))
    # nobody holds a graph who has not imported it
    if "networkx" in sys.modules and isinstance(value, networkx.Graph):
        kind = type(value).__name__
        nodes = tuple((node, freeze(dict(data), name)) for node, data in value.nodes(data=True))
        edges = tuple((a, b, freeze(dict(data), name)) for a, b, data in value.edges(data=True))
        return _Frozen((kind, nodes, edges))
    if isinstance(value, Mapping):
        # in their order, which a function may count on, as Python lets it
        return _Frozen(("dict", tuple((key, freeze(item, name)) for key, item in value.items())))
    if (fields := fields_of(value)) is not None:
        return _Frozen(("record", type(value), tuple(
            (field, freeze(getattr(value, field), name)) for field in fields)))
    if isinstance(value, list | tuple):
        return _Frozen((type(value).__name__, tuple(freeze(item, name) for item in value)))
    if isinstance(value, set | frozenset):
        return _Frozen(("set", tuple(sorted((freeze(item, name) for item in value), key=repr))))
    try:
        hash(value)
    except TypeError:
        raise ModelError(
            f"setting '{name}' is {type_of(value)}, which cannot be stored in a model. Pass "
            "numbers, strings, arrays, lists, dicts, dataclasses or networkx graphs"
        ) from None
    # the type too: 1, 1.0 and True are equal in Python
    return _Frozen(("plain", type(value).__name__, value))


def fields_of(value: object) -> list[str] | None:
    """The fields that make an instance of a dataclass or a named tuple; None of any other value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [field.name for field in dataclasses.fields(value) if field.init]
    return list(value._fields) if isinstance(value, tuple) and hasattr(value, "_fields") else None


def thaw(value: object) -> Any:
    """The setting that `freeze` froze."""
    if not isinstance(value, _Frozen):
        return value
    kind = value[0]
    if kind == "plain":
        return value[2]
    if kind in ("array", "jax"):
        array = np.frombuffer(value[3], dtype=np.dtype(value[1])).reshape(value[2])
        if kind == "array":
            return array
        with evaluated():  # a concrete array also inside a trace
            return jax.numpy.asarray(array)
    if kind in ("Graph", "DiGraph"):
        graph = getattr(networkx, kind)()
        graph.add_nodes_from((node, thaw(data)) for node, data in value[1])
        graph.add_edges_from((a, b, thaw(data)) for a, b, data in value[2])
        return graph
    if kind == "dict":
        return {key: thaw(item) for key, item in value[1]}
    if kind == "record":
        return value[1](**{field: thaw(item) for field, item in value[2]})
    items = [thaw(item) for item in value[1]]
    return {"list": list, "tuple": tuple, "set": set}[kind](items)


def words_of(value: object) -> str:
    if isinstance(value, _Frozen) and value[0] in ("Graph", "DiGraph"):
        return f"{value[0]}({counted(len(value[1]), 'node')}, {counted(len(value[2]), 'edge')})"
    thawed = thaw(value)
    text = repr(thawed)
    if len(text) >= 80 and isinstance(thawed, tuple | list):
        return f"({counted(len(thawed), 'entry', 'entries')})"
    return text if len(text) < 80 else f"{text[:60]} …"


def stable(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(stable(item) for item in value)
    return (f"{value.__module__}.{value.__qualname__}" if callable(value)
            and hasattr(value, "__qualname__") else value)


def describe_setting(model: str, name: str, value: object) -> str:
    """The message about a setting that is given where inputs and sites are expected."""
    return (f"model '{model}': '{name}' is a setting of the model, {name}={shortly(value)}, and "
            f"can be given only when the model is built. Omit '{name}' here, or build the model "
            f"with {name}=...")
