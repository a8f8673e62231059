"""Effects of groups under rows that are not normal: the mode of their joint density given the
parameters, and the integral over them about it.

At the mode ε̂ of g(ε) − ½ |ε|² the formula of effects/eliminated.py is Laplace's approximation,

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
from probml.factors.effects import curved as curved_effects
from probml.factors.effects import eliminated as eliminated_effects
from probml.factors.effects import messages as effects
from probml.factors.effects.at_nodes import AtNodes, Nodes
from probml.factors.effects.eliminated import Eliminated
from probml.factors.effects.messages import Information, Prior, Two
from probml.latents.laplace import STEPS
from probml.numerics import lapack
from probml.numerics.optimum import Newton, maximize
from probml.plan.integrals import rule
from probml.plan.plan import Plan

LOST = 64  # units of rounding by which a height may fall and be none the lower


def mode(plan: Plan, params: Mapping, known: Known, total: Callable) -> tuple[Two, Information]:
    """ε at the mode, and what rows say of effects there; no derivative goes through them.

    Args:
        total: (chunk → what adds up) → its sum over all chunks.
    """
    params = jax.lax.stop_gradient(dict(params))
    found, own = effects.prior(plan, params, known), effects.proper(plan)
    start = effects.none(plan)
    rounding = jnp.finfo(start.first.dtype).eps

    def at(noise: Two) -> tuple[jax.Array, Two, Information]:
        told = total(lambda rows: curved_effects.information(
            plan, params, known, rows, effects.point_at(plan, found, noise)))
        return (eliminated_effects.height(told, noise, own),
                eliminated_effects.pull(found, told, noise, own), told)

    def step(noise: Two, slope: Two, told: Information, damping: jax.Array) -> tuple:
        there = eliminated_effects.eliminated(found, told, noise, own, damping).centre
        move = jax.tree.map(jnp.subtract, there, noise)
        return move, 0.5 * sum(jnp.vdot(s, m) for s, m in zip(slope, move, strict=True))

    method = Newton(STEPS, 4 * rounding, step=step, slack=LOST, skip_last_evaluation=False)
    at_mode = maximize(at, start, method)
    return jax.lax.stop_gradient((at_mode.point, at_mode.hessian))


def given_rows(plan: Plan, params: Mapping, known: Known, total: Callable) -> Eliminated:
    """log p(the rows that look at effects | params), and the effects given them by the same rule:
    normal about their mode, or at nodes, with the mean and the width that these have; `total` as of
    `mode`."""
    at = _at_mode(plan, params, known, total)
    count = plan.groupings[0].nodes
    if count == 1:
        return at
    logs = _at_nodes(plan, params, known, total, at, count)
    nodes = Nodes(at.centre.first[:, 0], 1 / at.lower[:, 0, 0], jax.nn.log_softmax(logs))
    there = AtNodes(*nodes)
    return at._replace(log=jax.nn.logsumexp(logs, -1).sum(), nodes=nodes,
                       centre=at.centre._replace(first=there.mean[:, None]),
                       lower=there.variance[:, None, None] ** -0.5)


def gap(plan: Plan, params: Mapping, known: Known, total: Callable, nodes: int) -> jax.Array:
    """By how much the log evidence by so many nodes is above that of the plan's rule."""
    at = _at_mode(plan, params, known, total)
    own, count = at.log, plan.groupings[0].nodes
    if count > 1:
        own = by_nodes(plan, params, known, total, at, count)
    return by_nodes(plan, params, known, total, at, nodes) - own


def _at_mode(plan: Plan, params: Mapping, known: Known, total: Callable) -> Eliminated:
    noise, told = mode(plan, params, known, total)
    found, own = effects.prior(plan, params, known), effects.proper(plan)
    return eliminated_effects.at_mode(found, told, noise, own)


def by_nodes(plan: Plan, params: Mapping, known: Known, total: Callable, at: Eliminated,
             nodes: int) -> jax.Array:
    """The log evidence by nodes about the mode of each member of the one grouping."""
    return jax.nn.logsumexp(_at_nodes(plan, params, known, total, at, nodes), -1).sum()


def _at_nodes(plan: Plan, params: Mapping, known: Known, total: Callable, at: Eliminated,
              nodes: int) -> jax.Array:
    """The logarithms of what each node adds to the integral of each member, (members, m)."""
    places, share = spread(at, nodes)
    return share + total(lambda rows: curved_effects.member_logs(
        plan, params, known, rows, points(plan, effects.prior(plan, params, known), places)))


def spread(at: Eliminated, nodes: int) -> tuple[jax.Array, jax.Array]:
    """Nodes ε of each member, (members, d, m), held still, and the logarithms of what the densities
    there are multiplied by, (members, m)."""
    d = at.lower.shape[-1]
    t, log = (jnp.asarray(part, at.lower.dtype) for part in rule(nodes, d))
    away = lapack.solve(at.lower, jnp.broadcast_to(t.T, (*at.lower.shape[:-1], len(t))), True)
    places = at.centre.first[..., None] + away
    share = log - 0.5 * jnp.sum(places**2, 1) - jnp.log(
        jnp.diagonal(at.lower, axis1=-2, axis2=-1)).sum(-1, keepdims=True)
    return jax.lax.stop_gradient((places, share))


def points(plan: Plan, found: Prior, places: jax.Array) -> dict[str, jax.Array]:
    """The effects at nodes, name → (m, *shape)."""
    rest = jnp.zeros(0, places.dtype)
    return jax.vmap(lambda own: effects.point_at(plan, found, Two(own, rest)), 2)(places)


def summed(logs: jax.Array, share: jax.Array) -> jax.Array:
    """Σ over members of the log integral, from log densities at nodes."""
    return jax.nn.logsumexp(logs + share, -1).sum()
