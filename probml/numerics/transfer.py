"""Transfer from the host to the device without compilation: `jax.numpy.asarray` compiles a program
for every shape, and `jax.random.key` one for every type of seed."""

import enum
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from probml.jaxpr.compat import is_outside_of_traces
from probml.numerics.compiling import ONCE, jit
from probml.numerics.process.threads import refuse_fork
from probml.typing import PyTree

THREEFRY = "threefry2x32"
ALIGNMENT = 64  # bytes


class Use(enum.IntEnum):
    """Purposes of keys derived from a seed's key (`derive_key`). Their random numbers are
    independent of each other and of the splits of the key."""

    BELIEF = 0  # parameters that simulate draws from a fit
    NOISE = 1  # data that simulate draws given these
    GUIDE = 2  # initial values of a guide
    GUIDED = 3  # draws from a fitted guide
    STATES = 4  # discrete sites outside rows, given draws of the parameters
    EFFECTS = 5  # effects of groups, given draws of the parameters
    STEPS = 6  # steps that are integrated out, given draws of the parameters


def placed(value: ArrayLike, dtype: DTypeLike = None) -> jax.Array:
    """Returns an array on the device, as jnp.asarray does, without compilation.

    Args:
        value: anything that NumPy converts to an array; JAX arrays and tracers are returned.
        dtype: of the array; by default its own, in JAX's precision.
    """
    if isinstance(value, jax.Array):
        return value if dtype is None or value.dtype == dtype else jnp.asarray(value, dtype)
    refuse_fork()
    return jax.device_put(np.asarray(value, dtype))


def read_only(value: ArrayLike) -> np.ndarray:
    """A read-only copy as a NumPy array."""
    array = np.array(value)
    array.flags.writeable = False
    return array


def rounded(value: ArrayLike) -> np.ndarray:
    """Returns numbers rounded to the device's precision, as float64. A centre that the host
    subtracts is then exactly the one that programs add, for all batches of the data."""
    return np.asarray(value, jnp.result_type(float)).astype(float)


def as_array(value: ArrayLike) -> jax.Array:
    """Returns jnp.asarray(value), without compilation outside of traces."""
    if isinstance(value, jax.Array):
        return value
    return placed(value) if is_outside_of_traces() else jnp.asarray(value)


def aligned(shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    """Returns an uninitialised array whose alignment lets a CPU device use it without a copy."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    offset = -raw.ctypes.data % ALIGNMENT
    return raw[offset : offset + size].view(dtype).reshape(shape)


def placed_all(values: PyTree) -> PyTree:
    """Applies `placed` to all leaves of a pytree."""
    return jax.tree.map(placed, values)


def random_key(seed: int) -> jax.Array:
    """Returns jax.random.key(seed) without compilation. In single precision only the low 32 bits of
    the seed are used, as in JAX."""
    if jax.config.jax_default_prng_impl != THREEFRY or not -(2**63) <= int(seed) < 2**63:
        return jax.random.key(seed)
    bits = int(seed) & (2**64 - 1)
    high = bits >> 32 if jax.config.jax_enable_x64 else 0
    return jax.random.wrap_key_data(np.array([high, bits & (2**32 - 1)], np.uint32))


def derive_key(key: jax.Array, use: Use) -> jax.Array:
    """Returns a key for another purpose. It differs from all splits of the key, since in JAX
    split(key, n)[i] is fold_in(key, i), and from the keys of other purposes."""
    return _folded(key, np.uint32(2**32 - 1 - int(use)))


@jit(seldom=ONCE)
def _folded(key: jax.Array, number: ArrayLike) -> jax.Array:
    return jax.random.fold_in(key, number)


@jit(static_argnums=1, seldom=ONCE)
def split_key(key: jax.Array, count: int | tuple[int, ...]) -> jax.Array:
    """Returns jax.random.split(key, count), which alone compiles a program in every process."""
    return jax.random.split(key, count)


def rows_of(array: jax.Array) -> np.ndarray | list[jax.Array]:
    """Returns an array as a NumPy array, or an array of random keys as a list of keys."""
    if not jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        return np.asarray(array)
    data, kind = np.asarray(jax.random.key_data(array)), jax.random.key_impl(array)
    return [jax.random.wrap_key_data(each, impl=kind) for each in data]
