"""The values of deterministics outside rows, at a point and at draws. Values of rows are answers
(queries/queries.py), like the mean of a site."""

import functools
from collections.abc import Mapping

import jax

from probml.errors import present
from probml.numerics.compile_effort import ASKED
from probml.numerics.compiling import jit
from probml.structure.structure import Structure


@functools.partial(jit, static_argnums=0, seldom=ASKED)
def at(structure: Structure, env: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """The deterministics outside rows at one value of the sites there."""
    return {name: structure.computed(name, env) for name in structure.derived}


@functools.partial(jit, static_argnums=0, seldom=ASKED)
def identified_at(structure: Structure, env: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """What the model declares to be identified (`model.identifies`), at one value of the sites."""
    return present(structure.model.identified_by)(env)


@functools.partial(jit, static_argnums=0, seldom=ASKED)
def at_each(structure: Structure, draws: Mapping[str, jax.Array],
            fixed: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """The same at every draw, (draws, ...), with some sites at one value for all."""
    return jax.vmap(lambda draw: at(structure, {**fixed, **draw}))(draws)
