"""What a user gives by name, as the mapping, the numbers or the file that it should be, else
refused."""

import contextlib
import os
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.errors import KindError, ModelError, describe_dates, described, listed, untraced
from probml.typing import ArrayLike


def as_mapping(value: object, where: str, example: str) -> dict[str, ArrayLike]:
    """A mapping of names; None is an empty one.

    Raises:
        ModelError: it is none, or has keys that are no names.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ModelError(f"{where}: expected a mapping from names to values, such as {example}, "
                         f"got {described(value)}")
    bad_key = next((name for name in value if not isinstance(name, str)), None)
    if bad_key is not None:
        raise ModelError(f"{where}: expected names of sites as keys, such as {example}, got the "
                         f"key {bad_key!r}")
    untraced(where, dict(value))
    return dict(value)


def as_numbers(value: object, where: str) -> np.ndarray:
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
                     f"got {described(value)}")


def floats(values: Any, what: str = "the values", remedy: str = "") -> np.ndarray:
    """Numbers, or text that is numbers, as an array of floats; NaN where pandas has none.

    Args:
        what, remedy: in the message, what the values are and what to do.

    Raises:
        KindError: dates or times, whose number depends on the unit in which they are stored; what
            is no real number; lists of unequal lengths.
    """
    pandas = hasattr(values, "iloc")
    try:
        data: Any = values if pandas else np.asarray(values)
    except ValueError:
        cells: Any = (cell for part in values for cell in np.ravel(np.asarray(part, object)))
        text = next((cell for cell in cells if isinstance(cell, str)), None)
        got = "lists of different lengths" if text is None else described(text)
        raise KindError(f"{what} must be numbers, got {got}. {remedy}".rstrip()) from None
    kinds = np.atleast_1d(np.asarray(data.dtypes if pandas else data.dtype, object))
    for kind in kinds:
        if getattr(kind, "kind", "O") in "mM":
            raise KindError(describe_dates(what, kind))
    with contextlib.suppress(TypeError, ValueError):
        if not any(getattr(kind, "kind", "O") == "c" for kind in kinds):
            return data.to_numpy(float, na_value=np.nan) if pandas else np.asarray(data, float)
    bad = next((cell for cell in np.ravel(np.asarray(data, object)) if not _is_real(cell)), data)
    raise KindError(f"{what} must be numbers, got {described(bad)}. {remedy}".rstrip())


def _is_real(cell: Any) -> bool:
    with contextlib.suppress(TypeError, ValueError):
        return bool(float(cell) or True)
    return cell is None


def check_flag(value: bool | None, where: str, optional: bool = False) -> None:
    """
    Raises:
        ModelError: it is neither True nor False, nor None where it is optional.
    """
    if not (isinstance(value, bool | np.bool_) or optional and value is None):
        raise ModelError(f"{where}: expected True or False, got {described(value)}")


def labels(value: ArrayLike, where: str) -> list:
    """Labels one after the other, as a list.

    Raises:
        ModelError: no list of what can be labels.
    """
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    entries = list(value) if is_list and getattr(value, "ndim", 1) != 0 else []
    if not entries or not all(isinstance(label, Hashable) for label in entries):
        raise ModelError(f"{where}: expected a list of labels, got {described(value)}")
    return entries


def as_path(value: object, where: str) -> Path:
    """The name of a file. A number is none: to Python it is a file that the process has open, such
    as its output, which would be closed.

    Raises:
        ModelError: it is none.
    """
    if not isinstance(value, str | os.PathLike) or not os.fspath(value) or "\0" in str(value):
        raise ModelError(f"{where}: expected the name of a file, got {described(value)}")
    return Path(value)


def as_new_file(value: object, where: str) -> Path:
    """The name of a file to be written, checked before anything is computed.

    Raises:
        ModelError: no name of a file, or a folder that does not exist.
    """
    path = as_path(value, where)
    if not path.name or path.is_dir():
        raise ModelError(f"{where}: '{path}' is a folder. Give the name of a file")
    if not path.parent.is_dir():
        raise ModelError(f"{where}: the folder '{path.parent}' does not exist. Create the folder "
                         "first, or give another path")
    return path


def as_array(value: jax.Array, what: str) -> jax.Array:
    """The array of numbers that an argument is, which may be traced.

    Raises:
        ModelError: it is none.
    """
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError, OverflowError):
        array = None
    if array is None or array.dtype.kind not in "biuf" and array.dtype != jnp.bfloat16:
        raise ModelError(f"{what}: expected an array of numbers, got {value!r:.200}")
    return array


def check_word(value: object, options: Iterable[str | None], where: str, more: str = "") -> None:
    """Refuse what is none of some words, or None where that is one of them.

    Raises:
        ModelError: it is none of them.
    """
    if not isinstance(value, str | None) or value not in options:
        raise ModelError(f"{where}: expected one of {listed(options)}{more}, "
                         f"got {described(value)}")


def as_names(value: Any, where: str, what: str, example: str) -> tuple[str, ...]:
    """One or more names.

    Raises:
        ModelError: none, or something that is no name.
    """
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes) and (
        getattr(value, "ndim", 1) == 1)
    names = tuple(value) if is_list else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise ModelError(f"{where}: expected names of {what}, such as {example}, got "
                         f"{described(value)}")
    return names
