"""Parameters that multiply latents, as the loadings of factors do: at 0 they tell nothing of these,
nor these of them, so that an ascent would stay there."""

import functools

from probml.jaxpr.levels import Level, classify
from probml.plan.plan import Plan


@functools.lru_cache(maxsize=512)
def multiplied(plan: Plan) -> tuple[str, ...]:
    """The free parameters that are affine in an argument of some site as long as its latents are
    held, and not beside them."""
    sites, found = plan.structure.sites, set()
    for name in plan.integrated:
        program, takes = plan.structure.programs[name]
        together = classify(program, {i: t for i, t in enumerate(takes)
                                      if t in plan.free or t in plan.hidden})
        for argument, uses in zip(sites[name].arguments, together, strict=True):
            alone = sites[name].uses.get(argument, {})
            found |= {p for p, use in uses.items() if p in alone and use.level is Level.GENERAL
                      and alone[p].level <= Level.AFFINE and any(n in plan.hidden for n in uses)}
    return tuple(name for name in plan.free if name in found)
