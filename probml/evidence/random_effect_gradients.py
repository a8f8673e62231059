"""The random effects' part of the log evidence and its gradient, chunk by chunk.

If rows are normal, it is a function of one sum over rows. Else, about a mode ε̂(θ) that Newton's
method finds, with L(θ, ε) Laplace's formula and b(θ, ε) the gradient of log p(rows, ε), 0 at ε̂,

    dL/dθ = ∂L/∂θ + ∂/∂θ ⟨v, b(θ, ε̂)⟩,    v = K⁻¹ ∂L/∂ε

(the implicit function theorem: dε̂/dθ = K⁻¹ ∂b/∂θ), all with ε̂ constant: a pass over the rows
for the first part and one for the second. Nodes of a quadrature are constants too, with an error of
the order of the quadrature's own.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from probml.device.rows import Chunk, Known, Resident, Rows, merge_chunks
from probml.evidence import random_effects
from probml.evidence.e_step import sum_and_vjp
from probml.evidence.random_effects import RowDensity
from probml.factors.random_effects import information, integration, second_order
from probml.factors.random_effects.information import EffectVector, Information, Prior
from probml.factors.random_effects.second_order import Expansion
from probml.plan.plan import Plan
from probml.typing import PyTree


def value_and_gradient(plan: Plan, point: Callable, u: object, known: Known,
                       rows: Rows) -> tuple[jax.Array, PyTree]:
    """log p(rows that depend on random effects | point(u)) and its gradient in u.

    Args:
        point: u → (parameters, ...).
    """
    nodes, pairs = plan.groupings[0].nodes, getattr(rows, "pairs", None)
    if nodes > 1:
        method = _by_nodes if plan.groupings[0].exponent is None else _by_expansion
        return method(plan, point, u, known, rows)
    if pairs is not None:  # of all rows at once
        rows = Resident(jax.tree.map(lambda leaf: leaf[None], merge_chunks(rows.stacked)))
    mask, params = information.prior_mask(plan), point(u)[0]
    noise, info = (random_effects.find_mode(random_effects.density_of_rows(
        plan, params, known, rows.total)) if nodes
                   else (random_effects.expansion_point(plan, params, known, rows.total), None))
    integral = integration.laplace_approximation if nodes else integration.integrate_out

    def prior(u: jax.Array) -> Prior:
        return information.compute_prior(plan, point(u)[0], known)

    def information_at(inputs: tuple, rows: Chunk) -> Information:
        cond = information.effects_at(plan, prior(inputs[0]), (*inputs, noise)[1])
        return random_effects.compute_information(plan, point(inputs[0])[0], known, rows, cond,
                                                  pairs)

    def log(inputs: tuple, info: Information) -> jax.Array:
        return integral(prior(inputs[0]), info, (*inputs, noise)[1], mask).log

    # an expansion of normal rows is exact about any point
    value, (gradient, *noise_grad) = _through_sum(information_at, log,
                                                  (u, noise) if nodes else (u,), rows)
    if info is None:
        return value, gradient
    cond = integration.integrate_out(prior(u), info, noise, mask)
    v = integration.solve_precision(cond, *noise_grad)
    return value, jax.tree.map(jnp.add, gradient, _along(plan, point, u, known, rows, noise, v))


def _through_sum(of_chunk: Callable, log: Callable, constants: PyTree,
                 rows: Rows) -> tuple[jax.Array, PyTree]:
    """log(held, Σ over chunks of of_chunk(held, chunk)), and its gradient in `constants`."""
    def chunk(rows: Chunk) -> tuple[PyTree, Callable]:
        return jax.vjp(lambda constants: of_chunk(constants, rows), constants)

    def after(total: PyTree) -> tuple:
        value, (outer, share) = jax.value_and_grad(log, (0, 1), allow_int=True)(constants, total)
        return (value, outer), share

    (value, outer), inner, _ = sum_and_vjp(chunk, rows, after)
    return value, jax.tree.map(jnp.add, outer, inner)


def _by_nodes(plan: Plan, point: Callable, u: object, known: Known,
              rows: Rows) -> tuple[jax.Array, PyTree]:
    mask, params = information.prior_mask(plan), point(u)[0]
    noise, info = random_effects.find_mode(random_effects.density_of_rows(
        plan, params, known, rows.total))
    cond = integration.integrate_out(information.compute_prior(plan, params, known), info, noise,
                                     mask)
    points, log_w = random_effects.quadrature_nodes(cond, plan.groupings[0].nodes)

    def member_logs(u: object, rows: Chunk) -> jax.Array:
        params = point(u)[0]
        prior = information.compute_prior(plan, params, known)
        return second_order.member_logs(plan, params, known, rows,
                                        random_effects.effects_at_nodes(plan, prior, points))

    return _through_sum(member_logs, lambda u, logs: jax.nn.logsumexp(logs + log_w, -1).sum(), u,
                        rows)


def _by_expansion(plan: Plan, point: Callable, u: object, known: Known,
                  rows: Rows) -> tuple[jax.Array, PyTree]:
    """The quadrature of rows whose expansion at one point is sufficient: no further pass."""
    def log(u: object, expansion: Expansion) -> jax.Array:
        params = point(u)[0]
        return random_effects.evidences_by_nodes(RowDensity(
            plan, params, known, rows.total, information.compute_prior(plan, params, known),
            expansion)).sum()

    return _through_sum(lambda u, rows: random_effects.expand(plan, point(u)[0], known, rows), log,
                        u, rows)


def _along(plan: Plan, point: Callable, u: object, known: Known, rows: Rows, noise: EffectVector,
           v: EffectVector) -> PyTree:
    """∂ ⟨way, b⟩ / ∂u with ε constant."""

    def prior(u: jax.Array):
        return information.compute_prior(plan, point(u)[0], known)

    def slopes(u: object, rows: Chunk) -> dict[str, jax.Array]:
        return second_order.slopes(plan, point(u)[0], known, rows,
                                   information.effects_at(plan, prior(u), noise))

    def inner(u: object, slope: dict[str, jax.Array]) -> jax.Array:
        at_zero, at_step = (information.effects_at(plan, prior(u), step)
                            for step in (jax.tree.map(jnp.zeros_like, v), v))
        return sum(jnp.vdot(slope[name], at_step[name] - at_zero[name]) for name in slope)

    return _through_sum(slopes, inner, u, rows)[1]
