"""The curvature of a log density at a point, and whitened coordinates about it.

`Frame` and `measure` run on the device. `estimate_hessian` and `differences` compute Hessians on
the host from differences of gradients; `units`, `scaled` and `whitened` rescale them.
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from probml.jaxpr import backward

# Curvatures here are eigenvalues of the negative Hessian with each coordinate in its own unit.
MIN_UNCOUPLED_CURVATURE = 0.1  # curvature below which correlations are worth a full matrix
FLAT_CURVATURE = 1e-6  # lower bound on a curvature, so that no direction becomes infinitely wide
MAX_DENSE_COORDINATES = 16  # coordinates up to which a matrix costs no more than a unit for each
MAX_ROUNDS = 8  # rounds of central differences in `measure`
MAX_HESSIAN_COORDINATES = 1024  # coordinates up to which a Hessian is computed

A = TypeVar("A", np.ndarray, jax.Array)
# u (d,) → (value, gradient of its negative)
Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]

# Smallest curvature that differences of gradients determine; a flatter direction needs another
# round in coordinates in which it is wider.
MIN_CURVATURE = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-3}
# Difference step, relative to the width of a coordinate.
DIFFERENCE_STEP = {np.dtype(np.float64): 1e-3, np.dtype(np.float32): 0.1}
MAX_PREDICTION_ERROR = 0.2  # of a gradient change, relative to the step


class Frame(NamedTuple):
    """Whitened coordinates z about a point, u = centre + root z: the negative Hessian of the log
    density in z is the identity.

    Attributes:
        centre: (d,).
        root: (d, d), symmetric up to the units of u; or (d,), one unit a coordinate.
        curvature: (d,), eigenvalues of the negative Hessian with each coordinate in its own unit;
            0 along a flat direction, negative where the centre is not a mode.
        axes: (d, d), the eigenvectors, one a column, in the units of u.
    """

    centre: jax.Array
    root: jax.Array
    curvature: jax.Array
    axes: jax.Array

    def point(self, z: jax.Array) -> jax.Array:
        return self.centre + (self.root * z if self.root.ndim == 1 else self.root @ z)

    def points(self, z: np.ndarray) -> np.ndarray:
        """Returns u at many z (..., d), on the host."""
        return self.centre + (self.root * z if self.root.ndim == 1 else z @ self.root.T)

    def inverse(self, u: np.ndarray) -> np.ndarray:
        """Returns z at points u (k, d), on the host."""
        away = u - self.centre
        return away / self.root if self.root.ndim == 1 else np.linalg.solve(self.root, away.T).T

    def pull(self, gradient: jax.Array) -> jax.Array:
        """Returns the gradient with respect to z, given that with respect to u, (..., d)."""
        return gradient * self.root if self.root.ndim == 1 else gradient @ self.root

    def transform(self, both: Callable) -> Callable:
        """Returns z → (value, gradient), given u → (value, gradient)."""

        def transformed(z: jax.Array):
            value, gradient = both(self.point(z))
            return value, self.pull(gradient)

        return transformed

    def diagonal(self) -> "Frame":
        """Returns the frame with one unit a coordinate, (d,), which keeps independence in u."""
        return self if self.root.ndim == 1 else self._replace(root=(self.root**2).sum(1) ** 0.5)

    def independent(self, hessian: jax.Array) -> "Frame":
        """Returns a diagonal frame whose units are the conditional standard deviations, given all
        other coordinates; hessian: (d, d), or empty."""
        diagonal = jnp.diagonal(hessian) if hessian.size else jnp.ones_like(self.centre)
        root = self.diagonal().root
        return self._replace(
            root=jnp.where(diagonal > 0, 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0)), root)
        )

    def square(self) -> "Frame":
        """Returns the frame with a matrix root if it has at most MAX_DENSE_COORDINATES, so that
        the compiled program does not depend on the data. On the host."""
        if self.root.ndim == 2 or len(self.root) > MAX_DENSE_COORDINATES:
            return self
        return self._replace(root=np.diag(self.root))

    def uncoupled(self) -> "Frame":
        """Returns the frame without correlations, which vary over the density, unless some
        direction is narrow enough to need them."""
        least = np.min(np.asarray(self.curvature))
        return self.diagonal() if bool(least >= MIN_UNCOUPLED_CURVATURE) else self


class Starts(NamedTuple):
    """Initial points about a mode, with log density and gradient."""

    u: jax.Array  # (k, d)
    value: jax.Array  # (k,)
    gradient: jax.Array  # (k, d)


def one_by_one(function: Callable) -> Callable:
    """Returns the function of many points that evaluates one after another; jax.vmap: at once."""
    return functools.partial(jax.lax.map, function)


def measure(
    both: Callable, u: jax.Array, spread: jax.Array, apart: jax.Array, widest: jax.Array,
    mapped: Callable = one_by_one, hessian: jax.Array | None = None
) -> tuple[Frame, jax.Array, Starts]:
    """Returns the frame at u, the negative Hessian (d, d), and starting points at z = spread.

    The Hessian is computed by central differences of gradients, ∂²f/∂u_i∂u ≈
    (∇f(u + h e_i) − ∇f(u − h e_i)) / 2h. The first round uses a small h, further rounds a fraction
    of the width found so far, until h is at most that width: coordinates may have any unit. This
    needs no second derivatives, which recursions along time do not have, and compiles one gradient.

    Args:
        both: u → (f, ∇f), f a log density.
        u: (d,).
        spread: (k, d), standard normal numbers; multiplied by 0.1 if u is not a mode.
        apart: (d,) bool, coordinates whose correlations with others are ignored because they vary
            over the density.
        widest: (d,), largest unit of each coordinate.
        mapped: jax.vmap or `one_by_one`, by which many points are evaluated.
        hessian: (d, d), negative, if it is known.

    Cost: 6 d gradients, 2 d more for each further round, d² memory; above
    MAX_HESSIAN_COORDINATES 2 max(d, k) gradients and no Hessian; with a Hessian k gradients.
    """
    if hessian is not None:
        hessian = jnp.where(jnp.isfinite(hessian), hessian, 0.0)
        frame = _frame(u, hessian, apart, widest)
        at = _start_points(frame, spread)
        return frame, hessian, Starts(at, *mapped(both)(at))
    d, k, eps = u.size, len(spread), jnp.finfo(u.dtype).eps
    first_step = eps ** (1 / 3) + eps ** (2 / 3) * jnp.abs(u)
    share = 1e-3 if eps < 1e-10 else 0.1  # of a width: cancellation against the third derivative
    count = max(2 * d, k)
    has_hessian = d <= MAX_HESSIAN_COORDINATES

    min_step = 1e-3 * eps ** (2 / 3) * jnp.abs(u)

    def points(last, hessian, h):
        frame = _frame(u, hessian, apart, widest) if has_hessian else _unit_frame(u)
        starts = _start_points(frame, spread)
        at = (jnp.concatenate([u + jnp.diag(h), u - jnp.diag(h)]) if has_hessian
              else jnp.zeros((0, d)))
        pad = jnp.broadcast_to(u, (count, d))
        return jnp.where(last, pad.at[:k].set(starts), pad.at[: len(at)].set(at))

    def iterate(carry):
        i, last, _, hessian, h, _, _ = carry
        values, gradients = mapped(both)(points(last, hessian, h))
        converged = last
        if has_hessian:
            found = (gradients[d : 2 * d] - gradients[:d]) / (2 * h[:, None])
            finite = jnp.isfinite(found).all(1)
            found = 0.5 * (found + found.T)
            usable = (i == 0) | jnp.all(jnp.isfinite(found))
            hessian = jnp.where(~last & usable, jnp.where(jnp.isfinite(found), found, 0.0), hessian)
            diagonal = jnp.diagonal(hessian)
            width = jnp.sqrt(1 / jnp.where(diagonal > 0, diagonal, jnp.inf))
            converged = (i > 0) & jnp.all(finite & ((h <= width) | (width == 0) | (h <= min_step)))
            has_width = (width > 0) & jnp.isfinite(width)
            step = jnp.where(has_width, jnp.maximum(share * width, min_step), first_step)
            # a shorter step where the density is 0 at the end of the last one
            h = jnp.where(last, h, jnp.where(finite, step, jnp.minimum(step, 1e-2 * h)))
        return i + 1, converged | (i + 1 >= MAX_ROUNDS), last, hessian, h, values, gradients

    zeros = jnp.zeros((d, d) if has_hessian else (0, 0), u.dtype)
    *_, hessian, _, values, gradients = jax.lax.while_loop(
        lambda carry: ~carry[2], iterate,
        (jnp.zeros((), int), jnp.asarray(not has_hessian), jnp.zeros((), bool), zeros, first_step,
         jnp.zeros(count, u.dtype), jnp.zeros((count, d), u.dtype)))
    values, gradients = values[:k], gradients[:k]
    frame = _frame(u, hessian, apart, widest) if has_hessian else _unit_frame(u)
    return frame, hessian, Starts(_start_points(frame, spread), values, gradients)


def _start_points(frame: Frame, spread: jax.Array) -> jax.Array:
    """Returns points (k, d) at z = spread, nearer if the centre is not a mode."""
    shrink = jnp.where(jnp.all(frame.curvature > FLAT_CURVATURE), 1.0, 0.1)
    return jax.vmap(frame.point)(shrink * spread)


def _frame(u: jax.Array, hessian: jax.Array, apart: jax.Array, widest: jax.Array) -> Frame:
    """Returns the frame of a negative Hessian: each coordinate in its own unit, then the inverse
    symmetric square root of the scaled matrix. Negative eigenvalues enter by absolute value."""
    diagonal = jnp.abs(jnp.diagonal(hessian))
    unit = jnp.where(diagonal > 0, 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0)), 1.0)
    unit = jnp.minimum(unit, widest)
    ignored = (apart[:, None] | apart) & ~jnp.eye(len(u), dtype=bool)
    scaled = jnp.where(ignored, 0.0, hessian * unit[:, None] * unit)
    scaled = jnp.where(jnp.diag(apart), 1.0, scaled)
    curvature, axes = jnp.linalg.eigh(scaled)
    root = (axes / jnp.sqrt(jnp.maximum(jnp.abs(curvature), FLAT_CURVATURE))) @ axes.T
    return Frame(u, unit[:, None] * root, curvature, unit[:, None] * axes)


def _unit_frame(u: jax.Array) -> Frame:
    return Frame(u, jnp.ones_like(u), jnp.ones_like(u), jnp.zeros((0, 0), u.dtype))


def second_order(function):
    """Returns u → (value, gradient, Hessian) of a scalar function of a vector, by forward-mode
    differentiation of its gradient in all directions at once."""

    def slope(u: jax.Array):
        value, gradient = backward.value_and_gradient(function)(u)
        return gradient, (value, gradient)

    def evaluate(u):
        hessian, (value, gradient) = jax.jacfwd(slope, has_aux=True)(u)
        return value, gradient, hessian

    return evaluate


def units(hessian: A, xp: ModuleType = np) -> A:
    """Returns the unit of each coordinate, |H_ii|^(−1/2), (d,); in an indefinite Hessian a smaller
    one where needed for |H_ij| ≤ 1 in these units, as in a definite one; 1 where row i is 0.

    Args:
        xp: numpy, or jax.numpy for a traced Hessian.
    """
    diagonal = xp.abs(xp.diagonal(hessian))
    with np.errstate(over="ignore", invalid="ignore"):
        bound = xp.max(hessian**2 / xp.where(diagonal > 0, diagonal, xp.inf), 1, initial=0.0)
    diagonal = xp.maximum(diagonal, xp.where(xp.isfinite(bound), bound, 0.0))
    return xp.where(diagonal > 0, 1 / xp.sqrt(xp.where(diagonal > 0, diagonal, 1.0)), 1.0)


def scaled(hessian: A, unit: A) -> A:
    """Returns the Hessian (d, d) with each coordinate in its unit."""
    return hessian * unit[:, None] * unit


def curvature_axes(hessian: np.ndarray, min_curvature: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the eigenvalues (d,) of a symmetric Hessian (d, d), with each coordinate in its own
    unit, and axes (d, d), one a column, along which the absolute curvature is 1. Curvatures below
    `min_curvature` count as this."""
    unit = units(hessian)
    curvature, axes = np.linalg.eigh(scaled(hessian, unit))
    return curvature, unit[:, None] * axes / np.sqrt(np.maximum(np.abs(curvature), min_curvature))


def whitened(hessian: np.ndarray, min_curvature: float) -> np.ndarray | None:
    """Returns W (d, d), lower triangular, such that WᵀW is the inverse of a Hessian; None unless
    all its eigenvalues, with each coordinate in its own unit, exceed `min_curvature`. A Cholesky
    factor is a continuous function of the Hessian, as eigenvectors of equal eigenvalues are not."""
    if not (np.isfinite(hessian).all() and (np.diagonal(hessian) > 0).all()):
        return None
    hessian = 0.5 * (hessian + hessian.T)
    unit = units(hessian)
    unitless = scaled(hessian, unit)
    if np.linalg.eigvalsh(unitless).min() <= min_curvature:
        return None
    return np.linalg.inv(np.linalg.cholesky(unitless)) * unit


def estimate_hessian(evaluate: Evaluate, end: np.ndarray, slope: np.ndarray) -> np.ndarray | None:
    """Returns the Hessian (d, d) by forward differences of gradients, or None if it is unreliable:
    asymmetric, nearly flat along a direction, or unable to predict the gradient change of a test
    step along all coordinates, each by a fraction of its width. The test finds rounding errors and
    a Hessian that varies within that width.

    Args:
        end, slope: (d,), a point and the gradient there.

    Cost: d + 1 gradients.
    """
    eps, d = np.finfo(end.dtype).eps, end.size
    min_curvature, share = MIN_CURVATURE[np.dtype(end.dtype)], DIFFERENCE_STEP[np.dtype(end.dtype)]
    with np.errstate(invalid="ignore", over="ignore"):  # infinite entries are rejected below
        points = [(end + step).astype(end.dtype) for step in np.diag(eps ** (1 / 3)
                                                                   * (1 + np.abs(end)))]
        hessian = np.array([(evaluate(point)[1] - slope) / (point - end)[i]
                            for i, point in enumerate(points)], float)
        if whitened(hessian, min_curvature) is None:
            return None
        unit = units(hessian)
        unitless = scaled(hessian, unit)
        if np.abs(unitless - unitless.T).max() > MAX_PREDICTION_ERROR:
            return None
        wave = np.cos(2.4 * np.arange(d) + 0.4)  # the test step moves every coordinate differently
        step = share * unit * np.where(wave < 0, wave - 0.5, wave + 0.5)
        point = (end + step).astype(end.dtype)
        change = unit * (evaluate(point)[1] - slope)
        predicted = unitless @ ((point - end) / unit)
        if not np.abs(change - predicted).max() <= MAX_PREDICTION_ERROR * share:
            return None
    return 0.5 * (hessian + hessian.T)


def differences(gradient: Callable[[np.ndarray], np.ndarray], u: np.ndarray) -> np.ndarray:
    """Returns the Hessian (d, d) at u (d,) by central differences of a gradient, first with a fixed
    step, then with a fraction of the width of each coordinate.

    Cost: 4 d gradients.
    """
    eps = np.finfo(u.dtype).eps
    first_step = eps ** (1 / 3) * (1 + np.abs(u))
    share, step = DIFFERENCE_STEP[np.dtype(u.dtype)], first_step
    for _ in range(2):
        ends = [[gradient((u + side * h).astype(u.dtype)) for side in (1, -1)]
                for h in np.diag(step)]
        with np.errstate(invalid="ignore"):  # the density may be 0 at an end
            found = np.array([(up - down) / (2 * h)
                              for (up, down), h in zip(ends, step, strict=True)], float)
        found = 0.5 * (found + found.T)
        curved = np.diagonal(found) > 0
        step = np.where(curved, share / np.sqrt(np.where(curved, np.diagonal(found), 1.0)),
                        first_step)
        step = np.maximum(step, 1e-3 * first_step)
    return found
