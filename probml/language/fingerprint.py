"""What a function does, as a value: two functions of one fingerprint are one program.

A notebook's cell that is run again, or a function defined in a loop, makes a new function object of
the same code. The fingerprint is that code with everything it reads: constants, defaults, closure,
and the globals that it names, helper functions among them, each by value. What cannot be read by
value (an object of a class of the user's, a generator of random numbers, a file) may have changed
since; then the function stands for itself alone, as any object does. So two that differ never
share.
"""

import builtins
import dis
import functools
import inspect
import types
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import jax
import numpy as np
from numpyro.distributions import Distribution

from probml.jaxpr.memo import memo
from probml.numerics.identity import LIBRARIES, Nameless, array_value

# functions that may read anything
DYNAMIC = frozenset({"__import__", "compile", "eval", "exec", "getattr", "globals", "input",
                     "locals", "open", "vars"})
MAX_OBJECTS = 256  # functions and modules that one fingerprint walks through


def fingerprint(function: Callable) -> Hashable:
    """The code of a function and all it reads, as one hashable value; the function itself where
    something it reads has no value.

    Cost: about 0.1 ms for a function of a few lines, and a copy of the arrays that it reads.
    """
    if not isinstance(function, types.MethodType | types.FunctionType) or (
        _shipped(function) and "<" not in function.__qualname__  # nor a lambda, which has no name
    ):
        return function
    try:
        key = (_function(function, {}) if isinstance(function, types.FunctionType)
               else _method(function, {}))
        hash(key)
    except (Nameless, RecursionError, TypeError):
        return function
    return key


def _shipped(value: object) -> bool:
    return (getattr(value, "__module__", None) or "").partition(".")[0] in LIBRARIES


def _items(value: Iterable, seen: dict) -> tuple:
    return tuple(_value(item, seen) for item in value)


# type → a key that is the same for equal values
READERS: dict[type, Callable[[Any, dict], Hashable]] = {
    **dict.fromkeys((type(None), type(Ellipsis), bool, int, str, bytes, range),
                    lambda value, seen: value),
    slice: lambda value, seen: str(value),
    # signed zeros differ, NaN is itself
    **dict.fromkeys((float, complex), lambda value, seen: repr(value)),
    **dict.fromkeys((list, tuple), _items),
    **dict.fromkeys((set, frozenset), lambda value, seen: frozenset(_items(value, seen))),
    dict: lambda value, seen: _items(value.items(), seen),
    types.CodeType: lambda value, seen: _code(value, seen),
    functools.partial: lambda value, seen: _items((value.func, value.args, value.keywords), seen),
}


def _value(value: Any, seen: dict) -> Hashable:
    """A value that is equal for equal things alone.

    Args:
        seen: id of what is being read → its number, for functions that name each other.
    """
    kind = type(value)  # exactly: what a subclass does differently cannot be read
    if kind in READERS:
        return kind.__name__, READERS[kind](value, seen)
    if kind is types.FunctionType and not _shipped(value):
        return _function(value, seen)
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return array_value(value)
    if isinstance(value, Distribution) and _shipped(kind):
        leaves, treedef = jax.tree.flatten(value)
        return "distribution", treedef, tuple(_value(leaf, seen) for leaf in leaves)
    if _shipped(kind) and type(getattr(value, "function", None)) is types.FunctionType:
        return "generative", _value(value.function, seen)
    # what JAX has compiled or differentiated of its own wraps a function of its own
    inner = getattr(value, "__wrapped__", value)
    if isinstance(inner, type | types.BuiltinFunctionType | types.FunctionType | types.ModuleType):
        if (value.__name__.partition(".")[0] in LIBRARIES if isinstance(inner, types.ModuleType)
                else _shipped(inner)):
            return "shipped", value
    raise Nameless


def _function(function: Any, seen: dict) -> Hashable:
    if id(function) in seen:
        return "again", seen[id(function)]
    if len(seen) >= MAX_OBJECTS:
        raise Nameless
    seen[id(function)] = len(seen)
    code, reads = function.__code__, []
    for names in _names_in(code):
        reads += [(name, _global(function, name, names, seen)) for name in sorted(names.globals)]
    try:
        cells = tuple(_value(cell.cell_contents, seen) for cell in function.__closure__ or ())
    except ValueError:  # not yet filled
        raise Nameless from None
    return ("function", function.__module__, function.__qualname__, _code(code, seen), tuple(reads),
            cells, *(_value(part, seen) for part in (function.__defaults__, function.__kwdefaults__,
                                                     vars(function))))


def _method(method: types.MethodType, seen: dict) -> Hashable:
    """The method of this object alone, with the values that it reads of the object."""
    return ("method", method, _function(method.__func__, seen), tuple(
        (name, _value(value, seen)) for name, value in sorted(read_of_object(method).items())))


def read_of_object(method: types.MethodType) -> dict[str, object]:
    """The attributes of its object, and of the object's class, that a method, or one that it calls,
    reads by name and does not write."""
    instance, codes = method.__self__, [method.__func__.__code__]
    read, written = {"__call__"}, set()
    for code in codes:  # of the methods that it calls, too
        for part in nested_code(code):
            read |= set(part.co_names)
            written |= written_names(part)
        callees = (inspect.getattr_static(type(instance), name, None) for name in read)
        codes += {fn.__code__ for fn in callees if inspect.isfunction(fn)}.difference(codes)
    values = {}
    for name in read - written:
        value = inspect.getattr_static(instance, name, None)
        if isinstance(value, types.MemberDescriptorType):  # of __slots__
            value = getattr(instance, name, None)
        if value is not None and not inspect.isroutine(value) and not isinstance(value, property):
            values[name] = value
    return values


@memo(1024)
def written_names(code: types.CodeType) -> frozenset[str]:
    """The global and closure variables, and the attributes, that a function writes."""
    return frozenset(step.argval for step in dis.get_instructions(code)
                     if step.opname in ("STORE_GLOBAL", "STORE_DEREF", "DELETE_GLOBAL",
                                        "STORE_ATTR", "DELETE_ATTR"))


def _global(function: types.FunctionType, name: str, names: "_Names", seen: dict) -> Hashable:
    if name in DYNAMIC:
        raise Nameless
    if name not in function.__globals__:
        return ("builtin", name) if hasattr(builtins, name) else ("missing", name)
    return _read(function.__globals__[name], names, seen)


def _read(module: object, names: "_Names", seen: dict) -> Hashable:
    """A value; of a module of the user's all that the code may read of it, by its names of
    attributes."""
    if not isinstance(module, types.ModuleType):
        return _value(module, seen)
    if module.__name__.partition(".")[0] in LIBRARIES:
        return "shipped", module
    key = id(module), id(names)
    if key in seen:
        return "again", seen[key]
    if len(seen) >= MAX_OBJECTS:
        raise Nameless
    seen[key] = len(seen)
    attributes = [name for name in sorted(names.attributes) if hasattr(module, name)]
    return "module", module.__name__, tuple(
        (name, _read(getattr(module, name), names, seen)) for name in attributes)


def _code(code: types.CodeType, seen: dict) -> Hashable:
    """What a piece of code does, wherever it stands."""
    return ("code", code.co_name, code.co_code, tuple(_value(c, seen) for c in code.co_consts),
            code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_argcount,
            code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_exceptiontable)


class _Names:
    """The globals and the attributes that one piece of code names."""

    def __init__(self, code: types.CodeType):
        self.globals: set[str] = set()
        self.attributes: set[str] = set()
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                self.globals.add(step.argval)
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
                self.attributes.add(step.argval)
            elif step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
                step.opname == "IMPORT_NAME" and step.argval.partition(".")[0] not in LIBRARIES
            ):
                self.globals.add("__import__")  # no reader follows that


@memo(1024)
def _names_in(code: types.CodeType) -> tuple[_Names, ...]:
    return tuple(_Names(part) for part in nested_code(code))


def nested_code(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function, and of those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from nested_code(constant)
