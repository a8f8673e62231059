"""What a user gives by name, as the mapping or the numbers that it should be, else refused."""

import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from probml.errors import ModelError


def mapping(value: Any, where: str, example: str) -> dict[str, Any]:
    """A mapping of names; None is an empty one.

    Raises:
        ModelError: it is none, or has keys that are no names.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ModelError(f"{where}: expected a mapping by name, such as {example}, got a "
                         f"{type(value).__name__}, {reprlib.repr(value)}")
    odd = next((name for name in value if not isinstance(name, str)), None)
    if odd is not None:
        raise ModelError(f"{where}: expected names of sites, such as {example}, got the key "
                         f"{odd!r}")
    return dict(value)


def numbers(value: Any, where: str) -> np.ndarray:
    """Numbers as an array of floats.

    Raises:
        ModelError: it holds something else.
    """
    try:
        array = np.asarray(value)
        if array.dtype.kind in "biufO" or array.dtype.name == "bfloat16":
            return np.asarray(array, float)
    except (TypeError, ValueError):
        pass
    raise ModelError(f"{where}: expected numbers, in an array or nested lists of equal lengths, "
                     f"got a {type(value).__name__}, {reprlib.repr(value)}")
