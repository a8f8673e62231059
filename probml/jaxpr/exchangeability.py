"""Whether rows depend on each other. The program is traced with a number of rows that is the length
of no other axis, and the axis of rows is tracked through it (rows.py)."""

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
from jax.extend import core

from probml.jaxpr.analysis import analyse
from probml.jaxpr.program import bodies, equations
from probml.jaxpr.provenance import LARGEST
from probml.jaxpr.rows import COUNT, NUMBER, SHARED, Rows, Rowwise, key_of

__all__ = ["COUNT", "NUMBER", "looks", "mixes"]


def looks(
    single: core.ClosedJaxpr, many: Callable[[int], core.ClosedJaxpr], axes: Sequence[int | None],
    numbers: Collection[int] = ()
) -> list[str]:
    """For each output of a function of rows, how a row depends on other rows; see `mixes`.

    Args:
        single: the function traced for a single row.
        many: traces it for a given number of rows.
        axes: for each input its axis of rows; None if it is the same for all rows.
        numbers: the inputs that hold the row index, 0 … rows - 1.

    Cost: one more trace; two if the program for many rows has a constant that the one for a single
        row has not.
    """
    rows, more = itertools.islice(_unlike(single), 2)
    closed = many(rows)
    counted = _constant_keys(closed) - _constant_keys(single)
    if counted:
        counted -= _constant_keys(many(more))
    return mixes(closed, axes, rows, numbers, counted)


def mixes(
    closed: core.ClosedJaxpr, axes: Sequence[int | None], rows: int, numbers: Collection[int] = (),
    counted: Collection[tuple] = ()
) -> list[str]:
    """For each output the primitive that makes a row depend on another; NUMBER if it depends on the
    row index, COUNT if on the number of rows; '' if on neither.

    Args:
        closed: traced with `rows` rows.
        rows: a prime of which the length of no other axis is a multiple.
        counted: keys of constants that were computed from the number of rows.
    """
    number = Rows(0, number=True, known=np.arange(rows, dtype=float))
    inputs = [number if i in numbers else SHARED if axis is None else Rows(axis, data=True)
              for i, axis in enumerate(axes)]
    return [value.mixed or (NUMBER if value.number else "") for value 
            in analyse(closed, Rowwise(rows, counted), inputs)]


def _unlike(single: core.ClosedJaxpr) -> Iterator[int]:
    """Numbers of rows for a trace: primes that divide the length of no axis in the program of a
    single row, and that are no constant of it."""
    shapes = {np.shape(value) for value in single.consts}
    shapes.update(aval.shape for aval in (*single.in_avals, *single.out_avals))
    sizes = set()
    for eqn in equations(single):
        shapes.update(getattr(atom.aval, "shape", ()) for atom in (*eqn.invars, *eqn.outvars))
        sizes.add(eqn.params.get("length", 0) or 0)
    sizes.update(itertools.chain(*shapes))
    held, largest = _constant_keys(single), max(map(math.prod, shapes), default=0)
    # fewer rows if a row is large, so that elements can be tracked one by one
    primes = (n for n in itertools.count(61 if 61 * 4 * largest < LARGEST else 5, 2)
              if all(n % p for p in range(3, math.isqrt(n) + 1, 2)))
    return (n for n in primes if key_of(n) not in held
            and not any(size and size % n == 0 for size in sizes))


def _constant_keys(closed: core.ClosedJaxpr) -> set[tuple]:
    """The keys of all constants of a program, also inside calls and loops."""
    values = [atom.val for atom in closed.jaxpr.outvars if isinstance(atom, core.Literal)] + list(
        closed.consts
    )
    for eqn in equations(closed):
        values += [atom.val for atom in eqn.invars if isinstance(atom, core.Literal)]
        values += [value for body in bodies(eqn) for value in body.consts]
    return {key for key in map(key_of, values) if key is not None}
