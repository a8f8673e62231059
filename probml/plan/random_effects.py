"""Which parameters of a hierarchy are integrated out: normal effects that rows read.

Of a tie of a hierarchy (hierarchy.py) the effects have no joint mode with what they are tied to;
where their prior is normal given all else, and the rows that read them are normal about locations
that are affine in all of them together, their integral is exact, and the mode over the rest is the
marginal one (empirical Bayes; lme4's maximum likelihood). Under counts and choices the integral is
near (groupings.py), and said to be.
"""

import math

from probml.errors import Refusal
from probml.latents.gaussian import KINDS
from probml.plan import hierarchy
from probml.plan.groupings import (
    PRIORS,
    child_sites,
    find_nonlinear_effects,
    groupings,
    has_linear_predictor,
    is_exact,
)
from probml.plan.plan import Plan
from probml.structure.site import Site

# levels of an effect for each parameter of its variance, below which it is not integrated out
MIN_EFFECTS_PER_PARAMETER = 3
MAX_EFFECTS_PER_ROW = 256  # numbers that a row reads at the most
# numbers of all groupings but the first at the most: they are one dense system
MAX_CROSSED_EFFECTS = 2048
MAX_CROSS_ENTRIES = 2**24  # entries of the table between the first and the others at the most
MAX_DENSE_ENTRIES = 2**18  # of these up to which the table is dense whatever is in it
# numbers that a row reads of several groupings at the most, whose integral is not exact
MAX_APPROXIMATE_EFFECTS_PER_ROW = 24


def effects(plan: Plan, rows: int, closed: bool = True, few: bool = False) -> tuple[str, ...]:
    """The parameters of a plan that are to be integrated out: none where nothing ties them.

    Args:
        closed: in closed form only; False: also by quadrature and Laplace's approximation.
        few: also those of fewer levels than MIN_EFFECTS_PER_PARAMETER, as maximum likelihood must:
            otherwise their variance is not identified.

    Raises:
        Refusal: of maximum likelihood, where there are too many to be integrated out together.
    """
    ties = {tie.name: tie for tie in hierarchy.degenerate_modes(plan, rows)}
    names = integrable(plan, tuple(ties), closed)
    if few and (excluded := [name for name in integrable(plan, tuple(ties), closed, limited=False)
                             if name not in names]):
        sizes = ", ".join(f"'{name}' {math.prod(plan.structure.sites[name].shape):,}"
                          for name in (*names, *excluded))
        raise Refusal(f"model '{plan.structure.model.name}' has too many crossed random effects "
                      f"for maximum likelihood (number of effects: {sizes}). In addition to the "
                      f"largest grouping, at most {MAX_CROSSED_EFFECTS:,} effects are supported. "
                      f"Their cross table with the largest grouping may have at most "
                      f"{MAX_CROSS_ENTRIES:,} entries. Remove one of these effects from the model",
                      ("NUTS",))
    names = tuple(name for name in names if few or _has_enough_effects(plan, ties[name]))
    if not closed and not few and names and set(plan.free) == set(names):
        return effects(plan, rows)  # an approximation of all parameters is an engine's, tested
    return names


def coefficients(plan: Plan, names: tuple[str, ...]) -> tuple[str, ...]:
    """The parameters that restricted maximum likelihood integrates out beside the effects `names`:
    those without bounds that enter the locations of normal rows affinely, together with them."""
    sites = plan.structure.sites
    free = tuple(name for name in plan.free if name not in names and sites[name].domain.unbounded
                 and why_not(plan, name, prior=False) is None
                 and not any(name in sites[other].parents for other in names))
    joint = integrable(plan, (*names, *free), prior=False)
    return tuple(name for name in free if name in joint) if set(names) <= set(joint) else ()


def centres(plan: Plan) -> tuple[str, ...]:
    """The parameters without bounds that say about where effects lie: their means, written in the
    effects' own prior."""
    sites = plan.structure.sites
    return tuple(dict.fromkeys(
        p for name in plan.effects for argument in sites[name].locations
        for p in sites[name].uses.get(argument, ()) if p in plan.free and sites[p].domain.unbounded
    ))


def integrable(plan: Plan, names: tuple[str, ...], closed: bool = True, prior: bool = True,
               limited: bool = True) -> tuple[str, ...]:
    """Those of some parameters that can be integrated out, all together.

    Args:
        closed: as of `effects`. prior: which must be normal. limited: so many as are worth it.
    """
    names = tuple(name for name in names if why_not(plan, name, closed, prior) is None)
    while names:
        dropped: set[str] = next(filter(None, (
            _nonlinear_effects(plan, names, site, closed)
            for site in child_sites(plan.structure, names))), set())
        if limited and not dropped:
            dropped = _large(plan, names)
        if not dropped:
            break
        names = tuple(name for name in names if name not in dropped)
    return names


def why_not(plan: Plan, name: str, closed: bool = True, prior: bool = True) -> str | None:
    """Why a parameter by itself cannot be integrated out, in words; None: it can. Arguments as of
    `integrable`."""
    structure, site = plan.structure, plan.structure.sites[name]
    children = [structure.sites[child] for child in structure.children[name]]
    reasons = (
        (structure.model.is_joint, "the model has no plate of independent rows"),
        (prior and site.kind not in PRIORS, f"the prior of '{name}' is {site.kind}"),
        (name in plan.mixed or any(structure.sites[p].discrete for p in site.parents),
         f"the prior of '{name}' depends on a discrete site"),
        (not children, f"no row depends on '{name}'"),
        *((why is not None, why) for why in (_why_not_child(plan, child, closed)
                                             for child in children)),
    )
    return next((reason for applies, reason in reasons if applies), None)


def _why_not_child(plan: Plan, child: Site, closed: bool) -> str | None:
    """Why a site that depends on a parameter does not allow that this is integrated out; None: it
    does."""
    parent = next((p for p in child.parents if plan.structure.sites[p].rows
                   and plan.pattern.get(p) != "seen" or p in plan.variables), None)
    reasons = (
        (not child.rows or (child.kind not in KINDS if closed
                            else child.factor or child.entry.kinked or child.chain),
         f"'{child.name}' ({child.kind}), which depends on the effects, is not a "
         f"{'normal' if closed else 'smooth'} site inside rows()"),
        (child.name not in (*plan.pooled, *plan.rowwise) or child.time is not None
         or child.name in plan.variables,
         f"'{child.name}', which depends on the effects, is latent or part of a chain"),
        (parent, f"'{child.name}', which depends on the effects, also depends on '{parent}', which "
                f"is latent"),
    )
    return next((reason for applies, reason in reasons if applies), None)


def _nonlinear_effects(plan: Plan, names: tuple[str, ...], site: str, closed: bool) -> set[str]:
    """The effects in which a site is not as it must be, all effects taken together."""
    if closed:
        return find_nonlinear_effects(plan.structure, names, site)
    inputs = {name for name in plan.structure.programs[site][1] if name in names}
    return set() if has_linear_predictor(plan.structure, names, site) else inputs


def _large(plan: Plan, names: tuple[str, ...]) -> set[str]:
    """The effects of a grouping too many to be integrated out beside the others."""
    parts = groupings(plan.structure, names)
    rest, cells = sum(part.size for part in parts[1:]), sum(part.cells for part in parts)
    limit = (MAX_EFFECTS_PER_ROW if not rest or is_exact(plan.structure, names)
             else MAX_APPROXIMATE_EFFECTS_PER_ROW)
    if cells <= limit and rest <= MAX_CROSSED_EFFECTS and parts[0].size * rest <= MAX_CROSS_ENTRIES:
        return set()
    return set(parts[-1].names)


def sparsely_crossed(plan: Plan) -> bool:
    """Whether crossed effects that are integrated out in closed form have so many members that the
    table of members by members may be mostly empty. They are fitted in double, and the products of
    its rows are added over pairs of rows of the data (device/load.py)."""
    first, *others = plan.groupings or (None,)
    return (first is not None and first.index is not None and not first.nodes
            and first.size * sum(part.size for part in others) > MAX_DENSE_ENTRIES)


def _has_enough_effects(plan: Plan, tie: hierarchy.DegenerateMode) -> bool:
    """Whether enough effects share a variance parameter to estimate it."""
    sites = plan.structure.sites
    size = math.prod(sites[tie.name].shape)
    # a correlation of two is a table of four numbers, and one that is free
    counts = (sites[other].domain.size(sites[other].shape) for other in tie.tied_with)
    return tie.kind == "incidental" or all(size >= MIN_EFFECTS_PER_PARAMETER * count
                                           for count in counts)
