"""From the host to the device without a program: `jax.numpy.asarray` of an array compiles one for
every shape, and `jax.random.key` one for every kind of seed."""

import enum
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.jaxpr.compat import is_outside_of_traces
from probml.numerics.outside import forks

THREEFRY = "threefry2x32"
ALIGNED = 64  # bytes


class Use(enum.IntEnum):
    """What else a seed's key is for, beside what is split from the key itself: none has another's
    numbers, wherever they meet."""

    BELIEF = 0  # what simulate takes from a fit, beside
    NOISE = 1  # what is sampled given that
    GUIDE = 2  # the first numbers of a guide, beside
    GUIDED = 3  # the draws of what it has become
    STATES = 4  # discrete sites outside rows, given draws of the parameters
    EFFECTS = 5  # effects of groups, given the same


def placed(value: Any, dtype: Any = None) -> jax.Array:
    """An array on the device, in JAX's float or integer type: as jnp.asarray, compiling nothing.

    Args:
        value: anything that NumPy reads; what is on the device or traced stays there.
        dtype: of the array; its own by default.
    """
    if isinstance(value, jax.Array):
        return value if dtype is None or value.dtype == dtype else jnp.asarray(value, dtype)
    forks.check()
    return jax.device_put(np.asarray(value, dtype))


def rounded(value: Any) -> np.ndarray:
    """Numbers as the device will have them, in double: what is taken off on the host is then what
    programs add back, and what parts of the data are centred on is of one meaning."""
    return np.asarray(value, jnp.result_type(float)).astype(float)


def as_array(value: Any) -> jax.Array:
    """As jnp.asarray; compiles nothing where nothing is traced."""
    if isinstance(value, jax.Array):
        return value
    return placed(value) if is_outside_of_traces() else jnp.asarray(value)


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array at an address from which a CPU device needs no copy of its own."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + ALIGNED, np.uint8)
    begin = -raw.ctypes.data % ALIGNED
    return raw[begin : begin + size].view(dtype).reshape(shape)


def placed_all(values: Any) -> Any:
    """A tree of arrays, each as `placed`."""
    return jax.tree.map(placed, values)


def random_key(seed: int) -> jax.Array:
    """jax.random.key(seed), the same bits: those of a 64-bit seed, high and low, in double
    precision, the low ones alone in single."""
    if jax.config.jax_default_prng_impl != THREEFRY or not -(2**63) <= int(seed) < 2**63:
        return jax.random.key(seed)
    bits = int(seed) & (2**64 - 1)
    high = bits >> 32 if jax.config.jax_enable_x64 else 0
    return jax.random.wrap_key_data(np.array([high, bits & (2**32 - 1)], np.uint32))


def derive_key(key: jax.Array, use: Use) -> jax.Array:
    """A key for one more use of what `key` is for. No split of that makes it, nor another use:
    in JAX's scheme split(key, n)[i] is fold_in(key, i)."""
    return jax.random.fold_in(key, 2**32 - 1 - int(use))


def rows_of(array: jax.Array) -> np.ndarray | list[jax.Array]:
    """An array on the host, or its random keys one by one: what is taken apart there."""
    if not jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        return np.asarray(array)
    data, kind = np.asarray(jax.random.key_data(array)), jax.random.key_impl(array)
    return [jax.random.wrap_key_data(each, impl=kind) for each in data]
