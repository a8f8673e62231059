"""Covariances of normal vectors that inputs alone tell: refused where they are impossible."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from probml.jaxpr import levels
from probml.jaxpr.program import evaluate
from probml.language.gaussian_chain import semidefinite
from probml.numerics.process.inline_calls import evaluated
from probml.structure.structure import Structure

COVARIANCE = "covariance_matrix"


def check(structure: Structure, inputs: Mapping[str, np.ndarray]) -> None:
    """Refuse covariances that are not symmetric or have a negative eigenvalue; one that is singular
    passes.

    Args:
        inputs: (rows, ...).

    Raises:
        ModelError: which site, and in which row.

    Cost: one pass over such inputs.
    """
    for name, site in structure.sites.items():
        if site.chain or COVARIANCE not in site.arguments:
            continue
        program, takes = structure.programs[name]
        i = site.arguments.index(COVARIANCE)
        need = [takes[k] for k in levels.dependencies(program)[i]]
        if not need or not all(n in inputs for n in need):
            continue
        part, at = levels.restrict(program, [i])

        def matrix(*values: jax.Array, part: Any = part) -> jax.Array:
            return evaluate(part, *(jnp.reshape(jnp.asarray(v, a.dtype), a.shape)
                                    for v, a in zip(values, part.in_avals, strict=True)))[0]

        with evaluated():
            found = jax.vmap(matrix)(*(jnp.asarray(inputs[takes[k]]) for k in at))
        semidefinite(f"model '{structure.model.name}', site '{name}' ({site.kind}): {COVARIANCE}",
                     np.asarray(found), lambda at: f" in row {at[0]}")
