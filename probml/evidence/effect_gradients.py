"""The effects' part of the log evidence and its gradient, chunk by chunk.

Of normal rows it is one sum and a function of it. About a mode ε̂(θ) that is found by steps, with
L(θ, ε) Laplace's formula and b(θ, ε) the slope of the joint density, which is 0 at ε̂,

    dL/dθ = ∂L/∂θ + ∂/∂θ ⟨v, b(θ, ε̂)⟩,    v = K⁻¹ ∂L/∂ε

(the implicit function theorem: dε̂/dθ = K⁻¹ ∂b/∂θ), all at ε̂ held still: a pass for the first part
and one for the second. Nodes of a quadrature are held still too, which costs what the quadrature is
off by.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known, Pairs, Resident, Rows, merged
from probml.evidence import effect_modes
from probml.evidence import effects as exact
from probml.evidence.passes import returned
from probml.factors.effects import curved as curved_effects
from probml.factors.effects import eliminated as eliminated_effects
from probml.factors.effects import messages as effects
from probml.factors.effects.messages import Information, Prior, Two
from probml.plan.plan import Plan
from probml.typing import PyTree


def value_and_gradient(plan: Plan, point: Callable, u: object, known: Known,
                       rows: Rows) -> tuple[jax.Array, PyTree]:
    """log p(the rows that look at effects | point(u)) and its gradient in u.

    Args:
        point: u → (parameters, ...).
    """
    nodes = plan.groupings[0].nodes
    if nodes > 1:
        return _by_nodes(plan, point, u, known, rows)
    if isinstance(rows, Resident) and rows.pairs is not None:
        return _by_pairs(plan, point, u, known, rows.pairs, merged(rows.stacked))
    own, params = effects.proper(plan), point(u)[0]
    noise, told = (effect_modes.mode(plan, params, known, rows.total) if nodes
                   else (exact.reference(plan, params, known, rows.total), None))
    held = (u, noise) if nodes else (u,)  # of normal rows it matters not where they are taken

    def prior(u: jax.Array) -> Prior:
        return effects.prior(plan, point(u)[0], known)

    def chunk(rows: Chunk) -> tuple[Information, Callable]:
        def information(held: tuple) -> Information:
            return exact.information(plan, point(held[0])[0], known, rows,
                                     effects.point_at(plan, prior(held[0]), (*held, noise)[1]))

        return jax.vjp(information, held)

    def after(told: Information) -> tuple:
        def log(held: tuple, told: Information) -> jax.Array:
            integral = eliminated_effects.at_mode if nodes else eliminated_effects.eliminated
            return integral(prior(held[0]), told, (*held, noise)[1], own).log

        value, (outer, share) = jax.value_and_grad(log, (0, 1))(held, told)
        return (value, outer), share

    (value, outer), inner, _ = returned(chunk, rows, after)
    gradient, *across = jax.tree.map(jnp.add, outer, inner)
    if told is None:
        return value, gradient
    at = eliminated_effects.eliminated(prior(u), told, noise, own)
    way = eliminated_effects.solved(at, *across)
    return value, jax.tree.map(jnp.add, gradient, _along(plan, point, u, known, rows, noise, way))


def _by_pairs(plan: Plan, point: Callable, u: object, known: Known, pairs: Pairs,
              rows: Chunk) -> tuple[jax.Array, PyTree]:
    """The log evidence of crossed effects and its gradient, by pairs of rows: all rows at once,
    in double precision, for effects of which few combinations of levels occur."""
    def log(u: jax.Array) -> jax.Array:
        params, noise = point(u)[0], effects.none(plan)
        found = effects.prior(plan, params, known)
        told = effects.information(plan, params, known, rows,
                                   effects.point_at(plan, found, noise), pairs)
        return eliminated_effects.eliminated(found, told, noise, effects.proper(plan)).log

    return jax.value_and_grad(log)(u)


def _by_nodes(plan: Plan, point: Callable, u: object, known: Known,
              rows: Rows) -> tuple[jax.Array, PyTree]:
    own = effects.proper(plan)
    noise, told = effect_modes.mode(plan, point(u)[0], known, rows.total)
    at = eliminated_effects.eliminated(effects.prior(plan, point(u)[0], known), told, noise, own)
    places, share = effect_modes.spread(at, plan.groupings[0].nodes)

    def chunk(rows: Chunk):
        def logs(u: jax.Array):
            params = point(u)[0]
            found = effects.prior(plan, params, known)
            return curved_effects.member_logs(plan, params, known, rows,
                                              effect_modes.points(plan, found, places))

        return jax.vjp(logs, u)

    def after(logs: jax.Array):
        return jax.value_and_grad(lambda logs: effect_modes.summed(logs, share))(logs)

    value, gradient, _ = returned(chunk, rows, after)
    return value, gradient


def _along(plan: Plan, point: Callable, u: object, known: Known, rows: Rows, noise: Two,
           way: Two) -> PyTree:
    """∂ ⟨way, b⟩ / ∂u at ε held still."""

    def prior(u: jax.Array):
        return effects.prior(plan, point(u)[0], known)

    def chunk(rows: Chunk):
        return jax.vjp(lambda u: curved_effects.slopes(
            plan, point(u)[0], known, rows, effects.point_at(plan, prior(u), noise)), u)

    def after(slope: dict[str, jax.Array]):
        def inner(u: jax.Array, slope: dict[str, jax.Array]):
            here, there = (effects.point_at(plan, prior(u), step)
                           for step in (jax.tree.map(jnp.zeros_like, way), way))
            return sum(jnp.vdot(slope[name], there[name] - here[name]) for name in slope)

        return jax.grad(inner, (0, 1))(u, slope)

    outer, inner, _ = returned(chunk, rows, after)
    return jax.tree.map(jnp.add, outer, inner)
