"""How elimination reduces the states of a variable: to their sum, or to their maximum.

Every schedule (buckets, levels, cells) multiplies factors and then reduces states; the pair of the
two operations is a commutative semiring (Aji & McEliece 2000). With sums elimination computes the
evidence, with maxima the most probable states.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax

from probml.numerics.logs import log_sum, maximum


class Semiring(NamedTuple):
    """A way to reduce the states along an axis.

    Args:
        logs: (log weights, axis) → their log sum or maximum over the axis.
        additive: whether it is a sum, which matrix products compute.
    """

    logs: Callable[[jax.Array, int], jax.Array]
    additive: bool


def _highest(log: jax.Array, axis: int) -> jax.Array:
    return maximum(log, axis)[0]


SUM = Semiring(log_sum, True)
MAX = Semiring(_highest, False)
