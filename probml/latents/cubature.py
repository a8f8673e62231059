"""Two numbers a row, integrated by adaptive quadrature about their mode.

In coordinates u without bounds (coordinates.py) the joint density of a row has a mode û with
curvature H = L Lᵀ. In u = û + L⁻ᵀ (v(t₁), v(t₂)), v(t) = sinh(κt) / κ, the integral is taken by the
trapezoid rule in both t, as quadrature.py takes that over one number, and for its reason: nodes
follow tails that are no normal's. Under counts and choices it is good to 1e-6 nats for a normal and
3e-4 for a Student's t or a Gamma number, where Gauss and Hermite's 15 nodes (Liu & Pierce 1994;
lme4's nAGQ) have 1e-7 and 3e-3. A fit reports the change by twice the nodes, further out
(fits/latent_findings.py). Gradients are taken at fixed nodes.

Cost: m² log densities a row, and a few Hessians to its mode.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from probml.latents import coordinates
from probml.latents.laplace import Laplace, mode
from probml.latents.latent import Group, Seen
from probml.latents.quadrature import ROUGH, Nodes, expected_log_joint, weighted_nodes
from probml.structure.structure import Structure

NODES, REACH = 25, 6.4  # in each direction; of t, 16 standard deviations
BEND = 0.4  # κ
NUMBERS = 2
MIN_CURVATURE = 1e-2  # where a density is flat: nodes reach some 1000 units of a coordinate


@dataclass(frozen=True)
class Cubature:
    """Two continuous numbers of a row; see the top of this file."""

    nodes: int = NODES

    pools = exact = False
    averages = True

    @property
    def description(self) -> str:
        return f"integrated out, by quadrature with {self.nodes} × {self.nodes} nodes"

    @property
    def breadth(self) -> int:
        return self.nodes**NUMBERS

    @property
    def tolerance(self) -> float:
        return ROUGH

    @property
    def finer(self) -> "Cubature":
        return replace(self, nodes=2 * self.nodes)

    def why_not(self, structure: Structure, group: Group) -> str | None:
        reason = Laplace().why_not(structure, group)
        if reason is not None:
            return reason
        count = coordinates.size(structure, group)
        return None if count == NUMBERS else (f"other sites depend on {count} latent variables of "
                                              f"a row jointly")

    def message(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> jax.Array:
        log_p = coordinates.joint(structure, group, env, seen)
        points, log_w = self._points(structure, group, env, seen)
        return jax.nn.logsumexp(jax.vmap(lambda u: log_p(u)[0])(points) + log_w)

    def conditional(self, structure: Structure, group: Group, env: Mapping, seen: Seen) -> Nodes:
        points, log_w = self._points(structure, group, env, seen)
        logs, values = jax.vmap(coordinates.joint(structure, group, env, seen))(points)
        return weighted_nodes(values, logs + log_w)

    row_posterior = conditional

    def draw(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
             key: jax.Array) -> jax.Array:
        return Laplace().draw(structure, group, env, seen, key)

    def expected(self, structure: Structure, group: Group, env: Mapping, seen: Seen,
                 moments: Nodes) -> jax.Array:
        return expected_log_joint(structure, group, env, seen, moments)

    def _points(self, structure: Structure, group: Group, env: Mapping,
                seen: Seen) -> tuple[jax.Array, jax.Array]:
        """Coordinates of the nodes and their log weights, without derivatives."""
        env, seen = jax.lax.stop_gradient((dict(env), dict(seen)))
        joint = coordinates.joint(structure, group, env, seen)

        def height(u: jax.Array) -> jax.Array:
            return joint(u)[0]

        peak = mode(height, jnp.zeros(NUMBERS, jnp.result_type(float)))
        root, volume = _scale(-jax.hessian(height)(peak))
        reach = REACH * (self.nodes / NODES) ** 0.25
        t = np.linspace(-reach, reach, self.nodes)
        grid = np.stack(np.meshgrid(t, t, indexing="ij"), -1).reshape(-1, NUMBERS)
        logs = np.log(np.cosh(BEND * grid)).sum(1) + NUMBERS * np.log(t[1] - t[0])
        offsets = jnp.asarray(np.sinh(BEND * grid).T / BEND, peak.dtype)
        points = peak + (root @ offsets).T
        log_w = jnp.asarray(logs, peak.dtype) + volume
        # far out, a rate may be infinite and its density no number
        is_finite = jnp.isfinite(jax.vmap(height)(points)) & jnp.isfinite(log_w)
        return (jnp.where(is_finite[:, None], points, peak),
                jnp.where(is_finite, log_w, -jnp.inf))


def _scale(curvature: jax.Array) -> tuple[jax.Array, jax.Array]:
    """R with R Rᵀ the inverse of the curvature of a row's −log density at its mode, and log |R|.
    Between two modes that mirror each other, where it is not positive definite, the eigenvalues
    count by their size, so that the nodes reach both."""
    lower = jnp.linalg.cholesky(curvature)
    is_pd = jnp.isfinite(lower).all()
    identity = jnp.eye(NUMBERS, dtype=curvature.dtype)
    eigval, eigvecs = jnp.linalg.eigh(jnp.where(jnp.isfinite(curvature), curvature, identity))
    eigval = jnp.maximum(jnp.abs(eigval), MIN_CURVATURE)
    lower = jnp.where(is_pd, lower, identity)
    root = jnp.where(is_pd, solve_triangular(lower, identity, lower=True, trans=1),
                     eigvecs * eigval**-0.5)
    return root, jnp.where(is_pd, -jnp.log(jnp.diagonal(lower)).sum(), -0.5 * jnp.log(eigval).sum())
