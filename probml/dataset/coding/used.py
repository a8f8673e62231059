"""Whether a row uses an entry that its code selects.

`where(g > 0, effect[g - 1], 0.0)` reads an entry at g = 0, too, and drops it: there a code out of
range does no harm. That is found by computation, whatever the expression.
"""

from collections.abc import Collection, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from probml.jaxpr.program import evaluate
from probml.numerics.compiling import ONCE, jit
from probml.structure.structure import Structure
from probml.typing import ArrayLike

BATCH = 2**12  # rows
# of random values, so that limits and conditions, as in maximum(effect[g], 1), are passed
SCALES = (1.0, 1e3, -1e3)


def rows_that_use(structure: Structure, inputs: Mapping[str, np.ndarray],
                  parameters: Sequence[str], rows: np.ndarray) -> np.ndarray:
    """Returns whether the arguments of some site depend on the parameters, (rows, 1, ...): they are
    computed at several random values of these, and of all else that is no input. Rows that were not
    asked may say either; all are said to where discrete sites or time steps enter.

    Args:
        inputs: of all rows; codes as integers. rows: those that are asked, a mask (rows, ...).
    """
    asked = np.flatnonzero(rows.reshape(len(rows), -1).any(1))
    used = np.zeros(len(rows), bool)
    programs = {name: program for name, program in structure.programs.items()
                if structure.named[name].rows and not {*program[1]}.isdisjoint(parameters)}
    is_float = all(jnp.issubdtype(aval.dtype, jnp.floating) for program, takes in programs.values()
                   for x, aval in zip(takes, program.in_avals, strict=True) if x not in inputs)
    if not (programs and is_float and {*structure.timed}.isdisjoint(inputs)):
        return np.ones((len(rows), *(1,) * (rows.ndim - 1)), bool)
    for name, (_, takes) in programs.items():
        of_rows = {x: np.nan_to_num(inputs[x]) for x in takes if x in inputs}
        for low in range(0, len(asked), BATCH):
            some = asked[low : low + BATCH]
            padded = np.resize(some, 1 << (len(some) - 1).bit_length())
            part = {x: value[padded] for x, value in of_rows.items()}
            for values in _random_values(structure, name, inputs):
                first, *others = (jax.device_get(_arguments(structure, name, part, {
                    **values, **moved})) for moved in _random_values(structure, name, {
                        x for x in values if x not in parameters} | {*inputs}))
                for one, other in ((a, b) for found in others
                                   for a, b in zip(first, found, strict=True)):
                    differ = (one != other) & ~(np.isnan(one) & np.isnan(other))
                    used[some] |= differ.reshape(len(padded), -1).any(1)[: len(some)]
    return used.reshape(-1, *(1,) * (rows.ndim - 1))


def _random_values(structure: Structure, name: str, without: Collection[str]) -> list[dict]:
    """Random values of what the arguments of a site are computed from, at each scale."""
    program, takes = structure.programs[name]
    random = np.random.default_rng(0)
    return [{x: (scale * random.uniform(0.1, 0.9, aval.shape)).astype(aval.dtype)
             for x, aval in zip(takes, program.in_avals, strict=True) if x not in without}
            for scale in SCALES]


@jit(static_argnums=(0, 1), seldom=ONCE, on_host=True)
def _arguments(structure: Structure, name: str, inputs: Mapping[str, ArrayLike],
               values: Mapping[str, ArrayLike]) -> list[jax.Array]:
    """The arguments of a site, or the value of a deterministic, in each row."""
    program, takes = structure.programs[name]

    def at(row: Mapping[str, jax.Array]):
        return evaluate(program, *(jnp.asarray(row[x][None] if x in row else values[x], aval.dtype)
                                   for x, aval in zip(takes, program.in_avals, strict=True)))

    return jax.vmap(at)(inputs)
