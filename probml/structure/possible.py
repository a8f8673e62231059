"""Validation of arguments that are constants or functions of known parameters: probability tables
must sum to one, covariances must be positive semi-definite.

Validation of covariance matrices, of vectors and of chains, that depend on inputs alone.
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from probml.jaxpr import levels
from probml.jaxpr.program import evaluate
from probml.language.gaussian_chain import check_semidefinite
from probml.numerics.process.inline_calls import evaluated
from probml.structure.structure import Structure
from probml.typing import SiteValues

COVARIANCES = ("covariance_matrix", "initial_covariance", "covariance")


def check(structure: Structure, inputs: Mapping[str, np.ndarray], steps: int = 1) -> None:
    """Check that covariance matrices are symmetric and positive semi-definite.

    Args:
        inputs: name → (rows, ...), or (rows, steps, ...) for inputs with a time axis.
        steps: number of steps of the chains.

    Raises:
        ModelError: a matrix is not; the message names the site, the row and the step.

    Cost: one pass over the inputs on which covariances depend.
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
            numbers = [inputs[takes[k]] for k in at]
            numbers = [v.reshape(-1, *v.shape[2:]) if along else np.repeat(v, count, 0)
                    for v, along in zip(numbers, timed, strict=True)]

            def matrix(*values: jax.Array, part: ArrayLike = part) -> jax.Array:
                return evaluate(part, *(jnp.reshape(jnp.asarray(v, a.dtype), a.shape)
                                        for v, a in zip(values, part.in_avals, strict=True)))[0]

            with evaluated():
                found = jax.vmap(matrix)(*numbers)

            def place(at: tuple, count: int = count) -> str:
                return f" in row {at[0] // count}" + f", at step {at[0] % count}," * (count > 1)

            check_semidefinite(
                f"model '{structure.model.name}', site '{name}' ({site.kind}): {arguments[i]}",
                np.asarray(found), place)


def check_chains(structure: Structure, params: SiteValues, steps: int | None = None) -> None:
    """Check the arguments of chains that depend on these parameters alone.

    Args:
        params: name → array.
        steps: check only chains with continuous states, over this many steps; None: all chains.

    Raises:
        ModelError: an argument is invalid.
    """
    _check(structure, [name for name in structure.chains
                       if steps is None or name not in structure.markov], params, steps)


def check_covariances(structure: Structure, params: SiteValues) -> None:
    """Check the covariances of vectors that depend on these parameters alone, by their eigenvalues.

    Raises:
        ModelError: a covariance is invalid.
    """
    _check(structure, [name for name, site in structure.sites.items() if site.family is not None
                       and not site.chain and "covariance_matrix" in site.arguments], params, None)


def _check(structure: Structure, names: Sequence[str], params: Mapping[str, np.ndarray],
           steps: int | None) -> None:
    for name in names:
        site, (program, takes) = structure.sites[name], structure.programs[name]
        needs = levels.dependencies(program)
        at = [i for i, need in enumerate(needs) if all(takes[k] in params for k in need)]
        if not at:
            continue
        part, inputs = levels.restrict(program, at)
        with evaluated():  # concrete values, also within a trace
            known = evaluate(part, *(jnp.reshape(jnp.asarray(params[takes[k]], aval.dtype),
                                                 aval.shape)
                                     for k, aval in zip(inputs, part.in_avals, strict=True)))
        site.traits.check(f"model '{structure.model.name}', site '{name}' ({site.kind})",
                          {site.arguments[i]: np.asarray(value)
                           for i, value in zip(at, known, strict=True)}, steps)
