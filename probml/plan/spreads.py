"""The spreads of what is integrated out: parameters that 0 does not make impossible."""

import functools

from probml.plan import decide, hierarchy
from probml.plan.plan import Plan


@functools.lru_cache(maxsize=512)
def spreads(plan: Plan) -> tuple[str, ...]:
    """The positive parameters that only say how wide latents, or effects of groups, lie."""
    sites, found = plan.structure.sites, []
    for name in (name for name in plan.hidden if name not in plan.pattern):
        for argument, uses in sites[name].uses.items():
            found += [p for p in uses if argument not in sites[name].locations and p in plan.free
                      and sites[p].domain.log_scale]
    if plan.groupings:
        whole = decide.make(plan.structure, plan.pattern, plan.given)
        found += [p for tie in hierarchy.ties(whole) if tie.name in plan.effects
                  for p in tie.others if p in plan.free and sites[p].domain.log_scale]
    return tuple(dict.fromkeys(found))
