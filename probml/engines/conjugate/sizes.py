"""Variational Bayes for several numbers of states at once, as restarts of the largest model in
which the states beyond a size are impossible.

An impossible state has no rows, and its parameters stay at their prior, which changes the bound by
nothing. The probabilities of states are those of a smaller table: E log π of a Dirichlet is
ψ(a_j) − ψ(Σ a) with a = 0 for impossible states, and the concentration is that of the smaller
model. So the bound and q(θ) are those of the smaller model.
"""

import functools
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from probml.engines.engine import Problem
from probml.errors import Refusal, present
from probml.numerics.compiling import jit
from probml.numerics.process.making import unchecked
from probml.plan.blocks import all_blocks
from probml.plan.plan import Plan
from probml.posteriors.closed import Closed
from probml.structure.structure import Structure


def concentrations(problem: Problem,
                   structures: Sequence[Structure]) -> list[dict[str, np.ndarray]]:
    """The concentrations of the tables that have fewer states in smaller models: for each size,
    parameter → concentration in the largest model's shape.

    Raises:
        Refusal: a parameter with other axes of states than those of plates and of Dirichlets.
    """
    plan = problem.plan
    whole, narrow = plan.structure.sites, []
    alone = {name: not block.stacked for block in all_blocks(plan, True)
             for name in block.names}
    for name in plan.free:
        site = whole[name]
        if all(each.sites[name].shape == site.shape for each in structures):
            continue
        same = all(each.sites[name].event == site.event for each in structures)
        if not same and site.entry.prior is not None and alone[name]:
            narrow.append(name)
        elif not (same and alone[name]):
            raise _refusal(problem, name)
    found = jax.device_get(_widened_priors(tuple(structures), tuple(narrow),
                                           tuple(whole[name].shape for name in narrow),
                                           problem.known.given))
    if missing := next((name for name in narrow if found[0][name] is None), None):
        raise _refusal(problem, missing)
    return found


def _refusal(problem: Problem, name: str) -> Refusal:
    return Refusal(f"VB cannot fit {problem} with several numbers of states in one program: states "
                   f"of parameter '{name}' ({problem.plan.structure.sites[name].kind}) cannot be "
                   f"left out one by one. Fit each number of states separately")


@functools.partial(jit, static_argnums=(0, 1, 2))
def _widened_priors(structures: tuple[Structure, ...], names: tuple[str, ...],
                    shapes: tuple[tuple[int, ...], ...], given: Mapping) -> list[dict]:
    """The arguments of the named priors of each structure, padded to the shapes of the largest
    one."""
    with unchecked():
        return [{name: present(structure.sites[name].entry.prior).widened(
                     structure.distribution(name, given), structure.sites[name].shape, shape)
                 for name, shape in zip(names, shapes, strict=True)} for structure in structures]


def of_size(plan: Plan, structure: Structure, found: Closed) -> Closed:
    """q(θ) of a size, without the impossible states."""
    every = all_blocks(plan, True)

    def part(name: str, leaf: np.ndarray) -> np.ndarray:
        """Axes of a leaf are those of its parameter; a covariance has the last one twice."""
        whole, small = plan.structure.sites[name].shape, structure.sites[name].shape
        if not whole:
            return leaf
        at = [min(i, len(whole) - 1) for i in range(leaf.ndim)]
        return leaf[tuple(slice(small[j] if n == whole[j] else n)
                          for j, n in zip(at, leaf.shape, strict=True))]

    natural = tuple(of if block.stacked else {key: part(block.names[0], np.asarray(leaf))
                                              for key, leaf in of.items()}
                    for block, of in zip(every, found.natural, strict=True))
    params, mean = ({name: part(name, np.asarray(value)) for name, value in each.items()}
                    for each in (found.params, found.mean))
    return Closed(natural, params, mean)
