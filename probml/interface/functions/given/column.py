"""An argument of one value a row, where the function asks for a number of the whole column.

`int(np.max(labels)) + 1` and `len(np.unique(labels))` are facts of the data, not of a row: they
were settled when the function met them, and stay.
"""

import operator
from typing import Any

import jax.numpy as jnp
import numpy as np

from probml.errors import ModelError


class Column:
    """The values of some rows, that knows which values all of them have, in order.

    Whatever else is asked of it is asked of the rows' values, by jax.numpy.
    """

    def __init__(self, value: Any, every: tuple[Any, ...]):
        self.value, self.every = value, every

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if len(args) == 1 and args[0] is self and not kwargs:
            if function is np.unique:
                return np.array(self.every)
            if function in (np.max, np.min, np.amax, np.amin):
                return self.max() if function in (np.max, np.amax) else self.min()
        return self.__array__()

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ModelError("the function asks NumPy for the values of all rows: use jax.numpy")

    def __iter__(self) -> Any:
        return iter(self.__jax_array__())

    def __jax_array__(self) -> Any:
        return jnp.asarray(self.value)

    def min(self, axis: Any = None, out: Any = None, **more: Any) -> Any:
        return self.every[0] if axis is None else self.__jax_array__().min(axis=axis, **more)

    def max(self, axis: Any = None, out: Any = None, **more: Any) -> Any:
        return self.every[-1] if axis is None else self.__jax_array__().max(axis=axis, **more)

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, key: Any) -> Any:
        return self.__jax_array__()[key]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__jax_array__(), name)


def _plain(value: Any) -> Any:
    return jnp.asarray(value) if isinstance(value, Column) else value


def _left(name: str) -> Any:
    function = getattr(operator, name)
    return lambda self, other: function(self.__jax_array__(), _plain(other))


def _right(name: str) -> Any:
    function = getattr(operator, name)
    return lambda self, other: function(_plain(other), self.__jax_array__())


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(Column, f"__{_name}__", _left(_name))
    setattr(Column, f"__r{_name}__", _right(_name))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_"):
    setattr(Column, f"__{_name.strip('_')}__", _left(_name))
Column.__hash__ = object.__hash__
Column.__neg__ = lambda self: -self.__jax_array__()
Column.__abs__ = lambda self: abs(self.__jax_array__())
Column.__invert__ = lambda self: ~self.__jax_array__()
