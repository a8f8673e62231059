"""Constant folding of integers in traced programs, such as `arange(n)` used as an index. Nothing is
compiled."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend.core import JaxprEqn
from jax.typing import ArrayLike

from probml.jaxpr.primitives import Kind, computed, name_of, table_entry

LARGEST_READ = 100_000


def as_integers(value: ArrayLike) -> np.ndarray | None:
    """The integers that an array holds, as floats; None if it holds anything else."""
    if isinstance(value, bool | int):
        return np.asarray(value, float)
    kind = getattr(getattr(value, "dtype", None), "kind", "V")
    if kind not in "biu" or np.size(value) > LARGEST_READ:
        return None
    try:
        return np.asarray(value, float)
    except TypeError:  # a tracer
        return None


def folded(eqn: JaxprEqn, numbers: Sequence[Any]) -> np.ndarray | None:
    """The integers that the single result of an equation holds; NaN where they depend on data; None
    if nothing is known.

    Args:
        numbers: the same for its operands; None: the operand depends on data.
    """
    out, entry = eqn.outvars[0].aval, table_entry(eqn)
    # random keys and tokens have no such kind
    kind = getattr(getattr(out, "dtype", None), "kind", "V")
    if entry is None or kind not in "biu" or not 0 < out.size <= LARGEST_READ or (
            numbers and all(array is None for array in numbers)):
        return None
    exact = [array is not None and not np.isnan(array).any() for array in numbers]
    if all(exact):
        found = computed(eqn, [array.astype(atom.aval.dtype) for array, atom
                               in zip(numbers, eqn.invars, strict=True)])
    elif name_of(eqn) == "convert_element_type":
        array = numbers[0]
        found = [np.where(np.isnan(array), np.nan, array != 0) if kind == "b" else array]
    elif entry.kind is Kind.JOIN or entry.kind is Kind.MOVE and all(exact[1:]):
        found = computed(eqn, [
            np.full(atom.aval.shape, np.nan) if array is None
            else array if entry.kind is Kind.JOIN or i == 0 else array.astype(int)
            for i, (array, atom) in enumerate(zip(numbers, eqn.invars, strict=True))
        ], np.dtype(float))
    else:
        return None
    return None if found is None else np.broadcast_to(np.asarray(found[0], float), out.shape)
