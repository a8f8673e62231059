"""The role of each site under a pattern of observations: data, latent numbers that are integrated
out, discrete variables that are summed out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from probml.errors import Refusal, name_in_function
from probml.plan.plan import Variable
from probml.structure.site import Site
from probml.structure.structure import Structure

MAX_JOINT_BITS = 6  # binary digits of the joint states of a site that are summed out as they are


@dataclass(frozen=True)
class Request:
    """What a plan is made for; see decide.make."""

    structure: Structure
    pattern: tuple[tuple[str, str], ...]
    given: tuple[str, ...]
    targets: tuple[str, ...]
    merge_globals: bool
    joints: tuple[tuple[str, ...], ...]
    holes: tuple[str, ...]
    effects: tuple[str, ...]
    lenient: bool
    flat: tuple[str, ...]
    nodes: int | None


@dataclass
class Roles:
    """The sites by their roles, each in the order of the program: `latents` are numbers of a row
    that are integrated out (a partially observed one is also `observed`), `variables` are summed
    out as joint states, `cellwise` cell by cell."""

    observed: list[str] = field(default_factory=list)
    latents: list[str] = field(default_factory=list)
    cellwise: list[str] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)


def assign_roles(request: Request) -> Roles:
    """The role of every site.

    Raises:
        Refusal: a site is to be summed out that has no finite support, or too many states.
    """
    structure, sites, pattern = request.structure, request.structure.sites, dict(request.pattern)
    for name in (name for name in request.holes if sites[name].discrete):
        raise Refusal(f"model '{structure.model.name}': the vector '{name}' ({sites[name].kind}) "
                      "is partially observed in some rows, but other sites depend on it. It has "
                      f"too many possible values to sum over. Give '{name}' completely in each "
                      "row, or omit it from the data")
    active = _active(structure, pattern, request.targets)
    barren = _barren(structure, request.given)
    # what is asked and computed from sites depends on them, too
    target_parents = {parent for name in request.targets if name in structure.deterministics
                      for parent in structure.deterministics[name].parents}
    roles = Roles()
    for site in sites.values():
        if (site.name in request.given or site.name not in active and site.rows or site.factor
                or site.name in barren):
            continue
        state = pattern.get(site.name)
        has_children = (site.name in target_parents
                        or not active.isdisjoint(structure.children[site.name]))
        if not site.discrete:
            if _is_latent(request, site, state, has_children, roles):
                roles.latents.append(site.name)
            if site.rows and state is not None:
                roles.observed.append(site.name)
        elif _is_summed(request, site, state, has_children, roles):
            if _is_spread(structure, site, state, {*active, *request.targets}, request.joints):
                roles.cellwise.append(site.name)
            else:
                roles.variables[site.name] = summed_out(structure, site)
        elif state is not None:
            roles.observed.append(site.name)
    roles.observed += [name for name in structure.losses if name in active]
    return roles


def _is_latent(request: Request, site: Site, state: str | None, has_children: bool,
               roles: Roles) -> bool:
    """Whether numbers of a row are integrated out. Without data and questions, as in a fit at given
    parameters, only those are on which a factor depends. A chain is even where it is observed: its
    steps are no rows."""
    if not (site.rows and (request.pattern or request.targets or request.holes
                           or request.structure.losses)):
        return False
    has_latent = state == "partially_observed" and any(p in roles.latents for p in site.parents)
    return bool(state is None and has_children or site.name in request.holes or has_latent
                or site.chain)


def _is_summed(request: Request, site: Site, state: str | None, has_children: bool,
               roles: Roles) -> bool:
    """Whether the states of a discrete site are summed out."""
    if not site.rows:
        return True
    is_target = site.name in request.targets
    clamped = site.chain and state == "seen" and not _countable(request.structure, site)
    hidden = has_children or is_target or state == "likelihood" or site.chain
    summed = clamped or state != "seen" and hidden
    if not summed or has_children:
        return summed
    if is_target and state is None and math.prod(site.cells) > 1:
        return False  # a vector leaf is predicted from its parents, cell by cell
    if site.states is None and not any(site.name in joint for joint in request.joints):
        return False  # a count, asked for its mean or its probabilities cell by cell
    # a leaf below a number is averaged over it
    return not (is_target and not site.chain and state != "likelihood"
                and any(p in roles.latents for p in site.parents))


def _active(structure: Structure, pattern: Mapping[str, str], targets: tuple[str, ...]) -> set[str]:
    """Sites inside rows that matter: data, targets and their ancestors; barren ones sum to one and
    are dropped."""
    active, stack = set(), [*pattern, *targets, *structure.losses]
    while stack:
        name = stack.pop()
        if name not in active:
            active.add(name)
            stack += [p for p in structure.named[name].parents if structure.sites[p].rows
                      and pattern.get(p) != "seen"]
    return active


def _barren(structure: Structure, given: tuple[str, ...]) -> set[str]:
    """Counts without end, outside rows and unseen, on which nothing depends, or nothing but others
    of the kind: they sum to one."""
    sites, barren = structure.sites, set()
    read = {parent for site in structure.deterministics.values() for parent in site.parents}
    for site in reversed(sites.values()):
        endless = (site.discrete and not site.rows and not site.factor and site.finite is None
                   and site.name not in given)
        if endless and site.name not in read and barren.issuperset(structure.children[site.name]):
            barren.add(site.name)
    return barren


def _countable(structure: Structure, site: Site) -> bool:
    """Whether a chain that is seen whole is its pair counts: its tables are the same at every step,
    and no other chain with states looks at it."""
    sites = structure.sites
    parents = [sites[p] for p in site.parents if sites[p].rows]
    simple = all(p.time is None and p.discrete and p.states is not None and math.prod(p.cells) == 1
                 for p in parents)
    return simple and not site.inputs and not any(c in structure.markov
                                                  for c in structure.children[site.name])


def _is_spread(structure: Structure, site: Site, state: str | None, active: set[str],
               joints: tuple[tuple[str, ...], ...]) -> bool:
    """Whether a hidden site has so many joint states that its cells are to be summed out one by
    one; it, or what depends on it, is seen or asked for."""
    return (site.rows and site.time is None and state != "likelihood" and site.finite is not None
            and math.prod(site.cells) > 1  # of one cell the states are the table
            and math.prod(site.cells) * math.log2(max(site.finite, 2)) > MAX_JOINT_BITS
            and not any(site.name in joint for joint in joints)
            and any(name in active for name in (site.name, *structure.children[site.name])))


def summed_out(structure: Structure, site: Site, why: str = "") -> Variable:
    """The joint states of a site that is summed out.

    Args:
        why: its cells are not summed out one by one, for the message.

    Raises:
        Refusal: there is no finite list of them, or it is too long.
    """
    if site.finite is None:
        end = "" if site.event else (f", or truncate the distribution: "
                                     f"Categorical(logits=dist.{site.kind}(...)"
                                     f".log_prob(jnp.arange(k)))")
        name = name_in_function(site.name, structure.sites)
        remedy = (f"Give '{name}' in the data{end}" if name == site.name else
                  f"Omit obs_mask=, and pass '{name}' with NaN where it is missing")
        raise Refusal(
            f"model '{structure.model.name}': values of site '{name}' ({site.kind}) are "
            "missing (latent) and must be summed out. This needs the same finite list of values in "
            f"all rows, which '{name}' does not have. Examples are a count without an upper "
            f"limit, or a total_count that depends on an input or another site. {remedy}")
    cells = math.prod(site.cells)
    # of one cell the states are the table, which has its own budget
    if cells > 1 and cells * math.log2(max(site.finite, 2)) > 16:
        raise Refusal(
            f"model '{structure.model.name}': the {cells} missing values of site '{site.name}' in "
            f"a row depend on one another{f' ({why})' * bool(why)}. Each has "
            f"{site.finite} states, so {site.finite}^{cells} joint states would have to be summed "
            f"over, and at most 65,536 are supported. Give '{site.name}' in the data, or give it "
            f"fewer elements per row"
        )
    grid = np.indices((site.finite,) * cells).reshape(cells, -1).T
    return Variable(site.name, grid.reshape(-1, *site.cells).astype(np.int32))
