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

from probml.numerics.optimum import Newton, maximize

STEPS = 60  # at the most


def mode(height: Callable[[jax.Array], jax.Array], start: jax.Array) -> jax.Array:
    """Where `height` (p,) → () has its maximum near `start`; no derivative goes through it.

    Cost: at most STEPS values, gradients and Hessians.
    """
    def at(u: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return height(u), jax.grad(height)(u), jax.hessian(height)(u)

    least = 4 * jnp.finfo(start.dtype).eps
    return jax.lax.stop_gradient(maximize(at, start, Newton(STEPS, least)).point)


def moving(height: Callable[[jax.Array], jax.Array], top: jax.Array) -> jax.Array:
    """The mode as a function of what `height` closes over: the same value, and its derivative."""
    lower = jax.lax.stop_gradient(jnp.linalg.cholesky(-jax.hessian(height)(top)))
    return top + cho_solve((lower, True), jax.grad(height)(top))
