"""JAX's random bits in NumPy, bit for bit: threefry2x32 with a counter for each number
(`jax_threefry_partitionable`, JAX's default).

A key is one 64-bit integer here, its first word in the high bits, so that operations that move
arrays also move keys.

Source: Salmon, Moraes, Dror & Shaw (2011), "Parallel random numbers: as easy as 1, 2, 3".
"""

import math
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.typing import ArrayLike

from probml.jaxpr.tapes.operation import SECONDS_PER_CALL, Avals, Operation

KEY = np.dtype(np.uint64)
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
WORD, HALF = np.uint32, np.uint64(32)
SECONDS_PER_NUMBER = 1e-7


def is_supported_key(dtype: object) -> bool:
    """Whether random bits of keys of this dtype are implemented here."""
    return (jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key) and str(dtype) == "key<fry>"
            and jax.config.jax_threefry_partitionable)


def keys_to_integers(keys: jax.Array) -> np.ndarray:
    """Keys of JAX as integers."""
    return joined(*np.moveaxis(np.asarray(jax.random.key_data(keys)), -1, 0))


def joined(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Two words as one number."""
    return (np.asarray(high, KEY) << HALF) | np.asarray(low, KEY)


def key_words(keys: np.ndarray) -> np.ndarray:
    """Keys as two words each, as for jax.random.wrap_key_data."""
    return np.stack(_split_words(keys), -1)


def _split_words(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(keys >> HALF, WORD), np.asarray(keys & KEY.type(0xFFFFFFFF), WORD)


def threefry(a: np.ndarray, b: np.ndarray, x: ArrayLike,
             y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The hash of counters (x, y) by a key (a, b), all 32-bit words."""
    schedule = (a, b, a ^ b ^ WORD(0x1BD11BDA))
    x, y = x + a, y + b
    for i in range(5):
        for rotation in ROTATIONS[i % 2]:
            x = x + y
            y = x ^ ((y << WORD(rotation)) | (y >> WORD(32 - rotation)))
        x, y = x + schedule[(i + 1) % 3], y + schedule[(i + 2) % 3] + WORD(i + 1)
    return x, y


def _counts(shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    return _split_words(np.arange(math.prod(shape), dtype=KEY).reshape(shape))


def _counted(keys: np.ndarray, shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Two words for each number of a shape, by every key: (*keys, *shape)."""
    a, b = (np.reshape(word, np.shape(word) + (1,) * len(shape)) for word in _split_words(keys))
    return threefry(a, b, *_counts(shape))


def _bits(ins: Avals, outs: Avals, bit_width: int, shape: Sequence[int]) -> Callable:
    def bits(keys: np.ndarray):
        first, second = _counted(keys, shape)
        return joined(first, second) if bit_width == 64 else first ^ second

    return bits


def _folded(keys: np.ndarray, data: np.ndarray) -> np.ndarray:
    return joined(*threefry(*_split_words(keys), WORD(0), np.asarray(data).astype(WORD)))


def _seeded(seeds: np.ndarray) -> np.ndarray:
    ints = np.asarray(seeds)
    return ints.astype(KEY) if ints.dtype.itemsize == 8 else ints.astype(WORD).astype(KEY)


def _hashing(ins: Avals, outs: Avals, **_: object) -> float:
    return 120 * SECONDS_PER_CALL + SECONDS_PER_NUMBER * sum(aval.size for aval in outs)


OPERATIONS: dict[str, Operation] = {
    "iota_2x32_shape": Operation(lambda ins, outs, shape: lambda: list(_counts(shape)), ("shape",),
                                 True),
    "random_bits": Operation(_bits, ("bit_width", "shape"), cost=_hashing),
    "random_clone": Operation(lambda ins, outs: lambda keys: keys),
    "random_fold_in": Operation(lambda ins, outs: _folded, cost=_hashing),
    "random_seed": Operation(lambda ins, outs: _seeded),
    "random_split": Operation(
        lambda ins, outs, shape: lambda keys: joined(*_counted(keys, shape)), ("shape",),
        cost=_hashing),
    "random_unwrap": Operation(lambda ins, outs: key_words),
    "random_wrap": Operation(lambda ins, outs: lambda pair: joined(pair[..., 0], pair[..., 1])),
    "threefry2x32": Operation(lambda ins, outs: lambda *pairs: list(threefry(*pairs)), (), True,
                              _hashing),
}
