"""Whether parameters enter each row through one number that is affine in them, as the coefficients
of a logistic regression."""

import math

from probml.jaxpr.memo import memo
from probml.plan.plan import Plan


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
