"""Validation of covariance matrices that depend on inputs alone."""

from collections.abc import Mapping

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
    """Check that covariance matrices are symmetric and positive semi-definite.

    Args:
        inputs: name → (rows, ...).

    Raises:
        ModelError: a matrix is not; the message names the site and the row.

    Cost: one pass over the inputs on which covariances depend.
    """
    for name, site in structure.sites.items():
        if site.chain or COVARIANCE not in site.arguments:
            continue
        program, takes = structure.programs[name]
        i = site.arguments.index(COVARIANCE)
        parents = [takes[k] for k in levels.dependencies(program)[i]]
        if not parents or not all(parent in inputs for parent in parents):
            continue
        part, at = levels.restrict(program, [i])

        def matrix(*values: jax.Array, part=part) -> jax.Array:
            return evaluate(part, *(jnp.reshape(jnp.asarray(v, a.dtype), a.shape)
                                    for v, a in zip(values, part.in_avals, strict=True)))[0]

        with evaluated():
            found = jax.vmap(matrix)(*(jnp.asarray(inputs[takes[k]]) for k in at))
        semidefinite(f"model '{structure.model.name}', site '{name}' ({site.kind}): {COVARIANCE}",
                     np.asarray(found), lambda at: f" in row {at[0]}")
