"""Matrices of Gaussian chains that inputs tell, step by step: refused where they are impossible."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from probml.jaxpr import levels
from probml.jaxpr.program import evaluate
from probml.language.gaussian_chain import semidefinite
from probml.numerics.process.inline_calls import evaluated
from probml.structure.structure import Structure

COVARIANCES = ("initial_covariance", "covariance")


def check(structure: Structure, inputs: Mapping[str, np.ndarray], steps: int) -> None:
    """Refuse covariances that inputs alone tell and that have a negative eigenvalue.

    Args:
        inputs: (rows, ...), or (rows, steps, ...) of those along time.

    Raises:
        ModelError: which site, in which row and at which step.

    Cost: one pass over such inputs.
    """
    for name in structure.chains:
        site, (program, takes) = structure.sites[name], structure.programs[name]
        for i, need in enumerate(levels.dependencies(program)):
            argument = site.arguments[i]
            if not need or argument not in COVARIANCES or not all(takes[k] in inputs
                                                                  for k in need):
                continue
            part, at = levels.restrict(program, [i])
            held = [_steps(structure, takes[k], inputs[takes[k]], steps) for k in at]
            with evaluated():
                found = jax.vmap(lambda *values, part=part: evaluate(part, *(
                    jnp.asarray(v[None], a.dtype)
                    for v, a in zip(values, part.in_avals, strict=True)))[0])(*held)
            semidefinite(f"model '{structure.model.name}', site '{name}' ({site.kind}): {argument}",
                         np.asarray(found),
                         lambda at: f" in row {at[0] // steps}, at step {at[0] % steps},")


def _steps(structure: Structure, name: str, array: np.ndarray, steps: int) -> np.ndarray:
    """An input at every step of every row, (rows · steps, ...), with an axis of one step where it
    has one."""
    if name in structure.timed:
        return np.asarray(array).reshape(-1, 1, *array.shape[2:])
    return np.repeat(array, steps, 0)
