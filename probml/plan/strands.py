"""Whether each element of an argument has coefficients of its own, as the logits of a softmax have:
the Hessian of the rows is then nearly block-diagonal, one block an element."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from probml.jaxpr.cells import NONE, cells, merge_cells
from probml.jaxpr.memo import memo
from probml.plan.plan import Plan

NUMBERS, WIDEST = 64, 1024  # most elements of an argument; most coefficients of an element


class Columns(NamedTuple):
    """Which coefficients each element of an argument has.

    Attributes:
        argument: of the site. numbers: those of its elements that parameters enter, flat.
        places: the coefficients of each of them, as places in the concatenated parameters.
    """

    argument: str
    numbers: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]


@memo(512)
def columns(plan: Plan, user: str, names: tuple[str, ...]) -> Columns | None:
    """How parameters enter a row-wise site that depends on no latent states, as the coefficients
    of a gate do; None where an element has none of its own.

    Args:
        names: the parameters, in the order in which they are concatenated.
    """
    site = plan.structure.sites[user]
    if (user not in plan.rowwise or site.factor or plan.discrete_parents(user)
        or any(user in kind for kind in (plan.chains, plan.steps, plan.switches))):
        return None
    arguments = [a for a in site.arguments if any(p in site.uses.get(a, {}) for p in names)]
    if len(arguments) != 1:
        return None
    at, (program, takes) = site.arguments.index(arguments[0]), plan.structure.programs[user]
    for own in _numberings(plan, names):
        mine = {takes.index(p): p for p in names if p in takes}
        found = [each.reshape(-1) for each in cells(program, mine, own)[at].values()]
        where = np.full(len(found[0]), NONE)
        alone = all(merge_cells(where, each) for each in found)
        some = np.flatnonzero(where != NONE)
        if alone and len(set(where[some])) == len(some) > 0:
            whole = np.concatenate([own[p].reshape(-1) for p in names])
            places = tuple(tuple(np.flatnonzero(whole == where[e]).tolist()) for e in some)
            if len({len(each) for each in places}) == 1:
                return Columns(arguments[0], tuple(some.tolist()), places)
    return None


@memo(512)
def blocks_of_hessian(plan: Plan) -> Columns | None:
    """Which coordinates, in the order of the parameters' names, each element of the one argument
    of the one row-wise site has, of a plan without latent variables; None where a parameter enters
    in another way, or the blocks are large."""
    sites, names = plan.structure.sites, tuple(sorted(plan.free))
    if plan.pooled or plan.structure.losses or not plan.observed_rows or len(plan.rowwise) != 1:
        return None
    site, (program, _) = sites[plan.rowwise[0]], plan.structure.programs[plan.rowwise[0]]
    found = columns(plan, site.name, names)
    uses = {} if found is None else site.uses[found.argument]
    if found is None or not all(p in uses and uses[p].is_affine and sites[p].domain.unbounded
                                for p in names):
        return None
    count, size = len(found.numbers), len(found.places[0])
    every = (program.out_avals[site.arguments.index(found.argument)].size == count
             and sum(math.prod(sites[p].shape) for p in names) == count * size)
    return found if every and 1 < count <= NUMBERS and size <= WIDEST else None


def _numberings(plan: Plan, names: tuple[str, ...]) -> Iterator[dict[str, np.ndarray]]:
    """Elements of parameters numbered along the last axis, then along the first, where that axis
    has one length in all of them."""
    shapes = {name: plan.structure.sites[name].shape for name in names}
    for axis in (-1, 0):
        lengths = {shape[axis] if shape else 0 for shape in shapes.values()}
        if len(lengths) == 1 and 0 not in lengths:
            yield {name: np.indices(shape)[axis] for name, shape in shapes.items()}
