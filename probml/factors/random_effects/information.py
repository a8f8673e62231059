"""The information of rows about random effects: a quadratic log likelihood, a sum over rows.

About a point u₀ of the effects, log p(rows | u₀ + δ) = g + hᵀδ − ½ δᵀ G δ: rows are normal about
locations affine in u, so with standardised residuals r with Jacobian B, g = Σ log p(row | u₀),
h = −Σ Bᵀ r and G = Σ BᵀB, sums over rows in any order. A row depends only on the members (levels)
that it reads by an index: one Jacobian-vector product for each coordinate of a member, in which all
members move at once, gives the derivatives of all rows; they are added up member by member.

Effects are u = loc + R ε, ε ~ N(0, I), R a root of the prior covariance; those with a flat prior
are ε themselves. integration.py integrates them out. If rows are not normal, g, h and G are of the
second order about u₀ (second_order.py).

Cost: rows × (coordinates that a row reads)².
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from probml.device.rows import Chunk, Known, Pairs
from probml.errors import present
from probml.factors.naturals import environment
from probml.factors.rowwise import row_environment
from probml.latents.gaussian import KINDS
from probml.latents.pooled_normal import root_of, standardised
from probml.numerics.curvature import A
from probml.plan.groupings import Grouping
from probml.plan.plan import Plan
from probml.structure.densities import cells


class EffectVector(NamedTuple):
    """A vector over all effects: of the first grouping (members, cells), of the others (r,)."""

    first: jax.Array
    rest: jax.Array


class Information(NamedTuple):
    """The information of rows about the effects at a point; a sum over rows."""

    log: jax.Array  # g
    slope: EffectVector  # h
    block: jax.Array  # G of each member of the first grouping, (members, cells, cells)
    cross: "jax.Array | Paired"  # of these with the others, (members, cells, r)
    rest: jax.Array  # of the others, (r, r)


class Paired(NamedTuple):
    """`Information.cross` row by row: `values` at the row's member `owner` and at columns `at`."""

    values: jax.Array  # (rows, cells, coordinates of the others that a row reads)
    owner: jax.Array  # (rows,)
    at: jax.Array  # (rows, coordinates)
    pairs: Pairs


class Prior(NamedTuple):
    """u = loc + root · ε: `first` is the root of the first grouping, one block a member,
    (members, cells, cells), `rest` those of the others."""

    loc: EffectVector
    first: jax.Array
    rest: tuple[jax.Array, ...]


def compute_information(plan: Plan, params: Mapping, known: Known, rows: Chunk,
                point: Mapping[str, jax.Array], pairs: Pairs | None = None) -> Information:
    """The information of a chunk of weighted rows about the effects at `point`; its cross part is
    row by row if the pairs of rows are given, of all rows in one chunk."""
    sites, fixed = plan.structure.sites, environment(plan, params, known)
    varying = {name: row_environment(plan, known, rows, name) for name in plan.grouped}
    data = {name: (cells(sites[name], rows.values[name]),
                   cells(sites[name], rows.observed[name]) if name in rows.observed else None)
            for name in plan.grouped}

    def residuals(point: Mapping):
        def row_residuals(varying: Mapping[str, Mapping[str, jax.Array]],
                          data: Mapping[str, tuple]):
            out, log = [], jnp.zeros(())
            for name in plan.grouped:
                arguments = plan.structure.cells(name, {**fixed, **point, **varying[name]})
                residual, log_volume, _ = standardised(sites[name], arguments, *data[name])
                out.append(residual.reshape(-1))
                log += log_volume
            return jnp.concatenate(out), log

        return jax.vmap(row_residuals, axis_size=len(rows.weights))(varying, data)

    residual, push, log = jax.linearize(residuals, dict(point), has_aux=True)
    slopes = jax.vmap(push)(unit_steps(plan, point))  # (cells, rows, m)
    has_weight = rows.weights > 0
    weight = jnp.where(has_weight, rows.weights, 0.0)
    residual = jnp.where(has_weight[:, None], residual, 0.0)
    slopes = jnp.where(has_weight[:, None], slopes, 0.0)
    total = jnp.sum(weight * jnp.where(has_weight, log - 0.5 * jnp.sum(residual**2, -1), 0.0))
    if all(grouping.index is None for grouping in plan.groupings):  # as one row: a product each
        slope = -jnp.einsum("pbm,bm,b->p", slopes, residual, weight)[None]
        square = jnp.einsum("pbm,qbm,b->pq", slopes, slopes, weight)[None]
    else:
        slope = -jnp.einsum("pbm,bm,b->bp", slopes, residual, weight)
        square = jnp.einsum("pbm,qbm,b->bpq", slopes, slopes, weight)
    owners = [member_of_each_row(grouping, rows, len(slope)) for grouping in plan.groupings]
    return add_by_member(plan, owners, total, slope, square, pairs)


def add_by_member(plan: Plan, owners: list[jax.Array], log: jax.Array, slope: jax.Array,
          square: jax.Array, pairs: Pairs | None = None) -> Information:
    """The gradients (b, p) and curvatures (b, p, p) of rows, added up member by member."""
    (first, *others), owner = plan.groupings, owners[0]
    d, count, dtype = first.cells, first.members, slope.dtype
    places, r = [jnp.zeros((len(owner), 0), int)], 0
    for grouping, member in zip(others, owners[1:], strict=True):
        offset = r + grouping.cells * member
        places.append(offset[:, None] + jnp.arange(grouping.cells))
        r += grouping.size
    columns = jnp.concatenate(places, 1)
    rest_slope, rest = jnp.zeros(r, dtype), jnp.zeros((r, r), dtype)
    cross = (jnp.zeros((count, d, r), dtype) if pairs is None
             else Paired(square[:, :d, d:], owner, columns, pairs))
    if r:
        rest_slope = rest_slope.at[columns].add(slope[:, d:])
        # an index between others moves its axis to the front
        if not isinstance(cross, Paired):
            cross = cross.at[owner[:, None], :, columns].add(
                jnp.swapaxes(square[:, :d, d:], 1, 2))
        rest = rest.at[columns[:, :, None], columns[:, None, :]].add(square[:, d:, d:])
    return Information(
        log,
        EffectVector(jax.ops.segment_sum(slope[:, :d], owner, count), rest_slope),
        jax.ops.segment_sum(square[:, :d, :d], owner, count),
        cross,
        rest,
    )


def member_of_each_row(grouping: Grouping, rows: Chunk, count: int) -> jax.Array:
    """The index of the member that each of `count` rows reads, (b,); of a row that reads none, as
    at a level that is fixed at 0, that of any: its density is the same whatever the effects."""
    if grouping.index is None:
        return jnp.zeros(count, int)
    codes = rows.inputs[grouping.index.input]
    if grouping.index.cells:
        codes = codes.reshape(len(codes), -1)[:, grouping.index.cells[0]]
    codes = jnp.round(codes.reshape(-1)).astype(int)
    return jnp.clip(grouping.scale * codes + grouping.offset, 0, grouping.members - 1)


def unit_steps(plan: Plan, point: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """A unit step in each coordinate of a member, for all members at once: name → (p, *shape)."""
    total = sum(grouping.cells for grouping in plan.groupings)
    out, start = {}, 0
    for grouping in plan.groupings:
        for i, (name, width) in enumerate(zip(grouping.names, grouping.widths, strict=True)):
            basis = jnp.eye(total, dtype=point[name].dtype)[:, start : start + width]
            basis = jnp.broadcast_to(basis[:, None], (total, grouping.members, width))
            out[name] = jax.vmap(lambda step, g=grouping, i=i: to_site_shape(g, i, step))(basis)
            start += width
    return out


def by_member(grouping: Grouping, i: int, array: jax.Array, tail: int = 0) -> jax.Array:
    """An array of an effect's shape, with `tail` axes more → (members, coordinates, tail)."""
    axis = grouping.axes[i]
    member_first = array[None] if axis is None else jnp.moveaxis(array, axis, 0)
    return member_first.reshape(grouping.members, -1, *array.shape[array.ndim - tail :])


def to_site_shape(grouping: Grouping, i: int, array: A) -> A:
    """(members, coordinates) → an effect's shape; an array of JAX or of NumPy."""
    axis, shape = grouping.axes[i], grouping.shapes[i]
    if axis is None:
        return array.reshape(shape)
    return np.moveaxis(array.reshape(shape[axis], *shape[:axis], *shape[axis + 1 :]), 0, axis)


def compute_prior(plan: Plan, params: Mapping, known: Known) -> Prior:
    """Location and covariance root of the effects' prior."""
    env = environment(plan, params, known)
    (loc, root), *others = (_prior_of_grouping(plan, grouping, env) for grouping in plan.groupings)
    flat = [jnp.zeros(0, loc.dtype), *(each.reshape(-1) for each, _ in others)]
    return Prior(EffectVector(loc, jnp.concatenate(flat)), root, tuple(each for _, each in others))


def times_root(prior: Prior, array: jax.Array, transposed: bool = False) -> jax.Array:
    """array · R along its last axis, (..., r), R the root of the other groupings' prior; or its
    transpose."""
    parts, offset = [], 0
    for root in prior.rest:
        size = root.shape[0] * root.shape[1]
        part = array[..., offset : offset + size].reshape(*array.shape[:-1], *root.shape[:2])
        root = jnp.swapaxes(root, 1, 2) if transposed else root
        part = (part * root[:, 0, 0, None] if root.shape[1] == 1
                else jnp.einsum("...mj,mji->...mi", part, root))
        parts.append(part.reshape(*array.shape[:-1], size))
        offset += size
    return jnp.concatenate(parts, -1) if parts else array


def between_roots(prior: Prior, array: jax.Array, transposed: bool = False) -> jax.Array:
    """RᵀAR of a symmetric A, or RARᵀ."""
    return times_root(prior, times_root(prior, array, transposed).T, transposed)


def prior_mask(plan: Plan) -> EffectVector:
    """1 for each coordinate of ε with a prior, 0 for those with a flat one (a density of 1)."""
    first, *others = plan.groupings
    rest = [np.full(grouping.size, float(not grouping.flat)) for grouping in others]
    return EffectVector(jnp.full((first.members, first.cells), float(not first.flat)),
               jnp.asarray(np.concatenate([np.zeros(0), *rest]), jnp.result_type(float)))


def location_and_root(plan: Plan, name: str, env: Mapping) -> tuple[jax.Array, jax.Array]:
    """Location of an effect's prior, in its shape; covariance root, (*lattice, *event, *event)."""
    site = plan.structure.sites[name]
    full_shape = (*site.lattice, *site.event, *site.event)
    if site.kind in KINDS:
        arguments = plan.structure.cells(name, env)
        return arguments["loc"].reshape(site.shape), root_of(site, arguments).reshape(full_shape)
    loc, root = present(site.entry.location_scale)(plan.structure.distribution(name, env))
    root = root.lower() if site.entry.coupled else root
    return jnp.broadcast_to(loc, site.shape), jnp.broadcast_to(root, full_shape)


def _prior_of_grouping(plan: Plan, grouping: Grouping, env: Mapping) -> tuple[jax.Array, jax.Array]:
    """The prior of the effects of one grouping: locations (members, d), roots (members, d, d)."""
    if grouping.flat:
        shape, dtype = (grouping.members, grouping.cells), jnp.result_type(float)
        return jnp.zeros(shape, dtype), jnp.broadcast_to(jnp.eye(shape[1], dtype=dtype),
                                                         (*shape, shape[1]))
    locs, roots = [], []
    for i, name in enumerate(grouping.names):
        site, (loc, root) = plan.structure.sites[name], location_and_root(plan, name, env)
        locs.append(by_member(grouping, i, loc))
        root = by_member(grouping, i, root, 2 * len(site.event))
        # one factor for each of the cells that are independent: those of several are blocks
        root = root if site.event else root[..., None, None]
        eye = jnp.eye(root.shape[1], dtype=root.dtype)
        blocks = root[:, :, :, None] * eye[:, None, :, None]
        size = root.shape[1] * root.shape[2]
        roots.append(blocks.reshape(len(root), size, size))
    if len(roots) == 1:
        return locs[0], roots[0]
    return jnp.concatenate(locs, 1), jax.vmap(
        lambda *each: jax.scipy.linalg.block_diag(*each))(*roots)


def zeros(plan: Plan) -> EffectVector:
    """ε of 0."""
    first, *others = plan.groupings
    return EffectVector(jnp.zeros((first.members, first.cells)),
               jnp.zeros(sum(grouping.size for grouping in others)))


def effects_at(plan: Plan, prior: Prior, standardised: EffectVector) -> dict[str, jax.Array]:
    """The effects at ε."""
    return by_name(plan,
                   EffectVector(prior.loc.first + batched_product(prior.first, standardised.first),
                           prior.loc.rest + times_root(prior, standardised.rest, True)))


def by_name(plan: Plan, numbers: EffectVector) -> dict[str, jax.Array]:
    """A vector over all effects as arrays: name → its shape."""
    out, start = {}, 0
    for which, grouping in enumerate(plan.groupings):
        flat = numbers.first if which == 0 else numbers.rest[start : start + grouping.size].reshape(
            grouping.members, grouping.cells)
        start += grouping.size if which else 0
        parts = jnp.split(flat, np.cumsum(grouping.widths)[:-1], 1)
        out |= {name: to_site_shape(grouping, i, part)
                for i, (name, part) in enumerate(zip(grouping.names, parts, strict=True))}
    return out


def batched_product(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    return (matrix @ vector[..., None])[..., 0]
