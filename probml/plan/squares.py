"""Which row-wise sites enter a density by squares alone: Normals whose location is affine in
parameters and whose scale is the same in all rows, as in a linear regression.

Whether parameters enter each row through one number that is affine in them, as the coefficients
of a logistic regression.
"""

import math

from probml.jaxpr import levels
from probml.jaxpr.memo import memo
from probml.plan.plan import TABLE, Plan


def entered(plan: Plan, name: str) -> tuple[str, ...]:
    """The arguments of a site that free parameters enter."""
    uses = plan.structure.sites[name].uses
    return tuple(a for a in plan.structure.sites[name].arguments
                 if any(p in uses.get(a, {}) for p in plan.free))


@memo(512)
def is_affine_in_rows(plan: Plan) -> bool:
    """Whether every row-wise site depends on the free parameters through one affine number, and
    nothing is hidden in rows."""
    if not plan.observed_rows:
        return False
    sites = plan.structure.sites
    for name in plan.rowwise:
        program, _ = plan.structure.programs[name]
        sizes = {a: math.prod(aval.shape)
                 for a, aval in zip(sites[name].arguments, program.out_avals, strict=True)}
        if sites[name].factor or [sizes[a] for a in entered(plan, name)] != [1]:
            return False
        if not all(use.is_affine for uses in sites[name].uses.values()
                   for p, use in uses.items() if p in plan.free):
            return False
    return True


MAX_COEFFICIENTS = 256  # coefficients


@memo(512)
def squared(plan: Plan) -> tuple[str, ...]:
    """The row-wise sites of a plan that are all of this kind, beside which nothing is summed or
    integrated out or moved by a sampler; none, where one of them is not."""
    apart = plan.structure.losses or not plan.observed_rows
    if apart or not all(_affine(plan, name) for name in plan.rowwise):
        return ()
    return plan.rowwise


def coefficients(plan: Plan, name: str) -> tuple[str, ...]:
    """The free parameters in the location of a site."""
    return tuple(p for p in plan.free if p in plan.structure.sites[name].uses.get("loc", {}))


def _affine(plan: Plan, name: str) -> bool:
    site, names = plan.structure.sites[name], coefficients(plan, name)
    if not (site.traits.normal and site.traits.event == 0 and names) or site.factor:
        return False
    uses = site.uses["loc"]
    size = sum(math.prod(plan.structure.sites[p].shape) for p in names)
    if (not all(uses[p].is_affine for p in names) or size > MAX_COEFFICIENTS
            or math.prod(site.lattice) * (1 + size) ** 2 > TABLE):
        return False
    program, takes = plan.structure.programs[name]
    scale = levels.dependencies(program)[site.arguments.index("scale")]
    outside = {takes[i] for i in scale}
    return all(t in plan.structure.sites and not plan.structure.sites[t].rows for t in outside)
