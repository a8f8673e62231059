"""Parameters that are several vectors, of which a location looks at one: the weights of experts.

Their least squares are then those of each vector by itself. Which vector an element of a location
depends on is followed through the traced program, at every combination of the hidden states; what
the program leaves open counts as all of them.
"""

import itertools
import math

import jax
import numpy as np

from probml.jaxpr.cells import SEVERAL, cells
from probml.plan.plan import Plan

MOST = 64  # combinations of states that are looked at


def vectors(plan: Plan, name: str, users: tuple[str, ...]) -> int:
    """How many vectors, along its last axis, a parameter is, if every number that rows or priors
    look at depends on one of them at most; else 0.

    Args:
        users: the sites whose density parameters enter.

    Cost: one look at each program at each combination of states; nothing is compiled.
    """
    sites = plan.structure.sites
    site = sites[name]
    if len(site.shape) < 2 or site.entry.prior is None or site.entry.prior.event > 1:
        return 0
    count = math.prod(site.shape[:-1])
    number = np.repeat(np.arange(count), site.shape[-1]).reshape(site.shape)
    for user in users:
        at = [i for i, a in enumerate(sites[user].arguments) if name in sites[user].uses.get(a, {})]
        if at and not _one_each(plan, user, at, name, number):
            return 0
    return count


def _one_each(plan: Plan, user: str, at: list[int], name: str, number: np.ndarray) -> bool:
    site, (program, takes) = plan.structure.sites[user], plan.structure.programs[user]
    if site.family is None or site.family.event:
        return False
    parents = plan.discrete_parents(user)
    if any(plan.structure.sites[p].states is None for p in parents):
        return False
    choices = [_values(plan, parent) for parent in parents]
    if math.prod(map(len, choices)) > MOST:
        return False
    for states in itertools.product(*choices):
        known = {takes.index(p): value for p, value in zip(parents, states, strict=True)
                 if p in takes}
        found = cells(program, {takes.index(name): name}, {name: number}, known)
        if any((found[i].get(name, np.zeros(1)) == SEVERAL).any() for i in at):
            return False
    return True


def _values(plan: Plan, parent: str) -> list[np.ndarray]:
    """The states of a discrete site in NumPyro's layout of a row."""
    site = plan.structure.sites[parent]
    states = (plan.variables[parent].values if parent in plan.variables
              else np.arange(site.states).reshape(site.states, *site.cells))
    with jax.ensure_compile_time_eval():
        return [np.asarray(site.place(value)) for value in states]
