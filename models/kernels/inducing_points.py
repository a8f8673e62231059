"""Gaussian processes of many rows, by the values u of the process at m inducing points z.

With K_z the covariance of u, K that of the rows (n, m) with u, s the variance of the noise, and
Q = K K_z⁻¹ Kᵀ, the log-likelihood is at least (Titsias's bound)

    F = log N(y; 0, Q + s I) − tr(K_x − Q) / 2s,

where the trace sums the variance of f at each row that u leaves. Of L Lᵀ = K_z, the sums over rows

    P = L⁻¹ Kᵀ K L⁻ᵀ,  a = L⁻¹ Kᵀ y,   and  B = I + P / s,  β = B⁻¹ a / s

suffice: f(x) given y has mean hᵀ β and variance k(x, x) − hᵀ (I − B⁻¹) h, h = L⁻¹ k(z, x). The
slopes of F in the entries of K and of K_z are, with W = L⁻¹,

    K:  2 K G + y gᵀ,  G = Wᵀ (I − B⁻¹ − β βᵀ) W / 2s,  g = Wᵀ β / s
    K_z:  Wᵀ (I − B⁻¹ − β βᵀ − P / s) W / 2

Cost: O(n m²) an evaluation, in blocks of rows; O(m²) memory.
Sources: Titsias (2009), "Variational learning of inducing variables in sparse Gaussian processes";
Burt, Rasmussen & van der Wilk (2020), "Convergence of sparse variational inference in Gaussian
processes regression", for points by Cholesky's factorisation with pivots.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf, dpstrf

from probml.engines.findings import Code, Finding
from probml.models.kernels.average_information import (
    AverageInformation,
    Density,
    Evaluation,
    Places,
)
from probml.models.kernels.gaussian_process import kernel_of, nugget, of_points

MAX_POINTS = 1_000
# the variance of f at a row that the points may leave, in those of the noise and of f
LEFT_OF_NOISE, LEFT_OF_VARIANCE = 1e-5, 1e-8
BLOCK = 2**22  # covariances that are computed at once
INFORMED_ROWS = 2_000  # from which the average information is computed


def inducing_points(covariance: np.ndarray, noise: float, variance: float) -> np.ndarray:
    """The indices of at most MAX_POINTS rows, (m,): one after another that of which those before
    leave the most variance, until they leave little of any.

    Args:
        covariance: of the rows, (n, n), which is overwritten. noise, variance: of y and of f.
    """
    tol = max(LEFT_OF_NOISE * noise, LEFT_OF_VARIANCE * variance)
    _, pivots, rank, _ = dpstrf(covariance.T, lower=1, tol=tol, overwrite_a=1)
    return pivots[:min(rank, MAX_POINTS)] - 1


@partial(jax.jit, static_argnums=0)
def _cross_covariance(places: Places, point: jax.Array, x: jax.Array, z: jax.Array) -> jax.Array:
    return kernel_of(places.kernel, places.params(jnp.exp(point)))(x, z)


@partial(jax.jit, static_argnums=0)
def _of_points(places: Places, point: jax.Array, z: jax.Array) -> jax.Array:
    return of_points(places.kernel, places.params(jnp.exp(point)), z)


@partial(jax.jit, static_argnums=0)
def _block_sums(places: Places, point: jax.Array, x: jax.Array, y: jax.Array, z: jax.Array,
                inverse: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The parts of P and a of some rows."""
    half = _cross_covariance(places, point, x, z) @ inverse.T
    return half.T @ half, y @ half


@partial(jax.jit, static_argnums=0)
def _parameter_slopes(places: Places, point: jax.Array, x: jax.Array, y: jax.Array, z: jax.Array,
                      square: jax.Array, linear: jax.Array) -> jax.Array:
    """Σ (2 K G + y gᵀ)_ij ∂K_ij/∂u of some rows, (p,)."""
    cross, pull = jax.vjp(lambda u: _cross_covariance(places, u, x, z), point)
    return pull(2 * cross @ square + y[:, None] * linear)[0]


@partial(jax.jit, static_argnums=0)
def _pulled_without_rows(places: Places, point: jax.Array, z: jax.Array, weights: jax.Array,
                         of_noise: float, of_variance: float) -> jax.Array:
    """The slopes (p,) of what `weights` of K_z, `of_noise` of s and `of_variance` of the variance
    of f sum up to."""
    def total(u: jax.Array) -> jax.Array:
        params = places.params(jnp.exp(u))
        k_points = of_points(places.kernel, params, z)
        return jnp.sum(weights * k_points) + of_noise * nugget(params) + (
            of_variance * params["variance"])

    return jax.grad(total)(point)


@dataclass(frozen=True)
class InducingPoints(AverageInformation):
    """The maximum of Titsias's bound of the model `gaussian_process` with `points`, by
    AverageInformation."""

    tolerance: float = 1e-9

    def _density(self, settings: dict, places: Places, x: np.ndarray, y: np.ndarray) -> "Bound":
        return Bound(places, x, y, settings["points"])


class Solved(NamedTuple):
    """L, P, a, L⁻¹, a factor of B, and s at a point."""

    factor: np.ndarray
    square: np.ndarray
    linear: np.ndarray
    inverse: np.ndarray
    inner: np.ndarray
    noise: float

    @property
    def weights(self) -> np.ndarray:
        """β."""
        return cho_solve((self.inner, True), self.linear) / self.noise


class Bound(Density):
    """Titsias's bound of rows x (n, d) and y (n,), of mean 0."""

    trace_term = np.inf  # the trace term of the last value

    def __init__(self, places: Places, x: np.ndarray, y: np.ndarray, points: np.ndarray):
        super().__init__(places, x, y)
        self.points, self._step = np.asarray(points, float), -(-len(y) // INFORMED_ROWS)
        self._subset = Density(places, x[:: self._step], y[:: self._step])

    @property
    def finding(self) -> Finding:
        """The finding that it is no log-likelihood, with its trace term."""
        return Finding.of(Code.INDUCING_POINTS, rows=len(self.y), points=len(self.points),
                          left=self.trace_term)

    def information(self, point: np.ndarray) -> np.ndarray:
        """The average information there, (p, p), from that of some rows."""
        return self._step * self._subset.information(point)

    def _blocks(self):
        size = BLOCK // len(self.points)
        return ((self.x[low : low + size], self.y[low : low + size])
                for low in range(0, len(self.y), size))

    def solved(self, point: np.ndarray) -> Solved | None:
        """The sums over rows there; None: K_z is singular, or overflows."""
        k_points = np.array(_of_points(self.places, point, self.points))
        factor, failed = dpotrf(k_points.T, lower=1, overwrite_a=1)
        if failed or not np.isfinite(factor).all():
            return None
        inverse = solve_triangular(factor, np.eye(len(k_points)), lower=True)
        square, linear = np.zeros_like(k_points), np.zeros(len(k_points))
        for x, y in self._blocks():
            square_part, linear_part = _block_sums(self.places, point, x, y, self.points, inverse)
            square += np.asarray(square_part)
            linear += np.asarray(linear_part)
        noise = float(nugget(self.places.params(np.exp(point))))
        inner = dpotrf(square / noise + np.eye(len(k_points)), lower=1)[0]
        return Solved(factor, square, linear, inverse, inner, noise)

    def at(self, point: np.ndarray, informed: bool = False) -> Evaluation:
        """The bound there, −∞ where K_z is singular, and its slopes; `informed`: and the average
        information."""
        solved, unit, n = self.solved(point), np.eye(len(point)), len(self.y)
        if solved is None:
            return Evaluation(-np.inf, np.zeros(len(point)), unit)
        square, linear, s, weights = solved.square, solved.linear, solved.noise, solved.weights
        total = self.y @ self.y
        variance = float(self.places.params(np.exp(point))["variance"])
        residual = n * variance - np.trace(square)
        self.trace_term = 0.5 * residual / s
        value = -0.5 * (n * np.log(2 * np.pi * s) + (total - linear @ weights)
                        / s) - self.trace_term - (
            np.log(np.diagonal(solved.inner)).sum())
        core = np.eye(len(square)) - cho_solve((solved.inner, True), np.eye(len(square)))
        of_noise = 0.5 * (np.trace(core) / s - n / s + (total + residual) / s**2 + (
            weights @ square @ weights - 2 * linear @ weights) / s**2)
        core -= np.multiply.outer(weights, weights)
        inverse_t = solved.inverse.T
        slopes = np.array(_pulled_without_rows(
            self.places, point, self.points, 0.5 * inverse_t @ (core - square / s) @ solved.inverse,
            of_noise, -0.5 * n / s))
        of_square, of_linear = 0.5 / s * inverse_t @ core @ solved.inverse, inverse_t @ weights / s
        for x, y in self._blocks():
            slopes += np.asarray(_parameter_slopes(self.places, point, x, y, self.points, of_square,
                                                   of_linear))
        return Evaluation(float(value), slopes, self.information(point) if informed else unit)
