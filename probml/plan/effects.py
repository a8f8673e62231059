"""Which parameters of a hierarchy are integrated out: normal effects that rows read affinely.

Of a tie of a hierarchy (hierarchy.py) the effects have no joint mode with what they are tied to;
where their prior is normal given all else, and the rows that read them are normal about locations
that are affine in all of them together, their integral is exact, and the mode over the rest is the
marginal one (empirical Bayes; lme4's maximum likelihood).
"""

import math

from probml.jaxpr.levels import Level, classify
from probml.latents.gaussian import KINDS, PLAIN, straight
from probml.plan import hierarchy
from probml.plan.groupings import groupings
from probml.plan.plan import Plan

FEWEST = 3  # numbers of an effect for each number of its spread, below which the spread is its own
CELLS = 256  # numbers that a row reads at the most
REST = 2048  # numbers of all groupings but the first at the most: they are one dense system
CROSS = 2**24  # entries of the table between the first and the others at the most


def effects(plan: Plan, rows: int) -> tuple[str, ...]:
    """The parameters of a plan that are to be integrated out: none where nothing ties them."""
    tied = {tie.name: tie for tie in hierarchy.ties(plan, rows)}
    return tuple(name for name in found(plan, tuple(tied)) if _shared(plan, tied[name]))


def found(plan: Plan, names: tuple[str, ...]) -> tuple[str, ...]:
    """Of some parameters those whose integral is exact, all together."""
    names = tuple(name for name in names if why_not(plan, name) is None)
    while names:
        bent = next(filter(None, (_bent(plan, names, site) for site in _near(plan, names))), None)
        bent = bent or _large(plan, names)
        if not bent:
            break
        names = tuple(name for name in names if name not in bent)
    return names


def why_not(plan: Plan, name: str) -> str | None:
    """Why a parameter by itself cannot be integrated out exactly, in words; None: it can."""
    structure, site = plan.structure, plan.structure.sites[name]
    if structure.model.whole:
        return "the model is one density of everything"
    if site.kind not in KINDS:
        return f"its prior is {site.kind}"
    if name in plan.mixed or any(structure.sites[p].discrete for p in site.parents):
        return "its prior looks at a discrete site"
    below = structure.children[name]
    if not below:
        return "no row reads it"
    for child in (structure.sites[child] for child in below):
        if child.kind not in KINDS or not child.rows:
            return f"'{child.name}' ({child.kind}), which reads it, is no normal site of rows"
        if (child.name not in (*plan.pooled, *plan.rowwise) or child.time is not None
            or child.name in plan.variables):
            return f"'{child.name}', which reads it, is unseen, or runs along a chain"
        above = next((p for p in child.parents if structure.sites[p].rows
                      and plan.pattern.get(p) != "seen" or p in plan.variables), None)
        if above is not None:
            return f"'{child.name}', which reads it, also looks at '{above}', which is unseen"
    return None


def _near(plan: Plan, names: tuple[str, ...]) -> tuple[str, ...]:
    """The sites in rows that read some of the effects."""
    return tuple(dict.fromkeys(c for name in names for c in plan.structure.children[name]))


def _bent(plan: Plan, names: tuple[str, ...], site: str) -> set[str]:
    """The effects in which a site is not affine, all effects taken together."""
    structure = plan.structure
    program, takes = structure.programs[site]
    mine = [t for t in takes if t in names]
    uses = classify(program, {i: t for i, t in enumerate(takes) if t in names})
    bent: set[str] = set()
    for argument, use in zip(structure.sites[site].arguments, uses, strict=True):
        bent |= {name for name, how in use.items() if argument != "loc"
                 or how.level > Level.AFFINE or any(step not in PLAIN
                                                    for step, _ in how.coordinate)}
    return bent or (set() if straight(structure, names, site) else set(mine))


def _large(plan: Plan, names: tuple[str, ...]) -> set[str]:
    """The effects of a grouping too many to be integrated out beside the others."""
    parts = groupings(plan.structure, names)
    rest = sum(part.size for part in parts[1:])
    if (sum(part.cells for part in parts) <= CELLS and rest <= REST
        and parts[0].size * rest <= CROSS):
        return set()
    return set(parts[-1].names)


def _shared(plan: Plan, tie: hierarchy.Tie) -> bool:
    """Whether what an effect is tied to is shared by enough of its numbers to be told from them."""
    sites = plan.structure.sites
    size = math.prod(sites[tie.name].shape)
    return tie.kind == "incidental" or all(
        size >= FEWEST * math.prod(sites[other].shape) for other in tie.others
    )
