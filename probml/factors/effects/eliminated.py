"""Effects of groups, eliminated once all rows have spoken, and what they are given the rows.

Effects are u = loc + R ε, ε ~ N(0, I), R the root of their prior (effects.py). About
u₀ = loc + R ε₀, with K = I + RᵀGR and b = Rᵀh − ε₀,

    log p(rows) = g − ½ |ε₀|² + ½ bᵀ K⁻¹ b − ½ log det K,      ε | rows ~ N(ε₀ + K⁻¹ b, K⁻¹),

whatever ε₀ (Bates et al. 2015, equation 14 and on, whose θ makes R; K ⪰ I however small a spread,
which may be 0). The first grouping's part of K is one block a member; the others are eliminated
after it, by one dense factor of the Schur complement, whose products are added over the pairs of
rows of a member where these are few (`Paired`). Effects without a prior (R = I; they have no
part in |ε₀|², nor in the I of K) have a density of 1, and each adds ½ log 2π: the evidence is then
the restricted likelihood. Where g, h and G are of the second order about a mode ε₀, this is
Laplace's approximation.

Cost: members × cells³, (numbers of the other groupings)³, and members × (these numbers)², or pairs.
"""

from collections.abc import Collection
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular

from probml.errors import present
from probml.factors.effects.at_nodes import AtNodes, Nodes
from probml.factors.effects.messages import (
    Information,
    Paired,
    Prior,
    Two,
    both_sides,
    point_at,
    times,
    together,
    turned_by,
)
from probml.numerics import lapack
from probml.numerics.logs import LOG_TWO_PI
from probml.plan.plan import Plan


class Eliminated(NamedTuple):
    """The log evidence of the rows, and ε given them."""

    log: jax.Array
    centre: Two
    lower: jax.Array  # Cholesky factors of K's blocks, (members, cells, cells)
    gain: jax.Array  # K's first block⁻¹ × its cross part, (members, cells, r)
    rest: jax.Array  # Cholesky factor of the Schur complement, (r, r)
    nodes: Nodes | None = None  # ε of each member, (members,), where the rule has several nodes


def pull(found: Prior, told: Information, noise: Two, own: Two) -> Two:
    """b, the slope of the joint log density in ε.

    Args:
        told: about the effects at `noise`. own: see `proper`.
    """
    turned = jnp.swapaxes(found.first, -1, -2)
    return Two(times(turned, told.slope.first) - own.first * noise.first,
               turned_by(found, told.slope.rest) - own.rest * noise.rest)


def height(told: Information, noise: Two, own: Two) -> jax.Array:
    """g − ½ |ε₀|², the joint log density but for its constant."""
    return told.log - 0.5 * sum(jnp.sum(p * e**2) for p, e in zip(own, noise, strict=True))


def eliminated(found: Prior, told: Information, noise: Two, own: Two,
               damping: jax.Array | float = 0.0) -> Eliminated:
    """log p(rows | params), and ε given the rows.

    Args:
        told, own: as of `pull`. damping: of a step towards the mode, by which the diagonal of K is
            raised, in shares of itself.
    """
    turned = jnp.swapaxes(found.first, -1, -2)
    slope = pull(found, told, noise, own)
    lower = lapack.cholesky(_raised(turned @ told.block @ found.first, own.first, damping))
    half = lapack.solve(lower, slope.first[..., None])
    log = height(told, noise, own) + 0.5 * jnp.sum(half**2)
    log += LOG_TWO_PI * 0.5 * sum(jnp.sum(1 - p) for p in own)
    log -= jnp.log(jnp.diagonal(lower, axis1=-2, axis2=-1)).sum()
    if not found.rest:
        move = lapack.solve(lower, half, True)[..., 0]
        return Eliminated(log, Two(noise.first + move, noise.rest), lower, told.cross, told.rest)
    if isinstance(told.cross, Paired):
        cross, square, pulled = _by_pairs(found, told.cross, lower, half[..., 0])
    else:
        cross = lapack.solve(lower, turned @ turned_by(found, told.cross))
        flat = cross.reshape(-1, len(told.rest))
        square, pulled = flat.T @ flat, half.reshape(-1) @ flat
    root = jnp.linalg.cholesky(_raised(both_sides(found, told.rest), own.rest, damping) - square)
    left = solve_triangular(root, slope.rest - pulled, lower=True)
    log += 0.5 * jnp.sum(left**2) - jnp.log(jnp.diagonal(root)).sum()
    move = solve_triangular(root, left, lower=True, trans=1)
    gain = lapack.solve(lower, cross, True)
    away = lapack.solve(lower, half, True)[..., 0] - gain @ move
    return Eliminated(log, Two(noise.first + away, noise.rest + move), lower, gain, root)


def _by_pairs(found: Prior, cross: Paired, lower: jax.Array,
              half: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """C = lower⁻¹ × the cross part of K, (members, cells, r), CᵀC and halfᵀC, the products by pairs
    of rows: C is made where it is read itself.

    Cost: pairs × (numbers that a row reads of the others)².
    """
    owner, at, begin, r, parts = cross.owner, cross.at, 0, 0, []
    for root in found.rest:  # each row has the roots of the members that it reads
        members, cells, _ = root.shape
        own = root[(at[:, begin] - r) // cells]
        parts.append(cross.values[..., begin : begin + cells] @ own)
        begin, r = begin + cells, r + members * cells
    values = jnp.swapaxes(found.first, -1, -2)[owner] @ jnp.concatenate(parts, -1)
    values = lapack.solve(lower[owner], values)
    (one, two), zeros = cross.pairs, jnp.zeros((r, r), values.dtype)
    apart = zeros.at[at[one][:, :, None], at[two][:, None, :]].add(
        jnp.swapaxes(values[one], 1, 2) @ values[two])
    alone = zeros.at[at[:, :, None], at[:, None, :]].add(jnp.swapaxes(values, 1, 2) @ values)
    pulled = zeros[0].at[at].add((half[owner][:, None] @ values)[:, 0])
    table = jnp.zeros((*half.shape, r), values.dtype).at[owner[:, None], :, at].add(
        jnp.swapaxes(values, 1, 2))
    return table, apart + apart.T + alone, pulled


def _raised(matrix: jax.Array, own: jax.Array, damping: jax.Array | float) -> jax.Array:
    """Matrices with the prior's precisions on their diagonals, and these raised by a share."""
    eye = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    matrix = matrix + own[..., None] * eye
    diagonal = jnp.abs(jnp.diagonal(matrix, axis1=-2, axis2=-1))
    return matrix + (damping * jnp.maximum(diagonal, own))[..., None] * eye


def at_mode(found: Prior, told: Information, noise: Two, own: Two) -> Eliminated:
    """The same with the log evidence of Laplace's approximation at `noise`, which should be a mode:
    where it is none, what the second order promises beyond it is not believed."""
    at, slope = eliminated(found, told, noise, own), pull(found, told, noise, own)
    more = sum(jnp.vdot(s, b - a) for s, a, b in zip(slope, noise, at.centre, strict=True))
    return at._replace(log=at.log - 0.5 * more)


def solved(given: Eliminated, right: Two) -> Two:
    """K⁻¹ of numbers of all effects."""
    half = lapack.solve(given.lower, right.first[..., None])
    first = lapack.solve(given.lower, half, True)[..., 0]
    if not right.rest.size:
        return Two(first, right.rest)
    left = right.rest - jnp.einsum("mdr,md->r", given.gain, right.first)
    rest = cho_solve((given.rest, True), left)
    return Two(first - given.gain @ rest, rest)


def drawn(found: Eliminated, key: jax.Array) -> Two:
    """A draw of ε less its mean."""
    if found.nodes is not None:
        return from_quantiles(found, jax.random.uniform(key, found.nodes.loc.shape))
    first, second = jax.random.split(key)
    own, rest = (jax.random.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(
        (first, second), found.centre, strict=True))
    own = lapack.solve(found.lower, own[..., None], True)[..., 0]
    if rest.size:
        rest = solve_triangular(found.rest, rest, lower=True, trans=1)
        own -= found.gain @ rest
    return Two(own, rest)


def from_quantiles(found: Eliminated, q: jax.Array) -> Two:
    """ε less its mean, where it is known at nodes, from a quantile of each member."""
    own = AtNodes(*present(found.nodes)).icdf(q)[..., None]
    return Two(own - found.centre.first, jnp.zeros_like(found.centre.rest))


class Moments(NamedTuple):
    """Effects given all rows: their means by name, and covariances as Information has them."""

    mean: dict[str, jax.Array]
    block: jax.Array
    cross: jax.Array
    rest: jax.Array


def moments(plan: Plan, found: Prior, given: Eliminated) -> Moments:
    eye = jnp.eye(found.first.shape[-1], dtype=found.first.dtype)
    eye = jnp.broadcast_to(eye, given.lower.shape)
    block = lapack.solve(given.lower, lapack.solve(given.lower, eye), True)
    turned, rest, cross = jnp.swapaxes(found.first, -1, -2), given.rest, given.gain
    if found.rest:
        rest = cho_solve((given.rest, True), jnp.eye(len(given.rest), dtype=given.rest.dtype))
        block += given.gain @ rest @ jnp.swapaxes(given.gain, -1, -2)
        cross = -found.first @ turned_by(found, given.gain @ rest, True)
        rest = both_sides(found, rest, True)
    return Moments(point_at(plan, found, given.centre), found.first @ block @ turned, cross, rest)


def own_covariance(plan: Plan, held: Moments, name: str) -> jax.Array:
    """Of one effect's numbers within each member, (members, d, d)."""
    begin = 0
    for which, grouping in enumerate(plan.groupings):
        block = held.block
        if which:
            part = held.rest[begin : begin + grouping.size, begin : begin + grouping.size]
            part = part.reshape(grouping.members, grouping.cells, grouping.members, grouping.cells)
            block = jnp.moveaxis(jnp.diagonal(part, axis1=0, axis2=2), -1, 0)
            begin += grouping.size
        if name in grouping.names:
            i = grouping.names.index(name)
            start = sum(grouping.widths[:i])
            part = slice(start, start + grouping.widths[i])
            return block[:, part, part]
    raise KeyError(name)


def ways(plan: Plan, held: Moments, names: Collection[str]) -> dict[str, np.ndarray]:
    """Columns of a root of the joint covariance of those of some effects that have one member:
    name → (k, *shape)."""
    first, *others = plan.groupings
    covariance, begin, places = np.asarray(held.rest, float), 0, {}
    if first.members == 1:
        cross = np.asarray(held.cross[0], float) if others else np.zeros((first.cells, 0))
        rest = covariance if others else np.zeros((0, 0))
        covariance = np.block([[np.asarray(held.block[0], float), cross], [cross.T, rest]])
    for grouping in plan.groupings[first.members > 1 :]:
        ends = begin + np.cumsum([0, *grouping.widths])
        begin += grouping.size
        if grouping.members == 1:
            places |= {name: (np.arange(*ends[i : i + 2]), grouping.shapes[i])
                       for i, name in enumerate(grouping.names) if name in names}
    if not places:
        return {}
    at = np.concatenate([place for place, _ in places.values()])
    unit = np.sqrt(np.diagonal(covariance)[at])
    unit = np.where(unit > 0, unit, 1.0)
    size, axes = np.linalg.eigh(covariance[np.ix_(at, at)] / unit / unit[:, None])
    root = (unit[:, None] * axes * np.sqrt(np.maximum(size, 0.0))).T
    ends = np.cumsum([len(place) for place, _ in places.values()])
    return {name: part.reshape(len(at), *shape) for (name, (_, shape)), part in zip(
        places.items(), np.split(root, ends[:-1], 1), strict=True)}


def deviations(plan: Plan, held: Moments, name: str) -> jax.Array:
    """Standard deviations of one effect's numbers, in its shape."""
    variance = jnp.diagonal(own_covariance(plan, held, name), axis1=-2, axis2=-1)
    grouping = next(g for g in plan.groupings if name in g.names)
    return jnp.sqrt(together(grouping, grouping.names.index(name), variance))
