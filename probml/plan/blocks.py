"""Which update each parameter gets: blocks whose objective has a known form, found from the levels
of every argument.

Gaussian blocks come first, then variances and probability tables, then whatever is left, to be
climbed.

Parameters that are several vectors, of which each element of a location depends on one: the
weights of experts, the loadings of columns with their intercepts.

Their least squares problem is then one for each vector. On which vector an element of a location
depends is read from the traced program, at every combination of the latent states; an element whose
vector is not known counts as depending on all.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.families.domains import Domain
from probml.families.form import Form, Steps, backward, forward
from probml.jaxpr.cells import NONE, cells, merge_cells
from probml.jaxpr.levels import Level
from probml.jaxpr.memo import memo
from probml.numerics.process.inline_calls import evaluated
from probml.plan.plan import Plan
from probml.structure.site import Site

MAX_STATE_COMBINATIONS = 64  # combinations of states that are tried


def vectors(plan: Plan, names: tuple[str, ...], users: tuple[str, ...]) -> tuple[tuple[int, ...],
                                                                                ...]:
    """Which entries of the concatenated parameters are a vector, if every argument of rows and
    priors depends on one vector at most; else none.

    Vectors lie along last axes; a parameter of one axis less has one element of each vector.

    Args:
        users: the sites whose density parameters enter.

    Cost: one analysis of each program at each combination of states; nothing is compiled.
    """
    sites = plan.structure.sites
    shapes = {name: sites[name].shape for name in names}
    axes = max(map(len, shapes.values()))
    lead = next(shape[:-1] for shape in shapes.values() if len(shape) == axes)
    if not lead or any(shape not in (lead, (*lead, *shape[-1:])) for shape in shapes.values()):
        return ()
    count, numbers, order, start = math.prod(lead), {}, [], 0
    for name, shape in shapes.items():
        prior = sites[name].entry.prior
        if prior is None or prior.event > len(shape) - len(lead):
            return ()
        size = math.prod(shape)
        numbers[name] = np.repeat(np.arange(count), size // count).reshape(shape)
        order.append(start + np.arange(size).reshape(count, -1))
        start += size
    for user in users:
        uses = sites[user].uses
        idx = [i for i, a in enumerate(sites[user].arguments)
               if any(name in uses.get(a, {}) for name in names)]
        if idx and (user in names or not _depend_on_one_each(plan, user, idx, numbers)):
            return ()
    return tuple(map(tuple, np.concatenate(order, 1).tolist()))


def _depend_on_one_each(plan: Plan, user: str, idx: list[int],
                        numbers: Mapping[str, np.ndarray]) -> bool:
    site, (program, inputs) = plan.structure.sites[user], plan.structure.programs[user]
    if site.family is None or site.traits.event:
        return False
    parents = plan.discrete_parents(user)
    if any(plan.structure.sites[p].states is None for p in parents):
        return False
    choices = [_values(plan, parent) for parent in parents]
    if math.prod(map(len, choices)) > MAX_STATE_COMBINATIONS:
        return False
    by_input = {inputs.index(name): name for name in numbers if name in inputs}
    for states in itertools.product(*choices):
        states_at = {inputs.index(p): value for p, value in zip(parents, states, strict=True)
                     if p in inputs}
        vectors_of = cells(program, by_input, numbers, states_at)
        if not all(_depends_on_one_vector(list(vectors_of[i].values())) for i in idx):
            return False
    return True


def _depends_on_one_vector(arrays: list[np.ndarray]) -> bool:
    """Whether every element depends on one vector at most, of all parameters together."""
    merged = np.full(np.shape(arrays[0]) if arrays else (), NONE)
    return all(merge_cells(merged, array) for array in arrays)


def _values(plan: Plan, parent: str) -> list[np.ndarray]:
    """The states of a discrete site in NumPyro's layout of a row."""
    site = plan.structure.sites[parent]
    states = (plan.variables[parent].values if parent in plan.variables
              else np.arange(site.states or 0).reshape(-1, *site.cells))
    with evaluated():
        return [np.asarray(site.place(value)) for value in states]


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

    @property
    def closed_form(self) -> Form:
        """Its form, of a block that has one."""
        assert self.form is not None
        return self.form

    def describe(self, plan: Plan, prior: bool) -> str:
        sites = plan.structure.sites
        kinds = "/".join(dict.fromkeys(sites[name].kind for name in self.names))
        targets = ", ".join(dict.fromkeys(sites[user].kind for user in self._users(plan)))
        if self.newton:
            return f"Newton's method on all rows: {self.why}"
        if self.form is None:
            return (f"L-BFGS "
                    f"{'on all rows' if self.rowwise else 'on sufficient statistics'}: "
                    f"{self.why}")
        if not self.conjugate and prior:
            method = ("Newton's method" if self.event == 0 and not sites[self.names[0]].entry.kinked
                      else "L-BFGS")
            return (f"{method} on sufficient statistics, started at the closed-form maximum: "
                    f"{self.why}")
        heavy_tailed = any(sites[user].traits.minorant is not None for user in self._users(plan))
        suffix = (", closed form given the expected precision of every value (scale mixture)"
                  if heavy_tailed else ", closed form")
        if self.form.joint and self.rowwise:
            return f"weighted least squares ({kinds}–{targets}){suffix}"
        name = f"{kinds}–{targets}" if prior else f"{targets} maximum likelihood"
        return f"{name}{suffix}" + (f" in {'·'.join(step for step, _ in self.steps)}"
                                    if self.steps else "")

    def _users(self, plan: Plan):
        return [s for s in users(plan) if any(name in uses for name in self.names
                                              for uses in plan.structure.sites[s].uses.values())]


def users(plan: Plan) -> tuple[str, ...]:
    """The sites whose density the parameters enter: data, summed-out sites, other parameters'
    priors, factors."""
    return (*plan.pooled, *plan.rowwise, *plan.integrated, *plan.globals,
            *plan.structure.parameters, *plan.structure.penalties)


class Uses(NamedTuple):
    """The form and steps on which all uses of a parameter agree, or why there are none."""

    form: Form | None = None
    steps: Steps = ()
    copied: bool = False  # every use is a copy
    why: str = ""


def _read_uses(plan: Plan, name: str) -> Uses:
    """The form of a parameter by all of its uses; that of its prior where it has none."""
    sites = plan.structure.sites
    common = None
    for user in users(plan):
        arguments = [argument for argument, uses in sites[user].uses.items() if name in uses]
        if not arguments:
            continue
        if len(arguments) > 1:
            return Uses(why=f"'{name}' enters two arguments of the distribution of "
                            f"'{user}'")
        read = _read_use(plan, name, user, arguments[0])
        if read.form is None:
            return read
        if common is not None and common.form is not None and read[:2] != common[:2]:
            return Uses(why=f"two sites depend on '{name}' and need different closed forms, "
                            f"{common.form.name} and {read.form.name}")
        mismatch = _other_support(sites[name].domain, read.form, read.steps)
        if mismatch is not None:
            return Uses(why=f"the possible values of '{name}'{mismatch} are not those of the "
                            f"argument {arguments[0]} of '{user}'")
        common = read._replace(copied=read.copied and (common is None or common.copied))
    if common is not None:
        return common
    role = sites[name].entry.prior  # the data do not depend on it: its posterior is its prior
    if role is None:
        return Uses(why=f"the data do not depend on '{name}'")
    return Uses(role.form, role.steps)


def _read_use(plan: Plan, name: str, user: str, argument: str) -> Uses:
    """The form of one use of a parameter, in an argument of a site."""
    site = plan.structure.sites[user]
    use = site.uses[argument][name]
    if site.family is None:
        return Uses(why=f"'{user}' ({site.kind}) has no sufficient statistics (sums of the data "
                    f"that determine the likelihood)" + (
                        "; it has them if the values to be left out are NaN in the data instead "
                        "of masked" if site.kind == "MaskedDistribution" else ""))
    if site.traits.minorant is not None and user not in plan.rowwise:
        return Uses(why=f"'{user}' ({site.kind}), which depends on '{name}', is a prior and not "
                    f"observed")
    if argument not in site.traits.canonical:
        return Uses(why=f"no closed form is known for the argument {argument} of '{user}'")
    form, steps = site.traits.canonical[argument]
    if not _has_suffix(plan.structure.sites[name].shape, form.own_axes(site.states, site.event)):
        return Uses(why=f"the argument {argument} of '{user}' has other axes than '{name}'")
    if form.joint:
        if not use.is_affine:
            return Uses(why=f"the argument {argument} of '{user}' is not a linear function of "
                        f"'{name}'")
        return Uses(form, (), use.level == Level.MOVED and site.traits.event == 0)
    if use.level != Level.MOVED:
        return Uses(why=f"the argument {argument} of '{user}' is computed from '{name}', and a "
                        f"closed form is known only for '{name}' or its elements, such as "
                        f"{name}[z]")
    normal = form.normalise((*use.coordinate, *steps))
    if normal is None:
        return Uses(why=f"no closed form is known for the function of '{name}' that is the "
                        f"argument {argument} of '{user}'")
    return Uses(form, normal, True)


def _other_support(domain: Domain, form: Form, steps: Steps) -> str | None:
    """The name of a parameter's support in brackets where it is not that of a form, empty for a
    number; None where both agree."""
    if not domain.rank:  # of numbers, or not known
        return "" if form.domain.rank else None
    return None if domain == form.seen_from(steps) else f" ({domain.name.replace(' ', '_')})"


def _has_suffix(shape: tuple[int, ...], tail: tuple[int, ...]) -> bool:
    """Whether the last axes of a shape are `tail`."""
    return shape[len(shape) - len(tail) :] == tail


@memo(512)
def blocks(plan: Plan, prior: bool) -> tuple[tuple[Block, ...], ...]:
    """The stages of the M-step: blocks in one stage do not interact and are read together."""
    uses_of = {name: _with_prior(plan, name, _read_uses(plan, name), prior) for name in plan.free}
    conjugate = {name for name in plan.free if _is_conjugate(plan, name, uses_of[name], prior)}
    joint = [name for name, uses in uses_of.items()
             if name in conjugate and uses.form is not None and uses.form.joint]
    single = [_single_block(plan, name, uses_of[name], name in conjugate) for name in plan.free
              if name not in joint]
    grouped = [block for names in _coupled_groups(plan, joint)
               for block in _joint_blocks(plan, names, uses_of[names[0]], prior)]
    general = [block for block in (*single, *grouped) if not block.conjugate]
    newton = _newton_blocks(plan, general)
    stages = ([block for block in grouped if block.conjugate],
              *_independent_stages(plan, [block for block in single if block.conjugate]),
              [dataclasses.replace(block, newton=True) for block in newton],
              *([block] for block in general if block not in newton))
    return tuple(tuple(stage) for stage in stages if stage)


def all_blocks(plan: Plan, prior: bool) -> tuple[Block, ...]:
    """The blocks of the M-step, stage after stage."""
    return tuple(block for stage in blocks(plan, prior) for block in stage)


def _with_prior(plan: Plan, name: str, uses: Uses, prior: bool) -> Uses:
    """The uses with the form of the prior, where that form holds theirs."""
    role = plan.structure.sites[name].entry.prior
    if not prior or uses.form is None or role is None or uses.steps != role.steps:
        return uses
    return uses._replace(form=role.form) if role.form.holds(uses.form) else uses


def _is_flat(plan: Plan, name: str, prior: bool) -> bool:
    """Whether the objective has no prior density of a parameter."""
    return not prior or plan.structure.sites[name].entry.improper


def _is_conjugate(plan: Plan, name: str, uses: Uses, prior: bool) -> bool:
    """Whether the prior of a parameter has the form of its uses; a flat one has every form on its
    own support."""
    site = plan.structure.sites[name]
    if uses.form is None:
        return False
    if _is_flat(plan, name, prior):
        return site.domain == uses.form.seen_from(uses.steps)
    role = site.entry.prior
    return role is not None and (role.form, role.steps) == (uses.form, uses.steps)


def _enters_rows(plan: Plan, names: tuple[str, ...]) -> bool:
    """Whether some of the parameters enter sites whose rows are passed over at each step."""
    return any(name in uses for name in names for s in (*plan.rowwise, *plan.scattered)
               for uses in plan.structure.sites[s].uses.values())


def _coupled_groups(plan: Plan, joint: list[str]) -> list[tuple[str, ...]]:
    """Gaussian parameters in groups that share a location, directly or through others."""
    groups: list[set[str]] = []
    for name in joint:
        linked = {name} | {other for other in joint if _share_location(plan, name, other)}
        joined = [group for group in groups if group & linked]
        groups = [group for group in groups if not group & linked] + [linked.union(*joined)]
    return [tuple(name for name in plan.free if name in group) for group in groups]


def _single_block(plan: Plan, name: str, uses: Uses, conjugate: bool) -> Block:
    """The block of a parameter that is updated by itself."""
    site, form = plan.structure.sites[name], uses.form
    why = uses.why or ("" if conjugate else f"the prior of '{name}', {site.kind}, is not conjugate")
    # the form without the prior is not to be had: other states are another prior
    if name in plan.mixed and not conjugate:
        form, why = None, f"the prior of '{name}', {site.kind}, depends on latent discrete sites"
    rowwise = _enters_rows(plan, (name,))
    if form is None:
        return Block((name,), None, (), 0, False, False, rowwise, why)
    if form.joint:
        event, stacked = _shape(plan, (name,), uses.copied, not _vector_prior(site))
        return Block((name,), form, (), event, stacked, False, rowwise, why)
    return Block((name,), form, uses.steps, form.event, False, conjugate, rowwise, why)


def _joint_blocks(plan: Plan, names: tuple[str, ...], uses: Uses, prior: bool) -> list[Block]:
    """The block of gaussian parameters that are solved for together; one without a form for each
    where they are too many for one solve."""
    sites, first = plan.structure.sites, plan.structure.sites[names[0]]
    rowwise = _enters_rows(plan, names)
    event, stacked = _shape(plan, names, uses.copied,
                            _is_flat(plan, names[0], prior) or not _vector_prior(first))
    size = (sum(math.prod(sites[name].shape) for name in names)
            if stacked else first.shape[-1] if event else 1)
    if size > DENSE:
        return [Block((name,), None, (), 0, False, False, rowwise,
                      f"{size} coefficients are too many for one system of linear "
                      f"equations") for name in names]
    uncoupled = (vectors(plan, names, users(plan))
                 if stacked and (rowwise and plan.variables or plan.latents) else ())
    return [Block(names, uses.form, (), event, stacked, True, rowwise, "", vectors=uncoupled)]


def _newton_blocks(plan: Plan, general: list[Block]) -> list[Block]:
    """The blocks without a form that Newton's method updates: smooth and affine in rows, and not
    too many coefficients for a Hessian."""
    curved = [block for block in general if _curved(plan, block)]
    size = sum(math.prod(plan.structure.sites[name].shape) for block in curved
               for name in block.names)
    return curved if 0 < size <= NEWTON else []


def directions(plan: Plan, prior: bool) -> int:
    """Coefficients whose Hessian an M-step takes of the rows; 0 where none."""
    return sum(math.prod(plan.structure.sites[name].shape) for block in all_blocks(plan, prior)
               if block.newton for name in block.names)


def climbed_on_rows(plan: Plan, prior: bool) -> list[str]:
    """The parameters of which each step of an M-step's climb passes over all rows."""
    return [name for block in all_blocks(plan, prior)
            if block.form is None and block.rowwise and not block.newton for name in block.names]


def _curved(plan: Plan, block: Block) -> bool:
    """Whether a parameter without a form enters rows alone, affinely, in arguments of kernels,
    under a prior without kinks."""
    (name, *others), sites = block.names, plan.structure.sites
    uses = [(sites[user], sites[user].uses[a][name]) for user in users(plan)
            for a in sites[user].uses if name in sites[user].uses[a]]
    simple = (not others and block.form is None and block.rowwise and sites[name].domain.unbounded
              and not sites[name].entry.kinked)
    return simple and all(site.name in plan.rowwise and site.family is not None
                          and use.is_affine for site, use in uses)


def _independent_stages(plan: Plan, singles: list[Block]) -> list[list[Block]]:
    """Stages of closed-form blocks: a parameter that enters the prior of another is never updated
    in the same stage as that other."""
    stages: list[list[Block]] = [[]]
    for block in singles:
        name = block.names[0]
        tied = {name, *(p for uses in plan.structure.sites[name].uses.values() for p in uses)}
        tied |= {other for other in plan.free
                 if any(name in uses for uses in plan.structure.sites[other].uses.values())}
        open_stage = next(
            (stage for stage in stages if tied.isdisjoint(other.names[0] for other in stage)), None
        )
        if open_stage is None:
            stages.append([block])
        else:
            open_stage.append(block)
    return stages


def _shape(plan: Plan, names: tuple[str, ...], copied: bool, elementwise: bool) -> tuple[int, bool]:
    """Whether a quadratic is separable (event 0), couples the last axis only (1), or everything
    (stacked)."""
    site, size = plan.structure.sites[names[0]], sum(math.prod(plan.structure.sites[n].shape)
                                                     for n in names)
    if len(names) > 1 or not site.shape:
        return int(len(names) > 1), len(names) > 1
    if copied and elementwise:
        return 0, False
    if len(site.independent + site.event) == 1 and (copied or len(site.batch) == 0 or size > DENSE
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
    parts = jax.lax.split(c, [params[name].size for name in block.names])
    return {name: part.reshape(params[name].shape)
            for name, part in zip(block.names, parts, strict=True)}
