"""An array of the user's as a function is given it: NumPy's, so that its numbers are concrete, and
JAX's where NumPy has no answer."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Held(np.ndarray):
    """A NumPy array that may be indexed by what JAX traces, and multiplied with it.

    `len(y)`, `int(np.max(groups))` and `if y.mean() > 0` are asked of NumPy; `y[t]` in a loop's
    body, `x.dot(beta)` and `y.at[0].set(1)` are JAX's, as of the arrays that NumPyro's users pass.
    """

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


def held(value: Any) -> Any:
    """An array of one's own, its numbers shared; anything else as it is."""
    return value.view(Held) if isinstance(value, np.ndarray) and value.ndim else value
