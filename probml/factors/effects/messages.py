"""Effects of groups, integrated out: what rows say of them adds up, and they are eliminated once
all rows have spoken.

About a point u₀ of the effects, log p(rows | u₀ + δ) = g + hᵀδ − ½ δᵀ G δ: rows are normal about
locations affine in u, so with standardised residuals r and slopes B, g = Σ log p(row | u₀),
h = −Σ Bᵀ r and G = Σ BᵀB, which add over rows (a monoid: chunks, in any order). A row has slopes
only in the cells of the members that it reads; they are found by one push forward for each cell of
a member, in which all members move at once, and added up member by member.

Effects are u = loc + R ε, ε ~ N(0, I), R the root of their prior; those without a prior are ε
themselves. They are eliminated in eliminated.py. Of rows that are not normal g, h and G are
those of the second order about u₀ (curved.py).

Cost: rows × (numbers a row reads)².
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
from probml.latents.residuals import root_of, standardised
from probml.plan.groupings import Grouping
from probml.plan.plan import Plan
from probml.structure.densities import cells


class Two(NamedTuple):
    """Numbers of all effects: of the first grouping (members, cells), of the others (r,)."""

    first: jax.Array
    rest: jax.Array


class Information(NamedTuple):
    """What rows say of effects about a point; it adds up."""

    log: jax.Array  # g
    slope: Two  # h
    block: jax.Array  # G of each member of the first grouping, (members, cells, cells)
    cross: "jax.Array | Paired"  # of these with the others, (members, cells, r)
    rest: jax.Array  # of the others, (r, r)


class Paired(NamedTuple):
    """`Information.cross` row by row: a row adds `values` at its member and at `at`."""

    values: jax.Array  # (rows, cells, numbers that a row reads of the others)
    owner: jax.Array  # (rows,)
    at: jax.Array  # (rows, numbers)
    pairs: Pairs


class Prior(NamedTuple):
    """u = loc + root · ε, the root one block a member, (members, cells, cells); `rest`: of each of
    the other groupings."""

    loc: Two
    first: jax.Array
    rest: tuple[jax.Array, ...]


def information(plan: Plan, params: Mapping, known: Known, rows: Chunk,
                point: Mapping[str, jax.Array], pairs: Pairs | None = None) -> Information:
    """What a chunk of rows says of the effects about `point`, each weighted; with the pairs of all
    rows of one chunk, the table between the groupings row by row."""
    sites, fixed = plan.structure.sites, environment(plan, params, known)
    varying = {name: row_environment(plan, known, rows, name) for name in plan.grouped}
    seen = {name: (cells(sites[name], rows.values[name]),
                   cells(sites[name], rows.seen[name]) if name in rows.seen else None)
            for name in plan.grouped}

    def residuals(point: Mapping):
        def row_residuals(varying: Mapping[str, Mapping[str, jax.Array]],
                          seen: Mapping[str, tuple]):
            out, log = [], jnp.zeros(())
            for name in plan.grouped:
                arguments = plan.structure.cells(name, {**fixed, **point, **varying[name]})
                residual, more, _ = standardised(sites[name], arguments, *seen[name])
                out.append(residual.reshape(-1))
                log += more
            return jnp.concatenate(out), log

        return jax.vmap(row_residuals, axis_size=len(rows.weights))(varying, seen)

    residual, push, log = jax.linearize(residuals, dict(point), has_aux=True)
    slopes = jax.vmap(push)(moves(plan, point))  # (cells, rows, m)
    live = rows.weights > 0
    weight = jnp.where(live, rows.weights, 0.0)
    residual = jnp.where(live[:, None], residual, 0.0)
    slopes = jnp.where(live[:, None], slopes, 0.0)
    total = jnp.sum(weight * jnp.where(live, log - 0.5 * jnp.sum(residual**2, -1), 0.0))
    if all(grouping.index is None for grouping in plan.groupings):  # as one row: a product each
        slope = -jnp.einsum("pbm,bm,b->p", slopes, residual, weight)[None]
        square = jnp.einsum("pbm,qbm,b->pq", slopes, slopes, weight)[None]
    else:
        slope = -jnp.einsum("pbm,bm,b->bp", slopes, residual, weight)
        square = jnp.einsum("pbm,qbm,b->bpq", slopes, slopes, weight)
    owners = [members(grouping, rows, len(slope)) for grouping in plan.groupings]
    return added(plan, owners, total, slope, square, pairs)


def added(plan: Plan, owners: list[jax.Array], log: jax.Array, slope: jax.Array,
          square: jax.Array, pairs: Pairs | None = None) -> Information:
    """The rows' own slopes (b, p) and squares (b, p, p) added up member by member."""
    (first, *others), owner = plan.groupings, owners[0]
    d, count, dtype = first.cells, first.members, slope.dtype
    place, r = [jnp.zeros((len(owner), 0), int)], 0
    for grouping, own in zip(others, owners[1:], strict=True):
        begin = r + grouping.cells * own
        place.append(begin[:, None] + jnp.arange(grouping.cells))
        r += grouping.size
    at = jnp.concatenate(place, 1)
    rest_slope, rest = jnp.zeros(r, dtype), jnp.zeros((r, r), dtype)
    cross = (jnp.zeros((count, d, r), dtype) if pairs is None
             else Paired(square[:, :d, d:], owner, at, pairs))
    if r:
        rest_slope = rest_slope.at[at].add(slope[:, d:])
        # an index between others moves its axis to the front
        if not isinstance(cross, Paired):
            cross = cross.at[owner[:, None], :, at].add(
                jnp.swapaxes(square[:, :d, d:], 1, 2))
        rest = rest.at[at[:, :, None], at[:, None, :]].add(square[:, d:, d:])
    return Information(
        log,
        Two(jax.ops.segment_sum(slope[:, :d], owner, count), rest_slope),
        jax.ops.segment_sum(square[:, :d, :d], owner, count),
        cross,
        rest,
    )


def members(grouping: Grouping, rows: Chunk, count: int) -> jax.Array:
    """Which member each of so many rows reads, (b,)."""
    if grouping.index is None:
        return jnp.zeros(count, int)
    codes = rows.inputs[grouping.index.input]
    if grouping.index.cells:
        codes = codes.reshape(len(codes), -1)[:, grouping.index.cells[0]]
    codes = jnp.round(codes.reshape(-1)).astype(int)
    return grouping.scale * codes + grouping.offset


def moves(plan: Plan, point: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """One unit step for each cell of a member, of all members at once: name → (p, *shape)."""
    total = sum(grouping.cells for grouping in plan.groupings)
    out, start = {}, 0
    for grouping in plan.groupings:
        for i, (name, width) in enumerate(zip(grouping.names, grouping.widths, strict=True)):
            own = jnp.eye(total, dtype=point[name].dtype)[:, start : start + width]
            own = jnp.broadcast_to(own[:, None], (total, grouping.members, width))
            out[name] = jax.vmap(lambda step, g=grouping, i=i: together(g, i, step))(own)
            start += width
    return out


def by_member(grouping: Grouping, i: int, array: jax.Array, tail: int = 0) -> jax.Array:
    """An array of an effect's shape, with `tail` axes more → (members, numbers a member, tail)."""
    axis = grouping.axes[i]
    moved = array[None] if axis is None else jnp.moveaxis(array, axis, 0)
    return moved.reshape(grouping.members, -1, *array.shape[array.ndim - tail :])


def together(grouping: Grouping, i: int, array: jax.Array) -> jax.Array:
    """(members, numbers a member) → an effect's shape."""
    axis, shape = grouping.axes[i], grouping.shapes[i]
    if axis is None:
        return array.reshape(shape)
    return jnp.moveaxis(array.reshape(shape[axis], *shape[:axis], *shape[axis + 1 :]), 0, axis)


def prior(plan: Plan, params: Mapping, known: Known) -> Prior:
    """Location and root of the effects' prior."""
    env = environment(plan, params, known)
    (loc, root), *others = (_of(plan, grouping, env) for grouping in plan.groupings)
    flat = [jnp.zeros(0, loc.dtype), *(each.reshape(-1) for each, _ in others)]
    return Prior(Two(loc, jnp.concatenate(flat)), root, tuple(each for _, each in others))


def turned_by(found: Prior, array: jax.Array, transposed: bool = False) -> jax.Array:
    """array · R along its last axis, (..., r), R the root of the other groupings' prior; or its
    transpose."""
    parts, begin = [], 0
    for root in found.rest:
        size = root.shape[0] * root.shape[1]
        part = array[..., begin : begin + size].reshape(*array.shape[:-1], *root.shape[:2])
        root = jnp.swapaxes(root, 1, 2) if transposed else root
        part = (part * root[:, 0, 0, None] if root.shape[1] == 1
                else jnp.einsum("...mj,mji->...mi", part, root))
        parts.append(part.reshape(*array.shape[:-1], size))
        begin += size
    return jnp.concatenate(parts, -1) if parts else array


def both_sides(found: Prior, array: jax.Array, transposed: bool = False) -> jax.Array:
    """RᵀAR of a symmetric A, or RARᵀ."""
    return turned_by(found, turned_by(found, array, transposed).T, transposed)


def proper(plan: Plan) -> Two:
    """1 for each of the numbers ε that has a prior, 0 for each that has a density of 1."""
    first, *others = plan.groupings
    rest = [np.full(grouping.size, float(not grouping.flat)) for grouping in others]
    return Two(jnp.full((first.members, first.cells), float(not first.flat)),
               jnp.asarray(np.concatenate([np.zeros(0), *rest]), jnp.result_type(float)))


def located(plan: Plan, name: str, env: Mapping) -> tuple[jax.Array, jax.Array]:
    """Location and root of an effect's prior: its shape; and (*lattice, *event, *event)."""
    site = plan.structure.sites[name]
    whole = (*site.lattice, *site.event, *site.event)
    if site.kind in KINDS:
        arguments = plan.structure.cells(name, env)
        return arguments["loc"].reshape(site.shape), root_of(site, arguments).reshape(whole)
    loc, root = present(site.entry.location_scale)(plan.structure.distribution(name, env))
    root = root.lower() if site.entry.coupled else root
    return jnp.broadcast_to(loc, site.shape), jnp.broadcast_to(root, whole)


def _of(plan: Plan, grouping: Grouping, env: Mapping) -> tuple[jax.Array, jax.Array]:
    """Of one grouping: locations (members, d), roots (members, d, d)."""
    if grouping.flat:
        shape, dtype = (grouping.members, grouping.cells), jnp.result_type(float)
        return jnp.zeros(shape, dtype), jnp.broadcast_to(jnp.eye(shape[1], dtype=dtype),
                                                         (*shape, shape[1]))
    locs, roots = [], []
    for i, name in enumerate(grouping.names):
        site, (loc, root) = plan.structure.sites[name], located(plan, name, env)
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


def none(plan: Plan) -> Two:
    """ε of 0."""
    first, *others = plan.groupings
    return Two(jnp.zeros((first.members, first.cells)),
               jnp.zeros(sum(grouping.size for grouping in others)))


def point_at(plan: Plan, found: Prior, noise: Two) -> dict[str, jax.Array]:
    """The effects at ε."""
    return named(plan, Two(found.loc.first + times(found.first, noise.first),
                           found.loc.rest + turned_by(found, noise.rest, True)))


def named(plan: Plan, numbers: Two) -> dict[str, jax.Array]:
    """Numbers of all effects as each effect has them, name → its shape."""
    out, begin = {}, 0
    for which, grouping in enumerate(plan.groupings):
        own = numbers.first if which == 0 else numbers.rest[begin : begin + grouping.size].reshape(
            grouping.members, grouping.cells)
        begin += grouping.size if which else 0
        parts = jnp.split(own, np.cumsum(grouping.widths)[:-1], 1)
        out |= {name: together(grouping, i, part)
                for i, (name, part) in enumerate(zip(grouping.names, parts, strict=True))}
    return out


def times(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    return (matrix @ vector[..., None])[..., 0]
