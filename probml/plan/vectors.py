"""Parameters that are several vectors, of which each element of a location depends on one: the
weights of experts, the loadings of columns with their intercepts.

Their least squares problem is then one for each vector. On which vector an element of a location
depends is read from the traced program, at every combination of the latent states; an element whose
vector is not known counts as depending on all.
"""

import itertools
import math
from collections.abc import Mapping

import numpy as np

from probml.jaxpr.cells import NONE, SEVERAL, cells
from probml.numerics.process.inline_calls import evaluated
from probml.plan.plan import Plan

MOST = 64  # combinations of states that are tried


def vectors(plan: Plan, names: tuple[str, ...], users: tuple[str, ...]) -> tuple[tuple[int, ...],
                                                                                ...]:
    """Which entries of the concatenated parameters are a vector, if every argument of rows and
    priors depends on one vector at most; else none.

    Vectors lie along last axes; a parameter of one axis less has one element of each vector.

    Args:
        users: the sites whose density parameters enter.

    Cost: one analysis of each program at each combination of states; nothing is compiled.
    """
    sites = plan.structure.sites
    shapes = {name: sites[name].shape for name in names}
    axes = max(map(len, shapes.values()))
    lead = next(shape[:-1] for shape in shapes.values() if len(shape) == axes)
    if not lead or any(shape not in (lead, (*lead, *shape[-1:])) for shape in shapes.values()):
        return ()
    count, numbers, order, start = math.prod(lead), {}, [], 0
    for name, shape in shapes.items():
        prior = sites[name].entry.prior
        if prior is None or prior.event > len(shape) - len(lead):
            return ()
        size = math.prod(shape)
        numbers[name] = np.repeat(np.arange(count), size // count).reshape(shape)
        order.append(start + np.arange(size).reshape(count, -1))
        start += size
    for user in users:
        uses = sites[user].uses
        at = [i for i, a in enumerate(sites[user].arguments)
              if any(name in uses.get(a, {}) for name in names)]
        if at and (user in names or not _one_each(plan, user, at, numbers)):
            return ()
    return tuple(map(tuple, np.concatenate(order, 1).tolist()))


def _one_each(plan: Plan, user: str, at: list[int], numbers: Mapping[str, np.ndarray]) -> bool:
    site, (program, takes) = plan.structure.sites[user], plan.structure.programs[user]
    if site.family is None or site.traits.event:
        return False
    parents = plan.discrete_parents(user)
    if any(plan.structure.sites[p].states is None for p in parents):
        return False
    choices = [_values(plan, parent) for parent in parents]
    if math.prod(map(len, choices)) > MOST:
        return False
    mine = {takes.index(name): name for name in numbers if name in takes}
    for states in itertools.product(*choices):
        known = {takes.index(p): value for p, value in zip(parents, states, strict=True)
                 if p in takes}
        found = cells(program, mine, numbers, known)
        if not all(_depends_on_one_vector(list(found[i].values())) for i in at):
            return False
    return True


def _depends_on_one_vector(found: list[np.ndarray]) -> bool:
    """Whether every element depends on one vector at most, of all parameters together."""
    if not found:
        return True
    low = np.min([np.where(each == NONE, np.iinfo(int).max, each) for each in found], 0)
    high = np.max(found, 0)
    some = high != NONE
    return not any((each == SEVERAL).any() for each in found) and bool(
        (low[some] == high[some]).all())


def _values(plan: Plan, parent: str) -> list[np.ndarray]:
    """The states of a discrete site in NumPyro's layout of a row."""
    site = plan.structure.sites[parent]
    states = (plan.variables[parent].values if parent in plan.variables
              else np.arange(site.states or 0).reshape(-1, *site.cells))
    with evaluated():
        return [np.asarray(site.place(value)) for value in states]
