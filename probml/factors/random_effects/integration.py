"""Random effects, integrated out given the information of all rows, and their conditional
distribution given the rows.

Effects are u = loc + R ε, ε ~ N(0, I), R the root of their prior covariance (information.py). About
u₀ = loc + R ε₀, with K = I + RᵀGR and b = Rᵀh − ε₀,

    log p(rows) = g − ½ |ε₀|² + ½ bᵀ K⁻¹ b − ½ log det K,      ε | rows ~ N(ε₀ + K⁻¹ b, K⁻¹),

whatever ε₀ (Bates et al. 2015, equation 14 and on, whose θ makes R; K ⪰ I however small a spread,
which may be 0). The first grouping's part of K is one block for each
member; the other groupings follow by one dense Cholesky factor of the Schur complement, whose
products are added up over pairs of rows of a member if these are few (`Paired`). Effects with a
flat prior (R = I; they have no part in |ε₀|², nor in the I of K) have a density of 1, and each adds
½ log 2π: the evidence is then the restricted likelihood. This is exact for rows that are normal
given the effects. For others g, h and G are the value, gradient and negative Hessian of their log
density at the mode ε₀: Laplace's approximation.

Cost: members × cells³, (numbers of the other groupings)³, and members × (these numbers)², or pairs.
"""

from collections.abc import Collection
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular

from probml.errors import present
from probml.factors.random_effects.information import (
    EffectVector,
    Information,
    Paired,
    Prior,
    batched_product,
    between_roots,
    effects_at,
    times_root,
    to_site_shape,
)
from probml.factors.random_effects.quadrature_nodes import AtNodes, Nodes
from probml.families import definite
from probml.numerics import lapack
from probml.numerics.logs import LOG_TWO_PI
from probml.plan.plan import Plan


class Conditional(NamedTuple):
    """The log evidence of the rows, and the conditional distribution of ε given the rows."""

    log: jax.Array
    centre: EffectVector  # the mean
    lower: jax.Array  # Cholesky factors of K's blocks, (members, cells, cells)
    gain: jax.Array  # K's first block⁻¹ × its cross part, (members, cells, r)
    rest: jax.Array  # Cholesky factor of the Schur complement, (r, r)
    nodes: Nodes | None = None  # ε of each member, (members,), if integrated by quadrature

    @property
    def mode(self) -> EffectVector:
        """ε at the mode, about which the nodes lie."""
        first = self.centre.first if self.nodes is None else self.nodes.loc[:, None]
        return self.centre._replace(first=first)


def joint_gradient(prior: Prior, info: Information, noise: EffectVector,
                   mask: EffectVector) -> EffectVector:
    """b, the gradient of log p(rows, ε) in ε.

    Args:
        info: of the rows about the effects at `noise`. mask: see `prior_mask`.
    """
    root_t = jnp.swapaxes(prior.first, -1, -2)
    return EffectVector(batched_product(root_t, info.slope.first) - mask.first * noise.first,
               times_root(prior, info.slope.rest) - mask.rest * noise.rest)


def joint_log_density(info: Information, noise: EffectVector, mask: EffectVector) -> jax.Array:
    """g − ½ |ε₀|²: log p(rows, ε) up to a constant."""
    return info.log - 0.5 * sum(jnp.sum(p * e**2) for p, e in zip(mask, noise, strict=True))


def integrate_out(prior: Prior, info: Information, noise: EffectVector, mask: EffectVector,
                  damping: jax.Array | float = 0.0) -> Conditional:
    """log p(rows | params), and ε given the rows.

    Args:
        info, mask: as of `joint_gradient`. damping: share of itself by which the diagonal of K is
            raised in a step towards the mode.
    """
    root_t = jnp.swapaxes(prior.first, -1, -2)
    slope = joint_gradient(prior, info, noise, mask)
    lower = lapack.cholesky(_damped_precision(root_t @ info.block @ prior.first, mask.first,
                                              damping))
    half = lapack.solve(lower, slope.first[..., None])
    log = joint_log_density(info, noise, mask) + 0.5 * jnp.sum(half**2)
    log += LOG_TWO_PI * 0.5 * sum(jnp.sum(1 - p) for p in mask)
    log -= jnp.log(jnp.diagonal(lower, axis1=-2, axis2=-1)).sum()
    if not prior.rest:
        step = lapack.solve(lower, half, True)[..., 0]
        centre = EffectVector(noise.first + step, noise.rest)
        return Conditional(log, centre, lower, info.cross, info.rest)
    if isinstance(info.cross, Paired):
        cross, cross_gram, half_cross = _products_by_pairs(prior, info.cross, lower, half[..., 0])
    else:
        cross = lapack.solve(lower, root_t @ times_root(prior, info.cross))
        flat = cross.reshape(-1, len(info.rest))
        cross_gram, half_cross = flat.T @ flat, half.reshape(-1) @ flat
    precision = _damped_precision(between_roots(prior, info.rest), mask.rest, damping)
    precision, right = precision - cross_gram, slope.rest - half_cross
    log += definite.half_square(precision, right) - definite.half_log_det(precision)
    root, step = definite.factor(precision), definite.solve(precision, right)
    gain = lapack.solve(lower, cross, True)
    first = lapack.solve(lower, half, True)[..., 0] - gain @ step
    return Conditional(log, EffectVector(noise.first + first, noise.rest + step), lower, gain, root)


def _products_by_pairs(prior: Prior, cross: Paired, lower: jax.Array,
                       half: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """C = lower⁻¹ × the cross part of K, (members, cells, r), CᵀC and halfᵀC. The products are sums
    over pairs of rows, but for the columns of groupings of one member, such as coefficients, which
    every row reads: those of C are dense.

    Cost: pairs × (numbers that a row reads of members)².
    """
    owner, cols, offset, r, parts, dense, columns = cross.owner, cross.at, 0, 0, [], [], []
    for root in prior.rest:  # each row has the roots of the members that it reads
        members, cells, _ = root.shape
        roots = root[(cols[:, offset] - r) // cells]
        parts.append(cross.values[..., offset : offset + cells] @ roots)
        if members == 1:
            dense += range(offset, offset + cells)
            columns += range(r, r + cells)
        offset, r = offset + cells, r + members * cells
    values = jnp.swapaxes(prior.first, -1, -2)[owner] @ jnp.concatenate(parts, -1)
    values = lapack.solve(lower[owner], values)
    zeros = jnp.zeros((r, r), values.dtype)
    half_cross = zeros[0].at[cols].add((half[owner][:, None] @ values)[:, 0])
    table = jnp.zeros((*half.shape, r), values.dtype).at[owner[:, None], :, cols].add(
        jnp.swapaxes(values, 1, 2))
    (row1, row2), sparse = cross.pairs, np.delete(np.arange(offset), dense)
    vals, cols = values[..., sparse], cols[:, sparse]
    half_gram = zeros.at[cols[row1][:, :, None], cols[row2][:, None, :]].add(
        jnp.einsum("rci,rcj->rij", vals[row1], vals[row2]))
    gram = half_gram + half_gram.T
    gram = gram.at[cols[:, :, None], cols[:, None, :]].add(jnp.swapaxes(vals, 1, 2) @ vals)
    if dense:
        places = np.array(columns)
        sums = jax.ops.segment_sum(values[..., np.array(dense)], owner, len(half))
        mixed = zeros[: len(places)].at[:, cols].add(jnp.einsum("rci,rcj->irj", sums[owner], vals))
        gram = gram.at[places].add(mixed).at[:, places].add(mixed.T)
        gram = gram.at[places[:, None], places].add(jnp.einsum("mci,mcj->ij", sums, sums))
    return table, gram, half_cross


def _damped_precision(matrix: jax.Array, mask: jax.Array, damping: jax.Array | float) -> jax.Array:
    """Matrices with the prior's precisions on their diagonals, and these raised by a share."""
    eye = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    matrix = matrix + mask[..., None] * eye
    diagonal = jnp.abs(jnp.diagonal(matrix, axis1=-2, axis2=-1))
    return matrix + (damping * jnp.maximum(diagonal, mask))[..., None] * eye


def laplace_approximation(prior: Prior, info: Information, noise: EffectVector,
                          mask: EffectVector) -> Conditional:
    """As `integrate_out`, with the log evidence of Laplace's approximation at `noise`, a mode: away
    from a mode, the gain of a further Newton step is not added."""
    cond, slope = integrate_out(prior, info, noise, mask), joint_gradient(prior, info, noise, mask)
    newton_gain = sum(jnp.vdot(s, b - a) for s, a, b in zip(slope, noise, cond.centre, strict=True))
    return cond._replace(log=cond.log - 0.5 * newton_gain)


def solve_precision(cond: Conditional, right: EffectVector) -> EffectVector:
    """K⁻¹ right."""
    half = lapack.solve(cond.lower, right.first[..., None])
    first = lapack.solve(cond.lower, half, True)[..., 0]
    if not right.rest.size:
        return EffectVector(first, right.rest)
    residual = right.rest - jnp.einsum("mdr,md->r", cond.gain, right.first)
    rest = cho_solve((cond.rest, True), residual)
    return EffectVector(first - cond.gain @ rest, rest)


def draw_deviation(cond: Conditional, key: jax.Array) -> EffectVector:
    """A draw of ε given the rows, less its mean."""
    if cond.nodes is not None:
        return from_quantiles(cond, jax.random.uniform(key, cond.nodes.loc.shape))
    first, second = jax.random.split(key)
    noise, rest = (jax.random.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(
        (first, second), cond.centre, strict=True))
    noise = lapack.solve(cond.lower, noise[..., None], True)[..., 0]
    if rest.size:
        rest = solve_triangular(cond.rest, rest, lower=True, trans=1)
        noise -= cond.gain @ rest
    return EffectVector(noise, rest)


def from_quantiles(cond: Conditional, q: jax.Array) -> EffectVector:
    """ε less its mean at a quantile of each member, (members,), if integrated by quadrature."""
    effects = AtNodes(*present(cond.nodes)).icdf(q)[..., None]
    return EffectVector(effects - cond.centre.first, jnp.zeros_like(cond.centre.rest))


class Moments(NamedTuple):
    """Means of the effects given the rows, by name; covariances in the parts of `Information`."""

    mean: dict[str, jax.Array]
    block: jax.Array
    cross: jax.Array
    rest: jax.Array


def moments(plan: Plan, prior: Prior, cond: Conditional) -> Moments:
    """Means and covariances of the effects given the rows."""
    eye = jnp.eye(prior.first.shape[-1], dtype=prior.first.dtype)
    eye = jnp.broadcast_to(eye, cond.lower.shape)
    block = lapack.solve(cond.lower, lapack.solve(cond.lower, eye), True)
    root_t, rest, cross = jnp.swapaxes(prior.first, -1, -2), cond.rest, cond.gain
    if prior.rest:
        rest = cho_solve((cond.rest, True), jnp.eye(len(cond.rest), dtype=cond.rest.dtype))
        block += cond.gain @ rest @ jnp.swapaxes(cond.gain, -1, -2)
        cross = -prior.first @ times_root(prior, cond.gain @ rest, True)
        rest = between_roots(prior, rest, True)
    return Moments(effects_at(plan, prior, cond.centre), prior.first @ block @ root_t, cross, rest)


def member_covariances(plan: Plan, moments: Moments, name: str) -> jax.Array:
    """The conditional covariance of one effect within each member, (members, d, d)."""
    offset = 0
    for which, grouping in enumerate(plan.groupings):
        block = moments.block
        if which:
            part = moments.rest[offset : offset + grouping.size, offset : offset + grouping.size]
            part = part.reshape(grouping.members, grouping.cells, grouping.members, grouping.cells)
            index = np.arange(grouping.members)
            block = part[index, :, index]
            offset += grouping.size
        if name in grouping.names:
            i = grouping.names.index(name)
            start = sum(grouping.widths[:i])
            part = slice(start, start + grouping.widths[i])
            return block[:, part, part]
    raise KeyError(name)


def joint_covariance_root(plan: Plan, moments: Moments,
                          names: Collection[str]) -> dict[str, np.ndarray]:
    """Columns of a root of the joint covariance of effects with one member, such as coefficients
    that are integrated out: name → (k, *shape)."""
    first, *others = plan.groupings
    covariance, offset, places = np.asarray(moments.rest, float), 0, {}
    if first.members == 1:
        cross = np.asarray(moments.cross[0], float) if others else np.zeros((first.cells, 0))
        rest = covariance if others else np.zeros((0, 0))
        covariance = np.block([[np.asarray(moments.block[0], float), cross], [cross.T, rest]])
    for grouping in plan.groupings[first.members > 1 :]:
        bounds = offset + np.cumsum([0, *grouping.widths])
        offset += grouping.size
        if grouping.members == 1:
            places |= {name: (np.arange(*bounds[i : i + 2]), grouping.shapes[i])
                       for i, name in enumerate(grouping.names) if name in names}
    if not places:
        return {}
    indices = np.concatenate([place for place, _ in places.values()])
    unit = np.sqrt(np.diagonal(covariance)[indices])
    unit = np.where(unit > 0, unit, 1.0)
    eigvals, eigvecs = np.linalg.eigh(covariance[np.ix_(indices, indices)] / unit / unit[:, None])
    root = (unit[:, None] * eigvecs * np.sqrt(np.maximum(eigvals, 0.0))).T
    bounds = np.cumsum([len(place) for place, _ in places.values()])
    return {name: part.reshape(len(indices), *shape) for (name, (_, shape)), part in zip(
        places.items(), np.split(root, bounds[:-1], 1), strict=True)}


def standard_deviations(plan: Plan, moments: Moments, name: str) -> np.ndarray:
    """The conditional standard deviations of one effect, in its shape."""
    variance = np.diagonal(member_covariances(plan, moments, name), axis1=-2, axis2=-1)
    grouping = next(g for g in plan.groupings if name in g.names)
    return to_site_shape(grouping, grouping.names.index(name), np.sqrt(variance))
