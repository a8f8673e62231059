"""What elimination does with the states of a name that goes: their sum, or the best of them.

Every sweep (buckets, levels, chains) multiplies factors and then reduces states; the pair of the
two is a commutative semiring (Aji & McEliece 2000), and which one is all that tells the evidence
from the most probable state.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from probml.numerics.logs import log_sum, maximum


class Semiring(NamedTuple):
    """A way to reduce the states along an axis.

    Args:
        weights: (array, axis) → without the axis, of numbers in linear space.
        logs: the same of their logarithms.
        additive: it is a sum: matrix products do it, and a step of a chain in which nothing is seen
            leaves the total as it is, since what moves out of a state adds up to 1.
    """

    weights: Callable[[jax.Array, int], jax.Array]
    logs: Callable[[jax.Array, int], jax.Array]
    additive: bool


def _highest(log: jax.Array, axis: int) -> jax.Array:
    return maximum(log, axis)[0]


SUM = Semiring(jnp.sum, log_sum, True)
MAX = Semiring(jnp.max, _highest, False)
