"""Random effects under rows that are not normal: the mode of the effects given the parameters and
the rows, and the integral over the effects about it, by Laplace's approximation or quadrature.

At the mode ε̂ of g(ε) − ½ |ε|² the formula of integration.py (factors) is Laplace's approximation,

    log p(rows) ≈ g(ε̂) − ½ |ε̂|² − ½ log det K,    K = I + Rᵀ G(ε̂) R,

over all effects, crossed or nested (Breslow & Clayton 1993; lme4's nAGQ = 1). Of one number a
member of one grouping, members are independent, and the integral of each is taken by nodes
ε = ε̂ + L⁻ᵀ t about its own mode, K = LLᵀ (Liu & Pierce 1994).

The mode is found by Newton's steps, damped as Levenberg has it, all effects at once. Cost: some ten
passes over the rows; and the nodes, one more.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from probml.device.rows import Known
from probml.factors.random_effects import information, integration, second_order
from probml.factors.random_effects.information import EffectVector, Information, Prior
from probml.factors.random_effects.integration import Conditional
from probml.factors.random_effects.quadrature_nodes import AtNodes, Nodes
from probml.latents.laplace import MAX_STEPS
from probml.numerics import lapack
from probml.numerics.optimum import Newton, maximize
from probml.plan.integrals import rule
from probml.plan.plan import Plan

ROUNDING_SLACK = 64  # units of rounding by which a log density may fall and count as no lower


def find_mode(plan: Plan, params: Mapping, known: Known,
              total: Callable) -> tuple[EffectVector, Information]:
    """ε at the mode, and the information of the rows there; no derivative goes through them.

    Args:
        total: sums a function of a chunk of rows over all chunks.
    """
    params = jax.lax.stop_gradient(dict(params))
    prior, mask = information.compute_prior(plan, params, known), information.prior_mask(plan)
    start = information.zeros(plan)
    rounding = jnp.finfo(start.first.dtype).eps

    def at(noise: EffectVector) -> tuple[jax.Array, EffectVector, Information]:
        info = total(lambda rows: second_order.compute_information(
            plan, params, known, rows, information.effects_at(plan, prior, noise)))
        return (integration.joint_log_density(info, noise, mask),
                integration.joint_gradient(prior, info, noise, mask), info)

    def step(noise: EffectVector, slope: EffectVector, info: Information,
             damping: jax.Array) -> tuple:
        there = integration.integrate_out(prior, info, noise, mask, damping).centre
        move = jax.tree.map(jnp.subtract, there, noise)
        return move, 0.5 * sum(jnp.vdot(s, m) for s, m in zip(slope, move, strict=True))

    method = Newton(MAX_STEPS, 4 * rounding, step=step, slack=ROUNDING_SLACK,
                    skip_last_evaluation=False)
    at_mode = maximize(at, start, method)
    return jax.lax.stop_gradient((at_mode.point, at_mode.hessian))


def condition_on_rows(plan: Plan, params: Mapping, known: Known, total: Callable) -> Conditional:
    """log p(rows that depend on random effects | params), and the conditional distribution of the
    effects by the same rule: normal about the mode, or discrete at the nodes of a quadrature, with
    the mean and standard deviation of these.

    Args:
        total: as of `find_mode`.
    """
    at = _laplace_at_mode(plan, params, known, total)
    count = plan.groupings[0].nodes
    if count == 1:
        return at
    logs = _log_terms(plan, params, known, total, at, count)
    nodes = Nodes(at.centre.first[:, 0], 1 / at.lower[:, 0, 0], jax.nn.log_softmax(logs))
    there = AtNodes(*nodes)
    return at._replace(log=jax.nn.logsumexp(logs, -1).sum(), nodes=nodes,
                       centre=at.centre._replace(first=there.mean[:, None]),
                       lower=there.variance[:, None, None] ** -0.5)


def quadrature_gain(plan: Plan, params: Mapping, known: Known, total: Callable,
                    nodes: int) -> jax.Array:
    """The log evidence by a quadrature of so many nodes, less that by the plan's own rule."""
    at = _laplace_at_mode(plan, params, known, total)
    own, count = at.log, plan.groupings[0].nodes
    if count > 1:
        own = evidence_by_quadrature(plan, params, known, total, at, count)
    return evidence_by_quadrature(plan, params, known, total, at, nodes) - own


def _laplace_at_mode(plan: Plan, params: Mapping, known: Known, total: Callable) -> Conditional:
    noise, info = find_mode(plan, params, known, total)
    prior, mask = information.compute_prior(plan, params, known), information.prior_mask(plan)
    return integration.laplace_approximation(prior, info, noise, mask)


def evidence_by_quadrature(plan: Plan, params: Mapping, known: Known, total: Callable,
                           at: Conditional, nodes: int) -> jax.Array:
    """The log evidence by quadrature about the mode of each member of the one grouping."""
    return jax.nn.logsumexp(_log_terms(plan, params, known, total, at, nodes), -1).sum()


def _log_terms(plan: Plan, params: Mapping, known: Known, total: Callable, at: Conditional,
              nodes: int) -> jax.Array:
    """The log terms of the quadrature sum of each member, (members, nodes)."""
    places, share = quadrature_nodes(at, nodes)
    prior = information.compute_prior(plan, params, known)
    return share + total(lambda rows: second_order.member_logs(
        plan, params, known, rows, effects_at_nodes(plan, prior, places)))


def quadrature_nodes(at: Conditional, nodes: int) -> tuple[jax.Array, jax.Array]:
    """Nodes ε of each member, (members, d, m), without derivatives, and the logarithms of their
    weights in the integral, (members, m)."""
    d = at.lower.shape[-1]
    t, log = (jnp.asarray(part, at.lower.dtype) for part in rule(nodes, d))
    away = lapack.solve(at.lower, jnp.broadcast_to(t.T, (*at.lower.shape[:-1], len(t))), True)
    places = at.centre.first[..., None] + away
    share = log - 0.5 * jnp.sum(places**2, 1) - jnp.log(
        jnp.diagonal(at.lower, axis1=-2, axis2=-1)).sum(-1, keepdims=True)
    return jax.lax.stop_gradient((places, share))


def effects_at_nodes(plan: Plan, prior: Prior, places: jax.Array) -> dict[str, jax.Array]:
    """The effects at quadrature nodes: name → (m, *shape)."""
    rest = jnp.zeros(0, places.dtype)
    return jax.vmap(lambda own: information.effects_at(plan, prior, EffectVector(own, rest)),
                    2)(places)


def sum_log_integrals(logs: jax.Array, share: jax.Array) -> jax.Array:
    """Σ over members of the log integral, from log densities at nodes."""
    return jax.nn.logsumexp(logs + share, -1).sum()
