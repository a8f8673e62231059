"""Flattens a distribution into its arrays, also arrays that NumPyro's pytrees do not contain."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
from jax.tree_util import PyTreeDef
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import Transform

from probml.errors import ModelError
from probml.typing import PyTree

_HOLDERS = (dist.Distribution, Transform)
_FUNCTIONS = (FunctionType, functools.partial, MethodType)


class _Opened:
    """A value as a pytree of its parts.

    Args:
        rebuild: (static, *parts) → the value.
        static: what is no array. parts: the others, pytrees.
    """

    def __init__(self, rebuild: Callable, static: object, parts: tuple):
        self.how, self.parts = (rebuild, static), parts


jax.tree_util.register_pytree_node(_Opened, lambda own: (own.parts, own.how),
                                   lambda how, parts: how[0](how[1], *parts))


def _open_function(function: FunctionType) -> _Opened:
    """Returns a function with arrays, such as the drift of a diffusion with its parameters, by the
    variables that it closes over and its defaults."""
    array_cells = {i: value for i, value in _cells(function).items() if _has_arrays(value)}
    return _Opened(_rebuild_function, (function, tuple(array_cells)), (
        tuple(map(_as_tree, array_cells.values())), _as_tree(function.__defaults__),
        _as_tree(function.__kwdefaults__)))


def _rebuild_function(static: tuple, values: tuple, defaults: tuple | None,
                      kwdefaults: dict | None) -> Callable:
    function, positions = static
    cells = list(function.__closure__ or ())
    for i, value in zip(positions, values, strict=True):
        cells[i] = CellType(value)
    rebuilt = FunctionType(function.__code__, function.__globals__, function.__name__, defaults,
                           tuple(cells) or None)
    rebuilt.__kwdefaults__ = kwdefaults
    return rebuilt


def _open_partial(function: Any) -> _Opened:
    """Returns a functools.partial, or a method, with arrays, by its parts."""
    parts = ((function.__func__, function.__self__) if isinstance(function, MethodType)
             else (function.func, function.args, function.keywords))
    return _Opened(_rebuild_partial, type(function), tuple(map(_as_tree, parts)))


def _rebuild_partial(kind: type, function: Callable, first: Any,
                     keywords: Any = None) -> Callable:
    return (MethodType(function, first) if kind is MethodType
            else functools.partial(function, *first, **keywords))


def _open_attributes(instance: Any) -> _Opened:
    """Returns a distribution or a transform by its attributes, where NumPyro's pytree lacks arrays
    (a user's class without pytree_data_fields, or one with a function in it) or cannot be
    rebuilt."""
    attributes = vars(instance)
    arrays = tuple(name for name, value in attributes.items() if _has_arrays(value))
    others = tuple((name, value) for name, value in attributes.items() if name not in arrays)
    return _Opened(_rebuild_object, (type(instance), arrays, others),
                   tuple(_as_tree(attributes[name]) for name in arrays))


def _rebuild_object(static: tuple, *arrays: object) -> object:
    kind, names, others = static
    rebuilt = kind.__new__(kind)
    vars(rebuilt).update(dict(others) | dict(zip(names, arrays, strict=True)))
    return rebuilt


def _cells(function: FunctionType) -> dict[int, object]:
    """Returns the variables that a function closes over, by the number of the cell, without empty
    cells and the function itself."""
    contents = {}
    for i, cell in enumerate(function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # an empty cell
            contents[i] = cell.cell_contents
    return {i: value for i, value in contents.items() if value is not function}


def _is_wrapper(value: Any) -> bool:
    """Whether a value is an object that wraps a function, such as the result of jax.jit."""
    return (callable(value) and not isinstance(value, (type, *_FUNCTIONS))
            and isinstance(getattr(value, "__wrapped__", None), FunctionType))


def _contents(value: Any) -> Iterable | None:
    """Returns the values inside a value; None if its type is not searched."""
    if isinstance(value, FunctionType):
        return (*_cells(value).values(), value.__defaults__, value.__kwdefaults__)
    if isinstance(value, MethodType):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, _HOLDERS):
        return tuple(vars(value).values())
    if isinstance(value, Mapping):
        return tuple(value.values())
    if _is_wrapper(value):
        return (value.__wrapped__,)
    return value if isinstance(value, list | tuple) else None


def _has_arrays(value: object, seen: tuple[int, ...] = ()) -> bool:
    """Whether a value is an array or contains one."""
    if isinstance(value, jax.Array | np.ndarray):
        return True
    if id(value) in seen:
        return False
    contents, seen = _contents(value), (*seen, id(value))
    if contents is None:
        return _object_has_arrays(value, seen)
    return any(_has_arrays(part, seen) for part in contents)


def _object_has_arrays(value: object, seen: tuple[int, ...]) -> bool:
    """Whether an object of another type contains arrays.

    Raises:
        ModelError: it contains traced arrays and is not a pytree.
    """
    if isinstance(value, type | ModuleType) or not hasattr(value, "__dict__"):
        return False
    leaves = [leaf for leaf in jax.tree.leaves(value) if leaf is not value]
    if any(isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves):
        return True
    name = next((name for name, item in vars(value).items() if isinstance(item, jax.core.Tracer)
                 or isinstance(item, _FUNCTIONS) and _has_arrays(item, seen)), None)
    if name is not None:
        raise ModelError(
            f"a function that is an argument of a distribution reads '{name}' of an object of the "
            f"class {type(value).__name__}. The arrays of such an object would be fixed when the "
            f"model is compiled. Assign it to a variable, a = object.{name}, and use a in the "
            "function. Or register the class as a pytree, "
            f"jax.tree_util.register_pytree_node({type(value).__name__}, ...)"
        )
    return False


def _is_no_pytree(value: object, seen: tuple[int, ...] = ()) -> bool:
    """Whether a distribution, a transform or a container of these contains a function with arrays,
    which NumPyro's pytrees lack, or a distribution that NumPyro cannot rebuild, or whose arrays it
    takes for settings."""
    if id(value) in seen:
        return False
    if isinstance(value, dist.Distribution) and (
            _has_computed_field(type(value)) or _has_array_as_setting(value)):
        return True
    if isinstance(value, (*_HOLDERS, Mapping, list, tuple)):
        return any(_is_no_pytree(part, (*seen, id(value))) for part in _contents(value) or ())
    return (callable(value) and not isinstance(value, type | jax.Array | Constraint)
            and _has_arrays(value))


def _has_computed_field(kind: type[dist.Distribution]) -> bool:
    """Whether a class declares a property as a field of its pytree, which cannot be set again (the
    mean of NumPyro's negative binomial behind a hurdle)."""
    return any(isinstance(member := getattr(kind, field, None), property) and member.fset is None
               for field in kind.gather_pytree_data_fields())


def _has_array_as_setting(distribution: dist.Distribution) -> bool:
    """Whether NumPyro keeps an array in the treedef, as the totals of a Multinomial: one that is
    traced would outlive its trace."""
    kind = type(distribution)
    settings = {*kind.gather_pytree_aux_fields()} - {*kind.gather_pytree_data_fields()}
    return any(_has_arrays(vars(distribution).get(name)) for name in settings)


def _as_tree(value: Any) -> PyTree:
    """Returns a value as a pytree whose leaves are arrays."""
    if isinstance(value, FunctionType) and _has_arrays(value):
        return _open_function(value)
    if isinstance(value, _FUNCTIONS) and _has_arrays(value):
        return _open_partial(value)
    if _is_wrapper(value) and _has_arrays(value):
        return _as_tree(value.__wrapped__)
    if isinstance(value, _HOLDERS):
        return _open_attributes(value) if _is_no_pytree(value) else value
    if not _has_arrays(value):
        return _Static(value)
    if type(value) in (list, tuple):
        return type(value)(map(_as_tree, value))
    if type(value) is dict:
        return {name: _as_tree(item) for name, item in value.items()}
    return value


class _Static:
    """A value without arrays: a pytree without leaves."""

    def __init__(self, value: object):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and (self.value is other.value
                                              or bool(self.value == other.value))

    def __hash__(self) -> int:  # the value itself may not be hashable
        return hash(type(self.value))


jax.tree_util.register_pytree_node(_Static, lambda own: ((), own), lambda own, _: own.value)


def leaves_of_distribution(base: dist.Distribution) -> tuple[list, PyTreeDef]:
    """Returns the arrays of a distribution, and the treedef with which `jax.tree.unflatten`
    rebuilds it."""
    kind = type(base)
    declared = {*kind.gather_pytree_data_fields(), *kind.gather_pytree_aux_fields(), "_batch_shape",
            "_event_shape"}
    shipped = kind.__module__.partition(".")[0] in ("numpyro", "probml")
    if not _is_no_pytree(base) and (shipped or declared.issuperset(vars(base))):
        return jax.tree.flatten(base)
    return jax.tree.flatten(_open_attributes(base))
