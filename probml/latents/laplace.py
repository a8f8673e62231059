"""Several numbers a row, by Laplace's approximation about their mode (Tierney & Kadane 1986;
Kristensen et al. 2016, whose inner step this is).

In coordinates u without bounds (coordinates.py) the joint density of a row's latents and of what is
seen of it, h(u), has a mode û with curvature H = −∂²h/∂u²; then

    log ∫ exp h(u) du ≈ h(û) + (p / 2) log 2π − ½ log det H,

exact where h is quadratic, with an error of third and fourth derivatives where it is not, which is
the smaller the more data a row has. Derivatives go through û by the implicit function theorem
(below) and through H. A fit estimates the error by importance sampling: points of a normal a
little wider than the mode's, the same in every row, weighted by exp h. Means over latents and draws
of them are taken over such points too, and so are more accurate than the normal itself.

An M-step maximises the approximation itself, from the modes of the E-step: so the objective that an
engine reports never falls.

Derivative of the mode: û(θ) is where ∂h/∂u = 0, so dû/dθ = H⁻¹ ∂²h/∂u∂θ (the implicit function
theorem). No loop is differentiated for it: from the mode, held still, one more Newton step by the
curvature there, held still too, û + H⁻¹ ∂h/∂u(û, θ), ends where it began and has that derivative.

Cost: a few Hessians of p gradients a row, p³.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular

from probml.latents import coordinates
from probml.latents.latent import Group, Seen
from probml.latents.quadrature import Nodes, normal_points, weighted_nodes
from probml.numerics.logs import LOG_TWO_PI
from probml.numerics.newton import Newton
from probml.numerics.optimum import maximize
from probml.structure.structure import Structure

MAX_STEPS = 60  # at the most


def mode(log_p: Callable[[jax.Array], jax.Array], start: jax.Array) -> jax.Array:
    """Where `log_p` (p,) → () has its maximum near `start`; no derivative goes through it.

    Cost: at most MAX_STEPS values, gradients and Hessians.
    """
    def at(u: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return log_p(u), jax.grad(log_p)(u), jax.hessian(log_p)(u)

    tolerance = 4 * jnp.finfo(start.dtype).eps
    return jax.lax.stop_gradient(maximize(at, start, Newton(MAX_STEPS, tolerance)).point)


def implicit_mode(log_p: Callable[[jax.Array], jax.Array], peak: jax.Array) -> jax.Array:
    """The mode as a function of what `log_p` closes over: the same value, and its derivative."""
    lower = jax.lax.stop_gradient(jnp.linalg.cholesky(-jax.hessian(log_p)(peak)))
    return peak + cho_solve((lower, True), jax.grad(log_p)(peak))


MAX_LATENTS = 64  # latent numbers of a row
POINTS = 128  # of importance sampling
# over √p: by how much the proposal is wider than the mode's normal, in standard deviations
WIDER = 0.3
TOLERANCE = 0.01  # nats a row by which importance sampling may change an evidence without a warning


@dataclass(frozen=True)
class Laplace:
    """Several continuous numbers of a row; see the top of this file.

    Args:
        points: of an importance sample that corrects the integral; 0: none.
    """

    points: int = 0

    pools = exact = averages = False

    @property
    def description(self) -> str:
        if self.points:
            return f"integrated out, by importance sampling of {self.points} points"
        return "integrated out, by Laplace's approximation"

    @property
    def breadth(self) -> int:
        return 1 + self.points

    @property
    def tolerance(self) -> float:
        return TOLERANCE

    @property
    def finer(self) -> "Laplace | None":
        return None if self.points else replace(self, points=8 * POINTS)

    def why_not(self, structure: Structure, group: Group) -> str | None:
        for name in group.names:
            site = structure.sites[name]
            if not coordinates.has_fixed_support(site):
                return (f"the support of '{name}' ({site.kind}) depends on other random variables")
            if site.entry.kinked:
                return f"the density of '{name}' ({site.kind}) is not differentiable everywhere"
        timed = next((name for name in group.sites if structure.sites[name].time is not None), None)
        if timed is not None:
            return f"'{timed}' is part of a chain"
        count = coordinates.size(structure, group)
        return None if count <= MAX_LATENTS else (
            f"each row has {count} latent variables, more than the limit of "
            f"{MAX_LATENTS} of Laplace's approximation")

    def message(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> jax.Array:
        return self._log(structure, group, env, seen, None)

    def _log(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
             start: jax.Array | None) -> jax.Array:
        log_p, peak = _joint_and_mode(structure, group, env, seen, start)
        if self.points:
            logs = _weighed(log_p, peak, normal_points(self.points, len(peak)))[1]
            return jax.nn.logsumexp(logs) - jnp.log(float(self.points))
        peak = implicit_mode(log_p, peak)
        value, lower = log_p(peak), jnp.linalg.cholesky(-jax.hessian(log_p)(peak))
        log = value + 0.5 * len(peak) * LOG_TWO_PI - jnp.log(jnp.diagonal(lower)).sum()
        return jnp.where(jnp.isfinite(value), log, -jnp.inf)

    def row_posterior(self, structure: Structure, group: Group, env: Mapping,
                      seen: Seen) -> jax.Array:
        """The mode of a row in unbounded coordinates, (p,)."""
        return _joint_and_mode(structure, group, env, seen, None)[1]

    def expected(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
                 moments: jax.Array) -> jax.Array:
        return self._log(structure, group, env, seen, jax.lax.stop_gradient(moments))

    def conditional(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> Nodes:
        log_p, peak = _joint_and_mode(structure, group, env, seen, None)
        points, logs = _weighed(log_p, peak, normal_points(POINTS, len(peak)))
        values = jax.vmap(coordinates.joint(structure, group, env, seen))(points)[1]
        return weighted_nodes(values, logs)

    def draw(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
             key: jax.Array) -> jax.Array:
        """One of many points about the mode, by its weight (Rubin 1987)."""
        log_p, peak = _joint_and_mode(structure, group, env, seen, None)
        noise_key, choice_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, (POINTS, len(peak)), peak.dtype)
        points, logs = _weighed(log_p, peak, noise)
        u = points[jax.random.categorical(choice_key, logs)]
        return coordinates.joint(structure, group, env, seen)(u)[1]


def _joint_and_mode(structure: Structure, group: Group, env: Mapping, seen: Seen,
                    start: jax.Array | None) -> tuple[Callable, jax.Array]:
    """The joint log density of a row's coordinates, and its mode."""
    joint = coordinates.joint(structure, group, env, seen)
    if start is None:
        start = jnp.zeros(coordinates.size(structure, group), jnp.result_type(float))
    constant = coordinates.joint(structure, group, *jax.lax.stop_gradient((dict(env), dict(seen))))
    return lambda u: joint(u)[0], mode(lambda u: constant(u)[0], start)


def _weighed(log_p: Callable, peak: jax.Array, noise: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Points about a mode, and log (exp h / density of the points), (m,)."""
    widening = 1 + WIDER / np.sqrt(len(peak))
    lower = jnp.linalg.cholesky(-jax.hessian(log_p)(peak))
    points = peak + widening * solve_triangular(lower, noise.T, lower=True, trans=1).T
    log_density = -0.5 * (noise**2).sum(1) - len(peak) * (0.5 * LOG_TWO_PI + np.log(widening))
    log_density += jnp.log(jnp.diagonal(lower)).sum()
    logs = jax.vmap(log_p)(points) - log_density
    return points, jnp.where(jnp.isfinite(logs), logs, -jnp.inf)
