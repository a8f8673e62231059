"""Whether a row uses an entry that its code selects.

`where(g > 0, effect[g - 1], 0.0)` reads an entry at g = 0, too, and drops it: there a code out of
range does no harm. That is found by computation, whatever the expression.
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from probml.jaxpr.program import evaluate
from probml.numerics.compiling import ONCE, jit
from probml.structure.structure import Structure
from probml.typing import ArrayLike

BATCH = 2**12  # rows


def rows_that_use(structure: Structure, inputs: Mapping[str, np.ndarray],
                  parameters: Sequence[str], rows: np.ndarray) -> np.ndarray:
    """Returns whether the arguments of some site depend on the parameters, (rows, 1, ...): they are
    computed at two random values of these. Rows that were not asked may say either.

    Args:
        inputs: of all rows; codes as integers. rows: those that are asked, a mask (rows, ...).
    """
    asked = np.flatnonzero(rows.reshape(len(rows), -1).any(1))
    used = np.zeros(len(rows), bool)
    programs = {name: takes for name, (_, takes) in structure.programs.items()
                if structure.named[name].rows and not {*takes}.isdisjoint(parameters)}
    if len(asked) and (not programs or not {*structure.timed}.isdisjoint(inputs)):
        used[:] = True
        programs = {}
    for name, takes in programs.items():
        of_rows = {x: np.nan_to_num(inputs[x]) for x in takes if x in inputs}
        for low in range(0, len(asked), BATCH):
            some = asked[low : low + BATCH]
            padded = np.resize(some, 1 << (len(some) - 1).bit_length())
            part = {x: value[padded] for x, value in of_rows.items()}
            first, second = (jax.device_get(_arguments(structure, name, part, values))
                             for values in _two_values(structure, name, inputs, parameters))
            for one, other in zip(first, second, strict=True):
                differ = (one != other).reshape(len(padded), -1).any(1)
                used[some] |= differ[: len(some)]
    return used.reshape(-1, *(1,) * (rows.ndim - 1))


def _two_values(structure: Structure, name: str, inputs: Mapping[str, np.ndarray],
                parameters: Sequence[str]) -> tuple[dict, dict]:
    """Values of what the arguments of a site are computed from besides inputs, which differ in the
    parameters alone."""
    program, takes = structure.programs[name]
    random = np.random.default_rng(0)
    first, second = ({x: random.uniform(0.1, 0.9, aval.shape).astype(aval.dtype)
                      for x, aval in zip(takes, program.in_avals, strict=True) if x not in inputs}
                     for _ in range(2))
    return first, {**first, **{x: second[x] for x in parameters if x in second}}


@jit(static_argnums=(0, 1), seldom=ONCE, on_host=True)
def _arguments(structure: Structure, name: str, inputs: Mapping[str, ArrayLike],
               values: Mapping[str, ArrayLike]) -> list[jax.Array]:
    """The arguments of a site, or the value of a deterministic, in each row."""
    program, takes = structure.programs[name]

    def at(row: Mapping[str, jax.Array]):
        return evaluate(program, *(jnp.asarray(row[x][None] if x in row else values[x], aval.dtype)
                                   for x, aval in zip(takes, program.in_avals, strict=True)))

    return jax.vmap(at)(inputs)
