"""Callbacks by which a running program asks the host for data.

An exception of a callback cannot pass through a program. It is stored, zeros follow, and
`raise_supply_failure` raises it when the program has ended.
"""

import itertools
from collections.abc import Callable
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from probml.typing import PyTree

_OPEN: dict[int, "Supply"] = {}
_NUMBERS = itertools.count()


class Supply:
    """A provider of data that running programs call by its number; a context manager.

    Attributes:
        failure: its exception, stored until the program has ended.
    """

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.number = next(_NUMBERS)

    def __enter__(self) -> Self:
        _OPEN[self.number] = self
        return self

    def __exit__(self, *_: object) -> None:
        _OPEN.pop(self.number)


def count_fed_numbers(arguments: object) -> int:
    """The number of numbers streamed to a program in a pass: the sum of the attributes `n_numbers`
    of its arguments."""
    if not _OPEN:
        return 0
    leaves = jax.tree.leaves(arguments, is_leaf=lambda value: hasattr(value, "n_numbers"))
    return sum(int(getattr(value, "n_numbers", 0)) for value in leaves)


def called_back(function: Callable, specs: object, number: jax.Array, *operands: object) -> PyTree:
    """function(the supply of that number, *operands) in a program; zeros once it has raised.

    Numbers of 64 bits are passed as pairs of 32: the callback runs in another thread, without the
    context in which JAX has 64 bits, and JAX would convert them to 32.

    Args:
        specs: pytree of jax.ShapeDtypeStruct, of the result.
    """
    kinds = jax.tree.map(lambda leaf: jnp.result_type(leaf), operands)

    def ask(number: jax.Array, *operands: object) -> PyTree:
        supply = _OPEN[int(number)]
        try:
            if supply.failure is None:
                result = function(supply, *jax.tree.map(_join_halves, operands, kinds))
                return jax.tree.map(_halved, result)
        except BaseException as error:
            supply.failure = error
        return jax.tree.map(lambda spec: np.zeros(spec.shape, spec.dtype), halves)

    halves = jax.tree.map(lambda spec: jax.ShapeDtypeStruct((*spec.shape, 2), np.uint32)
                          if _is_64_bit(spec.dtype) else spec, specs)
    sent = jax.tree.map(lambda leaf, kind: jax.lax.bitcast_convert_type(leaf, np.uint32)
                        if _is_64_bit(kind) else leaf, operands, kinds)
    result = jax.pure_callback(ask, halves, number, *sent)
    return jax.tree.map(lambda leaf, spec: jax.lax.bitcast_convert_type(leaf, spec.dtype)
                        if _is_64_bit(spec.dtype) else leaf, result, specs)


def _is_64_bit(kind: np.dtype) -> bool:
    return jnp.issubdtype(kind, np.number) and np.dtype(kind).kind in "fiu" and (
        np.dtype(kind).itemsize == 8)


def _halved(array: np.ndarray) -> np.ndarray:
    """Numbers of 64 bits as pairs of 32, (..., 2); a view."""
    array = np.asarray(array)
    return array[..., None].view(np.uint32) if _is_64_bit(array.dtype) else array


def _join_halves(array: jax.Array, kind: np.dtype) -> jax.Array:
    return np.asarray(array).view(kind)[..., 0] if _is_64_bit(kind) else array


def raise_supply_failure(results: object) -> PyTree:
    """The results of a program; raises the stored exception of its supply of data."""
    if _OPEN:
        results = jax.block_until_ready(results)
        failure = next((supply.failure for supply in _OPEN.values() if supply.failure), None)
        if failure is not None:
            raise failure
    return results
