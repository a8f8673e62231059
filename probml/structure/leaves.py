"""The arrays of a distribution, and the distribution from them again."""

import contextlib
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist


class _Closed:
    """A function that closes over arrays, as the drift of a diffusion over its parameters: these
    are leaves."""

    def __init__(self, function: FunctionType):
        self.function = function

    def flattened(self) -> tuple[tuple, tuple]:
        """What its cells hold, and which these are."""
        own = {i: value for i, value in _cells(self.function).items() if _reaches(value)}
        return tuple(map(_child, own.values())), (self.function, tuple(own))


def _again(how: tuple, values: tuple) -> Callable:
    function, own = how
    cells = list(function.__closure__)
    for i, value in zip(own, values, strict=True):
        cells[i] = CellType(value)
    made = FunctionType(function.__code__, function.__globals__, function.__name__,
                        function.__defaults__, tuple(cells))
    made.__kwdefaults__ = function.__kwdefaults__
    return made


jax.tree_util.register_pytree_node(_Closed, _Closed.flattened, _again)


def _cells(function: FunctionType) -> dict[int, Any]:
    """What a function closes over, by the number of the cell; itself, and what is not there yet,
    left out."""
    out = {}
    for i, cell in enumerate(function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # an empty cell
            out[i] = cell.cell_contents
    return {i: value for i, value in out.items() if value is not function}


def _reaches(value: Any, seen: tuple[Any, ...] = ()) -> bool:
    """Whether something is an array, or a function that closes over one."""
    if isinstance(value, FunctionType):
        return value not in seen and any(_reaches(own, (*seen, value))
                                         for own in _cells(value).values())
    return isinstance(value, jax.Array | np.ndarray | dist.Distribution)


def _child(value: Any) -> Any:
    return _Closed(value) if isinstance(value, FunctionType) else value


class _ByAttributes:
    """A distribution whose class does not tell NumPyro all of its arrays, one of the user's own
    (pytree_data_fields) or one that holds a function: what its attributes hold, arrays as leaves,
    all else as it is."""

    def __init__(self, whole: dist.Distribution):
        self.whole = whole


def _flatten(own: _ByAttributes) -> tuple[tuple, tuple]:
    held = vars(own.whole)
    arrays = [name for name, value in held.items() if _reaches(value)]
    rest = tuple((name, value) for name, value in held.items() if name not in arrays)
    return tuple(_child(held[name]) for name in arrays), (type(own.whole), tuple(arrays), rest)


def _unflatten(how: tuple, arrays: tuple) -> dist.Distribution:
    kind, names, rest = how
    made = kind.__new__(kind)
    vars(made).update(dict(rest) | dict(zip(names, arrays, strict=True)))
    return made


jax.tree_util.register_pytree_node(_ByAttributes, _flatten, _unflatten)


def leaves_of_distribution(base: dist.Distribution) -> tuple[list, Any]:
    """The arrays of a distribution, and what `jax.tree.unflatten` makes it of again."""
    kind = type(base)
    told = {*kind.gather_pytree_data_fields(), *kind.gather_pytree_aux_fields(), "_batch_shape",
            "_event_shape"}
    shipped = kind.__module__.partition(".")[0] in ("numpyro", "probml")
    closed = any(isinstance(value, FunctionType) and _reaches(value)
                 for value in vars(base).values())
    if not closed and (shipped or told.issuperset(vars(base))):
        return jax.tree.flatten(base)
    return jax.tree.flatten(_ByAttributes(base))
