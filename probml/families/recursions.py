"""Small symmetric systems, one for each number of an array, all of whose results are made in one
loop.

What XLA's loops on a CPU read twice they make twice, with all that it is made of, and a loop has
one result: of a recursion they make every step many times over, one number at a time. But a
reduction may have several results, for which its function is called once. So here is one of two
equal numbers, of which it keeps the last: unrolled by LLVM, with what is equal made once, it is the
function by itself, four or eight numbers at a time.

Systems come as the pairs i ≥ j of their matrices, row by row.
"""

import itertools
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
    one = jax.ShapeDtypeStruct((), arrays[0].dtype)
    count = len(jax.eval_shape(function, *[one] * len(arrays)))
    wide = max(count, len(arrays))
    twice = [jnp.broadcast_to(a, (2, *a.shape)) for a in arrays]
    twice += twice[:1] * (wide - len(arrays))
    zeros = tuple(jnp.zeros((), a.dtype) for a in twice)
    return tuple(lax.reduce(tuple(twice), zeros, lambda _, new: (
        *function(*new[: len(arrays)]), *new[count:]), (0,))[:count])


def _matrix(pairs: jax.Array):
    """(m, {(i, j): number})."""
    m = math.isqrt(2 * len(pairs))
    return m, dict(zip(((i, j) for i in range(m) for j in range(i + 1)), pairs, strict=True))


def _split(numbers: jax.Array):
    """m (m + 1) / 2 pairs and m numbers."""
    m = math.isqrt(2 * len(numbers)) - 1
    return numbers[:-m], numbers[-m:]


def squared(*numbers: jax.Array):
    """Pairs of P, and r → rᵀ P⁻¹ r and the pivots of P, whose product is |P|."""
    pairs, r = _split(numbers)
    m, held = _matrix(pairs)
    held |= {(m, j): r[j] for j in range(m)}
    square, pivots = 0.0, []
    for t in range(m):
        pivot = held[t, t]
        pivots.append(pivot)
        scaled = {i: held[i, t] / pivot for i in range(t + 1, m + 1)}
        for i in range(t + 1, m):
            for j in range(t + 1, i + 1):
                held[i, j] = held[i, j] - scaled[i] * held[j, t]
        for j in range(t + 1, m):
            held[m, j] = held[m, j] - scaled[m] * held[j, t]
        square = square + scaled[m] * held[m, t]
    return square, *pivots


def _swept(pairs: jax.Array, r: jax.Array = ()):
    """Gauss–Jordan sweeps on every pivot: C = P⁻¹ by pairs, C r, and the pivots."""
    m, held = _matrix(pairs)
    held |= {(m, j): each for j, each in enumerate(r)}
    last, pivots = m + bool(r), []
    for t in range(m):
        one = 1 / held[t, t]
        pivots.append(held[t, t])
        row = [held[max(i, t), min(i, t)] for i in range(last)]
        scaled = [one * each for each in row]
        for i, j in itertools.product(range(last), range(m)):
            if j > i:
                continue
            if i != t and j != t:
                held[i, j] = held[i, j] - row[i] * scaled[j]
            else:
                held[i, j] = -one if i == j else scaled[i if j == t else j]
    c = {(i, j): -held[i, j] for i in range(m) for j in range(i + 1)}
    return c, [held[m, j] for j in range(m) if r], pivots


def inverted(*pairs: jax.Array):
    """Pairs of P → those of P⁻¹, and the pivots of P, whose product is |P|."""
    c, _, pivots = _swept(pairs)
    return *c.values(), *pivots


def weighted(slope: jax.Array, *numbers: jax.Array):
    """slope × what ½ rᵀ P⁻¹ r − ½ log|P| gains with each pair of P, both places of it together, and
    with each number of r."""
    c, e, _ = _swept(*_split(numbers))
    weighed = [slope * each for each in e]
    second = [(-0.5 - 0.5 * (i != j)) * (weighed[i] * e[j] + slope * c[i, j]) for i, j in c]
    return *second, *weighed
