"""Covariances, of normal vectors and of chains, that inputs alone tell: refused where they are
impossible."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from probml.jaxpr import levels
from probml.jaxpr.program import evaluate
from probml.language.gaussian_chain import semidefinite
from probml.numerics.process.inline_calls import evaluated
from probml.structure.structure import Structure

COVARIANCES = ("covariance_matrix", "initial_covariance", "covariance")


def check(structure: Structure, inputs: Mapping[str, np.ndarray], steps: int = 1) -> None:
    """Refuse covariances that are not symmetric or have a negative eigenvalue; one that is singular
    passes.

    Args:
        inputs: (rows, ...), or (rows, steps, ...) of those along time.

    Raises:
        ModelError: which site, in which row and at which step.

    Cost: one pass over such inputs.
    """
    for name, site in structure.sites.items():
        program, takes = structure.programs[name]
        arguments = [a if a in COVARIANCES else None for a in site.arguments]
        for i, need in enumerate(levels.dependencies(program) if any(arguments) else ()):
            if arguments[i] is None or not need or not all(takes[k] in inputs for k in need):
                continue
            part, at = levels.restrict(program, [i])
            timed = [takes[k] in structure.timed for k in at]
            count = steps if any(timed) else 1
            held = [inputs[takes[k]] for k in at]
            held = [v.reshape(-1, *v.shape[2:]) if along else np.repeat(v, count, 0)
                    for v, along in zip(held, timed, strict=True)]

            def matrix(*values: jax.Array, part=part) -> jax.Array:
                return evaluate(part, *(jnp.reshape(jnp.asarray(v, a.dtype), a.shape)
                                        for v, a in zip(values, part.in_avals, strict=True)))[0]

            with evaluated():
                found = jax.vmap(matrix)(*held)
            semidefinite(
                f"model '{structure.model.name}', site '{name}' ({site.kind}): {arguments[i]}",
                np.asarray(found), lambda at, count=count: f" in row {at[0] // count}" + (
                    f", at step {at[0] % count}," * (count > 1)))
