"""The mode of a row's unseen numbers and the curvature there: Newton's steps, differentiated as the
mode itself is.

The mode û(θ) of h(u, θ) is where ∂h/∂u = 0, so dû/dθ = H⁻¹ ∂²h/∂u∂θ, H = −∂²h/∂u² (the implicit
function theorem). No loop is differentiated for it: from the mode, held still, one more step by the
curvature there, held still too, û + H⁻¹ ∂h/∂u(û, θ), ends where it began and has that derivative.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve

STEPS = 60  # at the most
DAMPING = 0.1  # of a first step that needs any, times the unit of the coordinates
MORE, LESS = 8.0, 0.125  # by which it is changed after a step that led down, or up


def mode(height: Callable[[jax.Array], jax.Array], start: jax.Array) -> jax.Array:
    """Where `height` (p,) → () has its maximum near `start`; no derivative goes through it.

    Levenberg's steps: (H + λI)⁻¹ ∇h, λ raised where they lead down or H + λI is not positive
    definite, until the gain that a step promises is lost in rounding.

    Cost: at most STEPS values, gradients and Hessians.
    """
    slope, curve = jax.grad(height), jax.hessian(height)
    least = 4 * jnp.finfo(start.dtype).eps

    def ahead(u, damping):
        gradient = slope(u)
        bend = -curve(u) + damping * jnp.eye(len(u), dtype=u.dtype)
        step = cho_solve((jnp.linalg.cholesky(bend), True), gradient)
        return step, jnp.vdot(gradient, step)

    def more(carry):
        _, value, _, gain, count = carry
        return (count < STEPS) & ~(gain <= least * (1 + jnp.abs(value)))

    def turn(carry):
        u, value, damping, gain, count = carry
        step, promised = ahead(u, damping)
        high = height(u + step)
        risen = high >= value  # False where nothing is a number
        raised = jnp.maximum(MORE * damping, DAMPING)
        lowered = jnp.where(damping > DAMPING, LESS * damping, 0.0)
        return (jnp.where(risen, u + step, u), jnp.where(risen, high, value),
                jnp.where(risen, lowered, raised),
                jnp.where(risen & (promised >= 0), promised, jnp.where(raised > 1e12, 0.0, gain)),
                count + 1)

    infinite = jnp.full((), jnp.inf, start.dtype)
    carry = (start, height(start), jnp.zeros((), start.dtype), infinite, 0)
    return jax.lax.stop_gradient(jax.lax.while_loop(more, turn, carry)[0])


def moving(height: Callable[[jax.Array], jax.Array], top: jax.Array) -> jax.Array:
    """The mode as a function of what `height` closes over: the same value, and its derivative."""
    lower = jax.lax.stop_gradient(jnp.linalg.cholesky(-jax.hessian(height)(top)))
    return top + cho_solve((lower, True), jax.grad(height)(top))
