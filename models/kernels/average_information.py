"""The maximum of the likelihood of a Gaussian process of thousands of rows, by few evaluations.

With covariance K(u), u the logarithms of the parameters, K_i = ∂K/∂u_i and α = K⁻¹ y,

    log p(y) = −½ yᵀ α − ½ log|2πK|,    slopes  ½ αᵀ K_i α − ½ tr(K⁻¹ K_i),
    average information  A_ij = ½ (K_i α)ᵀ K⁻¹ (K_j α),

A the mean of the observed and the expected information where K is linear in u (Gilmour, Thompson &
Cullis 1995, "Average information REML"), positive semi-definite everywhere. It costs no n³ and
makes the first Hessian of BFGS, which needs values and slopes: factor and inverse of K, by LAPACK
in double.

Cost: O(n³) an evaluation, of which some ten are needed; memory of about five matrices n × n.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from probml import MAP
from probml.engines.engine import Outcome, Problem, Status
from probml.engines.findings import Code, Finding
from probml.engines.progress import Progress
from probml.models.kernels.gaussian_process import kernel_of, nugget
from probml.numerics.optimum import maximize
from probml.numerics.refinement import HostBFGS

MAX_STEPS = 100
NO_INFORMATION = 1e-6  # about the logarithm of a parameter: a standard deviation of 1000
MIN_CURVATURE = 0.1  # of a first step: its parameter has a standard deviation of a factor of 20


@dataclass(frozen=True)
class AverageInformation(MAP):
    """MAP(prior=False) of the model `gaussian_process`, from a start, by BFGS whose first Hessian
    is the average information; `tolerance` is the predicted gain that may remain, relative."""

    tolerance: float = 1e-7

    def run(self, problem: Problem) -> Outcome:
        inputs = dict(problem.data.table.inputs)
        (x,), ((y,),) = inputs.pop("x"), inputs.values()
        initial = {name: np.ones(()) for name in problem.plan.free} | dict(problem.start)
        settings = problem.data.model.bound
        density = self._density(settings, Places.of(settings["kernel"], initial), x, y)
        start = density.places.point(initial)
        origin = density.at(start, informed=True)
        values, axes = np.linalg.eigh(origin.information)
        root = axes / np.sqrt(np.maximum(values, MIN_CURVATURE))

        def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
            evaluation = density.at(start + root @ z) if z.any() else origin
            return evaluation.value, root.T @ evaluation.slopes

        limit = self.steps or MAX_STEPS
        with Progress(type(self).__name__, None, self.progress):
            optimum = maximize(objective, np.zeros(len(start)), HostBFGS(limit, self.tolerance,
                                                                         self.tolerance))
        end = start + root @ optimum.point
        limits = [Finding.of(Code.LIMIT, name) for name, info in zip(
            density.places.entries, np.diagonal(density.information(end)), strict=True)
            if info < NO_INFORMATION]
        status = (Status.LIMIT if limits else Status.CONVERGED if optimum.flat else
                  Status.STALLED if optimum.iterations < limit else Status.MAX_ITERATIONS)
        return Outcome(density.places.params(np.exp(end)), np.asarray(optimum.history), status,
                       int(optimum.iterations)).noting(*limits, density.finding)

    def _density(self, settings: dict, places: "Places", x: np.ndarray, y: np.ndarray) -> "Density":
        return Density(places, x, y)


class Places(NamedTuple):
    """A kernel, and the shapes of its parameters by name, in the order of their vector (p,)."""

    kernel: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, kernel: str, params: Mapping[str, Any]) -> "Places":
        """Those of parameters by name."""
        return cls(kernel, tuple((name, np.shape(value)) for name, value in params.items()))

    def point(self, params: Mapping[str, Any]) -> np.ndarray:
        """The vector of the logarithms of parameters."""
        return np.concatenate([np.log(params[name]).ravel() for name, _ in self.shapes])

    def params(self, vector: Any) -> dict[str, Any]:
        sizes = [math.prod(shape) for _, shape in self.shapes]
        parts = np.cumsum([0, *sizes])
        return {name: vector[start : start + size].reshape(shape)
                for (name, shape), start, size in zip(self.shapes, parts, sizes, strict=False)}

    @property
    def entries(self) -> list[str]:
        """The names of the entries of the vector."""
        return [f"{name}[{i}]" if shape else name for name, shape in self.shapes
                for i in range(math.prod(shape))]


def _covariance(places: Places, point: jax.Array, x: jax.Array) -> jax.Array:
    params = places.params(jnp.exp(point))
    return kernel_of(places.kernel, params)(x, x) + nugget(params) * jnp.eye(len(x))


covariance = jax.jit(_covariance, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def kernel_jvp(places: Places, point: jax.Array, x: jax.Array, weights: jax.Array) -> jax.Array:
    """∂K/∂u_i weights, (p, n), one parameter after another: each makes a matrix (n, n)."""
    def along(direction: jax.Array) -> jax.Array:
        return jax.jvp(lambda u: _covariance(places, u, x) @ weights, (point,), (direction,))[1]

    return jax.lax.map(along, jnp.eye(len(point)))


@partial(jax.jit, static_argnums=0)
def kernel_vjp(places: Places, point: jax.Array, x: jax.Array, weights: jax.Array) -> jax.Array:
    """Σ weights_ij ∂K_ij/∂u, (p,)."""
    return jax.vjp(lambda u: _covariance(places, u, x), point)[1](weights)[0]


class Evaluation(NamedTuple):
    """The log-likelihood at a point, its slopes (p,), and the average information (p, p)."""

    value: float
    slopes: np.ndarray
    information: np.ndarray


class Density:
    """The log-likelihood of rows x (n, d) and y (n,), of mean 0."""

    @property
    def finding(self) -> Finding | None:
        """What a user is to know of its maximum."""
        return None

    def __init__(self, places: Places, x: np.ndarray, y: np.ndarray):
        self.places, self.x, self.y = places, np.asarray(x, float), np.asarray(y, float)

    def _solved(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Cholesky's factor of K and K⁻¹ y; None: K is singular."""
        factor, failed = dpotrf(np.array(covariance(self.places, point, self.x)).T, lower=1,
                                overwrite_a=1)
        return None if failed else (factor, dpotrs(factor, self.y, lower=1)[0])

    def information(self, point: np.ndarray) -> np.ndarray:
        """The average information there, (p, p)."""
        solved = self._solved(point)
        return np.eye(len(point)) if solved is None else self._information(point, *solved)

    def _information(self, point: np.ndarray, factor: np.ndarray, weights: np.ndarray):
        derivs = np.asarray(kernel_jvp(self.places, point, self.x, weights))
        info = 0.5 * derivs @ dpotrs(factor, derivs.T, lower=1)[0]
        return 0.5 * (info + info.T)

    def at(self, point: np.ndarray, informed: bool = False) -> Evaluation:
        """The evaluation there, −∞ where K is singular; `informed`: with the information."""
        solved, identity = self._solved(point), np.eye(len(point))
        if solved is None:
            return Evaluation(-np.inf, np.zeros(len(point)), identity)
        information = self._information(point, *solved) if informed else identity
        factor, weights = solved
        value = -0.5 * float(self.y @ weights) - float(np.log(np.diagonal(factor)).sum()) - (
            0.5 * len(self.y) * np.log(2 * np.pi))
        # of the symmetric K⁻¹ the lower triangle, whose entries count twice but for the diagonal
        inverse = dpotri(factor, lower=1, overwrite_c=1)[0]
        inverse[np.diag_indices_from(inverse)] *= 0.5
        inverse *= -1
        inverse += np.multiply.outer(weights, 0.5 * weights)
        return Evaluation(value, np.asarray(kernel_vjp(self.places, point, self.x, inverse.T)),
                          information)
