"""Random effects over all rows: their part of the log evidence, and the moments for an M-step.

The information of the rows adds up over chunks; then the effects are integrated out
(factors/random_effects/integration.py). In float32 there are two passes over the rows: about the
prior's locations, and again about the conditional means found, so that residuals are small.

Where rows are not normal, the integral is taken about the mode ε̂ of g(ε) − ½ |ε|² given the
parameters. There the formula of integration.py is Laplace's approximation,

    log p(rows) ≈ g(ε̂) − ½ |ε̂|² − ½ log det K,    K = I + Rᵀ G(ε̂) R,

over all effects, crossed or nested (Breslow & Clayton 1993; lme4's nAGQ = 1). Of one number a
member of one grouping, members are independent, and the integral of each is taken by nodes
ε = ε̂ + L⁻ᵀ t about its own mode, K = LLᵀ (Liu & Pierce 1994).

The mode is found by Newton's steps, damped as Levenberg has it, all effects at once. Cost: some ten
passes over the rows; and the nodes, one more. One pass alone where the value and two derivatives of
the log density of rows are sufficient (second_order.py).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known, Pairs
from probml.factors.naturals import environment
from probml.factors.random_effects import information, integration, second_order
from probml.factors.random_effects.information import EffectVector, Information, Prior
from probml.factors.random_effects.integration import Conditional, Moments
from probml.factors.random_effects.quadrature_nodes import AtNodes, Nodes
from probml.factors.random_effects.second_order import Expansion
from probml.jaxpr.hoisting import hoisted
from probml.latents.gaussian import log_total
from probml.latents.laplace import MAX_STEPS
from probml.numerics import lapack
from probml.numerics.newton import Newton
from probml.numerics.optimum import maximize
from probml.plan.groupings import Grouping, quadrature_rule
from probml.plan.plan import Plan

ROUNDING_SLACK = 64  # units of rounding by which a log density may fall and count as no lower


@dataclass(frozen=True)
class RowDensity:
    """log p(rows that are not normal | effects), as a function of standardised effects ε.

    Attributes:
        total: sums a function of a chunk of rows over all chunks.
        expansion: of the rows of each member at ε = 0, where it is sufficient; None: each question
            is a pass over the rows.
    """

    plan: Plan
    params: Mapping
    known: Known
    total: Callable
    prior: Prior
    expansion: Expansion | None

    def information(self, noise: EffectVector) -> Information:
        """The information of the rows about ε."""
        if self.expansion is not None:
            return self.expansion.information(self.plan, self._scale[:, 0] * noise.first[:, 0])
        effects = information.effects_at(self.plan, self.prior, noise)
        return self.total(lambda rows: second_order.compute_information(
            self.plan, self.params, self.known, rows, effects))

    def member_logs(self, points: jax.Array) -> jax.Array:
        """Log densities of the rows of each member at ε, (members, d, m) → (members, m)."""
        if self.expansion is not None:
            return self.expansion.member_logs(self.plan, self._scale * points[:, 0])
        effects = effects_at_nodes(self.plan, self.prior, points)
        return self.total(lambda rows: second_order.member_logs(self.plan, self.params, self.known,
                                                                rows, effects))

    @property
    def _scale(self) -> jax.Array:
        return self.prior.first[:, :, 0]  # of the one effect of each member, (members, 1)

    @property
    def constant(self) -> "RowDensity":
        """This density without derivatives in the parameters."""
        params, prior, expansion = jax.lax.stop_gradient((dict(self.params), self.prior,
                                                          self.expansion))
        return replace(self, params=params, prior=prior, expansion=expansion)


def density_of_rows(plan: Plan, params: Mapping, known: Known, total: Callable) -> RowDensity:
    """The `RowDensity`, with its expansion where that is sufficient."""
    expansion = None
    if plan.groupings[0].exponent is not None:
        expansion = total(lambda rows: expand(plan, params, known, rows))
    return RowDensity(plan, params, known, total, information.compute_prior(plan, params, known),
                      expansion)


def expand(plan: Plan, params: Mapping, known: Known, rows: Chunk) -> Expansion:
    """The expansion of a chunk of rows at ε = 0."""
    prior = information.compute_prior(plan, params, known)
    return second_order.expand(plan, params, known, rows, information.effects_at(
        plan, prior, information.zeros(plan)))


def compute_information(plan: Plan, params: Mapping, known: Known, rows: Chunk,
                        point: Mapping[str, jax.Array], pairs: Pairs | None = None) -> Information:
    """The information of a chunk of rows about the effects at `point`: exact for normal rows, else
    to the second order."""
    if plan.groupings[0].nodes:
        return second_order.compute_information(plan, params, known, rows, point)
    return information.compute_information(plan, params, known, rows, point, pairs)


def expansion_point(plan: Plan, params: Mapping, known: Known, total: Callable) -> EffectVector:
    """ε about which the log density of normal rows is expanded.

    Args:
        total: sums a function of a chunk of rows over all chunks.
    """
    zero = information.zeros(plan)
    if zero.first.dtype != jnp.float32:
        return zero
    centre = _integrate_normal_rows(plan, jax.lax.stop_gradient(params), known, total,
                                    zero).centre
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(jnp.nan_to_num(leaf)), centre)


def _integrate_normal_rows(plan: Plan, params: Mapping, known: Known, total: Callable,
                           noise: EffectVector) -> Conditional:
    prior, mask = information.compute_prior(plan, params, known), information.prior_mask(plan)
    info = total(lambda rows: compute_information(plan, params, known, rows,
                                          information.effects_at(plan, prior, noise)))
    return integration.integrate_out(prior, info, noise, mask)


def condition_on_rows(plan: Plan, params: Mapping, known: Known, total: Callable) -> Conditional:
    """log p(rows that depend on random effects | params), and the conditional distribution of the
    effects given the rows by the same rule: normal, or discrete at the nodes of a quadrature, with
    the mean and standard deviation of these; `total` as of `expansion_point`."""
    count = plan.groupings[0].nodes
    if not count:
        return _integrate_normal_rows(plan, params, known, total,
                                      expansion_point(plan, params, known, total))
    of_rows = density_of_rows(plan, params, known, total)
    cond = _laplace_at_mode(of_rows)
    if count == 1:
        return cond
    logs = _log_terms(of_rows, cond, count)
    nodes = Nodes(cond.centre.first[:, 0], 1 / cond.lower[:, 0, 0], jax.nn.log_softmax(logs))
    node_dist, log = AtNodes(*nodes), jax.nn.logsumexp(logs, -1)
    log = log if known.reference is None else log - known.reference
    return cond._replace(log=log.sum(), nodes=nodes,
                         centre=cond.centre._replace(first=node_dist.mean[:, None]),
                         lower=node_dist.variance[:, None, None] ** -0.5)


def conditional_means(plan: Plan, params: Mapping, known: Known, total: Callable,
                      noise: EffectVector | None = None) -> dict[str, jax.Array]:
    """The conditional mean (or mode) of the effects given the rows, by name. Its first derivatives
    in the parameters are right: one Newton step from the mode, which is of length 0, has them.

    Args:
        noise: ε there; None: it is found.
    """
    if plan.groupings[0].nodes:
        of_rows = density_of_rows(plan, params, known, total)
        noise = find_mode(of_rows)[0] if noise is None else noise
        centre = integration.integrate_out(of_rows.prior, of_rows.information(noise), noise,
                                           information.prior_mask(plan)).centre
    else:
        noise = expansion_point(plan, params, known, total) if noise is None else noise
        centre = _integrate_normal_rows(plan, params, known, total, noise).centre
    return information.effects_at(plan, information.compute_prior(plan, params, known), centre)


def expect(plan: Plan, params: Mapping, known: Known,
           total: Callable) -> tuple[jax.Array, Moments]:
    """An E-step: the random effects' part of the log evidence, and their moments; `total` as of
    `expansion_point`."""
    cond, prior = (condition_on_rows(plan, params, known, total),
                   information.compute_prior(plan, params, known))
    return cond.log, integration.moments(plan, prior, cond)


def row_surrogate(plan: Plan, params: Mapping, known: Known, rows: Chunk,
                  moments: Moments) -> jax.Array:
    """E[log p(rows that depend on random effects | params)] over effects with these moments; to
    the second order about the mean if rows are not normal."""
    info = compute_information(plan, params, known, rows, moments.mean)
    return info.log - 0.5 * jnp.sum(moments.block * info.block) - jnp.sum(
        moments.cross * info.cross) - 0.5 * jnp.sum(moments.rest * info.rest)


def surrogate(plan: Plan, params: Mapping, known: Known, moments: Moments) -> jax.Array:
    """E[log p(effects | params)] over effects with these moments."""
    env, total = environment(plan, params, known), jnp.zeros(())
    for grouping in (grouping for grouping in plan.groupings if not grouping.flat):
        for i, name in enumerate(grouping.names):
            covariances = integration.member_covariances(plan, moments, name)
            total += _expected(plan, grouping, i, env, moments.mean[name], covariances)
    return total


def _expected(plan: Plan, grouping: Grouping, i: int, env: Mapping, mean: jax.Array,
              covariances: jax.Array) -> jax.Array:
    """E[log p(effect | env)] of one effect, from its mean and its members' covariances."""
    site = plan.structure.sites[grouping.names[i]]
    event, d = site.event, math.prod(site.event)
    loc, root = information.location_and_root(plan, site.name, env)
    root = information.by_member(grouping, i, root, 2 * len(event)).reshape(-1, *event, *event)
    gap = information.by_member(grouping, i, mean - loc)
    gap = gap.reshape(len(gap), -1, d)
    blocks = covariances.reshape(*gap.shape, *gap.shape[1:])
    blocks = jnp.moveaxis(jnp.diagonal(blocks, axis1=1, axis2=3), -1, 1)
    square = (gap[..., :, None] * gap[..., None, :] + blocks).reshape(-1, d, d)
    return log_total(site, root, square, jnp.ones(len(square)))


# rows that are not normal


def find_mode(of_rows: RowDensity) -> tuple[EffectVector, Information]:
    """ε at the mode, and the information of the rows there; no derivative goes through them."""
    of_rows = of_rows.constant
    prior, mask = of_rows.prior, information.prior_mask(of_rows.plan)
    start = information.zeros(of_rows.plan)
    rounding = jnp.finfo(start.first.dtype).eps

    def at(noise: EffectVector) -> tuple[jax.Array, EffectVector, Information]:
        info = of_rows.information(noise)
        return (integration.joint_log_density(info, noise, mask),
                integration.joint_gradient(prior, info, noise, mask), info)

    def step(noise: EffectVector, slope: EffectVector, info: Information,
             damping: jax.Array) -> tuple:
        centre = integration.integrate_out(prior, info, noise, mask, damping).centre
        move = jax.tree.map(jnp.subtract, centre, noise)
        return move, 0.5 * sum(jnp.vdot(s, m) for s, m in zip(slope, move, strict=True))

    method = Newton(MAX_STEPS, 4 * rounding, step=step, slack=ROUNDING_SLACK,
                    skip_last_evaluation=False)
    at_mode = maximize(hoisted(at, start), start, method)
    return jax.lax.stop_gradient((at_mode.point, at_mode.hessian))


def quadrature_gain(plan: Plan, params: Mapping, known: Known, total: Callable,
                    nodes: int) -> jax.Array:
    """The log evidence by a quadrature of so many nodes, less that by the plan's own rule."""
    of_rows, n_nodes = density_of_rows(plan, params, known, total), plan.groupings[0].nodes
    cond = _laplace_at_mode(of_rows)
    finer = _member_logs(of_rows, cond, nodes)
    if n_nodes == 1:
        return finer.sum() - cond.log
    # by member, since rounding of the sums of very many rows may exceed the gain
    return (finer - _member_logs(of_rows, cond, n_nodes)).sum()


def member_evidences(plan: Plan, params: Mapping, known: Known, total: Callable) -> jax.Array:
    """The log evidence of the rows of each member, by a quadrature, (members,)."""
    return evidences_by_nodes(density_of_rows(plan, params, known, total))


def evidences_by_nodes(of_rows: RowDensity) -> jax.Array:
    """The log evidences of members, (members,), by a quadrature, from their `RowDensity`."""
    return _member_logs(of_rows, _laplace_at_mode(of_rows), of_rows.plan.groupings[0].nodes)


def _member_logs(of_rows: RowDensity, cond: Conditional, nodes: int) -> jax.Array:
    return jax.nn.logsumexp(_log_terms(of_rows, cond, nodes), -1)


def _laplace_at_mode(of_rows: RowDensity) -> Conditional:
    noise, info = find_mode(of_rows)
    return integration.laplace_approximation(of_rows.prior, info, noise,
                                             information.prior_mask(of_rows.plan))


def _log_terms(of_rows: RowDensity, cond: Conditional, nodes: int) -> jax.Array:
    """The log terms of the quadrature sum of each member, (members, nodes)."""
    points, log_w = quadrature_nodes(cond, nodes)
    return log_w + of_rows.member_logs(points)


def quadrature_nodes(cond: Conditional, nodes: int) -> tuple[jax.Array, jax.Array]:
    """Nodes ε of each member, (members, d, m), without derivatives, and the logarithms of their
    weights in the integral, (members, m)."""
    d = cond.lower.shape[-1]
    t, log = (jnp.asarray(part, cond.lower.dtype) for part in quadrature_rule(nodes, d))
    shift = lapack.solve(cond.lower, jnp.broadcast_to(t.T, (*cond.lower.shape[:-1], len(t))), True)
    points = cond.centre.first[..., None] + shift
    log_w = log - 0.5 * jnp.sum(points**2, 1) - jnp.log(
        jnp.diagonal(cond.lower, axis1=-2, axis2=-1)).sum(-1, keepdims=True)
    return jax.lax.stop_gradient((points, log_w))


def effects_at_nodes(plan: Plan, prior: Prior, points: jax.Array) -> dict[str, jax.Array]:
    """The effects at quadrature nodes: name → (m, *shape)."""
    rest = jnp.zeros(0, points.dtype)
    return jax.vmap(lambda point: information.effects_at(plan, prior, EffectVector(point, rest)),
                    2)(points)
