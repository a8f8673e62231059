"""Which sufficient statistics the rows of a plan have.

Squares: of row-wise Normals whose location is affine in parameters and whose scale is the same in
all rows, as in a linear regression; and whether parameters enter each row through one number that
is affine in them, as the coefficients of a logistic regression. Weights, means and second moments:
where normal latent numbers enter normal locations in the same way in every row, as the factors of a
factor analysis do; and, member by member, where rows depend on effects of groups.

Whether each element of an argument has coefficients of its own, as the logits of a softmax have:
the Hessian of the rows is then nearly block-diagonal, one block an element.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from probml.jaxpr.cells import NONE, cells, merge_cells
from probml.jaxpr.levels import classify, dependencies
from probml.jaxpr.memo import memo
from probml.latents.gaussian import is_location_affine
from probml.plan.plan import TABLE, Plan

MAX_COEFFICIENTS = 256  # of a location, for squares
MAX_NUMBERS = 512  # numbers of a row
MAX_NUMBERS_WITH_EFFECTS = 16  # numbers of a row that depends on effects


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


@memo(512)
def squared(plan: Plan) -> tuple[str, ...]:
    """The row-wise sites of a plan that are all of this kind, beside which nothing is summed or
    integrated out or moved by a sampler; none, where one of them is not."""
    ineligible = plan.structure.losses or not plan.observed_rows
    if ineligible or not all(_is_affine(plan, name) for name in plan.rowwise):
        return ()
    return plan.rowwise


def coefficients(plan: Plan, name: str) -> tuple[str, ...]:
    """The free parameters in the location of a site."""
    return tuple(p for p in plan.free if p in plan.structure.sites[name].uses.get("loc", {}))


def number_of_coefficients(plan: Plan, name: str) -> int:
    """How many numbers these parameters have together."""
    return sum(math.prod(plan.structure.sites[p].shape) for p in coefficients(plan, name))


def _is_affine(plan: Plan, name: str) -> bool:
    site, names = plan.structure.sites[name], coefficients(plan, name)
    if not (site.traits.normal and site.traits.event == 0 and names) or site.factor:
        return False
    uses = site.uses["loc"]
    size = number_of_coefficients(plan, name)
    if (not all(uses[p].is_affine for p in names) or size > MAX_COEFFICIENTS
            or math.prod(site.lattice) * (1 + size) ** 2 > TABLE):
        return False
    program, inputs = plan.structure.programs[name]
    scale = dependencies(program)[site.arguments.index("scale")]
    scale_inputs = {inputs[i] for i in scale}
    return all(t in plan.structure.sites and not plan.structure.sites[t].rows for t in scale_inputs)


@memo(512)
def by_moments(plan: Plan) -> tuple[str, ...]:
    """The observed sites of a plan of this kind, observed in every cell; () where second moments
    are not sufficient.

    The log density of a row is then a quadratic in its data with the same coefficients in every
    row, and so is all that an E-step finds: sums over rows are those of any rows of the same
    moments.
    """
    ineligible = (plan.variables or plan.pooled or plan.rowwise or plan.groupings or plan.sampled
                  or plan.structure.losses)
    if ineligible or plan.poolable_groups != plan.latents or any(map(plan.timed, plan.latents)):
        return ()
    names = tuple(name for group in plan.latents for name in group.sites if name not in group.names)
    exact = all(group.kind.exact for group in plan.latents)
    few = exact and numbers(plan, names) <= MAX_NUMBERS
    return names if few and are_all_observed(plan, names) else ()


def are_all_observed(plan: Plan, names: tuple[str, ...]) -> bool:
    """Whether these are all the observed sites of rows, each in every cell."""
    return set(names) == set(plan.observed) and all(plan.pattern.get(n) == "seen" for n in names)


def numbers(plan: Plan, names: tuple[str, ...]) -> int:
    """How many numbers of a row the sites have."""
    return sum(math.prod(plan.structure.sites[name].cells) for name in names)


def cell_shapes(plan: Plan) -> dict[str, tuple[int, ...]]:
    """The shapes of these sites' cells, in the order of the moments."""
    return {name: plan.structure.sites[name].cells for name in by_moments(plan)}


class Members(NamedTuple):
    """Rows whose second moments at each value of some inputs, `codes`, are sufficient: of the
    observed sites `values` and the other `inputs` together."""

    values: tuple[str, ...]
    inputs: tuple[str, ...]
    codes: tuple[str, ...]


@memo(512)
def by_members(plan: Plan) -> Members | None:
    """Rows that depend on effects of groups and are normal, observed in every cell, with locations
    affine in inputs on which their scales do not depend; all other inputs are codes. None where
    second moments are not sufficient."""
    structure, sites = plan.structure, plan.structure.sites
    excluding = (plan.variables, plan.pooled, plan.rowwise, plan.latents, plan.sampled,
                 plan.partially_observed, plan.steps, structure.chains, structure.losses)
    if (any(excluding) or not plan.groupings or plan.groupings[0].nodes
        or not are_all_observed(plan, plan.grouped)):
        return None
    inputs = {key for name in plan.grouped for key in structure.programs[name][1]}
    indices = {index.input for index in structure.indexed.values()}
    parents = tuple(p for name in plan.grouped for p in sites[name].parents if sites[p].rows)

    shapes = {name: shape for name, shape, kind in structure.specs if name in inputs
              and kind == "f" and name not in indices and _are_affine(plan, name)}
    codes = tuple(name for name, *_ in structure.specs if name in inputs and name not in shapes)
    size = numbers(plan, plan.grouped) + sum(math.prod(n or 1 for n in shape)
                                             for shape in shapes.values())
    return (Members(plan.grouped, tuple(shapes), codes)
            if size <= MAX_NUMBERS_WITH_EFFECTS and _are_affine(plan, *shapes, *parents) else None)


def _are_affine(plan: Plan, *names: str) -> bool:
    """Whether the locations of all sites that read effects are affine in some inputs and sites of
    rows together, and their other arguments do not depend on them."""
    structure = plan.structure
    for name in plan.grouped:
        program, inputs = structure.programs[name]
        selected = {i: t for i, t in enumerate(inputs) if t in names}
        by_argument = zip(structure.sites[name].arguments, classify(program, selected), strict=True)
        if selected and (any(argument != "loc" or not use.is_affine
                             for argument, uses in by_argument for use in uses.values())
                         or not is_location_affine(structure, tuple(selected.values()), name)):
            return False
    return True


NUMBERS, WIDEST = 64, 1024  # most elements of an argument; most coefficients of an element


class Columns(NamedTuple):
    """Which coefficients each element of an argument has.

    Attributes:
        argument: of the site. numbers: those of its elements that parameters enter, flat.
        coefficients: the coefficients of each of them, as places in the concatenated parameters.
    """

    argument: str
    numbers: tuple[int, ...]
    coefficients: tuple[tuple[int, ...], ...]


@memo(512)
def columns(plan: Plan, user: str, names: tuple[str, ...]) -> Columns | None:
    """How parameters enter a row-wise site that depends on no latent states, as the coefficients
    of a gate do; None where an element has none of its own.

    Args:
        names: the parameters, in the order in which they are concatenated.
    """
    site = plan.structure.sites[user]
    if (user not in plan.rowwise or site.factor or plan.discrete_parents(user)
        or any(user in kind for kind in (plan.chains, plan.steps, plan.switches))):
        return None
    arguments = [a for a in site.arguments if any(p in site.uses.get(a, {}) for p in names)]
    if len(arguments) != 1:
        return None
    pos, (program, inputs) = site.arguments.index(arguments[0]), plan.structure.programs[user]
    for codes in _numberings(plan, names):
        by_input = {inputs.index(p): p for p in names if p in inputs}
        ids = [entry.reshape(-1) for entry in cells(program, by_input, codes)[pos].values()]
        merged = np.full(len(ids[0]), NONE)
        is_single = all(merge_cells(merged, entry) for entry in ids)
        nonempty = np.flatnonzero(merged != NONE)
        if is_single and len(set(merged[nonempty])) == len(nonempty) > 0:
            flat_ids = np.concatenate([codes[p].reshape(-1) for p in names])
            places = tuple(tuple(np.flatnonzero(flat_ids == merged[e]).tolist()) for e in nonempty)
            if len({len(entry) for entry in places}) == 1:
                return Columns(arguments[0], tuple(nonempty.tolist()), places)
    return None


@memo(512)
def blocks_of_hessian(plan: Plan) -> Columns | None:
    """Which coordinates, in the order of the parameters' names, each element of the one argument
    of the one row-wise site has, of a plan without latent variables; None where a parameter enters
    in another way, or the blocks are large."""
    sites, names = plan.structure.sites, tuple(sorted(plan.free))
    if plan.pooled or plan.structure.losses or not plan.observed_rows or len(plan.rowwise) != 1:
        return None
    site, (program, _) = sites[plan.rowwise[0]], plan.structure.programs[plan.rowwise[0]]
    blocks = columns(plan, site.name, names)
    uses = {} if blocks is None else site.uses[blocks.argument]
    if blocks is None or not all(p in uses and uses[p].is_affine and sites[p].domain.unbounded
                                 for p in names):
        return None
    count, size = len(blocks.numbers), len(blocks.coefficients[0])
    covers_all = (program.out_avals[site.arguments.index(blocks.argument)].size == count
                  and sum(math.prod(sites[p].shape) for p in names) == count * size)
    return blocks if covers_all and 1 < count <= NUMBERS and size <= WIDEST else None


def _numberings(plan: Plan, names: tuple[str, ...]) -> Iterator[dict[str, np.ndarray]]:
    """Elements of parameters numbered along the last axis, then along the first, where that axis
    has one length in all of them."""
    shapes = {name: plan.structure.sites[name].shape for name in names}
    for axis in (-1, 0):
        lengths = {shape[axis] if shape else 0 for shape in shapes.values()}
        if len(lengths) == 1 and 0 not in lengths:
            yield {name: np.indices(shape)[axis] for name, shape in shapes.items()}
