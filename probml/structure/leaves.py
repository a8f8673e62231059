"""The arrays of a distribution, and the distribution from them again."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import Transform

from probml.errors import ModelError

_HOLDERS = (dist.Distribution, Transform)
_FUNCTIONS = (FunctionType, functools.partial, MethodType)


class _Closed:
    """A function that holds arrays, as the drift of a diffusion holds its parameters: what it
    closes over, and its defaults, are leaves."""

    def __init__(self, function: FunctionType):
        self.function = function

    def flattened(self) -> tuple[tuple, tuple]:
        """What its cells and its defaults hold, and which cells these are."""
        function = self.function
        own = {i: value for i, value in _cells(function).items() if _reaches(value)}
        return (tuple(map(_as_tree, own.values())), _as_tree(function.__defaults__),
                _as_tree(function.__kwdefaults__)), (function, tuple(own))


def _again(how: tuple, held: tuple) -> Callable:
    (function, own), (values, defaults, more) = how, held
    cells = list(function.__closure__ or ())
    for i, value in zip(own, values, strict=True):
        cells[i] = CellType(value)
    made = FunctionType(function.__code__, function.__globals__, function.__name__, defaults,
                        tuple(cells) or None)
    made.__kwdefaults__ = more
    return made


class _Partial:
    """A functools.partial, or a method, that holds arrays."""

    def __init__(self, whole: Any):
        self.whole = whole

    def flattened(self) -> tuple[tuple, type]:
        own = self.whole
        parts = ((own.__func__, own.__self__) if isinstance(own, MethodType)
                 else (own.func, own.args, own.keywords))
        return tuple(map(_as_tree, parts)), type(own)


def _bound(kind: type, parts: tuple) -> Callable:
    if kind is MethodType:
        return MethodType(*parts)
    function, args, keywords = parts
    return functools.partial(function, *args, **keywords)


class _ByAttributes:
    """A distribution, or a transform, whose class does not tell NumPyro all of its arrays, one of
    the user's own (pytree_data_fields) or one that holds a function: what its attributes hold,
    arrays as leaves, all else as it is."""

    def __init__(self, whole: Any):
        self.whole = whole

    def flattened(self) -> tuple[tuple, tuple]:
        held = vars(self.whole)
        arrays = [name for name, value in held.items() if _reaches(value)]
        rest = tuple((name, value) for name, value in held.items() if name not in arrays)
        return tuple(_as_tree(held[name]) for name in arrays), (type(self.whole), tuple(arrays),
                                                                rest)


def _unflatten(how: tuple, arrays: tuple) -> Any:
    kind, names, rest = how
    made = kind.__new__(kind)
    vars(made).update(dict(rest) | dict(zip(names, arrays, strict=True)))
    return made


jax.tree_util.register_pytree_node(_Closed, _Closed.flattened, _again)
jax.tree_util.register_pytree_node(_Partial, _Partial.flattened, _bound)
jax.tree_util.register_pytree_node(_ByAttributes, _ByAttributes.flattened, _unflatten)


def _cells(function: FunctionType) -> dict[int, Any]:
    """What a function closes over, by the number of the cell; itself, and what is not there yet,
    left out."""
    out = {}
    for i, cell in enumerate(function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # an empty cell
            out[i] = cell.cell_contents
    return {i: value for i, value in out.items() if value is not function}


def _compiled(value: Any) -> bool:
    """Whether it is jax.jit's, or another object's, of a function that it wraps."""
    return (callable(value) and not isinstance(value, (type, *_FUNCTIONS))
            and isinstance(getattr(value, "__wrapped__", None), FunctionType))


def _contents(value: Any) -> Iterable[Any] | None:
    """The values inside a value; None where its kind is not searched."""
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
    if _compiled(value):
        return (value.__wrapped__,)
    return value if isinstance(value, list | tuple) else None


def _reaches(value: Any, seen: tuple[int, ...] = ()) -> bool:
    """Whether something is an array, or holds one."""
    if isinstance(value, jax.Array | np.ndarray):
        return True
    if id(value) in seen:
        return False
    own, seen = _contents(value), (*seen, id(value))
    return _of_object(value, seen) if own is None else any(_reaches(each, seen) for each in own)


def _of_object(value: Any, seen: tuple[int, ...]) -> bool:
    """Whether an object of another kind holds arrays.

    Raises:
        ModelError: it does, of those that are traced, and is no tree of JAX's.
    """
    if isinstance(value, type | ModuleType) or not hasattr(value, "__dict__"):
        return False
    held = [leaf for leaf in jax.tree.leaves(value) if leaf is not value]
    if any(isinstance(leaf, jax.Array | np.ndarray) for leaf in held):
        return True
    name = next((name for name, each in vars(value).items() if isinstance(each, jax.core.Tracer)
                 or isinstance(each, _FUNCTIONS) and _reaches(each, seen)), None)
    if name is not None:
        raise ModelError(
            f"a function inside a distribution uses a {type(value).__name__}, whose '{name}' "
            f"contains arrays that JAX does not trace: let the function close over these arrays, "
            f"or register {type(value).__name__} by jax.tree_util.register_pytree_node"
        )
    return False


def _hides(value: Any, seen: tuple[int, ...] = ()) -> bool:
    """Whether a distribution, a transform, or several of these hold a function that holds an
    array: NumPyro's trees have none."""
    if id(value) in seen:
        return False
    if isinstance(value, (*_HOLDERS, Mapping, list, tuple)):
        return any(_hides(each, (*seen, id(value))) for each in _contents(value) or ())
    return (callable(value) and not isinstance(value, type | jax.Array | Constraint)
            and _reaches(value))


def _as_tree(value: Any) -> Any:
    """A value as a tree whose leaves are arrays, or itself."""
    if isinstance(value, FunctionType) and _reaches(value):
        return _Closed(value)
    if isinstance(value, _FUNCTIONS) and _reaches(value):
        return _Partial(value)
    if _compiled(value) and _reaches(value):
        return _as_tree(value.__wrapped__)
    if isinstance(value, _HOLDERS):
        return _ByAttributes(value) if _hides(value) else value
    if not _reaches(value):
        return _Still(value)
    if type(value) in (list, tuple):
        return type(value)(map(_as_tree, value))
    if type(value) is dict:
        return {name: _as_tree(each) for name, each in value.items()}
    return value


class _Still:
    """What holds no arrays: no leaf."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Still) and (self.value is other.value
                                              or bool(self.value == other.value))

    def __hash__(self) -> int:  # a value may have none
        return hash(type(self.value))


jax.tree_util.register_pytree_node(_Still, lambda own: ((), own), lambda own, _: own.value)


def leaves_of_distribution(base: dist.Distribution) -> tuple[list, Any]:
    """The arrays of a distribution, and what `jax.tree.unflatten` makes it of again."""
    kind = type(base)
    told = {*kind.gather_pytree_data_fields(), *kind.gather_pytree_aux_fields(), "_batch_shape",
            "_event_shape"}
    shipped = kind.__module__.partition(".")[0] in ("numpyro", "probml")
    if not _hides(base) and (shipped or told.issuperset(vars(base))):
        return jax.tree.flatten(base)
    return jax.tree.flatten(_ByAttributes(base))
