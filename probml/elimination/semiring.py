"""What elimination does with the states of a name that goes: their sum, or the best of them.

Every sweep (buckets, levels, cells) multiplies factors and then reduces states; the pair of the
two is a commutative semiring (Aji & McEliece 2000), and which one is all that tells the evidence
from the most probable state.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax

from probml.numerics.logs import log_sum, maximum


class Semiring(NamedTuple):
    """A way to reduce the states along an axis.

    Args:
        logs: (array, axis) → without the axis, of logarithms.
        additive: it is a sum, which matrix products do.
    """

    logs: Callable[[jax.Array, int], jax.Array]
    additive: bool


def _highest(log: jax.Array, axis: int) -> jax.Array:
    return maximum(log, axis)[0]


SUM = Semiring(log_sum, True)
MAX = Semiring(_highest, False)
