"""Validation of arguments that are constants or functions of known parameters: probability tables
must sum to one, covariances must be positive semi-definite."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from probml.jaxpr import levels
from probml.jaxpr.program import evaluate
from probml.numerics.process.inline_calls import evaluated
from probml.structure.structure import Structure


def check_chains(structure: Structure, params: Mapping[str, Any], steps: int | None = None) -> None:
    """Check the arguments of chains that depend on these parameters alone.

    Args:
        params: name → array.
        steps: check only chains with continuous states, over this many steps; None: all chains.

    Raises:
        ModelError: an argument is invalid.
    """
    _check(structure, [name for name in structure.chains
                       if steps is None or name not in structure.markov], params, steps)


def check_covariances(structure: Structure, params: Mapping[str, Any]) -> None:
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
