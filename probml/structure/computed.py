"""Values of the deterministics outside rows, at a point and at draws. Deterministics of rows are
computed by queries/queries.py, like the mean of a site."""

from collections.abc import Mapping

import jax

from probml.errors import present
from probml.numerics.compiling import ASKED, jit
from probml.structure.structure import Structure


@jit(static_argnums=0, seldom=ASKED)
def at(structure: Structure, env: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns the deterministics outside rows, name → array, at one value of the sites outside
    rows."""
    return {name: structure.computed(name, env) for name in structure.derived}


@jit(static_argnums=0, seldom=ASKED)
def identified_at(structure: Structure, env: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns the functions of the sites that the model declares to be identified
    (`model.identifies`), name → array, at one value of the sites."""
    return present(structure.model.identified_by)(env)


@jit(static_argnums=0, seldom=ASKED)
def at_each(structure: Structure, draws: Mapping[str, jax.Array],
            fixed: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Returns the deterministics outside rows at each draw, name → (draws, ...).

    Args:
        draws: site → (draws, ...). fixed: site → one value for all draws.
    """
    return jax.vmap(lambda draw: at(structure, {**fixed, **draw}))(draws)
