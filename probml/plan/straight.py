"""Whether parameters enter rows through a few numbers a row that are affine in them, as the
coefficients of regressions and of gates."""

import functools
import math

from probml.jaxpr.levels import Level
from probml.plan.plan import Plan

MOST = 32  # numbers of a row and state


def arguments(plan: Plan, name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments of a site that some of the parameters enter."""
    uses = plan.structure.sites[name].uses
    return tuple(a for a in plan.structure.sites[name].arguments
                 if any(p in uses.get(a, {}) for p in names))


@functools.lru_cache(maxsize=512)
def straight(plan: Plan, names: tuple[str, ...]) -> bool:
    """Whether the parameters `names` enter rows so, all together, beside pooled statistics."""
    if (plan.latents or plan.groupings or plan.carried or plan.chains or plan.steps
        or plan.switches):
        return False
    sites = plan.structure.sites
    for name in plan.rowwise:
        entered = arguments(plan, name, names)
        if entered and (sites[name].factor or sites[name].family is None):
            return False
        uses = [sites[name].uses[a][p] for a in entered for p in names if p in sites[name].uses[a]]
        if any(use.level > Level.AFFINE
               or any(step not in ("times", "complement") for step, _ in use.coordinate)
               for use in uses):
            return False
        program, _ = plan.structure.programs[name]
        sizes = dict(zip(sites[name].arguments, program.out_avals, strict=True))
        if sum(math.prod(sizes[a].shape) for a in entered) > MOST:
            return False
    return True
