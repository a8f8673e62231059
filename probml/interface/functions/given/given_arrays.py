"""An array of the user's as a function is given it: NumPy's, so that its numbers are concrete, and
JAX's where NumPy has no answer."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.dataset.arrays import Categories


class GivenArray(np.ndarray):
    """A NumPy array that may be indexed by what JAX traces, and multiplied with it.

    `len(y)`, `int(np.max(groups))` and `if y.mean() > 0` are asked of NumPy; `y[t]` in a loop's
    body, `x.dot(beta)` and `y.at[0].set(1)` are JAX's, as of the arrays that NumPyro's users pass.

    Attributes:
        labels: of an array that was text, what its codes stand for; a part of it has none.
        categorical: where these come from.
    """

    labels: tuple = ()
    categorical = Categories.FOUND

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, jax.core.Tracer) for part in parts):
            return jnp.asarray(self)[key]
        return super().__getitem__(key)

    def dot(self, other: Any, out: Any = None) -> Any:
        return (jnp.dot(jnp.asarray(self), other) if isinstance(other, jax.Array)
                else super().dot(other, out))

    @property
    def at(self) -> Any:
        return jnp.asarray(self).at


class Ragged(list):
    """Arrays of different lengths, as a list of the user's: a list, whatever else asks for arrays.
    """

    ndim, shape = 0, ()


def as_given(value: object) -> Any:
    """An array as a function is given it: a view that shares its numbers, and such views of a list
    of arrays; anything else unchanged."""
    if isinstance(value, list | tuple) and all(isinstance(part, np.ndarray) for part in value):
        return type(value)(as_given(part) for part in value)
    return value.view(GivenArray) if isinstance(value, np.ndarray) and value.ndim else value


def as_ragged(value: object) -> Ragged | None:
    """Sequences of numbers of different lengths as a list of arrays; None: it is nothing such."""
    if not isinstance(value, list | tuple) and not (
        isinstance(value, np.ndarray) and value.dtype.hasobject and value.ndim == 1
    ):
        return None
    try:
        parts = [np.asarray(part) for part in value]
    except ValueError:
        return None
    plain = len(parts) > 1 and all(part.ndim and part.dtype.kind in "biuf" for part in parts)
    return Ragged(map(as_given,
                      parts)) if plain and len({part.shape for part in parts}) > 1 else None
