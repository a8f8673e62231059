"""Small symmetric systems, one for each number of an array, all of whose results are made in one
loop.

What XLA's loops on a CPU read twice they make twice, with all that it is made of, and a loop has
one result: of a recursion they make every step many times over, one number at a time. But a
reduction may have several results, for which its function is called once. So here is one of two
equal numbers, of which it keeps the last: unrolled by LLVM, with what is equal made once, it is the
function by itself, four or eight numbers at a time.

Systems come as the pairs i ≥ j of their matrices, row by row.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax


def at_once(function: Callable, *arrays: jax.Array) -> list[jax.Array]:
    """function(*arrays), a tuple of arrays, in one loop.

    Args:
        function: of numbers, by arithmetic alone; also of arrays, whose derivatives it has.
        arrays: of one shape and type.
    """
    if jax.default_backend() != "cpu":  # elsewhere loops have several results
        return list(function(*arrays))

    @jax.custom_jvp
    def made(*arrays: jax.Array):
        return _reduced(function, *arrays)

    made.defjvp(lambda primals, tangents: jax.jvp(function, primals, tangents))
    return list(made(*arrays))


def _reduced(function: Callable, *arrays: jax.Array):
    spec = jax.ShapeDtypeStruct((), arrays[0].dtype)
    count = len(jax.eval_shape(function, *[spec] * len(arrays)))
    width = max(count, len(arrays))
    twice = [jnp.broadcast_to(a, (2, *a.shape)) for a in arrays]
    twice += twice[:1] * (width - len(arrays))
    zeros = tuple(jnp.zeros((), a.dtype) for a in twice)
    return tuple(lax.reduce(tuple(twice), zeros, lambda _, new: (
        *function(*new[: len(arrays)]), *new[count:]), (0,))[:count])


def inverted(*pairs: jax.Array):
    """Pairs of P → those of P⁻¹, by Gauss–Jordan sweeps on every pivot, and the pivots of P, whose
    product is |P|."""
    m = math.isqrt(2 * len(pairs))
    places = [(i, j) for i in range(m) for j in range(i + 1)]
    entries, pivots = dict(zip(places, pairs, strict=True)), []
    for t in range(m):
        one = 1 / entries[t, t]
        pivots.append(entries[t, t])
        row = [entries[max(i, t), min(i, t)] for i in range(m)]
        scaled = [one * each for each in row]
        for i, j in places:
            if i != t and j != t:
                entries[i, j] = entries[i, j] - row[i] * scaled[j]
            else:
                entries[i, j] = -one if i == j else scaled[i if j == t else j]
    return *(-entries[place] for place in places), *pivots
