"""Whether each number of an argument has coefficients of its own, as the logits of a softmax: then
the curvature of rows has a block a number, and blocks tell most of it."""

import functools
import math

import numpy as np

from probml.jaxpr.cells import NONE, cells
from probml.jaxpr.levels import Level
from probml.plan.plan import Plan
from probml.plan.straight import entered

NUMBERS, WIDEST = 64, 1024  # of an argument; coefficients of one


@functools.lru_cache(maxsize=512)
def strands(plan: Plan) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Of the one row-wise site of a plan in which nothing is hidden: parameter → which number of
    the argument each of its elements enters, flat, names in order. () where an element may enter
    several, or does so in another way than affinely; where a parameter enters none.
    """
    sites = plan.structure.sites
    apart = (plan.variables or plan.torn or plan.latents or plan.groupings or plan.carried
             or plan.steps or plan.pooled or plan.structure.losses)
    if apart or len(plan.rowwise) != 1 or sites[plan.rowwise[0]].factor:
        return ()
    (name,) = plan.rowwise
    arguments, (program, takes) = entered(plan, name), plan.structure.programs[name]
    if len(arguments) != 1 or not set(plan.free) <= set(sites[name].uses[arguments[0]]):
        return ()
    at, uses = sites[name].arguments.index(arguments[0]), sites[name].uses[arguments[0]]
    count = math.prod(program.out_avals[at].shape)
    number = {}
    for p in sorted(plan.free):
        shape, use = sites[p].shape, uses[p]
        if (shape[-1:] != (count,) or use.level > Level.AFFINE or not sites[p].domain.unbounded
                or any(step not in ("times", "complement") for step, _ in use.coordinate)):
            return ()
        number[p] = np.broadcast_to(np.arange(count), shape)
    if not 1 < count <= NUMBERS or sum(each.size for each in number.values()) > count * WIDEST:
        return ()
    found = cells(program, {takes.index(p): p for p in number}, number)[at]
    for own in found.values():
        flat = own.reshape(-1)
        if not np.all((flat == np.arange(count)) | (flat == NONE)):
            return ()
    return tuple((p, tuple(each.reshape(-1).tolist())) for p, each in number.items())
