"""Which update each parameter gets: blocks whose objective has a known form, found from the levels
of every argument.

Gaussian blocks come first, then variances and probability tables, then whatever is left, to be
climbed.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from probml.families.form import Form
from probml.families.links import Steps, backward, forward
from probml.jaxpr.levels import Level
from probml.jaxpr.memo import memo
from probml.plan.plan import Plan
from probml.plan.vectors import vectors
from probml.structure.site import Site

DENSE = 2048  # entries of a jointly quadratic block
NEWTON = 128  # coefficients up to which a Hessian of all rows is a good buy


@dataclass(frozen=True)
class Block:
    """Parameters that are updated together.

    `form` is None for the general path. `steps` take the parameter to the quantity c in which the
    form holds. `event` counts the axes of c that belong together. `stacked`: c is all the block's
    parameters as one vector.
    `vectors`: c stacked is vectors, each at these of its places, which the density does not couple.
    `newton`: few coefficients in which rows are smooth and affine, as the gates of experts: a
        Hessian of all rows is a good buy.
    """

    names: tuple[str, ...]
    form: Form | None
    steps: Steps
    event: int
    stacked: bool
    conjugate: bool
    rowwise: bool
    why: str
    newton: bool = False
    vectors: tuple[tuple[int, ...], ...] = ()

    def describe(self, plan: Plan, prior: bool) -> str:
        sites = plan.structure.sites
        kinds = "/".join(dict.fromkeys(sites[name].kind for name in self.names))
        targets = ", ".join(dict.fromkeys(sites[user].kind for user in self._users(plan)))
        if self.newton:
            return f"Newton on the rows: {self.why}"
        if self.form is None:
            return (f"L-BFGS on {'the rows' if self.rowwise else 'sufficient statistics'}: "
                    f"{self.why}")
        if not self.conjugate and prior:
            method = ("Newton" if self.event == 0 and not sites[self.names[0]].entry.kinked
                      else "L-BFGS")
            return (f"{method} on sufficient statistics, started at the closed-form maximum: "
                    f"{self.why}")
        heavy = any(sites[user].traits.minorant is not None for user in self._users(plan))
        mixed = (", closed form given the expected precision of every cell (scale mixture)"
                 if heavy else ", closed form")
        if self.form.joint and self.rowwise:
            return f"weighted least squares ({kinds}–{targets}){mixed}"
        name = f"{kinds}–{targets}" if prior else f"{targets} maximum likelihood"
        return f"{name}{mixed}" + (f" in {'·'.join(step for step, _ in self.steps)}"
                                   if self.steps else "")

    def _users(self, plan: Plan):
        return [s for s in users(plan) if any(name in uses for name in self.names
                                              for uses in plan.structure.sites[s].uses.values())]


def users(plan: Plan) -> tuple[str, ...]:
    """The sites whose density the parameters enter: data, summed-out sites, other parameters'
    priors, factors."""
    return (*plan.pooled, *plan.rowwise, *plan.integrated, *plan.globals,
            *plan.structure.parameters, *plan.structure.penalties)


def _read_uses(plan: Plan, name: str):
    """The form and steps that every use of a parameter agrees on, the sites, or the reason why
    there is none."""
    sites = plan.structure.sites
    form, steps, places, moved = None, None, [], True
    for user in users(plan):
        site = sites[user]
        mine = {argument: uses[name] for argument, uses in site.uses.items() if name in uses}
        if not mine:
            continue
        if len(mine) > 1:
            return None, None, places, moved, f"'{name}' enters two arguments of '{user}'"
        argument, use = next(iter(mine.items()))
        if site.family is None:
            return None, None, places, moved, f"'{user}' ({site.kind}) has no kernel"
        if site.family.minorant is not None and user not in plan.rowwise:
            return None, None, places, moved, f"'{user}' ({site.kind}) is a prior"
        if argument not in site.family.canonical:
            return None, None, places, moved, f"the {argument} of '{user}' have no closed form"
        its_form, its_steps = site.family.canonical[argument]
        if not _has_suffix(sites[name].shape, its_form.own_axes(site.states, site.event)):
            return (None, None, places, moved,
                    f"its last axes differ from those of the {argument} of '{user}'")
        if its_form.joint:
            if use.level > Level.AFFINE or any(step not in ("times", "complement")
                                               for step, _ in use.coordinate):
                return None, None, places, moved, f"not affine in the {argument} of '{user}'"
            moved &= use.level == Level.MOVED and site.family.event == 0
            full = ()
        else:
            if use.level != Level.MOVED:
                return (None, None, places, moved,
                        f"{use.level.name.lower()} in the {argument} of '{user}'")
            full = its_form.normalise((*use.coordinate, *its_steps))
            if full is None:
                return (None, None, places, moved, f"no closed form for the coordinate of '{name}' "
                        f"in the {argument} of '{user}'")
        if form is not None and (form, steps) != (its_form, full):
            return (None, None, places, moved,
                    f"its uses need two different closed forms: {form.name} and {its_form.name}")
        domain = sites[name].domain
        if not domain.rank:  # of numbers, or not known
            if its_form.domain.rank:
                return (None, None, places, moved,
                        f"its support differs from that of the {argument} of '{user}'")
        elif domain != its_form.seen_from(full):
            return (None, None, places, moved,
                    f"its support ({domain.name.replace(' ', '_')}) differs from that of the "
                    f"{argument} of '{user}'")
        form, steps = its_form, full
        places.append(user)
    if form is None:  # the data do not depend on it: its posterior is its prior
        role = sites[name].entry.prior
        own = (role.form, role.steps) if role is not None else (None, None)
        return *own, places, False, "" if role else "the data do not depend on it"
    return form, steps, places, moved, ""


def _has_suffix(shape: tuple[int, ...], tail: tuple[int, ...]) -> bool:
    """Whether the last axes of a shape are `tail`."""
    return shape[len(shape) - len(tail) :] == tail


@memo(512)
def blocks(plan: Plan, prior: bool) -> tuple[tuple[Block, ...], ...]:
    """The stages of the M-step: blocks in one stage do not interact and are read together."""
    sites = plan.structure.sites
    gaussian: list[set[str]] = []
    singles, general = [], []
    found = {name: _read_uses(plan, name) for name in plan.free}
    roles = {name: sites[name].entry.prior for name in plan.free}
    for name, role in roles.items():  # a prior of a wider form makes that of the whole
        form, steps, *rest = found[name]
        if form is not None and role is not None and prior and steps == role.steps:
            found[name] = (role.form if role.form.holds(form) else form, steps, *rest)
    flat = {name for name in plan.free if not prior or sites[name].entry.improper}
    matching = {
        n
        for n in plan.free
        if (n in flat and found[n][0] and sites[n].domain == found[n][0].seen_from(found[n][1]))
        or (n not in flat and roles[n] is not None
            and (roles[n].form, roles[n].steps) == found[n][:2])
    }
    for name in plan.free:
        form, steps, places, moved, why = found[name]
        rowwise = any(name in uses for s in (*plan.rowwise, *plan.scattered)
                      for uses in sites[s].uses.values())
        conjugate = form is not None and name in matching
        why = why or ("" if conjugate else f"its prior {sites[name].kind} is not conjugate")
        # the form without the prior is not to be had: other states are another prior
        if name in plan.mixed and not conjugate:
            form, why = (None,
                         f"its prior {sites[name].kind} depends on latent discrete sites")
        if form is not None and form.joint and conjugate:
            others = {n for n in plan.free if n in matching and found[n][0].joint}
            linked = {name} | {other for other in others if _share_location(plan, name, other)}
            joined = [group for group in gaussian if group & linked]
            gaussian = [group for group in gaussian if not group & linked] + [linked.union(*joined)]
        elif form is not None and form.joint:
            event, stacked = _shape(plan, (name,), moved, not _vector_prior(sites[name]))
            general.append(Block((name,), form, (), event, stacked, False, rowwise, why))
        elif form is not None:
            block = Block((name,), form, steps, form.event, False, conjugate, rowwise, why)
            (singles if conjugate else general).append(block)
        else:
            general.append(Block((name,), None, (), 0, False, False, rowwise, why))
    together: list[Block] = []
    for group in gaussian:
        names = tuple(name for name in plan.free if name in group)
        rowwise = any(name in uses for name in names for s in (*plan.rowwise, *plan.scattered)
                      for uses in sites[s].uses.values())
        event, stacked = _shape(plan, names, found[names[0]][3],
                                names[0] in flat or not _vector_prior(sites[names[0]]))
        size = (sum(math.prod(sites[name].shape) for name in names)
                if stacked else sites[names[0]].shape[-1] if event else 1)
        if size <= DENSE:
            apart = (vectors(plan, names, users(plan))
                     if stacked and (rowwise and plan.variables or plan.latents) else ())
            together.append(Block(names, found[names[0]][0], (), event, stacked, True, rowwise, "",
                                  vectors=apart))
        else:
            general += [Block((n,), None, (), 0, False, False, rowwise, f"{size} coefficients are "
                              f"too many for one solve") for n in names]
    curved = [block for block in general if _curved(plan, block, found)]
    if not 0 < sum(math.prod(sites[name].shape) for block in curved
                   for name in block.names) <= NEWTON:
        curved = []
    climbing = [dataclasses.replace(block, newton=True) for block in curved]
    rest = [[block] for block in general if block not in curved]
    return tuple(tuple(stage)
                 for stage in (together, *_independent_stages(plan, singles), climbing, *rest)
                 if stage)


def directions(plan: Plan, prior: bool) -> int:
    """Coefficients whose Hessian an M-step takes of the rows; 0 where none."""
    return sum(math.prod(plan.structure.sites[name].shape) for stage in blocks(plan, prior)
               for block in stage if block.newton for name in block.names)


def climbed_on_rows(plan: Plan, prior: bool) -> list[str]:
    """The parameters of which each step of an M-step's climb passes over all rows."""
    return [name for stage in blocks(plan, prior) for block in stage
            if block.form is None and block.rowwise and not block.newton for name in block.names]


def _curved(plan: Plan, block: Block, found: Mapping) -> bool:
    """Whether a parameter without a form enters rows alone, affinely, in arguments of kernels,
    under a prior without kinks."""
    (name, *more), sites = block.names, plan.structure.sites
    uses = [(sites[user], sites[user].uses[a][name]) for user in users(plan)
            for a in sites[user].uses if name in sites[user].uses[a]]
    plain = (not more and block.form is None and block.rowwise and sites[name].domain.unbounded
             and not sites[name].entry.kinked)
    return plain and all(site.name in plan.rowwise and site.family is not None
                         and use.level <= Level.AFFINE for site, use in uses)


def _independent_stages(plan: Plan, singles: list[Block]) -> list[list[Block]]:
    """Stages of closed-form blocks: a parameter that enters the prior of another is never updated
    in the same stage as that other."""
    stages: list[list[Block]] = [[]]
    for block in singles:
        name = block.names[0]
        near = {name, *(p for uses in plan.structure.sites[name].uses.values() for p in uses)}
        near |= {other for other in plan.free
                 if any(name in uses for uses in plan.structure.sites[other].uses.values())}
        free = next(
            (stage for stage in stages if near.isdisjoint(other.names[0] for other in stage)), None
        )
        if free is None:
            stages.append([block])
        else:
            free.append(block)
    return stages


def _shape(plan: Plan, names: tuple[str, ...], moved: bool, elementwise: bool) -> tuple[int, bool]:
    """Whether a quadratic is separable (event 0), couples the last axis only (1), or everything
    (stacked)."""
    site, size = plan.structure.sites[names[0]], sum(math.prod(plan.structure.sites[n].shape)
                                                     for n in names)
    if len(names) > 1 or not site.shape:
        return int(len(names) > 1), len(names) > 1
    if moved and elementwise:
        return 0, False
    if len(site.independent + site.event) == 1 and (moved or len(site.batch) == 0 or size > DENSE
                                                    or _vector(plan, names[0])):
        return 1, False
    return 1, True


def _vector_prior(site: Site) -> bool:
    """Whether a conjugate prior couples the elements of a location."""
    return site.entry.prior is not None and site.entry.prior.event == 1


def _vector(plan: Plan, name: str) -> bool:
    """Every use is a copy into the location of a vector distribution: a plate's cells do not
    mix."""
    uses = [u[name] for s in users(plan) for u in plan.structure.sites[s].uses.values()
            if name in u]
    return all(use.level == Level.MOVED for use in uses)


def _share_location(plan: Plan, a: str, b: str) -> bool:
    """Whether two gaussian parameters enter the location of one site, or one is the location of the
    other's prior."""
    sites = plan.structure.sites
    if any(b in uses for uses in sites[a].uses.values()) or any(
        a in uses for uses in sites[b].uses.values()
    ):
        return True
    return any(a in uses and b in uses for user in users(plan)
               for uses in sites[user].uses.values())


def pack(params: Mapping, block: Block) -> jax.Array:
    """The block's quantity c at the present parameters."""
    if block.stacked:
        return jnp.concatenate([params[name].reshape(-1) for name in block.names])
    return forward(params[block.names[0]], block.steps)


def unpack(params: Mapping, block: Block, c: jax.Array) -> dict[str, jax.Array]:
    if not block.stacked:
        return {block.names[0]: backward(c, block.steps)}
    out, start = {}, 0
    for name in block.names:
        size = params[name].size
        out[name] = c[start : start + size].reshape(params[name].shape)
        start += size
    return out
